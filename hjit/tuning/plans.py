"""Plans: the schedules that searches found, kept on disk.

A plan is found under the canonical Graph, the order of magnitude of its sizes, the machine, and what searched. It says
which stages are inlined, and the tree, with stages by their position: so it serves every Graph with the same key,
whatever its variables are called.
"""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hjit import cache
from hjit.errors import ScheduleError
from hjit.kernels.runtime import launch
from hjit.options import Options
from hjit.process import machine
from hjit.sched.language.limits import MAX_PARTS, check_number
from hjit.sched.language.tree import Root, from_json, renamed
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import sizes_value
from hjit.trace.passes.rewrites import parts_name
from hjit.tuning.choice import Choice, Segment
from hjit.tuning.limits import MOST_PLANS, SIZE_RATIO

if TYPE_CHECKING:
    from hjit.sched.search.search import Record

log = logging.getLogger("hjit")

WEIGHTS = Path(__file__).parents[1] / "model" / "weights.npz"
_plans: dict[str, bytes] = {}  # of this process by name, for where there is no disk to keep them


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedule of one Graph.

    Attributes:
        tree: None: the default schedule.
        cost: as the cost model has it, in seconds.
        measured: seconds that it, and the default schedule, took when they were compared; None: they were not.
        factored: reductions that are done in parts.
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


def load_plan(name: str, graph: Graph, options: Options) -> Plan | None:
    """The plan of a canonical Graph that this process or an earlier one made."""
    text = cache.load(name, options.cache_dir, options.cache, "plan") or _plans.get(name)
    return None if text is None else from_text(text, graph)


def store_plans(
    choice: Choice,
    new: Sequence[tuple[str, Graph]],
    options: Options,
    measured: tuple[float, float] | None = None,
) -> None:
    """Put new plans on the disk, and in this process.

    Args:
        new: their names and Graphs.
        measured: see `Plan`.
    """
    inlined, factored = choice.rewrites.inlined_after, choice.rewrites.factored
    for name, graph in new:
        plan = Plan(
            choice.trees.get(graph.outputs),
            frozenset(n for n in graph.by_name if n in inlined),
            choice.costs.get(graph.outputs, 0.0),
            measured=measured,
            factored={n: x for n, x in factored.items() if n in graph.by_name},
        )
        text = to_text(plan, graph)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[name] = text
        about = {"tune": options.tune, "versions": cache.versions()}
        cache.store(name, text, about, options.cache_dir, options.cache, "plan")


def plan_name(segment: Segment, sizes: Mapping[str, int], options: Options) -> str:
    """The name of a plan in the cache. It holds what was measured, so it is of this processor."""
    definitions = [d for s in segment.graph.stages for d in s.definitions]
    points = sum(math.prod(sizes_value(n, sizes) for n in d.extents) for d in definitions)
    magnitude = round(math.log(max(points, 1), SIZE_RATIO))
    parts = (
        segment.key.text,
        str(magnitude),
        str(segment.target),
        str(launch.threads(options.num_threads)),
        str(options.tune),
        str(options.fast_math),
        _model_digest(),
    )
    return "plan_" + cache.digest(*parts, machine.cpu(), cache.versions())[:40]


@functools.lru_cache(maxsize=1)
def _model_digest() -> str:
    return cache.digest(WEIGHTS.read_bytes().hex())


def to_text(found: Plan, graph: Graph) -> bytes:
    """A plan as it is kept: stages by position."""
    number = {s.name: f"s{k}" for k, s in enumerate(graph.stages)}
    number |= {parts_name(n): parts_name(number[n]) for n in found.factored}
    tree = None if found.tree is None else json.loads(renamed(found.tree, number).to_json())  # type: ignore[union-attr]
    inlined = sorted(number[n] for n in found.inlined)
    factored = {number[n]: x for n, x in found.factored.items()}
    return json.dumps(
        {"tree": tree, "inlined": inlined, "cost": found.cost, "measured": found.measured, "factored": factored}
    ).encode()


def from_text(text: bytes, graph: Graph) -> Plan | None:
    """The plan that was kept, for a Graph with the same key; None where it is not one."""
    names = {f"s{k}": s.name for k, s in enumerate(graph.stages)}
    try:
        data = json.loads(text)
        inlined = frozenset(names[n] for n in data["inlined"])
        for _, parts in data["factored"].values():
            check_number("rfactor", parts, MAX_PARTS, "parts")
        factored = {names[n]: (int(k), int(parts)) for n, (k, parts) in data["factored"].items()}
        names |= {parts_name(number): parts_name(names[number]) for number in data["factored"]}
        tree = None if data["tree"] is None else renamed(from_json(json.dumps(data["tree"])), names)
        cost = float(data["cost"])
        measured = None if data["measured"] is None else (float(data["measured"][0]), float(data["measured"][1]))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, ScheduleError) as error:
        log.debug("a plan is not usable: %s", error)
        return None
    return (
        Plan(tree, inlined, cost, measured=measured, factored=factored)
        if tree is None or isinstance(tree, Root)
        else None
    )
