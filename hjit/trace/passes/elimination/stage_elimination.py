"""Elimination of stages: dead ones, equal ones, versions of one buffer, and initial values that are overwritten."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from hjit.trace.ir.expressions import Expr, Load, ScalarRef, rewrite, walk
from hjit.trace.ir.graph import Graph, Stage, identity
from hjit.trace.ir.rewriting import map_exprs
from hjit.trace.passes.elimination.forwarding import concatenated
from hjit.trace.passes.interleaved_updates import covers_stage, write_disjoint


def drop_dead_stages(graph: Graph) -> Graph:
    """Remove stages, inputs and numbers that no output needs."""
    stages = graph.by_name
    live: set[str] = set()
    work = list(graph.outputs)
    while work:
        name = work.pop()
        if name in live:
            continue
        live.add(name)
        if name in stages:
            work += stages[name].sources
    graph = replace(
        graph,
        inputs=tuple(i for i in graph.inputs if i.name in live),
        stages=tuple(s for s in graph.stages if s.name in live),
    )
    return _without_unread_numbers(graph)


def _without_unread_numbers(graph: Graph) -> Graph:
    """The Graph without floats that nothing reads, as those of other kernels of the same trace.

    Whole numbers stay: one that its dtype cannot hold is NumPy's error, whether or not the result is used.
    """
    if all(x.dtype.kind in "iu" for x in graph.scalars):
        return graph
    read = {e.name for e in walk(*(e for s in graph.stages for e in s.exprs())) if isinstance(e, ScalarRef)}
    return replace(graph, scalars=tuple(x for x in graph.scalars if x.name in read or x.dtype.kind in "iu"))


def merge_versions(graph: Graph) -> Graph:
    """Merge a version of a buffer that only the next version reads into that one, with its updates first."""
    uses: dict[str, int] = dict.fromkeys(graph.outputs, 1)
    for s in graph.stages:
        for name in s.sources - {s.name}:
            uses[name] = uses.get(name, 0) + 1
    chains: dict[str, list[Stage]] = {}  # by their last versions
    for s in graph.stages:
        chain = (
            chains.get(s.initial.source)
            if isinstance(s.initial, Load) and s.initial.index == identity(len(s.shape))
            else None
        )
        old = chain[-1] if chain else None
        if chain and old is not None and uses[old.name] == 1 and _continues(old, s):
            del chains[old.name]
            chain.append(s)
        else:
            chain = [s]
        chains[s.name] = chain
    return replace(graph, stages=tuple(map(_joined, chains.values())))


def _joined(chain: list[Stage]) -> Stage:
    """The last of some versions, with the updates of all: each is renamed once, however many follow."""
    *before, last = chain
    if not before:
        return last
    rename = _renamer({s.name for s in before}, last.name)
    updates = tuple(replace(d, value=rename(d.value)) for s in chain for d in s.updates)
    return replace(last, initial=before[0].initial, updates=updates)


def _continues(old: Stage, s: Stage) -> bool:
    """May a stage whose initial value is another stage have that one's memory?"""
    return bool(s.updates) and old.shape == s.shape and old.dtype == s.dtype and _in_place(old.name, s)


def _in_place(old: str, s: Stage) -> bool:
    """Do the updates read the old version only where they write, and none before them?"""
    for k, d in enumerate(s.updates):
        reading = [x for x in d.loads if x.source == old]
        if reading and (
            d.rdims or any(x.index != d.target for x in reading) or not all(write_disjoint(b, d) for b in s.updates[:k])
        ):
            return False
    return True


def _renamer(old: Collection[str], new: str) -> Callable[[Expr], Expr]:
    memo: dict[Expr, Expr] = {}

    def change(e: Expr) -> Expr | None:
        return Load(new, e.index, e.dtype) if isinstance(e, Load) and e.source in old else None

    return lambda e: rewrite(e, change, memo)


def drop_overwritten(graph: Graph) -> Graph:
    """Do not compute initial values that updates overwrite everywhere."""
    return replace(graph, stages=tuple(replace(s, initial=None) if _is_overwritten(s) else s for s in graph.stages))


def _is_overwritten(s: Stage) -> bool:
    return s.initial is not None and (concatenated(s) is not None or covers_stage(s))


def merge_equal_stages(graph: Graph) -> Graph:
    """Merge stages with equal definitions."""
    seen: dict[Any, str] = {}
    renamed: dict[str, str] = {}
    stages = []

    def change(e: Expr) -> Expr | None:
        return Load(renamed[e.source], e.index, e.dtype) if isinstance(e, Load) and e.source in renamed else None

    for s in graph.stages:
        if renamed:
            s = map_exprs(s, lambda e: rewrite(e, change))
        key = None if s.name in graph.outputs else _definition_key(s)
        if key is not None and key in seen:
            renamed[s.name] = seen[key]
            continue
        if key is not None:
            seen[key] = s.name
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _definition_key(s: Stage) -> Any:
    """The key of a stage without its name."""
    anonymous = _renamer((s.name,), "")
    updates = tuple(replace(d, value=anonymous(d.value)) for d in s.updates)
    return (s.dtype.str, s.shape, s.initial, updates)
