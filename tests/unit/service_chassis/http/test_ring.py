"""The ring around every request: turns, sizes, faults, HEAD, and what a service puts in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from prometheus_client import CollectorRegistry
from service_chassis.http import ring as ring_module
from service_chassis.http.access import Access, authorize
from service_chassis.http.bodies import JsonRoute
from service_chassis.http.errors import add_error_handlers, of_status
from service_chassis.http.origins import Hosts
from service_chassis.http.ring import HttpMetrics, RequestRing
from service_chassis.http.rules import Rules
from starlette.types import Receive, Scope, Send

from tests.unit.service_chassis.http.conftest import RULES, SETTINGS

NO_METHOD = "This path does not have this method. It has:"


async def test_a_slow_receiver_of_an_answer_holds_up_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "RUNNING_MAX", 1)
    received = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await received.wait()
        await send({"type": "http.response.body"})

    ring = _ring(app)
    slow = [asyncio.create_task(_status(ring, "/docs")) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not ring._programs.running.locked()
    assert ring._programs.waiting == 0
    received.set()
    assert await asyncio.gather(*slow) == [200] * 5


async def test_a_request_takes_no_place_before_its_body_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "RUNNING_MAX", 1)
    monkeypatch.setattr(ring_module, "WAITING_MAX", 0)

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await _answer(send)

    ring = _ring(app)
    sending = asyncio.create_task(_status(ring, "/slow", headers=[(b"content-length", b"1000")]))
    await asyncio.sleep(0.01)
    assert await _status(ring, "/images") == 200
    assert not sending.done()
    sending.cancel()


async def test_pages_have_places_while_programs_keep_theirs_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "RUNNING_MAX", 1)
    monkeypatch.setattr(ring_module, "PAGES_RUNNING_MAX", 1)
    monkeypatch.setattr(ring_module, "WAITING_MAX", 1)
    may_end = asyncio.Event()

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/images":
            await may_end.wait()
        await _answer(send)

    ring = _ring(app)
    page = [(b"x-requested-by", b"console")]
    asked = [asyncio.create_task(_status(ring, "/images")) for _ in range(3)]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in asked if task.done()] == [503]
    assert await _status(ring, "/layers", headers=page) == 200
    assert await _status(ring, "/layers", headers=[(b"sec-fetch-site", b"same-origin")]) == 200
    busy = [asyncio.create_task(_status(ring, "/images", headers=page)) for _ in range(3)]
    await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in busy if task.done()] == [503]
    may_end.set()
    assert sorted(await asyncio.gather(*asked, *busy)) == [200] * 4 + [503] * 2


async def test_requests_above_the_limit_wait_for_their_turn_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "RUNNING_MAX", 2)
    monkeypatch.setattr(ring_module, "WAITING_MAX", 3)
    may_end = asyncio.Event()

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/images":
            await may_end.wait()
        await _answer(send)

    ring = _ring(app)
    asked = [asyncio.create_task(_status(ring, "/images")) for _ in range(6)]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in asked if task.done()] == [503]
    assert await _status(ring, "/healthz") == 200
    may_end.set()
    assert sorted(await asyncio.gather(*asked)) == [200] * 5 + [503]
    monkeypatch.setattr(ring_module, "WAIT_TIMEOUT_S", 0.01)
    may_end.clear()
    running = [asyncio.create_task(_status(ring, "/images")) for _ in range(2)]
    await asyncio.sleep(0)
    assert await _status(ring, "/images") == 503
    may_end.set()
    assert await asyncio.gather(*running) == [200, 200]


async def test_one_client_has_half_of_the_places_of_requests_that_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv6 addresses of one network are one client. Those that wait for their own share stand in nobody's way."""
    may_end = asyncio.Event()
    running: list[str] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        running.append(scope["client"][0])
        await may_end.wait()
        await _answer(send)

    ring = _ring(app, rules=replace(RULES, reads_in_parts=lambda _method, _path: "stream", places={"stream": 4}))
    asked = [asyncio.create_task(_status(ring, "/stream", host=f"2001:db8::{number}")) for number in range(4)]
    await asyncio.sleep(0)
    assert running == ["2001:db8::0", "2001:db8::1"]
    asked += [asyncio.create_task(_status(ring, "/stream", host=host)) for host in ("192.0.2.1", "192.0.2.2")]
    await asyncio.sleep(0)
    assert running[2:] == ["192.0.2.1", "192.0.2.2"]
    with monkeypatch.context() as patch:
        patch.setattr(ring_module, "WAIT_TIMEOUT_S", 0.01)
        assert await _status(ring, "/stream", host="192.0.2.3") == 503
    may_end.set()
    assert await asyncio.gather(*asked) == [200] * 6
    assert len(running) == 6
    del asked
    assert len(ring._in_parts["stream"]) == 0


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        (b"&".join([b"a=1"] * 16), [], 200),
        (b"&".join([b"a=1"] * 17), [], 400),
        (b"", [(b"a", b"1")] * 99, 200),
        (b"", [(b"a", b"1")] * 100, 431),
    ],
)
async def test_requests_of_many_parts_are_refused(query: bytes, headers: list[Any], status: int) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        seen.append(scope)
        await _answer(send)

    assert await _status(_ring(app), "/images", query, headers) == status
    assert len(seen) == (status == 200)


