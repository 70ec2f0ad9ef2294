"""The login of a person in a browser: it becomes a cookie that no script can read; and who makes a request."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from broker_contract.acls import CLUSTER_NAME, Operation
from fastapi import FastAPI, Request
from service_chassis.http import pages
from service_chassis.http.access import Access, Principal, caller, cookie_of
from service_chassis.http.rules import PUBLIC
from starlette.responses import JSONResponse, Response

from admin_api import errors
from admin_api.logins import ClusterLogins
from admin_api.needs import NOTHING, Calls, sender_of
from admin_api.registry.schemas import Schemas
from admin_api.rights import CLUSTER, Policy
from admin_api.roles import Role
from admin_api.routers.operations import Operations
from admin_api.rules import RULES
from admin_api.schemas.session import LoginRequest, Me, Session

PATH = "/api/v1/session"
#: Kafka's operations on the cluster.
CLUSTER_OPERATIONS = (
    *(Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION, Operation.CREATE),
    *(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.IDEMPOTENT_WRITE),
)


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Login (api/v1)")
    operations.get(PATH, "getSession", get_session, needs=NOTHING)
    operations.add("POST", PATH, "logIn", log_in, answer=Session, needs=NOTHING)
    operations.add("DELETE", PATH, "logOut", log_out, status_code=204, needs=NOTHING)
    operations.get("/api/v1/me", "getMe", get_me, needs=NOTHING)


async def get_session(request: Request) -> Session:
    """Return who makes the request, what they may do, and whether a login is needed."""
    return _session(request, caller(request.scope))


async def get_me(request: Request, calls: Calls) -> Me:
    """Return who makes the request, as ACLs name them, and what bounds them."""
    may = await calls.rights.operations(CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)
    sender, policy = caller(request.scope), _policy(request)
    schemas: Schemas = request.app.state.schemas
    principal = sender_of(request).principal
    return Me(
        principal=principal,
        name=None if sender.is_anonymous else sender.name,
        role=_role(sender),
        has_authorizer=policy is not None,
        is_super_user=policy is None or principal in policy.super_users,
        cluster_operations=[operation.name for operation in may],
        read_only=_access(request).is_read_only,
        has_schema_registry=schemas.are_set,
    )


async def log_in(request: Request, given: LoginRequest) -> Response:
    """Keep a login in a cookie: a token, or the name and the password of a user. A server without logins keeps none."""
    access, logins = _access(request), _logins(request)
    if not (access.needs_login or access.has_users):
        return JSONResponse(_session(request, caller(request.scope)).model_dump())
    if given.token is not None:
        if given.user is not None or given.password is not None:
            raise errors.of_status(400, "body: a token, or user and password")
        sender = access.holder(given.token)
        if sender is not None:
            return _answer(request, _session(request, sender).model_dump(), given.token)
        sender = await access.user_of_token(given.token, request.scope)
    elif given.user is None or given.password is None:
        raise errors.of_status(400, "body: a token, or user and password")
    else:
        sender = await access.user_of_password(given.user, given.password, request.scope)
    if sender is None:
        raise RULES.refusal(401, access.wrong)
    cookie = await logins.open_session(sender.name, token=given.token or "", password=given.password or "")
    if cookie is None:
        raise RULES.refusal(401, access.wrong)
    return _answer(request, _session(request, sender).model_dump(), cookie)


async def log_out(request: Request) -> Response:
    """Delete the cookie, and end the session of a user. A token stays valid."""
    _logins(request).close_session(cookie_of(request.scope))
    return _answer(request, None, "")


def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def _logins(request: Request) -> ClusterLogins:
    logins: ClusterLogins = request.app.state.logins
    return logins


def _policy(request: Request) -> Policy | None:
    policy: Policy | None = request.app.state.policy
    return policy


def _role(sender: Principal) -> Literal["public", "read", "write", "admin"]:
    return Role(sender.role).name.lower()  # type: ignore[return-value]  # the names of the roles


def _session(request: Request, sender: Principal) -> Session:
    access = _access(request)
    is_known = sender.role != PUBLIC
    needed: Literal["users", "token"] = "users" if access.has_users else "token"
    return Session(
        login=needed if access.needs_login or access.has_users else "none",
        is_logged_in=is_known and not (access.has_users and sender.is_anonymous),
        name=None if sender.is_anonymous else sender.name,
        role=_role(sender),
        read_only=access.is_read_only,
    )


def _answer(request: Request, content: object, cookie: str) -> Response:
    public = urlsplit(request.app.state.settings.admin_public_url)
    # A browser names the scheme of its page in Origin. No page can change that.
    is_secure = "https" in (public.scheme, request.headers.get("origin", "").partition(":")[0])
    header = pages.cookie(RULES.cookie, cookie, path=public.path or "/", is_secure=is_secure)
    headers = {"set-cookie": header, "cache-control": "no-store"}
    return Response(status_code=204, headers=headers) if content is None else JSONResponse(content, headers=headers)
