"""Nest templates: the tilings, vectorisations and unrollings of a definition that are considered on a CPU.

A `Template` is a structure of loops with choices for their sizes, so that all choices are costed at once. The structure
has every loop that any of its choices has; `chosen` removes loops of one iteration.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.sched.language.build import Step, nest, parallel_loops
from hjit.sched.language.definitions import is_associative, is_atomic, is_direct
from hjit.sched.language.limits import MAX_UNROLL
from hjit.sched.language.memory import Strides
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Compute, DimKey, Loop, Node, dims_of, with_children
from hjit.sched.language.tree import walk as walk_tree
from hjit.sched.nests.root_nests import (
    best_lanes,
    block_dim,
    block_size,
    filled_lanes,
    inside_lanes,
    iteration_lanes,
    lane_scores,
    loops_in_order,
    parts_dim,
    scan_rows,
    strip_dim,
    strips,
    transpose_tiles,
    transposed_dim,
    unrolled_dims,
    vector_lanes,
)
from hjit.sched.nests.thresholds import INTERLEAVED, SCAN_ROWS, STRIP_VECTORS, TRANSPOSE_LANES, TRANSPOSE_ROWS
from hjit.sched.search.pruning import log_spaced
from hjit.sched.search.thresholds import (
    BLOCK_SIZES,
    LANE_DIMS,
    MAX_STRIP_VECTORS,
    MAX_TRANSPOSE_ROWS,
    MIN_ITERATIONS,
    MIN_TILED,
    REDUCTION_UNROLL,
    ROWS,
    SMALL_TASK,
    TILES,
    UNROLLED_OPERATIONS,
    VECTORS,
)
from hjit.trace.ir.analysis.costs import instruction_count
from hjit.trace.ir.expressions import Expr, Index, walk
from hjit.trace.ir.graph import Definition, Stage

Sizes = np.ndarray[Any, np.dtype[np.int64]]  # [choices, columns]


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A loop structure with choices for its sizes.

    Attributes:
        node: the nest; a loop of the size -k - 1 has the sizes of column k.
        sizes: [choices, columns].
    """

    node: Node
    sizes: Sizes


def chosen(node: Node, sizes: Sequence[int]) -> Node:
    """The nest for one of the choices, without loops of one iteration."""
    return _chosen(node, sizes)[0]


def _chosen(node: Node, sizes: Sequence[int]) -> tuple[Node, dict[tuple[str, DimKey], int]]:
    """Also the size of the outermost loop in it over each dimension, 0 where that runs over all."""
    if isinstance(node, Compute):
        return node, {}
    inner: dict[tuple[str, DimKey], int] = {}
    children: list[Node] = []
    for c in node.children:
        child, own = _chosen(c, sizes)
        children.append(child)
        inner |= own
    if not isinstance(node, Loop):
        return with_children(node, tuple(children)), inner
    key, size = (node.stage, node.dim), node.size
    if size is not None and size < 0:
        size = int(sizes[-size - 1])
        if size == inner.get(key, 1) and node.kind != "vector" and len(children) == 1:
            return children[0], inner
    inner[key] = size or 0
    return Loop(node.stage, node.dim, node.kind, size, tuple(children), node.tail), inner


def columns(node: Node, sizes: Sizes) -> Sizes:
    """The choices with a column for each loop with a size, in the order of `walk`, for `hjit.sched.features`."""
    found = [sizes[:, -n - 1] if n < 0 else np.full(len(sizes), n) for n in loop_sizes(node)]
    return np.stack(found, 1) if found else np.zeros((len(sizes), 0), np.int64)


def parallel_iterations(node: Node, extents: Sequence[float]) -> float:
    """The total number of iterations of the parallel loops of a nest."""
    total = 1.0
    for loop in parallel_loops(node):
        inside = next(
            (x.size for x in walk_tree(loop) if isinstance(x, Loop) and x is not loop and x.dim == loop.dim), None
        )
        total *= math.ceil(math.prod(extents[k] for k in dims_of(loop.dim)) / (inside or 1))
    return total


