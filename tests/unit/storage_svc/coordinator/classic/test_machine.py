"""The classic group under random stimuli, next to an independent account of the answers that it must give
(classic_model).

The test plays the clients, the log and the clock. After every step both must have the same answers and agree on
the state, the generation, the leader, the members, their deadlines, and the writes. Once the clients have gone and the
clock runs, every call has been answered and no member is left.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.classic.events import (
    AnswerValue,
    Commit,
    Event,
    GroupState,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    Retire,
    Sync,
)
from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.machine.events import TimerFired

from tests.groups.played_group import PlayedGroup
from tests.unit.storage_svc.coordinator.classic_model import ClassicModel

SIZE_MAX = 5
PROTOCOLS = st.sampled_from(
    [
        (("range", b"1"),),
        (("range", b"2"), ("sticky", b"2")),
        (("sticky", b"3"), ("range", b"3")),
        (("sticky", b"4"), ("other", b"4"), ("range", b"4")),
    ]
)
#: The protocols that a group of those above refuses, unless it is empty.
ODD_PROTOCOLS = st.sampled_from([("consumer", (("other", b"5"),)), ("connect", (("range", b"6"),)), ("consumer", ())])
INSTANCES = st.sampled_from([None, None, None, "one", "two"])
FIRST_INSTANCES = st.sampled_from([None, "one", "two"])
#: None: the one that the caller has.
CLAIMED = st.sampled_from([None, None, None, None, "one", "two"])
TIMES = st.sampled_from([(6_000, 5_000), (6_000, 12_000), (10_000, 8_000)])
PICK = st.integers(0, 30)
#: The outcomes of a write.
OUTCOMES = st.sampled_from([ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.requests = 0
        self.open: dict[int, Event] = {}
        #: The ids that were ever assigned.
        self.ids: list[str] = ["never-given"]

    @initialize(
        delay_ms=st.sampled_from([0, 3_000]),
        members=st.lists(st.tuples(FIRST_INSTANCES, PROTOCOLS), max_size=4, unique_by=lambda each: each[0] or id(each)),
        gap_ms=st.sampled_from([0, 1_500, 2_500]),
        assigned=st.booleans(),
    )
    def begin(self, delay_ms: int, members: list[tuple[str | None, object]], gap_ms: int, assigned: bool) -> None:
        """Begin with members, before their leader assigns or after it. They come one after the other: with 2.5 s
        between them the delay is extended as far as it can be."""
        limits = GroupLimits(initial_rebalance_delay_ms=delay_ms, size_max=SIZE_MAX)
        self.played = PlayedGroup(Group("g", limits, 0), limits=limits, now_ms=0)
        self.played.holds_writes = True
        self.group, self.timers, self.writes = self.played.group, self.played.timers, self.played.writes
        self.model = ClassicModel(delay_ms, SIZE_MAX)
        for instance_id, protocols in members:
            self.join_with("", protocols, (10_000, 8_000), instance_id=instance_id)
            self.time_passes(gap_ms)
        if members:
            self.time_passes(1_000 if not assigned else 3 * delay_ms)
        if assigned and members:
            self.everybody_settles()

    # --- the host ---------------------------------------------------------------------------------------------------

    def send(self, event: Event) -> None:
        written = len(self.writes)
        expected = self.model.expect(event)
        assert self.perform(event) == expected, event
        rows = self.model.rows[len(self.model.rows) - (len(self.writes) - written) :]
        assert len(self.model.rows) == len(self.writes)
        for row, write in zip(rows, self.writes[written:], strict=True):
            assert write.value.generation == row.generation
            if row.shares is not None:
                assert {each.member_id: each.assignment for each in write.value.members} == row.shares

    def perform(self, event: Event) -> dict[int, AnswerValue]:
        if isinstance(event, Join | Sync | Heartbeat | Leave | Commit):
            self.open[event.request] = event
        self.played.now_ms = self.model.now
        self.played.perform(self.played.handle(event))
        answers, self.played.answers = self.played.answers, {}
        for request in answers:
            del self.open[request]  # answered once, and only if it was asked
        return answers

    def next_request(self) -> int:
        self.requests += 1
        return self.requests

    def any_id(self, pick: int) -> str:
        """Return mostly a member's id, now and then one of a member that has gone or never was."""
        known = [*self.group.members.ids(), *self.group.members.ids(), *sorted(self.group.members.pending)]
        ids = [*known, *known, *self.ids[-3:], "never-given"]
        return ids[pick % len(ids)]

    def caller(self, pick: int, claimed: str | None) -> tuple[str, str | None]:
        """Return the ids of the member and of its instance, as the member sends them."""
        member_id = self.any_id(pick)
        member = self.group.members.get(member_id)
        return member_id, claimed or (None if member is None else member.instance_id)

    # --- clients ----------------------------------------------------------------------------------------------------

    def join_with(self, member_id: str, protocols: object, times: tuple[int, int], **fields: object) -> None:
        request = self.next_request()
        new_id = f"m{request}"
        self.ids.append(new_id)
        given = {"protocol_type": "consumer", "protocols": protocols} | fields
        self.send(
            Join(
                request=request,
                member_id=member_id,
                new_member_id=new_id,
                session_timeout_ms=times[0],
                rebalance_timeout_ms=times[1],
                **given,  # type: ignore[arg-type]
            )
        )

    @rule(instance_id=INSTANCES, protocols=PROTOCOLS, times=TIMES, require=st.booleans(), skip=st.booleans())
    def join(
        self, instance_id: str | None, protocols: object, times: tuple[int, int], require: bool, skip: bool
    ) -> None:
        self.join_with(
            "",
            protocols,
            times,
            instance_id=instance_id,
            require_known_member_id=require,
            supports_skipping_assignment=skip,
        )

    @rule(pick=PICK, instance_id=INSTANCES, protocols=PROTOCOLS, times=TIMES)
    def join_by_id(self, pick: int, instance_id: str | None, protocols: object, times: tuple[int, int]) -> None:
        self.join_with(self.any_id(pick), protocols, times, instance_id=instance_id, require_known_member_id=True)

    @rule(odd=ODD_PROTOCOLS, times=TIMES)
    def join_oddly(self, odd: tuple[str, object], times: tuple[int, int]) -> None:
        self.join_with("", odd[1], times, protocol_type=odd[0])

    @rule(pick=PICK)
    @precondition(lambda self: len(self.group.members) > 0)
    def join_again(self, pick: int) -> None:
        member = list(self.group.members)[pick % len(self.group.members)]
        times = member.session_timeout_ms, member.rebalance_timeout_ms
        self.join_with(
            member.member_id,
            member.protocols,
            times,
            instance_id=member.instance_id,
            protocol_type=self.group.protocol_type,
        )

    @rule()
    @precondition(lambda self: len(self.group.members) > 0 and not self.group.initial_delay.is_running)
    def everybody_settles(self) -> None:
        """Do as well-behaved clients that have to join again, until the assignment is stored."""
        for member_id in list(self.group.members.pending):
            self.send(Leave(request=self.next_request(), members=[Leaver(member_id)]))
        while missing := [
            place
            for place, member in enumerate(self.group.members)
            if self.group.state is GroupState.PREPARING_REBALANCE and member.join_request is None
        ]:
            self.join_again(missing[0])
        if self.group.state is GroupState.COMPLETING_REBALANCE:
            for member_id in self.group.members.ids():
                self.sync_of(member_id, self.group.generation_id, None, None)
        while self.writes:
            self.stored(ErrorCode.NONE)

    @rule(
        pick=PICK,
        stale=st.sampled_from([0, 0, 0, 1, -1]),
        name=st.sampled_from([None, None, "range", "sticky"]),
        claimed=CLAIMED,
    )
    def sync(self, pick: int, stale: int, name: str | None, claimed: str | None) -> None:
        member_id, instance_id = self.caller(pick, claimed)
        self.sync_of(member_id, self.group.generation_id - stale, instance_id, name)

    @rule(pick=PICK, protocols=st.none() | PROTOCOLS, skip=st.booleans())
    @precondition(lambda self: any(member.instance_id for member in self.group.members))
    def a_static_member_comes_back(self, pick: int, protocols: object, skip: bool) -> None:
        known = [member for member in self.group.members if member.instance_id is not None]
        member = known[pick % len(known)]
        self.join_with(
            "",
            protocols or member.protocols,
            (6_000, 12_000),
            instance_id=member.instance_id,
            supports_skipping_assignment=skip,
        )

    @rule(pick=PICK, skip=st.booleans(), error=OUTCOMES)
    @precondition(lambda self: self.group.state is GroupState.STABLE and not self.writes)
    @precondition(lambda self: any(member.instance_id for member in self.group.members))
    def a_static_member_restarts(self, pick: int, skip: bool, error: ErrorCode) -> None:
        """Bring a static member back as it was, which needs no rebalance; the log accepts that, or it does not."""
        self.a_static_member_comes_back(pick, None, skip)
        if self.writes:
            self.stored(error)

    @rule(error=OUTCOMES)
    @precondition(lambda self: self.group.state is GroupState.COMPLETING_REBALANCE and not self.writes)
    def everybody_syncs(self, error: ErrorCode) -> None:
        """Sync all members after late commits; then the log accepts the leader's assignment, or it does not."""
        for member_id in self.group.members.ids():
            generation_id = self.group.generation_id
            self.send(Commit(request=self.next_request(), member_id=member_id, generation_id=generation_id))
            self.sync_of(member_id, self.group.generation_id, None, None)
        self.stored(error)

    @rule()
    @precondition(lambda self: self.group.state is GroupState.COMPLETING_REBALANCE)
    def the_leader_assigns(self) -> None:
        self.sync_of(self.group.members.leader_id or "", self.group.generation_id, None, None)

    def sync_of(self, member_id: str, generation_id: int, instance_id: str | None, name: str | None) -> None:
        self.send(
            Sync(
                request=self.next_request(),
                member_id=member_id,
                generation_id=generation_id,
                instance_id=instance_id,
                protocol_type=None if name is None else "consumer",
                protocol_name=name,
                # The newest member is forgotten, a stranger is not.
                assignments={each: each.encode() for each in (*self.group.members.ids()[:3], "stranger")},
            )
        )

    @rule(
        call=st.sampled_from([Heartbeat, Commit]),
        pick=PICK,
        stale=st.sampled_from([0, 0, 0, 1]),
        claimed=CLAIMED,
    )
    def heartbeat_or_commit(self, call: type[Heartbeat | Commit], pick: int, stale: int, claimed: str | None) -> None:
        member_id, instance_id = self.caller(pick, claimed)
        self.send(
            call(
                request=self.next_request(),
                member_id=member_id,
                generation_id=self.group.generation_id - stale,
                instance_id=instance_id,
            )
        )

    @rule()
    def commit_from_outside(self) -> None:
        self.send(Commit(request=self.next_request(), member_id="", generation_id=-1))

    @rule(picks=st.lists(PICK, max_size=3), instance_id=INSTANCES, with_id=st.booleans())
    def leave(self, picks: list[int], instance_id: str | None, with_id: bool) -> None:
        members = [Leaver(self.any_id(pick)) for pick in picks]
        if instance_id is not None:
            members.append(Leaver(self.any_id(0) if with_id else "", instance_id))
        self.send(Leave(request=self.next_request(), members=members))

    # --- time, the log, an operator -----------------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([500, 2_000, 3_000, 6_000, 13_000, 301_000]))
    def time_passes(self, milliseconds: int) -> None:
        until = self.model.now + milliseconds
        while (first := min(self.timers.values(), default=until + 1)) <= until:
            self.model.now = first
            timer = min((timer for timer, due in self.timers.items() if due == first), key=str)
            del self.timers[timer]
            if timer in self.model.due:
                self.send(TimerFired(timer))
            else:
                assert self.perform(TimerFired(timer)) == {}, "a timer that nothing depends on"
        self.model.now = until

    @rule(error=OUTCOMES)
    @precondition(lambda self: self.writes)
    def stored(self, error: ErrorCode) -> None:
        """Finish the first write."""
        self.send(self.writes.pop(0).ended(error))

    @rule()
    @precondition(
        lambda self: self.group.state is GroupState.EMPTY and self.group.generation_id > 3 and not self.writes
    )
    def the_group_is_deleted(self) -> None:
        self.send(Retire())

    # --- invariants ---------------------------------------------------------------------------------------------------

    @invariant()
    def both_agree(self) -> None:
        group, model = self.group, self.model
        group.check_invariants()
        assert group.state.value.removesuffix("Rebalance") == model.state
        assert (group.generation_id, group.protocol_name) == (model.generation, model.protocol)
        assert group.members.leader_id == model.people.leader
        assert group.members.pending == model.people.pending
        assert [
            (each.member_id, each.instance_id, each.join_request, each.sync_request, each.assignment)
            for each in group.members
        ] == [(each.id, each.name, each.join, each.sync, each.share) for each in model.people.values()]
        assert model.due.items() <= self.timers.items()

    def teardown(self) -> None:
        """Let clients vanish: writes finish and timers fire until nothing is left to wait for."""
        if not hasattr(self, "played"):
            return
        for _ in range(60):
            if self.writes:
                self.stored(ErrorCode.NONE)
            self.time_passes(30_000)
            self.both_agree()
        assert self.open == {}
        assert self.group.state in (GroupState.EMPTY, GroupState.DEAD)
        assert len(self.group.members) == 0


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=150, stateful_step_count=40, report_multiple_bugs=False)
