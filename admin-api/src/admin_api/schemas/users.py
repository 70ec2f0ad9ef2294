"""Users with a password. No answer has a password, a salt or a key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.requests import GivenInt32, Request, Text, example
from admin_api.schemas.resources import Int32

PASSWORD_LENGTH_MAX = 1024

Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]


class Credential(Answer):
    mechanism: Mechanism
    iterations: Int32


class User(Answer):
    user_name: str
    credentials: list[Credential]


class UserList(Answer):
    data: list[User]
    next: str | None = Field(description="URL of the next page; null on the last one.")


class PasswordRequest(Request):
    model_config = example(password="correct horse battery staple", mechanism="SCRAM-SHA-512", iterations=8192)

    password: Annotated[
        Text,
        Field(
            min_length=1,
            max_length=PASSWORD_LENGTH_MAX,
            repr=False,
            json_schema_extra={"format": "password", "writeOnly": True},
        ),
    ]
    mechanism: Mechanism | None = Field(None, description="Null: both.")
    iterations: GivenInt32 = Field(8192, description="4,096 to 16,384.")
