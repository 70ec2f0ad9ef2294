"""The command line against a running broker: topics, the cluster and its configs."""

import http.server
import json
import re
import shlex
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from millrace.cli import commands
from millrace.cli.generate import PANELS
from millrace.cli.rest import RestClient
from millrace.cli.topic import portions
from service_chassis.http.bodies import BODY_BYTES_MAX, parsed


def test_a_topic_from_its_creation_to_its_end(run):
    assert run("topic", "create", "life", "-p", "2", "--check") == (0, ["could be created: life, 2 partitions"], "")
    assert run("topic", "create", "life", "-c", "retention.ms=1000") == (0, ["created: life, 1 partition"], "")
    assert run("topic", "create", "life")[2] == "millrace: life: Topic 'life' already exists.\n"
    status, listed, _ = run("topic", "list", "-o", "json")
    assert (status, [row for row in json.loads("\n".join(listed)) if row["topic"] == "life"]) == (
        0,
        [{"topic": "life", "partitions": 1}],
    )
    too_few = "millrace: life has 1 partition; --to must be larger\n"
    assert run("topic", "add-partitions", "life", "--to", "1") == (1, [], too_few)
    assert run("topic", "add-partitions", "life", "--to", "1", "--yes") == (1, [], too_few)
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


def test_a_topic_that_is_refused_keeps_no_other_from_being_created(run):
    run("topic", "create", "there")
    status, lines, error = run("topic", "create", "new-1", "there", "new-2")
    assert (status, lines) == (1, ["created: new-1, 1 partition", "created: new-2, 1 partition"])
    assert error == "millrace: there: Topic 'there' already exists.\n"
    status, lines, _ = run("topic", "create", "there", "new-3", "-o", "json")
    refused = {"topic": "there", "partitions": None, "created": False, "error": "Topic 'there' already exists."}
    made = {"topic": "new-3", "partitions": 1, "created": True, "error": None}
    assert (status, json.loads("".join(lines))) == (1, [refused, made])


def test_topics_by_regular_expressions(run):
    run("topic", "create", "reg-a", "reg-b", "reg-ab")
    assert run.json("topic", "list", "-r", "reg-.") == [{"topic": f"reg-{each}", "partitions": 1} for each in "ab"]
    assert [each["topic"] for each in run.json("topic", "describe", "-r", "reg-a.?")] == ["reg-a", "reg-ab"]
    assert run("topic", "describe", "reg-a", "reg-b")[1] == [
        "reg-a", "PARTITION  LOG START OFFSET  LOG END OFFSET", "0          0                 0", "",
        "reg-b", "PARTITION  LOG START OFFSET  LOG END OFFSET", "0          0                 0",
    ]  # fmt: skip
    would = [f"would delete: reg-{each}, 1 partition" for each in "ab"]
    assert run("topic", "delete", "-r", "reg-.") == (0, [*would, "add --yes to do it"], "")
    deleted = run.json("topic", "delete", "-r", "reg-.*", "__consumer.*", "--yes")
    assert [row["topic"] for row in deleted] == ["reg-a", "reg-ab", "reg-b"]
    assert run("topic", "delete", "-r", "reg-.*") == (1, [], "millrace: no topics match reg-.*\n")
    assert run("topic", "list", "reg-a") == (1, [], "millrace: topic reg-a does not exist\n")


def test_many_topics_are_created_and_deleted_by_one_request_each(run, monkeypatch):
    requests = []
    request = RestClient.request
    monkeypatch.setattr(RestClient, "request", lambda *given: (requests.append(given[1:3]), request(*given))[1])
    names = [f"many-{number}" for number in range(5)]
    assert run("topic", "create", *names)[1] == [f"created: {name}, 1 partition" for name in names]
    assert requests == [("POST", "/api/v1/topics:create")]
    requests.clear()
    assert run("topic", "delete", "-r", "many-.*", "--yes")[1] == [f"deleted: many-{n}, 1 partition" for n in range(5)]
    assert requests[-1:] == [("POST", "/api/v1/topics:delete")]
    assert len(requests) == 3  # the cluster, the list
    assert run("topic", "delete", "many-0", "many-1", "--yes") == (1, [], "millrace: topic many-0 does not exist\n")


