"""The comparison of new ratios to Apache Kafka with those of the checked-in table, with a wide margin.

Short runs on a shared machine vary by a third. A ratio that has fallen to less than `MARGIN` of its old value is no
noise. Figures that are not ratios depend on the machine and are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from results import Figure, figures

MARGIN = 0.6


def regressions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each regression; a workload that fails now is one."""
    was = {_key(figure): figure for figure in figures(before)}
    if not was:
        yield "there is no checked-in table to compare with"
    for figure in figures(after):
        if figure.error:
            yield f"{figure.workload}: failed: {figure.error}"
            continue
        old = was.get(_key(figure))
        if old is None or old.ratio is None or figure.ratio is None:
            continue
        more, less = (figure.ratio, old.ratio) if figure.better == "more" else (old.ratio, figure.ratio)
        if more < MARGIN * less:
            yield (
                f"{figure.workload}, {figure.measure}, {figure.layout.value}: "
                f"{figure.ratio:.2f} of Apache Kafka, in the table {old.ratio:.2f}"
            )


def _key(figure: Figure) -> tuple[str, str, str]:
    return figure.workload, figure.measure, figure.layout
