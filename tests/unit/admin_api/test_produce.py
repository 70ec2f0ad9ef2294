"""Records produced over HTTP: streams and batches, every type, each error, clients that leave or overdo it."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from admin_api.kafka_clients import BROWSE, PRODUCE
from protocol_lib.client.partitioner import murmur2
from service_chassis.http.bodies import DRAIN_TIMEOUT_S

from tests.unit.admin_api.conftest import PARTS

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import OwnStorage, Stack

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def topic(stack: Stack) -> Iterator[str]:
    stack.create_topic("produced", 3)
    yield f"{stack.cluster}/topics/produced"
    stack.http.delete(f"{stack.cluster}/topics/produced")


def stream(stack: Stack, url: str, *records: dict[str, Any] | bytes, headers: Any = JSON) -> list[dict[str, Any]]:
    """Send records as one stream, and return the reports."""
    body = b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in records)
    answer = stack.http.post(f"{url}/records", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return reports(answer.text)


def reports(text: str) -> list[dict[str, Any]]:
    found, at, decoder = [], 0, json.JSONDecoder()
    while at < len(text.rstrip()):
        report, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        found.append(report)
    return found


def stored(stack: Stack, name: str, partition: int) -> list[tuple[Any, ...]]:
    """Return (offset, timestamp, key, value, headers, has a producer id) of a partition's records."""

    async def fetch() -> list[tuple[Any, ...]]:
        async with stack.clients.borrow(BROWSE) as client:
            (answer,) = await client.fetch(name, {partition: 0}, bytes_max=8_000_000)
            assert answer.error_code == 0
            return [
                (each.offset, each.timestamp, each.key, each.value, each.headers, batch.header.producer_id >= 0)
                for batch, _ in answer.batches()
                if batch.header is not None
                for each in batch.records()
            ]

    return stack.loop.run(fetch())


def offset_end(stack: Stack, name: str, partition: int) -> int:
    offset: int = stack.get(f"/topics/{name}/partitions/{partition}/offset")["latest_offset"]
    return offset


def test_a_record_in_full(stack: Stack, topic: str) -> None:
    record = {
        "partition_id": 1,
        "headers": [{"name": "Header-1", "value": "SGVhZGVyLTE="}, {"name": "none"}],
        "key": {"type": "BINARY", "data": "Zm9vYmFy"},
        "value": {"type": "JSON", "data": {"foo": "bär", "n": 12345678901234567890}},
        "timestamp": "2021-02-05T19:14:42Z",
    }
    value = '{"foo":"bär","n":12345678901234567890}'.encode()
    offset = offset_end(stack, "produced", 1)
    assert stream(stack, topic, record) == [
        {
            "error_code": 200,
            "cluster_id": stack.cluster.rpartition("/")[2],
            "topic_name": "produced",
            "partition_id": 1,
            "offset": offset,
            "timestamp": "2021-02-05T19:14:42Z",
            "key": {"type": "BINARY", "size": 6},
            "value": {"type": "JSON", "size": len(value)},
        }
    ]
    headers = (("Header-1", b"Header-1"), ("none", None))
    assert stored(stack, "produced", 1)[offset:] == [(offset, 1_612_552_482_000, b"foobar", value, headers, True)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "STRING", "data": "été"}, "été".encode()),
        ({"type": "STRING", "data": ""}, b""),
        ({"type": "STRING", "data": None}, None),
        ({"type": "BINARY", "data": "AP8="}, b"\0\xff"),
        ({"type": "BINARY", "data": ""}, b""),
        ({"type": "JSON", "data": [1, "a", None, 0.5, True]}, b'[1,"a",null,0.5,true]'),
        ({"type": "JSON", "data": "text"}, b'"text"'),
        ({"type": "STRING", "data": "1.10"}, b"1.10"),
        ({"type": "JSON", "data": 7}, b"7"),
        ({"type": "JSON", "data": None}, None),
        ({"data": None}, None),
        ({}, None),
        (None, None),
    ],
)
def test_every_type_of_a_value(stack: Stack, topic: str, given: Any, expected: bytes | None) -> None:
    (report,) = stream(stack, topic, {"partition_id": 2, "value": given})
    assert report["error_code"] == 200
    has_type = given is not None and "type" in given
    assert report.get("value") == ({"type": given["type"], "size": len(expected or b"")} if has_type else None)
    assert "key" not in report
    assert stored(stack, "produced", 2)[-1][2:5] == (None, expected, ())


