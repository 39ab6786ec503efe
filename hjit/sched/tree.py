"""The schedule tree: where and in which loops every stage of a Graph is computed.

    Node = Root | Store(stage, memory) | Loop(stage, dim, kind, size) | Compute(stage, definitions)

Read as nested loops: the ancestors of a `Compute` are the loops that it runs in, `Store` says where the memory of a
stage lives, and siblings run in order. A dimension may be split: the inner `Loop` of the same dimension has a size,
the outer one runs over the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hjit.errors import ScheduleError
from hjit.trace.graph import Graph

LoopKind = Literal["serial", "parallel", "vector", "unroll"]
KINDS = ("serial", "parallel", "vector", "unroll")


@dataclass(frozen=True, slots=True)
class Compute:
    """Evaluate definitions of a stage at one point; several share their loads."""

    stage: str
    definitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over dimension `dim` of definitions of a stage.

    Attributes:
        size: number of elements of an inner loop; None for the loop over all that inner loops of `dim` leave.
    """

    stage: str
    dim: int
    kind: LoopKind
    size: int | None
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """The memory of a stage, alive for the children.

    memory: "output", "heap" (scratch of the call), or "lines": around a parallel loop, a circular buffer of rows that
    each task has for itself; the stage's own loops, inside the parallel loop, then compute only rows that are new.
    """

    stage: str
    memory: str
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Root:
    """The whole schedule."""

    children: tuple[Node, ...]

    def __str__(self) -> str:
        return "\n".join(_lines(self, 0))

    def to_json(self) -> str:
        """The tree as JSON."""
        return json.dumps(_to_data(self))


Node = Root | Store | Loop | Compute


def _lines(node: Node, depth: int) -> Iterator[str]:
    pad = "  " * depth
    match node:
        case Root(children):
            yield "root"
        case Store(stage, memory, children):
            yield f"{pad}store {stage} ({memory})"
        case Loop(stage, dim, kind, size, children):
            yield f"{pad}{kind} {stage}.d{dim}" + ("" if size is None else f" of {size}")
        case Compute(stage, definitions):
            numbers = "" if definitions == (0,) else " " + ", ".join(map(str, definitions))
            yield f"{pad}compute {stage}{numbers}"
            return
    for child in children:
        yield from _lines(child, depth + 1)


def _to_data(node: Node) -> Any:
    match node:
        case Compute(stage, definitions):
            return ["compute", stage, list(definitions)]
        case Loop(stage, dim, kind, size, children):
            return ["loop", stage, dim, kind, size, [_to_data(c) for c in children]]
        case Store(stage, memory, children):
            return ["store", stage, memory, [_to_data(c) for c in children]]
        case Root(children):
            return ["root", [_to_data(c) for c in children]]


def from_json(text: str) -> Root:
    """The tree that `Root.to_json` wrote.

    Raises:
        ScheduleError: the text is not such a tree.
    """
    try:
        node = _from_data(json.loads(text))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ScheduleError(f"not a schedule: {error}") from None
    if not isinstance(node, Root):
        raise ScheduleError("a schedule starts at its root")
    return node


def _from_data(data: Any) -> Node:
    match data:
        case ["compute", str(stage), [*definitions]]:
            return Compute(stage, tuple(map(int, definitions)))
        case ["loop", str(stage), int(dim), str(kind), size, [*children]] if kind in KINDS:
            return Loop(stage, dim, kind, size, tuple(map(_from_data, children)))  # type: ignore[arg-type]
        case ["store", str(stage), str(memory), [*children]]:
            return Store(stage, memory, tuple(map(_from_data, children)))
        case ["root", [*children]]:
            return Root(tuple(map(_from_data, children)))
    raise ScheduleError(f"not a node of a schedule: {str(data)[:80]}")


def check(root: Root, graph: Graph) -> None:
    """Is the tree well formed for the Graph?

    Raises:
        ScheduleError: it says which rule is broken.
    """
    stages = graph.by_name
    computed: list[tuple[str, int]] = []

    lines: set[str] = set()

    def visit(node: Node, loops: tuple[Loop, ...], stored: frozenset[str]) -> None:
        match node:
            case Loop(stage, _, _, _, _) if loops and stage != loops[0].stage and stage not in lines:
                raise ScheduleError(f"loops of {stage} inside those of {loops[0].stage}: only a stage stored in lines is computed there")
            case Store(stage, "lines", _):
                lines.add(stage)
        match node:
            case Compute(stage, definitions):
                if stage not in stages:
                    raise ScheduleError(f"compute {stage}: the Graph has no such stage; it has {', '.join(stages)}")
                if stage not in stored:
                    raise ScheduleError(f"compute {stage}: its storage is not around it")
                wanted = set(range(len(stages[stage].definitions[definitions[-1]].extents)))
                found = {x.dim for x in loops if x.stage == stage and x.size is None}
                if found != wanted:
                    raise ScheduleError(f"compute {stage}: its dimensions are {sorted(wanted)}, the loops around it run over {sorted(found)}")
                computed.extend((stage, n) for n in definitions)
            case Loop(stage, dim, kind, size, children):
                if kind not in KINDS:
                    raise ScheduleError(f"loop {stage}.d{dim}: unknown kind {kind}")
                if size is not None and not any(x.stage == stage and x.dim == dim and x.size is None for x in loops):
                    raise ScheduleError(f"loop {stage}.d{dim} of {size}: there is no outer loop over the same dimension")
                if kind == "parallel" and loops:
                    raise ScheduleError(f"loop {stage}.d{dim}: only an outermost loop is parallel")
                for c in children:
                    visit(c, (*loops, node), stored)
            case Store(stage, _, children):
                for c in children:
                    visit(c, loops, stored | {stage})
            case Root(children):
                for c in children:
                    visit(c, loops, stored)

    visit(root, (), frozenset())
    wanted = [(s.name, n) for s in graph.stages for n in range(len(s.definitions))]
    place = {at: k for k, at in enumerate(computed)}
    missing = [f"{s}[{n}]" for s, n in wanted if (s, n) not in place]
    if missing or len(computed) != len(wanted):
        raise ScheduleError(f"every definition is computed once: {', '.join(missing) or 'some are computed twice'}")
    for s in graph.stages:
        places = [place[s.name, n] for n in range(len(s.definitions))]
        used = {x.source for x in s.reads()} & set(stages) - {s.name}
        late = sorted(name for name in used if place[name, len(stages[name].definitions) - 1] > places[0])
        if late or places != sorted(places):
            raise ScheduleError(f"compute {s.name}: it comes before {late[0] if late else 'an earlier definition of its own'}")
