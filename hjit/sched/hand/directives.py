"""The meaning of directives: named loops, and the schedule tree that they make of a Graph.

A stage begins with one loop for each dimension; `split`, `fuse` and the like make new ones. Stages and
loops without directives are as in the default schedule. Users give them by the methods of `hjit.sched.hand.schedule`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hjit.errors import ScheduleError
from hjit.sched.default.cuda import CudaNests, cuda_schedule, nest_in_block, nest_in_thread
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language.build import Path, Step, at, attached, nest, paths, serial_loops
from hjit.sched.language.groups import groups
from hjit.sched.language.kinds import MEMORY_LEVELS, LoopKind, Memory
from hjit.sched.language.limits import (
    MAX_ALIGN,
    MAX_LANES,
    MAX_LOOPS,
    MAX_PARTS,
    MAX_PREFETCHES,
    MAX_SIZE,
    check_number,
    shown,
)
from hjit.sched.language.target import Target
from hjit.sched.language.tree import (
    KINDS,
    TAILS,
    Compute,
    DimKey,
    Loop,
    Node,
    Prefetch,
    Root,
    Store,
    Tail,
    computes,
    with_children,
)
from hjit.sched.nests.root_nests import RootNests
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.passes.rewrites import Rewrites, parts_name

Directive = tuple[str, int, str, tuple[Any, ...]]  # stage, group of definitions, word, arguments


@dataclass(frozen=True, slots=True)
class NamedLoop:
    """A loop of a nest being made."""

    name: str
    dim: DimKey
    kind: LoopKind = "serial"
    size: int | None = None
    tail: Tail = "auto"


@dataclass
class StageSchedule:
    """The schedule of one stage, as far as there are directives.

    Attributes:
        loops: for each group of definitions its loops, outermost first; None: as in the default schedule.
        site: (consumer, loop) to compute it at; None: at the root.
        store: (consumer, loop) to store it at, "root", or None: where it is computed.
        order, align: of its memory; see `hjit.sched.language.tree.Store`.
        memory: in which it is.
        prefetches: for each group of definitions; see `hjit.sched.language.tree.Compute`.
    """

    stage: Stage
    loops: dict[int, list[NamedLoop]] = field(default_factory=dict)
    site: tuple[str, str] | None = None
    store: tuple[str, str] | str | None = None
    order: tuple[int, ...] = ()
    align: tuple[int, ...] = ()
    memory: Memory = "heap"
    prefetches: dict[int, list[Prefetch]] = field(default_factory=dict)


def dim_names(d: Definition) -> list[str]:
    """Names of the loops that a definition begins with: x is the last axis, or the one before a small last axis c."""
    n = len(d.dims)
    if n == 3 and d.dims[-1].is_const:
        pure = ["y", "x", "c"]
    elif n <= 4:
        pure = ["n", "c", "y", "x"][4 - n :]
    else:
        pure = [f"d{k}" for k in range(n)]
    return pure + [f"r{k}" for k in range(len(d.rdims))]


# -- the directives


def loops_of(own: StageSchedule, group: int) -> list[NamedLoop]:
    """The loops of a group of definitions, one for each dimension where there are no directives yet."""
    found = groups(own.stage)
    if not 0 <= group < len(found):
        raise ScheduleError(f"{own.stage.name} is computed in {len(found)} nests; there is no update({group})")
    if group not in own.loops:
        d = own.stage.definitions[found[group][-1]]
        return [NamedLoop(name, k) for k, name in enumerate(dim_names(d))]
    return own.loops[group]


def _find(own: StageSchedule, group: int, name: str) -> tuple[list[NamedLoop], int]:
    loops = loops_of(own, group)
    for k, x in enumerate(loops):
        if x.name == name:
            return list(loops), k
    raise ScheduleError(f"{own.stage.name} has no loop {name}; it has {', '.join(x.name for x in loops)}")


def _inner_size(loops: list[NamedLoop], k: int) -> int:
    """The elements of one iteration of a loop."""
    return next((x.size or 1 for x in loops[k + 1 :] if x.dim == loops[k].dim), 1)


def _split(own: StageSchedule, group: int, loop: str, outer: str, inner: str, size: int, tail: Tail = "auto") -> None:
    loops, k = _find(own, group, loop)
    check_number(f"split {loop}", size, MAX_SIZE, "iterations")
    if outer == inner:
        raise ScheduleError(f"split {loop}: both loops would be called {outer}")
    for name in (outer, inner):
        if any(x.name == name and x.name != loop for x in loops):
            raise ScheduleError(f"split {loop}: there is a loop {name} already")
    old, total = loops[k], size * _inner_size(loops, k)
    if total > MAX_SIZE:
        raise ScheduleError(f"split {loop}: {inner} would have {total} elements; allowed are up to {MAX_SIZE}")
    if len(loops) >= MAX_LOOPS:
        raise ScheduleError(f"split {loop}: {own.stage.name} would have more than {MAX_LOOPS} loops")
    loops[k : k + 1] = [replace(old, name=outer), NamedLoop(inner, old.dim, "serial", total, tail)]
    own.loops[group] = loops


def _reorder(own: StageSchedule, group: int, *names: str) -> None:
    loops = list(loops_of(own, group))
    places = sorted(_find(own, group, n)[1] for n in names)
    if len(set(places)) != len(names):
        raise ScheduleError(f"reorder: {', '.join(names)} names a loop twice")
    moved = [loops[_find(own, group, n)[1]] for n in names]
    for k, x in zip(places, moved, strict=True):
        loops[k] = x
    for k, x in enumerate(loops):
        if any(y.dim == x.dim and (y.size is None or (x.size is not None and y.size > x.size)) for y in loops[k + 1 :]):
            its = _names(loops_of(own, group))
            raise ScheduleError(f"reorder: {x.name} would be outside of the loop that it is a part of; there are {its}")
    own.loops[group] = loops


def _names(loops: Iterable[NamedLoop]) -> str:
    return ", ".join(x.name for x in loops)


def _fuse(own: StageSchedule, group: int, outer: str, inner: str, name: str) -> None:
    loops, k = _find(own, group, outer)
    _, j = _find(own, group, inner)
    a, b = loops[k], loops[j]
    first = a.dim if isinstance(a.dim, tuple) else (a.dim,)
    second = b.dim if isinstance(b.dim, tuple) else (b.dim,)
    if j != k + 1 or second[0] != first[-1] + 1 or a.size is not None or b.size is not None:
        raise ScheduleError(
            f"fuse: {outer} and {inner} are not loops over two neighbouring dimensions, one directly inside the other"
        )
    if any(x.dim in (a.dim, b.dim) for n, x in enumerate(loops) if n not in (j, k)):
        raise ScheduleError(f"fuse: {outer} or {inner} is split already; fuse first, then split")
    loops[k : j + 1] = [NamedLoop(name, (*first, *second))]
    own.loops[group] = loops


def _kind(own: StageSchedule, group: int, loop: str, kind: LoopKind) -> None:
    loops, k = _find(own, group, loop)
    whole = _length(own, group, loops[k])
    if kind == "vector" and loops[k].size is None and whole is not None and _inner_size(loops, k) == 1:
        _inner(own, group, loop, kind, whole)
        return
    size = loops[k].size
    if kind == "vector" and size is not None and size > MAX_LANES:
        lanes = f"{size} lanes of {own.stage.name}, more than {MAX_LANES}"
        raise ScheduleError(f"vectorize {loop}: {lanes}; vectorize a smaller part, and unroll")
    loops[k] = replace(loops[k], kind=kind)
    own.loops[group] = loops


def _length(own: StageSchedule, group: int, loop: NamedLoop) -> int | None:
    """Iterations of a whole loop, if they are known: few."""
    d = own.stage.definitions[groups(own.stage)[group][-1]]
    n = d.extents[loop.dim] if isinstance(loop.dim, int) else None
    return n.const if n is not None and n.is_const and n.const > 0 else None


def _inner(own: StageSchedule, group: int, loop: str, kind: LoopKind, size: int, tail: Tail = "auto") -> None:
    name = _free_name(own, group, loop, kind[0])
    check_number(f"{_METHODS.get(kind, kind)} {loop}", size, MAX_SIZE, "iterations")
    _split(own, group, loop, loop, name, size, tail)
    _kind(own, group, name, kind)


def _tasks(own: StageSchedule, group: int, loop: str, size: int, tail: Tail = "auto") -> None:
    name = _free_name(own, group, loop, "t")
    check_number(f"parallel {loop}", size, MAX_SIZE, "iterations")
    _split(own, group, loop, loop, name, size, tail)
    _kind(own, group, loop, "parallel")


def _free_name(own: StageSchedule, group: int, loop: str, letter: str) -> str:
    """A name for the inner part of a loop: its own, with a letter as often as it takes."""
    loops, _ = _find(own, group, loop)
    name = loop + letter
    while any(x.name == name for x in loops):
        name += letter
    return name


def _compute_at(own: StageSchedule, group: int, consumer: str, loop: str) -> None:
    own.site = (consumer, loop)


def _store_at(own: StageSchedule, group: int, consumer: str, loop: str) -> None:
    own.store = (consumer, loop)


def _store_root(own: StageSchedule, group: int) -> None:
    own.store = "root"


def _root(own: StageSchedule, group: int) -> None:
    own.site = own.store = None


def _store_in(own: StageSchedule, group: int, memory: Memory) -> None:
    own.memory = memory


def _storage(own: StageSchedule, group: int, *axes: int) -> None:
    if sorted(axes) != list(range(len(own.stage.shape))):
        axes_text = ", ".join(map(str, range(len(own.stage.shape))))
        raise ScheduleError(f"reorder_storage: {own.stage.name} has the axes {axes_text}, each is named once")
    own.order = tuple(axes)


def _align(own: StageSchedule, group: int, axis: int, n: int) -> None:
    axes = range(len(own.stage.shape))
    if axis not in axes:
        raise ScheduleError(
            f"align_storage: {own.stage.name} has the axes {', '.join(map(str, axes))}, not {shown(axis)}"
        )
    check_number(f"align_storage of {own.stage.name}", n, MAX_ALIGN, "elements")
    own.align = tuple(n if k == axis else old for k, old in zip(axes, own.align or (1,) * len(axes), strict=True))


def _prefetch(own: StageSchedule, group: int, source: str, loop: str, distance: int) -> None:
    loops, k = _find(own, group, loop)
    dim = loops[k].dim
    definitions = [own.stage.definitions[n] for n in groups(own.stage)[group]]
    if not isinstance(dim, int):
        raise ScheduleError(f"prefetch: {loop} runs over several dimensions")
    if any(d.order != "pure" for d in definitions):
        raise ScheduleError(f"prefetch: {own.stage.name} is a reduction")
    check_number(f"prefetch {loop}", distance, MAX_SIZE, "iterations")
    if len(own.prefetches.get(group, ())) >= MAX_PREFETCHES:
        raise ScheduleError(f"prefetch: {own.stage.name} prefetches more than {MAX_PREFETCHES} times")
    own.prefetches.setdefault(group, []).append((source, dim, distance))


def _no_arguments(own: None, group: int) -> None:
    """The signature of the directives without arguments that change the Graph."""


def _rfactor(own: None, group: int, dim: int, parts: int) -> None:
    """The signature of `rfactor`, which changes the Graph."""


# the words of directives as files have them, and what each does to a stage's schedule
DIRECTIVES: dict[str, Callable[..., None]] = {
    "split": _split,
    "reorder": _reorder,
    "fuse": _fuse,
    "kind": _kind,
    "inner": _inner,
    "tasks": _tasks,
    "compute_at": _compute_at,
    "store_at": _store_at,
    "store_root": _store_root,
    "root": _root,
    "store_in": _store_in,
    "storage": _storage,
    "align": _align,
    "prefetch": _prefetch,
}
# those that change the Graph, see `rewrites`: their signatures
GRAPH_DIRECTIVES: dict[str, Callable[..., None]] = {
    "inline": _no_arguments,
    "cache_read": _no_arguments,
    "rfactor": _rfactor,
}


def rewrites(directives: Iterable[Directive]) -> Rewrites:
    """What directives change of the Graph: a stage with a directive stays one, unless it is inlined."""
    kept, inlined = set[str](), set[str]()
    cached = set[str]()
    factored: dict[str, tuple[int, int]] = {}
    for stage, _, word, args in directives:
        (inlined.add if word == "inline" else inlined.discard)(stage)
        (kept.discard if word == "inline" else kept.add)(stage)
        if word in ("compute_at", "store_at"):
            kept.add(args[0])
        elif word == "cache_read":
            cached.add(stage)
        elif word == "rfactor":
            factored[stage] = args
    return Rewrites(frozenset(kept), frozenset(inlined), frozenset(cached), factored)


def check_inlined(graphs: Iterable[Graph], directives: Iterable[Directive]) -> None:
    """Are the stages gone that are to be inlined?

    Raises:
        ScheduleError: one cannot be inlined.
    """
    wanted = rewrites(directives).inlined
    for g in graphs:
        for s in g.stages:
            if s.name in wanted:
                updates = f"it has updates, {len(s.definitions)} definitions; compute it at a loop of what reads it"
                why = (
                    "it is a result"
                    if s.name in g.outputs
                    else updates
                    if s.updates
                    else "its expression is nested too deeply"
                )
                raise ScheduleError(f"{s.name} cannot be inlined: {why}")


def schedules(graph: Graph, directives: Iterable[Directive]) -> dict[str, StageSchedule]:
    """The directives of each stage of a Graph that has some."""
    by_stage: dict[str, list[Directive]] = {}
    for d in directives:
        if d[2] not in GRAPH_DIRECTIVES:
            by_stage.setdefault(d[0], []).append(d)
    return {s.name: schedule_of(s, by_stage[s.name]) for s in graph.stages if s.name in by_stage}


def schedule_of(stage: Stage, directives: Iterable[Directive]) -> StageSchedule:
    """The directives of a stage."""
    own = StageSchedule(stage)
    for name, group, word, args in directives:
        if name == stage.name and word not in GRAPH_DIRECTIVES:
            DIRECTIVES[word](own, group, *args)
    return own


def tree_of(graph: Graph, found: Mapping[str, StageSchedule], target: Target) -> Root:
    """The schedule tree of a Graph."""
    is_cuda = target.kind == "cuda"
    at_root: Mapping[str, tuple[Node, ...]] = CudaNests(graph) if is_cuda else RootNests(graph, target)
    if found.keys() == graph.by_name.keys():
        default = Root(())
    else:
        default = cuda_schedule(graph) if is_cuda else default_schedule(graph, target, at_root)
    if not found:
        return default
    tree = _roots(graph, default, found, at_root)
    for s in reversed(graph.stages):
        own = found.get(s.name)
        if own is not None and own.site is not None:
            site = _path(graph, tree, own.site, found, s.name)
            tree = _placed(graph, tree, own, site, found, _nests(own, _Inside(s, tree, site, at_root)))
    return tree


class _Inside(dict[str, Sequence[Node]]):
    """The nests of a stage without directives where it is computed inside the loops of another."""

    def __init__(self, s: Stage, tree: Root, site: Path, at_root: Mapping[str, Sequence[Node]]) -> None:
        around = {x.kind for k in range(1, len(site) + 1) if isinstance(x := at(tree, site[:k]), Loop)}
        if around & {"gpu_thread", "gpu_lane"}:
            nests = [nest_in_thread(s, group) for group in groups(s)]
        elif "gpu_block" in around:
            nests = [nest_in_block(s, group) for group in groups(s)]
        else:
            nests = list(map(serial_loops, at_root[s.name]))
        super().__init__({s.name: nests})


def all_loops(own: StageSchedule) -> list[NamedLoop]:
    """The loops of all nests of a stage."""
    return [x for k in range(len(groups(own.stage))) for x in loops_of(own, k)]


# -- from directives to a tree


def _nests(own: StageSchedule, defaults: Mapping[str, Sequence[Node]]) -> tuple[Node, ...]:
    """The nests of a stage: by directives, or as in the default schedule."""
    found: list[Node] = []
    for number, group in enumerate(groups(own.stage)):
        if number in own.loops:
            steps: list[Step] = [(x.dim, x.kind, x.size, x.tail) for x in own.loops[number]]
            found.append(nest(own.stage.name, group, steps))
        else:
            found.append(defaults[own.stage.name][number])
        if number in own.prefetches:
            _check_read(own.stage, group, (source for source, _, _ in own.prefetches[number]))
            found[-1] = _prefetching(found[-1], tuple(own.prefetches[number]))
    return tuple(found)


def _check_read(s: Stage, group: Iterable[int], sources: Iterable[str]) -> None:
    read = sorted({name for n in group for name in s.definitions[n].sources})
    for source in sources:
        if source not in read:
            raise ScheduleError(f"prefetch: {s.name} does not read {source}; it reads {', '.join(read) or 'nothing'}")


def _prefetching(node: Node, prefetches: tuple[Prefetch, ...]) -> Node:
    """The nest with what it prefetches."""
    return (
        replace(node, prefetches=prefetches)
        if isinstance(node, Compute)
        else with_children(node, tuple(_prefetching(c, prefetches) for c in node.children))
    )


def _roots(
    graph: Graph, default: Root, schedules: Mapping[str, StageSchedule], at_root: Mapping[str, Sequence[Node]]
) -> Root:
    """Every stage at the root, but for those with a place, and for groups of the default schedule without
    directives.

    Args:
        default: the default schedule; with no stages where all of them have schedules.
    """
    children: list[Node] = []
    together = [{c.stage for c in computes(x)} for x in default.children]
    position = {s.name: k for k, s in enumerate(graph.stages)}
    number = {name: k for k, names in enumerate(together) for name in names}
    for s in graph.stages:
        k = number.get(s.name)
        if k is None or together[k] & schedules.keys():
            own = schedules.get(s.name, StageSchedule(s))
            if own.site is None:
                children.append(Store(s.name, _nests(own, at_root), own.order, own.align, own.memory))
        elif s.name == max(together[k], key=position.__getitem__):
            children.append(default.children[k])
    return Root(tuple(children))


def _placed(
    graph: Graph,
    tree: Root,
    own: StageSchedule,
    site: Path,
    schedules: Mapping[str, StageSchedule],
    nests: Sequence[Node],
) -> Root:
    """The tree with a stage computed at its site."""
    name = own.stage.name
    assert own.site is not None
    if own.store is None:
        outer = site
    elif isinstance(own.store, str):
        outer = _outermost(tree, site)
    else:
        outer = _path(graph, tree, own.store, schedules, name)
        if site[: len(outer)] != outer:
            where = f"{'.'.join(own.site)}, which is not inside {'.'.join(own.store)}"
            raise ScheduleError(f"{name}: it is computed at {where}, where it is stored")
    return attached(tree, nests, site, outer, Store(name, (), own.order, own.align, own.memory))


def _outermost(tree: Root, site: Path) -> Path:
    """The node around the outermost loop on a path."""
    for k in range(len(site)):
        if isinstance(at(tree, site[: k + 1]), Loop):
            return site[:k]
    return site


def _path(
    graph: Graph, tree: Root, place: tuple[str, str], schedules: Mapping[str, StageSchedule], source: str
) -> Path:
    """The path to a loop of a stage, by its name; in several nests with such a loop, in one that reads `source`."""
    stage, loop = place
    if stage not in graph.by_name:
        raise ScheduleError(f"there is no stage {stage}; there are {', '.join(graph.by_name)}")
    own = schedules.get(stage) or StageSchedule(graph.stage(stage))
    every = list(enumerate(groups(own.stage)))
    every.sort(key=lambda x: not any(source in own.stage.definitions[n].sources for n in x[1]))
    for x, group in ((x, group) for number, group in every for x in loops_of(own, number) if x.name == loop):
        for path, node in paths(tree):
            is_it = isinstance(node, Loop) and (node.stage, node.dim, node.size) == (stage, x.dim, x.size)
            if is_it and _computes(node, stage, group):
                return path
    loops = all_loops(own)
    raise ScheduleError(f"{stage} has no loop {loop}; it has {', '.join(dict.fromkeys(x.name for x in loops))}")


def _computes(node: Node, stage: str, group: tuple[int, ...]) -> bool:
    return any(c.stage == stage and c.definitions == group for c in computes(node))


# what a user calls: by the word of a directive, or by the kind of loop that it makes
_METHODS = {
    "storage": "reorder_storage",
    "align": "align_storage",
    "vector": "vectorize",
    "gpu_block": "gpu_blocks",
    "gpu_thread": "gpu_threads",
    "gpu_lane": "gpu_lanes",
}


def as_called(word: str, args: Sequence[Any]) -> str:
    """A directive as the method of a stage that makes it."""
    name, given = word, list(args)
    if word in ("kind", "inner") and len(args) > 1 and type(args[1]) is str and args[1] in KINDS:
        name = given.pop(1)
    elif word == "tasks":
        name = "parallel"
    return f"{_METHODS.get(name, name)}({', '.join(map(shown, given))})"


def check_arguments(word: str, args: Sequence[Any]) -> None:
    """Are these arguments of a directive, as a file may have them?

    Raises:
        ScheduleError: there are too many or too few, or one is neither a name nor a number.
    """
    if word not in DIRECTIVES and word not in GRAPH_DIRECTIVES:
        every = ", ".join(sorted((*DIRECTIVES, *GRAPH_DIRECTIVES)))
        raise ScheduleError(f"there is no directive {shown(word)}; there are {every}")
    text = as_called(word, args)
    signature = inspect.signature((DIRECTIVES | GRAPH_DIRECTIVES)[word])
    try:
        bound = signature.bind(None, 0, *args)
    except TypeError as error:
        raise ScheduleError(f"{text}: {error}") from None
    for name, value in list(bound.arguments.items())[2:]:
        annotation = signature.parameters[name].annotation
        kind = int if annotation == "int" else str
        for x in value if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL else (value,):
            if type(x) is not kind:
                raise ScheduleError(
                    f"{text}: {name} is {shown(x)}; it is to be {'a whole number' if kind is int else 'a name'}"
                )
            if x not in _CHOICES.get(annotation, (x,)):
                raise ScheduleError(
                    f"{text}: there is no {name} {shown(x)}; there are {', '.join(_CHOICES[annotation])}"
                )
    if word == "rfactor":
        check_number(f"{text}: dim + 1", args[0] + 1, MAX_LOOPS, "dimensions")
        check_number(text, args[1], MAX_PARTS, "parts")


def check_directive(stage: object, group: object, word: str, args: Sequence[Any]) -> None:
    """Is this a directive, as a file may have it?

    Raises:
        ScheduleError: the stage is not a name, the nest not a number, or the arguments are not those of the word.
    """
    if type(stage) is not str:
        raise ScheduleError(f"{shown(stage)} is not the name of a stage")
    if type(group) is not int or group < 0:
        raise ScheduleError(f"{stage}: {shown(group)} is not the number of a nest; 0 is the first")
    try:
        check_arguments(word, args)
    except ScheduleError as error:
        raise ScheduleError(f"{stage}: {error}") from None


def check_factored(graphs: Iterable[Graph], directives: Iterable[Directive]) -> None:
    """Are the reductions in parts that are to be?

    Raises:
        ScheduleError: one cannot be done in parts.
    """
    stages = {s.name for g in graphs for s in g.stages}
    for name in rewrites(directives).factored:
        if name in stages and not any(x.startswith(parts_name(name)) for x in stages):
            why = "by an associative operation whose order NumPy leaves open, over a reduction dimension of that number"
            raise ScheduleError(f"rfactor: {name} is not computed {why}")


_CHOICES = {"LoopKind": KINDS, "Tail": TAILS, "Memory": tuple(MEMORY_LEVELS)}
