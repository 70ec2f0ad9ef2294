"""`millrace produce` and `consume` against a running broker."""

import json
import os
import signal
import subprocess
import time

import pytest
from protocol_lib.client import Consumer

from tests.unit.millrace.conftest import MILLRACE, LineReader


def test_records_of_text_with_keys_and_headers(run):
    run("topic", "create", "text")
    run.produced(b"a:1\nb:2\nplain\n", "text", "-K", ":", "-H", "by=cli", "-H", "by=us", "-z", "lz4")
    shown = run.consumed("text", "-o", "beginning", "-e", "-f", r"%p %o %k=%s %K %h\n")
    assert shown == b"0 0 a=1 1 by=cli,by=us\n0 1 b=2 1 by=cli,by=us\n0 2 =plain -1 by=cli,by=us\n"
    assert run.consumed("text", "-o", "-2", "-e") == b"2\nplain\n"
    assert run.consumed("text", "-o", "1", "-c", "1", "-K", "|") == b"b|2\n"
    assert run.consumed("text", "-o", "@0", "-e", "-p", "0") == b"1\n2\nplain\n"
    assert run.consumed("text", "-o", "@9999999999999", "-e") == b""
    assert run.consumed("text", "-e") == b""


def test_json_lines_copy_a_topic(run):
    run("topic", "create", "copied", "copy")
    run.produced(b"k1,\xff\xfe\nk2,two\n", "copied", "-K", ",")
    lines = run.consumed("copied", "-o", "beginning", "-e", "--output", "json-each-row")
    assert [json.loads(line)["offset"] for line in lines.splitlines()] == [0, 1]
    run.produced(lines, "copy", "--input", "json-each-row")
    form = r"%k,%s\n"
    assert run.consumed("copy", "-o", "beginning", "-e", "-f", form) == b"k1,\xff\xfe\nk2,two\n"
    nonsense = b'{"value": "x"}\nnonsense\n'
    status, _, error = run("topic", "produce", "copy", "--input", "json-each-row", stdin=nonsense)
    assert (status, error.startswith("millrace: line 2 is not a record in JSON: ")) == (1, True)


def test_a_refused_record_is_one_line(run):
    run("topic", "create", "small", "-c", "max.message.bytes=100")
    status, lines, error = run("produce", "small", stdin=b"x" * 5000)
    assert (status, lines, error.count("\n"), error[:10]) == (1, [], 1, "millrace: ")
    assert run("topic", "consume", "small", "-p", "4", "-e") == (
        1,
        [],
        "millrace: small has no partition 4; it has 1\n",
    )


def test_a_part_of_a_log_is_read(run):
    run("topic", "create", "span")
    run.produced(b"0\n1\n2\n3\n4\n", "span")
    for span, expected in (
        ("1:3", "1 2"), (":2", "0 1"), ("-3:-1", "2 3"), ("3:end", "3 4"), ("end:end", ""), ("2:beginning", ""),
        ("@-15m:4", "0 1 2 3"), ("@0:@2001-01-01T00:00:00Z", ""),
    ):  # fmt: skip
        assert run.consumed("span", "-o", span).decode().split() == expected.split(), span
    assert run.consumed("span", "-o", "3:9", "-e") == b"3\n4\n"


def test_a_part_that_is_still_to_come_is_awaited(run, start, up):
    run("topic", "create", "coming")
    run.produced(b"0\n", "coming")
    process = start("consume", "coming", "-o", "2:4", "--kafka", up.kafka, "-q")
    run.produced(b"1\n2\n3\n4\n", "coming")
    assert process.communicate(timeout=60) == (b"2\n3\n", b"")


