"""Indices that are not polynomials: values loaded from arrays, checked against the axis, and boundary conditions.

All boundary modes but one are periodic. Most indices are less than a period beyond the axis, and need no division. The
others do, in a branch that is rarely taken; for an index that is invariant in the innermost loop, the division is
outside of it.
"""

from __future__ import annotations

import numpy as np

from hjit.kernels.llvm.builder.code import BOOL, I32, I64, Val, const, splat, type_name
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.vecmath import apply as vecmath
from hjit.kernels.lower.params import STATUS
from hjit.trace.ir.expressions import Cast, Expr
from hjit.trace.ir.poly import Atom, Boundary, Indirect, Poly, poly


def gathered(e: NestEmitter, a: Indirect, lanes: int) -> Val:
    """A value used as an index: checked against the axis, negative ones counted from its end."""
    i = e.value(a.expr)
    if a.extent is None:
        return i
    return checked(e, i, e.integer(a.extent))


def checked(e: NestEmitter, i: Val, extent: Val) -> Val:
    """Indices inside an axis; those counted from its end as they are meant."""
    code = e.code
    n, zero = splat(code, extent, i.lanes), const(0, i.dtype, i.lanes)
    below = code.emit(f"icmp slt {i.type} {i.text}, {zero.text}", BOOL, i.lanes, i)
    after = code.emit(f"add {i.type} {i.text}, {n.text}", i.dtype, i.lanes, i, n)
    j = e.choose(below, after, i)
    bad = code.emit(f"icmp uge {j.type} {j.text}, {n.text}", BOOL, i.lanes, j, n)
    report(e, bad)
    return e.choose(bad, zero, j)


def report(e: NestEmitter, bad: Val) -> None:
    """Set the kernel's status where any lane of `bad` holds."""
    code = e.code
    bad = code.any_lane(bad)
    label = code.fresh("bad")
    kernel = code.emit("load ptr, ptr %ctx, align 8", I64, 1, pointer=True)
    at = code.emit(f"getelementptr i64, ptr {kernel.text}, i64 {STATUS}", I64, 1, kernel, pointer=True)
    code.effect(f"br i1 {bad.text}, label %{label}, label %{label}.go")
    code.label(label)
    code.effect(f"store i64 1, ptr {at.text}, align 8")
    code.effect(f"br label %{label}.go")
    code.label(f"{label}.go")
    e.block = f"{label}.go"


def index32(e: NestEmitter, p: Poly, lanes: int) -> Val:
    """An index of each lane in 32 bits, where they are enough for every array."""
    total = const(p.const, I32, lanes)
    for m, c in p.terms.items():
        still = tuple(a for a in m if not e.varies(poly(a)))
        factor = splat(e.code, narrow(e, e.integer(Poly({still: c}, 0) if still else poly(c))), lanes)
        for a in m:
            if a not in still:
                factor = _arith32(e, "mul", factor, _atom32(e, a, lanes))
        total = _arith32(e, "add", total, factor)
    return total


def lanes_of(e: NestEmitter, a: Indirect) -> Val:
    """An index of each lane; in 32 bits where they are enough for every array."""
    return _atom32(e, a, e.lanes) if e.machine.small else splat(e.code, e.integer(poly(a), e.lanes), e.lanes)


def _atom32(e: NestEmitter, a: Atom, lanes: int) -> Val:
    if not isinstance(a, Indirect):
        return narrow(e, splat(e.code, e.atom(a, lanes), lanes))
    x = in_32_bits(a)
    if x is None:
        return narrow(e, splat(e.code, gathered(e, a, lanes), lanes))
    i = splat(e.code, vecmath.convert(e.code, e.value(x), I32), lanes)
    return i if a.extent is None else checked(e, i, narrow(e, e.integer(a.extent)))


def in_32_bits(a: Indirect) -> Expr | None:
    """An expression with the index's value whose dtype 32 bits hold; None where there is none."""
    x = a.expr.arg if isinstance(a.expr, Cast) and a.expr.dtype == I64 else a.expr
    return None if x.dtype.kind not in "iu" or x.dtype.itemsize > 4 or x.dtype == np.uint32 else x


def narrow(e: NestEmitter, v: Val) -> Val:
    """The lower 32 bits of an index."""
    if not v.text.startswith("%"):
        return Val(v.text, I32, v.lanes, v.depth)
    return e.code.emit(f"trunc {v} to {type_name(I32, v.lanes)}", I32, v.lanes, v)


def _arith32(e: NestEmitter, op: str, a: Val, b: Val) -> Val:
    same = {"mul": "1", "add": "0"}[op]
    for x, y in ((a, b), (b, a)):
        if x.text in (same, f"splat (i32 {same})", "zeroinitializer" if op == "add" else ""):
            return y
    return e.code.emit(f"{op} {a.type} {a.text}, {b.text}", I32, a.lanes, a, b)


# -- boundary conditions


def bounded(e: NestEmitter, a: Boundary, lanes: int) -> Val:
    """The value of a bounded index; of each lane where it differs between them."""
    i, n = e.integer(a.arg, e.spread(a.arg, lanes)), e.integer(a.extent)
    zero, one = const(0, I64), const(1, I64)
    if a.mode == "clamp":
        return e.minmax("min", e.minmax("max", i, zero), e.arith("sub", n, one))
    if a.mode == "wrap":
        below = e.code.emit(f"icmp slt {i.type} {i.text}, {const(0, I64, i.lanes).text}", BOOL, i.lanes, i)
        many = splat(e.code, n, i.lanes)
        beyond = e.code.emit(f"icmp sge {i.type} {i.text}, {many.text}", BOOL, i.lanes, i, many)
        near = e.choose(below, e.arith("add", i, n), e.choose(beyond, e.arith("sub", i, n), i))
        return _unless_far(e, near, i, n, n)
    twice = e.arith("add", n, n)
    mirror = 0 if a.mode == "reflect" else 1  # elements that the first image has between itself and the axis
    last = e.arith("sub", twice, const(2 - mirror, I64))  # of the mirrored axis, from which indices count back
    away = e.minmax("max", i, e.arith("sub", const(-mirror, I64), i))
    period = e.minmax("max", e.arith("add", last, const(mirror, I64)), one)
    near = e.minmax("min", away, e.arith("sub", last, away))
    return _unless_far(e, near, i, period, n, last)


def _unless_far(e: NestEmitter, near: Val, i: Val, period: Val, n: Val, last: Val | None = None) -> Val:
    """`near`, of an index less than a period beyond the axis; else its remainder, mirrored at `last` if there is
    one."""
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
