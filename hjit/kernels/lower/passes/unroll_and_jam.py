"""Unroll and jam: code for each iteration of a loop; independent iterations share one body, and its loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hjit.kernels.lower.loopir import Block, For, If, Reduce, Stmt, VectorLoop
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import at, with_bodies
from hjit.trace.ir.graph import Graph


def unroll_and_jam(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """The nest without unrolled loops."""
    return replace(nest, body=_unrolled(nest.body))


def _unrolled(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(t for s in body for t in _iterations(with_bodies(s, _unrolled)))


def _iterations(s: Stmt) -> tuple[Stmt, ...]:
    if not isinstance(s, For) or s.kind in ("serial", "gpu_thread"):
        return (s,)
    length = s.end - s.begin
    assert length.is_const and length.const % s.step == 0, "of a known trip count"
    bodies = [at(s.body, {s.var: s.begin + k}) for k in range(0, length.const, s.step)]
    return jam(bodies) if s.kind == "unroll_and_jam" else tuple(t for b in bodies for t in b)


def jam(bodies: Sequence[tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """Bodies of the same shape statement by statement into one; else one after the other."""
    if len({len(b) for b in bodies}) == 1:
        merged = [_merge(group) for group in zip(*bodies, strict=True)]
        if all(m is not None for m in merged):
            return tuple(m for m in merged if m is not None)
    return tuple(s for b in bodies for s in b)


def _merge(group: tuple[Stmt, ...]) -> Stmt | None:
    first = group[0]
    if any(type(s) is not type(first) for s in group):
        return None
    match first:
        case Block():
            ahead = dict.fromkeys(x for s in group for x in s.ahead)  # type: ignore[union-attr]
            return Block(tuple(p for s in group for p in s.stores), tuple(ahead))  # type: ignore[union-attr]
        case Reduce():
            if any(replace(s, items=()) != replace(first, items=()) for s in group):  # type: ignore[type-var]
                return None
            return replace(first, items=tuple(i for s in group for i in s.items))  # type: ignore[union-attr]
        case For():
            if any(replace(s, body=()) != replace(first, body=()) for s in group):  # type: ignore[type-var]
                return None
            return replace(first, body=jam([s.body for s in group]))  # type: ignore[union-attr]
        case If():
            if any(s.value != first.value for s in group):  # type: ignore[union-attr]
                return None
            return If(first.value, jam([s.body for s in group]), jam([s.otherwise for s in group]))  # type: ignore[union-attr]
        case VectorLoop():
            if any(replace(s, body=(), remainder=()) != replace(first, body=(), remainder=()) for s in group):  # type: ignore[type-var]
                return None
            return replace(first, body=jam([s.body for s in group]), remainder=jam([s.remainder for s in group]))  # type: ignore[union-attr]
    return None
