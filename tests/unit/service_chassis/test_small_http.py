"""The server of probes: bounded, never spinning, and with a place for a probe."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from service_chassis import address, small_http
from service_chassis.small_http import Answer, Route, SmallHttpServer

from tests.support.waiting import until


@pytest.fixture
def serving():
    with contextlib.ExitStack() as undo:

        def start(routes=None):
            server = SmallHttpServer(
                address.parse("127.0.0.1:0"), routes or {"/": Route(lambda _: Answer(200, "text/plain", b"fine\n"))}
            )
            undo.callback(server.close)
            return server

        yield start


def _connect(server):
    return socket.create_connection(("127.0.0.1", server.port), 30)


def _ask(server, request=b"GET / HTTP/1.1\r\n\r\n"):
    with _connect(server) as client:
        client.sendall(request)
        return _rest(client)


def _rest(client):
    answer = b""
    while part := client.recv(65536):
        answer += part
    return answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /?a=1 HTTP/1.0\r\nHost: x\r\n\r\n", b"200 OK"),
        (b"GET /none HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405 Method Not Allowed"),
        (b"\x16\x03\x01\x02\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/2\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nA: " + 20_000 * b"a", b"431 Request Header Fields Too Large"),
    ],
)
def test_every_request_has_its_answer(serving, request_, status):
    assert _ask(serving(), request_).startswith(b"HTTP/1.1 " + status + b"\r\n")


def test_a_request_may_come_byte_by_byte(serving):
    with _connect(serving()) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET / HTTP/1.1\r\nHost: x\r\n\r\n":
            client.sendall(bytes([byte]))
        assert _rest(client).endswith(b"\r\n\r\nfine\n")


def test_an_answer_that_fails_is_status_500_and_the_server_goes_on(serving):
    server = serving({"/": Route(lambda _: 1 // 0), "/fine": Route(lambda _: Answer(200, "text/plain", b""))})
    assert _ask(server).startswith(b"HTTP/1.1 500 ")
    assert _ask(server, b"GET /fine HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_probes_have_a_place_among_slow_senders(serving, monkeypatch):
    monkeypatch.setattr(small_http, "REQUEST_TIMEOUT_S", 600.0)
    server = serving()
    threads = set(threading.enumerate())
    with contextlib.ExitStack() as opened:
        slow = [opened.enter_context(_connect(server)) for _ in range(3 * small_http.CONNECTIONS_MAX)]
        for each in slow:
            with contextlib.suppress(OSError):  # closed for a later one
                each.sendall(b"GET /")
        for _ in range(3):
            assert _ask(server).endswith(b"fine\n")
        # None for a connection. Brokers of other tests in this process may start some.
        assert len(set(threading.enumerate()) - threads) < small_http.CONNECTIONS_MAX
        assert len(server.connections) <= small_http.CONNECTIONS_MAX
        slow[0].settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert slow[0].recv(1) == b""  # the oldest made room
        slow[-1].sendall(b" HTTP/1.1\r\n\r\n")
        assert _rest(slow[-1]).endswith(b"fine\n")


def test_a_slow_sender_is_cut(serving, monkeypatch):
    monkeypatch.setattr(small_http, "REQUEST_TIMEOUT_S", 0.2)
    with _connect(serving()) as client:
        client.sendall(b"GET /")
        with contextlib.suppress(ConnectionResetError):  # of what came and was not read
            assert client.recv(1) == b""


def test_a_client_that_does_not_read_is_cut(serving, monkeypatch):
    monkeypatch.setattr(small_http, "ANSWER_TIMEOUT_S", 0.2)
    server = serving({"/": Route(lambda _: Answer(200, "text/plain", bytes(1 << 26)))})
    with _connect(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        client.recv(1)
        while server.connections:
            time.sleep(0.01)


def test_a_slow_answer_holds_up_no_other(serving):
    asked, may_answer = threading.Event(), threading.Event()

    def slow(_headers):
        asked.set()
        may_answer.wait(60)
        return Answer(200, "text/plain", b"slow\n")

    server = serving(
        {
            "/slow": Route(slow, is_slow=True),
            "/": Route(lambda headers: Answer(200, "text/plain", headers["a"].encode())),
        }
    )
    with _connect(server) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert asked.wait(60)
        assert _ask(server, b"GET / HTTP/1.1\r\nA:  b \r\n\r\n").endswith(b"\r\n\r\nb")
        may_answer.set()
        assert _rest(client).endswith(b"slow\n")


def test_a_burst_finds_room_in_the_kernels_queue(serving):
    """A queue that is full makes a client send its SYN again, a second later."""
    release = threading.Event()
    server = serving({"/": Route(lambda _: release.wait(60) and Answer(200, "text/plain", b"fine\n"))})
    with contextlib.ExitStack() as opened:
        first = opened.enter_context(_connect(server))
        first.sendall(b"GET / HTTP/1.1\r\n\r\n")  # nothing is accepted until it is answered
        queued = []
        for _ in range(300):
            client = opened.enter_context(socket.socket())
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 1)
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", server.port))
            queued.append(client)
        established = 1  # the kernel's number of TCP_ESTABLISHED; 2 is a SYN that was sent
        states = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] for each in queued]
        assert states == [established] * 300
        for client in queued:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.settimeout(30)
        release.set()
        # Each is read before others take its place.
        assert [_rest(client).endswith(b"fine\n") for client in queued] == [True] * 300


OUT_OF_DESCRIPTORS = """
import os, resource, socket, sys, threading, time
from service_chassis import address, small_http
from service_chassis.small_http import Answer, Route, SmallHttpServer
server = SmallHttpServer(address.parse("127.0.0.1:0"), {"/": Route(lambda _: Answer(200, "text/plain", b"fine"))})
print(server.port, flush=True)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
print("out", flush=True)
sys.stdin.readline()
before = time.process_time()
time.sleep(1.5)
print(time.process_time() - before, flush=True)
sys.stdin.readline()
"""


def test_out_of_descriptors_it_answers_one_at_a_time_and_does_not_spin():
    command = [sys.executable, "-c", OUT_OF_DESCRIPTORS]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        contextlib.ExitStack() as opened,
    ):
        port = int(process.stdout.readline())
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "out\n"
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port), 30) as probe:
                probe.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert _rest(probe).endswith(b"fine")
        for _ in range(5):  # the first holds the spare descriptor, the others wait in the kernel's queue
            opened.enter_context(socket.create_connection(("127.0.0.1", port), 30))
        process.stdin.write("\n")
        process.stdin.flush()
        assert float(process.stdout.readline()) < 0.3
        process.stdin.close()


def test_close_frees_the_port_though_a_fork_holds_the_listener(serving):
    server = serving()
    with contextlib.closing(socket.socket(fileno=socket.dup(server._listener.fileno()))), socket.socket() as client:
        port = server.port
        server.close()
        assert client.connect_ex(("127.0.0.1", port)) != 0


def test_nothing_is_left_of_a_server_that_could_not_listen(serving):
    server = serving()
    before = _sockets()
    for _ in range(3):
        with pytest.raises(OSError, match="in use"):
            SmallHttpServer(address.parse(f"127.0.0.1:{server.port}"), {})
    until(lambda: _sockets() <= before)  # those of other tests in this process come and go


def _sockets():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {each for each in found if each.startswith("socket:")}