@pytest.mark.parametrize(
    ("record", "error_code", "message"),
    [
        ({"value": {"type": "BINARY", "data": 1}}, 400, "Bad Request: data=1 is not a base64 string."),
        ({"value": {"type": "BINARY", "data": "?"}}, 400, 'Bad Request: data="?" is not a valid base64 string.'),
        ({"value": {"type": "STRING", "data": 1}}, 400, "Bad Request: data=1 is not a string."),
        ({"value": {"type": "STRING", "data": {}}}, 400, "Bad Request: data=dict is not a string."),
        ({"headers": [{"name": "a", "value": "?"}]}, 400, 'Bad Request: data="?" is not a valid base64 string.'),
        (
            {"value": {"data": 5}},
            42207,
            "Error serializing message. No schema registry is set (MILLRACE_SCHEMA_REGISTRY).",
        ),
        ({"value": {"type": "JSON", "data": float("nan")}}, 400, "Bad Request: data has a number that JSON has not."),
        ({"value": {"type": "JSON", "data": [0.5, "\udc00"]}}, 400, "Bad Request: data is not valid Unicode text."),
        ({"value": {"type": "STRING", "data": 0.5}}, 400, "Bad Request: data=0.5 is not a string."),
        (
            {"partition_id": 0.5, "value": {"type": "JSON", "data": 0.5}},
            400,
            "Error processing message: partition_id: Input should be a valid integer",
        ),
        (
            {"entries": [{"value": {"type": "JSON", "data": 0.5}}]},
            400,
            "Error processing message: entries: Extra inputs are not permitted",
        ),
        (
            {"value": {"type": "XML", "data": 5}},
            400,
            "Error processing message: value.type: Input should be 'BINARY', 'JSON', 'STRING', 'AVRO', 'JSONSCHEMA' or"
            " 'PROTOBUF'",
        ),
        ({"values": {}}, 400, "Error processing message: values: Extra inputs are not permitted"),
        ({"partition_id": 3}, 40402, "Partition not found."),
        ({"partition_id": -1}, 40402, "Partition not found."),
        ({"timestamp": "soon"}, 400, None),
        (
            {"timestamp": "1969-12-31T23:59:59.999Z"},
            400,
            "Invalid timestamp: -1. Timestamp should always be non-negative or null.",
        ),
    ],
)
def test_records_that_are_refused(
    stack: Stack, topic: str, record: dict[str, Any], error_code: int, message: str | None
) -> None:
    """The records before and after them are stored."""
    good = {"partition_id": 0, "value": {"type": "STRING", "data": "good"}}
    end = offset_end(stack, "produced", 0)
    first, refused, last = stream(stack, topic, good, record, good)
    assert (first["error_code"], first["offset"]) == (200, end)
    assert (last["error_code"], last["offset"]) == (200, end + 1)
    assert refused.keys() == {"error_code", "message"}
    assert refused["error_code"] == error_code
    assert message is None or refused["message"] == message
    assert offset_end(stack, "produced", 0) == end + 2


NUMBERS = "1.10 -0.0 1e400 1E5 0.1000000000000000055 12345678901234567890123"


@pytest.mark.parametrize("number", NUMBERS.split())
def test_numbers_of_json_stay_as_they_are_written(stack: Stack, topic: str, number: str) -> None:
    value = f'{{"type": "JSON", "data": {{ "a": [{number}, "{number}"] }}}}'
    body = f'{{"partition_id": 2, "key": {{"type": "JSON", "data": {number}}}, "value": {value}}}'
    (report,) = stream(stack, topic, body.encode())
    assert report["error_code"] == 200
    expected = (number.encode(), f'{{"a":[{number},"{number}"]}}'.encode())
    assert stored(stack, "produced", 2)[-1][2:4] == expected
    entry = f'{{"id": "1", {body[1:]}'
    answer = stack.http.post(f"{topic}/records:batch", content=f'{{"entries":[{entry}]}}'.encode(), headers=JSON)
    assert len(answer.json()["successes"]) == 1
    assert stored(stack, "produced", 2)[-1][2:4] == expected


