"""Is a schedule tree legal for a Graph?

`RULES` is the list: each rule has a name, and yields what breaks it. Where one kind of loop is legal is in
`hjit.sched.language.loop_rules`, one level of memory in `MEMORY_RULES`. `HJIT_CHECK=1` applies them all after every
transform of a tree.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from hjit.errors import ScheduleError
from hjit.sched.language.definitions import (
    are_apart,
    free_from,
    is_associative,
    is_direct,
    is_repeatable,
    starts_reduction,
)
from hjit.sched.language.kinds import LOOP_KINDS, TARGET_KINDS, Memory, TargetKind
from hjit.sched.language.limits import DIVISION_CODE, MAX_CODE
from hjit.sched.language.loop_rules import LOOP_KIND_RULES, OVER_THREADS, Leaf, LoopAt, constant_length
from hjit.sched.language.target import REGISTER_BYTES
from hjit.sched.language.tree import (
    Compute,
    Loop,
    Node,
    Root,
    Store,
    check_nodes,
    dim_name,
    dims_of,
    loop_name,
    store_name,
)
from hjit.sched.language.tree import walk as walk_tree
from hjit.trace.ir.analysis.costs import instruction_count
from hjit.trace.ir.expressions import Const, Expr, Op, walk
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.passes.interleaved_updates import write_disjoint

DIVISIONS = ("floor_divide", "remainder", "fmod")


Rule = Callable[[list[Leaf], Graph], Iterator[str]]


def leaves(root: Node) -> Iterator[Leaf]:
    """The computations of a tree, in the order in which they run."""
    nodes: list[tuple[Node, tuple[Node, ...]]] = [(root, ())]  # not a generator in a generator: trees are deep
    while nodes:
        node, path = nodes.pop()
        if isinstance(node, Compute):
            yield Leaf(path, node)
        else:
            path = (*path, node)
            nodes += [(c, path) for c in reversed(node.children)]


def check_tree(root: Root, graph: Graph, kind: TargetKind = "cpu") -> None:
    """Is the tree legal for the Graph, on a kind of target?

    Raises:
        ScheduleError: it says what breaks the first rule that is broken.
    """
    check_nodes(root)
    for fault in _of_target(root, kind):
        raise ScheduleError(fault)
    for _, fault in faults(root, graph):
        raise ScheduleError(fault)


def _of_target(root: Root, kind: TargetKind) -> Iterator[str]:
    """Kinds of loops and of memory are those that a target has."""
    traits = TARGET_KINDS[kind]
    for x in walk_tree(root):
        if isinstance(x, Loop) and x.kind not in traits.loops:
            yield f"{loop_name(x)}: the target {kind} has no such loops; it has {', '.join(traits.loops)}"
        if isinstance(x, Store) and x.memory not in traits.memory:
            yield f"{store_name(x)}: the target {kind} has no such memory; it has {', '.join(traits.memory)}"


def check_loops(root: Root, graph: Graph, child: int) -> None:
    """Is a tree still legal in which nothing but loops of one child of the root has changed?

    Raises:
        ScheduleError: it says what breaks the first rule that is broken.
    """
    part = Root((root.children[child],))
    check_nodes(part)
    for _, fault in _broken({name: RULES[name] for name in LOOP_RULES}, list(leaves(part)), graph):
        raise ScheduleError(fault)


def faults(root: Root, graph: Graph) -> Iterator[tuple[str, str]]:
    """The first rule that a tree breaks, with each of the ways in which it does."""
    return _broken(RULES, list(leaves(root)), graph)


def nest_faults(root: Root, graph: Graph) -> Iterator[tuple[str, str]]:
    """As `faults`, of the loops of some definitions of a stage, without those that compute the others."""
    return _broken({name: rule for name, rule in RULES.items() if name in NEST_RULES}, list(leaves(root)), graph)


def _broken(rules: Mapping[str, Rule], found: list[Leaf], graph: Graph) -> Iterator[tuple[str, str]]:
    for name, rule in rules.items():
        broken = False
        for fault in rule(found, graph):
            broken = True
            yield name, fault
        if broken:
            return


# -- what is computed, and where it is kept


def _known_stages(found: list[Leaf], graph: Graph) -> Iterator[str]:
    """Stages and definitions are those of the Graph."""
    stages = graph.by_name
    for leaf in found:
        c = leaf.compute
        for x in (*leaf.path, c):
            if not isinstance(x, Root) and x.stage not in stages:
                what = loop_name(x) if isinstance(x, Loop) else f"{type(x).__name__.lower()} {x.stage}"
                yield f"{what}: there is no such stage; there are {', '.join(stages)}"
                return
        if not c.definitions or max(c.definitions) >= len(stages[c.stage].definitions):
            yield f"compute {c.stage} {c.definitions}: it has {len(stages[c.stage].definitions)} definitions"
            return


def _own_loops(found: list[Leaf], graph: Graph) -> Iterator[str]:
    """Loops and storage of a stage are around a computation of it, loops around only one.

    Another one may run over other parts of its dimensions.
    """
    inside: dict[int, tuple[Node, list[str]]] = {}  # by identity: a tree that breaks rules may hold equal nodes
    for leaf in found:
        for x in leaf.path:
            if isinstance(x, (Loop, Store)):
                inside.setdefault(id(x), (x, []))[1].append(leaf.compute.stage)
    for x, names in inside.values():
        if isinstance(x, Store) and x.stage not in names:
            yield f"store {x.stage}: the stage is not computed inside it"
        if isinstance(x, Loop) and names.count(x.stage) != 1:
            many = "not" if x.stage not in names else f"{names.count(x.stage)} times"
            yield f"{loop_name(x)}: {x.stage} is computed {many} inside it, not once"


def _each_once(found: list[Leaf], graph: Graph) -> Iterator[str]:
    seen: set[tuple[str, int]] = set()
    for leaf in found:
        for n in leaf.compute.definitions:
            if (leaf.compute.stage, n) in seen:
                yield f"compute {leaf.compute.stage} {n}: it is computed twice"
            seen.add((leaf.compute.stage, n))
    missing = [f"{s.name} {n}" for s in graph.stages for n in range(len(s.definitions)) if (s.name, n) not in seen]
    if missing:
        yield f"every definition is computed once: {', '.join(missing)} is not"


def _groups(found: list[Leaf], graph: Graph) -> Iterator[str]:
    """Definitions that one leaf computes together run over the same loops and do not read each other."""
    for leaf in found:
        s, numbers = graph.stage(leaf.compute.stage), leaf.compute.definitions
        parts = [s.definitions[n] for n in numbers]
        if parts[0].joined or any(d.joined for d in s.definitions[numbers[-1] + 1 : numbers[-1] + 2]):
            yield f"compute {s.name} {numbers}: updates that are joined run together"
            continue
        if len(parts) == 1 or (numbers == (0, 1) and starts_reduction(s)):
            continue
        is_row = numbers == tuple(range(numbers[0], numbers[0] + len(numbers)))
        if is_row and all(d.joined for d in parts[1:]):
            continue
        if is_row and all(are_apart(a, b, s.name) for a, b in itertools.combinations(parts, 2)):
            continue
        if not is_row or any(d.order != "pure" or d.dims != parts[0].dims for d in parts):
            yield f"compute {s.name} {numbers}: only adjacent interleaved updates of the same dimensions run together"
        elif not all(write_disjoint(a, b) for a, b in itertools.combinations(parts, 2)):
            yield f"compute {s.name} {numbers}: updates that may write the same element run one after the other"
        elif any(s.name in d.sources for d in parts):
            yield f"compute {s.name} {numbers}: updates that read the stage itself run one after the other"


def _stored(found: list[Leaf], graph: Graph) -> Iterator[str]:
    for leaf in found:
        s = leaf.compute.stage
        stores = [x for x in leaf.path if isinstance(x, Store) and x.stage == s]
        if len(stores) != 1:
            yield f"compute {s}: its storage is not around it" if not stores else f"compute {s}: it is stored twice"
            continue
        if s in graph.outputs and any(isinstance(x, Loop) for x in leaf.path[: leaf.site]):
            yield f"compute {s}: it is a result, so it is computed at the root"
        order, align = stores[0].order, stores[0].align
        if s in graph.outputs and (order or align):
            yield f"store {s}: it is a result, so it is in C order without gaps"
        if align and (len(align) != len(graph.stage(s).shape) or min(align) < 1):
            axes = len(graph.stage(s).shape)
            yield f"store {s}: {align} does not say for each of its {axes} axes what its length is a multiple of"
        if order and sorted(order) != list(range(len(graph.stage(s).shape))):
            yield f"store {s}: its order {order} is not one of its {len(graph.stage(s).shape)} axes"
        yield from MEMORY_RULES[stores[0].memory](stores[0], leaf, graph)


def _anywhere(store: Store, leaf: Leaf, graph: Graph) -> Iterator[str]:
    """Where no memory is named, it is that of its place: of the device, of a block, or of a thread."""
    between = {x.kind for x in leaf.path[leaf.path.index(store) : leaf.site] if isinstance(x, Loop)}
    for kind, word in (("gpu_block", "blocks"), ("gpu_thread", "threads"), ("gpu_lane", "lanes")):
        if kind in between:
            yield f"store {store.stage}: {word} compute parts of it, each its own: store it inside their loops"


def _shared(store: Store, leaf: Leaf, graph: Graph) -> Iterator[str]:
    """The threads of a block share what is kept inside its loops, and outside those over threads."""
    yield from _anywhere(store, leaf, graph)
    around = leaf.path[: leaf.path.index(store)]
    if not any(isinstance(x, Loop) and x.kind == "gpu_block" for x in around):
        yield f"store {store.stage}: only what is kept inside loops over blocks is in shared memory"
    if any(isinstance(x, Loop) and x.kind in OVER_THREADS for x in around):
        yield f"store {store.stage}: what is kept inside loops over threads is not shared"


def _register(store: Store, leaf: Leaf, graph: Graph) -> Iterator[str]:
    """Registers are those of a thread."""
    yield from _anywhere(store, leaf, graph)
    if not any(isinstance(x, Loop) and x.kind in OVER_THREADS for x in leaf.path[: leaf.path.index(store)]):
        yield f"store {store.stage}: only what is kept inside loops over threads is in registers"


MEMORY_RULES: Mapping[Memory, Callable[[Store, Leaf, Graph], Iterator[str]]] = {
    "heap": _anywhere,
    "shared": _shared,
    "register": _register,
}


def _nested(found: list[Leaf], graph: Graph) -> Iterator[str]:
    """Loops of a stage are not interrupted by those of another one."""
    for leaf in found:
        seen: list[str] = []
        for x in leaf.path:
            if isinstance(x, Loop) and (not seen or x.stage != seen[-1]):
                if x.stage in seen:
                    yield f"{loop_name(x)}: it lies inside loops of {seen[-1]}, which lie inside loops of {x.stage}"
                seen.append(x.stage)


def _dimensions(found: list[Leaf], graph: Graph) -> Iterator[str]:
    for leaf in found:
        s = leaf.compute.stage
        d = graph.stage(s).definitions[leaf.compute.definitions[-1]]
        wanted = list(range(len(d.extents)))
        outer = sorted(k for x in leaf.loops if x.size is None for k in dims_of(x.dim))
        if outer != wanted:
            yield f"compute {s}: its dimensions are {wanted}, the loops around it run over {outer}"
        sizes: dict[object, int | None] = {}
        for x in leaf.loops:
            if x.size is not None:
                if x.dim not in sizes:
                    yield f"{loop_name(x)}: there is no outer loop over {dim_name(x.dim)}"
                    continue
                above = sizes[x.dim]
                if x.size < 1 or (above is not None and (above % x.size or above < x.size)):
                    yield f"{loop_name(x)}: its size does not divide {above}, that of the loop outside it"
            sizes[x.dim] = x.size
            if isinstance(x.dim, tuple) and (
                len(x.dim) < 2 or list(x.dim) != list(range(x.dim[0], x.dim[0] + len(x.dim)))
            ):
                yield f"{loop_name(x)}: only adjacent dimensions are fused"
            if isinstance(x.dim, tuple) and x.dim[-1] >= len(d.dims):
                yield f"{loop_name(x)}: reduction dimensions are not fused"


def _loop_kinds(found: list[Leaf], graph: Graph) -> Iterator[str]:
    for leaf in found:
        s = graph.stage(leaf.compute.stage)
        d = s.definitions[leaf.compute.definitions[-1]]
        loops = tuple(x for x in leaf.path if isinstance(x, Loop))
        for k, x in enumerate(loops):
            if x.stage == s.name:
                inner = next((y for y in loops[k + 1 :] if y.stage == s.name and y.dim == x.dim), None)
                yield from LOOP_KIND_RULES[x.kind](LoopAt(x, leaf, loops[:k], inner, s, d))


def _reductions(found: list[Leaf], graph: Graph) -> Iterator[str]:
    """What may be reordered: pure dimensions always, reduction dimensions where the operation is associative."""
    for leaf in found:
        s = graph.stage(leaf.compute.stage)
        d = s.definitions[leaf.compute.definitions[-1]]
        first = next((k for k, x in enumerate(leaf.loops) if _is_reduction(x, d)), None)
        if first is None:
            continue
        rule = _in_registers if is_associative(d) and is_direct(d) else _in_order
        yield from rule(leaf, leaf.loops[first:], s, d)


def _is_reduction(x: Loop, d: Definition) -> bool:
    """Does a loop run along a reduction dimension?"""
    return dims_of(x.dim)[0] >= len(d.dims)


def _in_registers(leaf: Leaf, loops: tuple[Loop, ...], s: Stage, d: Definition) -> Iterator[str]:
    """The loops of an associative reduction, from its outermost one inwards: its sums stay in registers."""
    inside = leaf.path[leaf.path.index(loops[0]) :]
    is_shared = any(not isinstance(x, Loop) or x.stage != s.name for x in inside)
    if is_shared or any(len(x.children) > 1 for x in loops):
        yield f"{loop_name(loops[0])}: nothing else is computed inside the loops of a reduction"
    for x in loops:
        if not _is_reduction(x, d) and x.kind not in ("unroll", "vector"):
            where = "inside the loops of a reduction, whose sums are in registers"
            yield f"{loop_name(x)}: {where}, it is unrolled or a vector"
    reductions = [x for x in loops if _is_reduction(x, d)]
    vectors = [x for x in reductions if x.kind == "vector"]
    if vectors and reductions[-1] is not vectors[0]:
        yield f"{loop_name(vectors[0])}: lanes along a reduction are the innermost of its loops"


def _in_order(leaf: Leaf, loops: tuple[Loop, ...], s: Stage, d: Definition) -> Iterator[str]:
    """The loops of a recurrence or a scatter, from the outermost reduction dimension inwards."""
    reductions = [x for x in loops if _is_reduction(x, d)]
    if d.order != "sequential":
        if any(x.kind == "unroll" for x in reductions) and not is_direct(d):
            yield f"{loop_name(loops[0])}: a scatter is not unrolled, as its iterations may write the same element"
        return
    order = [dims_of(x.dim)[0] for x in reductions]
    if order != sorted(order):
        yield f"{loop_name(loops[0])}: the loops of a recurrence keep their order"
    free = free_from(s, d)
    kept = [k for k in order if k < free]
    if len(set(kept)) > 1 and len(kept) > len(set(kept)):
        yield f"{loop_name(loops[0])}: a recurrence over several dimensions is not tiled"


def _tails(found: list[Leaf], graph: Graph) -> Iterator[str]:
    for leaf in found:
        s, numbers = graph.stage(leaf.compute.stage), leaf.compute.definitions
        pure = len(s.definitions[numbers[-1]].dims)
        for x in leaf.loops:
            if x.tail == "auto":
                continue
            if x.size is None:
                yield f"{loop_name(x)}: only an inner loop has a tail"
            if dims_of(x.dim)[-1] >= pure:
                yield f"{loop_name(x)}: the iterations of a reduction run once each, so its tail is not chosen"
            if x.tail == "shift_inwards" and not is_repeatable(s, numbers):
                yield f"{loop_name(x)}: it updates what it reads, so no iteration is repeated"
            if x.tail == "predicate" and x.kind != "vector":
                yield f"{loop_name(x)}: only lanes of a vector do nothing one by one"
            if x.tail == "round_up" and (
                isinstance(x.dim, tuple) or not any(isinstance(y, Loop) for y in leaf.path[: leaf.site])
            ):
                yield f"{loop_name(x)}: only a dimension of a stage that is computed inside other loops is rounded up"


def _prefetches(found: list[Leaf], graph: Graph) -> Iterator[str]:
    for leaf in found:
        parts = [graph.stage(leaf.compute.stage).definitions[n] for n in leaf.compute.definitions]
        read = {name for d in parts for name in d.sources}
        for source, dim, _ in leaf.compute.prefetches:
            if source not in read:
                reads = ", ".join(sorted(read)) or "nothing"
                yield f"compute {leaf.compute.stage}: it does not read {source}, which it prefetches; it reads {reads}"
            elif dim >= len(parts[-1].dims) or any(d.order != "pure" for d in parts):
                only = f"only pure definitions do, along their {len(parts[-1].dims)} dimensions"
                yield f"compute {leaf.compute.stage}: it prefetches along d{dim}; {only}"


@lru_cache(maxsize=1 << 12)
def _divisions(e: Expr) -> int:
    """How many that no processor does in vectors: a division by a constant is a multiplication."""
    return sum(map(_is_division, walk(e)))


def _is_division(e: Expr) -> bool:
    return isinstance(e, Op) and e.name in DIVISIONS and e.dtype.kind in "iu" and not isinstance(e.args[1], Const)


def _code(found: list[Leaf], graph: Graph) -> Iterator[str]:
    """How much code a computation becomes: where loops do not divide what is left, there is code for the tails, too."""
    for leaf in found:
        s = graph.stage(leaf.compute.stage)
        parts = [s.definitions[n] for n in leaf.compute.definitions]
        copies, tails_together = _copies(leaf, parts[-1]), _tails_together(leaf)
        lanes = next((x.size or 1 for x in leaf.loops if x.kind == "vector"), 1)
        registers = -(
            -lanes * max(x.itemsize for d in parts for x in (s.dtype, *(y.dtype for y in d.loads))) // REGISTER_BYTES
        )
        divided = DIVISION_CODE * sum(_divisions(d.value) for d in parts)
        single = sum(instruction_count(d.value) for d in parts)
        total = copies * (registers * single + lanes * divided) + min(tails_together, MAX_CODE + 1) * single
        # a long definition is no fault of the schedule: one register of it, and its tails, are always allowed
        least = single + -(-lanes // registers) * divided
        if total > max(MAX_CODE, 8 * least):
            size = (
                f"{copies} copies of {registers} registers, and {tails_together} combinations of tails"
                if tails_together <= MAX_CODE
                else "its combinations of tails multiply"
            )
            advice = "unroll less, or make shorter vectors or fewer splits"
            yield f"compute {s.name}: code for more than {MAX_CODE} registers ({size}); {advice}"


def _copies(leaf: Leaf, d: Definition) -> int:
    """How often unrolled loops repeat the code of a computation."""
    copies = 1
    for x in leaf.path:
        if isinstance(x, Loop) and x.kind == "unroll":
            n = x.size if x.size is not None else constant_length(d, x) or 1
            inner = next((y.size for y in leaf.loops if y.dim == x.dim and y.size is not None and y.size < n), 1)
            copies *= max(n // inner, 1)
    return copies


def _tails_together(leaf: Leaf) -> int:
    """The combinations of the tails of its loops, each of which has code of its own."""
    tails = Counter(
        (x.stage, x.dim)
        for x in leaf.path
        if isinstance(x, Loop) and x.size is not None and (x.kind in ("vector", "unroll") or x.tail == "shift_inwards")
    )
    return math.prod(n + 1 for n in tails.values())


def _order(found: list[Leaf], graph: Graph) -> Iterator[str]:
    place = {(leaf.compute.stage, n): k for k, leaf in enumerate(found) for n in leaf.compute.definitions}
    stages = graph.by_name
    for s in graph.stages:
        places = [place[s.name, n] for n in range(len(s.definitions))]
        used = [
            (name, at)
            for d, at in zip(s.definitions, places, strict=True)
            for name in d.sources
            if name in stages and name != s.name
        ]
        late = sorted(name for name, at in used if place[name, len(stages[name].definitions) - 1] > at)
        if late:
            yield f"compute {s.name}: it comes before {late[0]}, which it reads"
        elif places != sorted(places):
            yield f"compute {s.name}: its definitions are computed in their order"


def _sites(found: list[Leaf], graph: Graph) -> Iterator[str]:
    """A stage is computed where all that reads it is."""
    by_stage: dict[str, list[Leaf]] = {}
    for leaf in found:
        by_stage.setdefault(leaf.compute.stage, []).append(leaf)
    # not looked for among all of a reader's, which may have one for each of a thousand updates
    reading: dict[tuple[str, str], list[Leaf]] = {}
    for leaf in found:
        parts = graph.stage(leaf.compute.stage).definitions
        for name in frozenset[str]().union(*(parts[n].sources for n in leaf.compute.definitions)):
            reading.setdefault((name, leaf.compute.stage), []).append(leaf)
    consumers = graph.consumers()
    for name, own in by_stage.items():
        site = own[0].path[: own[0].site]
        if any(leaf.path[: leaf.site] != site for leaf in own):
            yield f"compute {name}: its definitions are computed at different places"
            continue
        store = next(k for k, x in enumerate(own[0].path) if isinstance(x, Store) and x.stage == name)
        for consumer in consumers[name]:
            for leaf in reading.get((name, consumer), ()):
                if leaf.path[: len(site)] != site:
                    yield f"compute {name}: {consumer} reads it, but is not computed inside the same loops"
                elif any(isinstance(x, Loop) for x in site) and own[0].path[: store + 1] != leaf.path[: store + 1]:
                    yield f"store {name}: {consumer} reads it outside of that"


def _in_loops(found: list[Leaf], graph: Graph) -> Iterator[str]:
    """A stage is computed, and kept, in loops that run: not between the copies of a body, or the lanes of a vector."""
    for leaf in found:
        name = leaf.compute.stage
        for x in leaf.path[: leaf.site]:
            if isinstance(x, Loop) and LOOP_KINDS[x.kind].is_straight_line:
                yield f"compute {name}: it is not computed inside {loop_name(x)}, which has no iterations at run time"
        store = next(k for k, x in enumerate(leaf.path) if isinstance(x, Store) and x.stage == name)
        if any(isinstance(x, Loop) and LOOP_KINDS[x.kind].is_straight_line for x in leaf.path[store + 1 : leaf.site]):
            yield f"store {name}: between its storage and where it is computed are only serial loops"


# rules of each leaf alone, which the loops around others do not matter for
LOOP_RULES = ("nesting", "dimensions", "loop kinds", "tails", "reductions", "sites in loops")
# those that ask nothing of other leaves, either
NEST_RULES = frozenset((*LOOP_RULES, "own loops", "computed together", "prefetches", "code size"))
RULES: Mapping[str, Rule] = {  # in this order: later ones rely on earlier ones
    "known stages": _known_stages,
    "own loops": _own_loops,
    "computed once": _each_once,
    "computed together": _groups,
    "storage": _stored,
    "nesting": _nested,
    "dimensions": _dimensions,
    "loop kinds": _loop_kinds,
    "tails": _tails,
    "reductions": _reductions,
    "sites in loops": _in_loops,
    "order": _order,
    "sites": _sites,
    "prefetches": _prefetches,
    "code size": _code,
}
