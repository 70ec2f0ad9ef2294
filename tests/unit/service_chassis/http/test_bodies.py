"""Bodies: the limits of size, time and structure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from service_chassis.http import bodies
from service_chassis.http.bodies import BODY_BYTES_MAX, MEMBERS_MAX, VALUES_MAX, Body
from service_chassis.http.errors import ApiError
from starlette.datastructures import Headers
from starlette.types import Message


def test_structure_is_counted_before_it_is_built() -> None:
    assert bodies.parsed(b"[" + b"1," * (VALUES_MAX - 2) + b"1]") == [1] * (VALUES_MAX - 1)
    for text in (b"[" + b"1," * VALUES_MAX + b"1]", b"[" * 2000 + b"{" * 2097, b"," * 5000):
        with pytest.raises(ApiError, match="commas and opening brackets"):
            bodies.parsed(text)
    members = ",".join(f'"{number}":1' for number in range(MEMBERS_MAX))
    assert len(bodies.parsed(f"{{{members}}}".encode())) == MEMBERS_MAX
    with pytest.raises(ApiError, match="more than 16 members"):
        bodies.parsed(f'{{"more":1,{members}}}'.encode())


def _arriving(*parts: bytes, ends: bool = True) -> Callable[[], Awaitable[Message]]:
    """Return a `receive` of these parts; if the body does not end, it waits for ever after them."""
    left = list(reversed(parts))

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        part = left.pop()
        return {"type": "http.request", "body": part, "more_body": bool(left) or not ends}

    return receive


async def test_a_body_that_does_not_arrive_in_time_is_refused() -> None:
    body = Body(_arriving(b"{", b'"', ends=False), Headers({"content-length": "100"}))
    with pytest.raises(ApiError) as refused:
        await body.read(timeout_s=0.01)
    assert (refused.value.status_code, refused.value.headers) == (408, {"connection": "close"})


async def test_many_small_parts_are_one_body() -> None:
    body = Body(_arriving(*[b"x"] * 5000), Headers({"transfer-encoding": "chunked"}))
    await body.read()
    assert await body.receive() == {"type": "http.request", "body": b"x" * 5000, "more_body": False}
    assert not body.to_come


@pytest.mark.parametrize("announced", [{"transfer-encoding": "chunked"}, {"content-length": "65536"}])
async def test_a_body_stops_at_its_limit(announced: dict[str, str]) -> None:
    body = Body(_arriving(b"x" * BODY_BYTES_MAX, b"x"), Headers(announced))
    with pytest.raises(ApiError) as refused:
        await body.read()
    assert refused.value.status_code == 413


async def test_without_a_body_nothing_is_waited_for() -> None:
    body = Body(_arriving(ends=False), Headers({}))
    await body.read()
    assert await body.receive() == {"type": "http.request", "body": b"", "more_body": False}
