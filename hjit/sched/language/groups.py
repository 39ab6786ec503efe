"""Grouping the definitions of a stage into nests."""

from __future__ import annotations

from hjit.process import deadline
from hjit.sched.language.definitions import are_apart, starts_reduction
from hjit.trace.ir.graph import Definition, Stage
from hjit.trace.ir.poly import ZERO, Dim, poly
from hjit.trace.passes.interleaved_updates import adjacent_axis, write_disjoint
from hjit.trace.passes.limits import INTERLEAVED_STEPS


def groups(s: Stage) -> list[tuple[int, ...]]:
    """Definitions that one nest computes together: those that are joined, interleaved updates of one
    region, and updates of separate parts."""
    found: list[list[int]] = []
    definitions = s.definitions
    for n, d in enumerate(deadline.within("scheduling", definitions)):  # of each, all before it may be looked at
        if d.joined or (n == 1 and s.initial is not None and starts_reduction(s)):
            found[-1].append(n)
        elif not found or any(definitions[k].joined for k in found[-1]):
            found.append([n])
        elif all(are_apart(definitions[k], d, s.name) for k in found[-1]):
            found[-1].append(n)
        elif _adjacent(definitions[found[-1][-1]], d, s.name) and all(
            write_disjoint(definitions[k], d) for k in found[-1]
        ):
            found[-1].append(n)
        else:
            found.append([n])
    return [tuple(g) for g in found]


def _adjacent(a: Definition, b: Definition, name: str) -> bool:
    axis = adjacent_axis(a, b, name)
    if axis is None or a.dims != b.dims or not a.dims:
        return False
    return all(a.target[axis].coefficient(Dim(k)) in (ZERO, *map(poly, INTERLEAVED_STEPS)) for k in range(len(a.dims)))
