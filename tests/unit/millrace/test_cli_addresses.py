"""Which cluster a command line speaks to, which token it sends, and how it waits for a REST API that is busy."""

import contextlib
import http.server
import json
import os
import threading
import time

import pytest
from millrace.cli import commands, rest
from millrace.cli.addresses import RestAddress
from millrace.cli.errors import CliError
from protocol_lib.records.walker import FORM

pytestmark = pytest.mark.usefixtures("home")


class Api(http.server.ThreadingHTTPServer):
    """An HTTP server that notes what it is sent; it refuses the requests for which `refusals` has a header."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.tokens = []
        self.refusals = []
        self.requests = 0
        #: the part of an answer that comes again and again, and the pause after it in seconds
        self.endless = None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.requests += 1
        self.server.tokens.append(self.headers.get("Authorization"))
        status, body = 200, {"data": [{"cluster_id": "c"}] if self.path == "/v3/clusters" else [], "metadata": {}}
        retry_after = self.server.refusals.pop(0) if self.server.refusals else None
        if retry_after is not None:
            status, body = 429, {"message": "Too many requests of this client."}
        if self.server.endless is not None:
            self.send_endless(*self.server.endless)
            return
        content = json.dumps(body).encode()
        self.send_response(status)
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def send_endless(self, part, pause_s):
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            while True:
                self.wfile.write(part)
                time.sleep(pause_s)

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    yield from served()


@pytest.fixture
def other():
    yield from served()


def served():
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def token(home):
    path = home / "token"
    path.write_text("s3cret\n")
    return path


def test_the_token_of_a_profile_goes_to_its_own_address_alone(api, other, token, capsys, monkeypatch):
    assert commands.run(["profile", "create", "p", "--rest", api.address, "--token-file", str(token)]) == 0
    for address in ((), ("--rest", api.address), ("--rest", f"http://{api.address}/")):
        assert commands.run(["topic", "list", *address]) == 0
    assert commands.run(["topic", "list", "--rest", other.address]) == 0
    monkeypatch.setenv("MILLRACE_REST", other.address)
    assert commands.run(["topic", "list"]) == 0
    assert commands.run(["topic", "list", "--rest", api.address]) == 0  # the profile's own, although not in use
    assert (set(api.tokens[:6]), set(other.tokens)) == ({"Bearer s3cret"}, {None})
    captured = capsys.readouterr()
    assert "s3cret" not in captured.out + captured.err


def test_a_token_of_the_environment_goes_to_the_address_of_the_environment(api, other, capsys, monkeypatch):
    monkeypatch.setenv("MILLRACE_TOKEN", "ci-token")
    assert commands.run(["topic", "list", "--rest", api.address]) == 2
    needs = "millrace: MILLRACE_TOKEN goes to the address in MILLRACE_REST alone; set that too\n"
    assert (capsys.readouterr().err, api.requests) == (needs, 0)
    monkeypatch.setenv("MILLRACE_REST", api.address)
    assert commands.run(["topic", "list"]) == 0
    assert commands.run(["topic", "list", "--rest", other.address]) == 0
    assert (set(api.tokens), set(other.tokens)) == ({"Bearer ci-token"}, {None})
    monkeypatch.setenv("MILLRACE_TOKEN", "two words")
    assert commands.run(["topic", "list"]) == 1
    assert capsys.readouterr().err == "millrace: MILLRACE_TOKEN: not one token of visible ASCII characters\n"


def test_the_same_place_written_in_other_words():
    one = RestAddress.parse("http://Admin.example:80/base/")
    assert one == RestAddress.parse("admin.example:80/base") == RestAddress.parse("http://admin.example/base")
    others = ("https://admin.example:80/base", "admin.example:81/base", "admin.example:80", "admin.example.com:80/base")
    assert one not in map(RestAddress.parse, others)
    with pytest.raises(CliError, match="not host:port or a URL"):
        RestAddress.parse("http://admin.example@evil.example")


@pytest.mark.parametrize("name", ["REST", "KAFKA"])
def test_an_address_of_the_environment(name, capsys, monkeypatch):
    command = ["topic", "list"] if name == "REST" else ["group", "delete", "g"]
    monkeypatch.setattr("millrace.cli.kafka.CONNECT_TIMEOUT_S", 0.1)
    monkeypatch.setenv(f"MILLRACE_{name}", "127.0.0.1:1")
    assert commands.run(command) == 1
    assert " answers at 127.0.0.1:1" in capsys.readouterr().err
    for wrong, reason in (
        ("", "the address is empty; is a shell variable not set?"),
        ("h:x", "'h:x' is not host:port"),
    ):
        monkeypatch.setenv(f"MILLRACE_{name}", wrong)
        assert commands.run(command) == 2
        assert capsys.readouterr().err.startswith(f"millrace: MILLRACE_{name}: {reason}")


def test_a_token_file_is_stored_with_its_folder(api, token, home, monkeypatch):
    monkeypatch.chdir(home)
    assert commands.run(["profile", "create", "p", "--rest", api.address, "--token-file", "token"]) == 0
    monkeypatch.chdir("/")
    assert commands.run(["topic", "list"]) == 0
    assert set(api.tokens) == {"Bearer s3cret"}


@pytest.mark.parametrize("each", [{"rest": 5}, {"kafka": None}, 5, ["rest"], {"port": "1"}])
def test_a_profile_of_other_types_is_damaged(each, home, capsys):
    (home / "millrace").mkdir()
    (home / "millrace" / "profiles.json").write_text(json.dumps({"current": "p", "profiles": {"p": each}}))
    for command in (["topic", "list"], ["profile", "list"]):
        assert commands.run(command) == 1
        assert "is damaged; remove it and create the profiles again" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("",), ("p", "--rest", ""), ("p", "--kafka", ""), ("p", "--rest", "h:x")])
def test_a_profile_that_could_not_be_used_is_not_made(arguments, home):
    assert commands.run(["profile", "create", *arguments]) == 2
    assert not (home / "millrace").exists()


def test_outcomes_of_profiles_for_programs(capsys, home):
    outcomes = []
    for arguments in (("create", "p", "--token-file", "/t"), ("use", "p"), ("delete", "p")):
        assert commands.run(["profile", *arguments, "-o", "json"]) == 0
        outcomes.append(json.loads(capsys.readouterr().out))
    addresses = {"rest": "localhost:8082", "kafka": "localhost:9092"}
    made = {"profile": "p", **addresses, "token_file": "/t", "client_config": ""}
    assert outcomes == [made, {"profile": "p", "current": True}, {"profile": "p", "deleted": True}]
    assert commands.run(["version", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": "0.1.0", "record_walker": FORM}


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that a command makes, in seconds, without making them."""
    made = []
    monkeypatch.setattr("millrace.cli.rest.time.sleep", made.append)
    return made


