"""A second, smaller account of the classic group, which predicts every answer of the state machine it is compared with.

It gets the same events (the machine's own). It knows the members, their waiting calls, the deadlines on a clock that
stands still unless the test moves it, and the answer of every caller. It knows no outcomes: a timer is a deadline, a
write a row in a list. After each event it asks one question: has every member joined that the rebalance waits for?

    the caller       not a member 25; a static member's name under another id 82; another generation 22
    Empty            joins begin a rebalance after a delay; commits of no member (generation < 0) are accepted
    Preparing        joins wait; sync and heartbeat 27; commits are accepted
    Completing       syncs wait for the leader's assignment to be stored; commits 27
    Stable           syncs are answered; a changed or leading member's join begins a rebalance
    Dead             15

Kafka: the protocol's description in KIP-62, KIP-134 (delay), KIP-345 (static), KIP-394 (ids first), KIP-389 (size).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from protocol_lib.errors import ErrorCode as E
from storage_svc.coordinator.classic import events

from tests.unit.storage_svc.coordinator.classic_people import NEW_JOIN_MS, PENDING_MS, People, Person, Row


@dataclass
class ClassicModel:
    delay_ms: int
    size_max: int
    now: int = 0
    state: str = "Empty"
    generation: int = 0
    kind: str = ""
    protocol: str | None = None
    people: People = field(default_factory=People)
    #: Timer -> when it is due.
    due: dict[events.Timer, int] = field(default_factory=dict)
    #: The time by which the delay of the first rebalance may still grow; None when there is none.
    growth_ms: int | None = None
    has_newcomer: bool = False
    rows: list[Row] = field(default_factory=list)
    #: Answers since the last `expect`.
    answers: dict[int, events.AnswerValue] = field(default_factory=dict)

    def expect(self, event: events.Event) -> dict[int, events.AnswerValue]:
        """Return the answers that follow from this event."""
        self.answers = {}
        match event:
            case events.Join():
                self._join(event)
            case events.Sync():
                self._sync(event)
            case events.Heartbeat():
                self.answers[event.request] = events.ErrorAnswer(self._heartbeat(event))
            case events.Commit():
                self.answers[event.request] = events.ErrorAnswer(self._commit(event))
            case events.Leave():
                self._leave(event)
            case events.TimerFired(timer):
                self._time(timer)
            case events.Stored():
                self._stored(self.rows.pop(0), event.error)
            case events.Retire() if self.state == "Empty":
                self.state = "Dead"
                for member_id in list(self.people.pending):
                    self._drop(member_id)
        if self._everybody_is_in():
            self._begin_generation()
        return self.answers

    # --- the callers ----------------------------------------------------------------------------------------------

    def _caller(self, member_id: str, name: str | None, generation: int | None = None) -> E:
        if self.state == "Dead":
            return E.COORDINATOR_NOT_AVAILABLE
        namesake = self.people.named(name)
        if name is not None and namesake is None:
            return E.UNKNOWN_MEMBER_ID
        if namesake is not None and namesake.id != member_id:
            return E.FENCED_INSTANCE_ID
        if member_id not in self.people:
            return E.UNKNOWN_MEMBER_ID
        return E.NONE if generation in (None, self.generation) else E.ILLEGAL_GENERATION

    def _alive(self, person: Person, milliseconds: int | None = None) -> None:
        lasts_ms = person.session_ms if milliseconds is None else milliseconds
        self.due[events.session_timer(person.id)] = self.now + lasts_ms

    def _drop(self, member_id: str, error: E = E.UNKNOWN_MEMBER_ID) -> None:
        self.due.pop(events.session_timer(member_id), None)
        person = self.people.drop(member_id)
        if person is not None:
            self._send_away(person, error)

    def _send_away(self, person: Person, error: E) -> None:
        if person.join is not None:
            member_id = "" if error is E.UNKNOWN_MEMBER_ID else person.id
            self.answers[person.join] = events.JoinAnswer(error=error, member_id=member_id)
        if person.sync is not None:
            self.answers[person.sync] = events.SyncAnswer(error=error)
        person.join = person.sync = None

    def _expel(self, *member_ids: str, changes: bool = False) -> None:
        """Remove these; members, and callers that leave, change the group by going."""
        changes = changes or not self.people.keys().isdisjoint(member_ids)
        for member_id in member_ids:
            self._drop(member_id)
        if changes:
            self._rebalance()

    # --- rebalance ------------------------------------------------------------------------------------------------

    def _rebalance(self) -> None:
        if self.state == "Preparing":
            return
        for person in self.people.values():
            if self.state == "Completing":
                person.share = b""
            if person.sync is not None:
                self.answers[person.sync] = events.SyncAnswer(error=E.REBALANCE_IN_PROGRESS)
                person.sync = None
                self._alive(person)
        self.people.unsynced.clear()
        self.due.pop(events.SYNC_TIMER, None)
        wait_ms = self.people.patience_ms()
        if self.state == "Empty":
            self.growth_ms, self.has_newcomer = max(wait_ms - self.delay_ms, 0), False
            wait_ms = self.delay_ms
        self.due[events.JOIN_TIMER] = self.now + wait_ms
        self.state = "Preparing"

    def _everybody_is_in(self) -> bool:
        return (
            self.state == "Preparing"
            and self.growth_ms is None
            and not self.people.pending
            and all(each.join is not None for each in self.people.values())
        )

    def _begin_generation(self) -> None:
        """Begin with all that have joined; the group waits for other static members until their sessions end."""
        self.growth_ms = None
        for person in list(self.people.values()):
            if person.join is None and person.name is None:
                self._drop(person.id)
        joined = [each for each in self.people.values() if each.join is not None]
        if self.people and not joined:
            self.due[events.JOIN_TIMER] = self.now + self.people.patience_ms()
            return
        del self.due[events.JOIN_TIMER]
        self.generation += 1
        if not joined:
            self.state, self.protocol = "Empty", None
            self.rows.append(Row(self.generation))
            return
        if self.people[self.people.leader or ""].join is None:
            self.people.leader = joined[0].id
        self.state, self.protocol = "Completing", self.people.elected_protocol()
        self.people.unsynced = set(self.people)
        self.due[events.SYNC_TIMER] = self.now + self.people.patience_ms()
        for person in self.people.values():
            if person.join is not None:
                self.answers[person.join] = self._generation_for(person)
                person.join = None
            person.is_new = False
            self._alive(person)

    def _generation_for(self, person: Person, leader: str | None = None, *, skip: bool = False) -> events.JoinAnswer:
        leader = self.people.leader if leader is None else leader
        protocol = self.protocol or ""
        everybody = tuple(
            events.JoinedMember(each.id, each.name, each.metadata(protocol)) for each in self.people.values()
        )
        return events.JoinAnswer(
            member_id=person.id,
            generation_id=self.generation,
            protocol_type=self.kind,
            protocol_name=protocol,
            leader=leader or "",
            skip_assignment=skip,
            members=everybody if leader == person.id else (),
        )

    # --- join -----------------------------------------------------------------------------------------------------

    def _join(self, join: events.Join) -> None:
        person = self.people.get(join.member_id)
        error, member_id = self._join_error(join), join.member_id
        if not error and not member_id and join.instance_id is None and join.require_known_member_id:
            error, member_id = E.MEMBER_ID_REQUIRED, join.new_member_id
            self.people.pending.add(member_id)
            self.due[events.session_timer(member_id)] = self.now + min(join.session_timeout_ms, PENDING_MS)
        if error:
            self.answers[join.request] = events.JoinAnswer(error=error, member_id=member_id)
            if error is E.GROUP_MAX_SIZE_REACHED and member_id:
                self._expel(member_id)
        elif person is not None:
            self._join_again(person, join)
        elif (namesake := self.people.named(join.instance_id)) is not None:
            self._return(namesake, join)
        else:
            self._enter(join.member_id or join.new_member_id, join)

    def _join_error(self, join: events.Join) -> E:
        if self.state == "Dead":
            return E.COORDINATOR_NOT_AVAILABLE
        if self._is_full_for(join.member_id):
            return E.GROUP_MAX_SIZE_REACHED
        offered = {name for name, _ in join.protocols}
        if not join.protocol_type or not offered:
            return E.INCONSISTENT_GROUP_PROTOCOL
        if self.people and (join.protocol_type != self.kind or not offered & self.people.common()):
            return E.INCONSISTENT_GROUP_PROTOCOL
        is_awaited = join.member_id in self.people.pending and join.instance_id is None
        return E.NONE if not join.member_id or is_awaited else self._caller(join.member_id, join.instance_id)

    def _is_full_for(self, member_id: str) -> bool:
        """Return whether there is no room. While a rebalance is prepared the first that join get in."""
        person = self.people.get(member_id)
        if self.state == "Preparing":
            if person is not None and person.join is not None:
                return False
            return sum(each.join is not None for each in self.people.values()) >= self.size_max
        return self.state != "Empty" and person is None and len(self.people) >= self.size_max

    def _enter(self, member_id: str, join: events.Join) -> None:
        if not self.people:
            self.kind = join.protocol_type
        self.people.pending.discard(member_id)
        person = Person(member_id, join.instance_id, 0, 0, ())
        person.update(join)
        person.is_new = True
        self.people[member_id] = person
        self.people.leader = self.people.leader or member_id
        self.has_newcomer = True
        self._alive(person, NEW_JOIN_MS)
        self._rebalance()

    def _join_again(self, person: Person, join: events.Join) -> None:
        is_same = person.protocols == join.protocols
        if is_same and (self.state == "Completing" or (self.state == "Stable" and person.id != self.people.leader)):
            self.answers[join.request] = self._generation_for(person)
            return
        if person.join is not None:
            self.answers[person.join] = events.JoinAnswer(error=E.REBALANCE_IN_PROGRESS, member_id=person.id)
        person.update(join)
        self._rebalance()

    def _return(self, was: Person, join: events.Join) -> None:
        """Give a static member that has lost its id its own place under a new one."""
        self._send_away(was, E.FENCED_INSTANCE_ID)
        led = self.people.leader or ""
        person = replace(was, id=join.new_member_id, is_new=False)
        person.update(join)
        self._replace(was, person)
        if self.state == "Stable" and self.people.elected_protocol() == self.protocol:
            self.rows.append(
                Row(
                    self.generation,
                    returned=person.id,
                    was=was,
                    led=led,
                    may_skip=join.supports_skipping_assignment,
                )
            )
        else:
            self._rebalance()

    def _replace(self, was: Person, person: Person) -> None:
        self.people.replace(was, person)
        self.due.pop(events.session_timer(was.id), None)
        self._alive(person)

    # --- sync, heartbeat, commit, leave ---------------------------------------------------------------------------

    def _sync(self, sync: events.Sync) -> None:
        error = self._caller(sync.member_id, sync.instance_id, sync.generation_id)
        wrong_type = sync.protocol_type not in (None, self.kind)
        if not error and (wrong_type or sync.protocol_name not in (None, self.protocol)):
            error = E.INCONSISTENT_GROUP_PROTOCOL
        if not error and self.state == "Preparing":
            error = E.REBALANCE_IN_PROGRESS
        if error:
            self.answers[sync.request] = events.SyncAnswer(error=error)
            return
        person = self.people[sync.member_id]
        self.people.unsynced.discard(person.id)
        if not self.people.unsynced:
            self.due.pop(events.SYNC_TIMER, None)
        if self.state == "Stable":
            self._hand_over(person, sync.request)
            return
        if person.sync is not None:
            self.answers[person.sync] = events.SyncAnswer(error=E.REBALANCE_IN_PROGRESS)
        person.sync = sync.request
        is_stored = any(row.shares is not None and row.generation == self.generation for row in self.rows)
        if person.id == self.people.leader and not is_stored:
            shares = {each: sync.assignments.get(each, b"") for each in self.people}
            self.rows.append(Row(self.generation, shares=shares))

    def _hand_over(self, person: Person, request: int) -> None:
        self.answers[request] = events.SyncAnswer(
            protocol_type=self.kind, protocol_name=self.protocol, assignment=person.share
        )
        self._alive(person)

    def _heartbeat(self, heartbeat: events.Heartbeat) -> E:
        error = self._caller(heartbeat.member_id, heartbeat.instance_id, heartbeat.generation_id)
        if error:
            return error
        self._alive(self.people[heartbeat.member_id])
        return E.REBALANCE_IN_PROGRESS if self.state == "Preparing" else E.NONE

    def _commit(self, commit: events.Commit) -> E:
        if self.state == "Empty" and commit.generation_id < 0:
            return E.NONE
        error = self._caller(commit.member_id, commit.instance_id, commit.generation_id)
        if not error and self.state == "Completing":
            return E.REBALANCE_IN_PROGRESS
        if not error:
            self._alive(self.people[commit.member_id])
        return error

    def _leave(self, leave: events.Leave) -> None:
        if self.state == "Dead":
            self.answers[leave.request] = events.LeaveAnswer(E.COORDINATOR_NOT_AVAILABLE, ())
            return
        going: list[str] = []
        errors: list[E] = []
        for member_id, name in leave.members:
            namesake = self.people.named(name)
            who = namesake.id if not member_id and namesake is not None else member_id
            error = E.NONE if who in self.people.pending else self._caller(who, name)
            errors.append(E.UNKNOWN_MEMBER_ID if who in going else error)
            if not errors[-1]:
                going.append(who)
        self.answers[leave.request] = events.LeaveAnswer(E.NONE, tuple(errors))
        self._expel(*going, changes=bool(going) and self.state != "Empty")

    # --- time and the log -----------------------------------------------------------------------------------------

    def _time(self, timer: events.Timer) -> None:
        assert self.due.pop(timer) <= self.now
        match timer.kind:
            case events.TimerKind.SESSION:
                person = self.people.get(timer.member_id)
                is_waiting = person is not None and not person.is_new and (person.join, person.sync) != (None, None)
                if not is_waiting:
                    self._expel(timer.member_id)
            case events.TimerKind.SYNC:
                self._expel(*self.people.unsynced)
            case events.TimerKind.JOIN if self.growth_ms and self.has_newcomer:
                more_ms = min(self.delay_ms, self.growth_ms)
                self.growth_ms, self.has_newcomer = self.growth_ms - more_ms, False
                self.due[timer] = self.now + more_ms
            case events.TimerKind.JOIN:
                self.due[timer] = self.now
                self._begin_generation()

    def _stored(self, row: Row, error: E) -> None:
        is_current = self.generation == row.generation
        if row.shares is not None and is_current and self.state == "Completing":
            self._share_out(row.shares, error)
        person = self.people.get(row.returned or "")
        if person is None or row.was is None or person.join is None or not is_current or self.state != "Stable":
            return
        request, person.join = person.join, None
        if error:
            self._replace(person, row.was)
            self.answers[request] = events.JoinAnswer(error=error)
            return
        self._alive(person)
        leads = person.id == self.people.leader
        # Before KIP-814 a leader that came back was shown its old id as leader, lest it assign again.
        self.answers[request] = self._generation_for(
            person, None if row.may_skip else row.led, skip=row.may_skip and leads
        )

    def _share_out(self, shares: dict[str, bytes], error: E) -> None:
        waiting = [each for each in self.people.values() if each.sync is not None]
        if error:
            for person in waiting:
                self.answers[person.sync or 0] = events.SyncAnswer(error=error)
                person.sync = None
                self._alive(person)
            self._rebalance()
            return
        self.state = "Stable"
        for person in self.people.values():
            person.share = shares.get(person.id, b"")
        for person in waiting:
            request, person.sync = person.sync or 0, None
            self._hand_over(person, request)
