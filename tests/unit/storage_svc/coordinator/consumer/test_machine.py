"""Consumer groups under random stimuli, with the clock, the log, the topics and the members played by the test.

An independent model of the members states the invariants: each member believes that it owns the partitions of its
answers. No partition is owned by two of them, epochs never go back, and once all go on quietly all have their targets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup, ConsumerGroupState
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings

from tests.unit.storage_svc.coordinator.consumer_world import World

E = ErrorCode
SESSION_MS, REBALANCE_MS = 45_000, 60_000
SUBSCRIPTIONS = st.sampled_from(
    [
        (frozenset({"a"}), ""),
        (frozenset({"a", "b"}), ""),
        (frozenset({"b", "c"}), ""),
        (frozenset(), "[ab]"),
        (frozenset({"c"}), "a"),
        (frozenset(), ""),
    ]
)
MEMBERS = st.sampled_from(["m1", "m2", "m3", "m4"])


@dataclass
class Client:
    """A member as it sees itself."""

    member_id: str
    instance_id: str | None
    topics: frozenset[str]
    pattern: str
    epoch: int = 0
    #: The partitions it may be reading now.
    owned: set[tuple[bytes, int]] = field(default_factory=set)
    #: The partitions of its last answer.
    assigned: set[tuple[bytes, int]] = field(default_factory=set)
    is_away: bool = False
    #: True after a missed answer: it sends full heartbeats, to get a full answer.
    sends_all: bool = False


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(ConsumerGroupSettings(size_max=3, assignment_interval_ms=1_000))
        self.clients: dict[str, Client] = {}
        self.incarnation = 0
        self.epochs = (0, 0)

    @initialize()
    def topics(self) -> None:
        self.world.topics.create("a", 3)
        self.world.topics.create("b", 2)

    # --- members --------------------------------------------------------------------------------------------------

    def heartbeat(self, client: Client, **fields: object) -> HeartbeatAnswer | None:
        everything = {
            "topics": client.topics,
            "pattern": client.pattern,
            "rebalance_timeout_ms": REBALANCE_MS,
            "owned": grouped(client.owned),
        }
        heartbeat = ConsumerHeartbeat(
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance_id,
            **(everything if client.sends_all else {}) | fields,  # type: ignore[arg-type]
        )
        answer = self.world.send(heartbeat)
        assert answer is None or isinstance(answer, HeartbeatAnswer)
        return answer

    def receive(self, client: Client, answer: HeartbeatAnswer | None) -> None:
        """Adopt new partitions at once; the client keeps those it has to give up until it revokes."""
        client.sends_all = answer is None
        if answer is None:
            return
        if answer.error in (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID):
            self.forget(client)
            return
        assert answer.error == E.NONE, answer
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.assigned = {(topic_id, each) for topic_id, held in answer.assignment.items() for each in held}
            client.owned |= client.assigned

    def forget(self, client: Client) -> None:
        self.clients = {name: each for name, each in self.clients.items() if each is not client}

    @rule(name=MEMBERS, is_static=st.booleans(), subscription=SUBSCRIPTIONS)
    def join(self, name: str, is_static: bool, subscription: tuple[frozenset[str], str]) -> None:
        known = self.clients.get(name)
        if known is not None and not known.is_away:
            return
        self.incarnation += 1
        instance_id = name if is_static or known is not None else None
        client = Client(f"{name}-{self.incarnation}", instance_id, *subscription)
        answer = self.heartbeat(
            client, topics=client.topics, pattern=client.pattern, rebalance_timeout_ms=REBALANCE_MS, owned={}
        )
        if answer is None:
            return
        if answer.error:
            allowed = (E.GROUP_MAX_SIZE_REACHED, E.UNRELEASED_INSTANCE_ID)
            assert answer.error in allowed, answer
            return
        self.clients[name] = client
        self.receive(client, answer)

    @rule(name=MEMBERS, revokes=st.booleans(), states_owned=st.booleans(), is_lost=st.booleans())
    def go_on(self, name: str, revokes: bool, states_owned: bool, is_lost: bool) -> None:
        client = self.clients.get(name)
        if client is None or client.is_away:
            return
        if revokes:
            client.owned &= client.assigned
        answer = self.heartbeat(client, **{"owned": grouped(client.owned)} if states_owned or is_lost else {})
        self.receive(client, None if is_lost else answer)

    @rule(name=MEMBERS, subscription=SUBSCRIPTIONS)
    def subscribe(self, name: str, subscription: tuple[frozenset[str], str]) -> None:
        client = self.clients.get(name)
        if client is None or client.is_away:
            return
        answer = self.heartbeat(client, topics=subscription[0], pattern=subscription[1])
        if answer is not None and not answer.error:
            client.topics, client.pattern = subscription
        self.receive(client, answer)

    @rule(name=MEMBERS)
    def leave(self, name: str) -> None:
        client = self.clients.get(name)
        if client is None or client.is_away:
            return
        client.epoch = -1
        if self.heartbeat(client) is None:
            self.heartbeat_until_taken(client)
        self.forget(client)

    @rule(name=MEMBERS)
    def leave_for_a_while(self, name: str) -> None:
        client = self.clients.get(name)
        if client is None or client.instance_id is None or client.is_away:
            return
        client.epoch = -2
        if self.heartbeat(client) is None:
            self.heartbeat_until_taken(client)
        client.owned, client.is_away = set(), True

    def heartbeat_until_taken(self, client: Client) -> None:
        self.world.log_refuses = False
        assert self.heartbeat(client) is not None

    # --- the world ------------------------------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([200, 1_000, 20_000, 50_000]))
    def time_passes(self, milliseconds: int) -> None:
        was_refusing, self.world.log_refuses = self.world.log_refuses, False
        self.world.pass_time(milliseconds)
        self.world.log_refuses = was_refusing

    @rule(count=st.integers(1, 4))
    def topic_comes(self, count: int) -> None:
        name = next((each for each in "abc" if each not in self.world.topics.by_name), None)
        if name is not None:
            self.world.topics.create(name, count)

    @rule(name=st.sampled_from("abc"))
    def topic_goes(self, name: str) -> None:
        if name in self.world.topics.by_name:
            self.world.topics.delete(name)

    @rule()
    def the_log_refuses(self) -> None:
        self.world.log_refuses = True

    @precondition(lambda self: self.world.log_refuses)
    @rule()
    def the_log_takes_again(self) -> None:
        self.world.log_refuses = False

    @rule()
    def storage_is_killed(self) -> None:
        """Load the group from the log: every answer that a client got is in it."""
        self.world.group = self.world.restored()

    # --- invariants -----------------------------------------------------------------------------------------------

    @invariant()
    def the_group_is_sound(self) -> None:
        self.world.group.check_invariants()
        assert snapshot(self.world.restored()) == snapshot(self.world.group)

    @invariant()
    def nobody_owns_what_another_owns(self) -> None:
        for client in list(self.clients.values()):
            if client.member_id not in self.world.group.members:
                self.forget(client)  # Its session is over there, so it is here.
        owned = [each for client in self.clients.values() for each in client.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def epochs_never_go_back(self) -> None:
        epochs = (self.world.group.epoch, self.world.group.assignment_epoch)
        assert epochs >= self.epochs
        assert epochs[1] >= self.epochs[1]
        self.epochs = epochs

    def teardown(self) -> None:
        self.world.log_refuses = False
        for _ in range(12):
            self.world.pass_time(5_000)  # members that are away do not come back in time
            for client in list(self.clients.values()):
                if client.is_away:
                    continue
                client.owned &= client.assigned
                answer = self.heartbeat(client, owned=grouped(client.owned))
                if answer is not None and answer.error:
                    self.forget(client)
                else:
                    self.receive(client, answer)
            self.nobody_owns_what_another_owns()
        group = self.world.group
        clients = self.clients.values()
        assert {client.member_id for client in clients} == group.members.keys()
        for client in clients:
            assert client.owned == client.assigned == spread(group.target.get(client.member_id, {}))
        assert group.state is (ConsumerGroupState.STABLE if clients else ConsumerGroupState.EMPTY)
        assert {each for client in clients for each in client.owned} == {
            (topic.id, index)
            for name, topic in self.world.topics.by_name.items()
            if any(name in client.topics or name in matched(client.pattern) for client in clients)
            for index in range(topic.partition_count)
        }


def matched(pattern: str) -> str:
    return {"[ab]": "ab", "a": "a", "": ""}[pattern]


def grouped(owned: set[tuple[bytes, int]]) -> dict[bytes, frozenset[int]]:
    return {topic_id: frozenset(each for other, each in owned if other == topic_id) for topic_id, _ in owned}


def spread(partitions: object) -> set[tuple[bytes, int]]:
    return {(topic_id, each) for topic_id, some in partitions.items() for each in some}  # type: ignore[attr-defined]


def snapshot(group: ConsumerGroup) -> dict[str, object]:
    """Return all of the group that is in the log."""
    unwritten = {"hashed_version", "resolved_version", "informed_over"}
    return {name: value for name, value in vars(group).items() if name not in unwritten}


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=100, stateful_step_count=40)
