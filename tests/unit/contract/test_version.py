"""The version that both ends of a connection must share."""

import re
import zlib
from importlib import import_module
from pkgutil import iter_modules

import broker_contract
from broker_contract.append_items import put_append
from broker_contract.data import (
    AheadRead,
    AheadRequest,
    AheadResponse,
    Append,
    AppendedPartition,
    AppendResponse,
    Cancel,
    FrameReceipt,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    Slice,
    TopicIdPartition,
)
from broker_contract.frames import put_item
from broker_contract.version import CONTRACT_VERSION

PLACE = TopicIdPartition("topic", 3, bytes(range(16)))
READ = ReadRequest(7, "client", 500, 1, 1 << 20, 1, True, [ReadPartition(PLACE, 1 << 40, 1 << 16, 5)])
SLICE = Slice("topic-3/00000000000000000000.log", 1 << 50, 1 << 33, 4096)
#: An item of every kind, with every field.
ITEMS = (
    Append(7, "client", 9, -1, 1000, [PLACE], [b"one", b"two"]),
    Append(7, None, 9, 1, 1000, [PLACE, PLACE._replace(partition=4)], [b"one", b""], "transactional"),
    AppendResponse([AppendedPartition(0, 1 << 40, -1, 5), AppendedPartition(0, 9, 1 << 41, 5)]),
    AppendResponse([AppendedPartition(87, -1, -1, -1, "refused", ((3, "bad"), (4, None)))]),
    READ,
    ReadResponse([ReadResult(0, 9, 8, 7, [(1, 2)], [SLICE], b""), ReadResult(1, records=b"records")]),
    Cancel(),
    FrameReceipt(),
    AheadRequest(READ, 4),
    AheadResponse(3, 1 << 60, 9, 8, 7, [AheadRead(1 << 40, [SLICE])]),
)


def test_the_version_follows_the_messages():
    names = sorted(each.name for each in iter_modules(broker_contract.__path__) if each.name.endswith("_pb2"))
    messages = [import_module(f"broker_contract.{name}").DESCRIPTOR.serialized_pb for name in names]
    assert len(messages) == 10
    assert CONTRACT_VERSION.partition(".")[2] == f"{zlib.crc32(b''.join(messages)):08x}"
    assert re.fullmatch(r"\d+\.[0-9a-f]{8}", CONTRACT_VERSION)  # a word of a user agent


def test_a_changed_layout_of_frames_needs_another_number():
    """Raise `_LAYOUT` of version.py by one when this fails, and then write both numbers here."""
    parts = []
    for number, item in enumerate(ITEMS):
        put_item(parts, number, item)
    put_append(parts, len(ITEMS), ITEMS[0], 1 << 20)
    checksum = zlib.crc32(b"".join(parts))
    assert (CONTRACT_VERSION.partition(".")[0], f"{checksum:08x}") == ("3", "4e6a725e")
