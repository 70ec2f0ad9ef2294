"""Parts of the run loop without Spark: the gate, the limit in bytes, the source's identity, a recovered checkpoint."""

import json
import threading
from typing import Any

import pytest
from spark_etl.batch.identity import Identity, SourceIdentity
from spark_etl.checkpoint.notes import LocalNotes
from spark_etl.config import Source
from spark_etl.errors import IdentityError, OutputError
from spark_etl.kafka.admin import UnknownTopicError
from spark_etl.lake import recovery
from spark_etl.query.byte_limit import RECORD_SIZES, ByteLimit
from spark_etl.query.queries import Gate, GateClosedError, limited, stop_between_batches

pytestmark = pytest.mark.etl


def test_the_batch_inside_a_closed_gate_finishes_and_the_next_one_does_not_begin():
    gate = Gate()
    with gate.passed():
        assert gate.busy
        gate.close()
        assert gate.busy
        assert not gate.refused.is_set()
    assert not gate.busy
    with pytest.raises(GateClosedError), gate.passed():
        raise AssertionError("the gate is closed")
    assert gate.refused.is_set()
    assert not gate.busy


def test_a_batch_that_fails_leaves_the_gate():
    gate = Gate()
    with pytest.raises(ValueError, match="x"), gate.passed():
        raise ValueError("x")
    assert not gate.busy


def test_the_gate_is_seen_by_other_threads():
    gate, inside = Gate(), threading.Event()
    leave = threading.Event()

    def work() -> None:
        with gate.passed():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(60)
    assert gate.busy
    leave.set()
    thread.join(60)
    assert not gate.busy


class Query:
    """A query with an active trigger until `stop`. Spark describes its work by `message`."""

    def __init__(self, message: str, gate: Gate) -> None:
        self.isActive = True
        self._message, self._gate = message, gate

    @property
    def status(self) -> dict[str, Any]:
        if not self._message.startswith("Getting"):  # the next batch comes to the gate
            self._gate.refused.set()
        return {"isTriggerActive": True, "message": self._message}

    def stop(self) -> None:
        self.isActive = False


@pytest.mark.parametrize(
    ("message", "refused"), [("Getting offsets from KafkaV2[Subscribe[orders]]", False), ("Processing new data", True)]
)
def test_a_query_that_asks_an_absent_broker_for_offsets_stops_at_once(message, refused):
    gate = Gate()
    query: Any = Query(message, gate)
    gate.close()
    stop_between_batches([query], gate)
    assert (query.isActive, gate.refused.is_set()) == (False, refused)


def test_a_query_that_does_not_end_is_left_after_a_time():
    """Spark waits in its question to a broker, which no interrupt ends."""
    gate, answer = Gate(), threading.Event()
    query: Any = Query("Getting offsets from KafkaV2[Subscribe[orders]]", gate)
    query.stop = lambda: answer.wait(60)
    stop_between_batches([query], gate, 0.01)
    assert query.isActive
    answer.set()


def test_the_limit_follows_the_mean_size_and_is_kept(tmp_path):
    notes = LocalNotes(tmp_path)
    limit = ByteLimit(1_000_000, None, notes)
    assert limit.records == 100  # of 10,000 bytes, the first guess
    assert limit.measured(100, 200_000, offsets=100, limited=True)  # 2,000 bytes each: five times as many fit
    assert limit.records == 500
    assert not limit.measured(500, 1_100_000, offsets=500, limited=True)  # a tenth more than planned
    assert not limit.measured(0, 0, offsets=0, limited=True)
    assert not limit.measured(0, 0, offsets=500, limited=False)  # the end of the source
    grown = [limit.measured(0, 0, offsets=500, limited=True) and limit.records for _ in range(6)]
    assert grown == [2_000, 8_000, 32_000, 128_000, 454_000, False]  # the records of before are of 2,200 bytes
    assert ByteLimit(1_000_000, None, notes).records == 500
    assert limit.measured(450, 9_000_000, offsets=450, limited=False)  # 20,000 bytes each
    assert limit.records == 50
    assert ByteLimit(1_000_000, 30, notes).records == 30  # the limit in records holds too


