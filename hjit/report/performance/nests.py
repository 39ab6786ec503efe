"""Drawings of loop nests over the image: tiles, tasks, vectors, and the buffers of what is computed inside."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hjit.sched.language.kinds import LOOP_KINDS
from hjit.sched.language.tree import Compute, Loop, Node, Root, Store, computes, dims_of
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import sizes_value

SIDE = 220  # of the drawn image's longer side
MIN_VISIBLE = 3  # of what would be too thin to be seen
MAX_GRID_LINES = 48  # of a grid: more are not drawn
MAX_DRAWN_ROWS = 8  # of a buffer that are drawn one by one
ROW, GAP, MARGIN = 9, 10, 14
INK, PAPER, BUFFER, NEW = "#0f172a", "#f8fafc", "#dbeafe", "#f97316"


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the domain of a nest.

    Attributes:
        steps: what the loops over it move by, the outermost first, with their kinds.
        tile: elements that one iteration of the nest's outer loops covers.
    """

    extent: int
    steps: tuple[tuple[str, int], ...]
    tile: int

    @property
    def vector(self) -> int:
        """Lanes; 1: no vector runs along it."""
        return next((last for (kind, _), last in zip(self.steps, self.sizes(), strict=True) if kind == "vector"), 1)

    def sizes(self) -> tuple[int, ...]:
        """What each loop runs over."""
        return (self.extent, *(step for _, step in self.steps))[: len(self.steps)]


@dataclass(frozen=True, slots=True)
class DrawnNest:
    """A child of the root as it is drawn.

    Attributes:
        stage: whose loops are outermost.
        axes: of its definition, reduction dimensions last.
        inner: what else is computed inside, in order.
    """

    stage: str
    axes: tuple[Axis, ...]
    inner: tuple[str, ...]

    @property
    def down_across(self) -> tuple[int | None, int | None]:
        """The axes that are drawn: the two longest, in their order; None: there is none."""
        longest = sorted(range(len(self.axes)), key=lambda k: -self.axes[k].extent)[:2]
        if not longest:
            return None, None
        return (None, longest[0]) if len(longest) == 1 else (min(longest), max(longest))


def nests_of(tree: Root, graph: Graph, sizes: Mapping[str, int]) -> Iterator[DrawnNest]:
    """The nests of a schedule."""
    for child in tree.children:
        yield from _nests(child, graph, sizes)


def _nests(node: Node, graph: Graph, sizes: Mapping[str, int]) -> Iterator[DrawnNest]:
    if isinstance(node, Store | Root):
        for child in node.children:
            yield from _nests(child, graph, sizes)
        return
    head = node.stage
    definitions = graph.stage(head).definitions
    own, number = max(  # of a reduction the one that runs over most
        ((c, k) for c in computes(node) if c.stage == head for k in c.definitions),
        key=lambda x: len(definitions[x[1]].extents),
    )
    loops = [x for x in _around(node, own) if x.stage == head]
    extents = [sizes_value(n, sizes) for n in definitions[number].extents]
    over = {d: [x for x in loops if d in dims_of(x.dim)] for d in range(len(extents))}
    outer = _outer(loops)
    axes = []
    for d, extent in enumerate(extents):
        steps = [(x.kind, (over[d][k + 1].size or 1) if k + 1 < len(over[d]) else 1) for k, x in enumerate(over[d])]
        axes.append(Axis(extent, tuple(steps), min(steps[0][1], extent) if steps and d in outer else extent))
    yield DrawnNest(head, tuple(axes), tuple(dict.fromkeys(c.stage for c in computes(node) if c.stage != head)))


def _outer(loops: Sequence[Loop]) -> set[int]:
    """The dimensions of the outer loops: those over tiles, and others that are not the innermost one."""
    found: set[int] = set()
    whole = [x for x in loops if x.size is None]
    for k, x in enumerate(whole):
        inner = next((y for y in loops if y.size is not None and y.dim == x.dim), None)
        is_tiled = inner is not None and not LOOP_KINDS[inner.kind].is_straight_line
        if is_tiled or LOOP_KINDS[x.kind].is_outermost or k + 1 < len(whole):
            found |= set(dims_of(x.dim))
    return found


