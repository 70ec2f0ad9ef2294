"""Texts of the command line: times, ranges of offsets, properties of clients, records in JSON."""

import asyncio
import os
import ssl
import subprocess
import sys
import time

import pytest
from millrace.cli.client_properties import CLIENT, CONSUMER, MEMBER, PRODUCER, read_properties, security
from millrace.cli.errors import CliError
from millrace.cli.kafka import settings
from millrace.cli.names import matching
from millrace.cli.offset_range import OffsetRange, Point, offset_range
from millrace.cli.output_pipe import OutputPipe
from millrace.cli.record_format import NewRecord, from_json, from_line
from millrace.cli.times import milliseconds
from protocol_lib.client import Consumer, Producer, SaslPlain, SaslScram, ScramMechanism

NOON = 1_769_860_800_000  # 2026-01-31T12:00:00Z
pytestmark = pytest.mark.usefixtures("home")


def test_times():
    same = ("1769860800000", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "2026-01-31T13:00+01:00")
    assert {milliseconds(text) for text in same} == {NOON}
    assert milliseconds("2026-01-31") == NOON - 43_200_000
    # wall clock: relative times count from it
    assert abs(milliseconds("-2h") - (time.time() * 1000 - 7_200_000)) < 10_000
    for wrong in ("", "noon", "-1", "-1w", "1969-12-31", "1e3", "-999999999d", "9" * 19, "²"):
        with pytest.raises(ValueError, match="is no time"):
            milliseconds(wrong)


BEGINNING, END = Point("beginning"), Point("end")


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [
        ("beginning", BEGINNING, None),
        ("start", BEGINNING, None),
        ("end", END, None),
        ("7", Point("offset", 7), None),
        ("-7", Point("last", 7), None),
        ("@5", Point("time", 5), None),
        ("7:", Point("offset", 7), None),
        (":7", BEGINNING, Point("offset", 7)),
        ("7:end", Point("offset", 7), END),
        ("-7:-2", Point("last", 7), Point("last", 2)),
        ("@2026-01-31T12:00:00Z", Point("time", NOON), None),
        ("@2026-01-31T12:00:00Z:9", Point("time", NOON), Point("offset", 9)),
        ("@2026-01-31T11:59:00:@2026-01-31T12:00:00Z", Point("time", NOON - 60_000), Point("time", NOON)),
        ("@2026-01-31T12:00:@1769860800000", Point("time", NOON), Point("time", NOON)),
    ],
)
def test_ranges_of_offsets(text, start, stop):
    assert offset_range(text, NOON + 1) == OffsetRange(start, stop)


@pytest.mark.parametrize("text", ["", ":", "stored", "1:2:3", "1:x", "x:1", "@", "@x", "1" * 19, "--1", "1.5", "@-1:x"])
def test_texts_that_are_no_range(text):
    with pytest.raises(CliError, match="is neither beginning, end, N"):
        offset_range(text, NOON)


def test_an_end_in_the_future_is_refused():
    with pytest.raises(CliError, match="still to come"):
        offset_range(f"5:@{NOON + 1}", NOON)


@pytest.mark.parametrize("text", ["5:2", f"@{NOON}:@{NOON - 1}"])
def test_an_end_before_the_beginning_is_refused(text):
    with pytest.raises(CliError, match="ends before it begins"):
        offset_range(text, NOON)


def test_a_point_in_a_log():
    def offsets(point):
        return [point.offset(10, 20, at) for at in (15, None)]

    assert offsets(BEGINNING) == [10, 10]
    assert offsets(END) == [20, 20]
    assert offsets(Point("offset", 5)) == [10, 10]
    assert offsets(Point("offset", 25)) == [25, 25]
    assert offsets(Point("last", 3)) == [17, 17]
    assert offsets(Point("last", 30)) == [10, 10]
    assert offsets(Point("time", NOON)) == [15, 20]


def test_names_match_as_a_whole():
    assert matching(["a.", "b"], ["a", "ab", "abc", "b", "bb"], "topics") == ["ab", "b"]
    for texts in (["("], ["(?i)a", "b"], ["a" * 10 + "("]):
        with pytest.raises(CliError, match="is no regular expression"):
            matching(texts, ["a"], "topics")


