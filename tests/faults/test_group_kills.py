"""kill -9 of storage in the middle of rebalances, and of a gateway that members hang on."""

import asyncio
import contextlib
import itertools
import os
import signal
import time

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.consumer_group import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from protocol_lib.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol_lib.internal.record import OFFSETS_TOPIC, read_key, read_value
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.late import confluent
from up_process import RunningUp

from tests.faults.two_gateways import two_gateways
from tests.groups.talk import GroupTalk
from tests.support.frozen import freeze
from tests.support.waiting import until
from tests.wire.group_members import ConfluentConsumerProtocolMember, ConfluentMember

PARTITIONS = 6
APART = ("--kafka-port", "0", "--http-port", "0", "--topics", f"orders:{PARTITIONS}", "--processes")
#: Nobody waits for more members; those of the consumer protocol ask twice a second.
AT_ONCE = {
    "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "MILLRACE_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS": "500",
    "MILLRACE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "500",
}
#: Errors after which a client asks again.
PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


@contextlib.asynccontextmanager
async def talk_to(address):
    host, _, port = address.rpartition(":")
    talk = GroupTalk((host, int(port)), "group", {})
    try:
        yield talk
    finally:
        await talk.close()


async def insist(ask):
    """Ask until the answer is not a passing error, and return it."""
    for _ in range(400):
        answer = await ask()
        if answer.error_code not in PASSING:
            return answer
        await asyncio.sleep(0.05)
    raise AssertionError(answer)


async def test_storage_killed_while_a_join_is_parked_loads_the_last_generation():
    with RunningUp(*APART, environment=AT_ONCE) as up:
        async with talk_to(up.kafka) as talk:
            first, second, generation = await talk.pair()
            assert (await talk.commit("a", ("orders", 0, 5), member=(first, generation))).topics
            await talk.join_later("a", version=3, member_id=first)  # the leader's join begins a rebalance

            await asyncio.to_thread(up.kill, "storage-svc")

        async with talk_to(up.kafka) as talk:
            # Both are loaded with the group, in the generation they had, and their session goes on.
            beat = await insist(lambda: talk.heartbeat("b", second, generation))
            assert beat.error_code == ErrorCode.NONE
            assert (await talk.heartbeat("a", first, generation)).error_code == ErrorCode.NONE
            (group,) = (await talk.describe("a")).groups
            assert group.group_state == "Stable"
            assert {bytes(each.member_assignment) for each in group.members} == {b"one", b"two"}
            (fetched,) = (await talk.fetch("a", ("orders", 0))).groups
            assert fetched.topics[0].partitions[0].committed_offset == 5
            await talk.join_later("a", version=3, member_id=first)
            joined = await talk.join("b", version=3, member_id=second)
            assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, generation + 1)


async def test_storage_killed_before_the_assignment_is_durable_forgets_that_generation():
    with RunningUp(*APART, environment=AT_ONCE) as up:
        async with talk_to(up.kafka) as talk:
            first, second, generation = await talk.pair()
            await talk.join_later("a", version=3, member_id=first)
            joined = await talk.join("b", version=3, member_id=second)
            assert joined.generation_id == generation + 1
            await talk.sync_later("b", second, joined.generation_id)

            await asyncio.to_thread(up.kill, "storage-svc")

        async with talk_to(up.kafka) as talk:
            # No member received an assignment of it, so none can hold one next to that of the next generation.
            refused = await insist(lambda: talk.sync("b", second, generation + 1))
            assert refused.error_code == ErrorCode.ILLEGAL_GENERATION
            await talk.join_later("a", version=3, member_id=first)
            joined = await talk.join("b", version=3, member_id=second)
            assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, generation + 1)


