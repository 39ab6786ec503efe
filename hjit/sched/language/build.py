"""Builders of schedule trees: nests over the dimensions of a stage, and placing them in a tree."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hjit.sched.language.kinds import LOOP_KINDS, LoopKind
from hjit.sched.language.tree import Compute, DimKey, Loop, Node, Root, Store, Tail, dims_of, with_children
from hjit.trace.ir.graph import Definition

# a loop: dimension, kind, size, tail
Step = tuple[DimKey, LoopKind, int | None] | tuple[DimKey, LoopKind, int | None, Tail]
Path = tuple[int, ...]  # a node, as the numbers of the children that lead to it

# iterations of parallel loops after which the loops inside are serial: tasks of a few iterations take equally long
MANY_ITERATIONS = 64


def nest(stage: str, definitions: tuple[int, ...], loops: Sequence[Step]) -> Node:
    """Loops of a stage, outermost first, around a computation."""
    node: Node = Compute(stage, definitions)
    for dim, kind, size, *tail in reversed(loops):
        node = Loop(stage, dim, kind, size, (node,), *tail)
    return node


def at(root: Node, path: Path) -> Node:
    """The node that a path leads to."""
    for k in path:
        assert not isinstance(root, Compute)
        root = root.children[k]
    return root


def replaced(root: Node, path: Path, new: Node) -> Node:
    """The tree with another node at the end of a path."""
    if not path:
        return new
    assert not isinstance(root, Compute)
    k = path[0]
    children = (*root.children[:k], replaced(root.children[k], path[1:], new), *root.children[k + 1 :])
    return with_children(root, children)


def paths(root: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every node with its path, in the order in which they run."""
    yield path, root
    if not isinstance(root, Compute):
        for k, c in enumerate(root.children):
            yield from paths(c, (*path, k))


def flattened(children: Iterable[Node]) -> tuple[list[Loop | Compute], list[Store]]:
    """Loops and computations among the children of a node, those inside stores too, and the stores."""
    items: list[Loop | Compute] = []
    stores: list[Store] = []
    for c in children:
        if isinstance(c, Store):
            more, inside = flattened(c.children)
            items += more
            stores += [c, *inside]
        elif isinstance(c, (Loop, Compute)):
            items.append(c)
    return items, stores


def parallel_loops(top: Node) -> list[Loop]:
    """The loops of a nest whose iterations run at the same time and that are directly inside each other: their
    iterations count as those of one loop."""
    loops: list[Loop] = []
    node = top
    while isinstance(node, Loop) and LOOP_KINDS[node.kind].is_outermost:
        loops.append(node)
        items, stores = flattened(node.children)
        if stores or len(items) != 1:
            break
        node = items[0]
    return loops


def nests(node: Node) -> Iterator[Node]:
    """The outermost loops (or computations) of a tree, each a nest of its own."""
    if isinstance(node, (Root, Store)):
        for c in node.children:
            yield from nests(c)
    else:
        yield node


def own_nests(root: Root, stage: str) -> list[Path]:
    """Where the nests of a stage are, in their order: its outermost loops, or its computations where it has none."""
    found: list[Path] = []
    nodes: list[tuple[Node, Path]] = [(root, ())]
    while nodes:
        node, path = nodes.pop()
        if isinstance(node, (Loop, Compute)) and node.stage == stage:
            found.append(path)
        elif not isinstance(node, Compute):
            nodes += [(c, (*path, k)) for k, c in enumerate(node.children)][::-1]
    return found


def loops_around(root: Root, stages: Collection[str]) -> list[Path]:
    """The loops inside which all computations of some stages are, outermost first."""
    found: list[tuple[Path, int]] = []

    def visit(node: Root | Node, path: Path) -> int:
        """How many of the computations are inside a node; loops are found from the innermost one on."""
        if isinstance(node, Compute):
            return node.stage in stages
        count = sum(visit(c, (*path, k)) for k, c in enumerate(node.children))
        if isinstance(node, Loop):
            found.append((path, count))
        return count

    wanted = visit(root, ())
    return [path for path, count in reversed(found) if count == wanted]


