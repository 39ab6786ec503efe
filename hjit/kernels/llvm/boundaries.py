"""Indices brought into an axis as a boundary mode says, in LLVM IR.

All modes but one are periodic. Most indices are less than a period beyond the ends of the axis: those need no division. For the others
there is one, in a branch that hardly ever runs; an index that does not change in the innermost loop is divided outside of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hjit.kernels.llvm.code import BOOL, I64, Val, const, splat
from hjit.trace.ir.poly import Bound

if TYPE_CHECKING:
    from hjit.kernels.llvm.emit import NestEmitter


def bounded(e: NestEmitter, a: Bound, lanes: int) -> Val:
    """The value of a bounded index; of each lane where it differs between them."""
    i, n = e.int(a.arg, e.spread(a.arg, lanes)), e.int(a.extent)
    zero, one = const(0, I64), const(1, I64)
    if a.mode == "clamp":
        return e.minmax("min", e.minmax("max", i, zero), e.arith("sub", n, one))
    if a.mode == "wrap":
        below = e.code.emit(f"icmp slt {i.type} {i.text}, {const(0, I64, i.lanes).text}", BOOL, i.lanes, i)
        many = splat(e.code, n, i.lanes)
        beyond = e.code.emit(f"icmp sge {i.type} {i.text}, {many.text}", BOOL, i.lanes, i, many)
        near = e.choose(below, e.arith("add", i, n), e.choose(beyond, e.arith("sub", i, n), i))
        return _checked(e, near, i, n, n)
    twice, mirror = e.arith("add", n, n), 0 if a.mode == "reflect" else 1  # elements that the first image has between itself and the axis
    last = e.arith("sub", twice, const(2 - mirror, I64))  # of the mirrored axis, from which indices count back
    away = e.minmax("max", i, e.arith("sub", const(-mirror, I64), i))
    return _checked(e, e.minmax("min", away, e.arith("sub", last, away)), i, e.minmax("max", e.arith("add", last, const(mirror, I64)), one), n, last)


def _checked(e: NestEmitter, near: Val, i: Val, period: Val, n: Val, last: Val | None = None) -> Val:
    """What an index is that lies less than a period beyond the axis, or what comes of it as a remainder; that counted back from `last`, too."""
    code = e.code

    def divided() -> Val:
        m = e.divide(i, period, quotient=False)
        return m if last is None else e.minmax("min", m, e.arith("sub", last, m))

    if i.depth < len(code.scopes) - 1:
        return divided()
    many = splat(code, n, i.lanes)
    far = code.any_lane(code.emit(f"icmp uge {near.type} {near.text}, {many.text}", BOOL, i.lanes, near, many))
    label, before = code.fresh("far"), e.block
    code.effect(f"br i1 {far.text}, label %{label}, label %{label}.go")
    code.label(label)
    with code.pinned():
        found = divided()
    code.effect(f"br label %{label}.go")
    code.label(f"{label}.go")
    e.block = f"{label}.go"
    return code.here(f"phi {i.type} [ {near.text}, %{before} ], [ {found.text}, %{label} ]", I64, i.lanes)