def test_one_record_is_always_in_a_batch(tmp_path):
    limit = ByteLimit(1_000, None, LocalNotes(tmp_path))
    assert limit.records == 1
    assert not limit.measured(1, 50_000, offsets=1, limited=True)
    assert limit.records == 1


def test_a_batch_with_fewer_records_than_offsets_raises_the_limit_too(tmp_path):
    """A batch at the end of the source says nothing about the limit; any other one was as large as it could be."""
    limit = ByteLimit(1_000_000, None, LocalNotes(tmp_path))
    assert not limit.measured(40, 80_000, offsets=40, limited=False)
    assert limit.records == 100
    assert limit.measured(40, 80_000, offsets=40, limited=True)
    assert limit.records == 500
    source = {"startOffset": {"t": {"0": 5}}, "endOffset": {"t": {"0": 905}, "u": {"0": 7}}}
    report = {"sources": [{**source, "latestOffset": {"t": {"0": 2_000}}}]}
    sizes = {"observedMetrics": {RECORD_SIZES: {"records": 600, "size": 90_000}}}
    assert limit.learned({**report, **sizes})  # 150 bytes for each record, 100 for each of 900 offsets
    assert limit.records == 10_000
    sizes = {"observedMetrics": {RECORD_SIZES: {"records": 3, "size": 300}}}
    assert limit.learned({**report, **sizes})
    assert limit.records == 40_000  # four times as many as if each offset had 100 bytes
    assert ByteLimit(1_000_000, None, limit._notes).records == 10_000


def test_a_batch_is_limited_if_a_partition_has_more():
    end = {"orders": {"0": 7, "1": 9}}
    latest = [{"orders": {"0": 7, "1": 9}}, {"orders": {"0": 7, "1": 10}}, {"orders": {"0": 7}, "new": {"0": 3}}, None]
    reports = [{"sources": [{"endOffset": end, "latestOffset": each}]} for each in latest]
    assert [limited(report) for report in reports] == [False, True, False, False]


class Cluster:
    """The topics of a cluster, as KafkaAdmin and Checkpoint show them."""

    def __init__(self, folder: Any) -> None:
        self.location = str(folder)
        self.notes = LocalNotes(folder)
        self.id = "c1"
        self.topics: dict[str, str | None] = {"orders": "t1", "users": "u1"}
        self.planned: dict[str, dict[int, int]] = {}  # offsets of the last batch

    def last_planned(self) -> int:
        return 0

    def end_offsets(self, of: Any) -> dict[str, dict[int, int]]:
        """Return the offsets of a batch, or the ends of topics."""
        return self.planned if isinstance(of, int) else {topic: {0: 9} for topic in of}

    def cluster_id(self) -> str:
        return self.id

    def topic_ids(self, names: Any) -> dict[str, str | None]:
        return {name: self.topics.get(name) for name in names}

    def query_id(self) -> str:
        return "q"

    def replacement(self) -> "Cluster":
        return self

    def replace(self, _name: str) -> None:
        """Do nothing: the replacement has the same notes."""


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    return Cluster(tmp_path)


def identity(cluster: Cluster, **source: Any) -> SourceIdentity:
    given: Any = cluster
    return SourceIdentity(given, given, Source(**(source or {"topics": ["orders", "users"]})))


def test_the_first_identity_is_kept_and_the_same_one_passes(cluster):
    assert identity(cluster).check() == Identity("c1", {"orders": "t1", "users": "u1"})
    assert cluster.notes.read("identity") == {"cluster": "c1", "topics": {"orders": "t1", "users": "u1"}}
    assert identity(cluster).check().cluster == "c1"


