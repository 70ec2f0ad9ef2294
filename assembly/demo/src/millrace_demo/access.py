"""What lets the demo in at a secured broker: options of its Kafka clients, and a token of the REST API.

The options are librdkafka's, from a file of lines NAME=VALUE. They and the token may be secrets: no message has them.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from millrace_demo.errors import DemoError

_BYTES_MAX: Final = 65_536
Options = Mapping[str, str]
NO_OPTIONS: Final[Options] = MappingProxyType({})


def read_options(path: Path) -> Options:
    """Return the lines NAME=VALUE of a file. Raises DemoError for another line, by its number."""
    found = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise DemoError(f"{path}: line {number} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def read_token(path: Path) -> str:
    """Return the token in the first line of a file."""
    return _text(path).partition("\n")[0].strip()


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise DemoError(f"{path} is larger than {_BYTES_MAX} bytes")
    return data.decode(errors="replace")
