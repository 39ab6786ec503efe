"""Names of indices that nothing refers to are dropped: inferred bounds have names whether or not they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hjit.kernels.lower.loopir import Let, Stmt
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Buffer, Nest
from hjit.kernels.lower.traverse import inner, own_polys, with_bodies
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Poly, Var, deep_atoms


def drop_unused_lets(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """The nest without names of indices that nothing refers to."""
    return replace(nest, body=_used(nest.body, nest.buffers))


def _used(body: tuple[Stmt, ...], buffers: dict[str, Buffer]) -> tuple[Stmt, ...]:
    """The statements without names of indices that nothing refers to."""
    wanted = {a.name for b in buffers.values() for p in b.origin for a in _vars(p)}
    lets: dict[str, list[Poly]] = {}  # several, where there are several codes for one place

    def collect(s: Stmt) -> None:
        if isinstance(s, Let):
            lets.setdefault(s.var.name, []).append(s.value)
            return
        wanted.update(a.name for p in own_polys(s) for a in _vars(p))
        for b in inner(s):
            for t in b:
                collect(t)

    for s in body:
        collect(s)
    work = [n for n in wanted if n in lets]
    while work:
        for a in (a for p in lets[work.pop()] for a in _vars(p)):
            if a.name not in wanted:
                wanted.add(a.name)
                if a.name in lets:
                    work.append(a.name)

    def prune(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(with_bodies(s, prune) for s in body if not (isinstance(s, Let) and s.var.name not in wanted))

    return prune(body)


def _vars(p: Poly) -> Iterator[Var]:
    return (a for a in deep_atoms(p) if isinstance(a, Var))
