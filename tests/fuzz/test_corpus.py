"""Inputs that `make fuzz` starts from and its earlier finds: everything in corpus/ is decoded or refused."""

from pathlib import Path

import pytest
from fuzz.decoders import DECODERS, decode_one

CORPUS = Path(__file__).with_name("corpus")
EACH = pytest.mark.parametrize("name", DECODERS)


@EACH
def test_every_input_is_decoded_or_refused(name: str) -> None:
    decoded = [decode_one(name, input_.read_bytes()) for input_ in (CORPUS / name).iterdir()]
    assert any(decoded)


@EACH
def test_every_input_cut_anywhere_is_decoded_or_refused(name: str) -> None:
    for input_ in (CORPUS / name).iterdir():
        data = input_.read_bytes()
        for end in range(0, len(data), 7):
            decode_one(name, data[:end])


def test_every_decoder_has_a_corpus() -> None:
    assert {path.name for path in CORPUS.iterdir()} == DECODERS.keys()
