"""The answers of Apache Kafka to the table of rights, as kafka.json stores them: what is equal is there once.

    {"scenarios": [["prefix: a", …], …],
     "denying": {"Produce": {"3-12": {"0": [line, …], …}, "13-13": …}}, "allowing": …}

By broker, by case and by run of versions that answer alike, it has the lines of each answer. They are by the number of
the scenarios that get it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Lines of answers, by case, version and scenario.
Table = dict[str, dict[int, dict[str, list[str]]]]

#: The broker that denies what no ACL covers, and the one that allows it.
DENYING, ALLOWING = "denying", "allowing"
_FILE: Final = Path(__file__).with_name("kafka.json")


def read() -> dict[str, Table]:
    """Return the tables by broker."""
    stored = json.loads(_FILE.read_text())
    scenarios = stored.pop("scenarios")
    return {
        broker: {case: dict(_unpacked(runs, scenarios)) for case, runs in cases.items()}
        for broker, cases in stored.items()
    }


def _unpacked(
    runs: dict[str, dict[str, list[str]]], scenarios: list[list[str]]
) -> Iterator[tuple[int, dict[str, list[str]]]]:
    for span, groups in runs.items():
        first, last = map(int, span.split("-"))
        for version in range(first, last + 1):
            yield version, {scenario: lines for number, lines in groups.items() for scenario in scenarios[int(number)]}


def write(tables: dict[str, Table]) -> None:
    """Write the file: a line for each answer."""
    numbers: dict[tuple[str, ...], int] = {}
    text = []
    for broker, table in tables.items():
        cases = [f"  {json.dumps(case)}: {_shown(versions, numbers)}" for case, versions in table.items()]
        text.append(f" {json.dumps(broker)}: {{\n" + ",\n".join(cases) + "\n }")
    scenarios = ",\n".join(f"  {json.dumps(each)}" for each in numbers)
    _FILE.write_text(f'{{\n "scenarios": [\n{scenarios}\n ],\n' + ",\n".join(text) + "\n}\n")


def _shown(versions: dict[int, dict[str, list[str]]], numbers: dict[tuple[str, ...], int]) -> str:
    runs: list[tuple[list[int], dict[str, list[str]]]] = []
    for version, answers in sorted(versions.items()):
        if runs and runs[-1][1] == answers:
            runs[-1][0][1] = version
        else:
            runs.append(([version, version], answers))
    shown = [f'   "{first}-{last}": {{\n{_grouped(answers, numbers)}\n   }}' for (first, last), answers in runs]
    return "{\n" + ",\n".join(shown) + "\n  }"


def _grouped(answers: dict[str, list[str]], numbers: dict[tuple[str, ...], int]) -> str:
    groups: dict[tuple[str, ...], list[str]] = {}
    for scenario, lines in sorted(answers.items()):
        groups.setdefault(tuple(lines), []).append(scenario)
    shown = []
    for lines, scenarios in groups.items():
        number = numbers.setdefault(tuple(scenarios), len(numbers))
        shown.append(f'    "{number}": {json.dumps(lines)}')
    return ",\n".join(shown)
