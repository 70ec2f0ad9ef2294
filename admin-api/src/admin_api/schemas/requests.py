"""The parts of every request body: strict types, no unknown field, text that is text."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

GivenInt32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1, json_schema_extra={"format": "int32"})]


def as_text(value: str) -> str:
    """Refuse half a surrogate pair, which JSON can write but which is no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("string_unicode", "Input should be valid Unicode text") from None
    return value


Text = Annotated[str, AfterValidator(as_text)]


class Request(BaseModel):
    """A caller's input: types as written (no "3" for 3), and no unknown field."""

    model_config = ConfigDict(strict=True, extra="forbid")


def example(**fields: Any) -> ConfigDict:
    """Return the configuration of a request body that the page /docs shows with these fields."""
    return ConfigDict(json_schema_extra={"examples": [fields]})