def test_another_topic_of_the_name_is_refused_each_time(cluster):
    identity(cluster).check()
    cluster.topics["users"] = "u2"
    for _ in range(2):
        with pytest.raises(IdentityError, match=r"^the topic users was deleted and created again \(id u1"):
            identity(cluster).check()


def test_another_cluster_is_refused_even_with_the_same_topics(cluster):
    identity(cluster).check()
    cluster.id = "c2"
    with pytest.raises(IdentityError, match=r"^the cluster is another one \(id c1 before, c2 now\)"):
        identity(cluster).check()


def test_a_topic_that_is_missing_is_named_and_changes_nothing(cluster):
    identity(cluster).check()
    cluster.topics["users"] = None
    with pytest.raises(UnknownTopicError, match=r"^source: no topic users in the cluster$"):
        identity(cluster).check()
    cluster.topics["users"] = "u1"
    assert identity(cluster).check().topics["users"] == "u1"


def test_topics_that_a_pattern_finds_later_are_added(cluster):
    pattern = {"pattern": "orders.*"}
    assert identity(cluster, **pattern).check(["orders"]).topics == {"orders": "t1"}
    cluster.topics["orders.eu"] = "e1"
    assert identity(cluster, **pattern).check(["orders", "orders.eu"]).topics == {"orders": "t1", "orders.eu": "e1"}
    cluster.topics["orders.eu"] = "e2"
    with pytest.raises(IdentityError, match=r"the topic orders\.eu was deleted"):
        identity(cluster, **pattern).check(["orders"])


def test_a_topic_that_was_left_out_is_refused_once_spark_has_forgotten_it(cluster):
    cluster.planned = {"orders": {0: 1}, "users": {0: 1}}
    identity(cluster).check()
    with pytest.raises(OutputError, match=r"^the source no longer has the topic users, and records after its offsets"):
        identity(cluster, topics=["orders"]).check()
    lossy = {"on_data_loss": "continue"}
    assert identity(cluster, topics=["orders"], **lossy).check().left == ("users",)
    assert identity(cluster).check().left == ()  # no batch was planned without it
    identity(cluster, topics=["orders"], **lossy).check()
    cluster.planned = {"orders": {0: 2}}
    for _ in range(2):
        with pytest.raises(OutputError, match=r"^the topic users was left out of the source for a while"):
            identity(cluster).check()
    assert identity(cluster, topics=["orders"]).check().topics == {"orders": "t1", "users": "u1"}
    cluster.topics["new"] = "n1"
    for _ in range(2):  # kept, and not read yet
        assert identity(cluster, topics=["orders", "new"]).check().left == ("users",)


def test_a_topic_that_a_pattern_left_out_is_refused_too(cluster):
    cluster.planned = {"orders": {0: 1}, "users": {0: 1}}
    both, one = {"pattern": "orders|users"}, {"pattern": "orders"}
    identity(cluster, **both).check(["orders", "users"])
    with pytest.raises(OutputError, match=r"^the source no longer has the topic users"):
        identity(cluster, **one).check()
    assert identity(cluster, **one, on_data_loss="continue").check().left == ("users",)
    cluster.planned = {"orders": {0: 2}}
    for source in (both, {}):  # and by name
        with pytest.raises(OutputError, match=r"^the topic users was left out of the source for a while"):
            identity(cluster, **source).check()
    cluster.topics["orders"] = "t2"  # which would begin again, and not `users`
    with pytest.raises(OutputError, match=r"^the topic users was left out"):
        identity(cluster, **both, on_topic_change="restart").check()
    cluster.topics["users"] = "u2"
    with pytest.raises(IdentityError, match=r"orders was deleted .*; the topic users was deleted"):
        identity(cluster, **both).check()


