"""The registration of endpoints: under /v3, named as in Confluent's API, with the errors that each can answer.

/kafka/v3 needs no separate entries: the middleware makes its prefix the root path of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.datastructures import Default
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import JSONResponse, Response

from admin_api.needs import Needs
from admin_api.roles import required
from admin_api.routers.requirements import JSON, Requirements
from admin_api.schemas.resources import Error

_REFERENCE = "#/components/schemas/{model}"
CLUSTERS = "/v3/clusters"
CLUSTER = "/v3/clusters/{cluster_id}"

#: A reference to the shape of errors: with a model, FastAPI would make a validator of it for each operation.
_ERROR_CONTENT = {JSON: {"schema": {"$ref": _REFERENCE.format(model=Error.__name__)}}}
_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "The request is refused; the message says why.", "content": _ERROR_CONTENT},
    "5XX": {"description": "The server or storage cannot answer now.", "content": _ERROR_CONTENT},
}


def described(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description, with the shapes of errors and of the bodies that endpoints read themselves."""
    description = FastAPI.openapi(app)
    shapes = [(each, "validation") for each in (Error, *app.state.read_bodies)]
    _, definitions = models_json_schema(shapes, ref_template=_REFERENCE)  # type: ignore[arg-type]  # a list of literals
    schemas = description["components"]["schemas"] | definitions["$defs"]
    description["components"]["schemas"] = dict(sorted(schemas.items()))
    schemes = description["components"]["securitySchemes"]
    if "HTTPBasic" not in schemes:  # as a dependency it would answer a malformed header itself
        schemes["HTTPBasic"] = {"type": "http", "scheme": "basic"}
        for methods in description["paths"].values():
            for operation in methods.values():
                operation["security"].insert(0, {"HTTPBasic": []})
    return description


class Operations:
    """The operations of one tag. The endpoint's name is the operation's title, its docstring the description."""

    __slots__ = ("_app", "_tag")

    def __init__(self, app: FastAPI, tag: str) -> None:
        self._app = app
        self._tag = tag

    def get(
        self,
        path: str,
        operation_id: str,
        endpoint: Callable[..., Any],
        answer: type[BaseModel] | None = None,
        *,
        needs: Needs,
    ) -> None:
        self.add("GET", path, operation_id, endpoint, needs=needs, answer=answer)

    def change(self, method: str, path: str, operation_id: str, endpoint: Callable[..., Any], *, needs: Needs) -> None:
        """Add an operation that changes something and answers 204 without a body."""
        self.add(method, path, operation_id, endpoint, needs=needs, status_code=204)

    def add(
        self,
        method: str,
        path: str,
        operation_id: str,
        endpoint: Callable[..., Any],
        *,
        needs: Needs,
        status_code: int = 200,
        responses: dict[int | str, dict[str, Any]] | None = None,
        answer: type[BaseModel] | None = None,
        response_class: type[Response] | None = None,
        body: type[BaseModel] | None = None,
    ) -> None:
        """Add an operation. `needs` are the Kafka rights that its sender needs.

        `answer` is the shape of an endpoint that returns a response in place of an object.

        `body` is the shape of a body that the endpoint reads from the request.
        """
        # A token is required of the servers that are set up so: {} is none.
        extra: dict[str, Any] = {"x-required-role": required(method, path).name.lower(), "security": [{}]}
        if needs.text:
            extra["x-required-rights"] = needs.text
        if body is not None:
            schema = {"$ref": _REFERENCE.format(model=body.__name__)}
            extra["requestBody"] = {"content": {"application/json": {"schema": schema}}, "required": True}
            self._app.state.read_bodies.append(body)
        media_types = [media_type for each in (responses or {}).values() for media_type in each.get("content", ())]
        requirements = Requirements(frozenset({JSON, *media_types}))
        self._app.add_api_route(
            path,
            endpoint,
            methods=[method],
            operation_id=operation_id,
            summary=endpoint.__name__.replace("_", " ").capitalize().replace("acl", "ACL"),
            tags=[self._tag],
            status_code=status_code,
            responses={**(responses or {}), **_ERRORS},
            response_model=Default(None) if answer is None else answer,
            openapi_extra=extra,
            response_class=response_class or Default(JSONResponse),  # written by pydantic, which is the fastest
            dependencies=[Depends(needs), Depends(requirements)],
        )
        route = self._app.routes[-1]
        assert isinstance(route, APIRoute)
        requirements.learn(route)