def test_a_busy_rest_api_is_asked_again_after_the_pause_that_it_asks_for(api, pauses):
    api.refusals += ["2", "", "0", "Fri, 27 Nov 2026 23:59:59 GMT"]
    assert commands.run(["topic", "list", "--rest", api.address]) == 0
    assert (pauses, api.requests) == ([2.0, 1.0, 0.1, 1.0], 6)


def test_a_rest_api_that_stays_busy_ends_the_command(api, pauses, capsys):
    api.refusals += ["25"] * 9
    assert commands.run(["topic", "list", "--rest", api.address]) == 1
    assert (capsys.readouterr().err, pauses) == ("millrace: Too many requests of this client.\n", [25.0, 25.0])
    assert rest.PATIENCE_S == 60
    api.refusals[:] = ["9" * 400]
    assert commands.run(["topic", "list", "--rest", api.address]) == 1


def test_no_profile_is_needed(home):
    assert os.listdir(home) == []
    with pytest.raises(CliError, match="no REST API answers at localhost:1:"), rest.RestClient("localhost:1"):
        pass


@pytest.mark.parametrize(
    ("part", "pause_s", "reason"),
    [
        (bytes(100_000), 0.0, "the answer of {} is too long; is it the REST API?"),
        (b" ", 0.05, "the REST API at {} does not answer"),
    ],
)
def test_an_answer_without_an_end_ends_the_command(api, monkeypatch, capsys, part, pause_s, reason):
    monkeypatch.setattr(rest, "ANSWER_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(rest, "CONNECT_TIMEOUT_S", 0.3)
    api.endless = part, pause_s
    assert commands.run(["topic", "list", "--rest", api.address]) == 1
    assert capsys.readouterr().err == f"millrace: {reason.format(api.address)}\n"
