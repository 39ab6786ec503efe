"""Schedules by hand, in Halide's words: ``s = f.schedule(img); s["blur_x"].compute_at("blur_y", "yo").vectorize("x", 16)``.

A `Schedule` is a list of directives, partial: what it does not say is as in the default schedule. `Schedule.tree` makes
the schedule tree of a Graph from it. Loops have names: a stage begins with one for each dimension, the reduction
dimensions after the pure ones, and `split`, `tile`, `fuse`, `vectorize` and `unroll` make new ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as File
from typing import Any

from hjit.errors import ScheduleError
from hjit.sched.build import Path, Step, at, attached, nest, paths, without
from hjit.sched.check import leaves
from hjit.sched.default import Target, default_schedule, groups, serial_loops
from hjit.sched.tree import DimKey, Loop, LoopKind, Node, Root, Store, computes
from hjit.trace.canonical import Inlining
from hjit.trace.graph import Definition, Graph, Stage

FORMAT = 1
Directive = tuple[str, int, str, tuple[Any, ...]]  # stage, group of definitions, word, arguments


@dataclass(frozen=True, slots=True)
class Named:
    """A loop of a nest being made."""

    name: str
    dim: DimKey
    kind: LoopKind = "serial"
    size: int | None = None


@dataclass
class StagePlan:
    """What the directives say of one stage.

    Attributes:
        loops: for each group of definitions its loops, outermost first; None: as in the default schedule.
        site: (consumer, loop) to compute it at; None: at the root.
        store: (consumer, loop) to store it at, "root", or None: where it is computed.
    """

    stage: Stage
    loops: dict[int, list[Named]] = field(default_factory=dict)
    site: tuple[str, str] | None = None
    store: tuple[str, str] | str | None = None
    order: tuple[int, ...] = ()


def dim_names(s: Stage, d: Definition) -> list[str]:
    """Names of the loops that a definition begins with: x is the last axis, or the one before a small last axis c."""
    n = len(d.dims)
    if n == 3 and d.dims[-1].is_const:
        pure = ["y", "x", "c"]
    elif n <= 4:
        pure = ["n", "c", "y", "x"][4 - n :]
    else:
        pure = [f"d{k}" for k in range(n)]
    return pure + [f"r{k}" for k in range(len(d.rdims))]


class Schedule:
    """A partial schedule of a pipeline; `f.use(s)` makes the pipeline run by it."""

    def __init__(
        self, graphs: Callable[[Inlining], list[Graph]] | None = None, directives: Sequence[Directive] = (), target: Target | None = None
    ) -> None:
        self._graphs = graphs
        self._directives: list[Directive] = list(directives)
        self._target = target or Target()

    # -- by hand
    def __getitem__(self, stage: str) -> StageHandle:
        """The stage of a variable's name.

        Raises:
            ScheduleError: there is no such stage; the message lists those that there are.
        """
        return StageHandle(self, stage, 0)._checked()

    @property
    def stages(self) -> list[str]:
        """Names of the stages, those inlined into others not among them."""
        return [s.name for g in self.graphs() for s in g.stages]

    @property
    def inlined(self) -> list[str]:
        """Names of the stages that are inlined as it stands; any directive but `inline` makes them stages of their own."""
        if self._graphs is None:
            return []
        known = set(self.stages)
        every = Inlining(kept=_Everything())  # type: ignore[arg-type]
        return [s.name for g in self._graphs(every) for s in g.stages if s.name not in known]

    def graphs(self) -> list[Graph]:
        """The canonical Graphs that it schedules."""
        return [] if self._graphs is None else self._graphs(self.inlining())

    def add(self, directive: Directive) -> None:
        """Add a directive, if the schedule stays one.

        Raises:
            ScheduleError: it is not possible; the schedule is as before.
        """
        self._directives.append(directive)
        try:
            self._plans_of(directive[0])
            if directive[2] in ("compute_at", "store_at"):
                self._check_place(*directive[3])
        except ScheduleError:
            self._directives.pop()
            raise

    def _check_place(self, consumer: str, loop: str) -> None:
        loops = StageHandle(self, consumer, 0)._checked().loops
        every = [x for g in self.graphs() if consumer in g.by_name for x in _all_loops(self.plans(g), g, consumer)]
        if self._graphs is not None and loop not in every:
            raise ScheduleError(f"{consumer} has no loop {loop}; it has {', '.join(dict.fromkeys(every or loops))}")

    def _plans_of(self, stage: str) -> None:
        if self._graphs is None:
            return
        graphs = self.graphs()
        if not any(s.name == stage for g in graphs for s in g.stages) and stage not in self.inlining().inlined:
            names = [s.name for g in graphs for s in g.stages]
            raise ScheduleError(f"there is no stage {stage}; there are {', '.join(names)}, and inlined {', '.join(self.inlined) or 'none'}")
        for g in graphs:
            self.plans(g)

    # -- what it means
    def inlining(self) -> Inlining:
        """Stages that are scheduled are stages; those that are said to be inlined are not."""
        kept, inlined = set[str](), set[str]()
        for stage, _, word, args in self._directives:
            (inlined.add if word == "inline" else inlined.discard)(stage)
            (kept.discard if word == "inline" else kept.add)(stage)
            if word in ("compute_at", "store_at"):
                kept.add(args[0])
        return Inlining(frozenset(kept), frozenset(inlined))

    def plans(self, graph: Graph) -> dict[str, StagePlan]:
        """What the directives say of each stage of a Graph."""
        found: dict[str, StagePlan] = {}
        stages = graph.by_name
        for stage, group, word, args in self._directives:
            if stage in stages and word != "inline":
                plan = found.setdefault(stage, StagePlan(stages[stage]))
                WORDS[word](plan, group, *args)
        return found

    def tree(self, graph: Graph, target: Target) -> Root:
        """The schedule tree of a canonical Graph."""
        plans = self.plans(graph)
        default = default_schedule(graph, target)
        if not plans:
            return default
        tree = _roots(graph, default, plans, target)
        for s in reversed(graph.stages):
            plan = plans.get(s.name)
            if plan is not None and plan.site is not None:
                tree = _moved(graph, tree, plan, plans)
        return tree

    def trees(self) -> list[Root]:
        """The schedule trees of all its Graphs, checked.

        Raises:
            ScheduleError: one is not legal; the message says why.
        """
        from hjit.sched.check import check

        found = []
        for g in self.graphs():
            tree = self.tree(g, self._target)
            check(tree, g)
            found.append(tree)
        return found

    def __len__(self) -> int:
        return len(self.trees())

    def __iter__(self) -> Iterator[Root]:
        return iter(self.trees())

    # -- for people, and for later
    def __str__(self) -> str:
        if self._graphs is None:
            return "\n".join(_directive_text(d) for d in self._directives) or "the default schedule"
        return "\n\n".join(map(str, self.trees()))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from hjit.picture import schedule_html

        return "".join(map(schedule_html, self.trees()))

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the directives as JSON; `Schedule.load` reads them."""
        rows = ",\n  ".join(json.dumps([s, g, w, list(a)]) for s, g, w, a in self._directives)
        File(file).write_text(f'{{"hjit schedule": {FORMAT}, "directives": [\n  {rows}\n]}}\n')

    @staticmethod
    def load(file: str | os.PathLike[str]) -> Schedule:
        """The schedule in a file that `save` wrote.

        Raises:
            ScheduleError: the file holds no schedule.
            OSError: it cannot be read.
        """
        try:
            data = json.loads(File(file).read_text())
            if data["hjit schedule"] != FORMAT:
                raise ScheduleError(f"{file}: a schedule of format {data['hjit schedule']}; this hjit reads format {FORMAT}")
            directives = [(str(s), int(g), str(w), tuple(a)) for s, g, w, a in data["directives"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ScheduleError(f"{file} is not a schedule: {error}") from None
        for _, _, word, _ in directives:
            if word not in WORDS and word != "inline":
                raise ScheduleError(f"{file}: there is no directive {word}; there are {', '.join(sorted(WORDS))}")
        return Schedule(None, directives)


class _Everything:
    """A set that has everything in it."""

    def __contains__(self, name: object) -> bool:
        return True


def _directive_text(d: Directive) -> str:
    stage, group, word, args = d
    update = f".update({group})" if group else ""
    return f'["{stage}"]{update}.{word}({", ".join(map(repr, args))})'


class StageHandle:
    """Directives for one stage; each returns the handle, so that they chain."""

    def __init__(self, schedule: Schedule, stage: str, group: int) -> None:
        self._schedule, self.stage, self._group = schedule, stage, group

    def _checked(self) -> StageHandle:
        s = self._schedule
        if s._graphs is not None and self.stage not in s.stages and self.stage not in s.inlined:
            raise ScheduleError(f"there is no stage {self.stage}; there are {', '.join(s.stages)}, and inlined {', '.join(s.inlined) or 'none'}")
        return self

    def _say(self, word: str, *args: Any) -> StageHandle:
        self._schedule.add((self.stage, self._group, word, args))
        return self

    def update(self, n: int) -> StageHandle:
        """The n-th nest of the stage, for stages that are computed in several; 0 is the first."""
        return StageHandle(self._schedule, self.stage, n)

    @property
    def loops(self) -> list[str]:
        """Names of the loops, outermost first."""
        for g in self._schedule.graphs():
            if self.stage in g.by_name:
                plan = self._schedule.plans(g).get(self.stage) or StagePlan(g.stage(self.stage))
                return [x.name for x in _loops(plan, self._group)]
        return []

    def split(self, loop: str, outer: str, inner: str, size: int) -> StageHandle:
        """Run `size` turns of `loop` as an inner loop."""
        return self._say("split", loop, outer, inner, size)

    def tile(self, y: str, x: str, yo: str, xo: str, yi: str, xi: str, ysize: int, xsize: int) -> StageHandle:
        """Split two loops, both inner ones inside both outer ones."""
        return self.split(y, yo, yi, ysize).split(x, xo, xi, xsize).reorder(yo, xo, yi, xi)

    def reorder(self, *loops: str) -> StageHandle:
        """Put loops into this order, outermost first, in the places that they have now."""
        return self._say("reorder", *loops)

    def fuse(self, outer: str, inner: str, name: str) -> StageHandle:
        """Run two neighbouring dimensions as one."""
        return self._say("fuse", outer, inner, name)

    def parallel(self, loop: str) -> StageHandle:
        """Run the turns as tasks."""
        return self._say("kind", loop, "parallel")

    def serial(self, loop: str) -> StageHandle:
        """Run the turns one after the other."""
        return self._say("kind", loop, "serial")

    def vectorize(self, loop: str, size: int | None = None) -> StageHandle:
        """Run `size` turns as lanes of vectors; without a size, the loop itself."""
        return self._say("kind", loop, "vector") if size is None else self._say("inner", loop, "vector", size)

    def unroll(self, loop: str, size: int | None = None) -> StageHandle:
        """Write out the code of `size` turns; without a size, of the loop itself."""
        return self._say("kind", loop, "unroll") if size is None else self._say("inner", loop, "unroll", size)

    def compute_at(self, consumer: str | StageHandle, loop: str) -> StageHandle:
        """Compute what each turn of a consumer's loop needs, inside it."""
        return self._say("compute_at", _name(consumer), loop)

    def store_at(self, consumer: str | StageHandle, loop: str) -> StageHandle:
        """Keep the stage for all turns of the loops inside `loop`: each computes only what is new."""
        return self._say("store_at", _name(consumer), loop)

    def store_root(self) -> StageHandle:
        """Keep the stage for all turns that a task runs of a parallel loop."""
        return self._say("store_root")

    def root(self) -> StageHandle:
        """Compute all of the stage before its consumers."""
        return self._say("root")

    def inline(self) -> StageHandle:
        """Compute it wherever it is read."""
        return self._say("inline")

    def reorder_storage(self, *axes: int) -> StageHandle:
        """Lay the axes out in memory in this order, the slowest first."""
        return self._say("storage", *axes)


def _name(x: str | StageHandle) -> str:
    return x.stage if isinstance(x, StageHandle) else x


# -- the words


def _loops(plan: StagePlan, group: int) -> list[Named]:
    """The loops of a group of definitions, plain ones where nothing is said yet."""
    found = groups(plan.stage)
    if not 0 <= group < len(found):
        raise ScheduleError(f"{plan.stage.name} is computed in {len(found)} nests; there is no update({group})")
    if group not in plan.loops:
        d = plan.stage.definitions[found[group][-1]]
        return [Named(name, k) for k, name in enumerate(dim_names(plan.stage, d))]
    return plan.loops[group]


def _find(plan: StagePlan, group: int, name: str) -> tuple[list[Named], int]:
    loops = _loops(plan, group)
    for k, x in enumerate(loops):
        if x.name == name:
            return list(loops), k
    raise ScheduleError(f"{plan.stage.name} has no loop {name}; it has {', '.join(x.name for x in loops)}")


def _inner_size(loops: list[Named], k: int) -> int:
    """What one turn of a loop is long."""
    return next((x.size or 1 for x in loops[k + 1 :] if x.dim == loops[k].dim), 1)


def _split(plan: StagePlan, group: int, loop: str, outer: str, inner: str, size: int) -> None:
    loops, k = _find(plan, group, loop)
    if type(size) is not int or size < 1:
        raise ScheduleError(f"split {loop}: {size!r} is not a number of turns")
    for name in (outer, inner):
        if any(x.name == name and x.name != loop for x in loops):
            raise ScheduleError(f"split {loop}: there is a loop {name} already")
    old = loops[k]
    loops[k : k + 1] = [replace(old, name=outer), Named(inner, old.dim, "serial", size * _inner_size(loops, k))]
    plan.loops[group] = loops


def _reorder(plan: StagePlan, group: int, *names: str) -> None:
    loops = list(_loops(plan, group))
    places = sorted(_find(plan, group, n)[1] for n in names)
    if len(set(places)) != len(names):
        raise ScheduleError(f"reorder: {', '.join(names)} names a loop twice")
    moved = [loops[_find(plan, group, n)[1]] for n in names]
    for k, x in zip(places, moved, strict=True):
        loops[k] = x
    plan.loops[group] = loops


def _fuse(plan: StagePlan, group: int, outer: str, inner: str, name: str) -> None:
    loops, k = _find(plan, group, outer)
    _, j = _find(plan, group, inner)
    a, b = loops[k], loops[j]
    first = a.dim if isinstance(a.dim, tuple) else (a.dim,)
    second = b.dim if isinstance(b.dim, tuple) else (b.dim,)
    if j != k + 1 or second[0] != first[-1] + 1 or a.size is not None or b.size is not None:
        raise ScheduleError(f"fuse: {outer} and {inner} are not loops over two neighbouring dimensions, one directly inside the other")
    if any(x.dim in (a.dim, b.dim) for n, x in enumerate(loops) if n not in (j, k)):
        raise ScheduleError(f"fuse: {outer} or {inner} is split already; fuse first, then split")
    loops[k : j + 1] = [Named(name, (*first, *second))]
    plan.loops[group] = loops


def _kind(plan: StagePlan, group: int, loop: str, kind: LoopKind) -> None:
    loops, k = _find(plan, group, loop)
    loops[k] = replace(loops[k], kind=kind)
    plan.loops[group] = loops


def _inner(plan: StagePlan, group: int, loop: str, kind: LoopKind, size: int) -> None:
    loops, _ = _find(plan, group, loop)
    name = f"{loop}{kind[0]}"
    while any(x.name == name for x in loops):
        name += kind[0]
    _split(plan, group, loop, loop, name, size)
    _kind(plan, group, name, kind)


def _compute_at(plan: StagePlan, group: int, consumer: str, loop: str) -> None:
    plan.site = (consumer, loop)


def _store_at(plan: StagePlan, group: int, consumer: str, loop: str) -> None:
    plan.store = (consumer, loop)


def _store_root(plan: StagePlan, group: int) -> None:
    plan.store = "root"


def _root(plan: StagePlan, group: int) -> None:
    plan.site = plan.store = None


def _storage(plan: StagePlan, group: int, *axes: int) -> None:
    if sorted(axes) != list(range(len(plan.stage.shape))):
        raise ScheduleError(f"{plan.stage.name} has the axes {', '.join(map(str, range(len(plan.stage.shape))))}, each is named once")
    plan.order = tuple(axes)


WORDS: dict[str, Callable[..., None]] = {
    "split": _split,
    "reorder": _reorder,
    "fuse": _fuse,
    "kind": _kind,
    "inner": _inner,
    "compute_at": _compute_at,
    "store_at": _store_at,
    "store_root": _store_root,
    "root": _root,
    "storage": _storage,
}


def _all_loops(plans: dict[str, StagePlan], graph: Graph, stage: str) -> list[str]:
    """Names of the loops of all nests of a stage."""
    plan = plans.get(stage) or StagePlan(graph.stage(stage))
    return [x.name for k in range(len(groups(plan.stage))) for x in _loops(plan, k)]


# -- from directives to a tree


def _nests(plan: StagePlan, default: list[Node], serial: bool) -> list[Node]:
    """The nests of a stage: as said, or as in the default schedule."""
    found = []
    for number, (group, usual) in enumerate(zip(groups(plan.stage), default, strict=True)):
        if number in plan.loops:
            steps: list[Step] = [(x.dim, x.kind, x.size) for x in plan.loops[number]]
            found.append(nest(plan.stage.name, group, steps))
        else:
            found.append(serial_loops(usual) if serial else usual)
    return found


def _roots(graph: Graph, default: Root, plans: dict[str, StagePlan], target: Target) -> Root:
    """Every stage at the root, but for groups of the default schedule of which nothing is said."""
    from hjit.sched.default import root_nests

    children: list[Node] = []
    together = [{c.stage for c in computes(x)} for x in default.children]
    for s in graph.stages:
        k = next(k for k, names in enumerate(together) if s.name in names)
        if together[k] & set(plans):
            plan = plans.get(s.name, StagePlan(s))
            children.append(Store(s.name, tuple(_nests(plan, root_nests(graph, s, target), plan.site is not None)), plan.order))
        elif together[k]:
            last = max(together[k], key=[x.name for x in graph.stages].index)
            if s.name == last:
                children.append(default.children[k])
    return Root(tuple(children))


def _moved(graph: Graph, tree: Root, plan: StagePlan, plans: dict[str, StagePlan]) -> Root:
    """The tree with a stage computed where its plan says."""
    name = plan.stage.name
    assert plan.site is not None
    nests = [x for c in tree.children for x in _own(c, name)]
    tree = without(tree, name)
    site = _path(graph, tree, plan.site, plans)
    if plan.store is None:
        store = site
    elif isinstance(plan.store, str):
        store = _outermost(tree, site)
    else:
        store = _path(graph, tree, plan.store, plans)
        if site[: len(store)] != store:
            raise ScheduleError(f"{name}: it is computed at {'.'.join(plan.site)}, which is not inside {'.'.join(plan.store)}, where it is stored")
    return attached(tree, name, nests, site, store, plan.order)


def _own(node: Node, stage: str) -> list[Node]:
    if isinstance(node, Store) and node.stage == stage:
        return [c for c in node.children if next(iter(leaves(c))).compute.stage == stage]
    return [] if isinstance(node, Loop) or not hasattr(node, "children") else [x for c in node.children for x in _own(c, stage)]


def _outermost(tree: Root, site: Path) -> Path:
    """The node around the outermost loop on a path."""
    for k in range(len(site)):
        if isinstance(at(tree, site[: k + 1]), Loop):
            return site[:k]
    return site


def _path(graph: Graph, tree: Root, place: tuple[str, str], plans: dict[str, StagePlan]) -> Path:
    """The path to a loop of a stage, by its name."""
    stage, loop = place
    if stage not in graph.by_name:
        raise ScheduleError(f"there is no stage {stage}; there are {', '.join(graph.by_name)}")
    plan = plans.get(stage) or StagePlan(graph.stage(stage))
    found: list[str] = []
    for group in range(len(groups(plan.stage))):
        for x in _loops(plan, group):
            found.append(x.name)
            if x.name == loop:
                for path, node in paths(tree):
                    if isinstance(node, Loop) and (node.stage, node.dim, node.size) == (stage, x.dim, x.size):
                        return path
    raise ScheduleError(f"{stage} has no loop {loop}; it has {', '.join(dict.fromkeys(found))}")


