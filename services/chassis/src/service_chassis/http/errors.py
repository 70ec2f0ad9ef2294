"""Errors as answers: the exception, and the handlers that turn the framework's errors into it.

ApiError   an answer other than success: HTTP status, error code, message
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

#: Most faults of one request that its answer names.
_FAULTS_MAX = 5
_FAULT_LENGTH_MAX = 200


class ApiError(HTTPException):
    """An answer other than success. The message is for the caller: nothing internal goes in."""

    def __init__(
        self, status_code: int, error_code: int, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status_code, detail=message, headers=headers)
        self.error_code = error_code
        self.message = message


def of_status(status_code: int, message: str = "", headers: Mapping[str, str] | None = None) -> ApiError:
    """Return an error of HTTP: its error code is the status."""
    return ApiError(status_code, status_code, message or f"HTTP {status_code} {_phrase(status_code)}", headers)


def add_error_handlers(
    app: FastAPI, render: Callable[[ApiError], Response], no_such_path: Callable[[], ApiError]
) -> None:
    """Answer every error of the application as `render` does."""

    async def answer_http_error(request: Request, error: Exception) -> Response:
        if isinstance(error, ApiError):
            return render(error)
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return render(no_such_path())
        headers = dict(error.headers or {})
        message = ""
        if error.status_code == 405:
            headers = {"allow": ", ".join(_allowed_methods(request))}
            message = f"This path does not have this method. It has: {headers['allow']}."
        elif error.status_code == 400:
            # FastAPI's own 400 is a body that its JSON parser gave up on: not UTF-8, too deep, a number too long.
            message = "The body cannot be read as JSON."
        return render(of_status(error.status_code, message, headers))

    async def answer_faults(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return render(of_status(400, "; ".join(_fault(fault) for fault in error.errors()[:_FAULTS_MAX])))

    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_exception_handler(RequestValidationError, answer_faults)


def _fault(fault: Any) -> str:
    """Return one line about a fault: its place and kind, without the value."""
    if fault["type"] == "json_invalid":
        return f"The body is not JSON: {fault['ctx']['error']} (character {fault['loc'][-1]})"
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}"[:_FAULT_LENGTH_MAX]


def _allowed_methods(request: Request) -> list[str]:
    """Return every method of the path. The router knows only the first one's, because each method has a route."""
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods
    if "GET" in methods:
        methods.add("HEAD")
    return sorted(methods)


def _phrase(status_code: int) -> str:
    try:
        return HTTPStatus(status_code).phrase
    except ValueError:
        return "Error"
