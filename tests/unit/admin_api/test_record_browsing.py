"""Pages over logs of every kind: each record once, with any batches, gaps, limits and faults."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

import pytest
from admin_api.errors import ApiError
from admin_api.records import browsing
from admin_api.records.browsing import Browse, Fault, Range
from admin_api.records.conditions import Filter, parse
from admin_api.records.decoding import slices_of
from admin_api.records.limits import Work
from admin_api.records.rendering import Formats
from protocol_lib.client import FetchedBatch
from protocol_lib.internal.control_record import ControlType
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.control import EndTransactionMarker, build_marker_batch
from protocol_lib.records.record import Record, read_slices

from tests.unit.admin_api.scripted_log import ScriptedLog, client_of

Seen = list[tuple[int, int]]


def batch(first: int, count: int, *, value: bytes = b"v", **options: object) -> bytes:
    records = [Record(offset, 1000 + offset, None, value) for offset in range(first, first + count)]
    return build_batch(records, base_offset=first, **options)  # type: ignore[arg-type]


async def page(
    log: ScriptedLog,
    ranges: Sequence[Range],
    *,
    newest_first: bool = True,
    limit: int = 10,
    wanted: Filter | None = None,
    read_committed: bool = False,
    work: Work | None = None,
) -> tuple[Browse, bool]:
    async with client_of(log) as client:
        browse = Browse(
            client,
            "t",
            ranges,
            newest_first=newest_first,
            limit=limit,
            wanted=wanted or Filter(),
            formats=Formats(),
            read_committed=read_committed,
            work=work or Work(time_max_s=600),
        )
        return browse, await browse.run()


def shown(browse: Browse) -> Seen:
    rows = [json.loads(row.text) for row in browse.rows]
    return [(row["partition"], row["offset"]) for row in rows]


def whole(log: ScriptedLog) -> list[Range]:
    return [Range(partition, 0, log.end(partition)) for partition in log.batches if log.end(partition)]


def _random_log(random_: random.Random) -> tuple[ScriptedLog, dict[int, list[int]]]:
    """Return a log of up to three partitions with gaps, and the offsets of its records."""
    batches: dict[int, list[bytes]] = {}
    offsets: dict[int, list[int]] = {}
    for partition in range(random_.randint(1, 3)):
        position, batches[partition], offsets[partition] = 0, [], []
        for _ in range(random_.randint(0, 6)):
            position += random_.choice((0, 0, 1, 400))
            here = sorted(random_.sample(range(position, position + 60), random_.randint(1, 40)))
            codec = random_.choice((Codec.NONE, Codec.ZSTD))
            value = b"x" * random_.choice((1, 1, 5000))
            records = [Record(offset, random_.randint(0, 9), None, value) for offset in here]
            batches[partition].append(build_batch(records, base_offset=position, last_offset=here[-1] + 2, codec=codec))
            position = here[-1] + 3
            offsets[partition] += here
    return ScriptedLog(batches), offsets


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest", "oldest"])
@pytest.mark.parametrize("seed", range(12))
async def test_pages_show_every_record_once_and_in_order(seed: int, newest_first: bool) -> None:
    random_ = random.Random(seed)
    log, offsets = _random_log(random_)
    ranges, seen, pages = whole(log), list[tuple[int, int]](), 0
    while ranges:
        limit = random_.choice((1, 7, 40))
        work = Work(scanned_max=random_.choice((1, 50, 10_000)), time_max_s=600)
        browse, truncated = await page(log, ranges, newest_first=newest_first, limit=limit, work=work)
        assert len(browse.rows) <= limit
        assert truncated or len(browse.rows) == limit or not browse.ranges
        assert browse.faults == []
        rest = browse.ranges
        assert rest != ranges
        ranges, seen, pages = rest, seen + shown(browse), pages + 1
    for partition, expected in offsets.items():
        found = [offset for number, offset in seen if number == partition]
        assert found == (expected[::-1] if newest_first else expected)


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest", "oldest"])
async def test_partitions_are_merged_by_timestamp(newest_first: bool) -> None:
    def at(*timestamps: int) -> bytes:
        return build_batch([Record(offset, timestamp, None, b"") for offset, timestamp in enumerate(timestamps)])

    log = ScriptedLog({0: [at(10, 30, 50)], 1: [at(20, 25, 60)], 2: [at(5)]})
    browse, truncated = await page(log, whole(log), newest_first=newest_first)
    assert not truncated
    expected = [(2, 0), (0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)]
    assert shown(browse) == (expected[::-1] if newest_first else expected)


async def test_the_newest_of_a_large_partition_are_read_alone() -> None:
    log = ScriptedLog({0: [batch(first, 10, value=b"v" * 1000) for first in range(0, 5000, 10)]})
    browse, _ = await page(log, whole(log), limit=20)
    assert shown(browse) == [(0, offset) for offset in range(4999, 4979, -1)]
    assert log.fetches == [[(0, 4968)]]


async def test_one_large_batch_is_read_once() -> None:
    log = ScriptedLog({0: [batch(0, 3000)]})
    work = Work(time_max_s=600)
    browse, _ = await page(log, whole(log), limit=500, work=work)
    assert shown(browse) == [(0, offset) for offset in range(2999, 2499, -1)]
    assert (work.scanned, len(log.fetches)) == (3000, 1)
    assert browse.ranges == [Range(0, 0, 2500)]


@pytest.mark.parametrize(("newest_first", "rest"), [(True, Range(0, 0, 960)), (False, Range(0, 60, 1000))])
async def test_a_filter_that_nothing_satisfies_ends_with_the_work(newest_first: bool, rest: Range) -> None:
    log = ScriptedLog({0: [batch(first, 10, value=b"v" * 40_000) for first in range(0, 1000, 10)]})
    work = Work(scanned_max=55, time_max_s=600)
    nothing = Filter(anywhere=b"missing")
    browse, truncated = await page(log, whole(log), newest_first=newest_first, wanted=nothing, work=work)
    assert (truncated, browse.rows, browse.ranges, work.scanned) == (True, [], [rest], 60)


async def test_busy_partitions_do_not_starve_others() -> None:
    log = ScriptedLog({number: [batch(0, 3, value=b"v" * 30_000)] for number in range(40)})
    browse, truncated = await page(log, whole(log), newest_first=False, limit=120)
    assert not truncated
    assert sorted(shown(browse)) == [(number, offset) for number in range(40) for offset in range(3)]
    assert len(log.fetches) < 60


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest", "oldest"])
@pytest.mark.parametrize("read_committed", [True, False], ids=["committed", "uncommitted"])
async def test_markers_never_show_and_aborted_records_only_at_read_uncommitted(
    newest_first: bool, read_committed: bool
) -> None:
    def marker(offset: int, type_: ControlType, producer: int) -> bytes:
        end = EndTransactionMarker(type_, 0)
        return build_marker_batch(end, timestamp=1, producer_id=producer, producer_epoch=0, base_offset=offset)

    def sent(offset: int, producer: int) -> bytes:
        return batch(offset, 1, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)

    log = ScriptedLog(
        {
            0: [
                sent(0, 7),
                sent(1, 8),
                marker(2, ControlType.ABORT, 7),
                sent(3, 7),
                marker(4, ControlType.COMMIT, 8),
                marker(5, ControlType.COMMIT, 7),
                batch(6, 1),
            ]
        }
    )
    log.aborted = [(7, 0)] if read_committed else []
    browse, _ = await page(log, whole(log), newest_first=newest_first, read_committed=read_committed)
    expected = [(0, offset) for offset in ((1, 3, 6) if read_committed else (0, 1, 3, 6))]
    assert shown(browse) == (expected[::-1] if newest_first else expected)


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest", "oldest"])
async def test_a_damaged_batch_is_reported_and_the_others_show(newest_first: bool) -> None:
    damaged = bytearray(batch(2, 2))
    damaged[-8:] = b"\xff" * 8
    log = ScriptedLog({0: [batch(0, 2), bytes(damaged), batch(4, 2)]})
    browse, truncated = await page(log, whole(log), newest_first=newest_first)
    expected = [(0, offset) for offset in (0, 1, 4, 5)]
    assert not truncated
    assert [row for row in shown(browse) if row[1] not in (2, 3)] == (expected[::-1] if newest_first else expected)
    assert [(fault.partition, fault.offset) for fault in browse.faults] == [(0, 2)]


async def test_a_batch_that_decompresses_to_too_much_is_reported() -> None:
    bomb = build_batch([Record(2, 1, None, bytes(20_000_000))], base_offset=2, codec=Codec.GZIP)
    log = ScriptedLog({0: [batch(0, 2), bomb, batch(3, 1)]})
    browse, _ = await page(log, whole(log))
    assert shown(browse) == [(0, 3), (0, 1), (0, 0)]
    assert browse.faults == [Fault(0, 2, "records decompress to more than 16777216 bytes")]


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest", "oldest"])
async def test_a_batch_that_is_too_large_for_an_answer_is_reported(newest_first: bool) -> None:
    """The records after it show, too."""
    log = ScriptedLog({0: [batch(0, 2), batch(2, 1, value=bytes(17_000_000)), batch(3, 2)], 1: [batch(0, 1)]})
    browse, truncated = await page(log, whole(log), newest_first=newest_first)
    assert shown(browse) == (
        [(0, 4), (0, 3), (0, 1), (0, 0), (1, 0)] if newest_first else [(0, 0), (1, 0), (0, 1), (0, 3), (0, 4)]
    )
    assert browse.faults == [Fault(0, 2, "a record batch of more than 16777216 bytes")]
    assert (truncated, browse.ranges) == (False, [])


async def test_records_that_are_deleted_meanwhile_are_reported() -> None:
    log = ScriptedLog({0: [batch(0, 2)], 1: [batch(0, 1)]})
    log.errors = {0: 1}
    browse, _ = await page(log, whole(log))
    assert shown(browse) == [(1, 0)]
    assert browse.faults == [Fault(0, 0, "the records from here on were deleted meanwhile")]


async def test_a_topic_that_is_deleted_meanwhile() -> None:
    log = ScriptedLog({0: [batch(0, 2)]})
    log.errors = {0: 3}
    with pytest.raises(ApiError) as caught:
        await page(log, whole(log))
    assert (caught.value.status_code, caught.value.error_code) == (404, 40403)


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest", "oldest"])
async def test_the_rows_of_a_page_are_bounded_in_bytes(newest_first: bool) -> None:
    log = ScriptedLog({0: [batch(first, 5, value=b"\1" * 60_000) for first in range(0, 200, 5)]})
    ranges, seen = whole(log), list[tuple[int, int]]()
    while ranges:
        browse, _ = await page(log, ranges, newest_first=newest_first, limit=500)
        assert sum(len(row.text) for row in browse.rows) < 5_000_000
        ranges, seen = browse.ranges, seen + shown(browse)
    expected = [(0, offset) for offset in range(200)]
    assert seen == (expected[::-1] if newest_first else expected)


async def test_conditions_and_substrings_pick_records() -> None:
    records = [Record(number, 1, b"k%d" % number, b'{"n":%d}' % number) for number in range(20)]
    log = ScriptedLog({0: [build_batch(records)]})
    browse, _ = await page(log, whole(log), wanted=Filter(key=b"1", conditions=[parse("value.n >= 12")]))
    assert [offset for _, offset in shown(browse)] == [19, 18, 17, 16, 15, 14, 13, 12]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("newest_first", [True, False])
async def test_a_search_passes_over_records_and_counts_them(newest_first: bool, codec: Codec) -> None:
    """Also where the wanted bytes are those of another field, or of two records, or begin in a large one."""
    values = {7: b"a needle", 100: b"need", 150: b"x" * 3_000_000 + b"needle", 250: b"needles"}
    headers = {30: (("needle", None),), 31: (("name", b"a needle"),)}
    records = [
        Record(each, 1, b"needle" if each == 200 else b"le", values.get(each, b"x"), headers.get(each, ()))
        for each in range(300)
    ]
    log = ScriptedLog({0: [build_batch(records[:180], codec=codec), build_batch(records[180:], base_offset=180)]})
    for wanted, found in (
        (Filter(anywhere=b"needle"), [7, 30, 31, 150, 200, 250]),
        (Filter(key=b"needle"), [200]),
        (Filter(conditions=[parse("value = needles")]), [250]),
        (Filter(anywhere=b"none of them"), []),
    ):
        for start, end in ((0, 300), (10, 290), (180, 240)):
            browse, _ = await page(log, [Range(0, start, end)], newest_first=newest_first, wanted=wanted)
            expected = [each for each in found if start <= each < end]
            assert [offset for _, offset in shown(browse)] == expected[:: -1 if newest_first else 1]
            assert browse._work.scanned == end - start


async def test_batches_without_the_texts_of_a_condition_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    escaped, wide = rb'{"c\u0069ty":"K\u0069el"}', '{"city":"Kiel"}'.encode("utf-16-be")
    values = [b'{"city":"Hamburg"}', b'{"city":"Kiel"}', escaped, wide]
    log = ScriptedLog({0: [build_batch([Record(n, 1, None, value)], base_offset=n) for n, value in enumerate(values)]})
    passed = []

    async def noted(batch: FetchedBatch, wanted: bytes, skip: int) -> Iterator[tuple[int, list[Record]]]:
        passed.append(skip)
        return await slices_of(batch, wanted, skip)

    monkeypatch.setattr(browsing, "slices_of", noted)
    browse, _ = await page(log, whole(log), newest_first=False, wanted=Filter(conditions=[parse("value.city = Kiel")]))
    assert [offset for _, offset in shown(browse)] == [1, 2, 3]
    assert passed == [1, 0, 0, 0]
    assert browse._work.scanned == 4


async def test_a_search_reports_a_malformed_batch_and_shows_what_is_before() -> None:
    good = build_batch([Record(each, 1, None, b"needle %d" % each) for each in range(3)])
    bad = bytearray(build_batch([Record(each, 1, None, b"needle %d" % each) for each in range(3, 6)], base_offset=3))
    bad[-1] = 0x7E  # headers that are not there
    log = ScriptedLog({0: [good, bytes(bad)]})
    for text in (b"needle", b"nothing"):
        browse, _ = await page(log, whole(log), newest_first=False, wanted=Filter(anywhere=text))
        assert [offset for _, offset in shown(browse)] == ([0, 1, 2, 3, 4] if text == b"needle" else [])
        assert [fault[:2] for fault in browse.faults] == [(0, 3)]


async def test_the_newest_of_a_batch_come_page_by_page() -> None:
    """The records before them are passed over, and are there for the next page."""
    log = ScriptedLog({0: [batch(0, 40), batch(40, 200)]})
    ranges, seen = whole(log), list[int]()
    while ranges:
        browse, _ = await page(log, ranges, limit=7)
        seen += [offset for _, offset in shown(browse)]
        ranges = browse.ranges
    assert seen == list(range(239, -1, -1))


def test_records_at_the_start_of_a_batch_are_passed_over() -> None:
    headers = (("name", b"x"),) * 5
    written = [Record(each, 1, None, b"v", headers if each % 3 else ()) for each in range(200)]
    for skip in (0, 1, 2, 150, 199, 200):
        slices = list(read_slices(build_batch(written), skip=skip))
        assert sum(passed for passed, _ in slices) == skip
        assert [each.offset for _, records in slices for each in records] == list(range(skip, 200))