async def test_cookies_are_dropped() -> None:
    names: list[bytes] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        names.extend(name for name, _ in scope["headers"])
        await _answer(send)

    await _status(_ring(app), "/images", headers=[(b"cookie", b"a=1; b=2"), (b"x", b"y")])
    assert names == [b"host", b"x"]


async def _answer(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


def _ring(app: Callable[..., Any], registry: CollectorRegistry | None = None, rules: Rules = RULES) -> RequestRing:
    metrics = HttpMetrics(registry or CollectorRegistry())
    return RequestRing(app, metrics=metrics, hosts=Hosts(None), access=Access(rules, SETTINGS))


async def _status(
    ring: RequestRing, path: str, query: bytes = b"", headers: list[Any] | None = None, host: str = "192.0.2.1"
) -> int:
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query,
        "headers": [(b"host", b"localhost"), *(headers or [])], "client": (host, 1),
    }  # fmt: skip
    await ring(scope, receive, send)
    return statuses[0]


async def test_an_unforeseen_fault_says_nothing_of_itself(capfd: pytest.CaptureFixture[str]) -> None:
    async def failing(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("of /var/lib/millrace")

    registry = CollectorRegistry()
    ring = _ring(failing, registry)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(ring), base_url="http://localhost") as client:
        answer = await client.get("/images", headers={"x-request-id": "unlucky"})
    assert answer.status_code == 500
    assert answer.json() == {"errors": [5000, "The server met an unexpected error."]}
    assert answer.headers["x-request-id"] == "unlucky"
    assert "of /var/lib/millrace" in capfd.readouterr().err
    labels = {"method": "GET", "route": "unmatched", "status": "500"}
    assert registry.get_sample_value("http_requests_total", labels) == 1


async def test_no_stream_goes_on_after_its_head() -> None:
    made = 0

    async def long(_scope: Scope, _receive: Receive, send: Send) -> None:
        nonlocal made
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            made += 1
            await send({"type": "http.response.body", "body": b"part", "more_body": True})

    registry = CollectorRegistry()
    ring = _ring(long, registry)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(ring), base_url="http://localhost") as client:
        answer = await client.head("/images")
    assert (answer.status_code, answer.content, made) == (200, b"", 1)
    labels = {"method": "HEAD", "route": "unmatched", "status": "200"}
    assert registry.get_sample_value("http_requests_total", labels) == 1


@pytest.mark.parametrize(
    ("method", "path", "token", "status", "errors"),
    [
        ("GET", "/", "", 200, None),
        ("GET", "/images", "", 401, [4010, "A token is required: Authorization: Bearer …"]),
        ("GET", "/images", "pull-0123456789abcdef", 200, None),
        ("POST", "/images", "pull-0123456789abcdef", 403, [4030, "This needs the role push, not pull."]),
        ("POST", "/images", "push-0123456789abcdef", 403, [4030, "This server is read-only (REGISTRY_READ_ONLY)."]),
        ("GET", "/none", "pull-0123456789abcdef", 404, [404, "No such image."]),
        (
            "DELETE",
            "/images",
            "push-0123456789abcdef",
            405,
            [405, "This path does not have this method. It has: GET, HEAD, POST."],
        ),
    ],
)
async def test_a_service_has_its_own_roles_codes_and_shape_of_errors(
    tmp_path: Path, method: str, path: str, token: str, status: int, errors: list[Any] | None
) -> None:
    (tmp_path / "tokens").write_text("ann pull pull-0123456789abcdef\nbob push push-0123456789abcdef\n")
    settings = replace(SETTINGS, auth="token", tokens_file=str(tmp_path / "tokens"), read_only=True)
    app = FastAPI(dependencies=[Depends(authorize)], redirect_slashes=False)
    app.router.route_class = JsonRoute
    for route, methods in (("/", ["GET"]), ("/images", ["GET"]), ("/images", ["POST"])):
        app.add_api_route(route, lambda: "here", methods=methods)
    add_error_handlers(app, RULES.render, lambda: of_status(404, "No such image."))
    metrics, access = HttpMetrics(CollectorRegistry()), Access(RULES, settings)
    app.add_middleware(RequestRing, metrics=metrics, hosts=Hosts.of(settings), access=access)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        answer = await client.request(method, path, headers=headers)
    assert (answer.status_code, answer.json()) == (status, "here" if errors is None else {"errors": errors})


async def test_a_route_is_made_when_it_is_first_needed() -> None:
    app = FastAPI(redirect_slashes=False)
    app.router.route_class = JsonRoute
    for path in ("/a", "/b/{name}", "/c"):
        app.add_api_route(path, lambda name="none": {"name": name}, methods=["GET"])
    routes = {route.path: route for route in app.routes if isinstance(route, JsonRoute)}

    def made() -> list[str]:
        return [path for path, route in routes.items() if "dependant" in vars(route)]

    assert made() == []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get("/b/two")).json() == {"name": "two"}
        assert made() == ["/b/{name}"]
        assert (await client.post("/a")).status_code == 405
    with ThreadPoolExecutor(8) as threads:
        found = [each.result() for each in [threads.submit(lambda: routes["/c"].dependant) for _ in range(32)]]
    assert all(each is found[0] for each in found)
    with pytest.raises(AttributeError, match="none"):
        _ = routes["/c"].none
    assert sorted(app.openapi()["paths"]) == ["/a", "/b/{name}", "/c"]