def _around(node: Node, own: Compute) -> list[Loop]:
    """The loops around a computation."""
    found: list[Loop] = []
    while not isinstance(node, Compute):
        if isinstance(node, Loop):
            found.append(node)
        node = next(c for c in node.children if any(x is own for x in computes(c)))
    return found


# -- in words


def described(nest: DrawnNest, buffers: Mapping[str, Any], tasks: int) -> Iterator[str]:
    """The nest in words, a sentence each: what the drawing shows."""
    shape = " x ".join(str(a.extent) for a in nest.axes) or "one element"
    yield f"{nest.stage}: {shape}"
    for d, a in enumerate(nest.axes):
        for (kind, step), over in zip(a.steps, a.sizes(), strict=True):
            count = -(-over // step)
            each = f" of {step}" if step > 1 else ""
            how = {
                "parallel": f"{count} iterations{each} in parallel, shared out in {min(count, tasks)} tasks",
                "gpu_block": f"{count} blocks{each}",
                "gpu_thread": f"{count} threads",
                "gpu_lane": f"{count} lanes of a warp",
                "vector": f"vectors of {over}",
                "unroll": f"{count} iterations unrolled",
            }
            yield f"d{d}: {how.get(kind, f'{count} iterations{each}')}"
    for name in nest.inner:
        b = buffers.get(name)
        if b is None:
            yield f"{name} is computed inside, and kept whole in memory"
            continue
        what = "a line buffer" if b.circular is not None else "a buffer"
        size = " x ".join(map(str, b.shape))
        yield f"{name} is computed inside, in {what} of {size} elements for each {b.owner} ({b.bytes / 1024:.1f} KiB)"


# -- as a picture


def nest_svg(nest: DrawnNest, buffers: Mapping[str, Any], tasks: int) -> str:
    """The domain of a nest with its tiles, one of them marked, and beside it the buffers of what is computed inside."""
    down, across = nest.down_across
    one = Axis(1, (), 1)
    y, x = (one if d is None else _at_least_one(nest.axes[d]) for d in (down, across))
    scale = SIDE / max(y.extent, x.extent, 1)
    width, height = max(x.extent * scale, MIN_VISIBLE * 4), max(y.extent * scale, MIN_VISIBLE * 4)
    top, left = MARGIN + 16, MARGIN
    parts = [
        _text(
            left,
            MARGIN + 4,
            f"{nest.stage}: {y.extent} x {x.extent}" if down is not None else f"{nest.stage}: {x.extent}",
        )
    ]
    parts.append(_box(left, top, width, height, PAPER))
    parts += _bands(y, left, top, width, height, tasks, is_down=True)
    parts += _bands(x, left, top, width, height, tasks, is_down=False)
    parts += _grid(y, left, top, width, height, is_down=True)
    parts += _grid(x, left, top, width, height, is_down=False)
    tile_h, tile_w = max(y.tile * height / y.extent, MIN_VISIBLE), max(x.tile * width / x.extent, MIN_VISIBLE)
    at_y = top + min(height - tile_h, math.floor(y.extent / y.tile / 3) * y.tile * height / y.extent)
    parts.append(_box(left, at_y, tile_w, tile_h, LOOP_KINDS["parallel"].colour, NEW))
    lanes = max(x.vector, y.vector)
    if x.vector > 1:
        one_vector = max(x.vector * width / x.extent, MIN_VISIBLE)
        parts.append(_box(left, at_y, one_vector, min(tile_h, MIN_VISIBLE + 2), LOOP_KINDS["vector"].colour, INK))
    bottom = top + height
    notes = [f"one iteration of the outer loops{f', vectors of {lanes}' if lanes > 1 else ''}"]
    right = left + max(width, 150) + 34
    buffer_bottom: float = top
    for name in nest.inner:
        drawn, buffer_bottom = _buffer(name, buffers.get(name), right, buffer_bottom, at_y)
        parts += drawn
    parts += [_text(left, bottom + 16 + 14 * k, note, small=True) for k, note in enumerate(notes)]
    total_width = right + (230 if nest.inner else 0)
    total_height = max(bottom + 16 + 14 * len(notes), buffer_bottom) + MARGIN
    label = html.escape("; ".join(described(nest, buffers, tasks)), quote=True)
    return (
        f'<svg role="img" aria-label="{label}" width="{total_width:.0f}" height="{total_height:.0f}" '
        f'font-family="sans-serif" font-size="12">{"".join(parts)}</svg>'
    )


def _at_least_one(a: Axis) -> Axis:
    """An axis without elements is drawn as if it had one."""
    return replace(a, extent=max(a.extent, 1), tile=max(a.tile, 1))


def _bands(a: Axis, left: float, top: float, width: float, height: float, tasks: int, is_down: bool) -> Iterator[str]:
    """The tasks of a parallel loop, as bands that alternate."""
    if not a.steps or a.steps[0][0] != "parallel":
        return
    count = min(-(-a.extent // a.steps[0][1]), tasks)
    for k in range(0, count, 2):
        if is_down:
            yield _box(left, top + k * height / count, width, height / count, "#fef3c7", "none")
        else:
            yield _box(left + k * width / count, top, width / count, height, "#fef3c7", "none")


def _grid(a: Axis, left: float, top: float, width: float, height: float, is_down: bool) -> Iterator[str]:
    """The borders of tiles."""
    if a.tile in (1, a.extent) or a.extent / a.tile > MAX_GRID_LINES:
        return
    for at in range(a.tile, a.extent, a.tile):
        if is_down:
            y = top + at * height / a.extent
            yield f'<line x1="{left}" y1="{y:.1f}" x2="{left + width:.1f}" y2="{y:.1f}" stroke="#94a3b8"/>'
        else:
            x = left + at * width / a.extent
            yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + height:.1f}" stroke="#94a3b8"/>'


def _buffer(name: str, b: Any, left: float, top: float, from_y: float) -> tuple[list[str], float]:
    """A buffer as rows, not to scale; the one that is new in an iteration is marked. Its lower edge, too."""
    if b is None:
        parts = [_text(left, top + 12, f"{name}: whole, in memory"), _box(left, top + 18, 120, 3 * ROW, BUFFER)]
        return parts, top + 18 + 3 * ROW + GAP
    what = "line buffer" if b.circular is not None else "buffer"
    parts = [_text(left, top + 12, f"{name}: {what} {' x '.join(map(str, b.shape))}")]
    down = b.circular if b.circular is not None else 0
    count = b.shape[down] if len(b.shape) > 1 else 1
    shown = min(count, MAX_DRAWN_ROWS)
    y = top + 18
    for k in range(shown):
        is_new = b.circular is not None and k == shown - 1
        parts.append(_box(left, y + k * ROW, 150, ROW, NEW if is_new else BUFFER))
    more = f", {shown} of {count} rows drawn" if shown < count else ""
    circular = "; the last row is what one iteration adds" if b.circular is not None else ""
    y += shown * ROW
    parts.append(_text(left, y + 13, f"{b.bytes / 1024:.1f} KiB a {b.owner}{more}", small=True))
    if circular:
        parts.append(_text(left, y + 26, circular.removeprefix("; "), small=True))
        y += 13
    parts.append(
        f'<line x1="{left - 6}" y1="{top + 18 + shown * ROW / 2:.1f}" x2="{left - 28}" y2="{from_y:.1f}" '
        f'stroke="#64748b" stroke-dasharray="3 2"/>'
    )
    return parts, y + 13 + GAP


def _box(x: float, y: float, width: float, height: float, fill: str, stroke: str = "#64748b") -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" stroke="{stroke}"/>'


def _text(x: float, y: float, text: str, small: bool = False) -> str:
    size = ' font-size="11"' if small else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{size} fill="currentColor">{html.escape(text)}</text>'
