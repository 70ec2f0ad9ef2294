"""Samples of topics and groups: what storage keeps, and what it answers with."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from broker_contract import administration_pb2 as pb
from storage_svc.rpc import samples as samples_module
from storage_svc.rpc.samples import SAMPLES, Samples


def log(topic: str, start: int, end: int, *, withheld: bool = False) -> Any:
    return SimpleNamespace(
        topic=topic,
        withheld=withheld,
        offline=None,
        high_watermark=end,
        log_start_offset=start,
        appended_bytes=end * 100,
        segments=SimpleNamespace(size_bytes=end * 10),
    )


def sampler(
    logs: dict[tuple[str, int], Any], groups: dict[str, dict[tuple[str, int], int]], clock: Sequence[float] = (0.0,)
) -> Samples:
    """Return the sampler of a storage of these logs, and of groups with these committed offsets."""
    found = {
        name: [(key, SimpleNamespace(offset=offset)) for key, offset in offsets.items()]
        for name, offsets in groups.items()
    }
    hosted = {name: SimpleNamespace(entity=SimpleNamespace(protocol_type="connect" * (name == "c"))) for name in groups}
    coordinator = SimpleNamespace(
        is_loading=lambda: False,
        groups=hosted,
        offsets=SimpleNamespace(fetch=lambda group_id, _wanted: (0, found[group_id])),
    )
    folder = SimpleNamespace(logs=logs, root="/")
    return Samples(folder, coordinator, lambda: 5, lambda: clock[0])  # type: ignore[arg-type]  # of both only what it reads


def rows_of(sample: pb.DescribeSamplesResponse.Sample) -> pb.SampleRows:
    return pb.SampleRows.FromString(zlib.decompress(sample.rows))


async def test_a_sample_has_sums_and_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {("a", 0): log("a", 2, 10), ("a", 1): log("a", 0, 5), ("b", 0): log("b", 0, 9, withheld=True)}
    groups = {"g": {("a", 0): 4, ("a", 1): 99, ("gone", 0): 1, ("b", 0): 1}, "none": {}, "c": {("a", 0): 1}}
    samples = sampler(logs, groups)
    await samples.take()
    (sample,) = samples.after(0, 0).samples
    assert (sample.number, sample.at_ms) == (1, 5)
    assert sample.total_bytes >= sample.usable_bytes > 0
    rows = rows_of(sample)
    assert list(rows.topics) == [
        pb.SampleRows.Topic(name="a", end_offsets=15, records=13, bytes=150, appended_bytes=1500)
    ]
    assert list(rows.groups) == [pb.SampleRows.Group(group_id="g", lag=6)]
    monkeypatch.setattr(samples_module, "ROWS_MAX", 1)
    logs["d", 0] = log("d", 0, 1)
    groups["g2"] = {}
    await samples.take()
    assert [each.name for each in rows_of(samples.after(0, 0).samples[1]).topics] == ["a"]


async def test_lag_has_an_age_and_records_that_were_deleted_have_none() -> None:
    clock = [100.0]
    logs = {("a", 0): log("a", 0, 10), ("a", 1): log("a", 0, 5), ("b", 0): log("b", 0, 9, withheld=True)}
    groups = {"g": {("a", 0): 4, ("a", 1): 5, ("gone", 0): 1, ("b", 0): 1}, "none": {}}
    samples = sampler(logs, groups, clock)
    await samples.take()
    clock[0] += 15
    await samples.take()
    assert list(rows_of(samples.after(0, 0).samples[1]).groups) == [
        pb.SampleRows.Group(group_id="g", lag=6, lag_ms=15_000)
    ]
    partition = pb.DescribeLagTimesResponse.Partition
    clock[0] += 1
    found = await samples.lag_times(["g", "none"])
    rows = [partition(topic="a", partition=0, lag_ms=16_000), partition(topic="a", partition=1)]
    assert [list(group.partitions) for group in found.groups] == [rows, []]
    logs["a", 0].log_start_offset = 10
    found = await samples.lag_times(["g"])
    assert found.groups[0].partitions[0].lag_ms == 0


async def test_bytes_sent_are_forgotten_with_their_topic() -> None:
    logs = {("a", 0): log("a", 0, 1)}
    samples = sampler(logs, {})
    for _ in range(2):
        samples.add_sent({"a": 5, "gone": 7})
    await samples.take()
    assert [each.sent_bytes for each in rows_of(samples.after(0, 0).samples[0]).topics] == [10]
    assert samples._sent == {"a": 10}


async def test_samples_are_read_a_few_at_a_time_and_after_a_known_one() -> None:
    samples = sampler({}, {})
    for _ in range(SAMPLES + 1):
        await samples.take()
    first = samples.after(0, 0)
    assert ([each.number for each in first.samples], first.has_more) == ([2, 3, 4, 5], True)
    last = samples.after(first.run_id, SAMPLES - 1)
    assert ([each.number for each in last.samples], last.has_more) == ([SAMPLES, SAMPLES + 1], False)
    # The numbers of another run mean nothing here.
    assert samples.after(first.run_id - 1, SAMPLES).samples[0].number == 2


async def test_groups_without_offsets_are_looked_at_in_turns() -> None:
    """A hundred thousand of them would stop the event loop."""
    samples = sampler({}, {f"g{each}": {} for each in range(2_000)})
    task, turns = asyncio.create_task(samples._add_groups(pb.SampleRows())), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 9
