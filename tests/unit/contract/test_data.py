"""Outcomes of appends: packed ones equal those that are objects, and offsets are read from both alike."""

import pytest
from broker_contract.append_items import put_append_response
from broker_contract.data import OUTCOME, AppendedPartition, AppendOutcome, AppendResponse, Buffer, PackedOutcomes
from broker_contract.frames import read_items

OFFSETS = [(10, -1, 0), (20, 1_700_000_000_000, 5)]
OBJECTS = [AppendedPartition(0, *each) for each in OFFSETS]
PACKED = PackedOutcomes(b"".join(OUTCOME.pack(*each) for each in OFFSETS))


@pytest.mark.parametrize("outcomes", [OBJECTS, PACKED])
def test_offsets_of_outcomes_without_errors(outcomes: list[AppendOutcome] | PackedOutcomes) -> None:
    offsets = AppendResponse(outcomes).offsets()
    assert offsets is not None
    assert list(offsets) == OFFSETS


@pytest.mark.parametrize("at", range(3))
def test_one_refused_batch_leaves_no_offsets(at: int) -> None:
    outcomes = [*OBJECTS[:at], AppendedPartition(2), *OBJECTS[at:]]
    assert AppendResponse(outcomes).offsets() is None


def test_packed_outcomes_are_a_sequence_of_outcomes() -> None:
    assert OBJECTS == PACKED
    assert [AppendedPartition(0, 10, -1, 1), OBJECTS[1]] != PACKED
    assert (len(PACKED), PACKED[1], PACKED[:1], PACKED[-1]) == (2, OBJECTS[1], OBJECTS[:1], OBJECTS[1])


def test_outcomes_without_errors_are_decoded_as_they_travel() -> None:
    parts: list[Buffer] = []
    put_append_response(parts, 5, AppendResponse(OBJECTS))
    ((call_id, response),) = read_items(b"".join(parts))
    assert isinstance(response, AppendResponse)
    assert isinstance(response.outcomes, PackedOutcomes)
    assert (call_id, response.outcomes.packed) == (5, PACKED.packed)