@pytest.mark.parametrize(
    ("config", "lengths"),
    [("1", [218, 82]), ("," * 399, [9] * 33 + [3])],
    ids=["bytes", "values"],
)
def test_new_topics_come_in_bodies_that_the_rest_api_takes(config, lengths):
    configs = [{"name": "leader.replication.throttled.replicas", "value": config}]
    topics = [{"topic_name": f"{number:0200}", "configs": configs} for number in range(300)]
    found = list(portions(topics))
    assert [topic for portion in found for topic in portion] == topics
    assert [len(portion) for portion in found] == lengths
    for portion in found:
        body = json.dumps({"topics": portion, "validate_only": False}).encode()
        assert len(body) <= BODY_BYTES_MAX
        assert parsed(body)["topics"] == portion
    assert [len(portion) for portion in portions([{"topic_name": str(number)} for number in range(257)])] == [256, 1]


def test_a_topic_that_is_refused_keeps_no_other_from_being_deleted(run):
    run("topic", "create", "passing")
    run("group", "commit", "committers", "passing:0=0", "--execute")  # makes the topic of offsets
    status, lines, error = run("topic", "delete", "__consumer_offsets", "passing", "--yes")
    assert (status, lines) == (1, ["deleted: passing, 1 partition"])
    assert error.startswith("millrace: __consumer_offsets: ")
    assert error.count("\n") == 1


def test_the_list_has_internal_topics_on_request(run):
    run("topic", "create", "committed")
    run.produced(b"1\n", "committed")
    run.consumed("committed", "-G", "committers", "-o", "beginning", "-e")
    names = [line.split()[0] for line in run("topic", "list", "--internal")[1]]
    assert "__consumer_offsets" in names
    assert "__consumer_offsets" not in [line.split()[0] for line in run("topic", "list")[1]]


def test_the_prefix_of_a_log_is_deleted(run):
    run("topic", "create", "trimmed")
    run.produced(b"1\n2\n3\n", "trimmed")
    row = ["PARTITION  LOG START OFFSET  NEW", "0          0                 2"]
    assert run("topic", "trim-prefix", "trimmed", "--before", "2") == (0, [*row, "add --yes to do it"], "")
    assert run("topic", "trim-prefix", "trimmed", "--before", "2", "--yes") == (0, row, "")
    assert run.consumed("trimmed", "-o", "beginning", "-e") == b"3\n"
    assert run("topic", "trim-prefix", "trimmed", "--before", "9")[2] == "millrace: trimmed-0 ends at offset 3\n"
    assert run("topic", "trim-prefix", "trimmed", "--all", "--yes")[0] == 0
    assert run.consumed("trimmed", "-o", "beginning", "-e") == b""


def test_a_topic_named_as_the_rest_api_names_all_topics(run):
    run("topic", "create", "other", "-c", "retention.ms=1000")
    assert run("topic", "create", "-", "-c", "segment.ms=5000") == (0, ["created: -, 1 partition"], "")
    assert run("topic", "describe", "-")[1][2:] == ["segment.ms=5000"]
    assert run("topic", "delete", "-", "other", "--yes")[0] == 0


def test_the_cluster(run, up):
    info = json.loads("\n".join(run("cluster", "info", "-o", "json")[1]))
    assert info["brokers"] == [f"1={up.kafka}"]
    assert re.fullmatch(r"[\w-]{22}", info["cluster"])
    status, shown, _ = run("cluster", "health")
    assert (status, shown[0], shown[2]) == (0, "healthy             yes", "offline partitions  0")
    health = json.loads("\n".join(run("cluster", "health", "-o", "json")[1]))
    assert shown[1].split()[1] == ",".join(f"{each['name']}=up" for each in health["services"])
    assert (health["is_healthy"], health["reasons"]) == (True, [])


