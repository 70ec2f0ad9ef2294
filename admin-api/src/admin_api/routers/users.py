"""Users with a password: the SCRAM credentials of storage."""

from __future__ import annotations

from typing import Annotated

from broker_contract.acls import Operation
from fastapi import FastAPI, Query, Request
from service_chassis.http import audit
from service_chassis.password_checks import CheckThreads

from admin_api import users
from admin_api.needs import Calls, on_cluster
from admin_api.paging import PageQuery
from admin_api.routers.insight import ROWS_MAX, next_url
from admin_api.routers.operations import Operations
from admin_api.schemas.users import Credential, Mechanism, PasswordRequest, User, UserList
from admin_api.view import UserName

PATH = "/api/v1/users"


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Users (api/v1)")
    operations.get(PATH, "listUsers", list_users, needs=on_cluster(Operation.DESCRIBE))
    operations.get(f"{PATH}/{{user_name}}", "getUser", get_user, needs=on_cluster(Operation.DESCRIBE))
    operations.change(
        "PUT", f"{PATH}/{{user_name}}", "setUserPassword", set_user_password, needs=on_cluster(Operation.ALTER)
    )
    operations.change("DELETE", f"{PATH}/{{user_name}}", "deleteUser", delete_user, needs=on_cluster(Operation.ALTER))


async def list_users(calls: Calls, request: Request, paging: PageQuery) -> UserList:
    """List the users that have a password, with the mechanisms of their logins; at most 1,000 a page."""
    page = paging.cut(await users.describe(calls), lambda user: (user.name,), rows_max=ROWS_MAX)
    return UserList(data=[_shown(user) for user in page.rows], next=next_url(request, page.next_query))


async def get_user(calls: Calls, user_name: UserName) -> User:
    """Return the mechanisms of a user's logins."""
    for user in await users.describe(calls, user_name):
        return _shown(user)
    raise users.not_found()


async def set_user_password(calls: Calls, user_name: UserName, given: PasswordRequest, request: Request) -> None:
    """Create a user, or change the password of one. Sessions of the user end at their next request."""
    threads: CheckThreads = request.app.state.logins.threads
    audit.note(request, mechanism=given.mechanism or "both", iterations=given.iterations)
    await users.set_password(calls, threads, user_name, given.password, _chosen(given.mechanism), given.iterations)


async def delete_user(
    calls: Calls,
    user_name: UserName,
    request: Request,
    mechanism: Annotated[Mechanism | None, Query(description="Absent: both.")] = None,
) -> None:
    """Delete the password of a user, for one mechanism or for both, and end its sessions. Its quotas and ACLs stay."""
    audit.note(request, mechanism=mechanism or "both")
    await users.delete(calls, user_name, _chosen(mechanism))


def _chosen(mechanism: Mechanism | None) -> list[int]:
    return [each for name, each in users.MECHANISMS.items() if mechanism in (None, name)]


def _shown(user: users.User) -> User:
    names = {each: name for name, each in users.MECHANISMS.items()}
    return User(
        user_name=user.name,
        credentials=[
            Credential(mechanism=names[each.mechanism], iterations=each.iterations)  # type: ignore[arg-type, index]
            for each in user.credentials
        ],
    )
