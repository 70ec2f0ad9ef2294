"""The key map distinguishes keys, keeps the last offset of each, and never outgrows its bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from storage_svc.log.cleaner.key_map import SLOT_BYTES, KeyMap


@given(st.lists(st.lists(st.binary(max_size=3) | st.none(), max_size=20), max_size=20))
def test_it_knows_the_last_offset_of_each_key(batches: list[list[bytes | None]]) -> None:
    key_map = KeyMap(1 << 20, 10_000)
    last: dict[bytes, int] = {}
    positions = []
    offset = 0
    for keys in batches:
        positions.append(key_map.no_positions())
        assert key_map.put_all(keys, offset, range(len(keys)), positions[-1])
        last |= {key: offset + index for index, key in enumerate(keys) if key is not None}
        offset += len(keys)
    assert {key: key_map.latest_of(key) for key in last} == last
    assert key_map.entries == len(last)
    offset = 0
    for keys, kept_at in zip(batches, positions, strict=True):
        superseded = [index for index, key in enumerate(keys) if key is None or last[key] > offset + index]
        assert key_map.superseded(keys, offset, range(len(keys))) == superseded
        assert len(kept_at) == sum(key is not None for key in keys)
        if None not in keys:
            assert key_map.superseded_at(kept_at, offset) == superseded
        offset += len(keys)


def test_a_key_that_was_never_put_is_not_superseded() -> None:
    key_map = KeyMap(1 << 20, 10)
    key_map.put_all([b"a"], 100, [0], key_map.no_positions())
    assert key_map.superseded([b"b", b"a"], 0, [0, 1]) == [1]
    assert key_map.latest_of(b"b") == -1


def test_it_is_full_at_three_quarters_of_its_bytes() -> None:
    key_map = KeyMap(4096 * SLOT_BYTES, 1 << 40)
    assert key_map.size_bytes == 4096 * SLOT_BYTES
    positions = key_map.no_positions()
    assert key_map.put_all([b"%d" % n for n in range(3072)], 0, range(3072), positions)
    assert not key_map.put_all([b"3071", b"x"], 3072, range(2), positions)
    assert key_map.latest_of(b"3071") == 3072
    assert key_map.latest_of(b"x") == -1
    assert key_map.put_all([b"0"], 4000, [0], positions), "a key it has needs no room"


def test_it_takes_no_more_memory_than_the_keys_need() -> None:
    assert KeyMap(128 << 20, 30_000).size_bytes < 30_000 * SLOT_BYTES * 3 // 2
