"""Removing unused `Let`s: bounds inference names all bounds, needed or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from hjit.kernels.lower.loopir import Let, Stmt
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Buffer, Nest
from hjit.kernels.lower.traverse import inner, own_polys, with_bodies
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Poly, Var, deep_atoms


def drop_unused_lets(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Remove unused names of indices."""
    return replace(nest, body=_used(nest.body, nest.buffers))


def _used(body: tuple[Stmt, ...], buffers: dict[str, Buffer]) -> tuple[Stmt, ...]:
    """The statements without names of indices that nothing refers to."""
    wanted = {a.name for b in buffers.values() for p in b.origin for a in _vars(p)}
    lets: dict[str, list[Poly]] = {}  # several, where there are several codes for one place

    todo = list(body)
    while todo:
        s = todo.pop()
        if isinstance(s, Let):
            lets.setdefault(s.var.name, []).append(s.value)
        else:
            wanted.update(a.name for p in own_polys(s) for a in _vars(p))
            todo += (t for b in inner(s) for t in b)
    work = [n for n in wanted if n in lets]
    while work:
        for a in (a for p in lets[work.pop()] for a in _vars(p)):
            if a.name not in wanted:
                wanted.add(a.name)
                if a.name in lets:
                    work.append(a.name)
    return _pruned(wanted, body)


def _pruned(wanted: set[str], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    pruned = partial(_pruned, wanted)
    return tuple(with_bodies(s, pruned) for s in body if not (isinstance(s, Let) and s.var.name not in wanted))


def _vars(p: Poly) -> Iterator[Var]:
    return (a for a in deep_atoms(p) if isinstance(a, Var))
