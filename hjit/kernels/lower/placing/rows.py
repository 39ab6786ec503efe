"""The rows of arrays that each block of a nest reads and writes, so that it can run while other rows are being copied.

Rows are along the first axis of an array. Bounds inference for one iteration of the outermost block loop gives the last
row that it reads and the first row that it writes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from hjit.kernels.lower.placing.context import NestContext
from hjit.kernels.lower.placing.environment import Env
from hjit.kernels.lower.placing.inner_loops import step_of
from hjit.kernels.lower.program import ITERATION, Rows
from hjit.sched.analysis.bounds import ComputeSite, Dims, Reads, Region, infer_bounds
from hjit.sched.language.tree import Loop, Node, computes
from hjit.trace.ir.intervals import SYMBOLIC, Interval, bounds_of, whole
from hjit.trace.ir.poly import ONE, ZERO, Atom, Boundary, Dim, Indirect, Poly, Var, deep_atoms, extremum, poly

_LOOP = Var("iteration")  # stands for the loop variable until bounds are known


def rows_of(n: NestContext, top: Node, loop: Loop, count: Poly, env: Env) -> Rows:
    """The rows of a nest.

    Args:
        loop: the outermost one over blocks.
        count: its iterations.
        env: outside of it, in which the head of the nest is open.
    """
    low, step = env.remains(loop).low, step_of(loop)
    head = {k: _loose(x) for k, x in env.tile(loop, poly(_LOOP) * step + low, step).intervals[n.head].items()}
    regions = infer_bounds(ComputeSite(n.reads, computes(top), {n.head: head}, n.round_up), _loosened)
    ends: dict[str, Poly] = {}
    begins: list[Poly] = []
    for c in computes(top):
        for number in c.definitions:
            group = n.reads.group(c.stage, number)
            dims = head if c.stage == n.head else group.dims(regions[c.stage])
            for source, end in _read(n.reads, c.stage, number, dims):
                if source not in regions:
                    ends[source] = _most(ends.get(source), end)
            if c.stage == n.head:
                first, end = _written(n.reads, n.head, number, dims)
                begins.append(first)
                ends[n.head] = _most(ends.get(n.head), end)
    begin = functools.reduce(functools.partial(extremum, "min"), begins)
    return Rows(n.head, count, {name: _by_iteration(p) for name, p in ends.items()}, _by_iteration(begin))


def _loose(x: Interval) -> Interval:
    """The loose bounds of an interval as its exact ones: their texts do not grow from producer to producer."""
    return Interval(x.base + x.first, x.base + x.last, x.base, x.first, x.last)


def _loosened(stage: str, region: Region) -> Region:
    return tuple(map(_loose, region))


def _most(known: Poly | None, end: Poly) -> Poly:
    return end if known is None else extremum("max", known, end)


def _by_iteration(p: Poly) -> Poly:
    return p.substitute(lambda a: poly(ITERATION) if a == _LOOP else None)


def _length(reads: Reads, source: str) -> Poly:
    """Of the first axis; an array without axes has one row."""
    shape = reads.graph.shapes[source]
    return shape[0] if shape else ONE


def _read(reads: Reads, stage: str, number: int, dims: Dims) -> Iterator[tuple[str, Poly]]:
    """How far a definition reads each array but its own."""
    full = reads.group(stage, number).whole
    for source, axes in reads.indices(stage, number).items():
        if source != stage:
            yield source, _interval(axes[0] if axes else (), dims, full, _length(reads, source))[1]


def _written(reads: Reads, stage: str, number: int, dims: Dims) -> tuple[Poly, Poly]:
    """From where on a definition writes its stage, and how far definitions before it must have; where it reads other
    rows than it writes, or scatters, that is all of it."""
    s = reads.stages[stage]
    d, n = s.definitions[number], _length(reads, stage)
    begin, end = _interval(d.target[:1], dims, reads.group(stage, number).whole, n)
    own = ((x, other) for other in s.definitions for x in other.loads if x.source == stage)
    is_row_by_row = not d.is_scatter and all(x.index[:1] == other.target[:1] for x, other in own)
    return begin, end if is_row_by_row else n


def _interval(indices: Iterable[Poly], dims: Dims, full: Dims, n: Poly) -> tuple[Poly, Poly]:
    """The rows of an axis of length `n` that indices reach: the first, and the end."""
    found: Interval | None = None
    for p in indices:
        x = bounds_of(p, SYMBOLIC, full)(dims)
        found = x if found is None or x is None else found.hull(x)
        if found is None:
            break
    if found is None or found == whole(n):
        return ZERO, n
    x = _loose(found)
    if not (_is_known(x.low) and _is_known(x.high)):
        return ZERO, n
    return extremum("max", x.low, ZERO), extremum("min", x.high + 1, n)


def _is_known(p: Poly) -> bool:
    """Does an index depend on sizes and the iteration alone?"""

    def is_other(a: Atom) -> bool:
        return isinstance(a, Dim | Boundary | Indirect) or (isinstance(a, Var) and a != _LOOP)

    return not any(map(is_other, deep_atoms(p)))