def test_keys_decide_as_in_kafkas_clients(stack: Stack, topic: str) -> None:
    keys = [f"key-{number}" for number in range(30)]
    found = stream(stack, topic, *({"key": {"type": "STRING", "data": key}} for key in keys))
    assert [report["partition_id"] for report in found] == [(murmur2(key.encode()) & 0x7FFFFFFF) % 3 for key in keys]
    without = stream(stack, topic, *({"value": {"type": "STRING", "data": "x"}} for _ in range(20)))
    assert len({report["partition_id"] for report in without}) == 1


def test_a_long_stream_keeps_its_order(stack: Stack) -> None:
    stack.create_topic("streamed")
    records = [{"value": {"type": "JSON", "data": number}} for number in range(3000)]
    found = stream(stack, f"{stack.cluster}/topics/streamed", *records)
    assert [(report["error_code"], report["offset"]) for report in found] == [(200, n) for n in range(3000)]
    assert [record[3] for record in stored(stack, "streamed", 0)] == [b"%d" % number for number in range(3000)]


def test_reports_come_while_the_stream_goes_on(stack: Stack, topic: str) -> None:
    with connected(stack) as connection:
        head = f"POST {topic}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        received = b""
        for number in range(3):
            record = b'{"partition_id":0,"value":{"type":"JSON","data":%d}}' % number
            connection.sendall(b"%x\r\n%s\r\n" % (len(record), record))
            while received.count(b'"error_code":200') <= number:
                received += connection.recv(65536)
        connection.sendall(b"0\r\n\r\n")
        while not received.endswith(b"0\r\n\r\n"):
            received += connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 200")


def test_records_of_a_client_that_leaves_stay(stack: Stack, topic: str) -> None:
    end = offset_end(stack, "produced", 0)
    with connected(stack) as connection:
        head = f"POST {topic}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + b'{"partition_id":0}{"partition_id":')
        assert b"200" in connection.recv(65536)
    assert offset_end(stack, "produced", 0) == end + 1
    assert stack.http.get("/healthz").status_code == 200


def connected(stack: Stack) -> socket.socket:
    host, port = stack.base_url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_body_that_ends_within_a_record(stack: Stack, topic: str, end: bytes) -> None:
    found = stream(stack, topic, b'{"partition_id":0}{"partition_id":' + end)
    assert [report["error_code"] for report in found] == [200, 400]
    assert found[1]["message"] == "Error processing message: the body ends within a record."


def test_nothing_is_read_after_bytes_that_are_no_record(stack: Stack, topic: str) -> None:
    end = offset_end(stack, "produced", 0)
    found = stream(stack, topic, b'{"partition_id":0}', b"[]", b'{"partition_id":0}')
    assert found[-1]["message"] == "Error processing message: every record must be a JSON object."
    assert [report["error_code"] for report in found] == [200, 400]
    assert offset_end(stack, "produced", 0) == end + 1


@pytest.mark.parametrize(("path", "error_code"), [("/records", 42206), ("/records:batch", 42208)])
def test_requests_without_records(stack: Stack, topic: str, path: str, error_code: int) -> None:
    answer = stack.http.post(topic + path, content=b"", headers=JSON)
    assert (answer.status_code, answer.json()["error_code"]) == (422, error_code)


def test_a_batch(stack: Stack, topic: str) -> None:
    end = offset_end(stack, "produced", 0)
    moment = {"timestamp": "2024-01-01T00:00:00.5Z"}
    entries = [
        {"id": "a", "partition_id": 0, "value": {"type": "STRING", "data": "one"}, **moment},
        {"id": "b", "partition_id": 0, "value": {"type": "BINARY", "data": 1}},
        {"id": "c", "partition_id": 9},
    ]  # fmt: skip
    answer = stack.http.post(f"/kafka{topic}/records:batch", json={"entries": entries})
    assert answer.status_code == 207
    assert answer.json() == {
        "successes": [
            {
                "id": "a",
                "cluster_id": stack.cluster.rpartition("/")[2],
                "topic_name": "produced",
                "partition_id": 0,
                "offset": end,
                "timestamp": "2024-01-01T00:00:00.500Z",
                "value": {"type": "STRING", "size": 3},
            }
        ],
        "failures": [
            {"id": "b", "error_code": 400, "message": "Bad Request: data=1 is not a base64 string."},
            {"id": "c", "error_code": 40402, "message": "Partition not found."},
        ],
    }


