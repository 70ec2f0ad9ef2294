"""The login of a person in a browser: the token becomes a cookie that no script can read."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from service_chassis.http import pages
from service_chassis.http.access import Access, Principal, caller
from service_chassis.http.rules import PUBLIC
from starlette.responses import JSONResponse, Response

from admin_api.roles import Role
from admin_api.routers.operations import Operations
from admin_api.rules import RULES
from admin_api.schemas.session import LoginRequest, Session

PATH = "/api/v1/session"


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Login (api/v1)")
    operations.get(PATH, "getSession", get_session)
    operations.add("POST", PATH, "logIn", log_in, answer=Session)
    operations.add("DELETE", PATH, "logOut", log_out, status_code=204)


async def get_session(request: Request) -> Session:
    """Return who makes the request, what they may do, and whether a login is needed."""
    return _session(request, caller(request.scope))


async def log_in(request: Request, given: LoginRequest) -> Response:
    """Keep a token of the tokens file in a cookie. A server without tokens keeps none."""
    access: Access = request.app.state.access
    if not access.needs_token:
        return JSONResponse(_session(request, caller(request.scope)).model_dump())
    holder = access.holder(given.token)
    if holder is None:
        raise RULES.refusal(401, "The token is not one that this server accepts.")
    return _answer(request, _session(request, holder).model_dump(), given.token)


async def log_out(request: Request) -> Response:
    """Delete the cookie. The token stays valid."""
    return _answer(request, None, "")


def _session(request: Request, sender: Principal) -> Session:
    access: Access = request.app.state.access
    is_known = sender.role != PUBLIC
    return Session(
        login="token" if access.needs_token else "none",
        is_logged_in=is_known,
        name=sender.name if is_known and access.needs_token else None,
        role=Role(sender.role).name.lower(),  # type: ignore[arg-type]  # the names of the roles
        read_only=access.is_read_only,
    )


def _answer(request: Request, content: object, token: str) -> Response:
    public = urlsplit(request.app.state.settings.admin_public_url)
    # A browser names the scheme of its page in Origin. No page can change that.
    is_secure = "https" in (public.scheme, request.headers.get("origin", "").partition(":")[0])
    header = pages.cookie(RULES.cookie, token, path=public.path or "/", is_secure=is_secure)
    headers = {"set-cookie": header, "cache-control": "no-store"}
    return Response(status_code=204, headers=headers) if content is None else JSONResponse(content, headers=headers)