def loop_sizes(node: Node) -> Iterator[int]:
    """The sizes of the loops that have one, in the order of `walk`."""
    if isinstance(node, Loop) and node.size is not None:
        yield node.size
    if not isinstance(node, Compute):
        for c in node.children:
            yield from loop_sizes(c)


@dataclass(frozen=True, slots=True)
class Inner:
    """The innermost loops of a template.

    Attributes:
        lanes_dim: the dimension of the vectors; None: there are none.
        rows_dim: another dimension of which several elements are computed in one iteration, or None.
        unrolled: small dimensions, whole.
        transposed: the dimension that other loads are contiguous along than those of the lanes, or None.
        options: (lanes, elements along `lanes_dim`, elements along `rows_dim`) of one iteration, the first as in the
            default schedule.
    """

    lanes_dim: int | None
    rows_dim: int | None
    unrolled: tuple[int, ...]
    options: tuple[tuple[int, int, int], ...]
    transposed: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """Tiles of some dimensions, the outer one first, and choices for their sizes, [choices, dimensions]."""

    dims: tuple[int, ...]
    sizes: Sizes


class Templates:
    """The templates of the nests of one Graph's stages.

    Args:
        cores: how many tasks run at once.
        tiles: sizes that are tried between a tile and one twice as large, the first of them included.
    """

    def __init__(self, strides: Strides, target: Target, cores: int, tiles: int) -> None:
        self.strides, self.target, self.cores = strides, target, cores
        self.tiles = product_of(tuple(log_spaced(most, tiles, least) for least, most in TILES))
        self.transposed = tuple(dict.fromkeys((TRANSPOSE_ROWS, *log_spaced(MAX_TRANSPOSE_ROWS, tiles, least=4))))
        self.strips = tuple(dict.fromkeys((STRIP_VECTORS, *log_spaced(MAX_STRIP_VECTORS, max(tiles // 2, 1)))))
        self._inner: dict[tuple[str, tuple[int, ...], tuple[int, ...], bool], list[Inner]] = {}

    def of(
        self,
        s: Stage,
        group: tuple[int, ...],
        extents: Sequence[float],
        at_root: bool,
        order: tuple[int, ...] = (),
        plane_loops: bool = False,
    ) -> Iterator[Template]:
        """All templates of a nest; the first one with its first sizes is that of the default schedule.

        Args:
            extents: numbers of the extents of the dimensions.
            at_root: is it computed at the root?
            order: of the stage's axes in memory, as in `hjit.sched.language.tree.Store`.
            plane_loops: see `hjit.sched.search.pruning.Rules`.
        """
        d = s.definitions[group[-1]]
        for inner in self.inner(s, group, extents, order, plane_loops):
            if at_root and inner.transposed is not None and inner.lanes_dim is not None and len(group) == 1:
                lanes = tuple(dict.fromkeys(min(n, TRANSPOSE_LANES) for n, *_ in inner.options))
                steps = transpose_tiles(d, inner.lanes_dim, inner.transposed, -1, -2, inner.unrolled)
                yield Template(nest(s.name, group, steps), product_of((self.transposed, lanes)))
            strip = strip_dim(d, inner.lanes_dim) if at_root else None
            if strip is not None:
                choices = [
                    (lanes, n * lanes) for lanes in dict.fromkeys(n for n, *_ in inner.options) for n in self.strips
                ]
                yield Template(nest(s.name, group, strips(d, strip, -2, -1)), np.array(choices, np.int64))
            for loops in _orders(d, inner, extents, at_root):
                tiles = self._tiles(d, loops, inner, extents) if at_root else None
                for parallel in self._parallel(s, d, loops, inner, extents) if at_root else [0]:
                    steps, sizes = _steps(d, loops, inner, tiles, parallel, extents)
                    yield Template(nest(s.name, group, steps), sizes)

    def inner(
        self,
        s: Stage,
        group: tuple[int, ...],
        extents: Sequence[float],
        order: tuple[int, ...] = (),
        plane_loops: bool = False,
    ) -> list[Inner]:
        """What may be in vectors and unrolled."""
        key = s.name, group, order, plane_loops
        if key not in self._inner:
            strides = self.strides.with_order(s, order) if order else self.strides
            self._inner[key] = list(self._inners(s, group, extents, strides, plane_loops))
        return self._inner[key]

    def _inners(
        self, s: Stage, group: tuple[int, ...], extents: Sequence[float], strides: Strides, plane_loops: bool
    ) -> Iterator[Inner]:
        d = s.definitions[group[-1]]
        alike = [s.definitions[n] for n in group if len(s.definitions[n].extents) == len(d.extents)]
        scores = lane_scores(s, alike, strides)
        first = best_lanes(alike, scores)
        others = [k for k in sorted(scores, key=lambda k: (-scores[k], -k))[:LANE_DIMS] if scores[k] >= 0]
        for lanes_dim in dict.fromkeys([first, *others] if first is not None else [None, *scores]):
            unrolled = tuple(unrolled_dims(alike, lanes_dim))
            if lanes_dim is None:
                parts = parts_dim(d, list(unrolled))
                rows = scan_rows(s, d, None, unrolled)
                if parts is not None:
                    yield Inner(None, parts, (), ((1, 1, INTERLEAVED),))
                elif rows is not None:
                    # fewer rows wait for each other's results, and no feature tells how long
                    yield Inner(None, rows, unrolled, ((1, 1, SCAN_ROWS), (1, 1, 2 * SCAN_ROWS)))
                else:
                    yield Inner(None, None, unrolled, ((1, 1, 1),))
                continue
            widths = native_widths(s, d, self.target, lanes_dim)
            single = sum(instruction_count(x.value, widths[0]) for x in alike)
            code = single * max(int(np.prod([extents[k] for k in unrolled])), 1)
            transposed = transposed_dim(d, lanes_dim, unrolled, strides)
            first_lanes = widths[0] if transposed is not None else iteration_lanes(d, self.target, lanes_dim, widths[0])
            yield replace(
                self._blocks(d, lanes_dim, widths, first_lanes, unrolled, extents, code), transposed=transposed
            )
            inside = tuple(inside_lanes(d, lanes_dim, unrolled))
            if inside != unrolled and (plane_loops or block_dim(d, lanes_dim, inside) is not None):
                yield self._blocks(d, lanes_dim, widths, first_lanes, inside, extents, code)

    def _blocks(
        self,
        d: Definition,
        lanes_dim: int,
        widths: Sequence[int],
        first_lanes: int,
        unrolled: tuple[int, ...],
        extents: Sequence[float],
        code: int,
    ) -> Inner:
        """How much one iteration computes: vectors, rows, or blocks of both, as far as the code is not too long."""
        plain = tuple((n, n, 1) for n in dict.fromkeys((first_lanes, *widths)))
        if lanes_dim >= len(d.dims) or d.order == "sequential" or not is_direct(d):
            return Inner(lanes_dim, None, unrolled, plain)
        default = block_dim(d, lanes_dim, unrolled)
        rows = [k for k in range(len(d.dims)) if k not in (lanes_dim, *unrolled) and extents[k] >= 2 * max(ROWS)]
        rows_dim = default if default is not None else rows[-1] if rows else None
        blocks = (
            BLOCK_SIZES if is_associative(d) and d.rdims else [(r, v) for r in ROWS for v in VECTORS if 1 in (r, v)]
        )
        copies = max(math.prod(extents[k] for k in unrolled), 1)  # there may be no elements
        most = min(UNROLLED_OPERATIONS / code, MAX_UNROLL / copies)
        found = [(n, v * n, r) for n in widths for r, v in blocks if _fits(r, v, n, rows_dim, extents[lanes_dim], most)]
        found += [
            (first_lanes, first_lanes, r)
            for r, v in blocks
            if v == 1 and first_lanes not in widths and _fits(r, 1, first_lanes, rows_dim, extents[lanes_dim], most)
        ]
        block_rows, vectors = block_size(d, lanes_dim, widths[0], self.target)
        is_blocked = default is not None and vectors * block_rows * copies <= MAX_UNROLL
        first = (widths[0], vectors * widths[0], block_rows) if is_blocked else plain[0]
        return Inner(lanes_dim, rows_dim, unrolled, tuple(dict.fromkeys([first, *plain[:1], *found])))

    def _tiles(self, d: Definition, order: Sequence[int], inner: Inner, extents: Sequence[float]) -> Tiles | None:
        """Tiles of the two innermost loops over big pure dimensions, side by side."""
        big = [k for k in order if k < len(d.dims) and extents[k] > MIN_TILED][-2:]
        if len(big) < 2 or inner.lanes_dim not in big or d.order == "sequential" or not is_direct(d):
            return None
        (rows,) = (k for k in big if k != inner.lanes_dim)
        fits = self.tiles[(self.tiles < (extents[rows], extents[inner.lanes_dim])).all(1)]
        if not len(fits):
            return None
        return Tiles(tuple(big), fits if big[0] == rows else fits[:, ::-1])

    def _parallel(
        self, s: Stage, d: Definition, order: Sequence[int], inner: Inner, extents: Sequence[float]
    ) -> Iterator[int]:
        """How many of the outermost loops are parallel: as many as give each core something to do, or none.

        Of a histogram without any, that over what is counted may be: tasks count atomically then.
        """
        iterations, count = 1.0, 0
        for k in order:
            if k >= len(d.dims):
                break
            iterations *= max(extents[k] // (inner.options[0][0] if k == inner.lanes_dim else 1), 1.0)
            count += 1
            if iterations >= MIN_ITERATIONS * self.cores:
                break
        yield count
        if count and np.prod(extents) < SMALL_TASK:
            yield 0
        if not count and order and d.rdims and is_atomic(s, d) and np.prod(extents) >= SMALL_TASK:
            yield 1


@functools.lru_cache(maxsize=1024)
def native_widths(s: Stage, d: Definition, target: Target, lanes_dim: int) -> tuple[int, ...]:
    """The lanes of a native vector of the widest type in use, or of the narrowest one (Adams 2019, section 3.2)."""
    wide = vector_lanes(s, d, target, lanes_dim)
    sizes = [e.dtype.itemsize for e in walk(d.value) if e.dtype.kind != "b" and not _is_index(e)]
    narrow = filled_lanes(d, lanes_dim, max(target.vector_bytes // min([*sizes, s.dtype.itemsize]), 1))
    return (wide, narrow) if narrow > wide else (wide,)


def _is_index(e: Expr) -> bool:
    """Is an expression the arithmetic of indices?"""
    return isinstance(e, Index) or any(isinstance(a, Index) for a in e.args)


def _fits(rows: int, vectors: int, lanes: int, rows_dim: int | None, extent: float, most: float) -> bool:
    """Is a block neither larger than the dimension, nor its code too long?"""
    if rows * vectors == 1:
        return True
    return (rows_dim is not None or rows == 1) and vectors * lanes <= extent and rows * vectors <= most


def _orders(d: Definition, inner: Inner, extents: Sequence[float], at_root: bool) -> Iterator[list[int]]:
    """The loops that run, outermost first: as the default schedule has them, or another big dimension outermost."""
    first = loops_in_order(d, inner.lanes_dim, list(inner.unrolled))
    yield first
    blocked = any(r > 1 for *_, r in inner.options) and bool(d.rdims)
    pure = [k for k in first if k < len(d.dims) and (k != inner.lanes_dim or blocked)]
    others = sorted(pure[1:], key=lambda k: -extents[k])
    if at_root and others and pure[0] == first[0]:
        yield [others[0], *(k for k in first if k != others[0])]


def _steps(
    d: Definition, order: Sequence[int], inner: Inner, tiles: Tiles | None, parallel: int, extents: Sequence[float]
) -> tuple[list[Step], Sizes]:
    """The loops of a template, and the choices for their sizes.

    Columns: lanes, elements along the lanes, rows, tiles, and unrolled iterations of a reduction.
    """
    tiled = () if tiles is None else tiles.dims
    choices = np.array([(*x, *(_step(k, inner, x) for k in tiled)) for x in inner.options], np.int64)
    vector: list[Step] = [] if inner.lanes_dim is None else [(inner.lanes_dim, "vector", -1)]
    has_one_block = inner.rows_dim is None and len(inner.options) == 1
    if tiles is None and (has_one_block or all(v == n and r == 1 for n, v, r in inner.options)):
        steps: list[Step] = []
        for n, k in enumerate(order):
            steps.append((k, "parallel" if n < parallel else "serial", None))
            steps += vector if k == inner.lanes_dim else []
    else:
        split = split_dim(d, order, inner, extents)
        steps = [*_block_steps(len(d.dims), order, inner, tiled, split, parallel), *vector]
        if tiles is not None:
            choices = np.concatenate([choices, *(_tiled(x, tiles.sizes) for x in choices)])
        if split is not None:
            choices = np.concatenate(
                [np.concatenate([choices, np.full((len(choices), 1), n, np.int64)], 1) for n in REDUCTION_UNROLL]
            )
    steps += [(k, "unroll", None) for k in inner.unrolled]
    return steps, choices


def _block_steps(
    pure: int, order: Sequence[int], inner: Inner, tiled: Sequence[int], split: int | None, parallel: int
) -> Iterator[Step]:
    """The loops of a template with unrolled blocks, inside tiles; sizes below 0 are columns of the choices, from -1 on.

    Args:
        pure: how many dimensions are.
        split: see `split_dim`.
    """
    reductions = [k for k in order if k >= pure]
    yield from ((k, "parallel" if n < parallel else "serial", None) for n, k in enumerate(k for k in order if k < pure))
    yield from ((k, "serial", -4 - n) for n, k in enumerate(tiled))
    yield from ((k, "serial", None) for k in reductions)
    if split is not None:
        yield split, "unroll", -4 - len(tiled)
    if inner.rows_dim is not None:
        yield inner.rows_dim, "unroll", -3
    if inner.lanes_dim is not None and inner.lanes_dim not in reductions:
        yield inner.lanes_dim, "unroll", -2


def split_dim(d: Definition, order: Sequence[int], inner: Inner, extents: Sequence[float]) -> int | None:
    """The innermost reduction dimension, where it is long and the lanes do not run along it: it may be unrolled."""
    last = next((k for k in reversed(order) if k >= len(d.dims)), None)
    if last is None or last == inner.lanes_dim or last == inner.rows_dim or extents[last] <= MIN_TILED:
        return None
    return last if is_associative(d) and is_direct(d) else None


def _tiled(plain: Sizes, tiles: Sizes) -> Sizes:
    """The choices with tiles around the innermost loops: multiples of what `plain`, the choice without tiles, has."""
    found = tiles[(tiles % plain[3:] == 0).all(1) & (tiles != plain[3:]).any(1)]
    return np.concatenate([np.broadcast_to(plain[:3], (len(found), 3)), found], 1)


def _step(k: int, inner: Inner, option: tuple[int, int, int]) -> int:
    """How much of a dimension one iteration of the innermost loops computes."""
    return option[1] if k == inner.lanes_dim else option[2] if k == inner.rows_dim else 1


@functools.lru_cache(maxsize=256)
def product_of(options: tuple[tuple[int, ...], ...]) -> Sizes:
    """Every combination of some sizes; memoised, so that equal arrays are identical."""
    found = np.array([*itertools.product(*options)], np.int64)
    found.flags.writeable = False
    return found
