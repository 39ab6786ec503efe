"""Uninitialised elements, as `np.empty` makes them, and those computed from them.

NumPy's are whatever was in memory, hjit's are zeros, so they are not compared. Which elements these are is worked out
only where a comparison finds differences: the function is traced again with other numbers in place of the zeros, and
its Graphs are interpreted. Elements that change depend on uninitialised ones. No kernel takes part in this, so that a
wrong kernel is never mistaken for an uninitialised element.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.call.arguments import copied
from hjit.call.build import Request, on_deep_stack, traced_call, variant_of
from hjit.call.segments import TraceSegments, graphs_of
from hjit.call.variant import CompiledSegment, RunOptions, Variant
from hjit.errors import Origin, raise_if_signalled
from hjit.kernels.runtime import features
from hjit.options import Options
from hjit.process import deadline
from hjit.sched.language.target import Target
from hjit.trace.capture.trace import Trace, flatten, python_function
from hjit.trace.ir.expressions import Cast, Op, walk
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.interpret import interpret, points_at_once
from hjit.trace.ir.poly import sizes_value
from hjit.trace.passes.elimination.stage_elimination import drop_dead_stages
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites
from hjit.trace.tracing.recording.uninitialised import FILLS

log = logging.getLogger("hjit")

MAX_POINTS = 1 << 23  # of a definition that are in memory at once, for each operation
MAX_WORK = 1 << 29  # operations on elements in all, some seconds
STEP_WORK = 1000  # operations: the overhead of one on few elements

Array = np.ndarray[Any, Any]


class TooMuchToInterpret(Exception):
    """Finding the uninitialised elements would take too long, or is not possible."""


@dataclass(frozen=True, slots=True)
class Uninitialised:
    """Finds the elements of a call's results that depend on uninitialised ones.

    Attributes:
        request: the call, for the CPU.
        variant: the first trace, which has zeros there.
        before: arguments and captured arrays that the function changes, as they were, by input.
        draws: random numbers of the call, by input.
    """

    request: Request
    variant: Variant
    before: Mapping[str, Array]
    draws: Mapping[str, Array]

    def dependent(self, names: Sequence[str]) -> Iterator[Any]:
        """For one more number in their place each: the elements found so far, as bools like the results.

        Args:
            names: the changed arguments and captured arrays, which follow the results.

        Raises:
            TooMuchToInterpret: it would take too long, or what is computed is another thing with these numbers.
        """
        if not self._may_depend():
            return
        plain = self._results(0, names)
        found: list[Any] = [False] * len(plain)
        for fill in range(1, FILLS):
            other = self._results(fill, names)
            if len(other) != len(plain):
                raise TooMuchToInterpret("the results have another structure")
            found = [
                a if (d := _differing(p, o)) is None else a | d for a, p, o in zip(found, plain, other, strict=True)
            ]
            yield found

    def _may_depend(self) -> bool:
        """Do other numbers for uninitialised elements make another function?

        Most functions write all of what they make: then it is in no canonical Graph. This takes a trace, where to
        interpret Graphs takes as long as NumPy takes some ten times.
        """
        given, _ = self._copies()
        try:
            other = self._traced(1, given)
            target = features.schedule_target(self.request.options.target)
            found = [on_deep_stack(_computed, trace, target) for trace in (self.variant.trace, other)]
        except Exception as error:
            raise_if_signalled(error)
            log.debug("uninitialised elements may be in the results: %s: %s", type(error).__name__, error)
            return True
        return found[0] is None or found[0] != found[1]

    def _results(self, fill: int, names: Sequence[str]) -> list[Any]:
        """The leaves of the results, and the changed arrays, with some numbers for uninitialised elements."""
        try:
            with np.errstate(all="ignore"):  # numbers that are not the user's may overflow
                return self._interpreted(fill, names)
        except TooMuchToInterpret:
            raise
        except Exception as error:
            raise_if_signalled(error)
            raise TooMuchToInterpret(f"{type(error).__name__}: {error}") from error

    def _interpreted(self, fill: int, names: Sequence[str]) -> list[Any]:
        given, copies = self._copies()
        traced = self._traced(fill, given)
        variant = on_deep_stack(functools.partial(_interpreting, traced, self.request.options))
        guarded = variant.guards.values(given)
        if guarded is None:
            raise TooMuchToInterpret("what the function reads besides its arguments has changed")
        values, captured = guarded
        captured = {n: copies.get(n, a) for n, a in captured.items()}
        known = {
            k: tuple(self.draws[n] for n in e.gives)
            for k, e in enumerate(variant.breaks)
            if e is not None and e.impure and all(n in self.draws for n in e.gives)
        }
        options = RunOptions(known, effects=False)
        result = on_deep_stack(functools.partial(variant.run, given, (values, captured), options=options))
        leaves: list[Any] = []
        flatten((result, [copies[n] for n in names]), leaves)
        return leaves

    def _copies(self) -> tuple[list[Any], dict[str, Array]]:
        """The arguments of the call, with copies of those that the function changes; and all such copies by input."""
        copies = {n: copied(a) for n, a in self.before.items()}
        return self.variant.guards.with_arrays(self.request.leaves, copies), copies

    def _traced(self, fill: int, given: list[Any]) -> Trace:
        """The trace with some numbers for uninitialised elements."""
        code = python_function(self.request.function).__code__
        origin = Origin(code.co_filename, code.co_firstlineno, code.co_name)
        with deadline.budget(self.request.options.budget, code.co_name, origin):
            return traced_call(replace(self.request, leaves=given, fill=fill))


def without_dependent(ours: Any, numpys: Any, dependent: Sequence[Any]) -> Any:
    """Results, with NumPy's elements in place of those that depend on uninitialised ones.

    Args:
        dependent: as `Uninitialised.dependent` gives it.
    """
    mine: list[Any] = []
    others: list[Any] = []
    structure = flatten(ours, mine)
    if flatten(numpys, others) != structure or len(mine) != len(dependent):
        return ours
    return structure.build(lambda k: _replaced(mine[k], others[k], dependent[k]))


def _replaced(x: Any, y: Any, where: Any) -> Any:
    if type(x) is not type(y) or not np.any(where):
        return x
    a, b = np.asarray(x), np.asarray(y)
    if a.dtype != b.dtype or not a.shape == b.shape == np.shape(where):
        return x
    return np.where(where, b, a) if isinstance(x, np.ndarray) else y


def _differing(x: Any, y: Any) -> Any:
    """Which elements differ; None where they cannot be compared one by one."""
    if not isinstance(x, (np.ndarray, np.generic, bool, int, float, complex)) or type(x) is not type(y):
        return None
    a, b = np.asarray(x), np.asarray(y)
    if a.dtype != b.dtype or a.shape != b.shape:
        return None
    return np.asarray(~((a == b) | ((a != a) & (b != b))))


def _computed(traced: Trace, target: Target) -> list[Any] | None:
    """All that results are made of but the call's arrays; None where a function that is called may be given more."""
    rec = traced.recorder
    if any(e.call is not None for e in rec.breaks):
        return None
    segments = TraceSegments(traced, target)(NO_REWRITES)
    constants = [rec.inputs[i.name] for x in segments for i in x.graph.inputs if i.name in rec.inputs]
    arrays = [s.array for s in constants if s.where == ("constant",)]
    arrays += [r.value for r in traced.results if r.kind == "constant"]
    return [[x.key.text for x in segments], [(a.dtype.str, a.shape, a.tobytes()) for a in map(np.asarray, arrays)]]


