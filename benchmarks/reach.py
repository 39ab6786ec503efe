"""``python -m benchmarks reach``: are the default schedules, and those written by hand, in the space of searches?

A beam goes down the same tree of decisions, where a state costs as much as there are stages that it computes, stores
or loops over otherwise than the wanted schedule does. Sizes of loops do not count: there are steps between those that
are tried. Nor does where among the loops around them unrolled ones stand: they are jammed into what is inside. A beam
that ends at no cost proves that the schedule can be had; else the number is of the nearest it found.

A schedule by hand may change the Graph itself (it inlines stages before others are fused, or copies what is read): then
it is looked for in the space of that Graph. Nothing is compiled or timed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path as File
from typing import Any

import numpy as np

from benchmarks import apps
from hjit.sched.language.tree import Compute, DimKey, Loop, Node, Root, Store
from hjit.sched.search.batches import Batch, State
from hjit.sched.search.search import presets, search
from hjit.sched.search.space import Space
from hjit.sched.search.thresholds import MANY_STAGES
from hjit.trace.passes.rewrites import NO_REWRITES

WIDTH = 64  # of the beam
BOTH_WAYS = tuple(itertools.product((False, True), repeat=2))

Row = dict[str, Any]
LoopKey = tuple[str, DimKey, str]
Path = tuple[LoopKey, ...]  # the loops around something, the outermost first


def stages_elsewhere(space: Space, wanted: Root) -> int | None:
    """How many stages of a schedule are otherwise in the nearest one of the space; None where it has none."""
    rules = (replace(space.rules, producer_tiles=x, plane_loops=y, together=MANY_STAGES) for x, y in BOTH_WAYS)
    spaces = (Space.under(space, x) for x in rules)
    costs = [search(_Towards(x, wanted), x.start, presets(WIDTH)["beam"]).cost for x in spaces]
    return None if min(costs) == inf else int(min(costs))


class _Towards:
    """The tree of decisions of a space, with the distance from a schedule as the cost.

    Args:
        wanted: the schedule. What has no nests in it is inlined.
    """

    def __init__(self, space: Space, wanted: Root) -> None:
        self.space, self.stores = space, dict(_stores(wanted.children))
        self.computes = _computes(wanted.children)
        self.families, self.alone = space.families, space.alone

    def cost(self, some: Sequence[tuple[Any, Any]]) -> Iterable[np.ndarray[Any, Any]]:
        return [self._distances(batch)[rows] for batch, rows in some]

    def _distances(self, batch: Batch) -> np.ndarray[Any, Any]:
        """The distance for each choice of sizes: of those that differ in no order of two sizes it is the same."""
        n, sizes = len(batch.sizes), batch.sizes
        order = np.concatenate([(sizes[:, :, None] > sizes[:, None, :]).reshape(n, -1), sizes > 1], 1)
        _, first, which = np.unique(order, axis=0, return_index=True, return_inverse=True)
        return np.array([self._distance(batch, int(k)) for k in first], float)[which.reshape(-1)]

    def _distance(self, batch: Batch, row: int) -> int:
        state, decided = batch[row], {(d.stage, d.group) for d in self.space.decisions[: batch.step]}
        stores, computes = dict(_stores(state.nests)), _computes(state.nests)
        return sum(self._differs(s, state, stores, computes, decided) for s in {stage for stage, _ in decided})

    def _differs(
        self,
        stage: str,
        state: State,
        stores: Mapping[str, Path],
        computes: Mapping[str, list[tuple[tuple[int, ...], Path]]],
        decided: set[tuple[str, tuple[int, ...] | None]],
    ) -> bool:
        if stage in state.inlined or stage not in self.computes:
            return (stage in state.inlined) != (stage not in self.computes)
        fits = _same if state.batch.is_complete else _within
        if not fits(stores[stage], self.stores[stage]):
            return True
        wanted = dict(self.computes[stage])
        return any(
            group not in wanted or not fits(_seen(path, stage, (stage, group) in decided), wanted[group])
            for group, path in computes[stage]
        )


def _seen(path: Path, stage: str, is_decided: bool) -> Path:
    """The loops that count: those of the stage itself only where they were decided on."""
    return path if is_decided else tuple(x for x in path if x[0] != stage)


def _same(a: Path, b: Path) -> bool:
    return _parts(a) == _parts(b)


def _within(a: Path, b: Path) -> bool:
    """Are some loops among others, in their order? Later decisions put more between them."""
    (loops, unrolled), (others, more) = _parts(a), _parts(b)
    rest = iter(others)
    return unrolled <= more and all(x in rest for x in loops)


def _parts(path: Path) -> tuple[Path, Counter[LoopKey]]:
    """Loops in their order, and those that are unrolled."""
    return tuple(x for x in path if x[2] != "unroll"), Counter(x for x in path if x[2] == "unroll")


def _stores(nodes: Iterable[Node], around: Path = ()) -> Iterator[tuple[str, Path]]:
    """Each stage that has memory, with the loops around that."""
    for x in nodes:
        if isinstance(x, Store):
            yield x.stage, around
        if not isinstance(x, Compute):
            yield from _stores(x.children, _with(x, around))


def _computes(nodes: Iterable[Node]) -> dict[str, list[tuple[tuple[int, ...], Path]]]:
    """Each stage that is computed, with its definitions and the loops around those."""
    found: dict[str, list[tuple[tuple[int, ...], Path]]] = {}

    def visit(some: Iterable[Node], around: Path) -> None:
        for x in some:
            if isinstance(x, Compute):
                found.setdefault(x.stage, []).append((x.definitions, around))
            else:
                visit(x.children, _with(x, around))

    visit(nodes, ())
    return found


def _with(x: Node, around: Path) -> Path:
    return (*around, (x.stage, x.dim, x.kind)) if isinstance(x, Loop) else around


def scheduled_by_hand(variant: Any, options: Any, path: File) -> tuple[Any, Root]:
    """The segment of a function as a schedule rewrites it, and its tree; the schedule is in a file."""
    import hjit
    from hjit.call.compiling import segments_for
    from hjit.tuning.choice import users_choice

    segments_of = segments_for(variant.trace, options)
    choice = users_choice(hjit.Schedule.load(path), segments_of, True)
    (segment,) = segments_of(choice.rewrites)
    return segment, choice.trees[segment.graph.outputs]


def of_application(name: str, small: bool) -> Row:
    """How many stages of the schedules of an application are elsewhere in its space."""
    import hjit
    from hjit.call.compiling import segments_for
    from hjit.model import network
    from hjit.options import Options
    from hjit.tuning.autoschedule import space_of
    from hjit.tuning.limits import WEIGHTS

    module = apps.load(name)
    arguments = module.inputs(np.random.default_rng(0), module.SMALL if small else module.SHAPE)
    given: dict[str, Any] = {"cache": "off", "verify": "off", "tune": False, "blas": False}
    options = Options(**given)
    variant = hjit.pipeline(getattr(module, name), **given).variant_of(tuple(arguments), {}, options)
    cost = network.load(WEIGHTS)

    def elsewhere(segment: Any, tree: Root) -> Row:
        space = space_of(segment, variant.rec.sizes, options, cost)
        return {"stages": len(segment.graph.stages), "elsewhere": stages_elsewhere(space, tree)}

    (segment,) = segments_for(variant.trace, options)(NO_REWRITES)
    row = {"app": name, "default": elsewhere(segment, segment.default), "by_hand": None}
    path = apps.by_hand(name)
    if path is not None:
        row["by_hand"] = elsewhere(*scheduled_by_hand(variant, options, path))
    return row


def run(
    names: Sequence[str] = apps.NAMES,
    *,
    small: bool = False,
    keep: Callable[[Row], None] = lambda numbers: None,
) -> Row:
    """All numbers, under the names of the JSON file.

    Args:
        keep: called with what there is after each application.
    """
    from benchmarks.suite import about

    rows: list[Row] = []
    for name in names:
        rows.append(of_application(name, small))
        keep({**about(), "rows": rows})
    return {**about(), "rows": rows}


def table(numbers: Row) -> str:
    """A line for each application."""

    def cell(x: Row | None) -> str:
        if x is None:
            return ""
        n = x["elsewhere"]
        return "not found" if n is None else f"{n} of {x['stages']} stages" if n else "in the space"

    lines = [f"{r['app']:<26}{cell(r['default']):<20}{cell(r['by_hand'])}".rstrip() for r in numbers["rows"]]
    return "\n".join([f"{'elsewhere':<26}{'default':<20}by hand", *lines])
