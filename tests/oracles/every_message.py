"""Every message in every version, to run a test over."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from protocol_lib.api import APIS
from protocol_lib.schema import message_info

MESSAGES = [cls for api in APIS.values() for cls in (api.request, api.response)]
VERSIONS = [
    (cls, version)
    for cls in MESSAGES
    for version in range(message_info(cls).versions.first, message_info(cls).versions.last + 1)
]


def every_message(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test of (cls, version, fixtures…) once for each message, one version after another.

    One by one, the versions would take longer to set up than to test.
    """

    @functools.wraps(test)
    def of_one_message(cls: type, **fixtures: Any) -> None:
        for version in (version for each, version in VERSIONS if each is cls):
            try:
                test(cls=cls, version=version, **fixtures)
            except Exception as fault:
                fault.add_note(f"{cls.__name__}, version {version}")
                raise

    signature = inspect.signature(test)
    kept = [parameter for name, parameter in signature.parameters.items() if name != "version"]
    of_one_message.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)(of_one_message)
