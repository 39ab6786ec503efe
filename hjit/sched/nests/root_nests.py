"""Nests for a stage alone at the root: rows in parallel, vectors along the dimension with the best memory accesses."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from hjit.sched.language.build import Step, nest, whole_loops
from hjit.sched.language.definitions import free_from, is_direct
from hjit.sched.language.groups import groups
from hjit.sched.language.limits import MAX_UNROLL
from hjit.sched.language.memory import LINE, Strides
from hjit.sched.language.target import Target, table_registers
from hjit.sched.language.tree import Node, Root, Store
from hjit.sched.nests.thresholds import (
    DENSE_STRIDE,
    FEW_PLANES,
    GATHER_COST,
    INTERLEAVED,
    MIN_BLOCK_ROWS,
    MIN_LANES_EXTENT,
    MIN_PRODUCTS,
    SCAN_ROWS,
    STRIP_VECTORS,
    TRANSPOSE_LANES,
    TRANSPOSE_ROWS,
    UNROLL_CODE,
    UNROLL_INNER,
    UNROLL_REDUCTION,
)
from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ir.analysis.ranges import Ranges
from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, walk
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import ONE, ZERO, Dim, Indirect, Poly


class RootNests(Mapping[str, tuple[Node, ...]]):
    """For each stage of a Graph the nests that it has where it is computed at the root, made on first use."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self._stages, self._strides, self._target = graph.by_name, Strides(graph), target
        self._known: dict[str, tuple[Node, ...]] = {}

    def __getitem__(self, stage: str) -> tuple[Node, ...]:
        found = self._known.get(stage)
        if found is None:
            s = self._stages[stage]
            found = self._known[stage] = tuple(_nest(s, group, self._strides, self._target) for group in groups(s))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)


def root_schedule(graph: Graph, target: Target) -> Root:
    """Every stage alone, at the root: legal for every Graph."""
    return Root(tuple(Store(name, nests) for name, nests in RootNests(graph, target).items()))


def _nest(s: Stage, group: tuple[int, ...], strides: Strides, target: Target) -> Node:
    d = s.definitions[group[-1]]
    lanes_dim, unrolled = _choose(
        s, [s.definitions[n] for n in group if len(s.definitions[n].extents) == len(d.extents)], strides
    )
    lanes = vector_lanes(s, d, target, lanes_dim)
    blocked = block_dim(d, lanes_dim, inside_lanes(d, lanes_dim, unrolled))
    if blocked is not None:
        assert lanes_dim is not None
        return _blocked(s, group, d, lanes_dim, blocked, lanes, target)
    transposed = transposed_dim(d, lanes_dim, unrolled, strides) if len(group) == 1 else None
    if transposed is not None:
        assert lanes_dim is not None
        tile = TRANSPOSE_ROWS, min(lanes, TRANSPOSE_LANES)
        return nest(s.name, group, transpose_tiles(d, lanes_dim, transposed, *tile, unrolled))
    strip = strip_dim(d, lanes_dim)
    if strip is not None:
        return nest(s.name, group, strips(d, strip, STRIP_VECTORS * lanes, lanes))
    parts = parts_dim(d, unrolled)
    if parts is not None:
        others = [k for k in range(len(d.extents)) if k != parts]
        return nest(
            s.name,
            group,
            [(parts, "parallel", None), *((k, "serial", None) for k in others), (parts, "unroll", INTERLEAVED)],
        )
    steps: list[Step] = []
    lanes = iteration_lanes(d, target, lanes_dim, lanes)
    for step in whole_loops(d, loops_in_order(d, lanes_dim, unrolled), lanes_dim):
        steps += [step, (lanes_dim, "vector", lanes)] if step[0] == lanes_dim is not None else [step]
    rows = scan_rows(s, d, lanes_dim, unrolled)
    if rows is not None:
        steps.append((rows, "unroll", SCAN_ROWS))
    return nest(s.name, group, [*steps, *((k, "unroll", None) for k in unrolled)])


def inside_lanes(d: Definition, lanes_dim: int | None, unrolled: Sequence[int]) -> list[int]:
    """What is unrolled but for planes: these are loops around a block of accumulators, which fills the registers."""
    return [k for k in unrolled if k >= len(d.dims) or (lanes_dim is not None and k > lanes_dim)]


