"""The applications' kernels, by default schedules and by those by hand: barriers are in uniform flow, no two threads race
for an element, and none is outside of its buffer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

import hjit
from benchmarks import apps
from benchmarks.gpu.candidates import schedule_file
from benchmarks.gpu.suite import LAYOUTS
from benchmarks.rows import problem
from hjit.errors import CompileError
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.cuda.runtime import inspection
from hjit.kernels.lower.loopir import (
    BEGIN,
    Barrier,
    Block,
    Choose,
    CombineThreads,
    Declare,
    For,
    If,
    Let,
    Name,
    Register,
    ScanThreads,
    Set,
    SlidingProduce,
    Stmt,
    Store,
    ThreadLoop,
    Threads,
)
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes import insert_barriers
from hjit.kernels.lower.program import Buffer, Nest, Program
from hjit.kernels.lower.uniform import RULE, check_uniform, is_barrier, not_uniform
from hjit.sched.hand.directives import Directive
from hjit.sched.language.memory import C_ORDER
from hjit.trace.ir.expressions import Const, Load
from hjit.trace.ir.poly import Indirect, Poly, Sym, Var, poly
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.races import races
from tests.kernels.cuda.test_blocks import RACES, SIZES, loops
from tests.trace.test_canonical import canonical

LONG = {("stencil_chain", False), ("stencil_chain", True), ("nl_means", False)}  # each runs its blocks for many seconds
I4 = np.dtype("i4")
A, B, T = Var("a"), Var("b"), Var("t")
a, b, t, n = poly(A), poly(B), poly(T), poly(Sym("img.0"))
MINE, TOTAL = Register("mine", I4), Register("total", I4)


def cases() -> list[Any]:
    """Applications, layouts, and whether the schedule is by hand."""
    found = []
    for app in apps.NAMES:
        for layout in LAYOUTS:
            by_hand = [False, True] if schedule_file(app, layout).exists() else [False]
            for x in by_hand if layout == "planar" or hasattr(apps.load(app), layout) else ():
                found.append(pytest.param(app, layout, x, marks=[pytest.mark.slow] if (app, x) in LONG else []))
    return found


@pytest.mark.parametrize(("app", "layout", "by_hand"), cases())
def test_applications_have_no_races(app: str, layout: str, by_hand: bool) -> None:
    p = problem(app, layout, small=True)
    assert p is not None
    f: Any = hjit.pipeline(p.function, target="cuda", verify="off", cache="off", blas=False)
    if by_hand:
        f.use(hjit.Schedule.load(schedule_file(app, layout)))
    kernels = list(f._device_kernels(p.arguments, {}))
    assert kernels
    for bound in kernels:
        program = inspection.of(bound).program
        assert list(races(program, bound.sizes, blocks=1)) == []
        assert [x for nest in program.nests for x in not_uniform(nest)] == []


def test_what_is_outside_of_a_buffer_is_reported() -> None:
    _, program = loops(*RACES["windows"])
    (nest,) = program.nests
    assert not list(races(program, SIZES))
    for name, x in nest.buffers.items():
        shorter = replace(x, lengths=(x.lengths[0], x.lengths[1] - 1))
        broken = Program((replace(nest, buffers={**nest.buffers, name: shorter}),), program.layouts)
        assert any(f"elements of {name}" in fault for fault in races(broken, SIZES))


# -- barriers in uniform flow only


def nest(*body: Stmt) -> Nest:
    return Nest("out", body, poly(4), poly(1), writes=("out",), blocks=True, threads=64)


def each(*body: Stmt) -> Threads:
    return Threads((ThreadLoop(T, poly(0), n),), body)


def over(end: Poly, *body: Stmt) -> For:
    return For(A, poly(0), end, 1, body)


def element(array: str, index: Poly) -> Poly:
    return poly(Indirect(Load(array, (index,), I4), None))


def combined(lanes: int = 0) -> CombineThreads:
    return CombineThreads((MINE,), (TOTAL,), (MINE,), lanes)


UNIFORM: dict[str, tuple[Stmt, ...]] = {
    "the block": (Barrier(),),
    "a branch on the block and on sizes": (If(poly(BEGIN) - n, (Barrier(),), (Barrier(),)),),
    "a loop over a size": (over(n, Barrier()),),
    "names that follow from them": (Let(A, poly(BEGIN) * 2), Choose(B, a - n, a, n), If(b, (Barrier(),))),
    "an argument's element": (If(element("img", poly(BEGIN)), (Barrier(),)),),
    "a window of the block": (SlidingProduce("p", A, poly(0), n, (over(n - a, Barrier()),)),),
    "a scan's total": (ScanThreads("add", (MINE,), TOTAL), If(poly(Indirect(TOTAL, None)), (Barrier(),))),
    "a named value": (Name(TOTAL, Load("img", (n - 1,), I4)), If(poly(Indirect(TOTAL, None)), (Barrier(),))),
}
NOT_UNIFORM: dict[str, tuple[str, tuple[Stmt, ...]]] = {
    "threads": ("a Barrier in the loop over t", (each(Barrier()),)),
    "one thread": ("a Barrier in what one thread runs", (Threads((), (Barrier(),)),)),
    "a branch of threads": ("a Barrier in the loop over t", (each(If(t - 3, (Barrier(),))),)),
    "a branch on a thread's name": ("a Barrier in the branch on a", (each(Let(A, t)), If(a, (Barrier(),)))),
    "the other branch": ("a Barrier in the branch on t", (each(), If(t, (), (Barrier(),)))),
    "a loop as long as a thread's index": ("a Barrier in the loop over a", (each(), over(t, Barrier()))),
    "what follows from it": ("a Barrier in the loop over a", (each(), over(t, Let(B, poly(1)), If(b, (Barrier(),))))),
    "its own result": ("a Barrier in the branch on", (If(element("out", poly(BEGIN)), (Barrier(),)),)),
    "an element at a thread's index": ("a Barrier in the branch on", (each(), If(element("img", t), (Barrier(),)))),
    "a thread's register": (
        "a Barrier in the branch on",
        (Declare(MINE, Const(0, I4)), If(poly(Indirect(MINE, None)), (Barrier(),))),
    ),
    "a window of a thread": (
        "a Barrier in what is new of p",
        (each(SlidingProduce("p", B, poly(0), n, ())), SlidingProduce("p", A, poly(0), n, (Barrier(),))),
    ),
    "combined": ("a CombineThreads in the branch on t", (each(), If(t, (combined(),)))),
    "combined by shuffles": ("a CombineThreads in the branch on t", (each(), If(t, (combined(8),)))),
    "scanned": ("a ScanThreads in the branch on t", (each(), If(t, (ScanThreads("add", (MINE,), TOTAL),)))),
}


@pytest.mark.parametrize("case", UNIFORM)
def test_barriers_in_uniform_flow_are_allowed(case: str) -> None:
    check_uniform(nest(*UNIFORM[case]))


@pytest.mark.parametrize("case", NOT_UNIFORM)
def test_barriers_that_not_all_threads_come_to_are_refused(case: str) -> None:
    what, body = NOT_UNIFORM[case]
    with pytest.raises(CompileError, match=RULE) as raised:
        check_uniform(nest(*body))
    assert what in str(raised.value)


@pytest.mark.parametrize("threads", [32, 64])
def test_reductions_of_one_warp_are_no_barriers(threads: int) -> None:
    """They are shuffles alone, which do not order memory: the next iteration overwrites what this one reads."""
    row = Buffer("row", (poly(0),), (poly(64),), C_ORDER, shared=True)
    loaded = Block((Store("row", (t,), Load("img", (t + a,), I4)),))
    read = Block((), sets=(Set(MINE, Load("row", (n - 1 - t,), I4)),))
    body = (Declare(MINE, Const(0, I4)), over(n, each(loaded), each(read), combined()))
    given, no_graph = replace(nest(*body), buffers={"row": row}, threads=threads), cast(Any, None)
    found = insert_barriers.insert_barriers(given, no_graph, Machine())
    (loop,) = (s for s in found.body if isinstance(s, For))
    is_waiting = [isinstance(s, Barrier) for s in loop.body]
    assert is_waiting == ([True, False, True, False, False] if threads == 32 else [False, True, False, False])


WAITING: dict[str, Stmt] = {
    "combined": combined(),
    "combined by lanes": combined(8),
    "scanned": ScanThreads("add", (MINE,), TOTAL),
    "a barrier": Barrier(),
}


@pytest.mark.parametrize("threads", [32, 64, 256])
@pytest.mark.parametrize("name", WAITING)
def test_what_counts_as_a_barrier_is_one_in_the_text(name: str, threads: int) -> None:
    """All threads reach it, after what is before the statement and before what is after it."""
    graph = canonical(lambda x: x + 1, np.zeros(300, I4))
    (out,) = graph.outputs
    before, after = (each(Block((Store(out, (t + k,), Const(k, I4)),))) for k in (1, 2))
    body = (Declare(MINE, Const(0, I4)), Declare(TOTAL, Const(0, I4)), before, WAITING[name], after)
    kernel = replace(nest(*body), stage=out, writes=(out,), threads=threads)
    text = emit_module(graph, Program((kernel,)), "hj_waiting").text
    first, second = (text.index(f"] = {k};") for k in (1, 2))
    is_waiting = re.search(r"^    HJ_BARRIER\(\);", text[first:second], re.MULTILINE) is not None
    assert is_waiting == is_barrier(WAITING[name], threads)
    assert is_waiting == ("HJ_BARRIER" in text)


def test_every_lowered_kernel_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where HJIT_CHECK does not ask for the other rules."""
    monkeypatch.setenv("HJIT_CHECK", "0")
    monkeypatch.setattr(insert_barriers._Barriers, "wait", lambda self, body, since: ())

    def inside(self: Any, s: Stmt, since: Any) -> Any:
        return ((replace(s, body=(Barrier(), *s.body)),) if isinstance(s, Threads) else (s,)), since

    monkeypatch.setattr(insert_barriers._Barriers, "visit", inside)
    with pytest.raises(CompileError, match=RULE):
        loops(*RACES["two stages"])