def test_several_topics_and_those_of_a_regular_expression(run):
    run("topic", "create", "many-1", "many-2", "manyfold")
    for name in ("many-1", "many-2", "manyfold"):
        run.produced(name.encode() + b"\n", name)
    arguments = ("-o", "beginning", "-e", "-f", r"%t:%s\n")
    both = ["many-1:many-1", "many-2:many-2"]
    assert sorted(run.consumed("many-1", "many-2", *arguments).decode().split()) == both
    assert sorted(run.consumed("-r", "many-.", *arguments).decode().split()) == both
    assert sorted(run.consumed("-r", "many-.", "-G", "manifold", *arguments).decode().split()) == both


@pytest.mark.parametrize("group", [(), ("-G", "hopeful")])
@pytest.mark.parametrize("topic", [("nowhere",), ("-r", "nowhere.*")])
def test_a_topic_that_does_not_exist_is_an_error(group, topic, run):
    """A member of a group would wait for an assignment for ever."""
    reason = "topic nowhere does not exist" if topic == ("nowhere",) else "no topics match nowhere.*"
    assert run("consume", *topic, *group, "-e") == (1, [], f"millrace: {reason}\n")


def test_consume_says_where_it_begins_and_that_it_waits(run, start, up):
    run("topic", "create", "told", "-p", "2")
    run.produced(b"a\nb\n", "told", "-p", "1")
    assert run("consume", "told", "-o", "beginning", "-e")[2] == (
        "millrace: reading from the beginning: told-0 at 0, told-1 at 0\n"
    )
    waits = "millrace: at the end; waiting for new records, Ctrl-C ends"
    alone = start("consume", "told", "--kafka", up.kafka)
    assert LineReader(alone.stderr).until("waiting") == [
        "millrace: reading from the end: told-0 at 0, told-1 at 2; -o beginning reads the older records", waits,
    ]  # fmt: skip
    member = start("consume", "told", "-G", "listeners", "--kafka", up.kafka)
    assert LineReader(member.stderr).until("waiting") == [
        "millrace: group listeners assigns told-0 at end, told-1 at end", waits,
    ]  # fmt: skip


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("group", [(), ("-G", "ended")])
def test_a_signal_ends_a_consumer_quietly(number, status, group, run, start, up):
    """A member commits and leaves: its group is empty at once, and not after the session timeout of 45 s."""
    topic = f"endless-{number}-{len(group)}"
    run("topic", "create", topic)
    run.produced(b"one\n", topic)
    process = start("consume", topic, "-q", "-o", "beginning", *group, "--kafka", up.kafka)
    assert process.stdout.readline() == b"one\n"
    process.send_signal(number)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == status
    if group:
        about = run.json("group", "describe", "ended")
        assert (about["state"], about["members"]) == ("EMPTY", [])
        assert [row["committed"] for row in about["partitions"] if row["topic"] == topic] == [1]


def test_a_pipe_that_nobody_reads_does_not_end_a_membership(run, start, up):
    """Time limits of a second show what 45 s and 300 s do; the pipe takes 64 KB of the 6 MB that are left."""
    run("topic", "create", "slow")
    run.produced(b"%s\n" % (b"x" * 99_999) * 80, "slow")
    limits = ("-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=200", "-X", "max.poll.interval.ms=1500")
    process = start("consume", "slow", "-q", "-G", "patient", "-o", "beginning", *limits, "--kafka", up.kafka)
    received = len(process.stdout.read(2_500_000))
    deadline = time.monotonic() + 3.5  # more than twice what a member may take between two polls
    while time.monotonic() < deadline:
        about = run.json("group", "describe", "patient")
        assert (about["state"], len(about["members"])) == ("STABLE", 1)
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 143  # also with a write that does not end
    received += len(process.stdout.read())
    (row,) = run.json("group", "describe", "patient")["partitions"]
    assert 10 <= row["committed"] <= received / 100_000 < 40  # what is committed has been written
    rest = run.consumed("slow", "-G", "patient", "-o", "beginning", "-e").count(b"\n")
    assert rest == 80 - row["committed"]


