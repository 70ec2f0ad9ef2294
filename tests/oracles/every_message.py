"""Every message in every version, to run a test over."""

import pytest
from protocol_lib.api import APIS

VERSIONS = [
    (cls, version)
    for api in APIS.values()
    for cls in (api.request, api.response)
    for version in range(api.min_version, api.max_version + 1)
]
EVERY_MESSAGE = pytest.mark.parametrize(
    ("cls", "version"), [pytest.param(cls, version, id=f"{cls.__name__}-{version}") for cls, version in VERSIONS]
)
