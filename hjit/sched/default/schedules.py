"""The default schedule: every stage at root, rows in parallel, the innermost dimension in explicit vectors.

Point-wise chains are already fused in the canonical Graph. For each definition, this module decides which dimension the
vector lanes run along, which small dimensions are unrolled, and what runs in parallel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hjit.sched.analysis.bounds import Reads
from hjit.sched.default.epilogues import block_of, products_of, with_products
from hjit.sched.default.line_buffers import Head, bytes_of_column, members_of
from hjit.sched.default.thresholds import JAM_ROWS, MAX_LOADS_LEFT, MAX_STRIP, MIN_LOADS, MIN_STRIP
from hjit.sched.language.build import preceded, serial_loops, stored
from hjit.sched.language.definitions import is_direct
from hjit.sched.language.groups import groups
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Compute, Loop, Node, Root, Store, computes, dims_of
from hjit.sched.language.tree import walk as walk_tree
from hjit.sched.nests.root_nests import RootNests
from hjit.sched.nests.thresholds import SCAN_ROWS, TRANSPOSE_ROWS, UNROLL_CODE
from hjit.trace.ir.expressions import Load, walk
from hjit.trace.ir.graph import Graph, Stage, single_dim
from hjit.trace.ir.poly import ONE, Dim


def default_schedule(graph: Graph, target: Target, at_root: Mapping[str, tuple[Node, ...]] | None = None) -> Root:
    """The default schedule of a canonical Graph; `at_root`: its `RootNests`, where there are some."""
    nests = dict(RootNests(graph, target) if at_root is None else at_root)
    packed = {s.name: copies for s in graph.stages if (copies := _packed(graph, s, nests))}
    for name, copies in packed.items():
        nests[name] = (_with_copies(nests, nests[name][0], copies),)
    taken = {*packed, *(c for copies in packed.values() for c in copies)}
    inside = _attached(graph, nests, taken, target)
    products = products_of(graph, nests, taken.union(inside, *(x.members for x in inside.values())))
    for name, members in products.items():
        nests[name] = (with_products(graph.stage(name), nests, members),)
    placed = {
        m for members in (*(x.members for x in inside.values()), *packed.values(), *products.values()) for m in members
    }
    roots: list[Node] = []
    for s in graph.stages:
        if s.name in placed:
            continue
        found = list(nests[s.name])
        if s.name in inside:
            found[inside[s.name].head.nest] = _group(graph, nests, inside[s.name])
        elif s.name not in packed and s.name not in products:
            found = [*_with_jammed_rows(s, nests[s.name])]
        roots.append(Store(s.name, tuple(found)))
    return Root(tuple(roots))


@dataclass(frozen=True, slots=True)
class _Group:
    """A nest of a stage that others are computed in, row by row.

    Attributes:
        members: the others, in the order of the Graph.
        strip: columns that are computed before others are; None: all.
    """

    head: Head
    members: tuple[str, ...]
    strip: int | None


def _attached(graph: Graph, nests: Mapping[str, Sequence[Node]], taken: set[str], target: Target) -> dict[str, _Group]:
    """The groups by their heads, without the stages that are `taken`."""
    consumers = graph.consumers()
    reads = Reads(graph)
    found: dict[str, _Group] = {}
    for s in reversed(graph.stages):
        head = _head(graph, s, nests[s.name])
        if head is not None and s.name not in taken:

            def may_join(x: Stage, axis: int, step: int = head.step) -> bool:
                return x.name not in graph.outputs and len(x.shape) > 0 and lanes_across(x, nests[x.name], axis) <= step

            members = members_of(reads, head, taken, may_join, consumers)
            if members:
                along = None if head.step > 1 else _lanes_dim(nests[s.name][head.nest])
                column = None if along is None or along == head.dim else bytes_of_column(reads, head, along, members)
                found[s.name] = _Group(head, members, _strip(column, target))
                taken.update(members)
    return found


def _vectors(node: Node) -> Loop | None:
    """The loop of a nest that vectors run along."""
    return next((x for x in walk_tree(node) if isinstance(x, Loop) and x.kind == "vector"), None)


def lanes_across(s: Stage, nests: Sequence[Node], axis: int) -> int:
    """The number of rows along an axis that a scan computes at once, as vector lanes."""
    for k, d in enumerate(s.definitions):
        vectors = _vectors(next(x for x in nests if any(k in c.definitions for c in computes(x))))
        if not is_direct(d) and vectors is not None and vectors.dim == single_dim(d.target[axis], len(d.dims)):
            return vectors.size or 1
    return 1


def _lanes_dim(node: Node) -> int | None:
    """The dimension that the vectors of a nest run along."""
    vectors = _vectors(node)
    return vectors.dim if vectors is not None and isinstance(vectors.dim, int) else None


def _strip(column: int | None, target: Target) -> int | None:
    """How many columns of some bytes each stay in the second cache; None where all do, or their bytes are not known."""
    if column is None or target.near_bytes // column > MAX_STRIP:
        return None
    return max(1 << (target.near_bytes // column).bit_length() >> 1, MIN_STRIP)


def _jammed(s: Stage, node: Node) -> Node:
    """A stencil's nest with jammed rows, if they have many loads in common."""
    d = s.definitions[0]
    vectors = _vectors(node)
    if d.order != "pure" or vectors is None or not isinstance(vectors.dim, int):
        return node
    loads = d.value.loads
    if len(loads) < MIN_LOADS or JAM_ROWS * sum(1 for _ in walk(d.value)) > UNROLL_CODE:
        return node
    for k in reversed(range(len(d.dims) - 1)):
        if (
            k != vectors.dim
            and not d.dims[k].is_const
            and loads_of_rows(loads, k, JAM_ROWS) <= MAX_LOADS_LEFT * JAM_ROWS * len(loads)
        ):
            return _unrolled_inside(node, k)
    return node


