"""LLVM IR of each statement of the loop IR, and the dispatch tables of `NestEmitter`."""

from __future__ import annotations

from dataclasses import replace

from hjit.kernels.llvm.builder.code import BOOL, I64, Val, const, splat
from hjit.kernels.llvm.memory import gathers, loads, stores, streaming_stores
from hjit.kernels.llvm.nest import indices, outline, registers
from hjit.kernels.llvm.nest.emitter import ATOMS, STATEMENTS, VALUES, NestEmitter, VectorLoop
from hjit.kernels.llvm.nest.state import PairedLoads
from hjit.kernels.lower.loopir import (
    BEGIN,
    END,
    Block,
    Choose,
    CombineLanes,
    Declare,
    For,
    If,
    Let,
    LineStart,
    Name,
    Outlined,
    Register,
    ResetWindow,
    SlidingProduce,
    Vectors,
)
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import sources, stmt_exprs
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.poly import Boundary, Indirect


def nest_function(e: NestEmitter, nest: Nest) -> str:
    """The text of the function of a nest, named `NAME`."""
    e.stores.written = set(nest.writes)
    e.stores.changing = frozenset(e.stores.written.intersection(sources(nest.body)))
    e.buffers = nest.buffers
    e.vars[BEGIN], e.vars[END] = Val("%begin", I64, 1, 0), Val("%end", I64, 1, 0)
    e.stmts(nest.body)
    streaming_stores.finish(e)
    return e.defined("i64 %begin", "i64 %end", "i64 %task")


def _let(e: NestEmitter, s: Let) -> None:
    e.name(s.var, s.value)


def _choose(e: NestEmitter, s: Choose) -> None:
    test = e.integer(s.test)
    condition = e.code.emit(f"icmp sge i64 {test.text}, 0", BOOL, 1, test)
    e.define(s.var, e.choose(condition, e.integer(s.yes), e.integer(s.no)))


def _for(e: NestEmitter, s: For) -> None:
    e.loop(s)


def _vectors(e: NestEmitter, s: Vectors) -> None:
    """The body, in which what depends on the variable is a vector."""
    loop = VectorLoop(s.var, s.lanes, s.align, s.count)
    with e.vectorized(loop):
        mask = None if s.active is None else _mask(e, s, e.integer(s.active))
    with e.vectorized(replace(loop, mask=mask)):
        e.stmts(s.body)


def _mask(e: NestEmitter, s: Vectors, end: Val) -> tuple[Val, Val]:
    """Which lanes do something, and the last index that one of them has; the others read what that one reads."""
    code = e.code
    last = e.arith("sub", end, const(1, I64))
    index = e.atom(s.var, s.lanes)
    limit = splat(code, code.opaque(end), s.lanes)  # LLVM 22 stores too much by a constant mask of one lane
    return code.emit(f"icmp slt {index.type} {index.text}, {limit.text}", BOOL, s.lanes, index, limit), last


def _if(e: NestEmitter, s: If) -> None:
    condition = e.code.emit(f"icmp sge i64 {e.integer(s.value).text}, 0", BOOL, 1, e.integer(s.value))
    e.branch(condition, lambda: e.stmts(s.body), (lambda: e.stmts(s.otherwise)) if s.otherwise else None)


def _block(e: NestEmitter, s: Block) -> None:
    loads.prefetch(e, s.ahead)
    e.paired = PairedLoads(gathers.paired(e, stmt_exprs(s)))
    stores.store_all(e, s.stores, s.sets)
    e.paired = PairedLoads()


def _reset_window(e: NestEmitter, s: ResetWindow) -> None:
    e.done[s.stage] = e.done.get(s.stage) or e.alloca("i64")
    e.code.effect(f"store i64 {-(1 << 62)}, ptr {e.done[s.stage]}")


def _sliding_produce(e: NestEmitter, s: SlidingProduce) -> None:
    """What is new in this iteration."""
    at = e.done[s.stage]
    done = e.code.here(f"load i64, ptr {at}, align 8", I64)
    begin, end = e.minmax("max", e.integer(s.first), done), e.integer(s.end)
    e.known.open()
    e.vars[s.var] = begin
    e.stmts(s.body)
    del e.vars[s.var]
    e.known.close()
    if s.last:
        after = e.minmax("max", begin, end)
        e.code.effect(f"store i64 {after.text}, ptr {at}, align 8")


STATEMENTS.update(
    {
        Let: _let,
        Choose: _choose,
        For: _for,
        Vectors: _vectors,
        LineStart: streaming_stores.line_start,
        If: _if,
        Block: _block,
        Declare: registers.declare,
        Name: registers.name,
        CombineLanes: registers.combine_lanes,
        ResetWindow: _reset_window,
        SlidingProduce: _sliding_produce,
        Outlined: outline.emit,
    }
)
ATOMS.update({Boundary: indices.bounded, Indirect: indices.gathered})
VALUES.update({Load: loads.load, Register: registers.value})
