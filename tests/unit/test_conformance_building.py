"""The programs of other languages' clients are built once, though several processes of a session use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import building


def test_a_second_process_takes_nothing_away_from_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, build = tmp_path / "source", tmp_path / "build"
    (source / "client").mkdir(parents=True)
    (source / "client" / "program").write_text("1")
    monkeypatch.setattr(building, "HERE", source)
    monkeypatch.setattr(building, "BUILD", build)
    monkeypatch.setattr(building, "_COMMANDS", {"client": ("sh", "-c", "cat program >> builds")})
    of_each_process = building.built.__wrapped__
    builds = build / "client" / "builds"
    assert [of_each_process("client") for _ in range(2)] == [build / "client"] * 2
    assert builds.read_text() == "1"
    (source / "client" / "program").write_text("2")
    of_each_process("client")
    assert builds.read_text() == "12"
