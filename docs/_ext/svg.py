"""Charts of ratios and of points, as SVG: bars on a logarithmic axis that begin at 1, and a diagonal."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

COLOURS = ("#2563eb", "#f97316", "#16a34a", "#9333ea", "#0891b2", "#be123c", "#64748b")
NAMES, WIDTH, BAR, GAP, LABEL = 190, 480, 9, 8, 48
SIDE, MARGIN = 420, 64
HEAD = 34  # of the legend


@dataclass(frozen=True, slots=True)
class Ratio:
    """A median with its quartiles, where there are any."""

    median: float
    low: float | None = None
    high: float | None = None


Point = tuple[str, float, float]  # what it is, across, up


def ratios(about: str, axis: str, rows: Mapping[str, Mapping[str, Ratio]]) -> str:
    """Bars by row and series, to the right of a line at 1 where they are more than that.

    Args:
        about: what the picture shows, for those who cannot see it.
        axis: what the numbers are.
        rows: by name, then by series; a series may be missing in a row.
    """
    series = list(dict.fromkeys(s for bars in rows.values() for s in bars))
    values = [v for bars in rows.values() for r in bars.values() for v in (r.median, r.low, r.high) if v]
    low, high = math.log(min(*values, 0.9) / 1.05), math.log(max(*values, 1.1) * 1.05)

    def at(value: float) -> float:
        return NAMES + (math.log(value) - low) / (high - low) * WIDTH

    row = len(series) * BAR + GAP
    bottom = HEAD + len(rows) * row
    parts = [_legend(series)]
    for tick in _ticks(low, high):
        parts.append(_line(at(tick), HEAD - 4, at(tick), bottom, "#e2e8f0"))
        parts.append(_text(at(tick), bottom + 14, f"{tick:g}", "middle"))
    for k, (name, bars) in enumerate(rows.items()):
        top = HEAD + k * row
        parts.append(_text(NAMES - 8, top + (row - GAP) / 2 + 4, name, "end"))
        for j, kind in enumerate(series):
            if kind in bars:
                parts.append(_bar(at, bars[kind], top + j * BAR, COLOURS[j], f"{name}, {kind}"))
    parts.append(_line(at(1), HEAD - 4, at(1), bottom, "#0f172a"))
    parts.append(_text(NAMES + WIDTH / 2, bottom + 32, axis, "middle"))
    return _svg(about, NAMES + WIDTH + LABEL, bottom + 40, parts)


def _bar(at: Callable[[float], float], ratio: Ratio, y: float, colour: str, name: str) -> str:
    first, end = sorted((at(1), at(ratio.median)))
    title = f"<title>{html.escape(f'{name}: {ratio.median:.2f}')}</title>"
    found = f'<rect x="{first:.1f}" y="{y}" width="{end - first:.1f}" height="{BAR - 1}" fill="{colour}">{title}</rect>'
    reach = end
    if ratio.low is not None and ratio.high is not None:
        found += _line(at(ratio.low), y + BAR / 2 - 0.5, at(ratio.high), y + BAR / 2 - 0.5, "#0f172a")
        reach = max(end, at(ratio.high))
    return found + _text(reach + 4, y + BAR - 1, f"{ratio.median:.2f}", "start", 9)


def points(about: str, across: str, up: str, groups: Mapping[str, Sequence[Point]]) -> str:
    """Points on logarithmic axes of one scale; on the dashed diagonal both are equal."""
    values = [v for group in groups.values() for _, x, y in group for v in (x, y)]
    low, high = math.log(min(values) * 0.8), math.log(max(values) * 1.25)

    def at(value: float) -> float:
        return (math.log(value) - low) / (high - low) * SIDE

    bottom = HEAD + SIDE
    parts = [_legend(list(groups))]
    for tick in _ticks(low, high):
        x, y = MARGIN + at(tick), bottom - at(tick)
        parts += [_line(x, HEAD, x, bottom, "#e2e8f0"), _text(x, bottom + 16, f"{tick:g}", "middle")]
        parts += [_line(MARGIN, y, MARGIN + SIDE, y, "#e2e8f0"), _text(MARGIN - 6, y + 4, f"{tick:g}", "end")]
    parts.append(_line(MARGIN, bottom, MARGIN + SIDE, HEAD, "#0f172a", ' stroke-dasharray="5 4"'))
    for colour, group in reversed([*zip(COLOURS, groups.values(), strict=False)]):  # the first group on top
        for name, x, y in group:
            title = f"<title>{html.escape(f'{name}: {x:.3g}, {y:.3g}')}</title>"
            place = f'cx="{MARGIN + at(x):.1f}" cy="{bottom - at(y):.1f}" r="4"'
            parts.append(f'<circle {place} fill="{colour}" fill-opacity="0.65">{title}</circle>')
    parts.append(_text(MARGIN + SIDE / 2, bottom + 36, across, "middle"))
    turned = f'transform="rotate(-90 14 {HEAD + SIDE / 2})"'
    parts.append(_text(14, HEAD + SIDE / 2, up, "middle", 11, turned))
    return _svg(about, MARGIN + SIDE + 20, bottom + 44, parts)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between the logarithms; fewer where there are many decades."""
    decades = (high - low) / math.log(10)
    steps = (1, 1.5, 2, 3, 5, 7) if decades < 1 else (1, 2, 5) if decades < 3 else (1,)
    exponents = range(math.floor(low / math.log(10)), math.ceil(high / math.log(10)) + 1)
    return [v for d in exponents for s in steps if low <= math.log(v := s * 10.0**d) <= high]


def _legend(series: Sequence[str]) -> str:
    x, found = 8.0, []
    for colour, name in zip(COLOURS, series, strict=False):
        found.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{colour}"/>' + _text(x + 15, 17, name))
        x += 30 + 6.2 * len(name)
    return "".join(found)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 11, more: str = "") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {where} fill="#0f172a" {more}>{html.escape(text)}</text>'


def _svg(about: str, width: float, height: float, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
    style = 'style="max-width: 100%; height: auto" font-family="sans-serif" role="img"'
    return "\n".join([f'{head} {style} aria-label="{html.escape(about)}">', *parts, "</svg>"])