async def test_storage_killed_in_the_middle_of_a_reconciliation_costs_nobody_anything():
    with RunningUp(*APART, environment={"MILLRACE_GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS": "0"}) as up:
        async with talk_to(up.kafka) as talk:
            asked = MetadataRequest(topics=(MetadataRequestTopic(name="orders"),))
            talk.requests.topic_ids = {"orders": (await talk.ask("a", 3, 12, asked)).topics[0].topic_id}
            topic_ids = talk.requests.topic_ids
            first = await insist(lambda: talk.enter("a", "m1"))
            second = await talk.enter("b", "m2")
            reduced = await talk.beat("a", "m1", first.member_epoch, owned=range(PARTITIONS))
            kept = set(reduced.assignment.topic_partitions[0].partitions)
            assert len(kept) == PARTITIONS / 2

            await asyncio.to_thread(up.kill, "storage-svc")

        async with talk_to(up.kafka) as talk:
            talk.requests.topic_ids = topic_ids
            # The second does not get partitions that the first has not given up yet.
            waiting = await insist(lambda: talk.beat("b", "m2", second.member_epoch, owned=()))
            assert (waiting.error_code, waiting.member_epoch) == (0, second.member_epoch)
            assert waiting.assignment.topic_partitions == ()  # sent again, as an answer may have been lost
            moved = await talk.beat("a", "m1", reduced.member_epoch, owned=sorted(kept))
            assert (moved.error_code, moved.member_epoch) == (0, second.member_epoch)
            got = await talk.beat("b", "m2", second.member_epoch, owned=())
            assert set(got.assignment.topic_partitions[0].partitions) == set(range(PARTITIONS)) - kept
            (group,) = (await talk.described("a")).groups
            assert (group.group_state, len(group.members)) == ("Stable", 2)


async def test_a_member_that_gave_up_waiting_for_storage_is_told_what_it_missed():
    with RunningUp(*APART, environment={"MILLRACE_GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS": "0"}) as up:
        async with talk_to(up.kafka) as talk:
            asked = MetadataRequest(topics=(MetadataRequestTopic(name="orders"),))
            talk.requests.topic_ids = {"orders": (await talk.ask("a", 3, 12, asked)).topics[0].topic_id}
            first = await insist(lambda: talk.enter("a", "m1"))
            second = await talk.enter("b", "m2")
            (storage,) = up.services()["storage-svc"]
            freeze(storage)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(talk.beat("a", "m1", first.member_epoch), 0.5)
            os.kill(storage, signal.SIGCONT)

            reduced = await insist(lambda: talk.beat("c", "m1", first.member_epoch))
            kept = set(reduced.assignment.topic_partitions[0].partitions)
            assert (reduced.member_epoch, len(kept)) == (first.member_epoch, PARTITIONS / 2)
            assert (await talk.beat("c", "m1", first.member_epoch)).assignment is None
            moved = await talk.beat("c", "m1", first.member_epoch, owned=sorted(kept))
            assert moved.member_epoch == second.member_epoch


class Watched(ConfluentMember):
    """A member that notes when it is assigned a partition that another one still owns."""

    def __init__(self, *arguments, peers, **options):
        self.peers = peers
        self.overlaps = []
        super().__init__(*arguments, **options)

    def _assigned(self, partitions):
        partitions = set(partitions)
        self.overlaps.extend(partitions & peer.owned for peer in self.peers if peer is not self)
        super()._assigned(partitions)

    def acknowledged_commit(self):
        """Commit the offsets of all records received so far, and return them by partition."""

        def commit():
            positions = self._consumer.position([confluent.TopicPartition(self.topic, each) for each in self.owned])
            known = [each for each in positions if each.offset >= 0]
            if known:
                self._consumer.commit(offsets=known, asynchronous=False)
            return [(each.partition, each.offset) for each in known]

        return self._do(commit)

    def _stop(self):
        self.owned.clear()
        super()._stop()


class WatchedConsumerProtocolMember(Watched, ConfluentConsumerProtocolMember):
    pass


