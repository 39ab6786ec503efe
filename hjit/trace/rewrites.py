"""What a schedule changes of the Graph itself: which stages there are."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from hjit.trace.graph import Definition, Expr, Graph, Input, Load, Stage, fresh, identity, map_exprs, rewrite
from hjit.trace.partition import has_parts, in_parts
from hjit.trace.poly import Value


@dataclass(frozen=True, slots=True)
class Rewrites:
    """What a schedule says of the stages themselves.

    Attributes:
        kept: stages that are not inlined.
        inlined: stages that are.
        cached: inputs and stages of which consumers read a copy, a stage of its own that has a place and a layout; see `cache_reads`.
        factored: stage -> (reduction dimension, parts): reductions that are done in parts, which are joined; see `rfactor`.
    """

    kept: Container[str] = frozenset()
    inlined: Container[str] = frozenset()
    cached: Container[str] = frozenset()
    factored: Mapping[str, tuple[int, int]] = field(default_factory=dict)


AS_IT_IS = Rewrites()


def cache_name(source: str) -> str:
    """The stage that copies an input or a stage."""
    return f"{source}_cache"


def parts_name(stage: str) -> str:
    """The stage of a reduction's partial results."""
    return f"{stage}_parts"


def cache_reads(graph: Graph, said: Rewrites = AS_IT_IS) -> Graph:
    """Consumers of some inputs and stages read copies of them (`cache_read` of TVM, `in` of Halide)."""
    stages: list[Stage] = []
    copies: dict[str, str] = {}
    names = {x.name for x in (*graph.inputs, *graph.stages)}

    def cache(x: Input | Stage) -> None:
        if x.name in said.cached:
            copy = fresh(cache_name(x.name), names)
            stages.append(Stage(copy, x.dtype, x.shape, Load(x.name, identity(len(x.shape)), x.dtype), (), getattr(x, "origin", None)))
            copies[x.name] = copy

    def change(e: Expr) -> Expr | None:
        return Load(copies[e.source], e.index, e.dtype) if isinstance(e, Load) and e.source in copies else None

    for i in graph.inputs:
        if i.data is None:
            cache(i)
    for s in graph.stages:
        stages.append(map_exprs(s, lambda e: rewrite(e, change)))
        if s.name not in graph.outputs:
            cache(s)
    return replace(graph, stages=tuple(stages))


def rfactor(graph: Graph, said: Rewrites = AS_IT_IS) -> Graph:
    """Reductions in parts of one of their dimensions, which are then joined (Halide's `rfactor`, Suriana 2017)."""
    stages: list[Stage] = []
    names = set(graph.by_name)

    def add(s: Stage) -> None:
        k, parts = said.factored.get(s.name, (0, 0))
        number = next((n for n, d in enumerate(s.updates) if factors(s, d, k)), None) if parts else None
        if number is not None:
            part, joined = in_parts(s, s.updates[number], k, parts, fresh(parts_name(s.name), names))
            names.add(part.name)
            add(part)
            s = replace(s, updates=(*s.updates[:number], joined, *s.updates[number + 1 :]))
        stages.append(s)

    for s in graph.stages:
        add(s)
    return replace(graph, stages=tuple(stages))


def factors(s: Stage, d: Definition, k: int) -> bool:
    """Can reduction dimension `k` be done in parts? What is written in NumPy's order, as `np.add.at` of floats, cannot."""
    direct = all(not isinstance(a, Value) for p in d.target for a in p.atoms())
    return k < len(d.rdims) and has_parts(s, d) and (direct or s.dtype.kind in "iub")
