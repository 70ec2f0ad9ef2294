"""The ratios of the comparison as a chart (SVG), made from the JSON file alone.

Each bar is a ratio to Apache Kafka, on a scale of powers of two, with a tick at its target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from results import Figure, figures

_TITLE = "Ratio of Millrace to Apache Kafka (right of 1× Millrace is better; black tick: target)"
_TOP, _ROW, _LEFT, _WIDTH, _RIGHT = 42, 18, 600, 400, 70
_COLOURS = {True: "#2a7f4f", False: "#b3412f", None: "#5b7690"}


def chart(results: Mapping[str, Any]) -> str:
    """Draw the figures that are ratios."""
    shown = [(figure, _as_good(figure, figure.ratio)) for figure in figures(results) if figure.ratio]
    goods = [0.5, 2.0, *(good for _, good in shown)]
    low, high = math.floor(math.log2(min(goods))), math.ceil(math.log2(max(goods)))

    def place(good: float) -> float:
        share = (math.log2(good) - low) / (high - low)
        return _LEFT + min(max(share, 0.0), 1.0) * _WIDTH

    height = _TOP + _ROW * len(shown) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + _RIGHT}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="10" y="16" font-size="13">{_TITLE}</text>',
    ]
    for power in range(low, high + 1):
        x, colour = place(2.0**power), "#444444" if power == 0 else "#dddddd"
        lines.append(f'<line x1="{x:.1f}" y1="{_TOP - 4}" x2="{x:.1f}" y2="{height - 10}" stroke="{colour}"/>')
        lines.append(f'<text x="{x:.1f}" y="{_TOP - 8}" text-anchor="middle">{2.0**power:g}×</text>')
    for row, (figure, good) in enumerate(shown):
        y = _TOP + row * _ROW
        left, right = sorted((place(1.0), place(good)))
        label = f"{figure.title}, {figure.measure}; {figure.durability}; {figure.layout.value}"
        lines += [
            f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end" font-size="10">{escape(label)}</text>',
            f'<rect x="{left:.1f}" y="{y + 2}" width="{max(1.0, right - left):.1f}" height="{_ROW - 6}" '
            f'fill="{_COLOURS[figure.reached]}"/>',
            f'<text x="{right + 5:.1f}" y="{y + 11}">{good:.2f}</text>',
        ]
        if figure.must and figure.must[0] == "ratio":
            x = place(_as_good(figure, figure.must[1]))
            lines.append(f'<path d="M{x:.1f} {y}v{_ROW - 2}" stroke="#000000" stroke-width="2"/>')
    return "\n".join([*lines, "</svg>\n"])


def _as_good(figure: Figure, ratio: float) -> float:
    return ratio if figure.better == "more" else 1 / ratio
