"""A Kafka server continues partitions that Millrace wrote, and Millrace those that a Kafka server wrote.

Kafka rebuilds every index and producer snapshot of our logs, and Millrace those of Kafka's: the files must be the same.
"""

import shutil
from pathlib import Path

import pytest
from conformance.log_dumps import batches, contents, dump, dumped_producers, dumped_rows, files_of, sound
from conformance.log_folders import EPOCHS, IDENTITY, KILLED, OFFSETS, copy_as_killed, hand_logs_over, millrace, stop
from conformance.log_rows import (
    COMMITTED,
    EPOCH_MS,
    SEGMENT_BYTES,
    Row,
    assert_found_by_timestamp,
    commit,
    committed,
    create,
    produce,
    read,
    rows_of,
    topics,
    write_topic,
)
from support.kafka_broker import ApacheKafka
from support.maven import need_java

LATER = [Row(EPOCH_MS + 5000 + number, "later", str(number), "trace") for number in range(5)]

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> ApacheKafka:
    """A node, stopped in order, that wrote the topic `theirs` and a group's offsets, and has an empty topic `ours`. It
    was started twice: LATER has the second leader epoch."""
    need_java()
    node = ApacheKafka(tmp_path_factory.mktemp("kafka"), {"log.cleaner.enable": "false"})
    with node:
        create(node.bootstrap, "theirs", segment_bytes=str(SEGMENT_BYTES))
        create(node.bootstrap, "ours", segment_bytes=str(SEGMENT_BYTES))
        write_topic(node.bootstrap, "theirs", rows_of("theirs"))
        commit(node.bootstrap, "theirs")
        copy_as_killed(node.data)
    with node:
        produce(node.bootstrap, "theirs", 1, LATER, "gzip", idempotent=True)
    return node


def test_a_kafka_server_recovers_serves_and_continues_our_partitions(theirs: ApacheKafka, ours: Path) -> None:
    """Kafka gets the logs alone: it rebuilds every index and producer snapshot, and the files are the same."""
    rows = rows_of("ours")
    for partition in rows:
        hand_logs_over(ours / f"ours-{partition}", theirs)

    more = [Row(EPOCH_MS + 6000 + number, "more", str(number)) for number in range(10)]
    with theirs:
        assert read(theirs.bootstrap, "ours", 0) == rows[0]
        assert_found_by_timestamp(theirs.bootstrap, "ours", rows[0])
        produce(theirs.bootstrap, "ours", 1, more, "lz4", idempotent=True)
        assert read(theirs.bootstrap, "ours", 1) == [*rows[1], *more]

    made, wanted = theirs.data / "ours-0", ours / "ours-0"
    for suffix in (".log", ".index", ".timeindex"):
        assert contents(made, suffix) == contents(wanted, suffix)
    assert dumped_producers(made) == dumped_producers(wanted)


@pytest.mark.parametrize("handed_over", ["all", "partitions", "killed"])
def test_millrace_serves_and_continues_partitions_that_a_kafka_server_wrote(
    theirs: ApacheKafka, tmp_path: Path, handed_over: str
) -> None:
    """The indexes of a node that was stopped in order are used as they are.

    From the partitions' folders alone, or from the folder of a killed node, everything is recovered, and the rebuilt
    indexes are the same.
    """
    data = tmp_path / "data"
    source = theirs.data.with_name(KILLED) if handed_over == "killed" else theirs.data
    folders = [*source.glob("theirs-*"), *source.glob(f"{OFFSETS}-*")] if handed_over == "partitions" else []
    for folder in folders:
        shutil.copytree(folder, data / folder.name)
    if not folders:
        shutil.copytree(source, data)
    rows = rows_of("theirs")
    small = rows[1] if handed_over == "killed" else [*rows[1], *LATER]
    more = [Row(EPOCH_MS + 6000 + number, "more", str(number), "trace") for number in range(10)]

    with millrace(data) as up:
        assert "theirs" in topics(up.kafka)
        assert "__cluster_metadata" not in topics(up.kafka)
        assert read(up.kafka, "theirs", 0) == rows[0]
        assert_found_by_timestamp(up.kafka, "theirs", rows[0])
        assert committed(up.kafka, "theirs") == COMMITTED
        produce(up.kafka, "theirs", 1, more, "zstd", idempotent=True)
        assert read(up.kafka, "theirs", 1) == [*small, *more]
        stop(up)
        log_text = up.log()

    assert "index rebuilt" not in log_text
    theirs_0, ours_0 = theirs.data / "theirs-0", data / "theirs-0"
    for suffix in (".log", ".index", ".timeindex"):
        assert contents(ours_0, suffix) == contents(theirs_0, suffix)
    assert dumped_producers(ours_0) == dumped_producers(theirs_0)
    assert (ours_0 / IDENTITY).read_bytes() == (theirs_0 / IDENTITY).read_bytes()
    assert (ours_0 / EPOCHS).read_bytes() == (source / "theirs-0" / EPOCHS).read_bytes()
    continued = data / "theirs-1"
    assert (continued / EPOCHS).read_bytes() == (source / "theirs-1" / EPOCHS).read_bytes()
    files = [*files_of(continued, ".log"), *files_of(continued, "index"), *files_of(continued, ".snapshot")]
    dumped = sound(dump(*files, options=("--deep-iteration", "--print-data-log")))
    assert dumped_rows(dumped) == list(enumerate([*small, *more]))
    epochs = [batch["partitionLeaderEpoch"] for batch in batches(dumped)]
    newest = int((continued / EPOCHS).read_text().split()[-2])
    assert (epochs[0], epochs[-1], newest > 0) == (0, newest, handed_over != "killed")
