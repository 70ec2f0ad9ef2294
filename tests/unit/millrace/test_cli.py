"""The command line without a broker: help, exit statuses, formats, profiles, completion, imports."""

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest
import yaml
from millrace.cli import commands
from millrace.cli.errors import CliError
from millrace.cli.generate import PANELS, dashboard
from millrace.cli.group_offsets import target
from millrace.cli.options import Format, pairs
from millrace.cli.output import show, table
from millrace.cli.record_format import NewRecord, compiled, from_json, from_line, to_json
from millrace.cli_page import all_commands
from millrace.settings_page import settings_reference
from protocol_lib.records.walker import FORM

MILLRACE = (sys.executable, "-m", "millrace")
TREE = all_commands()
pytestmark = pytest.mark.usefixtures("home")


def run(*arguments):
    """Run a command line in this process and return its exit status."""
    try:
        return commands.run(list(arguments))
    except SystemExit as ended:
        return ended.code or 0


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["help"]])
def test_the_help_lists_every_command(arguments, capsys):
    assert run(*arguments) == 0
    shown = capsys.readouterr().out
    for name in (*commands.COMMANDS, *commands.PROGRAMS):
        assert f"\n  {name} " in shown


def test_version(capsys):
    assert run("--version") == 0
    assert run("version") == 0
    assert capsys.readouterr().out == f"millrace 0.1.0 (walker of records: {FORM})\n" * 2


