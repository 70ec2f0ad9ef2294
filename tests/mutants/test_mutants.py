"""All code and tests that mutants.toml names exist. `make mutants`, which takes minutes, would find out later."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
MUTANTS = tomllib.loads((TOP / "tests/mutants/mutants.toml").read_text())["mutant"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[each["name"] for each in MUTANTS])
def test_a_mutant_applies_and_its_tests_are_there(mutant):
    assert (TOP / mutant["file"]).read_text().count(mutant["replace"]) == mutant.get("times", 1)
    assert mutant["tests"]
    for test in mutant["tests"]:
        path, *names = test.partition("[")[0].split("::")
        defined = (TOP / path).read_text()
        assert all(re.search(rf"\b(class|def) {name}\b", defined) for name in names), test
