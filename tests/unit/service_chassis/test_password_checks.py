"""Checks of passwords do not stop the event loop, are bounded, and cost once."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from service_chassis import password_checks
from service_chassis.password_checks import Busy, CheckThreads, PasswordChecks


async def test_a_right_password_is_computed_once_until_the_credential_changes() -> None:
    checks, computed = PasswordChecks(), list[str]()

    def fits(name: str, right: bool) -> bool:
        computed.append(name)
        assert threading.current_thread() is not threading.main_thread()
        return right

    async def check(user: str, password: str, credential: bytes, right: bool = True) -> bool:
        return await checks.is_right(user, password, credential, lambda: fits(user + password, right))

    assert await check("alice", "secret", b"1")
    assert await check("alice", "secret", b"1", right=False), "known"
    assert computed == ["alicesecret"]
    assert not await check("alice", "secret", b"2", right=False), "another credential"
    assert not await check("alices", "ecret", b"1", right=False), "the same bytes in another order"
    assert not await check("alice", "wrong", b"1", right=False)
    assert not await check("alice", "wrong", b"1", right=False)
    assert len(computed) == 5, "wrong passwords are computed each time"
    assert "alicesecret" not in repr(vars(checks))
    checks.close()


async def test_known_passwords_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_checks, "KNOWN_MAX", 2)
    checks = PasswordChecks()
    for user in ("a", "b", "a", "c"):
        assert await checks.is_right(user, "x", b"", lambda: True)
    known = [await checks.is_right(user, "x", b"", lambda: False) for user in ("a", "b", "c")]
    assert known == [True, False, True], "the one that was used longest ago is forgotten"
    checks.close()


async def test_checks_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_checks, "WAITING_MAX", 3)
    threads, go = CheckThreads("test"), threading.Event()
    running = [asyncio.create_task(threads.run(go.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await threads.run(go.wait)
    running[0].cancel()
    go.set()
    assert await asyncio.gather(*running[1:]) == [True, True]
    assert await threads.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    assert await threads.run(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())) >= 10
    threads.close()
