"""Block-structured scatters: index arrays that count up by one every so many elements, as ``np.arange(n) // 8``.

Where such a scatter writes is known while tracing. A scatter over the rows of an image into cells of 8 rows is then 8
rows for each row of cells, and rows of cells are independent: they may run in parallel, and each element is still
written in NumPy's order.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, Load, ScalarRef, renumber, rewrite, substitute, walk
from hjit.trace.ir.graph import Stage
from hjit.trace.ir.interpret import evaluate
from hjit.trace.ir.poly import SMALL, ZERO, Dim, Poly, Sym, Var, deep_atoms, poly
from hjit.trace.ops.limits import MAX_BLOCK_RUNS, MAX_INDEX_STAGES
from hjit.trace.tracing.arrays.tracer import Tracer
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.size import Size

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class BlockRun:
    """A part of a dimension: `blocks` blocks of `size` elements from `start` on; block k has index ``first + k``."""

    start: int
    blocks: int
    size: int
    first: int


@dataclass(frozen=True, slots=True)
class Subdomain:
    """A part of a domain, where some index arrays are dimensions of their own.

    Attributes:
        blocks, inner: extents of the dimensions that number the blocks, and of all others, in their order.
        index: of each dimension of the domain, over the blocks' dimensions followed by the others.
        known: for the axes that have one, the index that the array holds.
    """

    blocks: tuple[int, ...]
    inner: tuple[int, ...]
    index: tuple[Poly, ...]
    known: Mapping[int, Poly]


def subdomains(
    arrays: Mapping[int, Tracer], extents: Mapping[int, int], shape: Sequence[int], first: int
) -> list[Subdomain]:
    """The domain of `shape` in subdomains where elements of index arrays are known; a single one if none are.

    Args:
        arrays: by axis of what they index.
        extents: of those axes.
        first: number of the dimension that the first one of a subdomain is.
    """
    axes: dict[int, int] = {}
    cut: dict[int, list[BlockRun]] = {}
    for axis, t in arrays.items():
        known = _along(t, shape)
        if (
            known is None
            or known.dim in axes
            or len(known.values) <= SMALL
            or known.values[0] < 0
            or known.values[-1] >= extents[axis]
        ):
            continue
        runs = _block_runs(known.values, shape[known.dim])
        if any(p.blocks > 1 for p in runs):
            axes[known.dim], cut[known.dim] = axis, runs
            for name in known.scalars:
                current().scalars.hosts[name].make_static()
    return [
        _subdomain(dict(zip(cut, some, strict=True)), axes, shape, first) for some in itertools.product(*cut.values())
    ]


def _subdomain(runs: Mapping[int, BlockRun], axes: Mapping[int, int], shape: Sequence[int], first: int) -> Subdomain:
    rec = current()
    blocks = {k: p for k, p in runs.items() if p.blocks > 1}
    inner = {k: runs[k].size if k in runs else n for k, n in enumerate(shape) if k not in runs or runs[k].size > 1}
    block_dims = {k: poly(Dim(n)) for n, k in enumerate(blocks, first)}
    inner_dims = {k: poly(Dim(n)) for n, k in enumerate(inner, first + len(blocks))}
    index: list[Poly] = []
    known: dict[int, Poly] = {}
    for k in range(len(shape)):
        at = inner_dims.get(k, ZERO)
        if k in runs:
            p, block = runs[k], block_dims.get(k, ZERO)
            at = at + block * rec.poly(p.size) + rec.poly(p.start)
            known[axes[k]] = block + rec.poly(p.first)
        index.append(at)
    return Subdomain(tuple(p.blocks for p in blocks.values()), tuple(inner.values()), tuple(index), known)


def _block_runs(values: Array, n: int) -> list[BlockRun]:
    """The blocks of an array of length `n`; none where it goes up in another way than by one every so many elements."""
    steps = np.diff(values)
    if np.any((steps != 0) & (steps != 1)):
        return []
    edges = [0, *(int(k) + 1 for k in np.flatnonzero(steps)), len(values)]
    runs = [(size, len(list(same))) for size, same in itertools.groupby(b - a for a, b in itertools.pairwise(edges))]
    if len(runs) > MAX_BLOCK_RUNS:
        return []
    found: list[BlockRun] = []
    start, index = 0, int(values[0])
    for size, count in runs:
        found.append(BlockRun(start, count, size, index))
        start, index = start + size * count, index + count
    if type(n) is Size and runs[0][1] > 1 and len(runs) < MAX_BLOCK_RUNS:  # the same for every size
        size, low = runs[0][0], int(values[0])
        found[0] = BlockRun(0, n // size, size, low)
        found[1:] = [BlockRun(n // size * size, 1, n % size, n // size + low)] * (len(runs) - 1)
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    """An index array that varies along one dimension of the domain: its values, and the scalars they depend on."""

    dim: int
    values: Array
    scalars: tuple[str, ...] = ()


def _along(t: Tracer, shape: Sequence[int]) -> _Known | None:
    """What is known of an index array; None where it depends on data, or on more than one dimension."""
    if t.known is not None:
        moving = [k for k, n in enumerate(t.shape) if n > 1]
        return (
            _Known(moving[0] + len(shape) - t.ndim, t.known.reshape(-1).astype(np.int64)) if len(moving) == 1 else None
        )
    rec = current()
    try:
        e = _expanded(t.load(tuple(shape)), MAX_INDEX_STAGES)
    except _FromData:
        return None
    atoms = {a for x in walk(e) for p in x.polys for a in deep_atoms(p)}
    dims = [a.k for a in atoms if isinstance(a, Dim)]
    if len(dims) != 1 or any(isinstance(a, Var) or (isinstance(a, Sym) and a.name not in rec.sizes) for a in atoms):
        return None
    (k,) = dims
    scalars = tuple(x.name for x in walk(e) if isinstance(x, ScalarRef))
    arrays = {x.source: rec.inputs[x.source].array for x in e.loads}
    values = {n: rec.scalars.hosts[n].value for n in scalars}
    try:
        found = evaluate(e, {k: np.arange(int(shape[k]))}, arrays, rec.sizes, values)
    except IndexError:  # the run is to say so, as NumPy does
        return None
    return _Known(k, found.astype(np.int64), scalars)


class _FromData(Exception):
    """An index array depends on what only the run knows."""


def _expanded(e: Expr, depth: int) -> Expr:
    """An expression with the stages that it loads in place of the loads.

    Raises:
        _FromData: it loads more than the function's own constants.
    """
    rec = current()

    def change(x: Expr) -> Expr | None:
        if not isinstance(x, Load):
            return None
        source, s = rec.inputs.get(x.source), rec.stages.get(x.source)
        if source is not None and source.where[0] == "constant":
            return None
        written = _written(s, x) if s is not None and depth else None
        if written is None:
            raise _FromData
        return _expanded(written, depth - 1)

    return rewrite(e, change)


def _written(s: Stage, load: Load) -> Expr | None:
    """What a load of a stage finds; None where updates do not write whole planes, as those of `np.mgrid` do."""
    for d in reversed(s.updates):
        if any(p.is_const and q.is_const and p != q for p, q in zip(d.target, load.index, strict=True)):
            continue
        places = {p: q for p, q in zip(d.target, load.index, strict=True) if p != q or not p.is_const}
        dims = [poly(Dim(k)) for k in range(len(d.dims))]
        if d.order != "pure" or d.rdims or places.keys() != set(dims):
            return None
        return substitute(d.value, renumber([places[p] for p in dims]))
    return None if s.initial is None else substitute(s.initial, renumber(load.index))
