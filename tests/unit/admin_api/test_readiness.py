"""The storage check of the health listener: its answers with storage, without it, and while it hangs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from admin_api.errors import ApiError
from admin_api.readiness import StorageCheck
from admin_api.storage import Storage
from service_chassis import rpc

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import OwnStorage, Stack


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a storage that accepts and never answers, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_storage_that_answers(stack: Stack) -> None:
    check = StorageCheck(stack.storage_address)
    until_ready(lambda: check() is None)


def test_storage_that_goes_and_comes_back(own_storage: OwnStorage) -> None:
    check = StorageCheck(own_storage.address)
    until_ready(lambda: check() is None)
    own_storage.stop()
    until_ready(lambda: check() == "storage cannot be reached: UNAVAILABLE")
    own_storage.start()
    until_ready(lambda: check() is None)


def test_only_the_first_probe_waits_for_storage_that_hangs(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes share one thread: each that waited would delay /healthz."""
    check = StorageCheck(silent, patience_s=0.01, question_timeout_s=600)
    assert check() == "storage does not answer"
    monkeypatch.setattr(check, "_ask", lambda: pytest.fail("a second wait"))
    assert [check() for _ in range(100)] == ["storage does not answer"] * 100


def test_a_question_without_an_answer_is_asked_again(silent: str) -> None:
    check = StorageCheck(silent, patience_s=60, question_timeout_s=0.05)
    assert check() == "storage cannot be reached: DEADLINE_EXCEEDED"
    assert check() == "storage cannot be reached: DEADLINE_EXCEEDED"


async def test_storage_of_another_release(tmp_path: Path) -> None:
    server = rpc.server("another")
    server.listen(f"unix:{tmp_path}/s")
    await server.start()
    check = StorageCheck(f"unix:{tmp_path}/s", patience_s=60)
    fault = await asyncio.to_thread(check)
    assert fault is not None
    assert "with contract another, the caller is Millrace" in fault
    storage = Storage(f"unix:{tmp_path}/s", timeout_s=60)
    with pytest.raises(ApiError, match="Storage is of another release") as caught:
        await storage.calls(1).cluster()
    assert (caught.value.status_code, caught.value.error_code) == (503, 50302)
    await storage.close()
    await server.stop(0)