def test_settings_for_programs_are_those_of_the_page(capsys):
    assert run("settings", "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == settings_reference().count("| `MILLRACE_")
    assert {
        "service": "storage-svc",
        "variable": "MILLRACE_COMPRESSION_ZSTD_LEVEL",
        "default": "3",
        "meaning": "Level of zstd.",
    } in rows
    assert {row["service"] for row in rows} == {"Every service", "storage-svc", "gateway-svc", "broker", "admin-api"}


#: Commands whose output is a program's text, or that have forms of their own.
OTHER_FORMS = {"up", "produce", "consume", "completion", "etl", "demo", "prometheus-config", "grafana-dashboard"}


@pytest.mark.parametrize("path", [each.path for each in TREE[1:] if each.path[-1] not in OTHER_FORMS])
def test_every_answer_has_a_form_for_programs(path):
    command = next(each for each in TREE if each.path == path)
    if not command.subcommands:
        assert any(
            "--output" in each.names and each.choices == ("table", "json", "yaml") for each in command.parameters
        )


@pytest.mark.parametrize("path", [each.path for each in TREE[1:] if each.path[1] not in commands.PROGRAMS])
def test_every_command_has_help_with_an_example(path, capsys):
    command = next(each for each in TREE if each.path == path)
    for option in ("-h", "--help"):
        assert run(*path[1:], option) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert command.help.splitlines()[0] in shown
    if command.subcommands:
        assert run(*path[1:]) == 0
    else:
        assert command.example.startswith((" ".join(path), "echo "))
        assert all(each.help for each in command.parameters), command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topc"], "No such command 'topc'"),
        (["topic", "list", "-o", "xml"], "'xml' is not one of 'table', 'json', 'yaml'"),
        (["topic", "create", "t", "-c", "x"], "--config: 'x' is not NAME=VALUE"),
        (["topic", "create", "t", "-p", "0"], "Invalid value for '--partitions' / '-p'"),
        (["topic", "alter-config", "t"], "nothing to change: give --set or --delete"),
        (["topic", "trim-prefix", "t"], "give either --before OFFSET or --all"),
        (["topic", "list", "--rest", "localhost:x"], "--rest: 'localhost:x' is not host:port or a URL"),
        (["topic", "list", "--rest", "ftp://h:1"], "--rest: 'ftp://h:1' is not host:port or a URL"),
        (["group", "seek", "g", "--to", "soon"], "--to: 'soon' is neither start, end, an offset nor a time"),
        (["group", "seek", "g", "--to", "1", "--kafka", "h:x"], "--kafka: 'h:x' is not host:port"),
        (["consume", "t", "-o", "stored"], "--offset: 'stored' is neither beginning, end, N, -N, @TIME nor two"),
        (["consume", "t", "-f", "%x"], "--format: %x is unknown"),
        (["consume", "t", "-f", "%"], "--format: a % at the end stands for nothing"),
        (["consume", "t", "-f", "\\q"], "--format: \\q is unknown"),
        (["consume", "t", "-f", "%s", "-K", ":"], "give one of --format, --key-delimiter and --output"),
        (["consume", "t", "-G", "g", "-o", "5"], "--group reads from the committed offsets"),
        (["produce", "t", "-H", "=v"], "--header: '…' is not NAME=VALUE"),
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments, message, capsys):
    assert run(*arguments) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in shown


@pytest.mark.parametrize(
    "arguments", [["topic", "list"], ["group", "delete", "g"], ["consume", "t"], ["cluster", "health"]]
)
def test_an_address_without_a_listener_is_one_line(arguments, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        kafka = arguments[0] in ("group", "consume")
        assert run(*arguments, "--kafka" if kafka else "--rest", address) == 1
    refused = f"no broker answers at {address}" if kafka else f"no REST API answers at {address}: Connection refused"
    assert capsys.readouterr().err == f"millrace: {refused}\n"


@pytest.mark.parametrize("kafka", [True, False])
def test_an_address_that_never_answers_is_one_line(kafka, capsys, monkeypatch):
    """The limits are 3 s; shorter ones show the same."""
    monkeypatch.setattr("millrace.cli.kafka.CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setattr("millrace.cli.rest.CONNECT_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert run(*(("group", "delete", "g", "--kafka") if kafka else ("topic", "list", "--rest")), address) == 1
    answer = f"no broker answers at {address}" if kafka else f"the REST API at {address} does not answer"
    assert capsys.readouterr().err == f"millrace: {answer}\n"


def test_the_limits_are_three_seconds():
    from millrace.cli import kafka, rest

    assert (kafka.CONNECT_TIMEOUT_S, rest.CONNECT_TIMEOUT_S) == (3.0, 3.0)


def test_topic_list_imports_little():
    """A third of a second on an idle machine allows typer and http.client, and none of these."""
    heavy = "{'rich', 'asyncio', 'yaml', 'grpc', 'protocol_lib', 'storage_svc', 'fastapi', 'pydantic', 'pyspark'}"
    code = (
        "import sys, time\nfrom millrace.cli.commands import run\n"
        "run(['topic', 'list', '--rest', '127.0.0.1:1'])\n"
        f"print(sorted({heavy} & {{*sys.modules}}), time.process_time() < 1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[] True\n"


@dataclass
class Record:
    topic: str = "t"
    partition: int = 2
    offset: int = 7
    timestamp: int = 1_700_000_000_000
    key: bytes | None = b"k"
    value: bytes | None = b"va"
    headers: tuple = (("a", b"1"), ("b\udcff", None))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%t-%p@%o %T %k/%K %s=%v %S %h%%\n", b"t-2@7 1700000000000 k/1 va=va 2 a=1,b\xff=NULL%\n"),
        (r"%R\x41\t\0\\", b"\x00\x00\x00\x02A\t\x00\\"),
        ("ä %%s", "ä %s".encode()),
        ("", b""),
    ],
)
def test_a_format_writes_a_record(text, expected):
    assert compiled(text)(Record()) == expected


def test_null_is_empty_with_length_minus_1():
    assert compiled("%k|%K|%s|%S|%R")(Record(key=None, value=None)) == b"|-1||-1|\xff\xff\xff\xff"


@pytest.mark.parametrize(("key", "value"), [(b"k", b"v"), (None, None), (b"\xff", b"\x00\xfe"), (b"", "ä\n".encode())])
def test_json_lines_keep_every_record(key, value):
    line = to_json(Record(key=key, value=value))
    assert line.count(b"\n") == 1
    assert from_json(line, 1) == NewRecord(value, key, (("a", b"1"), ("b\udcff", None)))


def test_a_line_of_text():
    assert from_line(b"a:b:c", b":") == NewRecord(b"b:c", b"a")
    assert from_line(b"abc", b":") == NewRecord(b"abc", None)
    assert from_line(b"a:b", None) == NewRecord(b"a:b", None)


def test_targets_of_a_seek():
    assert (target("start"), target("12")) == ("start", 12)
    assert target("2026-01-31T12:00:00Z").timestamp() == 1_769_860_800


def test_pairs_are_named_once():
    assert pairs("-c", ["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(CliError, match="-c: a is given twice"):
        pairs("-c", ["a=1", "a=2"])


def test_answers_for_people_and_for_programs(capsys):
    rows = [
        {"topic": "a", "log_end_offset": 5, "client": None},
        {"topic": "b\x1b[1m", "log_end_offset": 10, "client": "x"},
    ]
    show(rows, Format.TABLE)
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC       LOG END OFFSET  CLIENT",
        "a           5               -",
        r"'b\x1b[1m'  10              x",
    ]
    show(rows, Format.JSON)
    assert json.loads(capsys.readouterr().out) == rows
    show(rows, Format.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == rows
    show({"healthy": True, "brokers": []}, Format.TABLE)
    assert capsys.readouterr().out == "healthy  yes\nbrokers  -\n"
    show([], Format.TABLE, columns=("topic", "partitions"))
    assert capsys.readouterr().out == "TOPIC  PARTITIONS\n"


@pytest.mark.parametrize(("no_color", "bold"), [(None, True), ("1", False)])
def test_only_a_terminal_gets_a_bold_head(no_color, bold, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert table(["A"], [["b"]]) == ["A", "b"]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert table(["A"], [["b"]]) == ["\x1b[1mA\x1b[0m" if bold else "A", "b"]


def test_no_color_is_an_option_too(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "")
    assert run("--no-color", "version") == 0
    assert os.environ["NO_COLOR"] == "1"


def test_profiles_are_kept_used_and_deleted(tmp_path, capsys):
    assert run("profile", "create", "prod", "--rest", "https://admin.example", "--token-file", "/run/token") == 0
    assert run("profile", "create", "test", "--kafka", "t:9092") == 0
    assert run("profile", "use", "prod") == 0
    capsys.readouterr()
    assert run("profile", "list", "-o", "json") == 0
    prod = {"profile": "prod", "current": True, "rest": "https://admin.example", "kafka": "localhost:9092"}
    test = {"profile": "test", "current": False, "rest": "localhost:8082", "kafka": "t:9092"}
    listed = [
        {**prod, "token_file": "/run/token", "client_config": None},
        {**test, "token_file": None, "client_config": None},
    ]
    assert json.loads(capsys.readouterr().out) == listed
    assert (tmp_path / "millrace" / "profiles.json").stat().st_mode & 0o777 == 0o600
    assert run("profile", "delete", "prod") == 0
    assert run("profile", "use", "prod") == 1
    assert capsys.readouterr().err == "millrace: there is no profile 'prod'; profiles: test\n"


def test_a_profile_gives_the_addresses(tmp_path, capsys, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        assert run("profile", "create", "here", "--rest", address, "--kafka", address) == 0
        assert run("topic", "list") == 1
        assert run("group", "delete", "g") == 1
    refused = capsys.readouterr().err.splitlines()
    assert refused == [
        f"millrace: no REST API answers at {address}: Connection refused",
        f"millrace: no broker answers at {address}",
    ]
    monkeypatch.setenv("MILLRACE_PROFILE", "nobody")
    assert run("topic", "list") == 1
    assert capsys.readouterr().err == "millrace: there is no profile 'nobody'; profiles: here\n"
    monkeypatch.delenv("MILLRACE_PROFILE")
    (tmp_path / "millrace" / "profiles.json").write_text("{")
    assert run("topic", "list") == 1
    assert "is damaged; remove it and create the profiles again" in capsys.readouterr().err


def test_a_cluster_that_is_not_well_ends_with_1_and_its_reasons(capsys):
    body = json.dumps(
        {
            "is_healthy": False,
            "reasons": [{"service": "storage", "message": "storage: 2 partitions are offline"}],
            "services": [{"name": "storage", "is_up": True, "detail": ""}, {"name": "gateway", "is_up": False}],
            "offline_partitions_count": 2,
        }
    ).encode()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

        thread = threading.Thread(target=answer)
        thread.start()
        assert run("cluster", "health", "--rest", f"127.0.0.1:{server.getsockname()[1]}") == 1
        thread.join()
    assert capsys.readouterr().out.splitlines() == [
        "storage: 2 partitions are offline",
        "healthy             no",
        "services            storage=up,gateway=down",
        "offline partitions  2",
    ]


def test_prometheus_reads_each_address(capsys):
    assert run("generate", "prometheus-config", "broker=localhost:9103", "--rest", "http://admin:8082") == 0
    assert yaml.safe_load(capsys.readouterr().out) == {
        "scrape_configs": [
            {"job_name": "millrace-broker", "static_configs": [{"targets": ["localhost:9103"]}]},
            {"job_name": "millrace-rest", "static_configs": [{"targets": ["admin:8082"]}]},
        ]
    }


def test_prometheus_reads_https_with_a_base_path_and_a_token(capsys):
    address = "https://admin.example/base"
    assert run("profile", "create", "prod", "--rest", address, "--token-file", "/run/token") == 0
    capsys.readouterr()
    rest = {
        "job_name": "millrace-rest",
        "scheme": "https",
        "metrics_path": "/base/metrics",
        "static_configs": [{"targets": ["admin.example:443"]}],
    }
    authorization = {"credentials_file": "/run/token"}
    assert run("generate", "prometheus-config", "admin=http://h:9104/metrics") == 0
    assert yaml.safe_load(capsys.readouterr().out)["scrape_configs"] == [
        {"job_name": "millrace-admin", "static_configs": [{"targets": ["h:9104"]}]},
        {**rest, "authorization": authorization},
    ]
    assert run("generate", "prometheus-config", "--rest", f"{address}/", "--token-file", "tok") == 0
    (other,) = yaml.safe_load(capsys.readouterr().out)["scrape_configs"]
    assert other == {**rest, "authorization": {"credentials_file": "tok"}}
    assert run("generate", "prometheus-config", "--rest", "localhost:8082") == 0
    assert "authorization" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [("admin=9104",), ("admin=host",), ("admin=ftp://h:1",), ("admin=u:p@h:1",), ("--rest", "h:x"), ("a=[h:1",)],
)
def test_prometheus_reads_no_other_text(arguments, capsys):
    assert run("generate", "prometheus-config", *arguments) == 2
    assert " is not host:port or a URL\n" in capsys.readouterr().err
    assert run("generate", "prometheus-config", "rest=h:1") == 2


def test_the_dashboard_has_a_panel_for_each_query(capsys):
    assert run("generate", "grafana-dashboard") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == dashboard()
    assert [panel["targets"][0]["expr"] for panel in shown["panels"]] == [query for _, _, query in PANELS]


@pytest.mark.parametrize("name", ["etl", "demo"])
def test_a_program_whose_packages_are_missing_names_the_extra(name, capsys, monkeypatch):
    monkeypatch.setattr("millrace.cli.commands.find_spec", lambda _name: None)
    extra = {"etl": "spark", "demo": "demo"}[name]
    assert run(name, "run") == 1
    assert capsys.readouterr().err == f"millrace: {name} needs more packages: pip install 'millrace-broker[{extra}]'\n"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("etl", "run a pipeline, once or without end"), ("demo", "use this broker, which must be empty")],
)
def test_a_program_parses_its_own_command_line(name, shown, capsys):
    assert run(name, "--help") == 0
    assert shown in capsys.readouterr().out


def test_segments_and_paths_that_do_not_exist(tmp_path, capsys):
    folder = tmp_path / "data" / "orders-1"
    folder.mkdir(parents=True)
    (folder / "00000000000000000012.log").write_bytes(b"x" * 7)
    os.utime(folder / "00000000000000000012.log", (0, 0))
    assert run("storage", "segments", str(tmp_path / "data"), "-o", "json") == 0
    row = {"topic": "orders", "partition": 1, "base_offset": 12, "bytes": 7, "written": "1970-01-01T00:00:00+00:00"}
    assert json.loads(capsys.readouterr().out) == [row]
    for command in ("segments", "verify", "rebuild-catalog", "dump-log"):
        assert run("storage", command, str(tmp_path / "none")) == 2
        assert capsys.readouterr().err == f"millrace storage {command}: {tmp_path / 'none'} does not exist\n"