async def test_properties_are_arguments_of_the_clients():
    """Every name leads to an argument that the class has."""
    values = {"acks": "1", "isolation.level": "read_committed", "enable.idempotence": "false"}
    values |= {"check.crcs": "true", "enable.auto.commit": "true"}
    for table, build in (
        ({**CONSUMER, **MEMBER}, lambda given, client: Consumer(client, group_id="g", **given)),
        (PRODUCER, lambda given, client: Producer(client, **given)),
    ):
        texts = [f"{name}={values.get(name, 500)}" for name in (*CLIENT, *table)]
        found = read_properties(texts, table)
        assert {*found.client, *found.more} == {argument for argument, _ in (*CLIENT.values(), *table.values())}
        build(found.more, settings("h:1", found))
    found = read_properties(["request.timeout.ms=7", "client.id=me"])
    assert settings("h:1", found).request_timeout_ms == 7
    assert settings("h:1", found, metadata_max_age_ms=9, client_id="other").client_id == "me"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fetch.mix.bytes=1", "fetch.mix.bytes is no property of this client; it has check.crcs, client.id"),
        ("linger.ms=1", "linger.ms is no property of this client"),
        ("group.id=g", "group.id is the option --group"),
        ("session.timeout.ms=1", "session.timeout.ms needs --group"),
        ("fetch.min.bytes=0", "fetch.min.bytes=0 is not a number from 1 to 2147483647"),
        ("fetch.min.bytes=x", "fetch.min.bytes=x is not a number from 1"),
        ("isolation.level=all", "isolation.level=all is not read_uncommitted or read_committed"),
        ("client.id", "'client.id' is not NAME=VALUE"),
        ("sasl.password:hun=ter2", "sasl.password… is no property of this client"),
    ],
)
def test_properties_that_are_refused(text, reason):
    with pytest.raises(CliError, match=f"^-X: {reason}") as refused:
        read_properties([text], CONSUMER)
    assert refused.value.status == 2


def test_properties_of_security():
    login = {"sasl.username": "u", "sasl.password": "p"}
    plain = security({"security.protocol": "SASL_PLAINTEXT", **login})
    assert plain == {"sasl": SaslPlain("u", "p")}
    scram = security({"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-256", **login})
    assert scram.pop("sasl") == SaslScram("u", "p", ScramMechanism.SHA_256)
    assert isinstance(scram["tls"], ssl.SSLContext)
    assert "p'" not in repr(read_properties(["sasl.password=p"]))
    for wrong in (
        {"security.protocol": "TLS"},
        {"sasl.username": "u"},
        {"ssl.ca.location": "/x"},
        {"security.protocol": "SSL", "ssl.ca.location": "/nowhere"},
        {"security.protocol": "SASL_SSL", "sasl.username": "u"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", **login},
        {"security.protocol": "SASL_SSL", "sasl.oauthbearer.client.id": "a", **login},
        {"security.protocol": "SSL", "sasl.oauthbearer.client.id": "a"},
    ):
        with pytest.raises(CliError, match="-X: "):
            security(wrong)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"value": {"a": 1.10}}', b'{"a": 1.10}'),
        (b' {"value":1.10 , "key":null}', b"1.10"),
        (b'{"value": 1, "value": [1e5, "\\u00e9,}"] }', b'[1e5, "\\u00e9,}"]'),
        (b'{"key": "k", "headers": [], "value": true}', b"true"),
        (b'{"value": "1.10"}', b"1.10"),
        (b'{"value": null, "topic": "t", "partition": 1, "offset": 2, "timestamp": 3}', None),
    ],
)
def test_a_value_keeps_the_letters_that_it_has_in_the_line(line, value):
    assert from_json(line, 1).value == value


def test_a_line_of_text_with_nulls():
    assert from_line(b"", None, null_if_empty=True) == NewRecord(None)
    assert from_line(b":v", b":", null_if_empty=True) == NewRecord(b"v", None)
    assert from_line(b"k:", b":", null_if_empty=True) == NewRecord(None, b"k")
    assert from_line(b"k:", b":") == NewRecord(b"", b"k")


def test_a_closed_standard_input_is_named():
    command = f"{sys.executable} -m millrace produce t --kafka localhost:1 <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "millrace: standard input is closed\n")


async def test_output_goes_on_while_its_reader_stands():
    """The event loop goes on, also where another program has made the pipe one that does not block."""
    for blocks in (True, False):
        reads, writes = os.pipe()
        os.set_blocking(writes, blocks)
        output = OutputPipe(writes)
        writing = output.write(b"x" * 300_000)
        await asyncio.sleep(0.05)
        assert not writing.done()
        received = await asyncio.to_thread(_received, reads, 300_000)
        await asyncio.wait_for(writing, 30)
        assert received == b"x" * 300_000
        os.close(reads)
        with pytest.raises(BrokenPipeError):
            await output.write(b"y")
        os.close(writes)


def _received(descriptor, count):
    received = bytearray()
    while len(received) < count:
        received += os.read(descriptor, 65536)
    return received
