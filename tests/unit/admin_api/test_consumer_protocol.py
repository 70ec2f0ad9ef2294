"""The decoder of member assignments: right bytes, wrong bytes, and bytes of kafka-python as an independent witness."""

import struct

import pytest
from admin_api.consumer_protocol import AssignmentError, assignment

ORDERS_0_2 = bytes.fromhex("0000 00000001 0006 6f7264657273 00000002 00000000 00000002 ffffffff")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (bytes.fromhex("0000 00000000 ffffffff"), []),
        (bytes.fromhex("0000 00000000"), []),
        (ORDERS_0_2, [("orders", 0), ("orders", 2)]),
        (b"\x00\x03" + ORDERS_0_2[2:] + b"what a later version adds", [("orders", 0), ("orders", 2)]),
        (
            bytes.fromhex("0001 00000002 0001 62 00000001 00000005 0001 61 00000002 00000001 00000000 00000000"),
            [("a", 0), ("a", 1), ("b", 5)],
        ),
    ],
)
def test_assignments(data: bytes, expected: list[tuple[str, int]]) -> None:
    assert assignment(data) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00", "cut off at byte 1"),
        (b"\xff\xff\x00\x00\x00\x00", "version -1"),
        (bytes.fromhex("0000 7fffffff"), "an array of 2147483647 entries with 0 bytes left"),
        (bytes.fromhex("0000 ffffffff"), "an array of -1 entries with 0 bytes left"),
        (bytes.fromhex("0000 00000001 ffff 00000000"), "a name of -1 bytes with 4 left"),
        (bytes.fromhex("0000 00000001 00ff 00000000"), "a name of 255 bytes with 4 left"),
        (bytes.fromhex("0000 00000001 0001 ff 00000000"), "a name that is not UTF-8"),
        (bytes.fromhex("0000 00000001 0001 61 7fffffff 0000"), "an array of 2147483647 entries with 2 bytes left"),
        (bytes.fromhex("0000 00000001 0001 61 00000001 ffffffff"), "a partition below 0"),
    ],
)
def test_what_is_not_an_assignment(data: bytes, reason: str) -> None:
    with pytest.raises(AssignmentError, match=f"^{reason}$"):
        assignment(data)


@pytest.mark.parametrize("length", range(1, len(ORDERS_0_2) - 4))
def test_every_cut_is_noticed(length: int) -> None:
    with pytest.raises(AssignmentError):
        assignment(ORDERS_0_2[:length])


def test_what_a_stock_client_writes() -> None:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

    written = ConsumerProtocolMemberAssignment(0, [("flights", [1, 0]), ("été", [7])], b"user data").encode()
    assert assignment(written) == [("flights", 0), ("flights", 1), ("été", 7)]


def test_a_large_count_costs_nothing() -> None:
    with pytest.raises(AssignmentError):
        assignment(struct.pack(">hi", 0, 2**31 - 1) + b"\0" * 100)