def test_configs_of_brokers_are_set_and_returned_to_their_defaults(run):
    every = run.json("cluster", "config", "list", "--all")
    assert "log.segment.bytes" in {row["config"] for row in every}
    before = run.json("cluster", "config", "list")
    assert len(before) < len(every)
    assert run("cluster", "config", "set", "log.retention.ms=86400000") == (0, ["altered: every broker"], "")
    row = {"broker": 1, "config": "log.retention.ms", "value": "86400000", "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"}
    assert [each for each in run.json("cluster", "config", "list") if each not in before] == [row]
    done = run.json("cluster", "config", "set", "-b", "1", "log.retention.ms=5", "--delete", "log.segment.bytes")
    assert done == {"broker": 1, "set": {"log.retention.ms": "5"}, "deleted": ["log.segment.bytes"]}
    run("cluster", "config", "set", "-b", "1", "--delete", "log.retention.ms")
    run("cluster", "config", "set", "--delete", "log.retention.ms")
    assert run.json("cluster", "config", "list") == before
    refused = "millrace: Unknown config name: nonsense\n"
    assert run("cluster", "config", "set", "log.retention.ms=5", "nonsense=1") == (1, [], refused)
    assert run.json("cluster", "config", "list") == before
    assert run("cluster", "config", "set")[0] == 2
    assert run("cluster", "config")[0] == 0


@pytest.mark.parametrize(
    ("editor", "status", "lines", "value"),
    [
        ("sed -i s/7000/8000/", 0, ["altered: log.retention.ms"], "8000"),
        ("sed -i /^log/d", 0, ["altered: log.retention.ms"], None),
        ("true", 0, ["nothing is changed"], "7000"),
        ("false", 1, [], "7000"),
        ("truncate -s 0", 1, [], "7000"),
        ("sed -i s/^log/nonsense/", 1, [], "7000"),
    ],
)
def test_configs_are_edited(editor, status, lines, value, run, monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    run("cluster", "config", "set", "log.retention.ms=7000")
    try:
        assert run("cluster", "config", "edit")[:2] == (status, lines)
        found = {row["config"]: row["value"] for row in run.json("cluster", "config", "list")}
        assert found.get("log.retention.ms") == value
    finally:
        run("cluster", "config", "set", "--delete", "log.retention.ms")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("s/^log/nonsense/", "Unknown config name: nonsense.retention.ms"),
        ("s/=/ /", "edited line: 'log.retention.ms…' is"),
    ],
)
def test_an_edited_text_that_is_refused_is_kept(change, reason, run, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "drafts"))
    (tmp_path / "drafts").mkdir()
    monkeypatch.setenv("VISUAL", f"sed -i {shlex.quote(change)}")
    run("cluster", "config", "set", "log.retention.ms=7000")
    try:
        status, lines, error = run("cluster", "config", "edit")
    finally:
        run("cluster", "config", "set", "--delete", "log.retention.ms")
    found = re.fullmatch(r"millrace: (.*); the edited text is in (.*)\n", error)
    assert (lines, found[1].startswith(reason)) == ([], True)
    assert status == (2 if "edited line" in reason else 1)
    assert re.search("^(nonsense.retention.ms=7000|log.retention.ms 7000)$", Path(found[2]).read_text(), re.M)
    monkeypatch.setenv("VISUAL", "false")
    assert run("cluster", "config", "edit")[0] == 1
    assert list((tmp_path / "drafts").iterdir()) == [Path(found[2]).parent]  # text that is not changed is not kept


def test_ctrl_c_belongs_to_the_editor(run, monkeypatch, tmp_path):
    """A terminal sends it to both. The editor here catches it, and goes on to save."""
    editor = tmp_path / "editor"
    editor.write_text(
        '#!/bin/bash\ntrap "touch $0.caught" INT\nkill -INT $PPID $$\n'
        'sleep 0.4\n[[ -e $0.caught ]] && sed -i s/7000/8000/ "$1"\n'
    )
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    run("cluster", "config", "set", "log.retention.ms=7000")
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)]
    try:
        assert run("cluster", "config", "edit") == (0, ["altered: log.retention.ms"], "")
    finally:
        run("cluster", "config", "set", "--delete", "log.retention.ms")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)] == before


def test_a_watch_of_health_is_silent_while_only_free_space_changes(monkeypatch, capsys):
    def health(usable, message):
        disk = {"path": "/d", "total_bytes": 100_000, "usable_bytes": usable}
        reason = {"service": "storage-svc", "message": message}
        return {
            "is_healthy": usable == 9,
            "reasons": [reason],
            "services": [],
            "disk": disk,
            "offline_partitions_count": 0,
        }

    answers = [health(4_100, "It has 4.1 % left."), health(4_000, "It has 4.0 % left."), health(9, "1 is offline.")]
    monkeypatch.setattr("millrace.cli.cluster._health", lambda _: answers.pop(0))
    monkeypatch.setattr("millrace.cli.cluster._WATCH_S", 0)
    assert commands.run(["cluster", "health", "-w", "-e", "-o", "yaml", "--rest", "h:1"]) == 0
    assert re.findall("usable_bytes: (.*)", capsys.readouterr().out) == ["4100", "9"]