@pytest.mark.parametrize(
    ("body", "status", "error_code", "message"),
    [
        ({"entries": []}, 422, 42208, "Empty batch."),
        ({"entries": [{"id": "1"}] * 2}, 422, 42208, "Batch entry IDs are not distinct."),
        ({"entries": [{"id": str(n)} for n in range(11)]}, 422, 42208, "Too many entries in batch."),
        ({"entries": [{}]}, 400, 400, "Error processing message: entries.0.id: Field required"),
        ({}, 400, 400, "Error processing message: entries: Field required"),
    ],
)
def test_batches_that_are_refused(
    stack: Stack, topic: str, body: dict[str, Any], status: int, error_code: int, message: str
) -> None:
    answer = stack.http.post(f"{topic}/records:batch", json=body)
    assert (answer.status_code, answer.json()) == (status, {"error_code": error_code, "message": message})


def test_a_batch_of_escapes_delays_nobody(stack: Stack, topic: str) -> None:
    """The guard of event loops fails this test if the body is read in one step."""
    body = '{"entries":[{"id":"1","value":{"type":"STRING","data":"' + r"\n" * 990_000 + '"}}]}'
    answer = stack.http.post(f"{topic}/records:batch", content=body.encode(), headers=JSON)
    assert answer.json()["successes"][0]["value"]["size"] == 990_000
    two = stack.http.post(f"{topic}/records:batch", content=b'{"entries":[]} {}', headers=JSON)
    assert (two.status_code, two.json()["message"]) == (400, "The body is not one JSON object.")


def test_records_that_the_topic_refuses_alone(stack: Stack) -> None:
    """One too large for the topic is refused, and those of its batch are not."""
    configs = [{"name": "max.message.bytes", "value": "2000"}]
    body = {"topic_name": "small", "partitions_count": 1, "configs": configs}
    assert stack.http.post(f"{stack.cluster}/topics", json=body).status_code == 201
    sizes = [10, 3000, 20]
    found = stream(
        stack, f"{stack.cluster}/topics/small", *({"value": {"type": "STRING", "data": "x" * size}} for size in sizes)
    )
    assert [report["error_code"] for report in found] == [200, 413, 200]
    assert [len(record[3]) for record in stored(stack, "small", 0)] == [10, 20]


def test_a_compacted_topic_needs_keys(stack: Stack) -> None:
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    body = {"topic_name": "keyed", "partitions_count": 1, "configs": configs}
    assert stack.http.post(f"{stack.cluster}/topics", json=body).status_code == 201
    keyed = {"key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": 1}}
    found = stream(stack, f"{stack.cluster}/topics/keyed", keyed, {"value": {"type": "JSON", "data": 2}}, keyed)
    assert [report["error_code"] for report in found] == [200, 40002, 200]
    assert found[1]["message"] == "a compacted topic takes no record without a key"


def test_log_append_time_is_reported(stack: Stack) -> None:
    configs = [{"name": "message.timestamp.type", "value": "LogAppendTime"}]
    body = {"topic_name": "timed", "partitions_count": 1, "configs": configs}
    assert stack.http.post(f"{stack.cluster}/topics", json=body).status_code == 201
    (report,) = stream(stack, f"{stack.cluster}/topics/timed", {"timestamp": "2001-01-01T00:00:00Z"})
    assert not report["timestamp"].startswith("2001")