@pytest.mark.parametrize("topic", [("growing",), ("-r", "growing")])
@pytest.mark.parametrize("group", [(), ("-G", "growers")])
def test_partitions_that_are_added_are_read_from_their_first_record(topic, group, run, start, up):
    run("topic", "create", "growing")
    often = ("-X", "metadata.max.age.ms=200", "-f", "%p:%s\\n")
    process = start("consume", *topic, *often, *group, "--kafka", up.kafka)
    try:
        LineReader(process.stderr).until("waiting")
        assert run("topic", "add-partitions", "growing", "--to", "2", "--yes")[0] == 0
        run.produced(b"new\n", "growing", "-p", "1")
        run.produced(b"old\n", "growing", "-p", "0")
        assert sorted(process.stdout.readline() for _ in range(2)) == [b"0:old\n", b"1:new\n"]
    finally:
        process.terminate()
        process.wait(30)
        run("topic", "delete", "growing", "--yes")


def test_what_is_produced_is_printed(run):
    run("topic", "create", "printed", "-p", "2")
    lines = run("produce", "printed", "-p", "1", "--output", "text", stdin=b"a\nb\n")
    assert lines == (0, ["printed-1 offset 0", "printed-1 offset 1"], "")
    status, lines, _ = run("produce", "printed", "-p", "0", "--output", "json-each-row", stdin=b"a\n")
    row = json.loads(lines[0])
    assert (status, row.pop("timestamp") > 1_700_000_000_000) == (0, True)
    assert row == {"topic": "printed", "partition": 0, "offset": 0}
    summary = run("produce", "printed", "-p", "1", "--output", "summary", stdin=b"c\nd\ne\n")
    assert summary == (0, ["printed-1: 3 records, offsets 2 to 4"], "")


def test_a_terminal_gets_a_summary_of_what_is_produced(run, up):
    run("topic", "create", "seen")
    terminal, slave = os.openpty()
    done = subprocess.run([*MILLRACE, "produce", "seen", "--kafka", up.kafka], input=b"a\n", stdout=slave, timeout=60)
    os.close(slave)
    assert (done.returncode, os.read(terminal, 1000)) == (0, b"seen-0: 1 record, offsets 0 to 0\r\n")
    os.close(terminal)


def test_a_typed_line_is_answered_by_its_offset(run, up):
    run("topic", "create", "dialogue")
    terminal, slave = os.openpty()
    command = [*MILLRACE, "produce", "dialogue", "--kafka", up.kafka]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        for number in range(2):
            os.write(terminal, b"line\n")
            shown = b""
            while b"dialogue-0 offset %d\r\n" % number not in shown:
                shown += os.read(terminal, 1000)
        os.write(terminal, b"\x04")  # Ctrl-D
        assert process.wait(30) == 0
    os.close(terminal)
    assert run.consumed("dialogue", "-o", "beginning", "-e") == b"line\nline\n"


def test_nulls_are_written_and_shown(run):
    run("topic", "create", "nulls")
    run.produced(b"k:\n:v\n\n", "nulls", "-K", ":", "-Z")
    form = ("-o", "beginning", "-e", "-f", r"%k=%s %K %S\n")
    assert run.consumed("nulls", *form, "-Z") == b"k=NULL 1 -1\nNULL=v -1 1\nNULL=NULL -1 -1\n"
    assert run.consumed("nulls", *form) == b"k= 1 -1\n=v -1 1\n= -1 -1\n"


def test_properties_of_the_client(run):
    run("topic", "create", "properties")
    run.produced(b"a\n", "properties", "-X", "acks=1", "-X", "linger.ms=0")
    committed = ("-o", "beginning", "-e", "-X", "isolation.level=read_committed")
    assert run.consumed("properties", *committed, "-G", "uncommitted", "-X", "enable.auto.commit=false") == b"a\n"
    assert [row["committed"] for row in run.json("group", "describe", "uncommitted")["partitions"]] == []


