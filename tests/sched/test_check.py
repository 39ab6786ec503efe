"""Each rule of a legal tree is broken by some tree, which the rules before it let pass; `HJIT_CHECK=1` looks after each transform."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from hjit.errors import ScheduleError
from hjit.sched.language import kinds, transforms
from hjit.sched.language.check import LOOP_RULES, MEMORY_RULES, RULES, check_loops, check_tree, faults
from hjit.sched.language.loop_rules import LOOP_KIND_RULES
from hjit.sched.language.tree import Compute, Loop, Node, Root, Store
from hjit.trace.ir.graph import Graph
from tests.sched.examples import GRAPHS, IMAGE, TREES, H, W, X, Y, add, at, graph, stage, tree

LONG = graph([IMAGE], stage("out", (H, W), add(*(at("img", Y, X + k) for k in range(20)))))


def of(nodes: str) -> Root:
    """The tree of nodes inside one another."""
    return tree("\n".join("  " * k + x for k, x in enumerate(nodes.split(" > "))))


def serial(stage: str, dim: int, *inside: Node) -> Loop:
    """A loop around other nodes."""
    return Loop(stage, dim, "serial", None, inside)


def nest(stage: str, *inside: Node, last: Compute | None = None) -> Loop:
    """Serial loops over two dimensions around a computation of the stage, with other nodes in the outer one."""
    return serial(stage, 0, *inside, serial(stage, 1, last or Compute(stage, (0,))))


def ahead(source: str, dim: int) -> Root:
    """A stage that prefetches."""
    return Root((Store("out", (nest("out", last=Compute("out", (0,), ((source, dim, 1),))),)),))


OUT, ROWS = Store("out", (nest("out"),)), Store("rows", (nest("rows"),))
UNROLLED = Loop("out", 1, "unroll", 4, (ROWS, Compute("out", (0,))))
THREADS = Loop("rows", 0, "gpu_thread", None, (serial("rows", 1, Compute("rows", (0,))),))
IN_THREADS = Loop("out", 0, "gpu_thread", None, (Store("rows", (THREADS,)), serial("out", 1, Compute("out", (0,)))))
INTERRUPTED = serial("b", 0, serial("a", 0, serial("b", 1, serial("a", 1, Compute("a", (0,))), Compute("b", (0,)))))


# rule -> Graph, tree, what is said of it
BROKEN: dict[str, list[tuple[str | Graph, str | Root, str]]] = {
    "known stages": [
        ("point", "store nothing > serial out.d0 > serial out.d1 > compute out", "store nothing: there is no such stage"),
        ("point", "store out > serial no.d0 > serial out.d1 > compute out", "serial no.d0: there is no such stage"),
        ("point", "store out > serial out.d0 > serial out.d1 > compute no", "compute no: there is no such stage"),
        ("point", "store out > serial out.d0 > serial out.d1 > compute out 1", "it has 1 definitions"),
    ],
    "own loops": [
        ("rows", Root((Store("out", (Store("rows", (nest("out"),)),)), ROWS)), "the stage is not computed inside it"),
    ],
    "computed once": [
        ("rows", "store out > serial out.d0 > serial out.d1 > compute out", "every definition is computed once: rows 0 is not"),
    ],
    "computed together": [
        ("updated", Root((Store("both", (nest("both", last=Compute("both", (0, 1))),)), OUT)), "only adjacent interleaved updates"),
    ],
    "storage": [
        ("point", "serial out.d0 > serial out.d1 > compute out", "its storage is not around it"),
        ("point", "store out > store out > serial out.d0 > serial out.d1 > compute out", "it is stored twice"),
        ("rows", Root((Store("out", (Loop("out", 0, "gpu_block", None, (Store("rows", (Loop("out", 1, "gpu_thread", None, (nest("rows"), Compute("out", (0,)))),)),)),)),)), "threads compute parts of it"),
        ("rows", Root((Store("out", (Store("rows", (Loop("out", 0, "gpu_block", None, (nest("rows"), serial("out", 1, Compute("out", (0,))))),)),)),)), "blocks compute parts of it"),
        ("point", "store out, shared > serial out.d0 > serial out.d1 > compute out", "only what is kept inside loops over blocks is in shared memory"),
        ("point", "store out, register > serial out.d0 > serial out.d1 > compute out", "only what is kept inside loops over threads is in registers"),
        ("point", "store out in order 1, 0 > serial out.d0 > serial out.d1 > compute out", "it is a result, so it is in C order"),
    ],
    "nesting": [
        ("chain", Root((Store("a", (Store("b", (INTERRUPTED,)),)), OUT)), "it lies inside loops of a, which lie inside loops of b"),
    ],
    "dimensions": [
        ("point", "store out > serial out.d0 > compute out", "the loops around it run over"),
        ("point", "store out > serial out.d0 of 4 > serial out.d0 > serial out.d1 > compute out", "there is no outer loop over d0"),
        ("point", "store out > serial out.d0 > serial out.d1 > serial out.d1 of 8 > serial out.d1 of 3 > compute out", "does not divide 8"),
        ("product", "store out > serial out.d0.d2 > serial out.d1 > compute out 0, 1", "only adjacent dimensions are fused"),
        ("product", "store out > serial out.d0 > serial out.d1.d2 > compute out 0, 1", "reduction dimensions are not fused"),
    ],
    "loop kinds": [
        ("point", "store out > serial out.d0 > parallel out.d1 > compute out", "only the outermost loops of a root are parallel"),
        ("point", "store out > gpu_thread out.d0 > gpu_block out.d1 > compute out", "only the outermost loops of a root are gpu_block"),
        ("point", "store out > parallel out.d0 > gpu_thread out.d1 > compute out", "of which each iteration is a thread"),
        ("point", "store out > gpu_block out.d0 > gpu_thread out.d1 > serial out.d0 of 4 > gpu_thread out.d1 of 2 > compute out", "directly inside each other"),
        ("product", "store out > gpu_thread out.d0 > gpu_block out.d1 > gpu_thread out.d2 > compute out 0, 1", "not both"),
        ("rows", Root((Store("out", (IN_THREADS,)),)), "where each thread runs alone"),
        ("point", "store out > gpu_block out.d0 > gpu_lane out.d1 > compute out", "a power of two of iterations, at most 32"),
        ("product", "store out > gpu_block out.d0 > gpu_block out.d1 > serial out.d2 > gpu_lane out.d2 of 12 > compute out 0, 1", "a power of two of iterations"),
        ("point", "store out > gpu_block out.d1 > serial out.d0 > gpu_lane out.d1 of 8 > gpu_thread out.d0 of 4 > compute out", "lanes are the last of the loops over threads"),
        ("product", "store out > gpu_block out.d0 > gpu_block out.d1 > gpu_thread out.d2 > gpu_lane out.d2 of 8 > compute out 0, 1", "lanes interleave along a reduction"),
        ("product", "store out > gpu_thread out.d0 > gpu_thread out.d1 > serial out.d2 > gpu_lane out.d2 of 8 > compute out 0, 1", "loops over threads around it have sizes"),
        ("point", "store out > parallel out.d0 > parallel out.d0 of 4 > serial out.d1 > compute out", "only the loop over all of a dimension is parallel"),
        ("product", "store out > parallel out.d2 > serial out.d0 > serial out.d1 > compute out 0, 1", "iterations of a reduction write the same elements"),
        ("point", "store out > serial out.d0 > vector out.d1 > compute out", "a vector loop has a size"),
        ("point", "store out > serial out.d0 > serial out.d1 > vector out.d1 of 8 > serial out.d1 of 4 > compute out", "there is another loop over d1 inside it"),
        ("point", "store out > serial out.d0 > serial out.d1 > vector out.d0 of 8 > vector out.d1 of 8 > compute out", "only one dimension runs along the lanes"),
        ("point", "store out > serial out.d0 > unroll out.d1 > compute out", "only a loop of a known length is unrolled"),
        ("point", "store out > serial out.d0 > serial out.d1 > unroll out.d0 of 32 > unroll out.d1 of 32 > vector out.d1 of 2 > compute out", "512 copies of the body"),
    ],
    "tails": [
        ("point", "store out > serial out.d0, predicate > serial out.d1 > compute out", "only an inner loop has a tail"),
        ("point", "store out > serial out.d0 > serial out.d1 > serial out.d1 of 8, predicate > compute out", "only lanes of a vector do nothing"),
        ("point", "store out > serial out.d0 > serial out.d1 > serial out.d1 of 8, round_up > compute out", "is rounded up"),
    ],
    "reductions": [
        ("product", "store out > serial out.d0 > serial out.d2 > serial out.d1 > compute out 0, 1", "it is unrolled or a vector"),
    ],
    "sites in loops": [
        ("rows", Root((Store("out", (serial("out", 0, serial("out", 1, UNROLLED)),)),)), "has no iterations at run time"),
    ],
    "order": [
        ("rows", Root((OUT, ROWS)), "it comes before rows, which it reads"),
    ],
    "sites": [
        ("chain", Root((Store("b", (nest("b", Store("a", (nest("a"),))),)), OUT)), "out reads it, but is not computed inside the same loops"),
    ],
    "prefetches": [
        ("point", ahead("elsewhere", 0), "it does not read elsewhere, which it prefetches"),
        ("point", ahead("img", 7), "it prefetches along d7"),
    ],
    "code size": [
        (LONG, "store out > serial out.d0 > serial out.d1 > unroll out.d0 of 256 > vector out.d1 of 256 > compute out", "code for more than"),
    ],
}  # fmt: skip


CASES = [(rule, *case) for rule, cases in BROKEN.items() for case in cases]


@pytest.mark.parametrize(("rule", "name", "nodes", "why"), CASES, ids=[f"{rule}: {why}" for rule, *_, why in CASES])
def test_each_rule_is_broken_by_a_tree(rule: str, name: str | Graph, nodes: str | Root, why: str) -> None:
    g, root = GRAPHS[name] if isinstance(name, str) else name, of(nodes) if isinstance(nodes, str) else nodes
    found = list(faults(root, g))
    assert {r for r, _ in found} == {rule}
    assert any(why in fault for _, fault in found)
    with pytest.raises(ScheduleError):
        check_tree(root, g)


def test_copies_of_a_body_are_counted_by_what_one_iteration_has() -> None:
    nodes = "store out > serial out.d0 > serial out.d1 > unroll out.d0 of 32 > unroll out.d1 of 16 > serial out.d0 of 2"
    assert list(faults(of(nodes + " > compute out"), GRAPHS["point"])) == []  # 16 x 16


def test_every_rule_has_such_a_tree() -> None:
    assert BROKEN.keys() == RULES.keys()
    assert set(LOOP_RULES) <= RULES.keys()


@pytest.mark.parametrize("name", TREES)
def test_legal_trees_break_none(name: str) -> None:
    of_graph, text = TREES[name]
    assert list(faults(tree(text), GRAPHS[of_graph])) == []


def test_every_kind_has_its_word_its_row_and_its_rule() -> None:
    assert set(get_args(kinds.LoopKind)) == kinds.LOOP_KINDS.keys() == LOOP_KIND_RULES.keys()
    assert set(get_args(kinds.Memory)) == kinds.MEMORY_LEVELS.keys() == MEMORY_RULES.keys()
    assert set(get_args(kinds.TargetKind)) == kinds.TARGET_KINDS.keys()
    for target in kinds.TARGET_KINDS.values():
        assert set(target.loops) <= kinds.LOOP_KINDS.keys() and set(target.memory) <= kinds.MEMORY_LEVELS.keys()


def test_loops_and_memory_are_those_of_the_target() -> None:
    on_gpu = of("store out > gpu_block out.d0 > gpu_thread out.d1 > compute out")
    check_tree(on_gpu, GRAPHS["point"], "cuda")
    with pytest.raises(ScheduleError, match="the target cpu has no such loops"):
        check_tree(on_gpu, GRAPHS["point"])
    with pytest.raises(ScheduleError, match="the target cuda has no such loops"):
        check_tree(
            of("store out > serial out.d0 > serial out.d1 > vector out.d1 of 8 > compute out"), GRAPHS["point"], "cuda"
        )
    with pytest.raises(ScheduleError, match="the target cpu has no such memory"):
        check_tree(of("store out, shared > serial out.d0 > serial out.d1 > compute out"), GRAPHS["point"])


def test_memory_of_an_unknown_level_is_refused() -> None:
    root = Root((replace(OUT, memory="tape"),))  # type: ignore[arg-type]
    assert str(root).startswith("root\n  store out, tape\n")
    with pytest.raises(ScheduleError, match="there is no memory 'tape'; there is heap, shared, register"):
        check_tree(root, GRAPHS["point"])


def test_transforms_are_checked_as_a_whole_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = GRAPHS["rows"]
    legal = Root((ROWS, OUT))
    broken = replace(legal, children=legal.children[::-1])  # which `check_loops` does not look at
    monkeypatch.setenv("HJIT_CHECK", "0")
    wrong = transforms.split(broken, rows, (0, 0), 4)
    assert next(faults(wrong, rows))[0] == "order"
    check_loops(wrong, rows, 0)
    monkeypatch.setenv("HJIT_CHECK", "1")
    with pytest.raises(ScheduleError, match="it comes before rows"):
        transforms.split(broken, rows, (0, 0), 4)