def scan_rows(s: Stage, d: Definition, lanes_dim: int | None, unrolled: Sequence[int]) -> int | None:
    """The dimension of which a scan without lanes runs several elements at once: one goes on while another waits.

    A scatter that only overwrites waits for nothing.
    """
    if (
        lanes_dim is not None
        or d.order != "sequential"
        or not d.rdims
        or (d.is_scatter and s.name not in d.sources)
        or SCAN_ROWS * sum(1 for _ in walk(d.value)) > UNROLL_CODE
    ):
        return None
    long = [k for k, n in enumerate(d.dims) if k not in unrolled and not (n.is_const and n.const < 2 * SCAN_ROWS)]
    return long[-1] if long else None


def parts_dim(d: Definition, unrolled: list[int]) -> int | None:
    """The dimension of a histogram's parts: a task has several, whose updates need not wait for each other."""
    if not d.is_scatter or d.order in ("pure", "sequential") or not d.dims or unrolled != [0]:
        return None
    n = d.dims[0]
    return 0 if n.is_const and n.const > INTERLEAVED and n.const % INTERLEAVED == 0 else None


def block_dim(d: Definition, lanes_dim: int | None, unrolled: Sequence[int]) -> int | None:
    """The dimension that makes a block of accumulators with the lanes: each load depends on one of the two.

    As in a product of matrices.
    """
    if lanes_dim is None or lanes_dim >= len(d.dims) or d.order != "add" or not is_direct(d) or not d.rdims:
        return None
    if all(n.is_const and n.const < MIN_PRODUCTS for n in d.rdims) or any(k < len(d.dims) for k in unrolled):
        return None

    def moves(x: Load, k: int) -> bool:
        return any(p.mentions(Dim(k)) for p in x.index)

    reading = [x for x in d.value.loads if any(moves(x, k) for k in range(len(d.dims), len(d.extents)))]
    along = [x for x in reading if moves(x, lanes_dim)]
    across = [x for x in reading if x not in along]
    if not across:
        return None
    for k in reversed(range(len(d.dims))):
        if k == lanes_dim or (d.dims[k].is_const and d.dims[k].const < MIN_BLOCK_ROWS):
            continue
        if all(moves(x, k) for x in across) and not any(moves(x, k) for x in along):
            return k
    return None


