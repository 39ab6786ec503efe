"""Segments of a trace: what is computed between its graph breaks, each a canonical Graph and one kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hjit.sched.language.target import Target
from hjit.trace.capture.trace import Trace
from hjit.trace.ir.graph import Graph, Input, Stage, contiguous_layout, element_strides
from hjit.trace.ir.poly import sizes_value
from hjit.trace.ops.layout import c_strides
from hjit.trace.passes.canonical import canonicalise
from hjit.trace.passes.equal_sizes import unify_sizes
from hjit.trace.passes.rewrites import Rewrites
from hjit.trace.tracing.recording.recorder import Recorder
from hjit.tuning.choice import Segment, Segments

Array = np.ndarray[Any, Any]
Canonicaliser = Callable[[Graph, Rewrites], Graph]


class TraceSegments:
    """Makes the segments of a trace for the rewrites that a schedule requests, once for each set of rewrites."""

    def __init__(self, trace: Trace, target: Target, by_chance: bool = True, fast_math: bool = False) -> None:
        """`by_chance`: see `hjit.trace.passes.equal_sizes.unify_sizes`; `fast_math`: `canonicalise`."""
        self._recorded, self._goals, self._target = recorded(trace.recorder, by_chance), trace.goals, target
        self._canonicaliser = canonicaliser_for(target, fast_math)
        self._made: dict[Hashable, Segments] = {}

    def __call__(self, rewrites: Rewrites) -> Segments:
        """One segment for each goal."""
        key = _key(rewrites)
        found = None if key is None else self._made.get(key)
        if found is None:
            graphs = graphs_of(self._recorded, self._goals, rewrites, self._canonicaliser)
            found = tuple(Segment(g, self._target) for g in graphs)
            if key is not None:
                self._made[key] = found
        return found


def _key(rewrites: Rewrites) -> Hashable:
    """A hashable key of these rewrites; None for those of a schedule by hand, which are asked for only once."""
    if not isinstance(rewrites.inlined_after, frozenset) or not isinstance(rewrites.factored, dict):
        return None
    if rewrites != Rewrites(inlined_after=rewrites.inlined_after, factored=rewrites.factored):
        return None
    return rewrites.inlined_after, tuple(sorted(rewrites.factored.items()))


def recorded(rec: Recorder, by_chance: bool = True) -> Graph:
    """The Graph of everything recorded, with equal sizes unified; see `hjit.trace.passes.equal_sizes.unify_sizes`."""
    return unify_sizes(rec.graph(()), rec.sizes, rec.equations, by_chance)


def canonicaliser_for(target: Target, fast_math: bool) -> Canonicaliser:
    """The canonicaliser for a target."""
    return functools.partial(canonicalise, target=target.kind, fast_math=fast_math)


def graphs_of(
    whole: Graph,
    goals: Sequence[tuple[str, ...]],
    rewrites: Rewrites,
    canonicaliser: Canonicaliser = canonicalise,
) -> list[Graph]:
    """One Graph for each goal; stages that a later one needs are outputs of the first that computes them.

    Args:
        whole: what was recorded.
        canonicaliser: what makes a Graph of a part of it.
    """
    reads = {s.name: tuple(s.sources - {s.name}) for s in whole.stages}
    carried: dict[str, Input] = {}
    found: list[Graph] = []
    for number, goal in enumerate(goals):
        wanted = tuple(n for n in goal if n in reads and n not in carried)
        later = _ancestors([n for g in goals[number + 1 :] for n in g], reads, carried)
        if later:
            now = _ancestors(list(wanted), reads, carried) & later
            wanted += tuple(s.name for s in whole.stages if s.name in now - {*wanted} and _interpolates(s))
        graph = _without(whole, carried, wanted)
        made = canonicaliser(graph, rewrites)
        if number + 1 < len(goals):
            keep = tuple(s.name for s in made.stages if s.name in later and s.name not in wanted)
            if keep:
                made = canonicaliser(replace(graph, outputs=wanted + keep), rewrites)
            for s in whole.stages:
                if s.name in wanted + keep:
                    carried[s.name] = _as_input(s)
        found.append(made)
    return found


MIN_GATHERS = 4  # of an element: computing them again costs more than storing them


def _interpolates(s: Stage) -> bool:
    """Does a stage consist of elements loaded at computed indices?"""
    return s.initial is not None and sum(any(p.exprs for p in x.index) for x in s.loads) >= MIN_GATHERS


def _ancestors(names: list[str], reads: dict[str, tuple[str, ...]], stop: dict[str, Input]) -> set[str]:
    found: set[str] = set()
    while names:
        n = names.pop()
        if n not in found and n in reads and n not in stop:
            found.add(n)
            names += reads[n]
    return found


def _as_input(s: Stage) -> Input:
    return Input(s.name, s.dtype, s.shape, contiguous_layout(s.shape))


def continued(whole: Graph, begun: Sequence[str], outputs: tuple[str, ...]) -> Graph:
    """The Graph of some stages, given arrays of others (`begun`)."""
    return _without(whole, {n: _as_input(whole.by_name[n]) for n in begun}, outputs)


def _without(whole: Graph, carried: dict[str, Input], outputs: tuple[str, ...]) -> Graph:
    stages = tuple(s for s in whole.stages if s.name not in carried)
    return replace(whole, inputs=whole.inputs + tuple(carried.values()), stages=stages, outputs=outputs)


def strides_of(rec: Recorder, graphs: Iterable[Graph]) -> Mapping[str, tuple[int, ...]]:
    """Strides of all inputs of some Graphs, in elements; what is carried over between them is in C order."""
    found = {n: element_strides(s.array) for n, s in rec.inputs.items()}
    for g in graphs:
        for i in g.inputs:
            if i.name not in found:
                found[i.name] = c_strides([sizes_value(p, rec.sizes) for p in i.shape], 1)
    return found
