"""Members of both protocols in one group under random stimuli: it goes from one protocol to the other and back.

An independent account of the members states the invariants: the partitions that each believes it owns, and the protocol
that the group has to speak. That is KIP-848's while a member of it is there, and the classic one when the last of them
has left others in the group. No partition is owned by two, under either protocol; epochs and generations never go back;
and once all go on quietly all partitions have owners. Classic members rebalance cooperatively: they report the
partitions they own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from protocol_lib.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from protocol_lib.errors import ErrorCode as E
from storage_svc.coordinator.classic.events import (
    ErrorAnswer,
    Event,
    GroupState,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaver,
    Sync,
    SyncAnswer,
)
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.consumer.migration import upgraded
from storage_svc.coordinator.machine.events import Installed

from tests.unit.storage_svc.coordinator.consumer_world import World

PROTOCOL = "cooperative-sticky"
SESSION_MS, REBALANCE_MS = 45_000, 60_000
NAMES = st.sampled_from(["m1", "m2", "m3", "m4"])
TOPICS = st.sampled_from([("a",), ("a", "b")])
Place = tuple[str, int]


@dataclass
class Client:
    """A member as it sees itself."""

    member_id: str
    is_classic: bool
    topics: tuple[str, ...]
    epoch: int = 0
    owned: set[Place] = field(default_factory=set)
    assigned: set[Place] = field(default_factory=set)
    #: True for a classic member that has joined and has no share yet.
    must_sync: bool = False


class MixedGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.clients: dict[str, Client] = {}
        #: True once it has rebalanced since it was a consumer group: its members have the shares it assigned.
        self.is_settled = True
        self.incarnation = 0
        self.epoch = 0

    @initialize()
    def topics(self) -> None:
        self.world.topics.create("a", 3)
        self.world.topics.create("b", 2)

    @property
    def classic(self) -> Group | None:
        """The group while it speaks the classic protocol."""
        return self.world.group if isinstance(self.world.group, Group) else None

    @property
    def classic_clients(self) -> list[Client]:
        return [each for each in self.clients.values() if each.is_classic]

    # --- members of the consumer protocol -----------------------------------------------------------------------------

    def heartbeat(self, client: Client, **fields: object) -> HeartbeatAnswer:
        event = ConsumerHeartbeat(member_id=client.member_id, member_epoch=client.epoch, **fields)  # type: ignore[arg-type]
        answer = self.world.send(event)
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    def receive(self, client: Client, answer: HeartbeatAnswer) -> None:
        assert answer.error is E.NONE, answer
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            names = self.world.topics.name_of
            client.assigned = {
                (names(topic_id) or "", each) for topic_id, held in answer.assignment.items() for each in held
            }
            client.owned |= client.assigned

    @rule(name=NAMES, topics=TOPICS)
    def enters(self, name: str, topics: tuple[str, ...]) -> None:
        """Enter with KIP-848: a classic group becomes a consumer group by that; its members keep their partitions."""
        if name in self.clients:
            return
        client = Client(self.new_id(name), False, topics)
        if not self.is_settled:
            self.the_classic_group_rebalances()  # as the downgrade has asked for
        held = {each.member_id: set(each.owned) for each in self.classic_clients}
        classic = self.classic
        if classic is not None:
            made = upgraded(classic, self.world.topics)
            assert made is not None
            assert made.epoch == classic.generation_id
            for member_id, owned in held.items():
                assert spread(self.world, made.members[member_id].assigned) == owned
        event = ConsumerHeartbeat(
            member_id=client.member_id,
            member_epoch=0,
            topics=frozenset(topics),
            rebalance_timeout_ms=REBALANCE_MS,
            owned={},
        )
        answer = self.world.send(event)
        assert isinstance(answer, HeartbeatAnswer)
        self.clients[name] = client
        self.receive(client, answer)

    @rule(name=NAMES, revokes=st.booleans(), topics=st.none() | TOPICS)
    def goes_on(self, name: str, revokes: bool, topics: tuple[str, ...] | None) -> None:
        client = self.clients.get(name)
        if client is None or client.is_classic:
            return
        if revokes:
            client.owned &= client.assigned
        client.topics = topics or client.topics
        subscription = None if topics is None else frozenset(topics)
        self.receive(client, self.heartbeat(client, topics=subscription, owned=grouped(self.world, client.owned)))

    @rule(name=NAMES)
    def leaves(self, name: str) -> None:
        """Leave: the last member of KIP-848 leaves a classic group, if there are others."""
        client = self.clients.get(name)
        if client is None or client.is_classic:
            return
        client.epoch = -1
        assert self.heartbeat(client).error is E.NONE
        del self.clients[name]
        self.note_downgrade()

    def note_downgrade(self) -> None:
        left = self.classic
        must_be_classic = bool(self.clients) and all(each.is_classic for each in self.clients.values())
        assert (left is not None) == must_be_classic
        if left is None:
            return
        assert (left.state, left.protocol_name) == (GroupState.PREPARING_REBALANCE, PROTOCOL)
        assert set(left.members.ids()) == {each.member_id for each in self.clients.values()}
        self.is_settled = False

    # --- classic members ----------------------------------------------------------------------------------------------

    def join(self, client: Client, member_id: str, request: int = 0) -> Join:
        rows = tuple(
            TopicPartitions(
                topic=topic, partitions=tuple(sorted(index for name, index in client.owned if name == topic))
            )
            for topic in sorted({topic for topic, _ in client.owned})
        )
        metadata = encode_subscription(Subscription(topics=client.topics, owned_partitions=rows))
        return Join(
            request=request,
            member_id=member_id,
            new_member_id=client.member_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=((PROTOCOL, metadata),),
        )

    def joined(self, client: Client, answer: object) -> None:
        assert isinstance(answer, JoinAnswer)
        assert (answer.error, answer.leader, answer.members) == (E.NONE, "", ())
        assert (answer.member_id, answer.protocol_name) == (client.member_id, PROTOCOL)
        client.epoch, client.must_sync = answer.generation_id, True

    @rule(name=NAMES, topics=TOPICS)
    @precondition(lambda self: self.classic is None and any(not each.is_classic for each in self.clients.values()))
    def joins(self, name: str, topics: tuple[str, ...]) -> None:
        """Join a consumer group, in which nobody waits and nobody leads."""
        client = self.clients.get(name)
        if client is None:
            client = Client(self.new_id(name), True, topics)
            self.joined(client, self.world.send(self.join(client, "")))
            self.clients[name] = client
        elif client.is_classic:
            client.topics = topics
            self.joined(client, self.world.send(self.join(client, client.member_id)))

    @rule(name=NAMES)
    @precondition(lambda self: self.classic is None)
    def syncs(self, name: str) -> None:
        client = self.clients.get(name)
        if client is None or not client.is_classic:
            return
        sync = Sync(request=0, member_id=client.member_id, generation_id=client.epoch, protocol_name=PROTOCOL)
        answer = self.world.send(sync)
        assert isinstance(answer, SyncAnswer)
        assert answer.error in (E.NONE, E.REBALANCE_IN_PROGRESS)
        if not answer.error:
            client.assigned = client.owned = places(answer.assignment)
            client.must_sync = False

    @rule(name=NAMES, ahead=st.sampled_from([0, 0, 0, 1, -1]), is_known=st.booleans())
    @precondition(lambda self: self.classic is None)
    def beats(self, name: str, ahead: int, is_known: bool) -> None:
        client = self.clients.get(name)
        if client is None:
            return
        member_id = client.member_id if is_known else "nobody"
        answer = self.world.send(Heartbeat(request=0, member_id=member_id, generation_id=client.epoch + ahead))
        assert isinstance(answer, ErrorAnswer)
        if not client.is_classic or not is_known:
            assert answer.error is E.UNKNOWN_MEMBER_ID
        elif ahead:
            assert answer.error is E.ILLEGAL_GENERATION
        else:
            assert answer.error in (E.NONE, E.REBALANCE_IN_PROGRESS)

    @rule(name=NAMES)
    @precondition(lambda self: self.classic is None)
    def goes(self, name: str) -> None:
        client = self.clients.get(name)
        if client is None or not client.is_classic:
            return
        members = [Leaver(client.member_id), Leaver("nobody")]
        answer = self.world.send(Leave(request=0, members=members))
        assert answer == LeaveAnswer(E.NONE, (E.NONE, E.UNKNOWN_MEMBER_ID))
        del self.clients[name]

    @rule()
    @precondition(lambda self: self.classic is not None)
    def the_classic_group_rebalances(self) -> None:
        """Rebalance: all join again and the leader assigns. Partitions that a member still owns stay with it."""
        group, self.is_settled = self.classic, True
        assert group is not None
        if group.state is GroupState.STABLE:
            self.world.send(Installed(rebalance=True))
        clients = {each.member_id: each for each in self.clients.values()}
        answers: dict[int, object] = {}
        order = dict(enumerate(clients.values(), 1))
        for request, client in order.items():
            answers |= self.answers_to(self.join(client, client.member_id, request))
        assert {getattr(each, "error", None) for each in answers.values()} == {E.NONE}
        shares = self.shares(list(clients.values()))
        leader = group.members.leader_id or ""
        for request, client in order.items():
            client.epoch = group.generation_id
            sync = Sync(
                request=request,
                member_id=client.member_id,
                generation_id=group.generation_id,
                assignments=shares if client.member_id == leader else {},
            )
            answers |= self.answers_to(sync)
        for request, client in order.items():
            answer = answers[request]
            assert isinstance(answer, SyncAnswer)
            assert answer.error is E.NONE
            client.assigned = client.owned = places(answer.assignment)
            client.must_sync = False

    def answers_to(self, event: Event) -> dict[int, object]:
        self.world.perform(self.world.handle(event))
        answers, self.world.answers = self.world.answers, {}
        self.world.group.check_invariants()
        return answers

    def shares(self, clients: list[Client]) -> dict[str, bytes]:
        places = {place for client in clients for place in self.everything(client.topics)}
        wanted: dict[str, list[Place]] = {client.member_id: [] for client in clients}
        for place in sorted(places):
            keeper = next((each for each in clients if place in each.owned and place[0] in each.topics), None)
            if keeper is None and not any(place in each.owned for each in clients):
                keeper = next(each for each in clients if place[0] in each.topics)
            if keeper is not None:
                wanted[keeper.member_id].append(place)
        return {
            member_id: encode_assignment(
                Assignment(
                    assigned_partitions=tuple(
                        TopicPartitions(topic=topic, partitions=tuple(each for other, each in had if other == topic))
                        for topic in sorted({topic for topic, _ in had})
                    )
                )
            )
            for member_id, had in wanted.items()
        }

    # --- invariants ---------------------------------------------------------------------------------------------------

    def new_id(self, name: str) -> str:
        self.incarnation += 1
        return f"{name}-{self.incarnation}"

    def everything(self, topics: tuple[str, ...]) -> set[Place]:
        found = ((topic, self.world.topics.get(topic)) for topic in topics)
        return {(topic, each) for topic, info in found if info is not None for each in range(info.partition_count)}

    @invariant()
    def nobody_owns_what_another_owns(self) -> None:
        owned = [place for client in self.clients.values() for place in client.owned]
        assert len(owned) == len(set(owned)), self.clients

    @invariant()
    def the_group_is_sound_and_never_goes_back(self) -> None:
        if self.classic is not None:
            self.classic.check_invariants()
            now = self.classic.generation_id
        else:
            group = self.world.group
            group.check_invariants()
            assert isinstance(group, ConsumerGroup)
            assert set(group.members) == {each.member_id for each in self.clients.values()}
            kinds = {each.member_id: each.classic is not None for each in group.members.values()}
            assert kinds == {each.member_id: each.is_classic for each in self.clients.values()}
            now = group.epoch
        assert now >= self.epoch
        self.epoch = now

    def teardown(self) -> None:
        """Let all members follow their answers, until all have their targets."""
        for _ in range(8):
            for name, client in list(self.clients.items()):
                if self.classic is not None:
                    self.the_classic_group_rebalances()
                elif client.is_classic:
                    self.joins(name, client.topics) if not self.only_classic() else None
                    self.syncs(name)
                else:
                    self.goes_on(name, True, None)
            self.nobody_owns_what_another_owns()
        if self.classic is None:
            for client in self.classic_clients:
                assert self.world.send(
                    Heartbeat(request=0, member_id=client.member_id, generation_id=client.epoch)
                ) == ErrorAnswer(E.NONE)
        wanted = {place for client in self.clients.values() for place in self.everything(client.topics)}
        assert {place for client in self.clients.values() for place in client.owned} == wanted

    def only_classic(self) -> bool:
        return all(each.is_classic for each in self.clients.values())


def places(assignment: bytes) -> set[Place]:
    rows = decode_assignment(assignment).assigned_partitions if assignment else ()
    return {(row.topic, each) for row in rows for each in row.partitions}


def grouped(world: World, owned: set[Place]) -> dict[bytes, frozenset[int]]:
    found = {}
    for name in {topic for topic, _ in owned}:
        topic = world.topics.get(name)
        assert topic is not None
        found[topic.id] = frozenset(each for other, each in owned if other == name)
    return found


def spread(world: World, held: object) -> set[Place]:
    return {(world.topics.name_of(topic_id) or "", each) for topic_id, some in held.items() for each in some}  # type: ignore[attr-defined]


TestMixedGroups = MixedGroups.TestCase
TestMixedGroups.settings = settings(max_examples=100, stateful_step_count=40, report_multiple_bugs=False)
