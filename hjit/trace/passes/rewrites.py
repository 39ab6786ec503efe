"""Schedule-requested rewrites: what a schedule changes of the Graph itself."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from hjit.trace.ir.expressions import Expr, Load, Op, rewrite
from hjit.trace.ir.graph import Definition, Graph, Input, Stage, identity
from hjit.trace.ir.poly import Dim, Poly, poly
from hjit.trace.ir.rewriting import fresh, map_exprs
from hjit.trace.passes.privatisation import in_parts, is_separable


@dataclass(frozen=True, slots=True)
class Rewrites:
    """The rewrites that a schedule requests.

    Attributes:
        kept: stages that are not inlined.
        inlined: pure stages that are.
        cached: inputs and stages of which consumers read a copy, a stage of its own; see `cache_reads`.
        factored: stage -> (reduction dimension, parts): reductions in parts, which are joined; see `rfactor`.
        inlined_after: stages of the canonical Graph that are inlined at last, with nothing else changed.
    """

    kept: Container[str] = frozenset()
    inlined: Container[str] = frozenset()
    cached: Container[str] = frozenset()
    factored: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    inlined_after: Container[str] = frozenset()


NO_REWRITES = Rewrites()


def cache_name(source: str) -> str:
    """The stage that copies an input or a stage."""
    return f"{source}_cache"


def parts_name(stage: str) -> str:
    """The stage of a reduction's partial results."""
    return f"{stage}_parts"


def cache_reads(graph: Graph, requested: Rewrites = NO_REWRITES) -> Graph:
    """Let consumers of some inputs and stages read copies of them (TVM's `cache_read`, Halide's `in`)."""
    stages: list[Stage] = []
    copies: dict[str, str] = {}
    names = set(graph.arrays)

    def cache(x: Input | Stage) -> None:
        if x.name in requested.cached:
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


def rfactor(graph: Graph, requested: Rewrites = NO_REWRITES) -> Graph:
    """Compute reductions in parts of one of their dimensions, and combine these (Halide's `rfactor`, Suriana 2017)."""
    stages: list[Stage] = []
    names = set(graph.arrays)

    def add(s: Stage) -> None:
        k, parts = requested.factored.get(s.name, (0, 0))
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
    """Can reduction dimension `k` be factored? Not if NumPy's order must be kept, as in `np.add.at` of floats."""
    return k < len(d.rdims) and is_separable(s, d) and (not d.is_scatter or s.dtype.kind in "iub")


def pack(graph: Graph, requested: Rewrites = NO_REWRITES) -> Graph:
    """Copy the right matrix of a product, so that the columns that a block of the result needs are contiguous.

    Its rows are as far apart as the matrix is wide, often by a power of two: then all compete for the same few
    cache sets (Goto and van de Geijn 2008, section 4). Of a transposed matrix the transposed copy is packed, whose
    lanes are contiguous. A schedule may inline a copy: then there is none.
    """
    stages: list[Stage] = []
    names = set(graph.arrays)
    for s in graph.stages:
        for number, d in enumerate(s.updates):
            for x, index in _packed(d):
                copy = fresh(cache_name(x.source), names)
                source = graph.arrays[x.source]
                is_copy = isinstance(source, Stage) and isinstance(source.initial, Load) and not source.updates
                if copy in requested.inlined or is_copy:
                    continue
                names.add(copy)
                order = 1 if x.index == index else -1
                value = Load(x.source, identity(2)[::order], source.dtype)
                stages.append(Stage(copy, source.dtype, source.shape[::order], value, (), s.origin))
                s = _reading(s, number, x, Load(copy, index, x.dtype))
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _reading(s: Stage, number: int, old: Load, new: Load) -> Stage:
    """A stage whose update of that number reads `new` in place of `old`."""
    d = s.updates[number]
    d = replace(d, value=rewrite(d.value, lambda e: new if e == old else None))
    return replace(s, updates=(*s.updates[:number], d, *s.updates[number + 1 :]))


def _packed(d: Definition) -> list[tuple[Load, tuple[Poly, ...]]]:
    """The loads to pack of an update ``c[i, j] += a[i, k] * b[k, j]`` of long dimensions, with the copies' indices."""
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
