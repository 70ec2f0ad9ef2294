"""The answers of admin-api while storage does not answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from admin_api.errors import ApiError
from admin_api.storage import Storage
from service_chassis import logs

from tests.unit.admin_api.conftest import serving_storage


@pytest.mark.parametrize(
    ("start_patience_s", "at_first"), [(60.0, ["debug"] * 3), (0.0, ["warning", "debug", "debug"])]
)
async def test_silence_is_worth_one_warning_and_none_while_storage_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start_patience_s: float, at_first: list[str]
) -> None:
    storage_address = f"unix:{tmp_path}/storage.sock"

    async def ask_and_be_answered(storage: Storage) -> bool:
        try:
            await storage.calls(1).cluster()
        except ApiError:
            return False
        return True

    with logs.configured("admin-api", "debug", "json"):
        storage = Storage(storage_address, timeout_s=5, start_patience_s=start_patience_s)
        assert [await ask_and_be_answered(storage) for _ in range(3)] == [False] * 3
        async with serving_storage(tmp_path / "data", storage_address):
            while not await ask_and_be_answered(storage):
                pass
        assert [await ask_and_be_answered(storage) for _ in range(3)] == [False] * 3
        await storage.close()

    events = ("storage call failed", "storage answers")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    logged = [(line["event"], line["level"]) for line in lines if line["event"] in events]
    answers = logged.index(("storage answers", "info"))
    assert logged[:3] == [("storage call failed", level) for level in at_first]
    assert {level for _, level in logged[3:answers]} <= {"debug"}
    failed = [level for event, level in logged[answers + 1 :] if event == "storage call failed"]
    assert failed == ["warning", "debug", "debug"]