# -- interpreting


def _interpreting(traced: Trace, options: Options) -> Variant:
    """A variant whose segments are interpreted.

    Raises:
        TooMuchToInterpret: it would take too long.
    """
    rec = traced.recorder
    graphs = graphs_of(rec.graph(()), traced.goals, NO_REWRITES, _as_recorded)  # a pass may have lost what is written
    work = sum(_work(g, rec.sizes) for g in graphs)
    if work > MAX_WORK:
        raise TooMuchToInterpret(f"{work} operations")
    segments = [
        CompiledSegment(functools.partial(_recorded, g), _Interpreted(g, rec.sizes) if g.outputs else None, e)  # type: ignore[arg-type]
        for g, e in zip(graphs, [*rec.breaks, None], strict=True)
    ]
    return variant_of(traced, segments, options)


def _recorded(graph: Graph) -> tuple[Graph, None]:
    return graph, None


def _as_recorded(graph: Graph, _: Rewrites) -> Graph:
    """What a Graph needs of itself."""
    return drop_dead_stages(graph)


def _work(graph: Graph, sizes: Mapping[str, int]) -> int:
    """The operations on elements that interpreting a Graph takes."""
    total = 0
    for stage, d in ((s, d) for s in graph.stages for d in s.definitions):
        pure, inner = ([sizes_value(n, sizes) for n in extents] for extents in (d.dims, d.rdims))
        at_once = points_at_once(stage, d, pure, inner)[0]
        if at_once > MAX_POINTS:
            raise TooMuchToInterpret(f"{at_once} points of a definition at once")
        points = math.prod(pure) * math.prod(inner)
        calls = points // max(at_once, 1)
        total += max(points, STEP_WORK * calls) * (sum(isinstance(e, (Op, Cast)) for e in walk(d.value)) + 1)
    return total


class _Interpreted:
    """Runs a Graph as a kernel does; see `hjit.kernels.runtime.kernel.Bound`."""

    def __init__(self, graph: Graph, sizes: Mapping[str, int]) -> None:
        self._graph, self._sizes = graph, sizes
        self.inputs = tuple(i.name for i in graph.inputs if i.data is None)
        self.scalars = tuple((s.name, s.dtype) for s in graph.scalars)
        stages = graph.by_name
        self.outputs = tuple(
            (n, tuple(sizes_value(p, sizes) for p in stages[n].shape), stages[n].dtype) for n in graph.outputs
        )

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array], scalars: Sequence[Any], *how: bool) -> bool:
        """Compute `outputs`; False where an index is out of bounds."""
        names = [name for name, _ in self.scalars]
        try:
            found = interpret(
                self._graph,
                dict(zip(self.inputs, arrays, strict=True)),
                self._sizes,
                dict(zip(names, scalars, strict=True)),
            )
        except IndexError:
            return False
        for out, array in zip(outputs, found, strict=True):
            np.copyto(out, array)
        return True


__all__ = ["TooMuchToInterpret", "Uninitialised", "without_dependent"]
