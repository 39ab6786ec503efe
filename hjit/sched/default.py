"""The default schedule: every stage at root, rows in parallel, the innermost dimension in explicit vectors.

Point-wise chains are already fused in the canonical Graph. What is decided here is, for each definition, which
dimension the vector lanes run along, which small dimensions are unrolled, and what runs in parallel.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hjit.sched.boxes import Reads, single_dim
from hjit.sched.build import Step, nest, preceded, serial_loops, stored, whole_loops
from hjit.sched.check import are_apart, free_from, is_direct, starts_reduction
from hjit.sched.epilogues import block_of, products_of, with_products
from hjit.sched.limits import MAX_UNROLL
from hjit.sched.memory import Strides
from hjit.sched.rows import bytes_of_column, group_of
from hjit.sched.tables import registers
from hjit.sched.tree import Compute, Loop, Node, Root, Store, computes, dims_of
from hjit.sched.tree import walk as walk_tree
from hjit.trace.costs import cost
from hjit.trace.graph import Definition, Expr, Graph, Load, Stage, walk
from hjit.trace.partition import STEPS, next_to, write_apart
from hjit.trace.poly import ONE, ZERO, Dim, Poly, Value, poly
from hjit.trace.ranges import Ranges

UNROLL_CODE = 600  # operations that unrolled code of one body may have
BLOCK = (6, 4)  # rows and vectors of accumulators that a sum of products has in registers, where there are 32
SMALL_BLOCK = (5, 2)  # where there are 16, and what memory broadcasts takes another one
LINE = 64  # bytes of a line of memory, which a turn of a vector loop computes at least
GATHER_COST = 12  # additions for which lanes are worth gathering
TURNED_ROWS, MAX_TURNED_LANES = 32, 16  # of a tile that is read across: what a line of memory brings is used before it is lost
STRIP_VECTORS = 16  # of a strip of columns, which a scan runs down: whole lines, many of a page
ROWS_TOGETHER = 4  # of a stencil
MANY_LOADS, LINES_TOGETHER = 8, 0.6  # what it must load to gain from that, and which part of its rows' loads must be left
NEAR_BYTES = 1 << 19  # of the buffers of a group, which are to stay in a core's second cache
STRIPS = (128, 512)  # columns of a strip, at least and at most, that a group is computed in where its rows would have more
SCAN_ROWS = 4  # of a scan along its rows, that run together
INTERLEAVED = 2  # parts of a histogram that one task counts at once
FEW_PLANES = 4  # that are unrolled outside the lanes, if they are not too much code
UNROLL_REDUCTION = 64  # points of a constant reduction domain that are unrolled


@dataclass(frozen=True, slots=True)
class Target:
    """What a schedule must know of the machine.

    Attributes:
        vector_bytes: width of a native vector register.
        picked: bytes of the elements of which small tables are looked up in registers.
    """

    vector_bytes: int = 64
    picked: frozenset[int] = frozenset()

    @property
    def block(self) -> tuple[int, int]:
        """Rows and vectors of accumulators: AVX-512 has 32 registers, and products that take what memory broadcasts."""
        return BLOCK if self.vector_bytes >= 64 else SMALL_BLOCK


class RootNests(Mapping[str, tuple[Node, ...]]):
    """For each stage of a Graph the nests that it has where it is computed at the root, made when they are asked for."""

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
    """Every stage by itself, at the root: legal for every Graph."""
    return Root(tuple(Store(name, nests) for name, nests in RootNests(graph, target).items()))


def default_schedule(graph: Graph, target: Target, usual: Mapping[str, tuple[Node, ...]] | None = None) -> Root:
    """The default schedule of a canonical Graph; `usual`: its `RootNests`, where there are some."""
    nests = dict(RootNests(graph, target) if usual is None else usual)
    packed = {s.name: copies for s in graph.stages if (copies := _packed(graph, s, nests))}
    for name, copies in packed.items():
        nests[name] = (_with_copies(nests, nests[name][0], copies),)
    taken = {*packed, *(c for copies in packed.values() for c in copies)}
    inside = _attached(graph, nests, taken)
    products = products_of(graph, nests, taken.union(inside, *(x.members for x in inside.values())))
    for name, members in products.items():
        nests[name] = (with_products(graph.stage(name), nests, members),)
    placed = {m for members in (*(x.members for x in inside.values()), *packed.values(), *products.values()) for m in members}
    roots: list[Node] = []
    for s in graph.stages:
        if s.name in placed:
            continue
        found = list(nests[s.name])
        if s.name in inside:
            found[inside[s.name].nest] = _group(graph, nests, s, inside[s.name], target)
        elif s.name not in packed and s.name not in products:
            found = [*_several(s, nests[s.name], target)]
        roots.append(Store(s.name, tuple(found)))
    return Root(tuple(roots))


@dataclass(frozen=True, slots=True)
class _Group:
    """A nest of a stage that others are computed in, row by row.

    Attributes:
        nest: its number.
        members: the others, in the order of the Graph.
        step: rows that one turn computes: of a tile that is read across, or 1.
        strip: columns that are computed before others are; None: all.
    """

    nest: int
    members: tuple[str, ...]
    step: int
    strip: int | None


def _attached(graph: Graph, nests: Mapping[str, Sequence[Node]], taken: set[str]) -> dict[str, _Group]:
    """The groups by their heads, without the stages that are `taken`."""
    consumers = graph.consumers()
    reads = Reads(graph)
    found: dict[str, _Group] = {}
    for s in reversed(graph.stages):
        rows = _rows(graph, s, nests[s.name])
        if rows is not None and s.name not in taken:
            k, group, dim, step = rows

            def may_join(x: Stage, axis: int, step: int = step) -> bool:
                return x.name not in graph.outputs and len(x.shape) > 0 and lanes_across(x, nests[x.name], axis) <= step

            members = group_of(reads, s, group, dim, taken, may_join, consumers, step)
            if members:
                along = None if step > 1 else _lanes_dim(nests[s.name][k])
                column = None if along is None or along == dim else bytes_of_column(reads, s, group, (dim, along), members)
                found[s.name] = _Group(k, members, step, _strip(column))
                taken.update(members)
    return found


def _vectors(node: Node) -> Loop | None:
    """The loop of a nest that vectors run along."""
    return next((x for x in walk_tree(node) if isinstance(x, Loop) and x.kind == "vector"), None)


def lanes_across(s: Stage, nests: Sequence[Node], axis: int) -> int:
    """How many rows along an axis a scan computes at once, as lanes of vectors."""
    for k, d in enumerate(s.definitions):
        vectors = _vectors(next(x for x in nests if any(k in c.definitions for c in computes(x))))
        if not is_direct(d) and vectors is not None and vectors.dim == single_dim(d.target[axis], len(d.dims)):
            return vectors.size or 1
    return 1


def _lanes_dim(node: Node) -> int | None:
    """The dimension that the vectors of a nest run along."""
    vectors = _vectors(node)
    return vectors.dim if vectors is not None and isinstance(vectors.dim, int) else None


def _strip(column: int | None) -> int | None:
    """How many columns of some bytes each are near, but a few vectors at least; None where it is many, or not known."""
    least, most = STRIPS
    if column is None or NEAR_BYTES // column > most:
        return None
    return max(1 << (NEAR_BYTES // column).bit_length() - 1, least)


def _with_rows_together(s: Stage, node: Node, target: Target) -> Node:
    """A stencil's nest with rows that run together, where they load much the same: what several of them read is loaded once.

    Not of narrow types, whose rows are few vectors: there more lines of memory at once cost more than loads.
    """
    d = s.definitions[0]
    vectors = _vectors(node)
    if d.order != "pure" or vectors is None or not isinstance(vectors.dim, int) or vector_lanes(s, d, target, vectors.dim) > target.vector_bytes // 4:
        return node
    loads = d.value.loads
    if len(loads) < MANY_LOADS or ROWS_TOGETHER * sum(1 for _ in walk(d.value)) > UNROLL_CODE:
        return node
    for k in reversed(range(len(d.dims) - 1)):
        if not d.dims[k].is_const and _lines_of(loads, k, ROWS_TOGETHER) <= LINES_TOGETHER * ROWS_TOGETHER * len(loads):
            return _unrolled_inside(node, k)
    return node


def _group(graph: Graph, nests: dict[str, tuple[Node, ...]], s: Stage, group: _Group, target: Target) -> Node:
    """A nest with its members; several rows run together in all of it where they do in one of its stencils or scans."""
    head, members = nests[s.name][group.nest], group.members
    assert isinstance(head, Loop)
    if group.step > 1:  # in tiles: a row of them is computed at once
        return _with_members(nests, replace(head, children=tuple(map(serial_loops, head.children))), members)
    several = {m: _several(graph.stage(m), nests[m], target) for m in members}
    (rows,) = _several(s, (head,), target)
    together = any(x is not y for m in members for x, y in zip(several[m], nests[m], strict=True))
    if rows is head and (together or any(map(_has_scan_rows, (graph.stage(m) for m in members), (nests[m] for m in members)))):
        rows = replace(head, children=(Loop(s.name, head.dim, "serial", ROWS_TOGETHER, head.children),))
    nests = {**nests, **several} if rows is not head else nests
    dim = _lanes_dim(rows)
    if group.strip is not None and dim is not None:
        strip = _of_size(rows, dim, group.strip)
        if strip != rows:
            return Loop(s.name, dim, "parallel", None, (_with_members(nests, strip, members),))
    return _with_members(nests, rows, members)


def _has_scan_rows(s: Stage, nests: Sequence[Node]) -> bool:
    """Is a stage a scan of which several rows go on together?"""
    scans = [x for x in nests if any(not is_direct(s.definitions[n]) for c in computes(x) for n in c.definitions)]
    return any(isinstance(x, Loop) and x.kind == "unroll" and x.size == SCAN_ROWS for node in scans for x in walk_tree(node))


def _of_size(node: Node, dim: int, size: int) -> Node:
    """The nest with a size for its serial loop over a dimension that has none."""
    if isinstance(node, Loop) and node.kind == "serial" and node.dim == dim and node.size is None:
        return replace(node, size=size)
    return node if isinstance(node, Compute) else replace(node, children=tuple(_of_size(c, dim, size) for c in node.children))


def _several(s: Stage, nodes: tuple[Node, ...], target: Target) -> tuple[Node, ...]:
    """The nests of a stage with rows that run together, where it is a stencil."""
    return tuple(_with_rows_together(s, n, target) for n in nodes) if len(s.definitions) == 1 else nodes


def _lines_of(loads: Collection[Load], dim: int, rows: int) -> int:
    """How many different loads some rows along a dimension have, where they run together."""
    lines: dict[object, set[int]] = {}
    for n, x in enumerate(loads):
        index = [p.unbounded for p in x.index]
        moving = [p for p in index if p.mentions(Dim(dim))]
        if len(moving) == 1 and moving[0].coefficient(Dim(dim)) == ONE:
            key: object = (x.source, *(p - p.const if p is moving[0] else p for p in index))
            lines.setdefault(key, set()).update(moving[0].const + row for row in range(rows))
        else:
            lines[n] = set(range(rows if moving else 1))
    return sum(map(len, lines.values()))


def _unrolled_inside(node: Node, dim: int) -> Node:
    """The nest with some turns of the loop over a dimension written out."""
    if not isinstance(node, Loop):
        return node
    if node.dim == dim and node.kind in ("parallel", "serial"):
        return replace(node, children=(Loop(node.stage, dim, "unroll", ROWS_TOGETHER, node.children),))
    return replace(node, children=tuple(_unrolled_inside(c, dim) for c in node.children))


def _packed(graph: Graph, s: Stage, nests: Mapping[str, Sequence[Node]]) -> tuple[str, ...]:
    """Copies for this stage alone, a sum of products in blocks: each block of columns makes its part of them."""
    head = nests[s.name][0]
    if len(nests[s.name]) != 1 or not isinstance(head, Loop) or block_of(head) is None:
        return ()
    columns = Dim(dims_of(head.dim)[0])
    reads = {x.source for d in s.definitions for x in d.loads if any(p.mentions(columns) for p in x.index)}
    copies = [x for x in graph.stages if x.name in reads and isinstance(x.initial, Load) and not x.updates and x.name not in graph.outputs]
    consumers = graph.consumers() if copies else {}
    return tuple(x.name for x in copies if consumers[x.name] == [s.name])


def _with_members(nests: Mapping[str, Sequence[Node]], head: Node, members: tuple[str, ...]) -> Node:
    """A nest in whose outermost loop other stages are computed, of which it keeps what earlier turns computed."""
    assert isinstance(head, Loop)
    (node,) = stored(members, (replace(head, children=preceded(nests, members, head.children)),))
    return node


def _with_copies(nests: Mapping[str, Sequence[Node]], head: Node, copies: tuple[str, ...]) -> Node:
    """A nest that makes copies in its outermost loop."""
    assert isinstance(head, Loop)
    children = preceded(nests, copies, tuple(map(serial_loops, head.children)))
    return replace(head, children=stored(copies[::-1], children))


def _rows(graph: Graph, s: Stage, nests: Sequence[Node]) -> tuple[int, tuple[int, ...], int, int] | None:
    """The nest that reads other stages: its number, its definitions, the dimension whose turns are tasks, where there are many; rows of a turn."""
    found = groups(s)
    reading = [k for k, group in enumerate(found) if any(x != s.name and x in graph.by_name for n in group for x in s.definitions[n].sources)]
    if len(reading) != 1 or len(found) != len(nests):
        return None
    (k,) = reading
    group, node = found[k], nests[k]
    if not isinstance(node, Loop) or node.kind != "parallel" or not isinstance(node.dim, int):
        return None
    d = s.definitions[group[-1]]
    inside = [x.size for x in walk_tree(node) if isinstance(x, Loop) and x.dim == node.dim and x is not node]
    if inside not in ([], [TURNED_ROWS]) or d.extents[node.dim].is_const or len(d.extents) < 2:
        return None
    return k, group, node.dim, TURNED_ROWS if inside else 1


def groups(s: Stage) -> list[tuple[int, ...]]:
    """Definitions that one nest computes together: pieces over the same box that write next to each other, updates of parts that are apart."""
    found: list[list[int]] = []
    definitions = s.definitions
    for n, d in enumerate(definitions):
        if n == 1 and s.initial is not None and starts_reduction(s):
            found[-1].append(n)
        elif found and all(are_apart(definitions[k], d, s.name) for k in found[-1]):
            found[-1].append(n)
        elif found and _adjacent(definitions[found[-1][-1]], d, s.name) and all(write_apart(definitions[k], d) for k in found[-1]):
            found[-1].append(n)
        else:
            found.append([n])
    return [tuple(g) for g in found]


def _adjacent(a: Definition, b: Definition, name: str) -> bool:
    axis = next_to(a, b, name)
    if axis is None or a.dims != b.dims or not a.dims:
        return False
    return all(a.target[axis].coefficient(Dim(k)) in (ZERO, *map(poly, STEPS)) for k in range(len(a.dims)))


def _nest(s: Stage, group: tuple[int, ...], strides: Strides, target: Target) -> Node:
    d = s.definitions[group[-1]]
    lanes_dim, unrolled = _choose(s, [s.definitions[n] for n in group if len(s.definitions[n].extents) == len(d.extents)], strides)
    lanes = vector_lanes(s, d, target, lanes_dim)
    blocked = block_dim(d, lanes_dim, unrolled)
    if blocked is not None:
        assert lanes_dim is not None
        return _blocked(s, group, d, lanes_dim, blocked, lanes, target)
    across = crossing_dim(d, lanes_dim, unrolled, strides) if len(group) == 1 else None
    if across is not None:
        assert lanes_dim is not None
        return nest(s.name, group, turned(d, lanes_dim, across, TURNED_ROWS, min(lanes, MAX_TURNED_LANES), unrolled))
    strip = strip_dim(d, lanes_dim)
    if strip is not None:
        return nest(s.name, group, strips(d, strip, STRIP_VECTORS * lanes, lanes))
    parts = parts_dim(d, unrolled)
    if parts is not None:
        others = [k for k in range(len(d.extents)) if k != parts]
        return nest(s.name, group, [(parts, "parallel", None), *((k, "serial", None) for k in others), (parts, "unroll", INTERLEAVED)])
    steps: list[Step] = []
    lanes = turn_lanes(d, target, lanes_dim, lanes)
    for step in whole_loops(d, loops_in_order(d, lanes_dim, unrolled), lanes_dim):
        steps += [step, (lanes_dim, "vector", lanes)] if step[0] == lanes_dim is not None else [step]
    rows = scan_rows(d, lanes_dim, unrolled)
    if rows is not None:
        steps.append((rows, "unroll", SCAN_ROWS))
    return nest(s.name, group, [*steps, *((k, "unroll", None) for k in unrolled)])


def scan_rows(d: Definition, lanes_dim: int | None, unrolled: Sequence[int]) -> int | None:
    """The dimension of which a scan does several at once where it has no lanes: one goes on while another waits for what it computed before."""
    if lanes_dim is not None or d.order != "sequential" or not d.rdims or SCAN_ROWS * sum(1 for _ in walk(d.value)) > UNROLL_CODE:
        return None
    long = [k for k, n in enumerate(d.dims) if k not in unrolled and not (n.is_const and n.const < 2 * SCAN_ROWS)]
    return long[-1] if long else None


def parts_dim(d: Definition, unrolled: list[int]) -> int | None:
    """The dimension of the parts that a histogram is counted in: tasks have several, whose updates need not wait for each other."""
    if not d.is_scatter or d.order in ("pure", "sequential") or not d.dims or unrolled != [0]:
        return None
    n = d.dims[0]
    return 0 if n.is_const and n.const > INTERLEAVED and n.const % INTERLEAVED == 0 else None


def block_dim(d: Definition, lanes_dim: int | None, unrolled: list[int]) -> int | None:
    """The dimension that makes a block of accumulators with the lanes: each load depends on one of the two, as in a product of matrices."""
    if lanes_dim is None or lanes_dim >= len(d.dims) or d.order != "add" or not is_direct(d) or not d.rdims:
        return None
    if all(n.is_const and n.const < 8 for n in d.rdims) or any(k < len(d.dims) for k in unrolled):
        return None
    value = d.value
    reading = [x for x in value.loads if any(p.mentions(Dim(k)) for p in x.index for k in range(len(d.dims), len(d.extents)))]
    along = [x for x in reading if any(p.mentions(Dim(lanes_dim)) for p in x.index)]
    across = [x for x in reading if x not in along]
    for k in reversed(range(len(d.dims))):
        if k == lanes_dim or (d.dims[k].is_const and d.dims[k].const < BLOCK[0]):
            continue
        if across and all(any(p.mentions(Dim(k)) for p in x.index) for x in across) and not any(p.mentions(Dim(k)) for x in along for p in x.index):
            return k
    return None


def _blocked(s: Stage, group: tuple[int, ...], d: Definition, lanes_dim: int, rows: int, lanes: int, target: Target) -> Node:
    """A nest with a block of accumulators in registers: rows of vectors share their loads."""
    others = [k for k in range(len(d.dims)) if k not in (lanes_dim, rows)]
    outer = [*others, rows, lanes_dim] if others else [lanes_dim, rows]
    steps = whole_loops(d, outer, lanes_dim)
    steps += [(k, "serial", None) for k in range(len(d.dims), len(d.extents))]
    count, vectors = target.block
    steps += [(rows, "unroll", count), (lanes_dim, "unroll", vectors * lanes), (lanes_dim, "vector", lanes)]
    return nest(s.name, group, steps)


def crossing_dim(d: Definition, lanes_dim: int | None, unrolled: Sequence[int], strides: Strides) -> int | None:
    """The dimension along which loads are contiguous whose lanes are far apart, as in a transposed copy."""
    if lanes_dim is None or d.order != "pure" or d.rdims:
        return None
    far = [x for x in d.value.loads if _worth(strides.along(x.source, x.index, lanes_dim), store=False) < 0]
    for k in reversed(range(len(d.dims))):
        if k == lanes_dim or k in unrolled or (d.dims[k].is_const and d.dims[k].const < TURNED_ROWS):
            continue
        if any(_worth(strides.along(x.source, x.index, k), store=False) > 0 for x in far):
            return k
    return None


def turned(d: Definition, lanes_dim: int, across: int, rows: int, lanes: int, unrolled: Sequence[int]) -> list[Step]:
    """Loops in tiles: the lines of memory that the lanes of one row load are at hand for the rows that follow."""
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
    """Loops that stay, outermost first: pure dimensions, then reductions, the vector dimension where its accumulators stay in registers.

    A few planes whose code is too much to be unrolled are inside the rows: tasks are rows, and what rows of all planes read is computed once.
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
        if n.is_const and n.const < 8:
            continue
        turns = k >= len(d.dims) and not (k == len(d.extents) - 1 and k >= free_from(s, d))
        if turns and (not associative or gathered or not is_direct(d)):
            continue
        if gathered or (d.order == "sequential" and not turns and strides.along(s.name, d.target, k) != ONE):
            continue
        scores[k] = sum(_score(s, x, k, strides, own) for x, own in zip(definitions, reads, strict=True)) * 2 + (not n.is_const)
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
    if stride.is_const and abs(stride.const) <= 4:
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
        if not reduction and n.const > (16 if lanes_dim is None or k > lanes_dim else FEW_PLANES):
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

    Indices of gathers count 4 bytes, those of tables in registers nothing: a look-up takes as long for few lanes as for a whole register.
    """
    differs: dict[Expr, bool] = {}
    values = {e for e in walk(d.value) if e.dtype.kind != "b" and not _is_index(e) and (lanes_dim is None or _varies(e, Dim(lanes_dim), differs))}
    inside = {e for x in d.value.loads for p in x.index for a in p.atoms() if isinstance(a, Value) for e in walk(a.expr)}
    values -= {e for x in d.value.loads if (index := _looks_up(x, target)) is not None for e in walk(index)}
    widest = max((min(e.dtype.itemsize, 4) if e in inside else e.dtype.itemsize for e in values), default=1)
    widest = max(widest, s.dtype.itemsize)
    return max(target.vector_bytes // widest, 1)


def _looks_up(x: Load, target: Target) -> Expr | None:
    """The index of a load that looks a table up in registers."""
    values = [a.expr for p in x.index for a in p.atoms() if isinstance(a, Value)]
    found = Ranges().of(values[0]) if len(values) == 1 and x.dtype.itemsize in target.picked else None
    count = found[1] + 1 if found is not None and found[0] >= 0 else None
    return None if registers(x.dtype, count, target.vector_bytes) is None else values[0]


def turn_lanes(d: Definition, target: Target, lanes_dim: int | None, native: int) -> int:
    """Lanes of a turn: those of a line of memory, so that of short vectors there are two, and one goes on while the other waits.

    A scan has tiles of its own, and what is gathered is loaded one by one anyway.

    Args:
        native: lanes of a vector register.
    """
    n = native * max(LINE // target.vector_bytes, 1)
    is_short = lanes_dim is None or (d.extents[lanes_dim].is_const and d.extents[lanes_dim].const < n)
    is_gather = any(isinstance(a, Value) for x in d.value.loads for p in x.index for a in p.atoms())
    return native if is_short or is_gather or d.order == "sequential" else n


def _varies(e: Expr, dim: Dim, known: dict[Expr, bool]) -> bool:
    """Does an expression depend on a dimension?"""
    found = known.get(e)
    if found is None:
        found = known[e] = any(p.mentions(dim) for p in e.polys) or any(_varies(a, dim, known) for a in e.args)
    return found


def _is_index(e: object) -> bool:
    from hjit.trace.graph import Cast, Const, Index

    return isinstance(e, (Index, Const)) or (isinstance(e, Cast) and isinstance(e.arg, Index))
