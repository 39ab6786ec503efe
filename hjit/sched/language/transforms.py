"""Transforms of schedule trees: each makes one legal tree from another, or says why it cannot.

These are the moves of the schedule-tree autoscheduler paper (`papers/schedule-tree-autoscheduler`, section 3): split a
loop, resize it, change its type, reorder two loops, hoist or lower the computation or the storage of a stage, inline it
or give it loops of its own. A node is named by its path, the numbers of the children that lead to it; see
`hjit.sched.language.build.paths`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hjit.errors import ScheduleError
from hjit.process import debug
from hjit.sched.language.build import (
    Path,
    at,
    attached,
    flattened,
    iteration_size,
    loops_around,
    own_nests,
    path_without,
    paths,
    replaced,
    serial_loops,
    without,
)
from hjit.sched.language.check import check_loops, check_tree
from hjit.sched.language.kinds import LOOP_KINDS, LoopKind
from hjit.sched.language.tree import (
    Compute,
    Loop,
    Node,
    Root,
    Store,
    computes,
    dims_of,
    loop_name,
    walk,
    with_children,
)
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.fusion import inline


def split(root: Root, graph: Graph, path: Path, size: int) -> Root:
    """The loop at `path` with an inner loop of `size` elements directly inside it.

    Raises:
        ScheduleError: it is not a loop, or `size` does not fit between the loops of its dimension.
    """
    loop = _loop(root, path)
    if LOOP_KINDS[loop.kind].is_straight_line:
        raise ScheduleError(f"{loop_name(loop)}: a {loop.kind} loop is not split; change its type first")
    inner = Loop(loop.stage, loop.dim, "serial", size, loop.children)
    return _still_legal(replaced(root, path, replace(loop, children=(inner,))), graph, path)


def resize(root: Root, graph: Graph, path: Path, size: int | None) -> Root:
    """The inner loop at `path` with another size; None: without that loop.

    Raises:
        ScheduleError: it is not an inner loop, or `size` does not fit between the loops of its dimension.
    """
    loop = _loop(root, path)
    if loop.size is None:
        raise ScheduleError(f"{loop_name(loop)}: it runs over all of its dimension")
    if size is not None:
        return _still_legal(replaced(root, path, replace(loop, size=size)), graph, path)
    around = at(root, path[:-1])
    assert not isinstance(around, Compute)
    children = (*around.children[: path[-1]], *loop.children, *around.children[path[-1] + 1 :])
    return _still_legal(replaced(root, path[:-1], with_children(around, children)), graph, path)


def change_type(root: Root, graph: Graph, path: Path, kind: LoopKind) -> Root:
    """The loop at `path` with another kind.

    Raises:
        ScheduleError: that kind is not legal there.
    """
    if kind not in LOOP_KINDS:
        raise ScheduleError(f"there is no kind of loop {kind}; there are {', '.join(LOOP_KINDS)}")
    return _still_legal(replaced(root, path, replace(_loop(root, path), kind=kind)), graph, path)


def reorder(root: Root, graph: Graph, path: Path) -> Root:
    """The loop at `path` interchanged with the one directly inside it.

    Raises:
        ScheduleError: its only child is not a loop of the same stage, or the order matters.
    """
    outer = _loop(root, path)
    inner = outer.children[0]
    if len(outer.children) != 1 or not isinstance(inner, Loop) or inner.stage != outer.stage:
        raise ScheduleError(f"{loop_name(outer)}: what is inside it is not one loop of the same stage")
    if inner.dim == outer.dim:
        raise ScheduleError(f"{loop_name(outer)} and {loop_name(inner)} run over the same dimension")
    new = replace(inner, children=(replace(outer, children=inner.children),))
    return _still_legal(replaced(root, path, new), graph, path)


def hoist_compute(root: Root, graph: Graph, stage: str) -> Root:
    """The stage computed one loop further out, with its storage at least there.

    Raises:
        ScheduleError: it is computed at the root.
    """
    x = _lifted(root, stage)
    loops = _loops_on(x.bare, x.site)
    if not loops:
        raise ScheduleError(f"{stage} is computed at the root")
    nests = [serial_loops(n) for n in x.nests]
    if len(loops) == 1:
        return _legal(_at_root(x.bare, graph, replace(x.store, children=tuple(nests))), graph)
    new = loops[-2]
    return _legal(attached(x.bare, nests, new, min(x.outer, new, key=len), x.store), graph)


def lower_compute(root: Root, graph: Graph, stage: str) -> Root:
    """The stage computed one loop further in, around all of its consumers; its storage stays.

    From the root, both move.

    Raises:
        ScheduleError: no loop further in contains all of its consumers, or the stage is a result.
    """
    if stage in graph.outputs:
        raise ScheduleError(f"{stage} is a result, so it is computed at the root")
    x = _lifted(root, stage)
    is_local = bool(_loops_on(x.bare, x.site))
    above = x.site if is_local else ()
    deeper = [p for p in loops_around(x.bare, graph.consumers()[stage]) if p[: len(above)] == above and p != x.site]
    if not deeper:
        raise ScheduleError(f"{stage}: there is no loop further in around all that reads it")
    new = min(deeper, key=len)
    return _legal(
        attached(x.bare, [serial_loops(n) for n in x.nests], new, x.outer if is_local else new, x.store), graph
    )


def hoist_storage(root: Root, graph: Graph, stage: str) -> Root:
    """The storage one loop further out, shared by the iterations of that loop.

    Raises:
        ScheduleError: it is outside all loops.
    """
    x = _lifted(root, stage)
    loops = _loops_on(x.bare, x.outer)
    if not loops:
        raise ScheduleError(f"{stage} is stored outside all loops")
    return _legal(attached(x.bare, x.nests, x.site, loops[-2] if len(loops) > 1 else loops[-1][:-1], x.store), graph)


def lower_storage(root: Root, graph: Graph, stage: str) -> Root:
    """The storage one loop further in.

    Raises:
        ScheduleError: it is at the loop where the stage is computed.
    """
    x = _lifted(root, stage)
    inner = [p for p in _loops_on(x.bare, x.site) if len(p) > len(x.outer)]
    if not inner:
        raise ScheduleError(f"{stage} is stored where it is computed")
    return _legal(attached(x.bare, x.nests, x.site, inner[0], x.store), graph)


def storage_at_compute(root: Root, stage: str) -> Root:
    """The tree with a stage stored directly around its nests, and what else is computed there: it does not slide."""
    store = next((n for n in walk(root) if isinstance(n, Store) and n.stage == stage), None)
    if store is None:
        raise ScheduleError(f"there is no stage {stage} in the schedule")

    def visit(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Compute):
            return (node,)
        children = tuple(x for c in node.children for x in visit(c))
        if node is store:
            return children
        items = flattened(children)[0]
        if (
            not isinstance(node, Store)
            and any(x.stage == stage for x in items)
            and not (isinstance(node, Loop) and node.stage == stage)
        ):
            children = (replace(store, children=children),)
        return (with_children(node, children),)

    (tree,) = visit(root)
    assert isinstance(tree, Root)
    return tree


def unroll_less(root: Root, stage: str) -> Root:
    """The tree with fewer copies of a body: that with the most, in the child of the root that computes a stage.

    The outermost of the body's unrolled loops becomes serial, those last that run over all of a small dimension. Where
    no loop is unrolled, the tree stays as it is.
    """
    k = next(k for k, child in enumerate(root.children) if any(c.stage == stage for c in computes(child)))
    leaves = [path for path, x in paths(root.children[k], (k,)) if isinstance(x, Compute)]
    loops = [
        [(p, x) for p in _loops_on(root, leaf) if isinstance(x := at(root, p), Loop) and x.kind == "unroll"]
        for leaf in leaves
    ]
    most = max(
        loops,
        key=lambda around: (
            math.prod((x.size or 1) // iteration_size(x, dims_of(x.dim)[-1]) or 1 for _, x in around),
            len(around),
        ),
    )
    if not most:
        return root
    path, loop = min(most, key=lambda found: found[1].size is None)
    tree = replaced(root, path, replace(loop, kind="serial"))
    assert isinstance(tree, Root)
    return tree


def inlined(root: Root, graph: Graph, stage: str) -> tuple[Root, Graph]:
    """The tree and the Graph with a stage computed wherever it is read.

    Raises:
        ScheduleError: it is a result, has updates, or is nested too deeply.
    """
    s = graph.by_name.get(stage)
    if s is None or s.updates or stage in graph.outputs:
        raise ScheduleError(f"{stage}: only a stage with one pure definition that is no result is inlined")
    new = inline(graph, {stage})
    if stage in new.by_name:
        raise ScheduleError(f"{stage}: its definition is nested too deeply")
    return _legal(without(root, stage), new), new


def computed_at_root(root: Root, graph: Graph, stage: str, nests: tuple[Node, ...]) -> Root:
    """The tree with a stage that it does not compute yet, in these nests at the root.

    Raises:
        ScheduleError: it computes the stage.
    """
    return _legal(_at_root(root, graph, Store(stage, nests)), graph)


# -- parts


def _legal(tree: Node, graph: Graph) -> Root:
    assert isinstance(tree, Root)
    check_tree(tree, graph)
    return tree


def _still_legal(tree: Node, graph: Graph, path: Path) -> Root:
    """A tree that was legal before the loops at `path` changed."""
    assert isinstance(tree, Root)
    check_loops(tree, graph, path[0])
    if debug.checks():
        check_tree(tree, graph)
    return tree


def _loop(root: Root, path: Path) -> Loop:
    try:
        node = at(root, path)
    except (IndexError, AssertionError):
        raise ScheduleError(f"there is no node at {path}") from None
    if not isinstance(node, Loop):
        raise ScheduleError(f"the node at {path} is not a loop")
    return node


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A tree without a stage, and what was taken out.

    Attributes:
        site: of the node that its nests were in. outer: of the node around its storage.
    """

    bare: Root
    nests: list[Node]
    site: Path
    outer: Path
    store: Store


def _lifted(root: Root, stage: str) -> _Lifted:
    nests = own_nests(root, stage)
    found = next(((p, n) for p, n in paths(root) if isinstance(n, Store) and n.stage == stage), None)
    if found is None or not nests:
        raise ScheduleError(f"there is no stage {stage} in the schedule")
    path, store = found
    site, outer = path_without(root, stage, nests[0][:-1]), path_without(root, stage, path[:-1])
    return _Lifted(without(root, stage), [at(root, p) for p in nests], site, outer, store)


def _loops_on(root: Root, path: Path) -> list[Path]:
    """The loops on the way to a node and that node, outermost first."""
    return [path[:k] for k in range(1, len(path) + 1) if isinstance(at(root, path[:k]), Loop)]


def _at_root(root: Root, graph: Graph, store: Store) -> Root:
    """The tree with a stage and its storage at the root, before the first node that reads it."""
    readers = set(graph.consumers()[store.stage])
    k = next(
        (k for k, c in enumerate(root.children) if any(x.stage in readers for x in computes(c))), len(root.children)
    )
    return Root((*root.children[:k], store, *root.children[k:]))
