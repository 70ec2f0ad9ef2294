"""The bench's driver: a broker has the records that it reports as sent."""

import struct
from collections.abc import Iterator

import crc32c
import millrace
import pytest
from flood import Flood, _SequencedBatch, produce
from hypothesis import given
from hypothesis import strategies as st
from raw import batch
from readback import check

FLOODS = {
    "alone": Flood("alone", 5_000, depth=7),
    "idempotent": Flood("idempotent", 5_000, depth=3, idempotent=True, acks=-1),
    "together": Flood("together", 300, 100, connections=3, depth=5, partitions=2),
    "idempotent-together": Flood("idempotent-together", 300_000, connections=4, depth=5, idempotent=True, acks=-1),
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with millrace.Broker(topics=",".join(f"{name}:{flood.partitions}" for name, flood in FLOODS.items())) as broker:
        yield broker.bootstrap_servers


@given(st.integers(0, 2**31 - 1))
def test_the_crc_of_a_patched_sequence_is_that_of_the_bytes(sequence: int) -> None:
    first = bytearray(batch(3, 40))
    struct.pack_into(">i", first, 53, 0)
    patched = first[:]
    struct.pack_into(">i", patched, 53, sequence)

    assert _SequencedBatch(bytes(first)).crc(sequence) == crc32c.crc32c(bytes(patched[21:]))


@pytest.mark.parametrize("name", FLOODS)
def test_every_record_arrives_once(address: str, name: str) -> None:
    flood, requests = FLOODS[name], 41

    figures, data = produce(address, flood, requests)

    shares = flood.shares(requests)
    assert figures.requests == sum(shares) == requests
    for partition in range(flood.partitions):
        records = sum(shares[partition :: flood.partitions]) * flood.records
        check(address, name, partition, records, records, data)
