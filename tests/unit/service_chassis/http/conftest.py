"""A service of its own roles, codes and shape of errors, as other services than admin-api have them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import pytest
from service_chassis import address
from service_chassis.http.errors import ApiError
from service_chassis.http.rules import Rules
from service_chassis.http.settings import HttpSettings
from starlette.responses import JSONResponse
from support.loop_thread import LoopThread

__all__ = ["RULES", "SETTINGS", "Role"]


class Role(IntEnum):
    NOBODY = 0
    PULL = 1
    PUSH = 2
    OWNER = 3


def _required(method: str, path: str) -> Role:
    if path == "/":
        return Role.NOBODY
    return {"GET": Role.PULL, "DELETE": Role.OWNER}.get(method, Role.PUSH)


def _render(error: ApiError) -> JSONResponse:
    return JSONResponse({"errors": [error.error_code, error.message]}, error.status_code, error.headers)


RULES = Rules(
    roles=Role,
    required=_required,
    render=_render,
    audit="registry.audit",
    codes={401: 4010, 403: 4030, 429: 4290, 500: 5000, 503: 5030},
    root_path=lambda path: "/mirror" if path.startswith("/mirror/") else "",
)
SETTINGS = HttpSettings(prefix="REGISTRY_", listens_at=address.parse("127.0.0.1:0"))


@pytest.fixture(scope="session")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()
