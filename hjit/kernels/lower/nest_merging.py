"""Nest merging: of nests that differ only in arrays and sizes, one is lowered and emitted for all.

An example are the iterations of a loop that was traced one by one. Two nests can be merged if they have the same text
once arrays and sizes are numbered in order of occurrence. Everything else that the code depends on is part of the text:
the loops of the schedule, and the layout of each array in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from hjit.sched.language.memory import C_ORDER, Layout
from hjit.sched.language.tree import Compute, Loop, Node
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.key import Writer
from hjit.trace.ir.poly import Atom, Poly, Sym

MANY = 64  # nests, fewer are lowered one by one


@dataclass(frozen=True, slots=True)
class Signature:
    """What nests that are merged have in common (`text`), and what is a nest's own: its arrays and sizes."""

    text: str
    arrays: tuple[str, ...]
    sizes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Renaming:
    """A nest as an earlier one, with other arrays and sizes.

    Attributes:
        nest: the number of the earlier one.
        arrays, sizes: for each of its names the name in this nest.
    """

    nest: int
    arrays: dict[str, str]
    sizes: dict[str, str]

    def poly(self, p: Poly) -> Poly:
        """A polynomial of the earlier nest as one of this."""

        def change(a: Atom) -> Sym | None:
            return Sym(self.sizes[a.name]) if isinstance(a, Sym) else None

        return p.substitute(change)


def renaming(own: Signature, nest: int, other: Signature) -> Renaming:
    """A nest as number `nest`, whose signature `other` has the same text."""
    return Renaming(
        nest, dict(zip(other.arrays, own.arrays, strict=True)), dict(zip(other.sizes, own.sizes, strict=True))
    )


class _Arrays(dict[str, str]):
    """Numbers of arrays, each described where it occurs first. Arguments, results and scalars keep their names."""

    def __init__(self, graph: Graph, layouts: dict[str, Layout]) -> None:
        super().__init__()
        self.graph, self.layouts = graph, layouts
        self.dtypes, self.shapes = graph.dtypes, graph.shapes
        self.outputs = frozenset(graph.outputs)
        self.writer = Writer()
        self.numbered: list[str] = []

    def __missing__(self, name: str) -> str:
        keeps = name not in self.graph.by_name or name in self.outputs
        found = self[name] = f"'{name}'" if keeps else f"a{len(self.numbered)}"
        if not keeps:
            self.numbered.append(name)
        if name in self.shapes:  # no scalar; the sizes of those that keep their names are the same ones, too
            shape = ",".join(map(self.writer.poly, self.shapes[name]))
            self.writer.lines.append(f"{found}: {self.dtypes[name].str} [{shape}] {self.layouts.get(name, C_ORDER)}")
        return found


def signature_of(graph: Graph, layouts: dict[str, Layout], top: Node) -> Signature | None:
    """The signature of a nest; None where its code depends on more than that says."""
    arrays = _Arrays(graph, layouts)
    w = arrays.writer
    w.names = arrays
    stage = graph.by_name[top.stage] if isinstance(top, (Loop, Compute)) else None
    if stage is None:
        return None
    numbers: list[int] = []
    loops = _loops(top, stage.name, numbers)
    if loops is None:
        return None
    w.lines += [loops, arrays[stage.name], str(stage.initial is None)]
    for n in numbers:
        d = stage.definitions[n]
        if any(p.exprs for p in d.target) or any(p.exprs for x in d.loads for p in x.index):
            return None  # indices read from an array, whose range matters
        dims, rdims, target = (",".join(map(w.poly, ps)) for ps in (d.dims, d.rdims, d.target))
        value = w.expr(d.value)
        w.lines.append(f"{d.order} [{dims}|{rdims}] [{target}] = {value}")
    return Signature("\n".join(w.lines), tuple(arrays.numbered), tuple(w.symbols))


def _loops(node: Node, stage: str, numbers: list[int]) -> str | None:
    """The loops of a stage as text; None where there are other stages inside. `numbers` gets its definitions."""
    match node:
        case Compute(name, definitions, ()) if name == stage:
            numbers.extend(definitions)
            return f"compute{tuple(min(n, 2) for n in definitions)}"  # the first two differ from the others
        case Loop() if node.stage == stage:
            inside = [_loops(c, stage, numbers) for c in node.children]
            if None not in inside:
                return f"{node.kind} {node.dim} {node.size} {node.tail} ({' '.join(x for x in inside if x)})"
    return None
