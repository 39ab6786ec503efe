"""The schedule tree: where and in which loops every stage of a Graph is computed.

    Node = Root | Store(stage, order) | Loop(stage, dim, kind, size) | Compute(stage, definitions)

Read as nested loops: the ancestors of a `Compute` are the loops that it runs in, `Store` says where the memory of a
stage lives, and siblings run in order. The outermost loop over a dimension has no size and runs over all that the
stage must compute there; loops of a size further in run over a tile that the next loop outwards moves. A stage whose
loops lie inside those of another is computed there (`compute_at`), as much of it as is needed there. Where its
`Store` lies further out than that, each iteration of the loop between computes only what no earlier one has (a sliding
window), in a circular buffer as long as the window.

The tree's rules are in `hjit.sched.language.check`; `hjit.sched.language.transforms` makes one legal tree from another.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from hjit.errors import ScheduleError
from hjit.sched.language.kinds import LOOP_KINDS, MEMORY_LEVELS, LoopKind, Memory
from hjit.sched.language.limits import (
    MAX_ALIGN,
    MAX_DEPTH,
    MAX_LANES,
    MAX_LOOPS,
    MAX_NODES,
    MAX_PREFETCHES,
    MAX_SIZE,
    is_size,
    shown,
)

Tail = Literal["auto", "guard_with_if", "shift_inwards", "predicate", "round_up"]
DimKey = int | tuple[int, ...]
Prefetch = tuple[str, int, int]  # an array, a dimension, and how many iterations of it later
KINDS: tuple[LoopKind, ...] = tuple(LOOP_KINDS)
TAILS = ("auto", "guard_with_if", "shift_inwards", "predicate", "round_up")


class _Memoised:
    """What is often needed of a node, computed once: its hash, and what is computed under it."""

    __slots__ = ("_computes", "_hash")
    _computes: tuple[Compute, ...]
    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash(tuple([getattr(self, name) for name in self.__match_args__]))  # type: ignore[attr-defined]
            object.__setattr__(self, "_hash", found)
            return found


@dataclass(frozen=True, slots=True)
class Compute(_Memoised):
    """Evaluate definitions of a stage at one point; several share their loads.

    Attributes:
        prefetches: arrays of which what is read so many iterations of a dimension later is fetched into the caches.
    """

    stage: str
    definitions: tuple[int, ...]
    prefetches: tuple[Prefetch, ...] = ()

    __hash__ = _Memoised.__hash__


@dataclass(frozen=True, slots=True)
class Loop(_Memoised):
    """A loop over dimension `dim` of definitions of a stage.

    Attributes:
        dim: a dimension, or several that run as one, the last one fastest (Halide's `fuse`).
        kind: "vector": the lanes of one vector. "unroll": code for each iteration. "parallel": outermost only, tasks.
            "gpu_block", "gpu_thread": blocks of threads, and the threads of one. "gpu_lane": lanes of one warp.
        size: number of elements of an inner loop; None for the loop over all.
        tail: of an inner loop, what happens where its size does not divide what is left. "guard_with_if": a shorter
            iteration. "shift_inwards": the last iteration starts earlier and repeats what the one before did.
            "predicate": a vector of which some lanes do nothing. "round_up": the stage computes more, as far as it has
            elements. "auto": the fastest of the first two that is legal.
    """

    stage: str
    dim: DimKey
    kind: LoopKind
    size: int | None
    children: tuple[Node, ...]
    tail: Tail = "auto"

    __hash__ = _Memoised.__hash__


@dataclass(frozen=True, slots=True)
class Store(_Memoised):
    """The memory of a stage, alive for the children; around a parallel loop that computes it inside, one for each task.

    Attributes:
        order: the axes from the slowest to the fastest in memory; () is C order. Outputs are in C order.
        align: for each axis what its length in memory is a multiple of, in elements; () is 1 everywhere. Outputs
            have none.
    """

    stage: str
    children: tuple[Node, ...]
    order: tuple[int, ...] = ()
    align: tuple[int, ...] = ()
    memory: Memory = "heap"

    __hash__ = _Memoised.__hash__


@dataclass(frozen=True, slots=True)
class Root(_Memoised):
    """The whole schedule."""

    children: tuple[Node, ...]

    __hash__ = _Memoised.__hash__

    def __str__(self) -> str:
        return "\n".join(_lines(self, 0))

    def to_json(self) -> str:
        """The tree as JSON."""
        return json.dumps(_to_data(self))

    def _repr_html_(self) -> str:
        return schedule_html(self)


Node = Root | Store | Loop | Compute


def dim_name(dim: DimKey) -> str:
    """``d1``, or ``d1.d2`` for dimensions that run as one."""
    return f"d{dim}" if isinstance(dim, int) else ".".join(f"d{k}" for k in dim)


def loop_name(loop: Loop) -> str:
    """A loop as it is printed."""
    size = "" if loop.size is None else f" of {loop.size}"
    return f"{loop.kind} {loop.stage}.{dim_name(loop.dim)}{size}" + ("" if loop.tail == "auto" else f", {loop.tail}")


def store_name(store: Store) -> str:
    """A storage as it is printed."""
    order = f" in order {', '.join(map(str, store.order))}" if store.order else ""
    align = f" aligned to {', '.join(map(str, store.align))}" if store.align else ""
    return f"store {store.stage}{order}{align}" + ("" if store.memory == "heap" else f", {store.memory}")


def compute_name(node: Compute) -> str:
    """A computation as it is printed."""
    numbers = "" if node.definitions == (0,) else " " + ", ".join(map(str, node.definitions))
    return f"compute {node.stage}{numbers}" + "".join(
        f", prefetch {source} at d{dim} + {n}" for source, dim, n in node.prefetches
    )


def _lines(node: Node, depth: int) -> Iterator[str]:
    pad = "  " * depth
    match node:
        case Root(children):
            yield "root"
        case Store():
            yield pad + store_name(node)
            children = node.children
        case Loop():
            yield pad + loop_name(node)
            children = node.children
        case Compute():
            yield pad + compute_name(node)
            return
    for child in children:
        yield from _lines(child, depth + 1)


def _to_data(node: Node) -> Any:
    match node:
        case Compute(stage, definitions, prefetches):
            return ["compute", stage, list(definitions), *([list(map(list, prefetches))] if prefetches else [])]
        case Loop(stage, dim, kind, size, children, tail):
            return [
                "loop",
                stage,
                dim if isinstance(dim, int) else list(dim),
                kind,
                size,
                tail,
                [_to_data(c) for c in children],
            ]
        case Store(stage, children, order, align, memory):
            # as in files of before there were levels of memory
            other: list[Memory] = [] if memory == "heap" else [memory]
            return ["store", stage, list(order), list(align), *other, [_to_data(c) for c in children]]
        case Root(children):
            return ["root", [_to_data(c) for c in children]]


def from_json(text: str) -> Root:
    """The tree that `Root.to_json` wrote.

    Raises:
        ScheduleError: the text is not such a tree.
    """
    try:
        data = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ScheduleError(f"not a schedule: {error}") from None
    try:
        node = _from_data(data)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ScheduleError(f"not a schedule: {error}") from None
    check_nodes(node)
    assert isinstance(node, Root)
    return node


def _from_data(data: Any) -> Node:
    match data:
        case ["compute", str(stage), [*definitions], *more]:
            prefetches = tuple((source, dim, n) for rows in more for source, dim, n in rows)
            return Compute(stage, tuple(definitions), prefetches)
        case ["loop", str(stage), dim, kind, size, tail, [*children]]:
            key = tuple(dim) if isinstance(dim, list) else dim
            return Loop(stage, key, kind, size, tuple(map(_from_data, children)), tail)
        case ["store", str(stage), [*order], [*align], *more, [*children]] if len(more) <= 1:
            return Store(stage, tuple(map(_from_data, children)), tuple(order), tuple(align), *more)
        case ["root", [*children]]:
            return Root(tuple(map(_from_data, children)))
    raise ScheduleError(f"not a node of a schedule: {str(data)[:80]}")


STYLE = (
    "border:1px solid #94a3b8;border-radius:4px;color:#0f172a;padding:3px 8px;margin:3px 0;font:12px sans-serif;"
    "background:"
)


def schedule_html(node: Node) -> str:
    """A schedule tree as nested boxes, coloured by the kind of loop."""
    children = "" if isinstance(node, Compute) else "".join(map(schedule_html, node.children))
    match node:
        case Compute():
            return f"<div style='margin:3px 0'><b>{html.escape(compute_name(node))}</b></div>"
        case Loop():
            title, colour = loop_name(node), LOOP_KINDS[node.kind].colour
        case Store():
            title, colour = store_name(node), "#ffffff"
        case _:
            title, colour = "root", "#ffffff"
    return f"<div style='{STYLE}{colour}'>{html.escape(title)}<div style='padding-left:10px'>{children}</div></div>"


# -- are the fields of the nodes what they have to be?


def check_nodes(root: object) -> None:
    """Is it a tree of nodes, each with the fields that it has to have, neither too deep nor too large? Later checks
    rely on that.

    Raises:
        ScheduleError: it names the node, and what is allowed.
    """
    if not isinstance(root, Root):
        raise ScheduleError(f"a schedule starts at its root, not at {shown(root)}")
    nodes: list[tuple[Any, int, int]] = [(root, 0, 0)]  # node, nodes and loops above it
    seen = 0
    while nodes:  # not recursive: this is what finds that a tree is too deep
        node, depth, loops = nodes.pop()
        seen += 1
        if not isinstance(node, (Compute, Loop, Store)) and node is not root:
            raise ScheduleError(f"{shown(node)} is no node of a schedule; there are stores, loops and computations")
        for problem in _wrong_fields(node):
            raise ScheduleError(problem)
        loops += isinstance(node, Loop)
        for n, most, unit in (
            (seen, MAX_NODES, "nodes"),
            (depth, MAX_DEPTH, "nodes above one another"),
            (loops, MAX_LOOPS, "loops in one another"),
        ):
            if n > most:
                raise ScheduleError(f"{_node_name(node)}: the tree has more than {most} {unit}")
        if not isinstance(node, Compute):
            nodes += [(c, depth + 1, loops) for c in node.children]


def _node_name(node: Any) -> str:
    return "root" if isinstance(node, Root) else f"{type(node).__name__.lower()} {shown(node.stage)}"


def _wrong_fields(node: Node) -> Iterator[str]:
    """What is wrong with a node alone."""
    name = _node_name(node)
    if not isinstance(node, Root) and type(node.stage) is not str:
        yield f"{name}: a stage is named by a string"
    if not isinstance(node, Compute) and not (
        isinstance(node.children, tuple) and (node.children or isinstance(node, Root))
    ):
        yield f"{name}: nothing is computed inside it; its children are a tuple of nodes"
    match node:
        case Compute():
            if not _are_numbers(node.definitions) or not node.definitions:
                yield f"{name}: {shown(node.definitions)} are no numbers of definitions"
            yield from _wrong_prefetches(name, node.prefetches)
        case Loop():
            if not (_is_number(node.dim) or (_are_numbers(node.dim) and len(dims_of(node.dim)) > 1)):
                yield f"{name}: {shown(node.dim)} is neither a dimension nor several"
            elif node.kind not in KINDS:
                yield f"{name}: there is no kind of loop {shown(node.kind)}; there are {', '.join(LOOP_KINDS)}"
            elif node.tail not in TAILS:
                yield f"{name}: there is no tail {shown(node.tail)}; there are {', '.join(TAILS)}"
            elif node.size is not None and not is_size(node.size):
                allowed = f"allowed are whole numbers from 1 to {MAX_SIZE} elements"
                yield f"{name}, dimension {shown(node.dim)}: {shown(node.size)} is not a size; {allowed}"
            elif node.kind == "vector" and node.size is not None and node.size > MAX_LANES:
                advice = "split the loop, and make a part of it a vector"
                yield f"{loop_name(node)}: {node.size} lanes, more than {MAX_LANES}; {advice}"
        case Store():
            if type(node.memory) is not str or node.memory not in MEMORY_LEVELS:
                yield f"{name}: there is no memory {shown(node.memory)}; there is {', '.join(MEMORY_LEVELS)}"
            if not _are_numbers(node.order):
                yield f"{name}: {shown(node.order)} is no order of axes"
            if not _are_numbers(node.align):
                yield f"{name}: {shown(node.align)} are no numbers of elements that axes are multiples of"
            elif math.prod(node.align) > MAX_ALIGN:
                yield f"{name}: it is aligned to {shown(math.prod(node.align))} elements, more than {MAX_ALIGN}"


def _wrong_prefetches(name: str, prefetches: Any) -> Iterator[str]:
    if not isinstance(prefetches, tuple) or not all(isinstance(x, tuple) and len(x) == 3 for x in prefetches):
        yield f"{name}: a prefetch is an array, a dimension and a number of elements, not {shown(prefetches)}"
        return
    if len(prefetches) > MAX_PREFETCHES:
        yield f"{name}: it prefetches {len(prefetches)} times, more than {MAX_PREFETCHES}"
    for source, dim, n in prefetches:
        if type(source) is not str or not _is_number(dim) or not is_size(n):
            wanted = f"{shown(source)} at dimension {shown(dim)}, {shown(n)} elements later"
            allowed = f"an array, a dimension, and from 1 to {MAX_SIZE} elements are needed"
            yield f"{name}: it cannot prefetch {wanted}; {allowed}"


def _is_number(n: object) -> bool:
    return type(n) is int and n >= 0


def _are_numbers(numbers: object) -> bool:
    return isinstance(numbers, tuple) and all(map(_is_number, numbers))


# -- questions


def dims_of(dim: DimKey) -> tuple[int, ...]:
    """The dimensions of a loop."""
    return (dim,) if isinstance(dim, int) else dim


def walk(node: Node) -> Iterator[Node]:
    """The node and all under it, in the order in which they run."""
    nodes = [node]  # not a generator in a generator: trees of many stages are deep
    while nodes:
        x = nodes.pop()
        yield x
        if not isinstance(x, Compute):
            nodes += x.children[::-1]


def computes(node: Node) -> tuple[Compute, ...]:
    """The computations under a node, in the order in which they run."""
    try:
        return node._computes
    except AttributeError:
        found = (node,) if isinstance(node, Compute) else tuple(x for c in node.children for x in computes(c))
        object.__setattr__(node, "_computes", found)
        return found


def own(node: Node, stage: str) -> Compute:
    """The first computation of a stage under a node."""
    return next(c for c in computes(node) if c.stage == stage)


def with_children(node: Node, children: tuple[Node, ...]) -> Node:
    """The node over other children."""
    match node:
        case Loop(stage, dim, kind, size, _, tail):
            return Loop(stage, dim, kind, size, children, tail)
        case Store(stage, _, order, align, memory):
            return Store(stage, children, order, align, memory)
        case Root():
            return Root(children)
    return node


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The tree with other names for the stages."""
    match node:
        case Root(children):
            return Root(tuple(renamed(c, names) for c in children))
        case Compute():
            prefetches = tuple((names.get(source, source), dim, n) for source, dim, n in node.prefetches)
            return replace(node, stage=names.get(node.stage, node.stage), prefetches=prefetches)
        case _:
            return replace(
                node, stage=names.get(node.stage, node.stage), children=tuple(renamed(c, names) for c in node.children)
            )
