"""Default schedules on CUDA.

Every stage is computed at the root in tiles, one block of threads each, so that neighbouring threads write neighbouring
elements, unless it is cheap to recompute in the blocks of its reader: then it is computed there, in shared memory. A
reduction along rows has a block for each result. Stages that cannot run in threads run in one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hjit.sched.default.cuda_fusion import Tiled, members_of
from hjit.sched.default.schedules import loads_of_rows
from hjit.sched.default.thresholds import (
    BLOCK,
    FEW_ELEMENTS,
    FEW_PLANES,
    FEW_RESULTS,
    LONG_REDUCTION,
    MAX_ACCUMULATOR_REGISTERS,
    MAX_SHARED_BYTES,
    MIN_STENCIL,
    PRODUCT_STEP,
    PRODUCT_TILE,
    PRODUCT_UNROLL,
    REGISTER_TILE,
    SCAN_BLOCK,
    STENCIL_LOADS_LEFT,
    STENCIL_ROWS,
    STEPS_OF_SUM,
    STRIP_BYTES,
    THREAD_BYTES,
    THREAD_COLUMNS,
    TILE_COLUMNS,
    TRANSPOSE_BLOCK,
    UPDATES,
)
from hjit.sched.language.build import Step, nest, stored
from hjit.sched.language.definitions import is_associative, is_atomic, is_direct
from hjit.sched.language.groups import groups
from hjit.sched.language.limits import WARP
from hjit.sched.language.memory import memory_order
from hjit.sched.language.tree import Loop, Node, Root, Store
from hjit.trace.ir.analysis.scans import scan_of
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import Dim, Poly
from hjit.trace.passes.cuda.block_reductions import contiguity, runs_along_rows


def cuda_schedule(graph: Graph) -> Root:
    """The default schedule of a canonical Graph on a GPU; it is always legal."""
    tiled = {s.name: tuple(_tiled(graph, s, group) for group in groups(s)) for s in graph.stages}
    members = members_of(graph, tiled)
    inside = {name for x in members.values() for name in x.names}
    roots: list[Node] = []
    for s in graph.stages:
        if s.name in inside:
            continue
        found = [_nest(s, x) for x in tiled[s.name]]
        if s.name in members:
            x = members[s.name]
            found[x.nest] = _with_members(graph, s, x.tiled, x.names)
        roots.append(Store(s.name, tuple(found)))
    return Root(tuple(roots))


def cuda_root_schedule(graph: Graph) -> Root:
    """As `cuda_schedule`, with every stage at the root."""
    nests = CudaNests(graph)
    return Root(tuple(Store(name, nests[name]) for name in nests))


class CudaNests(Mapping[str, tuple[Node, ...]]):
    """The nests of every stage of a Graph at the root, one for each group of definitions; built when asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __getitem__(self, stage: str) -> tuple[Node, ...]:
        s = self.graph.by_name[stage]
        return tuple(_nest(s, _tiled(self.graph, s, group)) for group in groups(s))

    def __iter__(self) -> Iterator[str]:
        return iter(self.graph.by_name)

    def __len__(self) -> int:
        return len(self.graph.by_name)


def _nest(s: Stage, x: Tiled) -> Node:
    blocks: list[Step] = [(k, "gpu_block", None) for k in x.blocks]
    return nest(s.name, x.group, [*blocks, *x.inner])


# -- loops of one stage


def _tiled(graph: Graph, s: Stage, group: tuple[int, ...]) -> Tiled:
    d = s.definitions[group[-1]]
    for rule in RULES:
        found = rule(graph, s, d, group)
        if found is not None:
            return found
    is_long = _has_long_loop(d)
    own = ThreadTile(_rows(d), _columns(s, d), _planes(d))
    x = _in_tiles(d, group, _pure(d), _serial(d), SCAN_BLOCK if is_long else BLOCK, own)
    return _in_strips(s, d, x) if is_long and _walks_rows(graph, s, d) else x


def _pure(d: Definition) -> list[int]:
    return list(range(len(d.dims)))


def _serial(d: Definition) -> list[Step]:
    """The serial loops of a reduction."""
    return [(k, "serial", None) for k in range(len(d.dims), len(d.extents))]


def _has_long_loop(d: Definition) -> bool:
    """Does a reduction have a long loop?"""
    return any(not n.is_const or n.const >= LONG_REDUCTION for n in d.rdims)


def _in_strips(s: Stage, d: Definition, x: Tiled) -> Tiled:
    """Threads that walk along rows, all of them through one strip after the other: its elements are read and written
    through shared memory, see `hjit.kernels.lower.passes.staging.coalesce_accesses`."""
    (row,) = range(len(d.dims), len(d.extents))
    size = STRIP_BYTES // max(s.dtype.itemsize, *(y.dtype.itemsize for y in d.loads))
    inner = x.inner[:-1]
    return replace(x, inner=((row, "serial", None), *inner, (row, "serial", size)))


