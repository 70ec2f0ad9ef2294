"""The requirements of an operation that its endpoint does not see: known query parameters, and an accepted answer.

/api/v1 refuses a query parameter that it does not know (400): a misspelt filter would return everything. /v3 ignores
it, as Confluent's API does, whose clients may know more parameters. An Accept header that admits no answer of the
operation is refused (406, RFC 9110).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from admin_api import errors

#: Every operation answers with it, if only its errors.
JSON = "application/json"
_OURS = "/api/v1"
_NAME_MAX = 64


class Requirements:
    """A dependency of one route."""

    def __init__(self, media_types: frozenset[str]) -> None:
        types = {f"{each.partition('/')[0]}/*" for each in media_types}
        self._ranges = frozenset({*media_types, *types, "*/*"})
        self._answers = ", ".join(sorted(media_types))
        #: The route whose parameters are known, None if any are allowed.
        self._route: APIRoute | None = None

    def learn(self, route: APIRoute) -> None:
        """Note the route, once it is there."""
        if route.path.startswith(_OURS):
            self._route = route

    @functools.cached_property
    def _parameters(self) -> frozenset[str] | None:
        """The names of the route's query parameters."""
        return None if self._route is None else frozenset(_query_names(self._route.dependant))

    def __call__(self, request: Request) -> None:
        """Raise ApiError 400 or 406 if the request does not meet the requirements."""
        if self._parameters is not None:
            for name in request.query_params:
                if name not in self._parameters:
                    known = ", ".join(sorted(self._parameters)) or "none"
                    message = f"query.{name[:_NAME_MAX]}: there is no such parameter, but: {known}"
                    raise errors.of_status(400, message)
        accepted = ",".join(request.headers.getlist("accept"))
        if accepted and not any(self._admits(each) for each in accepted.split(",")):
            raise errors.of_status(406, f"The answer would be {self._answers}.")

    def _admits(self, text: str) -> bool:
        media_range, *parameters = (part.strip().lower() for part in text.split(";"))
        is_refused = any(
            name.strip() == "q" and value.strip("0. ") == ""
            for name, _, value in (each.partition("=") for each in parameters)
        )
        return media_range in self._ranges and not is_refused


def _query_names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for each in dependant.dependencies:
        yield from _query_names(each)