def test_a_stream_of_too_many_bytes_ends_with_a_report(
    stack: Stack, topic: str, admin: Callable[..., httpx.Client]
) -> None:
    client = admin(stack.storage_address, admin_gateways=stack.kafka, admin_stream_bytes_max=300_000)
    answer = client.post(f"{topic}/records", content=b'{"partition_id":0}' + b" " * 8192 * 40, headers=JSON)
    found = reports(answer.text)
    assert [report["error_code"] for report in found] == [200, 413]
    assert found[1]["message"] == "The request body is larger than 300000 bytes."
    answer = stack.http.post(f"{topic}/records:batch", content=b" " * (2 * 1024 * 1024 + 1), headers=JSON)
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("admin_stream_silence_s", "The request body took too long."),
        ("admin_stream_timeout_s", "Streaming connection open for longer than allowed: Connection will be closed."),
    ],
)
def test_a_stream_that_lasts_too_long_is_closed_at_once(
    stack: Stack, topic: str, admin: Callable[..., httpx.Client], limit: str, message: str
) -> None:
    """No later record is swallowed: the answer and the connection end with the report."""
    client = admin(stack.storage_address, admin_gateways=stack.kafka, **{limit: 0.3})
    end = offset_end(stack, "produced", 0)
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=20) as connection:
        head = f"POST {topic}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + b'{"partition_id":0}')
        begun = time.monotonic()
        received = b""
        while part := connection.recv(65536):
            received += part
        assert time.monotonic() - begun < DRAIN_TIMEOUT_S
        connection.sendall(b'{"partition_id":0}')
    assert received.endswith(b"\r\n0\r\n\r\n")
    assert f'{{"error_code":408,"message":"{message}"}}'.encode() in received
    assert offset_end(stack, "produced", 0) == end + 1


def test_a_stop_ends_a_stream_at_once(stack: Stack, topic: str, admin: Callable[..., httpx.Client]) -> None:
    client = admin(stack.storage_address, admin_gateways=stack.kafka)
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=20) as connection:
        head = f"POST {topic}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode() + b'{"partition_id":0}')
        received = b""
        while b'"error_code":200' not in received:
            received += connection.recv(65536)
        clients, _ = PARTS[str(client.base_url)]
        stack.loop.loop.call_soon_threadsafe(clients.stop)
        while part := connection.recv(65536):
            received += part
    assert b'{"error_code":50003,"message":"The server stops."}' in received
    assert received.endswith(b"\r\n0\r\n\r\n")


def test_a_record_of_the_largest_size(stack: Stack, topic: str) -> None:
    data = base64.b64encode(b"x" * 1_000_000).decode()
    found = stream(stack, topic, {"partition_id": 0, "value": {"type": "BINARY", "data": data}})
    assert (found[0]["error_code"], found[0]["value"]["size"]) == (200, 1_000_000)
    answer = stack.http.post(
        f"{topic}/records", content=b'{"value":{"type":"STRING","data":"' + b"x" * 2_200_000 + b'"}}', headers=JSON
    )
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413)


def test_a_gateway_that_is_away(own_storage: OwnStorage, admin: Callable[..., httpx.Client]) -> None:
    client = admin(own_storage.address, admin_gateways="127.0.0.1:1")
    cluster = client.get("/v3/clusters").json()["data"][0]["metadata"]["self"]
    assert client.post(f"{cluster}/topics", json={"topic_name": "waiting"}).status_code == 201
    answer = client.post(f"{cluster}/topics/waiting/records", content=b"{}", headers=JSON)
    assert answer.status_code == 200
    assert answer.json() == {"error_code": 50302, "message": "The gateway cannot be reached."}


def test_a_topic_that_is_made_again(stack: Stack) -> None:
    """The sequences of the old topic are not those of the new one."""
    url = f"{stack.cluster}/topics/again"
    for _ in range(3):
        stack.create_topic("again", 1)
        assert [report["offset"] for report in stream(stack, url, {}, {})] == [0, 1]
        assert [report["offset"] for report in stream(stack, url, {}, {})] == [2, 3]
        assert stack.http.delete(url).status_code == 204


def test_many_streams_at_once(stack: Stack) -> None:
    """More of them than the pool has clients, each with its own order, and every record once."""
    stack.create_topic("shared", 1)
    url = f"{stack.base_url}{stack.cluster}/topics/shared/records"
    failures: list[Any] = []

    def produce(stream_number: int) -> None:
        body = b"".join(b'{"value":{"type":"JSON","data":[%d,%d]}}' % (stream_number, number) for number in range(300))
        answer = httpx.post(url, content=body, headers=JSON, timeout=60)
        failures.extend(report for report in reports(answer.text) if report["error_code"] != 200)

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    values = [json.loads(record[3]) for record in stored(stack, "shared", 0)]
    for number in range(10):
        assert [value[1] for value in values if value[0] == number] == list(range(300))
    assert PRODUCE.clients_max == 4
