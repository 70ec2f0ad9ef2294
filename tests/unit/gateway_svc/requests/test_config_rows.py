"""Rows of configs that many resources have in common."""

from __future__ import annotations

from broker_contract import topics_pb2
from gateway_svc.requests.config_rows import ConfigRows


def configs(*values: str) -> list[topics_pb2.Config]:
    return [topics_pb2.Config(name=f"c{number}", value=value) for number, value in enumerate(values)]


def test_equal_configs_are_one_row_and_other_ones_are_not() -> None:
    made: list[str] = []

    def row(config: topics_pb2.Config) -> list[str]:
        made.append(config.value)
        return [config.name, config.value]

    count = 0

    def counted() -> None:
        nonlocal count
        count += 1

    rows = ConfigRows(row, made=counted)
    first, second, third = rows.of(configs("a", "b")), rows.of(configs("a", "b")), rows.of(configs("a", "x"))
    assert first == (["c0", "a"], ["c1", "b"])
    assert second is first
    assert third == (["c0", "a"], ["c1", "x"])
    assert third[0] is first[0]
    assert (made, count) == (["a", "b", "x"], 3)
    assert rows.of([]) == ()