def _walks_rows(graph: Graph, s: Stage, d: Definition) -> bool:
    """Is it a recurrence along the rows of an array, so that neighbouring threads touch elements a row apart?"""
    if d.order != "sequential" or d.is_scatter or len(d.rdims) != 1:
        return False
    row, threads = len(d.dims), _long_dims(d)
    accesses = [(s.name, d.target), *((x.source, x.index) for x in d.loads)]
    found = [_ranks(graph, name, index, (row, *threads)) for name, index in accesses]
    return any(row in ranks and max(ranks, key=ranks.__getitem__) == row and len(ranks) > 1 for ranks in found)


def _reads_across(graph: Graph, d: Definition) -> bool:
    """Are elements that are a row apart in an array adjacent in the result?"""
    dims = _long_dims(d)
    found = [_ranks(graph, x.source, x.index, dims) for x in d.loads]
    return bool(dims) and any(dims[-1] in ranks and max(ranks, key=ranks.__getitem__) != dims[-1] for ranks in found)


def _long_dims(d: Definition) -> list[int]:
    """The pure dimensions that are not short."""
    return [k for k, n in enumerate(d.dims) if not n.is_const or n.const > FEW_ELEMENTS]


def _ranks(graph: Graph, array: str, index: Sequence[Poly], dims: Sequence[int]) -> dict[int, int]:
    """Dimensions that an access moves along -> the axis in memory, the fastest one last; none where it is not known."""
    order = memory_order(graph, array) or ()
    found = {k: [n for n, axis in enumerate(order) if index[axis].mentions(Dim(k))] for k in dims}
    return {k: ranks[-1] for k, ranks in found.items() if ranks}


@dataclass(frozen=True, slots=True)
class ThreadTile:
    """The elements of one thread: so many rows and columns, and all of the first few dimensions, `planes`."""

    rows: int = 1
    columns: int = 1
    planes: int = 0

    def along(self, dims: Sequence[int], has_columns: bool) -> dict[int, int]:
        """Dimensions -> the number of elements of a thread along each.

        Args:
            dims: that are tiled.
            has_columns: is the last one that of the columns?
        """
        found = dict.fromkeys(dims, 1)
        if dims and has_columns:
            found[dims[-1]] = self.columns
        if len(dims) > 1:
            found[dims[-2]] = self.rows
        return found


