"""The rules for every request: ids, unknown routes and methods, limits, host names, headers, storage that is away."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import httpx
import pytest
from admin_api.settings import AdminSettings
from service_chassis import logs
from service_chassis.http.ring import RUNNING_MAX, WAITING_MAX

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import OwnStorage, Stack


@pytest.mark.parametrize(
    "path", ["/v3", "/v3/", "/v3/clusters/", "/nope", "/kafka", "/kafka/healthz", "/v2/topics", "//", "/docs/nope"]
)
def test_unknown_routes(stack: Stack, path: str) -> None:
    answer = stack.http.get(stack.base_url + path)
    assert answer.status_code == 404
    assert answer.json() == {
        "error_code": 404,
        "message": "There is no such path. Paths begin with /v3/clusters (or /kafka/v3/clusters) and /api/v1;"
        " /docs lists them. Others are /, /healthz, /readyz, /metrics, /openapi.json and /version.",
    }


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/topics", "GET, HEAD, POST"),
        ("PUT", "/topics/a", "DELETE, GET, HEAD, PATCH"),
        ("DELETE", "/topics/a/configs", "GET, HEAD"),
        ("POST", "/consumer-groups/g", "GET, HEAD"),
        ("BREW", "/topics", "GET, HEAD, POST"),
        ("GET", "/topics/a/records:batch", "POST"),
    ],
)
def test_unknown_methods(stack: Stack, method: str, path: str, allowed: str) -> None:
    for prefix in ("", "/kafka"):
        answer = stack.http.request(method, prefix + stack.cluster + path)
        assert answer.status_code == 405
        message = f"This path does not have this method. It has: {allowed}."
        assert answer.json() == {"error_code": 405, "message": message}
        assert answer.headers.get_list("allow") == [allowed]


@pytest.mark.parametrize("prefix", ["", "/kafka"])
def test_links_behind_a_proxy(stack: Stack, admin: Callable[..., httpx.Client], prefix: str) -> None:
    client = admin(stack.storage_address, admin_public_url="https://admin.example/base/")
    for number in range(2):
        stack.create_topic(f"proxied{prefix[1:]}-{number}")
    answer = client.get(f"{prefix}/v3/clusters/-/topics?page_size=1", headers={"x-forwarded-proto": "gopher"}).json()
    base = f"https://admin.example/base{prefix}{stack.cluster}/topics"
    assert answer["metadata"]["self"] == base
    assert answer["metadata"]["next"].startswith(f"{base}?")
    assert answer["data"][0]["metadata"]["self"].startswith(f"{base}/")
    following = client.get("/api/v1/topics?page_size=1&q=proxied").json()["next"]
    assert following.startswith("https://admin.example/base/api/v1/topics?q=proxied&page_size=1&page_token=")


@pytest.mark.parametrize("url", ["admin.example", "ftp://x", "https://", "https://x/?a", "https://x/#a", "https://[x"])
def test_a_base_of_links_that_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="MILLRACE_ADMIN_PUBLIC_URL"):
        AdminSettings(admin_public_url=url)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/topics?page_sizes=1", 400),
        ("/api/v1/topics?page_size=1&q=x", 200),
        ("/api/v1/topics/of-parameters/records?patition=1", 400),
        ("/api/v1/storage/segments?topic=of-parameters&page_size=1", 200),
        ("/v3/clusters/-/topics?unknown=1", 200),
        ("/version?unknown=1", 200),
    ],
)
def test_unknown_parameters_of_a_query(stack: Stack, path: str, status: int) -> None:
    """Confluent's API ignores them, and so does /v3."""
    if stack.http.get("/v3/clusters/-/topics/of-parameters").status_code == 404:
        stack.create_topic("of-parameters")
    answer = stack.http.get(path)
    assert answer.status_code == status
    if "patition" in path:
        known = "cursor, isolation, key, key_format, limit, mode, offset, partition, q, timestamp, value_format, where"
        assert answer.json()["message"] == f"query.patition: there is no such parameter, but: {known}"


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/xml", 406),
        ("application/json;q=0, text/*", 406),
        ("*/*;q=0.0", 406),
        ("", 200),
        ("application/xml, application/*;q=0.1", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/html,application/xml;q=0.9,*/*;q=0.8", 200),
    ],
)
def test_answers_that_a_client_accepts(stack: Stack, accept: str, status: int) -> None:
    answer = stack.http.get("/v3/clusters", headers={"accept": accept})
    assert answer.status_code == status
    if status == 406:
        assert answer.json() == {"error_code": 406, "message": "The answer would be application/json."}
    assert stack.http.get("/metrics", headers={"accept": "text/plain"}).status_code == 200


def test_a_hyphen_names_the_one_cluster(stack: Stack) -> None:
    stack.create_topic("of-the-one-cluster")
    for path in ("", "/topics/of-the-one-cluster", "/topics/-/partitions/-/reassignment", "/brokers"):
        named = stack.http.get(stack.cluster + path)
        answer = stack.http.get("/v3/clusters/-" + path)
        assert (answer.status_code, answer.json()) == (200, named.json())
    assert stack.http.delete("/v3/clusters/-/topics/of-the-one-cluster").status_code == 204


def test_request_ids(stack: Stack) -> None:
    given = stack.http.get("/v3/clusters", headers={"x-request-id": "order-66.a:b_c"})
    assert given.headers["x-request-id"] == "order-66.a:b_c"
    for odd in ("", "a b", "x" * 65, "é".encode(), "a\tb"):
        made = stack.http.get("/nope", headers={"x-request-id": odd})
        assert re.fullmatch("[0-9a-f]{32}", made.headers["x-request-id"])


def test_every_answer_says_it_is_not_for_browsers_to_guess_at(stack: Stack) -> None:
    for path in ("/v3/clusters", "/nope", "/healthz"):
        headers = stack.http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert not [name for name in headers if name.startswith("access-control-")]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8082", "localhost.evil.example", "", "[::2]:80"])
def test_other_host_names_are_refused_on_loopback(stack: Stack, host: str) -> None:
    answer = stack.http.get("/v3/clusters", headers={"host": host})
    assert answer.status_code == 421
    assert answer.json()["error_code"] == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8082", "[::1]:8082"])
def test_loopback_host_names_are_served_and_kept_in_links(stack: Stack, host: str) -> None:
    answer = stack.http.get("/v3/clusters", headers={"host": host})
    assert answer.status_code == 200
    assert answer.json()["metadata"]["self"].lower() == f"http://{host.lower()}/v3/clusters"


def test_host_names_can_be_set(stack: Stack, admin: Callable[..., httpx.Client]) -> None:
    other = admin("unix:/nowhere", admin_allowed_hosts="Kafka.example, [::5]")
    assert other.get("/openapi.json", headers={"host": "kafka.example:443"}).status_code == 200
    assert other.get("/openapi.json", headers={"host": "[::5]:80"}).status_code == 200
    assert other.get("/healthz", headers={"host": "10.0.0.7:8082"}).status_code == 200
    assert other.get("/openapi.json", headers={"host": "localhost"}).status_code == 421


@pytest.mark.parametrize("length", ["65537", "9" * 30])
def test_an_announced_body_above_the_limit_is_not_waited_for(stack: Stack, length: str) -> None:
    host, port = stack.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            f"POST {stack.cluster}/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n\r\n".encode()
        )
        status_line = connection.recv(65536).split(b"\r\n")[0]
    assert status_line.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))


@pytest.mark.parametrize(
    "garbage", [b"\x00\x01\x02\x03\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nbad header\r\n\r\n"]
)
def test_what_is_not_http_harms_nobody(stack: Stack, garbage: bytes) -> None:
    host, port = stack.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(garbage)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")
    assert stack.http.get("/healthz").status_code == 200


def test_storage_goes_and_comes_back(own_storage: OwnStorage, admin: Callable[..., httpx.Client]) -> None:
    client = admin(own_storage.address)
    cluster = client.get("/v3/clusters").json()["data"][0]["metadata"]["self"]
    assert client.post(f"{cluster}/topics", json={"topic_name": "lasting"}).status_code == 201
    own_storage.stop()
    gone = client.get(f"{cluster}/topics/lasting")
    assert (gone.status_code, gone.json()["error_code"]) == (503, 50302)
    assert client.post(f"{cluster}/topics", json={"topic_name": "lost"}).status_code == 503
    own_storage.start()
    until_ready(lambda: client.get("/readyz").status_code == 200)
    assert client.get(f"{cluster}/topics/lasting").status_code == 200
    assert client.get(f"{cluster}/topics/lost").status_code == 404


def test_without_storage(stack: Stack, admin: Callable[..., httpx.Client]) -> None:
    alone = admin("unix:/nowhere/storage.sock", admin_storage_timeout_s=20)
    answer = alone.get("/readyz")
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50302)
    assert alone.get("/healthz").status_code == 200
    assert alone.get("/healthz").json() == {"live": True}
    assert "\nmillrace_storage_up 0.0\n" in alone.get("/metrics").text
    until_ready(lambda: (answer := stack.http.get("/readyz")).status_code == 200 and answer.json() == {"ready": True})


def test_one_id_finds_a_request_in_the_log(stack: Stack, capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure("test", "debug", "json")
    written = ""
    try:
        stack.http.get(f"{stack.cluster}/topics/unheard-of", headers={"x-request-id": "find-me"})
        deadline = time.monotonic() + 20
        while "find-me" not in written:  # the line follows the answer
            assert time.monotonic() < deadline, written
            time.sleep(0.02)
            written += capfd.readouterr().err
    finally:
        logs.configure("test", "warning", "json")
    lines = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line.get("request_id") == "find-me"]
    assert line["event"] == "request"
    assert line["level"] == "debug"
    assert (line["method"], line["status"]) == ("GET", 404)
    assert line["route"] == "/v3/clusters/{cluster_id}/topics/{topic_name}"
    assert line["path"] == f"{stack.cluster}/topics/unheard-of"
    assert isinstance(line["correlation_id"], int)
    of_storage = [each for each in lines if each.get("logger", "").startswith("storage_svc")]
    assert line["correlation_id"] in [each.get("correlation_id") for each in of_storage]


def test_many_at_once(stack: Stack) -> None:
    statuses: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=stack.base_url, timeout=20) as client:
            statuses.extend(client.get(f"{stack.cluster}/topics").status_code for _ in range(10))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 160


def test_a_request_whose_sender_left_in_the_middle_is_not_run(stack: Stack) -> None:
    host, port = stack.base_url.removeprefix("http://").split(":")
    body = b'{"topic_name": "left-behind"}'
    head = (
        f"POST {stack.cluster}/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) + 1}\r\n\r\n"
    ).encode()
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(head + body)
        assert stack.http.get(f"{stack.cluster}/topics/left-behind").status_code == 404
    for _ in range(20):
        assert stack.http.get(f"{stack.cluster}/topics/left-behind").status_code == 404


def test_slow_senders_hold_no_place_among_the_requests(stack: Stack) -> None:
    """A probe and a request are served at once, while more slow senders are there than requests may run or wait."""
    host, port = stack.base_url.removeprefix("http://").split(":")
    head = f"POST {stack.cluster}/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx".encode()
    with contextlib.ExitStack() as held:
        for _ in range(RUNNING_MAX + WAITING_MAX + 1):
            held.enter_context(socket.create_connection((host, int(port)), timeout=30)).sendall(head)
        for path in ("/healthz", "/v3/clusters"):
            assert stack.http.get(path).status_code == 200


def test_a_rebound_page_deletes_nothing(stack: Stack, admin: Callable[..., httpx.Client]) -> None:
    """A page whose host name has become our address is of the same origin: the browser says so too."""
    stack.create_topic("coveted")
    client = admin(stack.storage_address, admin_allowed_hosts="localhost,127.0.0.1,admin-api")
    rebound = {
        "host": "rebound.evil.example:8082",
        "origin": "http://rebound.evil.example:8082",
        "sec-fetch-site": "same-origin",
    }
    answer = client.delete(f"{stack.cluster}/topics/coveted", headers=rebound)
    assert (answer.status_code, answer.headers["connection"]) == (421, "close")
    assert stack.http.get(f"{stack.cluster}/topics/coveted").status_code == 200


def test_a_page_of_another_site_creates_nothing(stack: Stack) -> None:
    for headers in ({"origin": "http://localhost:3000"}, {"sec-fetch-site": "cross-site"}):
        answer = stack.http.post(f"{stack.cluster}/topics", json={"topic_name": "planted"}, headers=headers)
        assert answer.json() == {"error_code": 403, "message": "Requests from pages of other sites are refused."}
    assert stack.http.get(f"{stack.cluster}/topics/planted").status_code == 404
