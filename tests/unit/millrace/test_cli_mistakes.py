"""Mistakes at the command line end in one line: addresses that are none, empty names, bytes that are no text."""

import http.server
import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime

import pytest
from millrace.cli import commands
from millrace.cli.errors import CliError
from millrace.cli.group_offsets import target
from millrace.cli.record_format import compiled, from_json

pytestmark = pytest.mark.usefixtures("home")
EMPTY = "the address is empty; is a shell variable not set?"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topic", "list", "--rest", "a..b:80"], "--rest: 'a..b:80' is not host:port or a URL"),
        (["topic", "list", "--rest", "two words:80"], "--rest: 'two words:80' is not host:port or a URL"),
        (["topic", "list", "--rest", "http://[::1"], "--rest: 'http://[::1' is not host:port or a URL"),
        (["topic", "list", "--rest", "h" * 70], f"--rest: '{'h' * 70}' is not host:port or a URL"),
        (["topic", "list", "--rest", "http://bob:hun/t@er2@h:8"], "--rest: 'http://…@h:8' is not host:port or a URL"),
        (["topic", "list", "--rest", "h?token=hunter2"], "--rest: 'h?…' is not host:port or a URL"),
        (["group", "delete", "g", "--kafka", "bob:hunter2@h:9092"], "--kafka: '…@h:9092' is not host:port"),
        (["consume", "t", "-X", "sasl.password:hunter2"], "-X: 'sasl.password…' is not NAME=VALUE"),
        (["topic", "delete", "t", "--yes", "--rest", ""], f"--rest: {EMPTY}"),
        (["group", "delete", "g", "--yes", "--kafka", ""], f"--kafka: {EMPTY}"),
        (["consume", "t", "-G", ""], "--group: the name is empty; is a shell variable not set?"),
        (
            ["group", "seek", "g", "--to", "0001-01-01"],
            "--to: '0001-01-01' is neither start, end, an offset nor a time after 1970 as 2026-01-31T12:00:00Z",
        ),
        (
            ["group", "seek", "g", "--to", "1969-12-31T23:59:59.999Z"],
            "--to: '1969-12-31T23:59:59.999Z' is neither start, end, an offset nor a time after 1970 as"
            " 2026-01-31T12:00:00Z",
        ),
    ],
)
def test_a_wrong_argument(arguments, message, capsys):
    assert commands.run(arguments) == 2
    assert capsys.readouterr().err == f"millrace: {message}\n"


def test_a_time_without_a_zone_is_one_of_utc():
    assert target("2026-01-31T12:00:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_bytes_of_the_command_line_go_out_as_they_came():
    program = (
        "import sys; from millrace.cli.record_format import compiled;"
        "sys.stdout.buffer.write(compiled(sys.argv[1])(None))"
    )
    run = subprocess.run((sys.executable, "-c", program, b"\xff%%\xc3\xa9"), capture_output=True, check=True)
    assert run.stdout == b"\xff%\xc3\xa9"
    assert compiled("é")(None) == "é".encode()


def test_a_name_that_is_no_text(other_server):
    command = (sys.executable, "-m", "millrace", "topic", "list", "--rest", other_server + "\udcff")
    run = subprocess.run(list(map(os.fsencode, command)), capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (2, "")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        *((line, "") for line in (b"", b"[]", b"1", b'{"headers": [1]}', b'{"value_base64": "!"}')),
        (b"[" * 100_000, "RecursionError"),
        (b'{"value": "\\ud800"}', "UnicodeEncodeError"),
        (b'{"value": "", "headers": [{"name": "\\ud800", "value": "x"}]}', "UnicodeEncodeError"),
        (b'{"key": "k", "vlaue": "new"}', "ValueError: unknown field 'vlaue'$"),
        (b'{"key": "k", "value": "v", "hedaers": []}', "ValueError: unknown field 'hedaers'$"),
        (b'{"value": "v", "headers_base64": ""}', "ValueError: unknown field 'headers_base64'$"),
        (b'{"key": "k"}', "ValueError: no value; null is written as null$"),
        (b'{"value": "v", "value_base64": "dg=="}', "ValueError: both value and value_base64$"),
        (b'{"value": "v", "headers": [{"name": "a"}]}', "ValueError: no value"),
        (b'{"value": "v", "headers": [{"name": "a", "vlaue": "b"}]}', "ValueError: unknown field 'vlaue'$"),
    ],
)
def test_a_line_that_is_no_record(line, reason):
    with pytest.raises(CliError, match=f"^line 7 is not a record in JSON: {reason}"):
        from_json(line, 7)