def _in_tiles(
    d: Definition,
    group: tuple[int, ...],
    dims: Sequence[int],
    inside: Sequence[Step],
    threads: int,
    own: ThreadTile = ThreadTile(),
) -> Tiled:
    """Blocks of threads over tiles of some dimensions.

    Args:
        inside: the loops of each element.
        own: what a thread computes.
    """
    planes, (dims, short) = dims[: own.planes], _split_short(d, dims[own.planes :])
    count = math.prod(max(d.extents[k].const, 1) for k in short)
    copies = own.along(dims, has_columns=not short)
    tile = {k: n * copies[k] for k, n in _block_shape(d, dims, max(threads // count, 1)).items()}
    steps: list[Step] = [
        *((k, "gpu_thread", n) for k, n in tile.items() if n > 1),
        *((k, "gpu_thread", None) for k in short),
        *((k, "unroll", n) for k, n in copies.items() if n > 1),
        *((k, "unroll", None) for k in planes),
        *inside,
    ]
    return Tiled(group, tuple(dims), tuple(steps), tuple(tile.get(k) for k in range(len(d.dims))))


def _split_short(d: Definition, dims: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """The last dimensions, of a few elements together, and before them the others."""
    count, cut = 1, len(dims)
    while cut and d.extents[dims[cut - 1]].is_const:
        count *= max(d.extents[dims[cut - 1]].const, 1)
        if count > FEW_ELEMENTS:
            break
        cut -= 1
    return dims[:cut], dims[cut:]


def _block_shape(d: Definition, dims: Sequence[int], threads: int) -> dict[int, int]:
    """The number of threads of a block along each dimension, the last one first."""
    found: dict[int, int] = {}
    for k in reversed(dims):
        most = threads if k == dims[0] else min(threads, TILE_COLUMNS)
        found[k] = min(most, max(d.extents[k].const, 1)) if d.extents[k].is_const else most
        threads //= found[k]
    return {k: found[k] for k in dims}


def _scattered(graph: Graph, s: Stage, d: Definition, group: tuple[int, ...]) -> Tiled | None:
    """Atomic updates: each block does many of them, so that merging its copy into the result is cheap."""
    if not is_atomic(s, d) or s.dtype.itemsize < 4 or (d.dims and not _has_long_loop(d)):
        return None  # there are no atomics of narrower words
    x = _in_tiles(d, group, range(len(d.dims), len(d.extents)), (), BLOCK)
    last = x.blocks[-1:]
    sizes = {k: n for k, kind, n, *_ in x.inner if kind == "gpu_thread"}
    outer: list[Step] = [(k, "serial", (sizes.get(k) or 1) * UPDATES) for k in last]
    return Tiled(group, (*range(len(d.dims)), *x.blocks), (*outer, *x.inner))


def _scanned(graph: Graph, s: Stage, d: Definition, group: tuple[int, ...]) -> Tiled | None:
    """A long scan: along rows by the threads of a block together, along columns by one thread for each part."""
    scan = scan_of(s, d) if _has_long_loop(d) and group == group[-1:] else None
    if scan is None:
        return None
    last = len(d.extents) - 1
    if runs_along_rows(d, s.name):
        return Tiled(
            group, (*_pure(d), last) if scan.restart else (*_pure(d),), ((last, "gpu_thread", scan.restart or None),)
        )
    if not scan.restart:
        return None
    x = _in_tiles(d, group, _pure(d), [(last, "serial", scan.restart)], SCAN_BLOCK)
    return Tiled(group, (last, *x.blocks), x.inner)


def _in_one_thread(graph: Graph, s: Stage, d: Definition, group: tuple[int, ...]) -> Tiled | None:
    """Stores to computed indices, of which the last one must win."""
    if not d.is_scatter or d.order != "pure":
        return None
    return Tiled(group, (), (*((k, "serial", None) for k in _pure(d)), *_serial(d)))


def _transposed(graph: Graph, s: Stage, d: Definition, group: tuple[int, ...]) -> Tiled | None:
    """Tiles in which threads read and write neighbouring elements."""
    if d.order != "pure" or not _reads_across(graph, d):
        return None
    return _in_tiles(d, group, _pure(d), _serial(d), TRANSPOSE_BLOCK)


def _rows(d: Definition) -> int:
    """The number of rows of a stencil that a thread computes, so that it loads shared elements once."""
    if d.order != "pure" or d.rdims or len(d.dims) < 2 or len(d.value.loads) < MIN_STENCIL:
        return 1
    k = len(d.dims) - 2
    if d.dims[-1].is_const and d.dims[-1].const <= FEW_ELEMENTS:
        k -= 1
    if k < 0 or d.dims[k].is_const:
        return 1
    found = loads_of_rows(d.value.loads, k, STENCIL_ROWS)
    return STENCIL_ROWS if found <= STENCIL_LOADS_LEFT * STENCIL_ROWS * len(d.value.loads) else 1


def _planes(d: Definition) -> int:
    """The first dimensions that are a few planes, colours for instance, of which a thread computes all: it reads once
    what they share, and blocks compute once what is computed for them."""
    if d.order != "pure" or d.rdims or d.is_scatter:
        return 0
    count, number = 1, 0
    for n in d.dims[:-2]:
        count *= n.const if n.is_const else FEW_PLANES + 1
        if not 0 < count <= FEW_PLANES:
            break
        number += 1
    return number


def _columns(s: Stage, d: Definition) -> int:
    """The number of adjacent elements that a thread computes, for types that are narrower than its widest load."""
    if d.order != "pure" or d.is_scatter or len(d.loads) >= MIN_STENCIL:
        return 1
    return min(max(THREAD_BYTES // max(s.dtype.itemsize, *(x.dtype.itemsize for x in d.loads), 1), 1), THREAD_COLUMNS)


def _operands_in_tiles(graph: Graph, s: Stage, d: Definition, group: tuple[int, ...]) -> Tiled | None:
    """A sum of products, or the like, of two operands that are read by many results each, as in a product of matrices:
    blocks of rows and columns, a square of them for each thread, and the reduction in tiles, for which the operands go
    through shared memory (`hjit.kernels.lower.passes.staging.stage_operands`)."""
    if not _has_long_loop(d):
        return None
    long = [k for k, n in enumerate(d.dims) if not n.is_const or n.const >= 2 * REGISTER_TILE]
    if len(long) < 2 or long[-1] != len(d.dims) - 1 or not (is_associative(d) and is_direct(d)):
        return None
    row, column = long[-2:]
    last = len(d.extents) - 1
    reads = [{k for k in (row, column, last) if any(p.mentions(Dim(k)) for p in x.index)} for x in d.loads]
    if {row, last} not in reads or {column, last} not in reads:
        return None
    sizes = {k: _power_of_two(d.dims[k], PRODUCT_TILE) for k in (row, column)}
    side, step = _side_by_registers(s), _terms_by_shared_bytes(d, sum(sizes.values()))
    if step == 0 or math.prod(n // side for n in sizes.values()) < WARP:
        return None
    threads: list[Step] = [(k, "gpu_thread", n, "shift_inwards") for k, n in sizes.items()]
    sums: list[Step] = [(k, "serial", None) for k in range(len(d.dims), len(d.extents))]
    tiles: list[Step] = [
        (last, "serial", step * STEPS_OF_SUM),
        (last, "serial", step),
        (last, "unroll", min(PRODUCT_UNROLL, step)),
    ]
    squares: list[Step] = [(k, "unroll", side) for k in sizes] if side > 1 else []
    return Tiled(group, tuple(range(len(d.dims))), (*threads, *sums, *tiles, *squares), is_alone=True)


def _side_by_registers(s: Stage) -> int:
    """The rows and columns of a thread, for which it has registers enough."""
    side = REGISTER_TILE
    while side > 1 and side**2 * _accumulator_words(s) > MAX_ACCUMULATOR_REGISTERS:
        side //= 2
    return side


def _terms_by_shared_bytes(d: Definition, elements: int) -> int:
    """The terms for which operands of so many elements each fit into shared memory; 0: not even two."""
    step, itemsize = PRODUCT_STEP, max(x.dtype.itemsize for x in d.loads)
    while step > 1 and step * elements * itemsize > MAX_SHARED_BYTES:
        step //= 2
    return step if step > 1 else 0


def _accumulator_words(s: Stage) -> int:
    """The registers of one sum: two for a float in double precision, or twice as many; otherwise one."""
    words = -(-s.dtype.itemsize // 4)
    return 2 + 2 * words + 2 * (words == 2) if s.dtype.kind == "f" else words


def _power_of_two(n: Poly, most: int) -> int:
    """The greatest one up to a length, and `most`."""
    return most if not n.is_const else min(most, 1 << n.const.bit_length() - 1)


def _has_many_terms(d: Definition) -> bool:
    """Has each result terms enough for the threads of a block?"""
    known = [n.const if n.is_const else LONG_REDUCTION for n in d.rdims]
    return math.prod(known) >= LONG_REDUCTION


def _along_rows(graph: Graph, s: Stage, d: Definition, group: tuple[int, ...]) -> Tiled | None:
    """A block for each result, or for a few adjacent ones; consecutive threads read adjacent elements."""
    is_worth_it = _has_many_terms(d) or not d.dims
    if not (is_associative(d) and is_direct(d) and is_worth_it and runs_along_rows(d, s.name)):
        return None
    pure = _pure(d)
    together: list[Step] = []
    count = 1
    while pure and d.extents[pure[-1]].is_const and count * d.extents[pure[-1]].const <= FEW_RESULTS:
        count *= max(d.extents[pure[-1]].const, 1)
        together.insert(0, (pure.pop(), "unroll", None))
    along = contiguity(d, s.name)
    order = sorted(range(len(d.dims), len(d.extents)), key=lambda k: (along.get(k, -1), k))
    return Tiled(group, tuple(pure), (*((k, "gpu_thread", None) for k in order), *together))


Rule = Callable[[Graph, Stage, Definition, tuple[int, ...]], Tiled | None]
RULES: tuple[Rule, ...] = (  # the first that knows loops for a definition
    _scattered,
    _operands_in_tiles,
    _along_rows,
    _scanned,
    _in_one_thread,
    _transposed,
)


# -- stages inside the blocks of others


def _with_members(graph: Graph, s: Stage, x: Tiled, names: Sequence[str]) -> Node:
    """A nest whose blocks first compute other stages for themselves."""
    inner = nest(s.name, x.group, x.inner)
    own = [nest_in_block(graph.stage(name), group) for name in names for group in groups(graph.stage(name))]
    children = stored(names, (*own, inner))
    for k in reversed(x.blocks):
        children = (Loop(s.name, k, "gpu_block", None, children),)
    return children[0]


def nest_in_block(s: Stage, group: tuple[int, ...]) -> Node:
    """The loops of a stage that a block computes cooperatively."""
    d = s.definitions[group[-1]]
    return nest(
        s.name, group, [(k, "gpu_thread" if k < len(d.dims) else "serial", None) for k in range(len(d.extents))]
    )


def nest_in_thread(s: Stage, group: tuple[int, ...]) -> Node:
    """The loops of a stage that each thread computes for itself."""
    return nest(s.name, group, [(k, "serial", None) for k in range(len(s.definitions[group[-1]].extents))])
