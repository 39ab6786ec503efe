"""Properties of definitions that schedules depend on: may they be reordered, repeated, computed by several tasks?"""

from __future__ import annotations

from collections.abc import Iterable

from hjit.trace.ir.analysis.accumulations import accumulation_of
from hjit.trace.ir.graph import Definition, Stage, identity, single_dim
from hjit.trace.ir.poly import ZERO, Dim, Indirect, Poly

ATOMICS = ("add", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or")


def is_direct(d: Definition) -> bool:
    """Does each point of the pure dimensions write one element of its own, whatever the reduction dimensions are?"""
    inner = [Dim(k) for k in range(len(d.dims), len(d.extents))]
    return not d.is_scatter and not any(p.mentions(k) for p in d.target for k in inner)


def free_from(s: Stage, d: Definition) -> int:
    """The first dimension inside each iteration of a recurrence: along it, and later ones, the order is free.

    Of the stage such points, and those of the definitions that run together with it, write and read their own elements,
    or rows that none of them writes.
    """
    count = len(d.extents)
    if d.order != "sequential" or len(d.rdims) < 2:
        return count
    together = [x for step in s.steps if d in step for x in step] or [d]
    if any(x.is_scatter for x in together):
        return count
    touched = {index for x in together for index in (x.target, *(y.index for y in x.loads if y.source == s.name))}
    for k in range(len(d.dims) + 1, count):
        if all(_writes_rows_of_its_own(x, k, touched) for x in together):
            return k
    return count


def _writes_rows_of_its_own(d: Definition, first: int, touched: Iterable[tuple[Poly, ...]]) -> bool:
    """Does each point of the dimensions from `first` on write an element that no other one of them touches?"""
    free = {Dim(k) for k in range(first, len(d.extents))}
    rows = [(axis, p) for axis, p in enumerate(d.target) if not any(p.mentions(k) for k in free)]
    if not {k.k for k in free} <= {single_dim(p, len(d.extents)) for p in d.target}:
        return False
    others = [index for index in touched if index != d.target]
    return all(any((away := index[axis] - p).is_const and away != ZERO for axis, p in rows) for index in others)


def is_associative(d: Definition) -> bool:
    """Is it a reduction whose operands may be combined in any order?"""
    return d.order not in ("pure", "sequential")


def starts_reduction(s: Stage) -> bool:
    """Is the first update a reduction of every element, so that its accumulators can start from the initial value?"""
    if s.initial is None or not s.updates:
        return False
    d = s.updates[0]
    return is_associative(d) and d.dims == s.shape and d.target == identity(len(s.shape)) and bool(d.rdims)


def is_repeatable(s: Stage, numbers: tuple[int, ...]) -> bool:
    """May an element that these definitions compute be computed twice?"""
    if numbers == (0, 1) and starts_reduction(s):
        return True
    parts = [s.definitions[n] for n in numbers]
    return all(d.order == "pure" and is_direct(d) and s.name not in d.sources for d in parts)


def are_apart(a: Definition, b: Definition, name: str) -> bool:
    """Do two updates over the same domain write, and read of the stage itself, parts that have nothing in common?"""
    if (
        (a.dims, a.rdims, a.order) != (b.dims, b.rdims, b.order)
        or a.order == "pure"
        or (is_associative(a) and is_direct(a))
    ):
        return False
    own = [(d.target, load.index) for d in (a, b) for load in d.loads if load.source == name]
    return any(
        p != q and p.is_const and q.is_const and all(index[axis] == target[axis] for target, index in own)
        for axis, (p, q) in enumerate(zip(a.target, b.target, strict=True))
    )


def is_atomic(s: Stage, d: Definition) -> bool:
    """Can tasks update the same elements at once? Sums of whole numbers are the same in any order; those of floats have
    the order "add" only where theirs is free."""
    if (
        d.order not in ATOMICS
        or (s.dtype.kind not in "iub" and (d.order != "add" or s.dtype.itemsize not in (4, 8)))
        or is_direct(d)
    ):
        return False
    in_targets = {x.source for p in d.target for a in p.atoms() if isinstance(a, Indirect) for x in a.expr.loads}
    return accumulation_of(s.name, d) is not None and s.name not in in_targets
