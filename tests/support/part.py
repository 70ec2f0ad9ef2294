"""`pytest --part 2/3`: every third of the selected tests, from the second on."""

from __future__ import annotations

import argparse

import pytest


def part(text: str) -> tuple[int, int]:
    """Return the number and the count of parts. Raises ArgumentTypeError if there is no such part."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text} is no part, such as 2/3")
    return int(number), int(of)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", type=part, help="run every N-th test, from the K-th on: K/N")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if chosen := config.getoption("part"):
        number, of = chosen
        kept = items[number - 1 :: of]
        left_out = set(items) - set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = kept