def iteration_size(loop: Loop, dim: int) -> int:
    """The elements of a dimension in one iteration of `loop` and those around it: the size of the next loop, or 1."""
    nodes: list[Node] = list(loop.children)
    while nodes:
        x = nodes.pop(0)
        if isinstance(x, Loop) and x.stage == loop.stage and dim in dims_of(x.dim):
            return x.size or 1
        if not isinstance(x, Compute):
            nodes += x.children
    return 1


def attached(root: Root, nests: Sequence[Node], site: Path, outer: Path, store: Store) -> Root:
    """The tree with the nests of a stage first inside the node at `site`, and its storage first inside that at `outer`.

    Args:
        store: the storage; its children do not count.
    """
    place = at(root, site)
    assert not isinstance(place, Compute)
    tree = replaced(root, site, with_children(place, (*nests, *place.children)))
    around = at(tree, outer)
    assert not isinstance(around, Compute)
    tree = replaced(tree, outer, with_children(around, (replace(store, children=around.children),)))
    assert isinstance(tree, Root)
    return tree


def without(root: Root, stage: str) -> Root:
    """The tree without the nests and the storage of a stage."""
    return Root(tuple(x for c in root.children for x in stripped(c, stage)))


def stripped(node: Node, stage: str) -> tuple[Node, ...]:
    """A node without the nests and the storage of a stage: nothing, or what remains of it."""
    match node:
        case Compute():
            return () if node.stage == stage else (node,)
        case Loop():
            if node.stage == stage:
                return ()
            return (replace(node, children=tuple(x for c in node.children for x in stripped(c, stage))),)
        case Store():
            inner = tuple(x for c in node.children for x in stripped(c, stage))
            return inner if node.stage == stage else (replace(node, children=inner),)
    raise AssertionError(node)


def path_without(root: Root, stage: str, path: Path) -> Path:
    """Where the node at `path` is in the tree without a stage; storage of that stage stands for what is around it."""
    found: list[int] = []
    node: Root | Node = root
    before = 0
    for k in path:
        assert not isinstance(node, Compute)
        before += sum(len(stripped(c, stage)) for c in node.children[:k])
        node = node.children[k]
        if not (isinstance(node, Store) and node.stage == stage):  # else its children take its place
            found.append(before)
            before = 0
    return tuple(found)


def serial_loops(node: Node) -> Node:
    """The nest with its parallel loops serial, as it runs inside others."""
    if isinstance(node, Loop) and LOOP_KINDS[node.kind].is_outermost:
        return replace(node, kind="serial", children=tuple(map(serial_loops, node.children)))
    return node


def preceded(own: Mapping[str, Sequence[Node]], stages: Sequence[str], children: tuple[Node, ...]) -> tuple[Node, ...]:
    """What is computed in a loop, some stages before it."""
    return (*(serial_loops(n) for name in stages for n in own[name]), *children)


def stored(stages: Sequence[str], children: tuple[Node, ...]) -> tuple[Node, ...]:
    """What is computed at a place, inside the storage of some stages, the first outermost."""
    for name in reversed(stages):
        children = (Store(name, children),)
    return children


def whole_loops(d: Definition, dims: Sequence[int], lanes_dim: int | None = None) -> list[Step]:
    """Loops over all of some dimensions: the outermost is parallel; where it has few iterations those inside are, too.

    Args:
        lanes_dim: the dimension that vectors run along, whose loop is parallel only where it is the outermost.
    """
    found: list[Step] = []
    tasks = 1
    for k in dims:
        is_task = tasks < MANY_ITERATIONS and k < len(d.dims) and (not found or k != lanes_dim)
        tasks = tasks * (d.dims[k].const if d.dims[k].is_const else MANY_ITERATIONS) if is_task else MANY_ITERATIONS
        found.append((k, "parallel" if is_task else "serial", None))
    return found
