"""Where records go when their producer does not say."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.client.partitioner import Partitioner, murmur2
from support.late import kafka_python


@given(st.binary(max_size=40))
def test_murmur2_is_kafkas(key):
    assert murmur2(key) == kafka_python.partitioner.default.murmur2(key)


@pytest.mark.parametrize(
    ("key", "value"),  # from Kafka's own UtilsTest
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_murmur2_of_known_keys(key, value):
    assert murmur2(key) == value & 0xFFFFFFFF


def test_a_key_always_goes_to_the_same_partition():
    partitioner = Partitioner(1000)
    chosen = {key: partitioner.partition("t", key, (0, 1, 2, 3), 10) for key in (b"a", b"b", b"c", b"d")}
    assert chosen == {key: (murmur2(key) & 0x7FFFFFFF) % 4 for key in chosen}


def test_records_without_key_stick_for_a_batch_and_move_on():
    partitioner = Partitioner(100)
    chosen = [partitioner.partition("t", None, (0, 1, 2), 50) for _ in range(8)]
    pairs = [tuple(chosen[i : i + 2]) for i in range(0, 8, 2)]
    assert all(first == second for first, second in pairs)
    assert all(before != after for before, after in itertools.pairwise(pairs))


def test_a_partition_that_is_gone_is_left():
    partitioner = Partitioner(10**6)
    partitioner.partition("t", None, (5,), 1)
    assert partitioner.partition("t", None, (7,), 1) == 7
