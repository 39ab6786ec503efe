"""The costs of a kernel according to the cost model: by stage, by term, and by line of source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.errors import Origin
from hjit.model.feature_names import SCHEDULE
from hjit.model.network import IS_OUTPUT
from hjit.model.terms import COEFFICIENTS, terms
from hjit.options import Options
from hjit.sched.features.featurise import layouts_of
from hjit.sched.language.memory import C_ORDER
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Root
from hjit.sched.search.space import Space
from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ir.graph import Graph
from hjit.tuning.autoschedule import space_of
from hjit.tuning.choice import Segment
from hjit.tuning.nest_times import components
from hjit.tuning.weights import weights

GROUPS: Mapping[str, tuple[str, ...]] = {
    "compute": COEFFICIENTS[:4],
    "loads": COEFFICIENTS[4:15],
    "stores": COEFFICIENTS[15:21],
    "overhead": COEFFICIENTS[21:],
}
"""The parts of a cost (Adams 2019, appendix B): penalized compute cost, load cost, store cost, and all else."""
TINY = 1e-15  # seconds of a stage that is predicted to take none


@dataclass(frozen=True, slots=True)
class NestFacts:
    """A loop nest of a kernel: the stages that it computes, and its seconds, measured now."""

    stages: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Predicted costs of one kernel.

    Attributes:
        graph: with the stages that its schedule inlines.
        inlined: those.
        seconds: [stages, 27], by stage of the Graph and by term.
        read, written: bytes that each stage reads and that it allocates, [stages].
    """

    graph: Graph
    inlined: frozenset[str]
    seconds: np.ndarray[Any, Any]
    read: np.ndarray[Any, Any]
    written: np.ndarray[Any, Any]

    @property
    def total(self) -> float:
        """Seconds of the kernel."""
        return float(self.seconds.sum())

    @property
    def by_stage(self) -> dict[str, float]:
        """Seconds of each stage."""
        return {s.name: float(x) for s, x in zip(self.graph.stages, self.seconds.sum(-1), strict=True)}

    def by_group(self, k: int) -> dict[str, float]:
        """Seconds of one stage by `GROUPS`."""
        return {name: float(sum(self.seconds[k, COEFFICIENTS.index(x)] for x in some)) for name, some in GROUPS.items()}

    def by_term(self) -> list[tuple[str, float]]:
        """Seconds of all stages by term, those that are not zero, the largest first."""
        found = zip(COEFFICIENTS, map(float, self.seconds.sum(0)), strict=True)
        return sorted((x for x in found if x[1] > 0), key=lambda x: -x[1])


def costs_of(
    whole: Graph, running: Graph, tree: Root, sizes: Mapping[str, int], target: Target, options: Options
) -> Costs:
    """The costs of a schedule.

    Args:
        whole: the Graph before any schedule inlined a stage.
        running: the Graph that the tree is of.
    """
    names = {s.name for s in running.stages}
    space = space_of(Segment(whole, target), sizes, options, may_compile=False)
    inlined = frozenset(s.name for s in whole.stages if s.name not in names)
    if not names <= whole.by_name.keys() or not all(space.may_inline(whole.stage(n)) for n in inlined):
        # a schedule by hand, or parts of reductions, make other stages
        whole, inlined = running, frozenset()
        space = space_of(Segment(running, target), sizes, options, may_compile=False)
    seconds, read, written = np.zeros((3, len(whole.stages), len(COEFFICIENTS)))
    for features in _by_nest(space, tree, inlined):
        seconds += _seconds(space, features)
        f = dict(zip(SCHEDULE, features.T, strict=True))
        read[:, 0] += f["num_realizations"] * f["unique_bytes_read_per_realization"]
        written[:, 0] += f["num_realizations"] * f["bytes_at_realization"]
    return Costs(whole, inlined, seconds, read[:, 0], written[:, 0])


def _by_nest(space: Space, tree: Root, inlined: frozenset[str]) -> Iterator[Any]:
    """The features of each child of the root alone, [stages, len(SCHEDULE)], as a search adds up their costs."""
    layouts = {name: x for name, x in layouts_of(tree).items() if x != C_ORDER}
    for nest in tree.children:
        yield space.nests.features(Root((nest,)), inlined, layouts)


def _seconds(space: Space, features: Any) -> Any:
    """Seconds by stage and term, [stages, 27]."""
    nests = space.nests
    network: Any = weights()
    schedule = np.asarray(features, np.float32)[None]
    coefficients = network.prepare(nests.pipeline, nests.machine).coefficients(schedule)
    return 1e-9 * np.asarray(terms(schedule, nests.pipeline[:, IS_OUTPUT], nests.machine) * coefficients, np.float64)[0]


def measured_by_stage(costs: Costs, nests: Sequence[NestFacts]) -> dict[str, float]:
    """The measured seconds of each stage: those of its nests, shared out by predicted cost."""
    part, seconds = components(
        costs.graph, costs.inlined, [x.stages for x in nests], np.array([x.seconds for x in nests])
    )
    predicted = np.maximum(costs.seconds.sum(-1), TINY)
    of_part = np.bincount(part, predicted, len(part))
    return dict(zip(costs.by_stage, (seconds[part] * predicted / of_part[part]).tolist(), strict=True))


def by_line(costs: Costs, seconds: Mapping[str, float], recorded: Graph) -> dict[Origin, float]:
    """Seconds of each line of source.

    Those of a stage are shared out among the lines whose operations were merged into it, by what these operations cost.

    Args:
        seconds: of each stage.
        recorded: the Graph as it was traced, an operation a stage.
    """
    found: dict[Origin, float] = {}
    for stage, spent in seconds.items():
        weights_of = _merged_into(stage, recorded, costs.graph)
        every = sum(weights_of.values())
        for origin, weight in weights_of.items():
            found[origin] = found.get(origin, 0.0) + spent * (weight / every if every else 1 / len(weights_of))
    return found


def _merged_into(stage: str, recorded: Graph, graph: Graph) -> dict[Origin, float]:
    """The lines of a stage, and the operations of each."""
    found: dict[Origin, float] = {}
    work, seen = [stage] if stage in recorded.by_name else [], {stage}
    while work:
        s = recorded.by_name[work.pop()]
        if s.origin is not None:
            found[s.origin] = found.get(s.origin, 0.0) + sum(cost(e) for e in s.exprs())
        new = s.sources - seen - graph.by_name.keys()
        seen |= new
        work += [n for n in new if n in recorded.by_name]
    own = graph.by_name[stage].origin
    return found or ({} if own is None else {own: 1.0})
