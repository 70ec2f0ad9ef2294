"""The login of a person in a browser, and who makes a request."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.requests import Request, Text

#: OAuth tokens have some kilobytes.
SECRET_LENGTH_MAX = 16_384
NAME_LENGTH_MAX = 1024

_Secret = Annotated[
    Text,
    Field(
        min_length=1,
        max_length=SECRET_LENGTH_MAX,
        json_schema_extra={"format": "password", "writeOnly": True},
    ),
]


class Session(Answer):
    login: Literal["none", "token", "users"] = Field(
        description="none: everyone may do everything that the server allows. users: of the cluster, or a token."
    )
    is_logged_in: bool = Field(description="Whether the request has a login that the server accepts, or needs none.")
    name: str | None = Field(description="The name of the user or token; null without one.")
    role: Literal["public", "read", "write", "admin"]
    read_only: bool = Field(description="Whether the server refuses every change.")


class Me(Answer):
    principal: str = Field(description="As ACLs name it: User:ANONYMOUS without a login.")
    name: str | None = Field(description="The name of the user or token; null without a login.")
    role: Literal["public", "read", "write", "admin"] = Field(description="Of a token; of everyone else admin.")
    has_authorizer: bool = Field(description="Whether ACLs decide what the principal may do.")
    is_super_user: bool = Field(description="Whether the principal may do everything; true without an authorizer.")
    cluster_operations: list[str] = Field(description="Kafka's operations that the principal may do to the cluster.")
    read_only: bool = Field(description="Whether the server refuses every change.")
    has_schema_registry: bool = Field(description="Whether a schema registry is set.")


class LoginRequest(Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"token": "0123456789abcdef0123456789abcdef"}]})

    token: _Secret | None = Field(None, repr=False, description="A token; or user and password.")
    user: Annotated[Text, Field(min_length=1, max_length=NAME_LENGTH_MAX)] | None = None
    password: _Secret | None = Field(None, repr=False)
