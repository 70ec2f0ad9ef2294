"""`millrace group` against a running broker."""

import time

import pytest
from protocol_lib.client.group_admin import GroupAdmin
from support.late import confluent

from tests.unit.millrace.conftest import LineReader


def test_a_group_is_listed_moved_copied_and_deleted(run):
    run("topic", "create", "tale", "-p", "2")
    for partition in ("0", "1"):
        run.produced(b"1\n2\n3\n4\n", "tale", "-p", partition)
    assert len(run.consumed("tale", "-G", "readers", "-o", "beginning", "-e").splitlines()) == 8
    assert "readers" in [line.split()[0] for line in run("group", "list")[1]]
    described = run("group", "describe", "readers")[1]
    assert described[1:4] == ["state        EMPTY", "type         classic", "assignor     -"]
    assert described[5:] == [
        "total lag    0",
        "members      0",
        "",
        "TOPIC  PARTITION  COMMITTED  LOG START OFFSET  LOG END OFFSET  LAG  CLIENT  HOST",
        *(f"tale   {number}          4          0                 4               0    -       -" for number in (0, 1)),
    ]
    rows = ["TOPIC  PARTITION  COMMITTED  NEW", "tale   0          4          1", "tale   1          4          1"]
    assert run("group", "seek", "readers", "--to", "1") == (
        0,
        [*rows, "add --execute to commit these offsets for readers"],
        "",
    )
    assert run("group", "describe", "readers")[1] == described
    assert run("group", "seek", "readers", "--to", "1", "--execute") == (0, rows, "")
    assert run.json("group", "describe", "readers")["partitions"][0]["lag"] == 3
    behind = run.json("group", "lag", "readers")
    assert [(row["partition"], row["committed"], row["lag"]) for row in behind] == [(0, 1, 3), (1, 1, 3)]
    assert run("group", "lag", "nobody")[2] == "millrace: Consumer group id not found.\n"
    for to, new in (
        ("start", 0),
        ("end", 4),
        ("99", 4),
        ("-15m", 0),
        ("@0", 0),
        ("2020-01-01", 0),
        ("2999-01-01T00:00:00Z", 4),
    ):
        moved = run.json("group", "seek", "readers", "--to", to, "-t", "tale")
        assert [row["new"] for row in moved] == [new, new]
    copied = ["TOPIC  PARTITION  COMMITTED  NEW", "tale   0          -          1", "tale   1          -          1"]
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


@pytest.fixture
def member(run, start, up):
    """A member of the group `live` that has read one of two records of partition 0, and none of partition 1."""
    run("topic", "create", "alive", "-p", "3")
    run.produced(b"1\n2\n", "alive", "-p", "0")
    run.produced(b"1\n2\n3\n", "alive", "-p", "1")
    run("group", "commit", "live", "alive:0=1", "--execute")
    process = start("consume", "alive", "-G", "live", "-X", "client.id=cli-1", "--kafka", up.kafka)
    LineReader(process.stderr).until("waiting")
    yield process
    process.terminate()
    process.wait(30)
    run("group", "delete", "live", "--yes")
    run("topic", "delete", "alive", "--yes")


def test_a_group_shows_its_members_and_the_lag_of_every_partition(run, member, up):
    """Also of those that nobody has committed for: their lag is the whole log."""
    about = run.json("group", "describe", "live")
    (one,) = about["members"]
    assert one.pop("member").startswith("cli-1-")
    alive = {"topic": "alive", "partitions": [0, 1, 2]}
    assert one == {"client": "cli-1", "host": "/127.0.0.1", "instance": None, "assignment": [alive]}
    of_group = {name: about[name] for name in ("state", "type", "assignor", "coordinator")}
    assert of_group == {"state": "STABLE", "type": "classic", "assignor": "range", "coordinator": f"1={up.kafka}"}
    rows = [(row["partition"], row["committed"], row["log_end_offset"], row["lag"]) for row in about["partitions"]]
    assert rows[1:] == [(1, None, 3, 3), (2, None, 0, 0)]
    assert (rows[0], about["total_lag"]) in (((0, 1, 2, 1), 4), ((0, 2, 2, 0), 3))  # it may have committed since
    assert {(row["client"], row["host"]) for row in about["partitions"]} == {("cli-1", "/127.0.0.1")}
    shown = run("group", "describe", "live")[1]
    assert shown[8].split() == ["MEMBER", "CLIENT", "HOST", "INSTANCE", "ASSIGNMENT"]
    assert shown[9].split()[1:] == ["cli-1", "/127.0.0.1", "-", "alive:0+1+2"]


def test_a_group_of_the_new_protocol_is_described(run, up):
    """Kafka's brokers know it by another API than a classic group (KIP-848)."""
    run("topic", "create", "modern", "-p", "2")
    member = confluent.Consumer(
        {"bootstrap.servers": up.kafka, "group.id": "modern", "group.protocol": "consumer", "client.id": "c"}
    )
    member.subscribe(["modern"])
    try:
        deadline = time.monotonic() + 30
        while len(member.assignment()) < 2:
            assert time.monotonic() < deadline
            member.poll(0.05)
        about = run.json("group", "describe", "modern")
        warning = "millrace: group modern is STABLE with 1 member: stop it first\n"
        assert run("group", "delete", "modern", "--yes") == (1, [], warning)
    finally:
        member.close()
    assert (about["type"], about["assignor"], about["state"]) == ("consumer", "uniform", "STABLE")
    assert [(each["client"], each["assignment"]) for each in about["members"]] == [
        ("c", [{"topic": "modern", "partitions": [0, 1]}])
    ]
    assert [row["client"] for row in about["partitions"]] == ["c", "c"]