@needs_device
def test_branches_around_many_barriers_are_numpys(on_device: None) -> None:
    shifted_inwards("x")


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("axes", ["y", "yx"])
def test_branches_of_branches_with_barriers_are_numpys(axes: str, on_device: None) -> None:
    shifted_inwards(axes)


def shifted_inwards(axes: str) -> None:
    """camera_pipe by hand, its tiles shifted inwards: images smaller than a tile have a branch of their own."""
    p = problem("camera_pipe", "planar", small=True)
    assert p is not None
    s = hjit.Schedule(
        None, [_shifted(x, axes) for x in hjit.Schedule.load(schedule_file("camera_pipe", "planar")).directives]
    )
    f: Any = hjit.pipeline(p.function, target="cuda", verify="off", cache="off", blas=False)
    f.use(s)
    raw, *others = p.arguments
    for image in (raw, raw[:, :60].copy(), raw[:70].copy()):
        np.testing.assert_array_equal(f(image, *others), p.function(image, *others))
    assert f.stats.fallbacks == 0


def _shifted(x: Directive, axes: str) -> Directive:
    """A directive; a split of the axes shifts the last tile inwards."""
    stage, group, word, args = x
    return (stage, group, word, (*args, "shift_inwards")) if word == "split" and args[0] in axes else x
