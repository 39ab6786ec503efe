"""What a schedule changes of the Graph itself: which stages there are."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from hjit.trace.ir.graph import Definition, Expr, Graph, Input, Load, Op, Stage, fresh, identity, map_exprs, rewrite
from hjit.trace.ir.poly import Dim, Poly, poly
from hjit.trace.passes.partition import has_parts, in_parts


@dataclass(frozen=True, slots=True)
class Rewrites:
    """What a schedule says of the stages themselves.

    Attributes:
        kept: stages that are not inlined.
        inlined: stages that are.
        cached: inputs and stages of which consumers read a copy, a stage of its own that has a place and a layout; see `cache_reads`.
        factored: stage -> (reduction dimension, parts): reductions that are done in parts, which are joined; see `rfactor`.
        inlined_after: stages of the canonical Graph that are inlined at last, with nothing else changed.
    """

    kept: Container[str] = frozenset()
    inlined: Container[str] = frozenset()
    cached: Container[str] = frozenset()
    factored: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    inlined_after: Container[str] = frozenset()


NO_REWRITES = Rewrites()
Index = tuple[Poly, ...]


def cache_name(source: str) -> str:
    """The stage that copies an input or a stage."""
    return f"{source}_cache"


def parts_name(stage: str) -> str:
    """The stage of a reduction's partial results."""
    return f"{stage}_parts"


def cache_reads(graph: Graph, said: Rewrites = NO_REWRITES) -> Graph:
    """Consumers of some inputs and stages read copies of them (`cache_read` of TVM, `in` of Halide)."""
    stages: list[Stage] = []
    copies: dict[str, str] = {}
    names = {x.name for x in (*graph.inputs, *graph.stages)}

    def cache(x: Input | Stage) -> None:
        if x.name in said.cached:
            copy = fresh(cache_name(x.name), names)
            stages.append(
                Stage(
                    copy,
                    x.dtype,
                    x.shape,
                    Load(x.name, identity(len(x.shape)), x.dtype),
                    (),
                    getattr(x, "origin", None),
                )
            )
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


def rfactor(graph: Graph, said: Rewrites = NO_REWRITES) -> Graph:
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
    return k < len(d.rdims) and has_parts(s, d) and (not d.is_scatter or s.dtype.kind in "iub")


def pack(graph: Graph, said: Rewrites = NO_REWRITES) -> Graph:
    """The right matrix of a product is copied, so that the columns that a block of the result needs lie side by side.

    Its rows are as far apart as the matrix is wide, often by a power of two: then all of them want the same few places of the caches
    (Goto and van de Geijn 2008, section 4). Transposed matrices are copied as they were before: what the lanes of vectors run along, and
    what a row of the result reads. A schedule may say that a copy is inlined: then there is none.
    """
    stages: list[Stage] = []
    names = {x.name for x in (*graph.inputs, *graph.stages)}
    arrays = {x.name: x for x in (*graph.inputs, *graph.stages)}
    for s in graph.stages:
        for number, d in enumerate(s.updates):
            for x, index in _packed(d):
                source = arrays[x.source]
                copy = fresh(cache_name(x.source), names)
                if copy in said.inlined or (
                    isinstance(source, Stage) and isinstance(source.initial, Load) and not source.updates
                ):
                    continue
                names.add(copy)
                way = 1 if x.index == index else -1
                stages.append(
                    Stage(
                        copy,
                        source.dtype,
                        source.shape[::way],
                        Load(x.source, identity(2)[::way], source.dtype),
                        (),
                        s.origin,
                    )
                )
                packed = Load(copy, index, x.dtype)
                value = rewrite(s.updates[number].value, lambda e, x=x, packed=packed: packed if e == x else None)  # type: ignore[misc]
                s = replace(s, updates=(*s.updates[:number], replace(d, value=value), *s.updates[number + 1 :]))
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _packed(d: Definition) -> list[tuple[Load, Index]]:
    """What is copied where an update is ``c[i, j] += a[i, k] * b[k, j]`` of more than a few of each, and by which index the copies are read."""
    i, j, k = (poly(Dim(n)) for n in range(3))
    if d.order != "add" or d.target != (i, j) or len(d.rdims) != 1 or not isinstance(d.value, Op):
        return []
    value = d.value.args[1]
    if not (
        isinstance(value, Op) and value.name == "multiply" and value.dtype.kind == "f" and value.dtype.itemsize >= 4
    ):
        return []
    a, b = value.args
    few = any(n.is_const for n in d.extents)
    if (
        few
        or not isinstance(a, Load)
        or not isinstance(b, Load)
        or a.index not in ((i, k), (k, i))
        or b.index not in ((k, j), (j, k))
    ):
        return []
    return [(a, (i, k)), (b, (k, j))] if a.index == (k, i) else [(b, (k, j))]
