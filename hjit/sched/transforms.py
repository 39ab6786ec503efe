"""Transforms of schedule trees: each makes one legal tree from another, or says why it cannot.

These are the moves of the schedule-tree autoscheduler paper (`papers/schedule-tree-autoscheduler`, section 3): split a
loop, change its type, reorder two loops, hoist or lower the computation or the storage of a stage, inline it or give it
loops of its own. A node is named by its path, the numbers of the children that lead to it; see `hjit.sched.build.paths`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hjit.errors import ScheduleError
from hjit.sched.build import Path, at, attached, paths, replaced, without
from hjit.sched.check import check
from hjit.sched.default import Target, root_nests, serial_loops
from hjit.sched.tree import KINDS, Compute, Loop, LoopKind, Node, Root, Store, computes, loop_name, with_children
from hjit.trace.canonical import Inlining, canonicalise, inline
from hjit.trace.graph import Graph


def split(root: Root, graph: Graph, path: Path, size: int) -> Root:
    """The loop at `path` with an inner loop of `size` elements directly inside it.

    Raises:
        ScheduleError: it is no loop, or `size` does not fit between the loops of its dimension.
    """
    loop = _loop(root, path)
    if loop.kind in ("vector", "unroll"):
        raise ScheduleError(f"{loop_name(loop)}: a {loop.kind} loop is not split; change its type first")
    inner = Loop(loop.stage, loop.dim, "serial", size, loop.children)
    return _legal(replaced(root, path, replace(loop, children=(inner,))), graph)


def change_type(root: Root, graph: Graph, path: Path, kind: LoopKind) -> Root:
    """The loop at `path` as a loop of another kind.

    Raises:
        ScheduleError: it cannot be one.
    """
    if kind not in KINDS:
        raise ScheduleError(f"there is no kind of loop {kind}; there are {', '.join(KINDS)}")
    return _legal(replaced(root, path, replace(_loop(root, path), kind=kind)), graph)


def reorder(root: Root, graph: Graph, path: Path) -> Root:
    """The loop at `path` exchanged with the one directly inside it.

    Raises:
        ScheduleError: there is not just a loop of the same stage inside it, or the order matters.
    """
    outer = _loop(root, path)
    inner = outer.children[0]
    if len(outer.children) != 1 or not isinstance(inner, Loop) or inner.stage != outer.stage:
        raise ScheduleError(f"{loop_name(outer)}: what is inside it is not one loop of the same stage")
    if inner.dim == outer.dim:
        raise ScheduleError(f"{loop_name(outer)} and {loop_name(inner)} run over the same dimension")
    new = replace(inner, children=(replace(outer, children=inner.children),))
    return _legal(replaced(root, path, new), graph)


def hoist_compute(root: Root, graph: Graph, stage: str) -> Root:
    """The stage computed one loop further out, with its storage at least there.

    Raises:
        ScheduleError: it is computed at the root.
    """
    nests, site, store = _placed(root, stage)
    loops = [k for k in range(1, len(site) + 1) if isinstance(at(root, site[:k]), Loop)]
    if not loops:
        raise ScheduleError(f"{stage} is computed at the root")
    bare = without(root, stage)
    site = _path_without(root, stage, site)
    outer = [k for k in range(1, len(site)) if isinstance(at(bare, site[:k]), Loop)]
    if not outer:
        return _legal(_at_root(bare, graph, stage, nests), graph)
    new = site[: outer[-1]]
    store = _path_without(root, stage, store)
    return _legal(attached(bare, stage, [serial_loops(n) for n in nests], new, store if len(store) < len(new) else new), graph)


def lower_compute(root: Root, graph: Graph, stage: str) -> Root:
    """The stage computed in the next loop inwards around all that reads it, its storage where it is (at the root: there, too).

    Raises:
        ScheduleError: no loop further in is around all its consumers, or the stage is a result.
    """
    if stage in graph.outputs:
        raise ScheduleError(f"{stage} is a result, so it is computed at the root")
    nests, old, _ = _placed(root, stage)
    bare = without(root, stage)
    site = _path_without(root, stage, old)
    is_local = any(isinstance(at(root, old[:k]), Loop) for k in range(1, len(old) + 1))
    consumers = set(graph.consumers()[stage])
    wanted = sum(c.stage in consumers for c in computes(bare))
    deeper = [
        path for path, node in paths(bare)
        if isinstance(node, Loop) and path != site and path[: len(site) if is_local else 0] == (site if is_local else ())
        and sum(c.stage in consumers for c in computes(node)) == wanted
    ]  # fmt: skip
    if not deeper:
        raise ScheduleError(f"{stage}: there is no loop further in around all that reads it")
    new = min(deeper, key=len)
    store = site if is_local and site else new
    return _legal(attached(bare, stage, [serial_loops(n) for n in nests], new, store), graph)


def hoist_storage(root: Root, graph: Graph, stage: str) -> Root:
    """The storage one loop further out, so that turns of that loop share it.

    Raises:
        ScheduleError: it is outside all loops.
    """
    nests, site, store = _placed(root, stage)
    bare = without(root, stage)
    site, store = _path_without(root, stage, site), _path_without(root, stage, store)
    loops = [k for k in range(len(store) + 1) if k and isinstance(at(bare, store[:k]), Loop)]
    if not loops:
        raise ScheduleError(f"{stage} is stored outside all loops")
    k = loops[-1]
    new = store[: loops[-2]] if len(loops) > 1 else store[: k - 1]
    return _legal(attached(bare, stage, nests, site, new), graph)


def lower_storage(root: Root, graph: Graph, stage: str) -> Root:
    """The storage one loop further in.

    Raises:
        ScheduleError: it is where the stage is computed.
    """
    nests, site, store = _placed(root, stage)
    bare = without(root, stage)
    site, store = _path_without(root, stage, site), _path_without(root, stage, store)
    inner = [k for k in range(len(store) + 1, len(site) + 1) if isinstance(at(bare, site[:k]), Loop)]
    if not inner:
        raise ScheduleError(f"{stage} is stored where it is computed")
    return _legal(attached(bare, stage, nests, site, site[: inner[0]]), graph)


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


def deinlined(root: Root, graph: Graph, stage: str, source: Graph, target: Target) -> tuple[Root, Graph]:
    """The tree and the Graph with an inlined stage of `source`, the Graph before fusion, as a stage at the root.

    Raises:
        ScheduleError: `source` has no such stage, or it is one already.
    """
    if stage in graph.by_name or stage not in source.by_name:
        raise ScheduleError(f"{stage} is not an inlined stage")
    gone = frozenset(s.name for s in source.stages) - {s.name for s in graph.stages} - {stage}
    new = canonicalise(source, Inlining(frozenset({s.name for s in graph.stages} | {stage}), gone))
    if {s.name for s in new.stages} != {s.name for s in graph.stages} | {stage}:
        raise ScheduleError(f"{stage}: other stages would not stay what they are")
    nests = root_nests(new, new.stage(stage), target)
    return _legal(_at_root(root, new, stage, nests), new), new


# -- parts


def _legal(tree: Node, graph: Graph) -> Root:
    assert isinstance(tree, Root)
    check(tree, graph)
    return tree


def _loop(root: Root, path: Path) -> Loop:
    try:
        node = at(root, path)
    except (IndexError, AssertionError):
        raise ScheduleError(f"there is no node at {path}") from None
    if not isinstance(node, Loop):
        raise ScheduleError(f"the node at {path} is not a loop")
    return node


def _placed(root: Root, stage: str) -> tuple[list[Node], Path, Path]:
    """The nests of a stage, the path of the node that they are in, and that of the node around its storage."""
    store = next((p for p, n in paths(root) if isinstance(n, Store) and n.stage == stage), None)
    own = [p for p, n in paths(root) if isinstance(n, (Loop, Compute)) and n.stage == stage and not _inside_own(root, p, stage)]
    if store is None or not own:
        raise ScheduleError(f"there is no stage {stage} in the schedule")
    return [at(root, p) for p in own], own[0][:-1], store[:-1]


def _inside_own(root: Root, path: Path, stage: str) -> bool:
    nodes: Iterator[Node] = (at(root, path[:k]) for k in range(1, len(path)))
    return any(isinstance(n, Loop) and n.stage == stage for n in nodes)


def _path_without(root: Root, stage: str, path: Path) -> Path:
    """Where the node at `path` is in the tree without a stage; a store of that stage stands for what is around it."""
    while isinstance(at(root, path), Store) and at(root, path).stage == stage:  # type: ignore[union-attr]
        path = path[:-1]
    mark = _mark(at(root, path))
    return next(p for p, n in paths(without(root, stage)) if _mark(n) == mark)


def _mark(node: Node) -> object:
    """What tells a node from the others of its tree."""
    match node:
        case Loop(stage, dim, _, size, _):
            own = next(c for c in computes(node) if c.stage == stage)
            return ("loop", stage, dim, size, own.definitions)
        case Store(stage):
            return ("store", stage)
        case Compute():
            return node
    return "root"


def _at_root(root: Root, graph: Graph, stage: str, nests: list[Node]) -> Root:
    """The tree with a stage at the root, before the first node that reads it."""
    readers = set(graph.consumers()[stage])
    k = next((k for k, c in enumerate(root.children) if any(x.stage in readers for x in computes(c))), len(root.children))
    children = (*root.children[:k], Store(stage, tuple(nests)), *root.children[k:])
    new = with_children(root, children)
    assert isinstance(new, Root)
    return new
