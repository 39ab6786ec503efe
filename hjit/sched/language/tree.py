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

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from hjit.errors import ScheduleError
from hjit.sched.language.kinds import LOOP_KINDS, LoopKind, Memory

Tail = Literal["auto", "guard_with_if", "shift_inwards", "predicate", "round_up"]
DimKey = int | tuple[int, ...]
Ahead = tuple[str, int, int]  # an array, a dimension, and how many iterations of it later
KINDS: tuple[LoopKind, ...] = tuple(LOOP_KINDS)
TAILS = ("auto", "guard_with_if", "shift_inwards", "predicate", "round_up")


class _Remembers:
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
class Compute(_Remembers):
    """Evaluate definitions of a stage at one point; several share their loads.

    Attributes:
        ahead: arrays of which what is read so many iterations of a dimension later is fetched into the caches.
    """

    stage: str
    definitions: tuple[int, ...]
    ahead: tuple[Ahead, ...] = ()

    __hash__ = _Remembers.__hash__


@dataclass(frozen=True, slots=True)
class Loop(_Remembers):
    """A loop over dimension `dim` of definitions of a stage.

    Attributes:
        dim: a dimension, or several that run as one, the last one fastest (Halide's `fuse`).
        kind: "vector": the lanes of one vector. "unroll": code for each iteration. "parallel": outermost only, tasks.
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

    __hash__ = _Remembers.__hash__


@dataclass(frozen=True, slots=True)
class Store(_Remembers):
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

    __hash__ = _Remembers.__hash__


@dataclass(frozen=True, slots=True)
class Root(_Remembers):
    """The whole schedule."""

    children: tuple[Node, ...]

    __hash__ = _Remembers.__hash__

    def __str__(self) -> str:
        return "\n".join(_lines(self, 0))

    def to_json(self) -> str:
        """The tree as JSON."""
        return json.dumps(_to_data(self))

    def _repr_html_(self) -> str:
        from hjit.sched.language.picture import schedule_html

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
        f", prefetch {source} at d{dim} + {n}" for source, dim, n in node.ahead
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
        case Compute(stage, definitions, ahead):
            return ["compute", stage, list(definitions), *([list(map(list, ahead))] if ahead else [])]
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
            other: list[Memory] = (
                [] if memory == "heap" else [memory]
            )  # as in files of before there were levels of memory
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
    from hjit.sched.language.limits import check_nodes

    check_nodes(node)
    assert isinstance(node, Root)
    return node


def _from_data(data: Any) -> Node:
    match data:
        case ["compute", str(stage), [*definitions], *more]:
            ahead = tuple((source, dim, n) for rows in more for source, dim, n in rows)
            return Compute(stage, tuple(definitions), ahead)
        case ["loop", str(stage), dim, kind, size, tail, [*children]]:
            key = tuple(dim) if isinstance(dim, list) else dim
            return Loop(stage, key, kind, size, tuple(map(_from_data, children)), tail)
        case ["store", str(stage), [*order], [*align], *more, [*children]] if len(more) <= 1:
            return Store(stage, tuple(map(_from_data, children)), tuple(order), tuple(align), *more)
        case ["root", [*children]]:
            return Root(tuple(map(_from_data, children)))
    raise ScheduleError(f"not a node of a schedule: {str(data)[:80]}")


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
            ahead = tuple((names.get(source, source), dim, n) for source, dim, n in node.ahead)
            return replace(node, stage=names.get(node.stage, node.stage), ahead=ahead)
        case _:
            return replace(
                node, stage=names.get(node.stage, node.stage), children=tuple(renamed(c, names) for c in node.children)
            )


def structural_hash(node: Node, depth: int | None = None) -> str:
    """A hash of the tree's structure down to a depth of loops; equal trees have equal hashes in every process.

    What lies deeper counts only by which stages are computed there, and sizes of loops do not count at the last depth
    that does: candidates that differ only in their finer decisions fall into one bucket (Adams 2019, section 3.2).
    """
    return hashlib.sha256(_structure(node, depth).encode()).hexdigest()[:32]


def _structure(node: Node, depth: int | None) -> str:
    if depth is not None and depth < 0:
        return "{" + ",".join(f"{c.stage}{c.definitions}" for c in computes(node)) + "}"
    match node:
        case Compute(stage, definitions, ahead):
            return f"{stage}{definitions}{ahead or ''}"
        case Root(children):
            return f"root({','.join(_structure(c, depth) for c in children)})"
        case Store(children=children):
            return f"{store_name(node)}({','.join(_structure(c, depth) for c in children)})"
        case Loop(children=children):
            name = loop_name(replace(node, size=None) if depth == 0 else node)
            inner = None if depth is None else depth - 1
            return f"{name}({','.join(_structure(c, inner) for c in children)})"
