"""The ranges in which a batch's refused records are read again never leave the batch."""

import pytest
from spark_etl.letters.refusals import ranges

pytestmark = pytest.mark.etl

START = {"a": {0: 100, 1: 0}, "b": {0: 5000}}
END = {"a": {0: 900, 1: 300}, "b": {0: 5100}}


def test_ranges_reach_from_the_first_block_to_the_last_within_the_batch() -> None:
    noted = [("a", 0, 3), ("a", 0, 0), ("a", 1, 0), ("b", 0, 19)]
    assert ranges(noted, START, END) == {"a": {0: (100, 900), 1: (0, 256)}, "b": {0: (5000, 5100)}}
    assert ranges([("a", 0, 1)], START, END) == {"a": {0: (256, 512)}}


def test_a_partition_without_a_known_start_has_no_range() -> None:
    assert ranges([("a", 0, 1), ("a", 2, 0)], START, {"a": {0: 900, 2: 10}}) is None
