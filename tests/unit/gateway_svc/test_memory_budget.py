"""The memory budget: bounded and fair, and one owner that fails loses no other's turn."""

from __future__ import annotations

from gateway_svc.memory_budget import MemoryBudget


def test_bytes_that_were_taken_can_be_given_back(budget: MemoryBudget) -> None:
    budget.take(60)
    assert not budget.full
    budget.take(40)
    assert budget.full
    budget.give(40)
    assert (budget.used, budget.full) == (60, False)


def test_those_who_wait_are_called_in_order_while_there_is_room(budget: MemoryBudget) -> None:
    budget.take(120)
    called: list[str] = []

    def resume(name: str, takes: int) -> None:
        called.append(name)
        budget.take(takes)

    budget.wait("a", lambda: resume("a", 60))
    budget.wait("b", lambda: resume("b", 60))
    budget.wait("c", lambda: resume("c", 60))
    budget.give(10)
    assert called == []
    budget.give(100)
    assert called == ["a", "b"]
    assert budget.used == 130
    budget.forget("c")
    budget.give(130)
    assert called == ["a", "b"]


def test_an_owner_that_fails_loses_no_other_its_turn(budget: MemoryBudget) -> None:
    budget.take(100)
    called: list[str] = []

    def fail() -> None:
        raise RuntimeError("a fault")

    budget.wait("a", fail)
    budget.wait("b", lambda: called.append("b"))
    budget.give(1)
    assert called == ["b"]