def test_a_topic_that_is_created_again_while_it_is_left_out_comes_back(cluster):
    lossy, restart = {"topics": ["orders"], "on_data_loss": "continue"}, {"on_topic_change": "restart"}
    cluster.planned = {"orders": {0: 1}, "users": {0: 1}}
    identity(cluster).check()
    identity(cluster, **lossy).check()
    cluster.planned = {"orders": {0: 2}}
    cluster.topics = {"orders": "t2", "users": "u2"}
    assert identity(cluster, **lossy, **restart).start_over({}) == ["orders"]
    assert cluster.notes.read("identity") == {
        "again": ["orders"],
        "cluster": "c1",
        "left": ["users"],
        "topics": {"orders": "t2", "users": "u1"},
    }
    assert set(cluster.notes.read("start")["offsets"]) == {"orders"}
    with pytest.raises(IdentityError, match=r"users was deleted and created again \(id u1 before, u2 now\)"):
        identity(cluster).check()


def test_topics_whose_offsets_still_count(cluster):
    """A topic that is gone or new does not count, and none of another cluster."""
    identity(cluster).check()
    assert identity(cluster).unchanged() == {"orders", "users"}
    cluster.topics["users"] = "u2"
    assert identity(cluster).unchanged() == {"orders"}
    cluster.topics["orders"] = None
    assert identity(cluster).unchanged() == set()
    cluster.topics["orders"] = "t1"
    cluster.id = "c2"
    assert identity(cluster).unchanged() == set()
    assert identity(cluster).kept() == Identity("c1", {"orders": "t1", "users": "u1"})


def test_a_topic_of_a_pattern_may_go_if_data_may_be_lost(cluster):
    pattern = {"pattern": "orders.*"}
    cluster.topics["orders.eu"] = "e1"
    identity(cluster, **pattern).check(["orders", "orders.eu"])
    cluster.topics["orders.eu"] = None
    with pytest.raises(UnknownTopicError, match=r"^source: no topic orders\.eu in the cluster$"):
        identity(cluster, **pattern).check(["orders"])
    lossy = {**pattern, "on_data_loss": "continue"}
    both = Identity("c1", {"orders": "t1", "orders.eu": "e1"})
    cluster.planned = {"orders": {0: 1}, "orders.eu": {0: 1}}
    assert identity(cluster, **lossy).check(["orders", "orders.eu"]) == both  # the batch has its records
    assert identity(cluster, **lossy).check() == both
    cluster.topics["orders.eu"] = "e2"
    with pytest.raises(IdentityError, match=r"the topic orders\.eu was deleted"):  # Spark would go on at offset 1
        identity(cluster, **lossy).check()
    cluster.topics["orders.eu"] = None
    cluster.planned["orders.us"] = {0: 1}
    found = identity(cluster, **lossy).check(["orders", "orders.eu", "orders.us"])
    assert found.topics["orders.us"] == "unknown"  # it came and went within a batch
    cluster.planned = {"orders": {0: 2}}
    assert identity(cluster, **lossy).check(["orders"]) == Identity("c1", {"orders": "t1"}, ("orders.eu", "orders.us"))
    cluster.topics["orders.eu"] = "e2"
    found = identity(cluster, **lossy).check(["orders", "orders.eu"])
    assert found == Identity("c1", {"orders": "t1", "orders.eu": "e2"}, ("orders.eu", "orders.us"))


@pytest.mark.parametrize(("kept", "expected"), [({"planned_ms": 1_000}, 1_000), ({}, 2_000)])
def test_a_recovered_batch_has_the_time_of_its_first_try(kept, expected):
    """Spark would give it another one, by which all its event times would be too far in the future."""
    last = {"query": "q", "batch": 7, "start": {"t": {"0": 1}}, "end": {"t": {"0": 3}}, "committed_ms": 2_000, **kept}
    lines = recovery.before_last_batch(last)["offsets/7"].decode().splitlines()
    assert json.loads(lines[1])["batchTimestampMs"] == expected
    assert json.loads(lines[2]) == last["end"]
