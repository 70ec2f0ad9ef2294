"""The classic group under random stimuli, with the timers, the log and the clients played by the test: invariants hold
after every event, every call is answered exactly once, and once everybody is quiet the group settles."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.group import Group, GroupLimits
from storage_svc.coordinator.group_events import (
    Answer,
    CancelTimer,
    Commit,
    GroupState,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    Leaver,
    SetTimer,
    Store,
    Stored,
    Sync,
    SyncAnswer,
    Timer,
    TimerFired,
)
from storage_svc.coordinator.group_machine import handle

PROTOCOLS = st.sampled_from(
    [
        (("range", b"1"),),
        (("range", b"2"), ("sticky", b"2")),
        (("sticky", b"3"), ("range", b"3")),
    ]
)
INSTANCES = st.sampled_from([None, None, "one", "two"])


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = Group("g", GroupLimits(initial_rebalance_delay_ms=3000, size_max=5), 0)
        self.requests = 0
        self.open: dict[int, type] = {}
        self.timers: set[Timer] = set()
        self.writes: list[Store] = []
        #: Every id that was ever given out.
        self.ids: list[str] = ["never-given"]
        self.generations: list[int] = []
        self.states: list[GroupState] = []

    def send(self, event: object) -> None:
        if not isinstance(event, TimerFired | Stored):
            self.open[event.request] = type(event)  # type: ignore[attr-defined]
        for instruction in handle(self.group, event, 0):  # type: ignore[arg-type]
            match instruction:
                case Answer(request, value):
                    assert request in self.open, "answered twice, or never asked"
                    self.check_answer(self.open.pop(request), value)
                case SetTimer(timer, delay_ms):
                    assert delay_ms >= 0
                    self.timers.add(timer)
                case CancelTimer(timer):
                    self.timers.discard(timer)
                case Store():
                    self.writes.append(instruction)
        self.generations.append(self.group.generation_id)

    def check_answer(self, kind: type, value: object) -> None:
        if isinstance(value, JoinAnswer):
            assert kind is Join
            if value.error is ErrorCode.NONE:
                assert value.generation_id == self.group.generation_id
                assert value.member_id in self.group.members
                assert value.protocol_name == self.group.protocol_name
        elif isinstance(value, SyncAnswer):
            assert kind is Sync
            if value.error is ErrorCode.NONE:
                assert self.group.state is GroupState.STABLE
        else:
            assert kind in (Heartbeat, Leave, Commit)

    def next_request(self) -> int:
        self.requests += 1
        return self.requests

    @rule(
        known=st.integers(0, 30),
        is_new=st.booleans(),
        instance_id=INSTANCES,
        protocols=PROTOCOLS,
        require=st.booleans(),
        skip=st.booleans(),
    )
    def join(
        self, known: int, is_new: bool, instance_id: str | None, protocols: object, require: bool, skip: bool
    ) -> None:
        request = self.next_request()
        new_id = f"m{request}"
        self.ids.append(new_id)
        self.send(
            Join(
                request=request,
                member_id="" if is_new else self.ids[known % len(self.ids)],
                new_member_id=new_id,
                instance_id=instance_id,
                session_timeout_ms=6000,
                rebalance_timeout_ms=5000,
                protocol_type="consumer",
                protocols=protocols,  # type: ignore[arg-type]
                require_known_member_id=require,
                supports_skipping_assignment=skip,
            )
        )

    @rule(pick=st.integers(0, 5))
    @precondition(lambda self: len(self.group.members) > 0)
    def rejoin(self, pick: int) -> None:
        member = list(self.group.members)[pick % len(self.group.members)]
        self.send(
            Join(
                request=self.next_request(),
                member_id=member.member_id,
                new_member_id="unused",
                instance_id=member.instance_id,
                session_timeout_ms=6000,
                rebalance_timeout_ms=5000,
                protocol_type="consumer",
                protocols=member.protocols,
            )
        )

    @rule(pick=st.integers(0, 5), stale=st.booleans())
    @precondition(lambda self: len(self.group.members) > 0)
    def sync(self, pick: int, stale: bool) -> None:
        member = list(self.group.members)[pick % len(self.group.members)]
        self.send(
            Sync(
                request=self.next_request(),
                member_id=member.member_id,
                instance_id=member.instance_id,
                generation_id=self.group.generation_id - stale,
                assignments={each: each.encode() for each in self.group.members.ids()},
            )
        )

    @rule(known=st.integers(0, 30), instance_id=INSTANCES)
    def heartbeat(self, known: int, instance_id: str | None) -> None:
        member_id = self.ids[known % len(self.ids)]
        generation_id = self.group.generation_id
        request = self.next_request()
        self.send(Heartbeat(request=request, member_id=member_id, generation_id=generation_id, instance_id=instance_id))
        request = self.next_request()
        self.send(Commit(request=request, member_id=member_id, generation_id=generation_id, instance_id=instance_id))

    @rule(known=st.integers(0, 30), instance_id=INSTANCES)
    def leave(self, known: int, instance_id: str | None) -> None:
        member_id = self.ids[known % len(self.ids)] if instance_id is None else ""
        self.send(Leave(request=self.next_request(), members=[Leaver(member_id, instance_id)]))

    @rule(pick=st.integers(0, 30))
    @precondition(lambda self: self.timers)
    def fire(self, pick: int) -> None:
        timers = sorted(self.timers, key=str)
        timer = timers[pick % len(timers)]
        self.timers.discard(timer)
        self.send(TimerFired(timer))

    @rule(fails=st.booleans())
    @precondition(lambda self: self.writes)
    def stored(self, fails: bool) -> None:
        """The log finishes writes in order."""
        write = self.writes.pop(0)
        self.send(Stored(write.write, ErrorCode.NOT_COORDINATOR if fails else ErrorCode.NONE))

    @invariant()
    def invariants(self) -> None:
        self.group.check_invariants()
        assert self.generations == sorted(self.generations)
        parked = {each.join_request for each in self.group.members} | {each.sync_request for each in self.group.members}
        assert parked - {None} == self.open.keys(), "a call is neither answered nor parked"
        assert len(self.group.members) <= 5 + len({"one", "two"})
        for member in self.group.members:
            has_timer = any(timer.member_id == member.member_id for timer in self.timers)
            assert has_timer or member.join_request or member.sync_request, "a member nobody would ever remove"

    def teardown(self) -> None:
        """Clients vanish: writes finish and timers fire until nothing is left to wait for."""
        for turn in range(500):
            if self.writes:
                self.stored(False)
            elif self.timers:
                self.fire(turn)
            else:
                break
            self.group.check_invariants()
        assert self.open == {}
        assert self.group.state is GroupState.EMPTY
        assert len(self.group.members) == 0


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, report_multiple_bugs=False
)
