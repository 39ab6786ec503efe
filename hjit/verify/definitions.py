"""Kinds of definitions, by how reference values of their elements are computed."""

from __future__ import annotations

from hjit.trace.ir.analysis.accumulations import accumulation_of
from hjit.trace.ir.expressions import Expr, Index, Load, Op
from hjit.trace.ir.graph import Definition, Stage, identity
from hjit.trace.ir.poly import Dim, Poly

LONG_SUM = 1 << 17  # elements of long sums, which are summed as NumPy has them; the errors are those of a sample
SAMPLE_EACH, SAMPLE_ALL = 64, 4096  # elements in the sample: of each sum at least, and of all sums together


def is_direct(s: Stage) -> bool:
    """Does no element of a stage depend on other elements of it?"""
    if s.initial is None:
        return False
    for k, d in enumerate(s.definitions):
        if k == 0 or is_own(d, s):
            continue
        if (
            d.order in ("pure", "sequential")
            or d.dims != s.shape
            or d.target != identity(len(s.shape))
            or not isinstance(d.value, Op)
        ):
            return False
        if any(x.source == s.name for x in d.value.args[1].loads):
            return False
    return all(x.source != s.name for x in s.initial.loads)


def is_own(d: Definition, s: Stage) -> bool:
    """Does each element go through the same steps by itself, as in ``total += image`` for all images of a loop?"""
    if d.order != "sequential" or d.dims != s.shape or d.target != identity(len(s.shape)):
        return False
    return not any(x.joined for x in s.definitions) and all(
        x.index == d.target for x in d.value.loads if x.source == s.name
    )


def is_first_index(d: Definition) -> bool:
    """Is it the first index where a condition holds, as in `argmax`, or the number of elements if it holds nowhere?"""
    e = d.value.args[1]
    if d.order != "minimum" or not isinstance(e, Op) or e.name != "select":
        return False
    _, place, never = e.args
    return (
        isinstance(place, Index)
        and isinstance(never, Index)
        and not any(isinstance(a, Dim) for a in never.poly.atoms())
    )


def scanned(d: Definition, name: str) -> tuple[Load, Expr] | None:
    """The previous element of a cumulative sum, and what is added to it; None if it is none."""
    if d.order != "sequential" or len(d.rdims) != 1 or not isinstance(d.value, Op) or d.value.name != "add":
        return None
    for before, element in (d.value.args, d.value.args[::-1]):
        if isinstance(before, Load) and before.source == name and all(x.source != name for x in element.loads):
            steps = [t - i for t, i in zip(d.target, before.index, strict=True)]
            along = [t for t, step in zip(d.target, steps, strict=True) if not (step.is_const and step.const == 0)]
            step = next((x for x in steps if not (x.is_const and x.const == 0)), None)
            if len(along) == 1 and step is not None and step.is_const and not any(p.exprs for p in d.target):
                line = along[0] - Poly({(Dim(len(d.dims)),): step.const}, 0)
                if not any(isinstance(a, Dim) for a in line.atoms()):
                    return before, element
    return None


def scattered(d: Definition, name: str) -> Expr | None:
    """What is added, in order, to elements whose places are computed; None where an update does something else."""
    x = accumulation_of(name, d) if d.order == "sequential" and not d.dims and d.is_scatter else None
    in_targets = {x.source for p in d.target for e in p.exprs for x in e.loads}
    if x is None or x.op != "add" or x.dtype != d.value.dtype or name in in_targets:
        return None
    return x.element


def is_long(d: Definition, count: int, size: int) -> bool:
    """Are these `count` sums or extremes of `size` elements each too many to analyse element by element?"""
    return (
        count * size > LONG_SUM
        and size > 4 * SAMPLE_EACH
        and d.order in ("add", "maximum", "minimum")
        and d.value.dtype.kind == "f"
    )