def test_a_name_given_twice_is_one(run):
    assert run("topic", "create", "twice", "twice") == (0, ["created: twice, 1 partition"], "")
    assert [each["topic"] for each in run.json("topic", "describe", "twice", "twice")] == ["twice"]
    assert run("topic", "delete", "twice", "twice", "--yes")[1] == ["deleted: twice, 1 partition"]
    run("topic", "create", "pair")
    run("group", "commit", "twin", "pair:0=0", "--execute")
    assert [each["group"] for each in run.json("group", "describe", "twin", "twin")] == ["twin"]
    assert run("group", "delete", "twin", "twin", "--yes") == (
        0,
        ["deleted: twin, committed offsets of 1 partitions"],
        "",
    )


def test_names_of_a_silent_broker_are_not_awaited(run, monkeypatch):
    monkeypatch.setattr("millrace.cli.candidates.HURRIED_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert run("_names", "groups", "--kafka", f"127.0.0.1:{silent.getsockname()[1]}") == (0, [], "")
    assert time.monotonic() - began < 2


def test_health_is_watched_until_all_is_well(run, monkeypatch):
    """An address that does not answer yet is a state, and each state is printed once."""
    monkeypatch.setattr("millrace.cli.cluster._WATCH_S", 0.01)
    sick = {"is_healthy": False, "reasons": [{"message": "storage: is down"}], "services": []}
    bodies = [{**sick, "offline_partitions_count": 1}] * 2
    bodies.append({"is_healthy": True, "reasons": [], "services": [], "offline_partitions_count": 0})

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = json.dumps(bodies.pop(0)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False) as server:
        server.server_bind()  # nobody listens yet
        address = f"127.0.0.1:{server.server_address[1]}"

        def serve():
            server.server_activate()
            for _ in range(3):
                server.handle_request()

        thread = threading.Timer(0.1, serve)
        thread.start()
        watched = run("cluster", "health", "--watch", "--exit-when-healthy", "--rest", address)
        thread.join()
    assert watched == (
        0,
        ["storage: is down", "healthy             no", "services            -", "offline partitions  1",
         "healthy             yes", "services            -", "offline partitions  0"],
        f"millrace: no REST API answers at {address}: Connection refused\n",
    )  # fmt: skip


def test_names_for_completion(run, up):
    run("topic", "create", "offered")
    run("group", "commit", "offerers", "offered:0=0", "--execute")
    assert "offered" in run("_names", "topics")[1]
    assert "offerers" in run("_names", "groups", "describe")[1]
    assert run("_names", "profiles") == (0, ["here"], "")
    assert "offered" in run("_names", "topics", "--kafka", up.kafka)[1]
    assert "offerers" in run("_names", "groups", f"--kafka={up.kafka}")[1]
    assert not any(name.startswith("__") for name in run("_names", "topics")[1])
    assert run("_names", "topics", "--rest", "127.0.0.1:1") == (0, [], "")


def test_the_dashboard_asks_for_metrics_that_exist(run, up):
    """Metrics of topics and groups appear with their first one, so each exporter is asked for its names."""
    run("topic", "create", "measured")
    run.produced(b"1\n", "measured")
    run.consumed("measured", "-G", "measurers", "-o", "beginning", "-e")
    found = ""
    out = up.metrics()
    for url in (*out.values(), f"http://{up.http}/metrics"):
        with urllib.request.urlopen(url, timeout=30) as answer:
            found += answer.read().decode()
    for _title, _unit, query in PANELS:
        for name in re.findall(r"\b(?:millrace|kafka)_\w+", query):
            assert f"\n# TYPE {re.sub('_bucket$', '', name)} " in f"\n{found}", name


def test_the_scrub_is_shown(run):
    found = run.json("cluster", "scrub")
    assert (found["damaged_segments"], found["quarantine"], found["is_truncated"]) == (0, [], False)
    lines = run("cluster", "scrub")[1]
    assert [line.rpartition("  ")[0].strip() for line in lines] == [
        "last at", "next at", "damaged segments", "unreadable batches", "quarantined files",
    ]  # fmt: skip
