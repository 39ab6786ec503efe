"""Reductions in two kernels, for targets on which many blocks of threads run at once.

Reductions of a whole image, or of a few long columns, are computed in parts of a fixed number of elements, a block for
each; a second reduction combines the partial results. The partition depends on sizes only, so rounding is reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hjit.trace.ir.borders import inside
from hjit.trace.ir.expressions import Const, Load, Op, cast, select, substitute
from hjit.trace.ir.graph import Definition, Graph, Stage, identity
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import Atom, Dim, IntLike, Poly, boundary, poly
from hjit.trace.ir.rewriting import fresh
from hjit.trace.passes.limits import BLOCK_COLUMNS, BLOCK_ELEMENTS, BLOCK_ROWS, COLUMN_ROWS, SHORT_AXIS
from hjit.trace.passes.privatisation import is_separable

IDEMPOTENT = frozenset({"maximum", "minimum", "fmax", "fmin", "logical_and", "logical_or", "bitwise_and", "bitwise_or"})


def reduce_in_blocks(graph: Graph) -> Graph:
    """Reduce large reductions to few elements in two steps: blocks of elements, then the partial results."""
    stages: list[Stage] = []
    names = set(graph.arrays)
    for s in graph.stages:
        parts = _parts(s)
        if parts:
            blocks, s = _in_two_steps(s, parts, fresh(f"{s.name}_blocks", names))
            names.add(blocks.name)
            stages.append(blocks)
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def contiguity(d: Definition, name: str) -> Mapping[int, int]:
    """Dimensions -> the last axis that runs with them, of the array but `name` that most of them are in."""
    return max((_axes(d, x) for x in d.loads if x.source != name), key=len, default={})


def _axes(d: Definition, x: Load) -> dict[int, int]:
    return {k: axis for axis, p in enumerate(x.index) for k in range(len(d.extents)) if p.mentions(Dim(k))}


def runs_along_rows(d: Definition, name: str) -> bool:
    """Do neighbours in memory contribute to the same result? The last long axis of each array decides."""
    pure = len(d.dims)
    for x in d.loads:
        along = _axes(d, x) if x.source != name else {}
        long = [k for k in along if not d.extents[k].is_const or d.extents[k].const > SHORT_AXIS]
        last = max((along[k] for k in long), default=None)
        varies = any(k >= pure for k in along)
        if varies and last is not None and not any(k >= pure for k in long if along[k] == last):
            return False
    return True


def _parts(s: Stage) -> Mapping[int, int]:
    """Reduction dimensions, and how many of their elements a block reduces; none: it stays as it is."""
    if len(s.updates) != 1:
        return {}
    d = s.updates[0]
    if not is_separable(s, d) or d.target != identity(len(d.dims)):
        return {}
    long = [k for k in range(len(d.dims), len(d.extents)) if not d.extents[k].is_const]
    wide = [n for n in d.dims if not n.is_const]
    if not long or len(wide) > 1:
        return {}
    if wide:
        return {} if runs_along_rows(d, s.name) else {long[0]: COLUMN_ROWS}
    along = contiguity(d, s.name)
    *outer, row, column = [-1, *sorted(long, key=lambda k: (along.get(k, -1), k))]
    others = math.prod(n.const for n in (*d.dims, *d.rdims) if n.is_const)
    if row < 0:
        each = max(BLOCK_ELEMENTS // max(others, 1), BLOCK_COLUMNS)
        return {column: each // BLOCK_COLUMNS * BLOCK_COLUMNS}
    return {row: BLOCK_ROWS, column: BLOCK_COLUMNS} | {k: 1 for k in outer if k >= 0}


@dataclass(frozen=True, slots=True)
class _Dims:
    """The dimensions of the first step: parts, what there was, and the elements of a part.

    Attributes:
        shape: of the partial results. rdims: of a part.
        places: dimensions of the reduction -> what they are in terms of those of the first step.
        within: dimensions of which the last part has fewer elements.
    """

    shape: tuple[Poly, ...]
    rdims: tuple[Poly, ...]
    places: Mapping[int, Poly]
    within: tuple[int, ...]


def _dims(d: Definition, parts: Mapping[int, int]) -> _Dims:
    pure = len(d.dims)
    counts = {k: (d.extents[k] + (n - 1)) // n for k, n in parts.items()}
    order = sorted(parts)
    shape = (*(counts[k] for k in order), *d.dims)
    rdims = tuple(
        poly(parts[k]) if k in parts else d.extents[k] for k in range(pure, len(d.extents)) if parts.get(k) != 1
    )
    places = {k: poly(Dim(len(order) + k)) for k in range(pure)}
    free = len(shape)
    for k in range(pure, len(d.extents)):
        number = order.index(k) if k in parts else None
        if parts.get(k) == 1:
            places[k] = poly(Dim(order.index(k)))
            continue
        places[k] = poly(Dim(free)) if number is None else poly(Dim(number)) * parts[k] + poly(Dim(free))
        free += 1
    return _Dims(shape, rdims, places, tuple(k for k in order if parts[k] > 1))


def _in_two_steps(s: Stage, parts: Mapping[int, int], name: str) -> tuple[Stage, Stage]:
    """The stage of the partial results, and the stage that combines them."""
    d = s.updates[0]
    assert isinstance(d.value, Op)
    x = _dims(d, parts)
    kept = {k: boundary("clamp", p, d.extents[k]) if k in x.within else p for k, p in x.places.items()}

    def change(a: Atom) -> IntLike | None:
        return kept[a.k] if isinstance(a, Dim) else None

    # sums of floats keep those of parts in double precision
    wide = np.dtype(np.float64) if d.order == "add" and s.dtype.kind == "f" else s.dtype
    neutral = Const(start_value(d.order, wide), wide)
    element = cast(substitute(d.value.args[1], change), wide)
    if d.order not in IDEMPOTENT:
        for k in x.within:
            element = select(inside(x.places[k], d.extents[k]), element, neutral)
    here = identity(len(x.shape))
    part = Definition(x.shape, x.rdims, here, Op(d.order, (Load(name, here, wide), element), wide), d.order)
    blocks = Stage(name, wide, x.shape, neutral, (part,), s.origin)
    many, pure = len(parts), len(d.dims)
    index = (*(poly(Dim(pure + n)) for n in range(many)), *identity(pure))
    joined = Op(d.order, (d.value.args[0], cast(Load(name, index, wide), s.dtype)), s.dtype)
    return blocks, replace(s, updates=(Definition(d.dims, x.shape[:many], d.target, joined, d.order),))
