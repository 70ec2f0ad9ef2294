"""The file of fixture cases that `spark-etl test` reads: records that go in, and outputs that they must give.

    cases:
      - name: an order without an amount is refused
        records:
          - {key: k1, value: {order_id: 1}, headers: {trace: abc}, timestamp: 2026-01-31T12:00:00Z}
        rows: []
        dead_letters:
          - {offset: 0, stage: decode, rule: required}
        topics:
          orders.clean: []

A record's value is a text, or any other YAML value as JSON; `value_base64` and `key_base64` are bytes. Its offset is
its number in the case, its partition 0, its topic the first of the source, its time 2026-01-01T00:00:00Z, unless the
record says otherwise. With decode.timestamp, which compares it with the time of the event, it is that of the test. An
expected row, letter or topic record names only the fields that must be equal. `rows` and `topics` are compared if the
case has them. A dead letter that no case expects is a fault.
"""

import json
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from spark_etl.config import yaml_text
from spark_etl.errors import ConfigError

CASES_FILE_BYTES_MAX = 16 << 20


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Record(_Strict):
    key: Any = None
    key_base64: str | None = None
    value: Any = None
    value_base64: str | None = None
    headers: dict[str, str | None] = {}
    topic: str | None = None
    partition: int = Field(default=0, ge=0, le=999_999)
    offset: int | None = Field(default=None, ge=0)
    timestamp: datetime | None = None

    @field_validator("timestamp")
    @classmethod
    def _in_utc(cls, value: datetime | None) -> datetime | None:
        return value if value is None or value.tzinfo is not None else value.replace(tzinfo=UTC)

    @field_validator("key_base64", "value_base64")
    @classmethod
    def _is_base64(cls, value: str | None) -> str | None:
        if value is not None:
            b64decode(value, validate=True)
        return value

    @property
    def key_bytes(self) -> bytes | None:
        return _bytes(self.key, self.key_base64)

    @property
    def value_bytes(self) -> bytes | None:
        return _bytes(self.value, self.value_base64)

    @property
    def header_bytes(self) -> list[tuple[str, bytes | None]]:
        return [(name, None if text is None else text.encode()) for name, text in self.headers.items()]


class Case(_Strict):
    name: str = Field(min_length=1, max_length=200)
    records: list[Record]
    rows: list[dict[str, Any]] | None = None
    dead_letters: list[dict[str, Any]] = []
    topics: dict[str, list[dict[str, Any]]] = {}


class Cases(_Strict):
    cases: list[Case] = Field(min_length=1, max_length=2_000)

    @model_validator(mode="after")
    def _names_differ(self) -> "Cases":
        names = [case.name for case in self.cases]
        double = next((name for number, name in enumerate(names) if name in names[:number]), None)
        if double is not None:
            raise ValueError(f"two cases have the name {double!r}")
        return self


def load_cases(path: Path) -> list[Case]:
    """Read a file of cases. Raises ConfigError with the file and the place of the first fault."""
    try:
        with path.open("rb") as file:
            content = file.read(CASES_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(content) > CASES_FILE_BYTES_MAX:
        raise ConfigError(f"{path}: larger than {CASES_FILE_BYTES_MAX} bytes")
    try:
        document = yaml.load(content, yaml_text.Loader)
        return Cases.model_validate(document).cases
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from None


def _bytes(plain: Any, base64: str | None) -> bytes | None:
    if base64 is not None:
        return b64decode(base64)
    if plain is None:
        return None
    return plain.encode() if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False).encode()
