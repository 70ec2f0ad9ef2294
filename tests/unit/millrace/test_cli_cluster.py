"""The command line against a running broker, at its real sockets."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from millrace.cli import commands
from millrace.cli.generate import PANELS
from up_process import RunningUp

MILLRACE = (sys.executable, "-m", "millrace")


@pytest.fixture(scope="module")
def up():
    with RunningUp("--kafka-port", "0", "--http-port", "0") as running:
        yield running


@pytest.fixture(autouse=True)
def profile(up, home):
    (home / "millrace").mkdir()
    content = {"current": "here", "profiles": {"here": {"rest": up.http, "kafka": up.kafka, "token_file": ""}}}
    (home / "millrace" / "profiles.json").write_text(json.dumps(content))


@pytest.fixture
def run(capsys):
    """A function that runs a command line in this process and returns its status, output and errors."""

    def whole(*arguments):
        try:
            status = commands.run(list(arguments))
        except SystemExit as ended:
            status = ended.code or 0
        capture = capsys.readouterr()
        return status, capture.out.splitlines(), capture.err

    return whole


def produced(lines, *arguments):
    done = subprocess.run([*MILLRACE, "produce", *arguments], input=lines, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def consumed(*arguments):
    done = subprocess.run([*MILLRACE, "consume", *arguments], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def test_a_topic_from_its_creation_to_its_end(run):
    assert run("topic", "create", "life", "-p", "2", "--check") == (0, ["could be created: life, 2 partitions"], "")
    assert run("topic", "create", "life", "-c", "retention.ms=1000") == (0, ["created: life, 1 partition"], "")
    assert run("topic", "create", "life")[2] == "millrace: Topic 'life' already exists.\n"
    status, listed, _ = run("topic", "list", "-o", "json")
    assert (status, [row for row in json.loads("\n".join(listed)) if row["topic"] == "life"]) == (
        0,
        [{"topic": "life", "partitions": 1}],
    )
    assert run("topic", "add-partitions", "life", "--to", "3")[1] == [
        "would raise the partitions of life from 1 to 3; add --yes to do it"
    ]
    assert run("topic", "add-partitions", "life", "--to", "3", "--yes") == (0, ["partitions of life: 1 -> 3"], "")
    changed = run("topic", "alter-config", "life", "--set", "segment.ms=5000", "--delete", "retention.ms")
    assert changed == (0, ["altered: life"], "")
    assert run("topic", "describe", "life")[1] == [
        "PARTITION  LOG START OFFSET  LOG END OFFSET",
        "0          0                 0",
        "1          0                 0",
        "2          0                 0",
        "segment.ms=5000",
    ]
    described = json.loads("\n".join(run("topic", "describe", "life", "-o", "json")[1]))
    assert (described["topic"], described["configs"]) == ("life", {"segment.ms": "5000"})
    assert run("topic", "delete", "life") == (0, ["would delete: life, 3 partitions", "add --yes to do it"], "")
    assert run("topic", "delete", "life", "--yes") == (0, ["deleted: life, 3 partitions"], "")
    status, lines, error = run("topic", "describe", "life")
    assert (status, lines) == (1, [])
    assert error.count("\n") == 1


def test_the_list_has_internal_topics_on_request(run):
    run("topic", "create", "committed")
    produced(b"1\n", "committed")
    consumed("committed", "-G", "committers", "-o", "beginning", "-e")
    names = [line.split()[0] for line in run("topic", "list", "--internal")[1]]
    assert "__consumer_offsets" in names
    assert "__consumer_offsets" not in [line.split()[0] for line in run("topic", "list")[1]]


def test_records_of_text_with_keys_and_headers(run):
    run("topic", "create", "text")
    produced(b"a:1\nb:2\nplain\n", "text", "-K", ":", "-H", "source=cli", "-z", "lz4")
    shown = consumed("text", "-o", "beginning", "-e", "-f", r"%p %o %k=%s %K %h\n")
    assert shown == b"0 0 a=1 1 source=cli\n0 1 b=2 1 source=cli\n0 2 =plain -1 source=cli\n"
    assert consumed("text", "-o", "-2", "-e") == b"2\nplain\n"
    assert consumed("text", "-o", "1", "-c", "1", "-K", "|") == b"b|2\n"
    assert consumed("text", "-o", "@0", "-e", "-p", "0") == b"1\n2\nplain\n"
    assert consumed("text", "-o", "@9999999999999", "-e") == b""
    assert consumed("text", "-e") == b""


def test_json_lines_copy_a_topic(run):
    run("topic", "create", "copied", "copy")
    produced(b"k1,\xff\xfe\nk2,two\n", "copied", "-K", ",")
    lines = consumed("copied", "-o", "beginning", "-e", "--output", "json-each-row")
    assert [json.loads(line)["offset"] for line in lines.splitlines()] == [0, 1]
    produced(lines, "copy", "--input", "json-each-row")
    form = r"%k,%s\n"
    assert consumed("copy", "-o", "beginning", "-e", "-f", form) == b"k1,\xff\xfe\nk2,two\n"
    command = [*MILLRACE, "topic", "produce", "copy", "--input", "json-each-row"]
    done = subprocess.run(command, input=b'{"value": "x"}\nnonsense\n', capture_output=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith(b"millrace: line 2 is not a record in JSON: ")


def test_a_refused_record_is_one_line(run):
    run("topic", "create", "small", "-c", "max.message.bytes=100")
    done = subprocess.run([*MILLRACE, "produce", "small"], input=b"x" * 5000, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
    assert done.stderr.startswith(b"millrace: ")
    assert run("topic", "consume", "small", "-p", "4", "-e") == (
        1,
        [],
        "millrace: small has no partition 4; it has 1\n",
    )


def test_a_group_is_listed_moved_copied_and_deleted(run):
    run("topic", "create", "tale", "-p", "2")
    for partition in ("0", "1"):
        produced(b"1\n2\n3\n4\n", "tale", "-p", partition)
    assert len(consumed("tale", "-G", "readers", "-o", "beginning", "-e").splitlines()) == 8
    assert "readers" in [line.split()[0] for line in run("group", "list")[1]]
    head = "TOPIC  PARTITION  COMMITTED  LOG END OFFSET  LAG  CLIENT"
    described = [
        "readers: EMPTY",
        head,
        *(f"tale   {number}          4          4               0    -" for number in (0, 1)),
    ]
    assert run("group", "describe", "readers")[1] == described
    rows = ["TOPIC  PARTITION  COMMITTED  NEW", "tale   0          4          1", "tale   1          4          1"]
    assert run("group", "seek", "readers", "--to", "1") == (0, [*rows, "add --execute to do it"], "")
    assert run("group", "describe", "readers")[1] == described
    assert run("group", "seek", "readers", "--to", "1", "--execute") == (0, rows, "")
    assert json.loads("\n".join(run("group", "describe", "readers", "-o", "json")[1]))["lags"][0]["lag"] == 3
    for to, new in (("start", 0), ("end", 4), ("99", 4), ("2020-01-01", 0), ("2999-01-01T00:00:00Z", 4)):
        moved = json.loads("\n".join(run("group", "seek", "readers", "--to", to, "-t", "tale", "-o", "json")[1]))
        assert [row["new"] for row in moved] == [new, new]
    copied = ["TOPIC  PARTITION  OFFSET", "tale   0          1", "tale   1          1"]
    assert run("group", "copy", "readers", "others")[1] == [*copied, "add --execute to commit these offsets for others"]
    assert run("group", "copy", "readers", "others", "--execute") == (0, copied, "")
    deleted = "offsets of tale, partitions 0,1"
    assert run("group", "offset-delete", "others", "tale")[1] == [f"would delete: {deleted}", "add --yes to do it"]
    assert run("group", "offset-delete", "others", "tale", "--yes")[1] == [f"deleted: {deleted}"]
    assert run("group", "offset-delete", "others", "tale") == (1, [], "millrace: group others has no offsets of tale\n")
    gone = "readers, committed offsets of 2 partitions"
    assert run("group", "delete", "readers")[1] == [f"would delete: {gone}", "add --yes to do it"]
    assert run("group", "delete", "readers", "--yes") == (0, [f"deleted: {gone}"], "")
    assert "readers" not in [line.split()[0] for line in run("group", "list")[1]]
    assert run("group", "seek", "readers", "--to", "end") == (
        1, [], "millrace: group readers has no offsets; name topics with --topic\n",
    )  # fmt: skip


def test_the_prefix_of_a_log_is_deleted(run):
    run("topic", "create", "trimmed")
    produced(b"1\n2\n3\n", "trimmed")
    row = ["PARTITION  LOG START OFFSET  NEW", "0          0                 2"]
    assert run("topic", "trim-prefix", "trimmed", "--before", "2") == (0, [*row, "add --yes to do it"], "")
    assert run("topic", "trim-prefix", "trimmed", "--before", "2", "--yes") == (0, row, "")
    assert consumed("trimmed", "-o", "beginning", "-e") == b"3\n"
    assert run("topic", "trim-prefix", "trimmed", "--before", "9")[2] == "millrace: trimmed-0 ends at offset 3\n"
    assert run("topic", "trim-prefix", "trimmed", "--all", "--yes")[0] == 0
    assert consumed("trimmed", "-o", "beginning", "-e") == b""


def test_the_cluster(run, up):
    info = json.loads("\n".join(run("cluster", "info", "-o", "json")[1]))
    assert info["brokers"] == [f"1={up.kafka}"]
    assert re.fullmatch(r"[\w-]{22}", info["cluster"])
    status, shown, _ = run("cluster", "health")
    assert (status, shown[0], shown[2]) == (0, "healthy             yes", "offline partitions  0")
    health = json.loads("\n".join(run("cluster", "health", "-o", "json")[1]))
    assert shown[1].split()[1] == ",".join(f"{each['name']}=up" for each in health["services"])
    assert (health["is_healthy"], health["reasons"]) == (True, [])
    every = json.loads("\n".join(run("cluster", "config", "--all", "-o", "json")[1]))
    assert "log.segment.bytes" in {row["config"] for row in every}
    changed = json.loads("\n".join(run("cluster", "config", "-o", "json")[1]))
    assert len(changed) < len(every)


def test_the_dashboard_asks_for_metrics_that_exist(up):
    """Metrics of topics and groups appear with their first one, so each exporter is asked for its names."""
    found = ""
    out = up.metrics()
    for url in (*out.values(), f"http://{up.http}/metrics"):
        with urllib.request.urlopen(url, timeout=30) as answer:
            found += answer.read().decode()
    for _title, _unit, query in PANELS:
        for name in re.findall(r"\b(?:millrace|kafka)_\w+", query):
            assert f"\n# TYPE {re.sub('_bucket$', '', name)} " in f"\n{found}", name


def test_ctrl_c_ends_a_consumer_quietly(run):
    run("topic", "create", "endless")
    produced(b"one\n", "endless")
    process = subprocess.Popen(
        [*MILLRACE, "consume", "endless", "-o", "beginning"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"one\n"
    process.send_signal(2)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, b"", b"")


def test_a_topic_named_as_the_rest_api_names_all_topics(run):
    run("topic", "create", "other", "-c", "retention.ms=1000")
    assert run("topic", "create", "-", "-c", "segment.ms=5000") == (0, ["created: -, 1 partition"], "")
    assert run("topic", "describe", "-")[1][2:] == ["segment.ms=5000"]
    assert run("topic", "delete", "-", "other", "--yes")[0] == 0


def test_records_that_could_not_be_written_are_not_committed(run):
    run("topic", "create", "unwritten")
    produced(b"a\nb\n", "unwritten")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*MILLRACE, "consume", "unwritten", "-G", "unlucky", "-o", "beginning", "-e"],
            stdout=full, stderr=subprocess.PIPE, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"millrace: standard output: No space left on device\n")
    assert consumed("unwritten", "-G", "unlucky", "-o", "beginning", "-e") == b"a\nb\n"
    assert consumed("unwritten", "-G", "unlucky", "-o", "beginning", "-e") == b""


def test_ctrl_c_ends_a_producer_that_waits_for_a_line(run):
    run("topic", "create", "typed")
    with subprocess.Popen([*MILLRACE, "produce", "typed"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as typed:
        typed.stdin.write(b"a\n")
        typed.stdin.flush()
        assert consumed("typed", "-o", "beginning", "-c", "1") == b"a\n"
        typed.send_signal(signal.SIGINT)
        assert typed.wait(30) == 130
        assert typed.stderr.read() == b""
