"""The memory budget: bounded, fair, and never stuck."""

from __future__ import annotations

from gateway_svc.memory_budget import MemoryBudget


def test_what_is_taken_can_be_given_back(budget: MemoryBudget) -> None:
    assert budget.try_take("a", 60)
    assert budget.try_take("a", 40)
    assert budget.full
    budget.give(40)
    assert (budget.used, budget.full) == (60, False)


def test_one_owner_at_a_time_may_go_beyond(budget: MemoryBudget) -> None:
    assert budget.try_take("a", 90)
    assert budget.try_take("b", 50)
    assert budget.used == 140
    assert not budget.try_take("c", 20)
    assert budget.try_take("b", 50)
    budget.end_overdraft("b")
    assert budget.try_take("c", 20)
    assert not budget.try_take("b", 20)


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


def test_the_end_of_an_overdraft_lets_the_next_one_try(budget: MemoryBudget) -> None:
    called: list[str] = []
    assert budget.try_take("a", 150)
    assert not budget.try_take("b", 1)
    budget.wait("b", lambda: called.append("b"))
    budget.forget("a")
    assert called == ["b"]
    assert budget.try_take("b", 1)
