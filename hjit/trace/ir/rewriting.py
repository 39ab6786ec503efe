"""Rewriting the stages of a Graph: all expressions of one, and names for new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from hjit.process import deadline
from hjit.trace.ir.expressions import Change, Expr, Load, rewrite, substitute
from hjit.trace.ir.graph import Definition, Stage
from hjit.trace.ir.poly import Atom, Indirect, Poly, poly


def map_exprs(s: Stage, f: Callable[[Expr], Expr]) -> Stage:
    """The stage with `f` applied to every expression, those in targets included."""
    return map_definitions(s, lambda e, _: f(e))


def map_definitions(s: Stage, f: Callable[[Expr, tuple[Poly, ...]], Expr]) -> Stage:
    """`map_exprs`, where `f` is given the extents of the dimensions, too."""
    deadline.check("rewriting the graph")

    def target(p: Poly, extents: tuple[Poly, ...]) -> Poly:
        def change(a: Atom) -> Poly | None:
            if isinstance(a, Indirect):
                new = f(a.expr, extents)
                return None if new is a.expr else poly(Indirect(new, a.extent))
            return None

        return p.substitute(change)

    initial = None if s.initial is None else f(s.initial, s.shape)
    updates = tuple(
        replace(d, value=f(d.value, d.extents), target=tuple(target(p, d.extents) for p in d.target)) for d in s.updates
    )
    return replace(s, initial=initial, updates=updates)


def substitute_stage(s: Stage, change: Change, memo: dict[Expr, Expr] | None = None) -> Stage:
    """The stage with `change` made in all sizes and indices; `memo`: of several with the same change."""
    memo = {} if memo is None else memo

    def polys(ps: tuple[Poly, ...]) -> tuple[Poly, ...]:
        return tuple(p.substitute(change) for p in ps)

    def definition(d: Definition) -> Definition:
        value = substitute(d.value, change, memo)
        return replace(d, dims=polys(d.dims), rdims=polys(d.rdims), target=polys(d.target), value=value)

    initial = None if s.initial is None else substitute(s.initial, change, memo)
    return replace(s, shape=polys(s.shape), initial=initial, updates=tuple(map(definition, s.updates)))


def with_source(e: Expr, old: str, new: str) -> Expr:
    """The expression with loads of array `new` in place of those of `old`."""
    return rewrite(e, lambda x: Load(new, x.index, x.dtype) if isinstance(x, Load) and x.source == old else None)


def fresh(name: str, taken: Iterable[str]) -> str:
    """`name`, or `name` with the first free number."""
    used = set(taken)
    if name not in used:
        return name
    n = 2
    while f"{name}_{n}" in used:
        n += 1
    return f"{name}_{n}"
