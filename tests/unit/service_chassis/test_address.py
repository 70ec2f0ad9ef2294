import pytest
from service_chassis.address import Address, Listener, is_loopback, is_unix, parse, parse_listeners


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", Address("localhost", 9092)),
        (" 10.0.0.7:0 ", Address("10.0.0.7", 0)),
        (":9102", Address("", 9102)),
        ("[::1]:65535", Address("::1", 65535)),
        ("storage-svc.millrace.svc:50051", Address("storage-svc.millrace.svc", 50051)),
    ],
)
def test_parse(text, address):
    assert parse(text) == address
    assert str(parse(text)) == text.strip()


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "localhost:", "localhost:x", "localhost:-1", "localhost:65536", "localhost:0x10", "::1:9092",
     "local host:1", "a/b:1", "h" * 256 + ":1", "localhost:" + "9" * 5000, "localhost:²"],
)  # fmt: skip
def test_parse_refuses(text):
    with pytest.raises(ValueError, match=r"host|port|brackets"):
        parse(text)


def test_parse_listeners_keeps_order_and_upper_cases_names():
    assert parse_listeners("EXTERNAL://localhost:9092, internal://0.0.0.0:29092") == (
        Listener("EXTERNAL", Address("localhost", 9092)),
        Listener("INTERNAL", Address("0.0.0.0", 29092)),
    )


@pytest.mark.parametrize("text", ["", "localhost:9092", "A://h:1,a://h:2", "A B://h:1", "://h:1", "A://h:1,", "A://h"])
def test_parse_listeners_refuses(text):
    with pytest.raises(ValueError, match=r"."):
        parse_listeners(text)


def test_unix():
    assert is_unix("unix:/run/storage.sock")
    assert not is_unix("localhost:1")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
        ("localhost.example", False),
    ],
)
def test_addresses_that_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
