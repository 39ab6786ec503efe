"""What each pass of lowering does, as printed loop IR before and after it, in `golden/`: one small example a pass.

``python -m tests.kernels.test_passes`` writes the files anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.lower import lower as lowering
from hjit.kernels.lower.loopir import Block, For, Let, Stmt, Store
from hjit.kernels.lower.lower import COMMON, CPU, CUDA, Pass, lower
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.outlining import MANY
from hjit.kernels.lower.program import Nest, Program
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Root
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Var, poly
from tests.kernels.cuda.running import by_hand
from tests.trace.test_canonical import canonical

GOLDEN = Path(__file__).with_name("golden")
DOCS = Path(__file__).parents[2] / "docs"
IMAGE = np.ones((40, 50), np.float32)
X86 = Machine(64, frozenset({"x86", "avx512"}))
Schedule = Callable[[Any], Any]


def blurred_twice(a: Any) -> Any:
    rows = np.exp(a[:-2] + a[2:])
    return rows[:-2] * rows[2:]


def rolled(a: Any) -> Any:
    return np.roll(a, 20, 1) + np.roll(a, 1, 1)


def padded(a: Any) -> Any:
    p = np.pad(a, 1, mode="edge")
    return p[:-2] + p[2:]


def copied(a: Any) -> Any:
    return a * 2


def columns(a: Any) -> Any:
    return a.max(axis=0)


def running(a: Any) -> Any:
    return np.cumsum(a.astype(np.int32), axis=1)


def gained(a: Any, k: Any) -> Any:
    return a * np.sqrt(k)[:, None]


def blurred(a: Any) -> Any:
    rows = np.exp(a[:-2] + a[2:])
    return rows[:, :-1] * rows[:, 1:]


def four_times(a: Any) -> Any:
    for _ in range(4):
        a = np.exp(a[:-1] - a[1:])
    return a


def smoothed(a: Any) -> Any:
    out = a.copy()
    for x in range(1, a.shape[1]):
        out[:, x] = 0.5 * a[:, x] + 0.5 * out[:, x - 1]
    return out


def shortest(a: Any, b: Any) -> Any:
    return (a[:, :, None] + b[None, :, :]).min(axis=1)


def histogram(a: Any) -> Any:
    return np.bincount(a.ravel(), minlength=256)


def blurred_down(a: Any) -> Any:
    return a[:-2] + a[1:-1] * 2 + a[2:]


def down_strips(s: Any) -> None:
    """Blocks of threads go down strips of columns with a window of the argument in shared memory."""
    (out,) = s.stages
    s[out].split("x", "x", "xi", 32).split("y", "y", "yi", 4).reorder("x", "y", "yi", "xi")
    s[out].gpu_blocks("x").gpu_threads("yi", "xi")
    s.cache_read("a0").compute_at(out, "y").store_at(out, "x")


D0, X, Y = Var("d0"), Var("x"), Var("y")


def row(k: int) -> For:
    put = Store("out", (poly(k), poly(D0)), Load("a", (poly(k + 1), poly(D0)), "f4"))
    return For(D0, poly(0), poly(50), 1, (Block((put,)),))


BY_HAND: dict[str, tuple[Stmt, ...]] = {
    "drop_unused_lets": (Let(X, poly(3)), Let(Y, poly(X) + 1), For(D0, poly(0), poly(X), 1, row(0).body)),
    "outline": tuple(map(row, range(MANY))),
}
EXAMPLES: dict[str, tuple[Any, tuple[Any, ...], Schedule | None]] = {
    "fold_storage": (blurred_twice, (IMAGE,), lambda s: s[s.stages[0]].compute_at(s.stages[1], "y").store_root()),
    "unroll_and_jam": (copied, (IMAGE,), lambda s: s[s.stages[0]].unroll("y", 2).reorder("y", "x", "yu")),
    "split_at_wraps": (rolled, (IMAGE,), None),
    "partition_loops": (padded, (IMAGE,), None),
    "stream_stores": (copied, (IMAGE,), None),
    "vectorize": (copied, (IMAGE,), None),
    "block_reductions": (columns, (IMAGE,), None),
    "replace_scalars": (running, (IMAGE,), None),
    "hoist_invariants": (gained, (IMAGE, IMAGE[:, 0].copy()), None),
}
ON_CUDA: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "distribute_threads": (blurred, (IMAGE,)),
    "insert_barriers": (blurred, (IMAGE,)),
    "share_memory": (four_times, (IMAGE,)),
    "partition_blocks": (padded, (IMAGE,)),
    "widen_accesses": (copied, (IMAGE.astype(np.uint8),)),
    "privatise_scatters": (histogram, (IMAGE.astype(np.uint8),)),
    "block_scans": (running, (IMAGE,)),
    "coalesce_accesses": (smoothed, (IMAGE,)),
    "stage_operands": (shortest, (IMAGE, IMAGE.T.copy())),
}
BY_HAND_ON_CUDA: dict[str, tuple[Any, tuple[Any, ...], Schedule]] = {
    "prefetch_windows": (blurred_down, (IMAGE,), down_strips),
    "copy_async": (blurred_down, (IMAGE,), down_strips),
}


def before_and_after(name: str) -> tuple[str, str]:
    """The loops of an example before and after its pass."""
    if name in BY_HAND:
        graph = canonical(copied, IMAGE)
        nest = Nest("out", BY_HAND[name], None, poly(1), ("out",))
        (run,) = (p for p in CPU if p.__name__ == name)
        return str(Program((nest,))), str(Program((run(nest, graph, X86),)))
    if name in BY_HAND_ON_CUDA:
        function, args, edit = BY_HAND_ON_CUDA[name]
        graph, tree = by_hand(function, edit, *args)
        return around(name, graph, tree, CUDA)
    function, args, edit = EXAMPLES[name] if name in EXAMPLES else (*ON_CUDA[name], None)
    if name in ON_CUDA:
        graph = canonical(function, *args)
        tree = cuda_schedule(graph)
    elif edit is None:
        graph = canonical(function, *args)
        tree = default_schedule(graph, Target(64))
    else:
        pipeline = hjit.pipeline(function, tune=False, cache="off")
        schedule = pipeline.schedule(*args)
        schedule[schedule.stages[-1]].serial("y")
        edit(schedule)
        pipeline.use(schedule)
        graph, tree = pipeline.graph(*args)[0], pipeline.tree(*args)[0]
    return around(name, graph, tree, CUDA if name in ON_CUDA else CPU)


def around(name: str, graph: Graph, tree: Root, passes: Sequence[Pass]) -> tuple[str, str]:
    """The loops before and after a pass."""
    seen: list[tuple[str, str]] = []
    lower(graph, tree, X86, lambda done, program: seen.append((done, str(program))), passes)
    at = next(k for k, (done, _) in enumerate(seen) if done == name)
    return seen[at - 1][1], seen[at][1]


def text_of(name: str) -> str:
    before, after = before_and_after(name)
    return f"-- before {name}\n{before}\n-- after {name}\n{after}\n"


ALL = (*EXAMPLES, *BY_HAND, *ON_CUDA, *BY_HAND_ON_CUDA)


@pytest.mark.parametrize("name", ALL)
def test_a_pass_does_what_was_recorded(name: str) -> None:
    before, after = before_and_after(name)
    assert before != after, "the example shows nothing"
    assert text_of(name) == (GOLDEN / f"{name}.txt").read_text()


def test_every_pass_has_an_example_and_a_line_in_the_list() -> None:
    names = {p.__name__ for p in (*CPU, *CUDA)}
    assert names == {*ALL}
    listed = [line.split()[0] for line in (inspect.getdoc(lowering) or "").splitlines() if line.startswith("    ")]
    assert {*listed} == {"place_loops", *names}
    for passes in (CPU, CUDA):
        in_list = [name for name in listed if name in {p.__name__ for p in passes}]
        assert in_list == [p.__name__ for p in passes], "in another order"
    assert CPU[: len(COMMON)] == CUDA[: len(COMMON)] == COMMON


def test_the_documents_say_what_every_pass_is_for() -> None:
    inside, inside_gpu = ((DOCS / name).read_text() for name in ("inside.md", "inside_gpu.md"))
    assert [p.__name__ for p in CPU if f"`{p.__name__}`" not in inside] == []
    assert [p.__name__ for p in CUDA if p not in CPU and f"`{p.__name__}`" not in inside_gpu] == []


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in ALL:
        (GOLDEN / f"{each}.txt").write_text(text_of(each))
