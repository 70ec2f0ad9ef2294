"""Static members of a classic group that come back, and are removed."""

from __future__ import annotations

import pytest
from storage_svc.coordinator.classic.events import (
    JoinAnswer,
    JoinedMember,
    Stored,
    session_timer,
)
from storage_svc.coordinator.machine.outcome import CancelTimer

from tests.unit.storage_svc.coordinator.classic_driver import (
    RANGE,
    STABLE,
    E,
    answers,
    static,
    stores,
)


@pytest.mark.parametrize(("supports_skipping", "leader"), [(True, "s2"), (False, "s")])
def test_a_static_member_that_comes_back_while_stable_needs_no_rebalance(supports_skipping: bool, leader: str) -> None:
    driver = static()
    out = driver.join(new="s2", instance_id="one", supports_skipping_assignment=supports_skipping)
    (store,) = stores(out)
    assert [(each.member_id, each.assignment) for each in store.group.members] == [("s2", b"S")]
    assert store.group.leader == "s2"
    assert answers(out) == {}
    assert CancelTimer(session_timer("s")) in out
    out = driver.do(Stored(store.write, E.NONE))
    members = (JoinedMember("s2", "one", b"r"),) if supports_skipping else ()
    assert answers(out) == {
        driver.request: JoinAnswer(
            member_id="s2",
            generation_id=1,
            protocol_type="consumer",
            protocol_name="range",
            leader=leader,
            skip_assignment=supports_skipping,
            members=members,
        )
    }
    assert driver.group.state is STABLE
    assert driver.heartbeat("s", 1, instance_id="one") == E.FENCED_INSTANCE_ID
    assert driver.heartbeat("s2", 1, instance_id="one") == E.NONE


def test_a_static_member_whose_return_cannot_be_stored_keeps_its_old_id() -> None:
    driver = static()
    (store,) = stores(driver.join(new="s2", instance_id="one", protocols=(("range", b"new"),)))
    out = driver.do(Stored(store.write, E.NOT_COORDINATOR))
    assert answers(out) == {driver.request: JoinAnswer(error=E.NOT_COORDINATOR)}
    assert driver.heartbeat("s", 1, instance_id="one") == E.NONE
    assert driver.group.members["s"].protocols == RANGE
    assert driver.group.members.leader_id == "s"
