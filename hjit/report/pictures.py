"""Pictures of Graphs for notebooks: SVG without other packages."""

from __future__ import annotations

import html
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hjit.trace.ir.graph import Graph, Input, Stage

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 190, 44, 24, 46, 12
_COLOURS = {"input": "#dbeafe", "stage": "#f1f5f9", "output": "#dcfce7"}


def graph_svg(graph: Graph) -> str:
    """The stages of a Graph as boxes, in layers from inputs to outputs, with an arrow for each load."""
    reads = {s.name: [n for n in dict.fromkeys(x.source for x in s.loads) if n != s.name] for s in graph.stages}
    layer: dict[str, int] = {i.name: 0 for i in graph.inputs}
    for s in graph.stages:
        layer[s.name] = 1 + max((layer[n] for n in reads[s.name]), default=0)
    rows: dict[int, list[str]] = {}
    for name, k in layer.items():
        rows.setdefault(k, []).append(name)
    place = {
        n: (MARGIN + j * (BOX_WIDTH + GAP_X), MARGIN + k * (BOX_HEIGHT + GAP_Y))
        for k, names in rows.items()
        for j, n in enumerate(names)
    }
    width = 2 * MARGIN + max((len(names) for names in rows.values()), default=1) * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + (max(rows, default=0) + 1) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    arrow = f"hjit-arrow-{zlib.crc32(str(graph).encode()):08x}"  # pages have several pictures
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<defs><marker id="{arrow}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#64748b"/></marker></defs>',
    ]
    for name, sources in reads.items():
        x, y = place[name]
        for n in sources:
            a, b = place[n]
            parts.append(
                f'<line x1="{a + BOX_WIDTH // 2}" y1="{b + BOX_HEIGHT}" x2="{x + BOX_WIDTH // 2}" y2="{y}" '
                f'stroke="#64748b" marker-end="url(#{arrow})"/>'
            )
    shapes: dict[str, Input | Stage] = {i.name: i for i in graph.inputs}
    shapes.update((s.name, s) for s in graph.stages)
    for name, (x, y) in place.items():
        kind = "output" if name in graph.outputs else "stage" if name in reads else "input"
        thing = shapes[name]
        about = f"{thing.dtype}[{', '.join(map(str, thing.shape))}]"
        parts.append(
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5" '
            f'fill="{_COLOURS[kind]}" stroke="#64748b"/>'
        )
        parts.append(f'<text x="{x + 8}" y="{y + 18}" fill="#0f172a" font-weight="bold">{html.escape(name)}</text>')
        parts.append(f'<text x="{x + 8}" y="{y + 35}" fill="#475569">{html.escape(about[:30])}</text>')
    return "\n".join([*parts, "</svg>"])
