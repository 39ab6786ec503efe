"""Random programs under searched and random schedules: the lowered nests, beside what features say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hjit.call.segments import TraceSegments
from hjit.errors import HjitError
from hjit.kernels.lower.lower import CPU, Pass, lower
from hjit.kernels.lower.program import Program
from hjit.kernels.runtime import features
from hjit.model import generator, network
from hjit.options import Options
from hjit.pipeline import Pipeline
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph
from hjit.training.cases import segment_of
from hjit.training.schedules import candidates
from hjit.tuning.autoschedule import space_of
from hjit.tuning.candidates import with_fixes
from hjit.tuning.choice import Choice
from hjit.tuning.decide import by_search


@dataclass(frozen=True)
class Lowered:
    """A program under a schedule.

    Attributes:
        program: its seed. origin: of the schedule.
        graph: what was lowered, with the sizes of its inputs.
        tree: the schedule.
        features: of each stage that is not inlined, and of those that are.
    """

    program: int
    origin: str
    graph: Graph
    sizes: Mapping[str, int]
    tree: Root
    nests: Program
    features: Mapping[str, Any]


def lowered(program: int, pixels: int, schedules: int, threads: int, passes: Sequence[Pass] = CPU) -> Iterator[Lowered]:
    """A random program under some schedules, with those made legal that lowering refuses at first."""
    made = generator.random_program(program, pixels)
    given: dict[str, Any] = {"verify": "off", "cache": "off", "tune": False, "num_threads": threads}
    options = Options(on_unsupported="raise", **given)
    variant = Pipeline(made.function, given).variant_of(tuple(made.inputs(program)), {}, options)
    if len(variant.graphs) != 1:
        return
    (graph,), sizes, cost = variant.graphs, variant.rec.sizes, network.random(program)
    space = space_of(segment_of(graph, options), sizes, options, cost)
    cut = TraceSegments(variant.trace, features.schedule_target(options.target))
    names = [s.name for s in graph.stages]

    def make(choice: Choice) -> tuple[Graph, Program]:
        (segment,) = cut(choice.rewrites)
        tree = choice.of(segment).tree
        assert tree is not None
        return segment.graph, lower(segment.graph, tree, passes=passes)

    for origin, found in candidates(space, graph, schedules, program, cost):
        try:
            (own, nests), done = with_fixes(make, by_search({graph.outputs: found.tree}, found.inlined), cut)
        except HjitError:
            continue
        tree = done.trees[graph.outputs]
        values = dict(zip(names, space.features(tree, found.inlined), strict=True))
        yield Lowered(program, origin, own, sizes, tree, nests, values)
