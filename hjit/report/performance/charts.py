"""Charts of a report as SVG, without other packages. A table next to each chart has the same data."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

COLOURS: Mapping[str, str] = {
    "compute": "#2563eb", "loads": "#16a34a", "stores": "#d97706", "overhead": "#9333ea",
    "time": "#2563eb", "limit": "#94a3b8",
}  # fmt: skip
BAR, GAP, NAMES, WIDTH = 18, 8, 150, 360
SIDE, MARGIN = 260, 56
TICKS = (1, 2, 5)


def bars(label: str, rows: Sequence[tuple[str, Mapping[str, float]]], unit: str) -> str:
    """A bar for each row, made of parts in `COLOURS`; the longest is as wide as the chart."""
    longest = max((sum(parts.values()) for _, parts in rows), default=0.0) or 1.0
    kinds = [k for k in COLOURS if any(k in parts for _, parts in rows)]
    found: list[str] = []
    for n, (name, parts) in enumerate(rows):
        y, x = n * (BAR + GAP) + 26, float(NAMES)
        found.append(_text(NAMES - 8, y + 13, name if len(name) <= 20 else f"{name[:19]}…", "end"))
        for kind in kinds:
            width = parts.get(kind, 0.0) / longest * WIDTH
            if width > 0:
                title = f"<title>{html.escape(f'{name}, {kind}: {parts[kind]:.4g} {unit}')}</title>"
                place = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}"'
                found.append(f'<rect {place} fill="{COLOURS[kind]}">{title}</rect>')
            x += width
        found.append(_text(x + 6, y + 13, f"{sum(parts.values()):.3g} {unit}"))
    legend = "".join(
        f'<rect x="{NAMES + 90 * k}" y="2" width="12" height="12" fill="{COLOURS[kind]}"/>'
        + _text(NAMES + 90 * k + 17, 12, kind)
        for k, kind in enumerate(kinds)
    )
    return _svg(label, NAMES + WIDTH + 110, len(rows) * (BAR + GAP) + 30, legend + "".join(found))


def scatter(label: str, points: Sequence[tuple[str, float, float, bool]]) -> str:
    """Measured against predicted milliseconds, on logarithmic axes of one scale: on the diagonal they agree.

    Args:
        points: name, predicted, measured, and whether it was chosen.
    """
    values = [v for _, a, b, _ in points for v in (a, b) if v > 0]
    if not values:
        return ""
    low, high = math.log10(min(values) * 0.8), math.log10(max(values) * 1.25)

    def at(v: float) -> float:
        return (math.log10(v) - low) / (high - low) * SIDE

    parts = [
        f'<rect x="{MARGIN}" y="10" width="{SIDE}" height="{SIDE}" fill="none" stroke="#64748b"/>',
        f'<line x1="{MARGIN}" y1="{10 + SIDE}" x2="{MARGIN + SIDE}" y2="10" stroke="#94a3b8" stroke-dasharray="4 3"/>',
    ]
    for tick in _ticks(low, high):
        x, y = MARGIN + at(tick), 10 + SIDE - at(tick)
        parts.append(f'<line x1="{x:.1f}" y1="{10 + SIDE}" x2="{x:.1f}" y2="{14 + SIDE}" stroke="#64748b"/>')
        parts.append(_text(x, 26 + SIDE, f"{tick:g}", "middle"))
        parts.append(f'<line x1="{MARGIN - 4}" y1="{y:.1f}" x2="{MARGIN}" y2="{y:.1f}" stroke="#64748b"/>')
        parts.append(_text(MARGIN - 7, y + 4, f"{tick:g}", "end"))
    for name, predicted, measured, is_chosen in points:
        x, y = MARGIN + at(predicted), 10 + SIDE - at(measured)
        colour, radius = ("#f97316", 6) if is_chosen else ("#2563eb", 4)
        title = f"<title>{html.escape(f'{name}: predicted {predicted:.4g} ms, measured {measured:.4g} ms')}</title>"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" stroke="#fff">{title}</circle>')
        parts.append(_text(x + 9, y + 4, f"{name}{', chosen' if is_chosen else ''}"))
    parts.append(_text(MARGIN + SIDE / 2, 44 + SIDE, "predicted, ms", "middle"))
    parts.append(
        f'<text x="14" y="{10 + SIDE / 2}" text-anchor="middle" fill="currentColor" '
        f'transform="rotate(-90 14 {10 + SIDE / 2})">measured, ms</text>'
    )
    return _svg(label, MARGIN + SIDE + 150, SIDE + 54, "".join(parts))


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two powers of ten."""
    return [
        n * 10.0**k
        for k in range(math.floor(low), math.ceil(high) + 1)
        for n in TICKS
        if low <= math.log10(n * 10.0**k) <= high
    ]


def _svg(label: str, width: float, height: float, inside: str) -> str:
    return (
        f'<svg role="img" aria-label="{html.escape(label, quote=True)}" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="sans-serif" font-size="12">{inside}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor">{html.escape(text)}</text>'
