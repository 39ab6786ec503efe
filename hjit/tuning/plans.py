"""Plans: the schedules that searches found, kept on disk.

A plan's key is the canonical Graph, the order of magnitude of its sizes, the machine, and the kind of search. It
contains the inlined stages, and the tree, with stages by their position, so it serves every Graph with the same key,
whatever its variables are named.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hjit.cache as cache
from hjit.errors import ScheduleError
from hjit.kernels.runtime import launch
from hjit.options import Options
from hjit.process import machine
from hjit.sched.language.limits import MAX_PARTS, check_number
from hjit.sched.language.tree import Root, from_json, renamed
from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.ir.poly import sizes_value
from hjit.trace.passes.rewrites import parts_name
from hjit.tuning.choice import Choice, Segment
from hjit.tuning.limits import MAX_PLANS, SIZE_RATIO
from hjit.tuning.weights import weights_digest

if TYPE_CHECKING:
    from hjit.sched.search.search import Record

log = logging.getLogger("hjit")

_plans: dict[str, bytes] = {}  # of this process by name, for where there is no disk to keep them


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate that was timed.

    Attributes:
        tree: None: the default schedule.
        cost: as the cost model has it, in seconds; None: it was not evaluated.
        seconds: the least of its runs, interleaved with those of the other candidates.
    """

    tree: Root | None
    inlined: frozenset[str]
    cost: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedule of one Graph.

    Attributes:
        tree: None: the default schedule.
        cost: as the cost model has it, in seconds.
        default_cost: of the default schedule, by a search that has just been made.
        measured: seconds that it, and the default schedule, took when they were compared; None: they were not.
        factored: reductions that are done in parts.
        timed: all that was compared then; for reports.
        seconds: that the search took.
        record: of the search with the options' effort.
        evaluations: schedules whose cost was evaluated, by that search and those before and after it.
        others: further schedules that are worth timing.
    """

    tree: Root | None
    inlined: frozenset[str]
    cost: float
    seconds: float = 0.0
    record: Record | None = None
    evaluations: int = 0
    others: tuple[Plan, ...] = ()
    measured: tuple[float, float] | None = None
    factored: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    timed: tuple[Timed, ...] = ()
    default_cost: float = math.inf


@dataclass(frozen=True, slots=True)
class PlanName:
    """What a plan is found under, on processors of one kind: it holds what was measured there.

    Attributes:
        graph: a hash of the canonical Graph's key.
        magnitude: of the points that are computed: the logarithm to the base `SIZE_RATIO`.
        target: see `hjit.sched.language.target`, as text.
        tune: what found it, see `hjit.options`.
    """

    graph: str
    magnitude: int
    target: str
    threads: int
    fast_math: bool
    tune: str

    def by(self, tune: str) -> PlanName:
        """The name of the plan of the same function by another search."""
        return replace(self, tune=tune)

    @property
    def entry(self) -> str:
        """The name of the entry of the cache. What tuning has measured does not depend on the cost model."""
        model = "" if self.tune == "autotune" else weights_digest()
        return "plan_" + cache.digest(*map(str, astuple(self)), model, machine.cpu(), cache.versions())[:40]

    def about(self) -> dict[str, Any]:
        """What the header of the entry says."""
        return {"key": asdict(self), "machine": machine.kind(), "tune": self.tune}

    @staticmethod
    def from_about(about: Any) -> PlanName:
        """What `about` was made of.

        Raises:
            ValueError: it is nothing of that kind.
        """
        try:
            given = about["key"]
            found = PlanName(**given)
        except (KeyError, TypeError) as error:
            raise ValueError(f"no name of a plan: {error}") from None
        if [type(x) for x in astuple(found)] != [str, int, str, int, bool, str]:
            raise ValueError("no name of a plan")
        return found


def load_plan(name: PlanName, graph: Graph, options: Options) -> Plan | None:
    """The plan of a canonical Graph that this process or an earlier one made."""
    entry = name.entry
    text = cache.load(entry, options.cache_dir, options.cache, "plan") or _plans.get(entry)
    return None if text is None else from_text(text, graph)


def store_plans(
    choice: Choice,
    new: Sequence[tuple[PlanName, Graph]],
    options: Options,
    measured: tuple[float, float] | None = None,
    timed: Sequence[tuple[Choice, float]] = (),
) -> None:
    """Put new plans on the disk, and in this process.

    Args:
        new: their names and Graphs.
        measured: see `Plan`.
        timed: what was compared, and the seconds of each.
    """
    inlined, factored = choice.rewrites.inlined_after, choice.rewrites.factored
    for name, graph in new:
        plan = Plan(
            choice.trees.get(graph.outputs),
            frozenset(n for n in graph.by_name if n in inlined),
            choice.costs.get(graph.outputs, 0.0),
            measured=measured,
            factored={n: x for n, x in factored.items() if n in graph.by_name},
            timed=tuple(_timed(x, seconds, graph) for x, seconds in timed),
        )
        text = to_text(plan, graph)
        if len(_plans) >= MAX_PLANS:
            _plans.clear()
        _plans[name.entry] = text
        about = {**name.about(), "versions": cache.versions(), "stages": [_described(s) for s in graph.stages]}
        cache.store(name.entry, text, about, options.cache_dir, options.cache, "plan")


def _described(s: Stage) -> str:
    """The variable, the line and the function that a stage comes from, for people; no folder."""
    if s.origin is None:
        return s.name
    return f"{s.name}   # {Path(s.origin.filename).name}:{s.origin.line} in {s.origin.function}"


def _timed(choice: Choice, seconds: float, graph: Graph) -> Timed:
    inlined = frozenset(n for n in graph.by_name if n in choice.rewrites.inlined_after)
    return Timed(choice.trees.get(graph.outputs), inlined, choice.costs.get(graph.outputs), seconds)


def plan_name(segment: Segment, sizes: Mapping[str, int], options: Options) -> PlanName:
    """What the plan of a canonical Graph at some sizes is found under."""
    definitions = [d for s in segment.graph.stages for d in s.definitions]
    points = sum(math.prod(sizes_value(n, sizes) for n in d.extents) for d in definitions)
    return PlanName(
        cache.digest(segment.key.text),
        round(math.log(max(points, 1), SIZE_RATIO)),
        str(segment.target),
        launch.threads(options.num_threads),
        options.fast_math,
        str(options.tune),
    )


def to_text(found: Plan, graph: Graph) -> bytes:
    """A plan as it is kept: stages by position."""
    number = {s.name: f"s{k}" for k, s in enumerate(graph.stages)}
    number = {parts_name(n): parts_name(k) for n, k in number.items()} | number
    factored = {number[n]: x for n, x in found.factored.items()}

    def schedule(x: Plan | Timed) -> dict[str, Any]:
        tree = None if x.tree is None else json.loads(renamed(x.tree, number).to_json())  # type: ignore[union-attr]
        return {"tree": tree, "inlined": sorted(number[n] for n in x.inlined), "cost": x.cost}

    timed = [{**schedule(x), "seconds": x.seconds} for x in found.timed]
    return json.dumps({**schedule(found), "measured": found.measured, "factored": factored, "timed": timed}).encode()


def from_text(text: bytes, graph: Graph) -> Plan | None:
    """The plan that was kept, for a Graph with the same key; None where it is not one."""
    names = {f"s{k}": s.name for k, s in enumerate(graph.stages)}
    try:
        data = json.loads(text)
        for _, parts in data["factored"].values():
            check_number("rfactor", parts, MAX_PARTS, "parts")
        factored = {names[n]: (int(k), int(parts)) for n, (k, parts) in data["factored"].items()}
        names = {parts_name(k): parts_name(n) for k, n in names.items()} | names
        tree, inlined, cost = _schedule(data, names)
        timed = tuple(Timed(*_schedule(x, names), float(x["seconds"])) for x in data.get("timed", ()))
        measured = None if data["measured"] is None else (float(data["measured"][0]), float(data["measured"][1]))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, ScheduleError) as error:
        log.debug("a plan is not usable: %s", error)
        return None
    return Plan(tree, inlined, cost or 0.0, measured=measured, factored=factored, timed=timed)


def _schedule(data: Any, names: Mapping[str, str]) -> tuple[Root | None, frozenset[str], float | None]:
    """The tree, what is inlined, and the predicted cost.

    Raises:
        ScheduleError: it is not a tree.
    """
    tree = None if data["tree"] is None else renamed(from_json(json.dumps(data["tree"])), names)
    if not isinstance(tree, Root | None):
        raise ScheduleError("a plan without a root")
    return tree, frozenset(names[n] for n in data["inlined"]), None if data["cost"] is None else float(data["cost"])
