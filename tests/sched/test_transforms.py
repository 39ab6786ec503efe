"""Tree transforms: each legal result computes the same, and the others say why not."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hjit.errors import ScheduleError
from hjit.kernels.lower.lower import lower
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language import transforms
from hjit.sched.language.build import at, path_without, paths, stripped, without
from hjit.sched.language.kinds import LoopKind
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Compute, Loop, Node, Root, Store
from hjit.sched.nests.root_nests import RootNests, root_schedule
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.rewrites import Rewrites
from tests.numpy_check import check
from tests.sched.test_tree import canonical

IMAGE = np.random.default_rng(0).integers(0, 1 << 16, (37, 70)).astype(np.uint16)
KEPT = Rewrites(frozenset({"across", "down", "edges"}))


def program(img: Any) -> Any:
    padded = np.pad(img, 1, mode="reflect")
    across = padded[:, :-2] + padded[:, 1:-1] * 2 + padded[:, 2:]
    down = across[:-2] + across[1:-1] * 2 + across[2:]
    edges = down ^ img
    return edges + across[1:-1]


def moves(root: Root, graph: Graph) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every transform at every place, the impossible ones too."""
    for path, node in paths(root):
        if isinstance(node, Loop):
            yield from ((transforms.split, (path, n)) for n in (2, 8, 32))
            yield from ((transforms.change_type, (path, kind)) for kind in ("serial", "parallel", "unroll", "vector"))
            yield transforms.reorder, (path,)
            yield from ((transforms.resize, (path, n)) for n in (None, 4, 16))
    for s in graph.stages:
        for move in (
            transforms.hoist_compute,
            transforms.lower_compute,
            transforms.hoist_storage,
            transforms.lower_storage,
        ):
            yield move, (s.name,)


class FixedSchedule:
    """Schedules by a tree that was made for the same graph."""

    longest_block = math.inf

    def __init__(self, tree: Root, inlining: Rewrites) -> None:
        self._tree, self._inlining = tree, inlining

    def rewrites(self) -> Rewrites:
        return self._inlining

    def tree(self, graph: Graph, target: Target) -> Root:
        return self._tree


@pytest.mark.parametrize("seed", range(6))
def test_random_walks_keep_the_result(seed: int) -> None:
    rng = random.Random(seed)
    graph = canonical_kept()
    tree = default_schedule(graph, Target(64))
    made = 0
    while made < 12:
        move, args = rng.choice(list(moves(tree, graph)))
        try:
            new = move(tree, graph, *args)
            lower(graph, new)
        except ScheduleError as why:
            assert str(why)
            continue
        made += 1
        tree = new
        if made % 4 == 0:
            check(program, IMAGE, schedule=FixedSchedule(tree, KEPT))


def canonical_kept() -> Graph:
    from hjit.trace.passes.canonical import canonicalise
    from tests.trace.test_canonical import graphs

    return canonicalise(graphs(program, IMAGE)[0], KEPT)


def test_hoisting_takes_back_lowering() -> None:
    graph = canonical_kept()
    tree = root_schedule(graph, Target(64))
    lowered = transforms.lower_compute(tree, graph, "down")
    assert "store down" in str(lowered) and lowered != tree
    again = transforms.hoist_compute(lowered, graph, "down")
    assert [c.stage for c in again.children] == [c.stage for c in tree.children]  # type: ignore[union-attr]
    stored_out = transforms.hoist_storage(lowered, graph, "down")
    assert transforms.lower_storage(stored_out, graph, "down") == lowered


def test_the_body_of_most_copies_is_rolled_from_the_outermost_loop_on() -> None:
    def nest(stage: str, *kinds: LoopKind) -> Store:
        inner = Loop(
            stage,
            0,
            kinds[0],
            8,
            (Loop(stage, 1, kinds[1], 32, (Loop(stage, 1, "vector", 16, (Compute(stage, (0,)),)),)),),
        )
        return Store(stage, (Loop(stage, 0, "parallel", None, (Loop(stage, 1, "serial", None, (inner,)),)),))

    small = Loop("down", 0, "serial", None, (Loop("down", 1, "unroll", None, (Compute("down", (0,)),)),))

    def tree(*kinds: LoopKind, first: Node = small) -> Root:
        return Root((Store("down", (first, *nest("down", *kinds).children)), nest("edges", "unroll", "unroll")))

    whole = tree("unroll", "unroll")
    once = transforms.unroll_less(whole, "down")
    twice = transforms.unroll_less(once, "down")
    assert once == tree("serial", "unroll") and twice == tree("serial", "serial")
    thrice = transforms.unroll_less(twice, "down")
    assert thrice == tree(
        "serial",
        "serial",
        first=Loop("down", 0, "serial", None, (Loop("down", 1, "serial", None, (Compute("down", (0,)),)),)),
    )
    assert transforms.unroll_less(thrice, "down") == thrice


def test_inlining_and_back() -> None:
    graph = canonical_kept()
    tree = root_schedule(graph, Target(64))
    inlined, smaller = transforms.inlined(tree, graph, "down")
    assert "down" not in smaller.by_name and "down" not in str(inlined)
    nests = RootNests(graph, Target(64))["down"]
    assert transforms.computed_at_root(inlined, graph, "down", nests) == tree
    with pytest.raises(ScheduleError, match="computed twice"):
        transforms.computed_at_root(tree, graph, "down", nests)


@pytest.mark.parametrize(
    ("move", "args", "why"),
    [
        (transforms.split, ((), 8), "not a loop"),
        (transforms.hoist_compute, ("nothing",), "no stage"),
        (transforms.lower_compute, ("result",), "result"),
        (transforms.change_type, ((0, 0), "warp"), "no kind"),
    ],
)
def test_what_is_impossible_says_why(move: Any, args: Any, why: str) -> None:
    graph = canonical(lambda img: img + 1, IMAGE)
    tree = default_schedule(graph, Target(64))
    args = tuple(graph.outputs[0] if a == "result" else a for a in args)
    with pytest.raises(ScheduleError, match=why):
        move(tree, graph, *args)


def test_places_are_found_among_loops_that_look_alike() -> None:
    """A loop around another one over the same dimension and of the same size: the inner one has one iteration."""

    def nest(name: str, *inside: Node) -> Node:
        return Loop(
            name,
            0,
            "serial",
            None,
            (Loop(name, 0, "serial", 4, (Loop(name, 0, "unroll", 4, (*inside, Compute(name, (0,)))),)),),
        )

    tree = Root((Store("a", (Store("b", (nest("b"), nest("c", nest("a"), nest("d")))),)), Store("e", (nest("e"),))))
    bare = without(tree, "a")
    for path, node in paths(tree):
        own = [at(tree, path[:k]) for k in range(len(path) + 1)]
        if (
            any(isinstance(x, Loop) and x.stage == "a" for x in own)
            or isinstance(node, Compute)
            or (isinstance(node, Store) and node.stage == "a")
        ):
            continue
        found = at(bare, path_without(tree, "a", path))
        assert found == (bare if isinstance(node, Root) else stripped(node, "a")[0])
    assert path_without(tree, "a", (0,)) == ()
    assert path_without(tree, "a", (0, 0, 1, 0, 0)) == (0, 1, 0, 0)