def _group(graph: Graph, nests: dict[str, tuple[Node, ...]], group: _Group) -> Node:
    """A nest with its members; several rows run together in all of it where they do in one of its stencils or scans."""
    s, members = group.head.stage, group.members
    head = nests[s.name][group.head.nest]
    assert isinstance(head, Loop)
    if group.head.step > 1:  # in tiles: a row of them is computed at once
        return _with_members(nests, replace(head, children=tuple(map(serial_loops, head.children))), members)
    several = {m: _with_jammed_rows(graph.stage(m), nests[m]) for m in members}
    (rows,) = _with_jammed_rows(s, (head,))
    together = any(x is not y for m in members for x, y in zip(several[m], nests[m], strict=True))
    if rows is head and (
        together or any(map(_has_scan_rows, (graph.stage(m) for m in members), (nests[m] for m in members)))
    ):
        rows = replace(head, children=(Loop(s.name, head.dim, "serial", JAM_ROWS, head.children),))
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
    return any(
        isinstance(x, Loop) and x.kind == "unroll" and x.size == SCAN_ROWS for node in scans for x in walk_tree(node)
    )


def _of_size(node: Node, dim: int, size: int) -> Node:
    """The nest with a size for its serial loop over a dimension that has none."""
    if isinstance(node, Loop) and node.kind == "serial" and node.dim == dim and node.size is None:
        return replace(node, size=size)
    return (
        node
        if isinstance(node, Compute)
        else replace(node, children=tuple(_of_size(c, dim, size) for c in node.children))
    )


def _with_jammed_rows(s: Stage, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nests of a stage with rows that run together, where it is a stencil."""
    return tuple(_jammed(s, n) for n in nodes) if len(s.definitions) == 1 else nodes


def loads_of_rows(loads: Collection[Load], dim: int, rows: int) -> int:
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
    """The nest with some iterations of the loop over a dimension unrolled."""
    if not isinstance(node, Loop):
        return node
    if node.dim == dim and node.kind in ("parallel", "serial"):
        return replace(node, children=(Loop(node.stage, dim, "unroll", JAM_ROWS, node.children),))
    return replace(node, children=tuple(_unrolled_inside(c, dim) for c in node.children))


def _packed(graph: Graph, s: Stage, nests: Mapping[str, Sequence[Node]]) -> tuple[str, ...]:
    """Copies for this stage alone, a sum of products in blocks: each block of columns makes its part of them."""
    head = nests[s.name][0]
    if len(nests[s.name]) != 1 or not isinstance(head, Loop) or block_of(head) is None:
        return ()
    columns = Dim(dims_of(head.dim)[0])
    reads = {x.source for d in s.definitions for x in d.loads if any(p.mentions(columns) for p in x.index)}
    copies = [
        x
        for x in graph.stages
        if x.name in reads and isinstance(x.initial, Load) and not x.updates and x.name not in graph.outputs
    ]
    consumers = graph.consumers() if copies else {}
    return tuple(x.name for x in copies if consumers[x.name] == [s.name])


def _with_members(nests: Mapping[str, Sequence[Node]], head: Node, members: tuple[str, ...]) -> Node:
    """A nest in whose outermost loop other stages are computed, of which it keeps what earlier iterations computed."""
    assert isinstance(head, Loop)
    (node,) = stored(members, (replace(head, children=preceded(nests, members, head.children)),))
    return node


def _with_copies(nests: Mapping[str, Sequence[Node]], head: Node, copies: tuple[str, ...]) -> Node:
    """A nest that makes copies in its outermost loop."""
    assert isinstance(head, Loop)
    children = preceded(nests, copies, tuple(map(serial_loops, head.children)))
    return replace(head, children=stored(copies[::-1], children))


def _head(graph: Graph, s: Stage, nests: Sequence[Node]) -> Head | None:
    """The nest that reads other stages; None where there are several, or its iterations are few tasks."""
    found = groups(s)
    reading = [
        k
        for k, group in enumerate(found)
        if any(x != s.name and x in graph.by_name for n in group for x in s.definitions[n].sources)
    ]
    if len(reading) != 1 or len(found) != len(nests):
        return None
    (k,) = reading
    group, node = found[k], nests[k]
    if not isinstance(node, Loop) or node.kind != "parallel" or not isinstance(node.dim, int):
        return None
    d = s.definitions[group[-1]]
    inside = [x.size for x in walk_tree(node) if isinstance(x, Loop) and x.dim == node.dim and x is not node]
    if inside not in ([], [TRANSPOSE_ROWS]) or d.extents[node.dim].is_const or len(d.extents) < 2:
        return None
    return Head(s, k, group, node.dim, TRANSPOSE_ROWS if inside else 1)