@pytest.fixture(scope="module")
def other_server():
    """The address of an HTTP server that answers JSON, but is not the REST API."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content = json.dumps({"name": "another"}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_that_is_not_the_rest_api(other_server, capsys):
    assert commands.run(["topic", "delete", "t", "--rest", other_server]) == 1
    assert capsys.readouterr().err == f"millrace: {other_server} names no cluster; is it the REST API?\n"


@pytest.mark.parametrize("names", [("describe", ""), ("delete", "", "--yes")])
def test_an_empty_name(names, monkeypatch, capsys):
    monkeypatch.setattr("millrace.cli.rest.RestClient.__enter__", lambda self: self)
    monkeypatch.setattr("millrace.cli.rest.RestClient.cluster_id", "c")
    assert commands.run(["topic", *names]) == 2
    assert capsys.readouterr().err == "millrace: a name is empty; is a shell variable not set?\n"


@pytest.mark.parametrize("content", [b"one two", b"\xff\xfe", b"", b"a\nb"])
def test_a_token_file_without_one_token(content, home, capsys):
    path = home / "token"
    path.write_bytes(content)
    assert commands.run(["profile", "create", "p", "--rest", "127.0.0.1:1", "--token-file", str(path)]) == 0
    capsys.readouterr()
    assert commands.run(["topic", "list"]) == 1
    message = f"token file {path}: not one token of visible ASCII characters"
    assert capsys.readouterr().err == f"millrace: {message}\n"


def shell(command, **environment):
    command = command.replace("millrace", f"{sys.executable} -m millrace")
    return subprocess.run(
        ("bash", "-c", command), capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )


def test_a_reader_that_leaves():
    run = shell("millrace settings | true; echo ${PIPESTATUS[0]}")
    assert (run.stdout, run.stderr) == ("0\n", "")


@pytest.mark.parametrize("end", ["raise CliError('refused')", "raise SystemExit(1)", "return 1"])
@pytest.mark.parametrize("write", ["print", "output.tell"])
def test_a_refusal_counts_more_than_a_reader_that_has_left(write, end):
    program = (
        "import sys; from millrace.cli import commands, output; from millrace.cli.errors import CliError\n"
        f"def work():\n    {write}('one is done')\n    {end}\n"
        "sys.exit(commands._ended(work))"
    )
    reads, writes = os.pipe()
    os.close(reads)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    run = subprocess.run(
        (sys.executable, "-c", program), stdout=writes, stderr=subprocess.PIPE, timeout=60, env=buffered
    )
    os.close(writes)
    assert (run.returncode, run.stderr) == (1, b"millrace: refused\n" if "refused" in end else b"")


@pytest.mark.parametrize("command", ["settings", "profile list"])
def test_a_full_disk(command):
    run = shell(f"millrace {command} > /dev/full")
    assert (run.returncode, run.stderr) == (1, "millrace: standard output: No space left on device\n")


def test_no_standard_output():
    run = shell("millrace profile list >&-")
    assert (run.returncode, run.stderr) == (0, "")


def test_a_terminal_without_all_letters():
    run = shell(
        "millrace profile create ü; millrace profile list; millrace profile list -o json", PYTHONIOENCODING="ascii"
    )
    assert (run.returncode, run.stderr) == (0, "")
    created, _, row, *shown = run.stdout.splitlines()
    assert (created, row.split()[0]) == ("created and in use: \\xfc", "\\xfc")
    assert json.loads("".join(shown))[0]["profile"] == "ü"
