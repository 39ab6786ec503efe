"""Each rule of the loop IR is broken by hand-made loops, and named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hjit.errors import CompileError
from hjit.kernels.lower.check import ALL, RULES, check_loop_ir
from hjit.kernels.lower.loopir import (
    Barrier,
    Block,
    CombineLanes,
    CombineThreads,
    CommitCopies,
    CopyAsync,
    Declare,
    For,
    Item,
    Let,
    Name,
    Outlined,
    Reduce,
    ReductionLoop,
    Register,
    ResetWindow,
    Row,
    Scan,
    ScanThreads,
    Set,
    SlidingProduce,
    Stmt,
    Store,
    ThreadLoop,
    Threads,
    VectorLoop,
    Vectors,
    WaitForCopies,
)
from hjit.kernels.lower.program import Buffer, Nest, Program
from hjit.sched.language.memory import C_ORDER
from hjit.trace.ir.expressions import Const, Load
from hjit.trace.ir.poly import Dim, Poly, Var, poly
from tests.trace.test_canonical import canonical

F4 = np.dtype("f4")
GRAPH = canonical(lambda a: a * 2, np.ones((40, 50), F4))
(IN,), (OUT,) = [i.name for i in GRAPH.inputs], GRAPH.outputs
X, N = Var("x"), poly(9)
x, ONE = poly(X), Const(1, F4)
R, WIDE = Register("r", F4), Register("w", F4)
NOTHING = Block(())


def put(*index: Poly, buffer: str = OUT, value: object = ONE) -> Block:
    return Block((Store(buffer, index or (x, x), value),))  # type: ignore[arg-type]


def over(*body: Stmt, step: int = 1, kind: str = "serial") -> For:
    return For(X, poly(0), N, step, body, kind=kind)


def vectors(*body: Stmt, lanes: int = 8) -> Vectors:
    return Vectors(X, lanes, body)


def vector_loop(lanes: int = 8, copies: int = 1, tail: str = "shift_inwards", *body: Stmt) -> VectorLoop:
    return VectorLoop(X, poly(0), N, poly(0), N, lanes, copies, 1, tail, body, ())


def threads(*body: Stmt, end: Poly = N) -> Threads:
    return Threads((ThreadLoop(X, poly(0), end),), body)


def reduce(*loops: ReductionLoop) -> Reduce:
    return Reduce(OUT, "add", (Item((poly(0), poly(0)), ONE, ONE),), loops, F4, F4, False)


SCAN = Scan(OUT, "add", X, poly(0), N, (poly(X), poly(X)), ONE, ONE, F4, F4)
COPY = CopyAsync(OUT, (x, x), Load(IN, (x, x), F4))
BEFORE = ("place_loops",)
BROKEN: dict[str, tuple[tuple[Stmt, ...], tuple[str, ...], str]] = {
    "an index that is not bound": ((put(),), ALL, "bound nowhere around it"),
    "a name that is used before it is made": ((put(x, x), Let(X, N)), ALL, "bound nowhere around it"),
    "a dimension of a definition": ((Let(X, poly(Dim(0))),), ALL, "a dimension of a definition"),
    "a load of another rank": ((over(put(value=Load(IN, (x,), F4))),), ALL, "no load of the Graph's arrays"),
    "a store to what is not computed": ((over(put(x, x, buffer=IN)),), ALL, "which it does not compute"),
    "a store of another rank": ((over(put(x)),), ALL, "1 indices of"),
    "a row of what is not stored": ((over(Block((), rows=(Row(OUT, (x, x), 4),))),), ALL, "not all read or written"),
    "a row of one": ((over(Block(put(x, x).stores, rows=(Row(OUT, (x, x), 1),))),), ALL, "1 elements from"),
    "rows too early": ((over(Block((), rows=(Row(OUT, (x, x), 4),))),), BEFORE, "rows before widen_accesses"),
    "a loop that stands still": ((over(NOTHING, step=0),), ALL, "has the step 0"),
    "a loop that is unrolled": ((over(NOTHING, kind="unroll"),), ALL, "still unrolled"),
    "a register that is not declared": ((over(put(value=R)),), ALL, "declared nowhere"),
    "a register that is set elsewhere": ((Block((), (), (Set(R, ONE),)),), ALL, "declared nowhere around"),
    "a register of another function": ((Declare(R, ONE), Outlined((over(put(value=R)),))), ALL, "declared nowhere"),
    "vectors without a loop": ((vectors(NOTHING),), ALL, "over which there is no loop"),
    "vectors in vectors": ((over(vectors(vectors(NOTHING))),), ALL, "in vectors along"),
    "a vector of one lane": ((over(vectors(NOTHING, lanes=1)),), ALL, "have 1 lanes"),
    "a vector loop of no copies": ((vector_loop(8, 0),), BEFORE, "0 copies"),
    "a tail that there is not": ((vector_loop(8, 1, "wrap"),), BEFORE, "tail wrap"),
    "a vector loop that is left": ((vector_loop(),), ALL, "still is a VectorLoop after vectorize"),
    "a reduction that is left": ((reduce(ReductionLoop(X, poly(0), N)),), ALL, "still is a Reduce"),
    "a reduction without loops": ((reduce(),), BEFORE, "of vectors is the innermost only"),
    "a name before there are any": ((Name(R, ONE),), BEFORE, "a Name before hoist_invariants"),
    "lanes of registers that there are not": ((CombineLanes("add", (WIDE,), (R,)),), ALL, "are combined into"),
    "threads without blocks": ((threads(put()),), ALL, "no blocks of them"),
    "blocks: a thread that waits": ((threads(Barrier()),), ALL, "waits for others, which may not come"),
    "blocks: threads that run differently far": ((Let(X, N), threads(put(), end=x)), ALL, "differs among them"),
    "blocks: threads that share nothing out": ((over(put(), kind="gpu_thread"),), ALL, "not shared out"),
    "blocks: registers of others alone": ((Declare(R, ONE), CombineThreads((R,), (), (ONE,))), ALL, "threads combine"),
    "a scan without blocks": ((SCAN,), BEFORE, "but there are no blocks of them"),
    "blocks: a scan that is left": ((SCAN,), ALL, "still is a Scan after block_scans"),
    "blocks: a scan of another rank": ((replace(SCAN, index=(x,)),), BEFORE, "1 indices of"),
    "blocks: a scan of registers that there are not": ((ScanThreads("add", (R,), R),), ALL, "is declared nowhere around"),
    "blocks: threads that scan nothing": ((Declare(R, ONE), ScanThreads("add", (), R)), ALL, "0 warps scan"),
    "blocks: a thread that waits for copies": ((threads(WaitForCopies(0)),), ALL, "waits for others, which may not"),
    "blocks: a copy to memory of the device": ((over(COPY),), ALL, "not from the device's memory to that of the block"),
    "a wait without blocks": ((WaitForCopies(0),), ALL, "waits for copies that there are not"),
    "blocks: a wait for less than all": ((WaitForCopies(-1),), ALL, "waits for copies that there are not"),
    "a group without blocks": ((CommitCopies(),), ALL, "waits for copies that there are not"),
    "a copy before there are any": ((over(COPY),), ("distribute_threads",), "a CopyAsync before copy_async"),
    "a barrier before there are any": ((Barrier(),), ("distribute_threads",), "a Barrier before insert_barriers"),
    "a window of no buffer": ((ResetWindow(OUT), SlidingProduce(OUT, X, poly(0), N, ())), ALL, "has no buffer"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_named(case: str) -> None:
    body, done, message = BROKEN[case]
    program = Program((Nest(OUT, body, None, poly(1), (OUT,), blocks=case.startswith("blocks:")),))
    with pytest.raises(CompileError, match=message):
        check_loop_ir(program, GRAPH, done)


def test_every_kind_of_statement_with_rules_is_broken() -> None:
    def inside(s: Stmt) -> set[type]:
        return {type(s)} | {t for part in getattr(s, "body", ()) for t in inside(part)}

    assert set(RULES) <= {t for body, _, _ in BROKEN.values() for s in body for t in inside(s)}


def test_well_formed_blocks_of_threads_pass() -> None:
    other = Register("r.other", F4)
    sums = threads(Block((), (), (Set(R, Load(IN, (x, x), F4)),)))
    body = (Declare(R, ONE), sums, CombineThreads((R,), (other,), (other,)), Threads((), (put(N, N, value=R),)))
    check_loop_ir(Program((Nest(OUT, body, poly(1), poly(1), (OUT,), blocks=True),)), GRAPH)


def test_memory_of_no_stage_comes_with_the_pass_that_makes_it() -> None:
    own = Buffer("copy", (poly(0),), (N,), C_ORDER, shared=True, dtype=F4)
    program = Program((Nest(OUT, (put(N, buffer="copy"),), poly(1), poly(1), (OUT,), {"copy": own}, blocks=True),))
    check_loop_ir(program, GRAPH)
    with pytest.raises(CompileError, match="the buffer copy is no stage"):
        check_loop_ir(program, GRAPH, ("distribute_threads",))


@pytest.mark.parametrize("owner", ["nothing", "lent", "private"])
def test_a_buffer_is_in_the_memory_of_one_that_has_its_own(owner: str) -> None:
    """One of the block, too, and not itself in that of another one."""

    def checked(memory: str) -> None:
        shared = Buffer(OUT, (poly(0), poly(0)), (N, N), C_ORDER, shared=True)
        buffers = {OUT: shared, "lent": replace(shared, memory=OUT), "private": replace(shared, shared=False)}
        names = {x: Buffer(x, (), (), C_ORDER, b.fold, b.shared, F4, b.memory) for x, b in buffers.items() if x != OUT}
        buffers = {OUT: shared, **names, "last": Buffer("last", (), (), C_ORDER, shared=True, dtype=F4, memory=memory)}
        check_loop_ir(Program((Nest(OUT, (), poly(1), poly(1), (OUT,), buffers, blocks=True),)), GRAPH)

    with pytest.raises(CompileError, match=f"the buffer last is in the memory of {owner}, which is none for it"):
        checked(owner)
    checked(OUT)


@pytest.mark.parametrize("dtype, shared", [("f4", True), ("f4", False), ("f8", True)])
def test_copies_are_to_shared_memory_and_of_its_dtype(dtype: str, shared: bool) -> None:
    memory = Buffer(OUT, (poly(0), poly(0)), (N, N), C_ORDER, shared=shared)
    body = (over(replace(COPY, load=Load(IN, (x, x), np.dtype(dtype)))), CommitCopies(), WaitForCopies(0))
    program = Program((Nest(OUT, body, poly(1), poly(1), (OUT,), {OUT: memory}, blocks=True),))
    if dtype == "f4" and shared:
        check_loop_ir(program, GRAPH)
        return
    with pytest.raises(CompileError, match="is copied to"):
        check_loop_ir(program, GRAPH)


def test_well_formed_loops_pass() -> None:
    body = (Declare(WIDE, ONE, 8), over(vectors(Block((), (), (Set(WIDE, ONE),))), step=8), Declare(R, ONE))
    body += (CombineLanes("add", (WIDE,), (R,)), over(put(value=R)))
    check_loop_ir(Program((Nest(OUT, body, None, poly(1), (OUT,)),)), GRAPH)


def test_only_what_a_pass_changed_is_looked_at() -> None:
    """Where it forbids more than before, also what it did not change."""
    unrolled = Program((Nest(OUT, (over(put(), kind="unroll"),), None, poly(1), (OUT,)),))
    check_loop_ir(unrolled, GRAPH, ("place_loops",))
    with pytest.raises(CompileError, match="after unroll_and_jam: .* still unrolled"):
        check_loop_ir(unrolled, GRAPH, ("place_loops", "unroll_and_jam"), unrolled)
    broken = Program((Nest(OUT, (put(x),), None, poly(1), (OUT,)),))
    check_loop_ir(broken, GRAPH, ("place_loops", "outline"), broken)
    with pytest.raises(CompileError, match="nest"):
        check_loop_ir(broken, GRAPH, ("place_loops", "outline"), unrolled)