def committed_generations(bootstrap, group):
    """Return generations, or group epochs, of the group's records in __consumer_offsets, in the order of writing."""
    consumer = confluent.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader-of-offsets"})
    places = [confluent.TopicPartition("__consumer_offsets", partition, 0) for partition in range(50)]
    ends = {place.partition: consumer.get_watermark_offsets(place, 60)[1] for place in places}
    consumer.assign(places)
    missing, generations = sum(ends.values()), []
    while missing > 0:
        records = consumer.consume(1000, 60)
        assert records, f"{missing} records cannot be read"
        missing -= len(records)
        for record in records:
            key = read_key(OFFSETS_TOPIC, record.key())
            if record.value() is None:
                continue
            if key == GroupMetadataKey(group=group):
                generations.append(read_value(GroupMetadataValue, record.value()).generation)
            elif key == ConsumerGroupMetadataKey(group_id=group):
                generations.append(read_value(ConsumerGroupMetadataValue, record.value()).epoch)
    consumer.close()
    return generations


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Watched, WatchedConsumerProtocolMember], ids=["classic", "consumer"])
def test_members_go_on_when_storage_is_killed_in_their_rebalances(start_load, kind):
    with RunningUp(*APART, environment=AT_ONCE) as up:
        load = start_load(up.kafka, "orders", PARTITIONS)
        peers, gone, safe, took_s = [], [], {}, []

        def start():
            peers.append(kind(up.kafka, "orders", "group", peers=peers))

        def commit(member):
            """Note acknowledged commits: they must be there in the end."""
            with contextlib.suppress(confluent.KafkaException):
                for partition, offset in member.acknowledged_commit():
                    safe[partition] = max(safe.get(partition, 0), offset)

        def shared():
            owned = sorted(each for member in peers for each in member.owned)
            return owned == list(range(PARTITIONS)) and all(member.owned for member in peers)

        start()
        start()
        for pause_s in (0.0, 0.01, 0.03, 0.1):
            until(shared, lambda: [member.reports for member in peers])
            load.until_acknowledged(500)
            for member in peers:
                commit(member)
            start()
            time.sleep(pause_s)
            killed_at = time.monotonic()
            up.kill("storage-svc")
            until(shared, lambda: [member.reports for member in peers])
            took_s.append(time.monotonic() - killed_at)
            leaver = peers[0]
            commit(leaver)
            leaver.close()
            gone.append(peers.pop(0))
        load.until_acknowledged(500)
        load.stop()
        wanted = set(map(int, load.acknowledged.values()))
        until(
            lambda: wanted <= {value for member in (*peers, *gone) for value in member.values()},
            lambda: "records were not read",
        )
        assert [member.overlaps for member in (*peers, *gone) if any(member.overlaps)] == []
        assert load.errors == []
        for member in peers:
            commit(member)
        consumer = confluent.Consumer({"bootstrap.servers": up.kafka, "group.id": "group"})
        committed = consumer.committed([confluent.TopicPartition("orders", each) for each in range(PARTITIONS)], 60)
        assert safe.keys() == set(range(PARTITIONS))
        assert {each.partition: each.offset for each in committed} == safe
        consumer.close()
        generations = committed_generations(up.kafka, "group")
        assert len(generations) > 8
        assert all(before <= after for before, after in itertools.pairwise(generations))
        for member in peers:
            member.begin_to_close()
        for member in peers:
            member.close()
        waits = ", ".join(f"{each:.1f} s" for each in took_s)
        print(f"{kind.__name__}: every partition had an owner again {waits} after a kill")


async def test_a_gateway_that_dies_takes_no_member_with_it(tmp_path):
    with two_gateways(tmp_path, "orders:2") as (gateways, addresses):
        async with talk_to(addresses[0]) as talk:
            first, second, generation = await talk.pair()
            gateways[0].kill()
            gateways[0].wait()
        async with talk_to(addresses[1]) as talk:
            for who, member_id in (("a", first), ("b", second)):
                assert (await talk.heartbeat(who, member_id, generation)).error_code == ErrorCode.NONE
            (group,) = (await talk.describe("a")).groups
            assert group.group_state == "Stable"
            assert {each.member_id for each in group.members} == {first, second}
            assert (await talk.commit("b", ("orders", 1, 3), member=(second, generation))).topics
            # A join that was parked on the dead gateway does not hold up the next rebalance either.
            await talk.join_later("a", version=3, member_id=first)
            joined = await talk.join("b", version=3, member_id=second)
            assert joined.generation_id == generation + 1
