"""Unroll and jam: loops are replaced by copies of their body; independent iterations share loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hjit.kernels.lower.loopir import Block, For, If, Reduce, Stmt, VectorLoop
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import at, with_bodies
from hjit.trace.ir.graph import Graph


def unroll_and_jam(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Replace unrolled loops by copies of their body."""
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
    """Merge bodies that have the same shape, statement by statement; concatenate others."""
    if len({len(b) for b in bodies}) == 1:
        merged = [_merge(group) for group in zip(*bodies, strict=True)]
        if all(m is not None for m in merged):
            return tuple(m for m in merged if m is not None)
    return tuple(s for b in bodies for s in b)


def _merge(group: tuple[Stmt, ...]) -> Stmt | None:
    """Merge statements; None if they differ in more than their operands."""
    first = group[0]
    joins = JOINED.get(type(first))
    if joins is None or any(type(s) is not type(first) for s in group):
        return None
    empty: dict[str, Any] = dict.fromkeys(joins, ())
    if any(replace(s, **empty) != replace(first, **empty) for s in group):
        return None
    joined: dict[str, Any] = {name: join([getattr(s, name) for s in group]) for name, join in joins.items()}
    return replace(first, **joined)


def _one_after_the_other(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(x for part in parts for x in part)


def _each_once(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(x for part in parts for x in part))


# the fields of statements that are joined, and how; in the others they must agree
JOINED: Mapping[type, Mapping[str, Callable[[Sequence[tuple[Any, ...]]], tuple[Any, ...]]]] = {
    Block: {"stores": _one_after_the_other, "ahead": _each_once},
    Reduce: {"items": _one_after_the_other},
    For: {"body": jam},
    If: {"body": jam, "otherwise": jam},
    VectorLoop: {"body": jam, "remainder": jam},
}