def test_records_that_could_not_be_written_are_not_committed(run):
    run("topic", "create", "unwritten")
    run.produced(b"a\nb\n", "unwritten")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*MILLRACE, "consume", "unwritten", "-q", "-G", "unlucky", "-o", "beginning", "-e"],
            stdout=full, stderr=subprocess.PIPE, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"millrace: standard output: No space left on device\n")
    assert run.consumed("unwritten", "-G", "unlucky", "-o", "beginning", "-e") == b"a\nb\n"
    assert run.consumed("unwritten", "-G", "unlucky", "-o", "beginning", "-e") == b""


def test_ctrl_c_ends_a_producer_that_waits_for_a_line(run):
    run("topic", "create", "typed")
    with subprocess.Popen([*MILLRACE, "produce", "typed"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as typed:
        typed.stdin.write(b"a\n")
        typed.stdin.flush()
        assert run.consumed("typed", "-o", "beginning", "-c", "1") == b"a\n"
        typed.send_signal(signal.SIGINT)
        assert typed.wait(30) == 130
        assert typed.stderr.read() == b""


ENDS = {
    "refused record": (b"x" * 5000 + b"\n", 1, b"millrace: told-"),
    "no record": (b'{"value": "\xff"}\n', 1, b"millrace: line 2 is not a record in JSON: "),
    "SIGTERM": (signal.SIGTERM, 143, b""),
    "SIGINT": (signal.SIGINT, 130, b""),
}


@pytest.mark.parametrize("has_reader", [True, False], ids=["reader", "reader has left"])
@pytest.mark.parametrize("end", ENDS)
def test_a_producer_says_what_is_stored_however_it_ends(end, has_reader, run, up):
    cause, status, error = ENDS[end]
    topic = f"told-{end.replace(' ', '-')}-{has_reader}"
    run("topic", "create", topic, "-c", "max.message.bytes=200")
    form = "summary" if has_reader else "text"
    as_json = ("--input", "json-each-row") if end == "no record" else ()
    reads, writes = os.pipe()
    if not has_reader:
        os.close(reads)
    command = [*MILLRACE, "produce", topic, "--output", form, *as_json, "--kafka", up.kafka]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=writes, stderr=subprocess.PIPE) as process:
        os.close(writes)
        process.stdin.write(b'{"value": "first"}\n')
        process.stdin.flush()
        run.consumed(topic, "-o", "beginning", "-c", "1")
        if isinstance(cause, bytes):
            process.stdin.write(cause)
            process.stdin.close()
        else:
            process.send_signal(cause)
        assert process.wait(30) == status
        said = process.stderr.read()
    assert (said[: len(error)], said.count(b"\n")) == (error, 1 if error else 0)
    if has_reader:
        with open(reads, "rb") as shown:
            assert shown.read() == f"{topic}-0: 1 record, offsets 0 to 0\n".encode()


@pytest.mark.parametrize("group", [(), ("-G", "bounded")])
def test_records_that_wait_to_be_written_have_a_limit_of_bytes(group, run, monkeypatch):
    """Compressed records of a few bytes may become far more than the memory has room for."""
    run("topic", "create", "large", "-p", "2")
    for partition in ("0", "1"):
        run.produced(b"%s\n" % (b"x" * 900_000) * 4, "large", "-z", "zstd", "-p", partition)
    polled, poll = [], Consumer.poll

    async def noted(*arguments, **options):
        records = await poll(*arguments, **options)
        polled.append(sum(len(each.value) for each in records))
        return records

    monkeypatch.setattr(Consumer, "poll", noted)
    monkeypatch.setattr("millrace.cli.topic_readers.POLL_BYTES", 2_000_000)
    assert len(run.consumed("large", "-o", "beginning", "-e", *group)) == 8 * 900_001
    run("topic", "delete", "large", "--yes")
    assert max(polled) == 2_700_000  # up to the limit, and the record that reaches it
