"""The login of a person in a browser."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.requests import Request, Text

TOKEN_LENGTH_MAX = 512


class Session(Answer):
    login: Literal["none", "token"] = Field(description="none: everyone may do everything that the server allows.")
    is_logged_in: bool = Field(description="Whether the request has a token that the server accepts, or needs none.")
    name: str | None = Field(description="The token's name; null without one.")
    role: Literal["public", "read", "write", "admin"]
    read_only: bool = Field(description="Whether the server refuses every change.")


class LoginRequest(Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"token": "0123456789abcdef0123456789abcdef"}]})

    token: Annotated[Text, Field(min_length=1, max_length=TOKEN_LENGTH_MAX)]