def block_size(d: Definition, lanes_dim: int, lanes: int, target: Target) -> tuple[int, int]:
    """Rows and vectors of a block of accumulators."""
    columns = d.dims[lanes_dim]
    return target.block(-(-columns.const // lanes) if columns.is_const else None)


def _blocked(
    s: Stage, group: tuple[int, ...], d: Definition, lanes_dim: int, rows: int, lanes: int, target: Target
) -> Node:
    """A nest with a block of accumulators in registers: rows of vectors share their loads."""
    others = [k for k in range(len(d.dims)) if k not in (lanes_dim, rows)]
    outer = [*others, rows, lanes_dim] if others else [lanes_dim, rows]
    steps = whole_loops(d, outer, lanes_dim)
    steps += [(k, "serial", None) for k in range(len(d.dims), len(d.extents))]
    count, vectors = block_size(d, lanes_dim, lanes, target)
    steps += [(rows, "unroll", count), (lanes_dim, "unroll", vectors * lanes), (lanes_dim, "vector", lanes)]
    return nest(s.name, group, steps)


def transposed_dim(d: Definition, lanes_dim: int | None, unrolled: Sequence[int], strides: Strides) -> int | None:
    """The dimension along which loads are contiguous whose lanes are far apart, as in a transposed copy."""
    if lanes_dim is None or d.order != "pure" or d.rdims:
        return None
    far = [x for x in d.value.loads if _worth(strides.along(x.source, x.index, lanes_dim), store=False) < 0]
    for k in reversed(range(len(d.dims))):
        if k == lanes_dim or k in unrolled or (d.dims[k].is_const and d.dims[k].const < TRANSPOSE_ROWS):
            continue
        if any(_worth(strides.along(x.source, x.index, k), store=False) > 0 for x in far):
            return k
    return None


def transpose_tiles(
    d: Definition, lanes_dim: int, across: int, rows: int, lanes: int, unrolled: Sequence[int]
) -> list[Step]:
    """Loops in tiles: the lines of memory that the lanes of one row load are in the cache for the rows that follow."""
    others = [k for k in range(len(d.dims)) if k not in (lanes_dim, across, *unrolled)]
    steps: list[Step] = [(k, "parallel", None) for k in (*others, across, lanes_dim)]
    steps += [(across, "serial", rows), (lanes_dim, "vector", lanes)]
    return [*steps, *((k, "unroll", None) for k in unrolled)]


def strip_dim(d: Definition, lanes_dim: int | None) -> int | None:
    """The dimension of the lanes, where it is a scan's and nothing else is long that tasks could be made of."""
    if lanes_dim is None or lanes_dim >= len(d.dims) or d.order != "sequential" or not d.rdims:
        return None
    return lanes_dim if [k for k, n in enumerate(d.dims) if not n.is_const] == [lanes_dim] else None


def strips(d: Definition, strip: int, size: int, lanes: int) -> list[Step]:
    """The loops of a scan whose tasks are strips of a dimension; of a scan nothing is unrolled."""
    steps: list[Step] = [(k, "parallel", None) for k in range(len(d.dims)) if k != strip]
    steps += [(strip, "parallel", None), *((k, "serial", None) for k in range(len(d.dims), len(d.extents)))]
    return [*steps, (strip, "serial", size), (strip, "vector", lanes)]


def loops_in_order(d: Definition, lanes_dim: int | None, unrolled: list[int]) -> list[int]:
    """Loops that stay, outermost first: pure dimensions, reductions, the lanes where accumulators stay in registers.

    A few planes whose code is too much to be unrolled are inside the rows: tasks are rows, and what rows of all planes
    read is computed once.
    """
    pure = [k for k in range(len(d.dims)) if k not in unrolled and k != lanes_dim]
    pure.sort(key=lambda k: d.dims[k].is_const and d.dims[k].const <= FEW_PLANES)
    inner = [k for k in range(len(d.dims), len(d.extents)) if k not in unrolled and k != lanes_dim]
    if lanes_dim is None:
        return pure + inner
    if lanes_dim >= len(d.dims):
        return [*pure, *inner, lanes_dim]
    if d.order in ("pure", "sequential"):
        return [*pure, *inner, lanes_dim]
    return [*pure, lanes_dim, *inner]


def _choose(s: Stage, definitions: list[Definition], strides: Strides) -> tuple[int | None, list[int]]:
    """The dimension of the vector lanes, and the small dimensions that are unrolled inside it."""
    best = best_lanes(definitions, lane_scores(s, definitions, strides))
    return best, unrolled_dims(definitions, best)


def lane_scores(s: Stage, definitions: list[Definition], strides: Strides) -> dict[int, int]:
    """The dimensions that vector lanes can run along, and how well each suits the memory."""
    d = definitions[0]
    associative = d.order not in ("pure", "sequential")
    gathered = d.is_scatter
    reads = [[x for x in part.loads if x.source != s.name] for part in definitions]
    scores: dict[int, int] = {}
    for k, n in enumerate(d.extents):
        if n.is_const and n.const < MIN_LANES_EXTENT:
            continue
        is_reduction = k >= len(d.dims) and not (k == len(d.extents) - 1 and k >= free_from(s, d))
        if is_reduction and (not associative or gathered or not is_direct(d)):
            continue
        if gathered or (d.order == "sequential" and not is_reduction and strides.along(s.name, d.target, k) != ONE):
            continue
        scores[k] = sum(_score(s, x, k, strides, own) for x, own in zip(definitions, reads, strict=True)) * 2 + (
            not n.is_const
        )
    return scores


def best_lanes(definitions: list[Definition], scores: Mapping[int, int]) -> int | None:
    """The dimension that the lanes run along by default."""
    best = max(scores, key=lambda k: (scores[k], k), default=None)
    if best is None or scores[best] >= 0 or any(d.order == "sequential" and d.rdims for d in definitions):
        return best  # in a scan the other lanes run while one waits for what it computed before
    if definitions[0].order != "pure" or max(cost(x.value) for x in definitions) < GATHER_COST:
        return None  # little to gain from lanes that are gathered one by one
    return best


def _score(s: Stage, d: Definition, k: int, strides: Strides, reads: Sequence[Load]) -> int:
    """How well lanes along `k` suit the memory: contiguous accesses count for, gathers against."""
    total = 0
    if k < len(d.dims) and not d.rdims:
        total += 4 * _worth(strides.along(s.name, d.target, k), store=True)
    return total + sum(_worth(strides.along(x.source, x.index, k), store=False) for x in reads)


def _worth(stride: Poly | None, store: bool) -> int:
    if stride is None:
        return -2
    if stride == ZERO:
        return -2 if store else 0
    if stride.is_const and abs(stride.const) <= DENSE_STRIDE:
        return 3 if abs(stride.const) == 1 else 1
    return -2


def unrolled_dims(definitions: list[Definition], lanes_dim: int | None) -> list[int]:
    """The small dimensions that are unrolled inside the lanes."""
    d = definitions[0]
    code = sum(1 for x in definitions for _ in walk(x.value))
    copies = 1
    differs: dict[int, dict[Expr, bool]] = {}
    found: list[int] = []
    for k in reversed(range(len(d.extents))):
        n = d.extents[k]
        reduction = k >= len(d.dims)
        if k == lanes_dim or not n.is_const or n.const > UNROLL_REDUCTION:
            continue
        if not reduction and n.const > (UNROLL_INNER if lanes_dim is None or k > lanes_dim else FEW_PLANES):
            continue
        if d.order == "sequential" and (d.rdims or lanes_dim is not None):
            continue
        if reduction and not is_direct(d):
            continue  # two points may write the same element
        if lanes_dim is not None and lanes_dim >= len(d.dims) and reduction:
            continue  # the accumulator loop is innermost
        moving = sum(1 for x in definitions for e in walk(x.value) if _varies(e, Dim(k), differs.setdefault(k, {})))
        more = code + copies * moving * max(n.const - 1, 0)  # what all copies share is there once
        if more > UNROLL_CODE or copies * n.const > MAX_UNROLL:
            continue
        code, copies = more, copies * max(n.const, 1)
        found.insert(0, k)
    return found


@functools.lru_cache(maxsize=1024)
def vector_lanes(s: Stage, d: Definition, target: Target, lanes_dim: int | None = None) -> int:
    """Lanes of a vector of the widest type at work along a dimension.

    Indices of gathers count 4 bytes, those of tables in registers nothing: a look-up takes as long for few lanes as for
    a whole register.
    """
    differs: dict[Expr, bool] = {}
    values = {
        e
        for e in walk(d.value)
        if e.dtype.kind != "b" and not _is_index(e) and (lanes_dim is None or _varies(e, Dim(lanes_dim), differs))
    }
    inside = {
        e for x in d.value.loads for p in x.index for a in p.atoms() if isinstance(a, Indirect) for e in walk(a.expr)
    }
    values -= {e for x in d.value.loads if (index := _looks_up(x, target)) is not None for e in walk(index)}
    widest = max((min(e.dtype.itemsize, 4) if e in inside else e.dtype.itemsize for e in values), default=1)
    widest = max(widest, s.dtype.itemsize)
    return filled_lanes(d, lanes_dim, max(target.vector_bytes // widest, 1))


def filled_lanes(d: Definition, lanes_dim: int | None, lanes: int) -> int:
    """As many of the lanes as a dimension of constant length fills: what is less than a vector runs one by one."""
    n = None if lanes_dim is None else d.extents[lanes_dim]
    return lanes if n is None or not n.is_const or n.const >= lanes else 1 << (max(n.const, 1).bit_length() - 1)


def _looks_up(x: Load, target: Target) -> Expr | None:
    """The index of a load that looks a table up in registers."""
    values = [a.expr for p in x.index for a in p.atoms() if isinstance(a, Indirect)]
    found = Ranges().of(values[0]) if len(values) == 1 and x.dtype.itemsize in target.table_bytes else None
    count = found[1] + 1 if found is not None and found[0] >= 0 else None
    width = target.vector_bytes
    return None if table_registers(x.dtype, count, width, width) is None else values[0]


def iteration_lanes(d: Definition, target: Target, lanes_dim: int | None, native: int) -> int:
    """Lanes of an iteration: a line of memory. Of short vectors there are several, and one goes on while another waits.

    A scan has tiles of its own, and what is gathered is loaded element by element anyway.

    Args:
        native: lanes of a vector register.
    """
    n = native * max(LINE // target.vector_bytes, 1)
    is_short = lanes_dim is None or (d.extents[lanes_dim].is_const and d.extents[lanes_dim].const < n)
    is_gather = any(isinstance(a, Indirect) for x in d.value.loads for p in x.index for a in p.atoms())
    return native if is_short or is_gather or d.order == "sequential" else n


def _varies(e: Expr, dim: Dim, known: dict[Expr, bool]) -> bool:
    """Does an expression depend on a dimension?"""
    found = known.get(e)
    if found is None:
        found = known[e] = any(p.mentions(dim) for p in e.polys) or any(_varies(a, dim, known) for a in e.args)
    return found


def _is_index(e: object) -> bool:
    return isinstance(e, (Index, Const)) or (isinstance(e, Cast) and isinstance(e.arg, Index))
