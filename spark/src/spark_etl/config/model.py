"""The base of every section's model, and the types that several sections use."""

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

Topic = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
Column = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,127}$")]  # a leading _ is ours
AnyColumn = Annotated[str, Field(pattern=r"^_?[A-Za-z][A-Za-z0-9_]{0,127}$")]  # a data column, or one of ours
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,127}$")]
Expression = Annotated[str, Field(min_length=1, max_length=10_000)]
Location = Annotated[str, Field(min_length=1, max_length=4_096)]  # a folder or file: local, or a URL of Hadoop's

_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_DURATION = re.compile(r"^([1-9]\d{0,8}) (second|minute|hour|day)s?$")


class Section(BaseModel):
    """A mapping of the pipeline file. A key that is not declared is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def seconds(duration: str) -> int:
    """Return the length of a checked Duration in seconds."""
    match = _DURATION.match(duration)
    if match is None:
        raise ValueError("a duration is a number and second(s), minute(s), hour(s) or day(s), as in `10 minutes`")
    return int(match[1]) * _UNIT_SECONDS[match[2]]


def _duration(text: str) -> str:
    seconds(text)
    return text


Duration = Annotated[str, AfterValidator(_duration)]


def _share(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = re.match(r"^(\d{1,3}(?:\.\d{1,6})?)%$", value.strip())
    if match is None:
        raise ValueError("a share is a percentage, as in `5%`")
    return float(Decimal(match[1]) / 100)


Share = Annotated[float, BeforeValidator(_share), Field(ge=0, le=1)]