def test_a_group_with_members_is_not_changed_and_the_plan_says_so(run, member):
    warning = "millrace: group live is STABLE with 1 member: stop it first\n"
    for command in (("seek", "live", "--to", "start"), ("copy", "live", "live"), ("commit", "live", "alive:0=0")):
        status, lines, error = run("group", *command)
        assert (status, error, lines[-1]) == (0, warning, "add --execute to commit these offsets for live")
        assert run("group", *command, "--execute") == (1, [], warning)
    status, lines, error = run("group", "delete", "live")
    assert (status, error, lines[-1]) == (0, warning, "add --yes to do it")
    assert run("group", "delete", "live", "--yes") == (1, [], warning)
    assert run("group", "offset-delete", "live", "alive", "--yes") == (
        1, [], "millrace: members of group live are subscribed to alive: stop them first\n",
    )  # fmt: skip


def test_offsets_are_committed_taken_from_a_group_and_from_a_file(run, tmp_path):
    run("topic", "create", "moved", "-p", "2")
    run("group", "commit", "source", "moved:0=5", "moved:1=7", "--execute")
    head = "TOPIC  PARTITION  COMMITTED  NEW"
    plan = [head, "moved  0          -          5", "moved  1          -          7"]
    done = run("group", "seek", "sink", "--to-group", "source", "--execute")
    assert done == (0, plan, "")
    file = tmp_path / "offsets"
    file.write_text('# comment\n\nmoved 0 3\n"moved",1,4\n')
    done = run("group", "seek", "sink", "--to-file", str(file), "-t", "moved", "--execute")
    assert done == (0, [head, "moved  0          5          3", "moved  1          7          4"], "")
    for content, reason in (
        ("moved 0\n", "line 1 is not TOPIC PARTITION OFFSET"),
        ("moved 0 1\nmoved 0 2\n", "line 2: moved:0 is given twice"),
        ("moved 0 99999999999999999999\n", "line 1 is not TOPIC PARTITION OFFSET"),
        ("moved 0 9999999999999999999\n", "line 1: the number is too large"),
    ):
        file.write_text(content)
        status, lines, error = run("group", "seek", "sink", "--to-file", str(file), "--execute")
        assert (status > 0, lines, reason in error) == (True, [], True), error
    assert run("group", "commit", "sink", "moved:2=1")[2] == "millrace: partition moved-2 does not exist\n"
    assert run("group", "commit", "sink", "moved:0")[0] == 2
    assert run("group", "seek", "sink", "--to", "end", "--to-group", "source")[0] == 2
    offsets = [(row["partition"], row["committed"]) for row in run.json("group", "describe", "sink")["partitions"]]
    assert offsets == [(0, 3), (1, 4)]


def test_groups_are_deleted_many_at_a_time(run, monkeypatch):
    under_way, most = 0, 0
    delete = GroupAdmin.delete

    async def counted(admin, name):
        nonlocal under_way, most
        under_way, most = under_way + 1, max(most, under_way + 1)
        await delete(admin, name)
        under_way -= 1

    monkeypatch.setattr(GroupAdmin, "delete", counted)
    monkeypatch.setattr("millrace.cli.group._TOGETHER", 3)
    run("topic", "create", "crowd")
    names = [f"crowd-{number}" for number in range(5)]
    for name in names:
        run("group", "commit", name, "crowd:0=0", "--execute")
    status, lines, error = run("group", "delete", "-r", "crowd-.*", "--yes")
    assert (status, error) == (0, "")
    assert lines == [f"deleted: {name}, committed offsets of 1 partitions" for name in names]
    assert most == 3


def test_groups_by_regular_expressions(run):
    run("topic", "create", "grouped")
    for name in ("reg-1", "reg-2", "regular"):
        run("group", "commit", name, "grouped:0=0", "--execute")
    assert [row["group"] for row in run.json("group", "list", "-r", "reg-.")] == ["reg-1", "reg-2"]
    assert [row["group"] for row in run.json("group", "describe", "-r", "reg.*")] == ["reg-1", "reg-2", "regular"]
    assert [row["group"] for row in run.json("group", "describe", "reg-2", "reg-1")] == ["reg-2", "reg-1"]
    gone = [{"group": f"reg-{number}", "offsets": 1, "deleted": True} for number in (1, 2)]
    assert run.json("group", "delete", "-r", "reg-.", "--yes") == gone
    assert run("group", "describe", "reg-1") == (1, [], "millrace: group reg-1 does not exist\n")
    assert run("group", "delete", "-r", "reg-.") == (1, [], "millrace: no groups match reg-.\n")
    wrong = run("group", "list", "-r", "(")
    assert (wrong[0], wrong[2][:47]) == (2, "millrace: --regex: '(' is no regular expression")
