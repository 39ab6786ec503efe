"""The LLVM emitter: loop IR -> one module of LLVM IR as text.

Every nest is a function ``nest(ctx, begin, end, task)`` over a part of its parallel iterations. The driver runs the
nests in order and splits those that have enough work into tasks. What a nest needs of addresses, strides, scalars and
sizes is handed to it as numbers (`Uniform`), so that nests that differ in nothing else, as the levels of a pyramid,
share a function. `NestEmitter` is what the modules beside this one share.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hjit.errors import BlockError
from hjit.kernels.llvm import indices, memory, outline, registers, stores, streaming_stores, vectors
from hjit.kernels.llvm.code import BOOL, I64, Val, longest_block
from hjit.kernels.llvm.context import ATOMS, NAME, STATEMENTS, VALUES, NestEmitter, global_name
from hjit.kernels.llvm.driver import driver_text
from hjit.kernels.llvm.function_merging import Function, Inner, Uniform, merged
from hjit.kernels.llvm.launching import Call
from hjit.kernels.lower.alike import Like
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
    Nest,
    Outlined,
    Program,
    Register,
    ResetWindow,
    SlidingProduce,
    Vectors,
)
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.params import Params
from hjit.kernels.lower.traverse import sources
from hjit.process import deadline
from hjit.trace.ir.graph import Graph, Input, Load
from hjit.trace.ir.poly import Boundary, Indirect, Poly


def emit_module(
    graph: Graph, program: Program, params: Params, name: str, machine: Machine, longest: float = math.inf
) -> str:
    """LLVM IR of a kernel whose entry is ``i32 name(ptr params)``; it returns 1 where an index is out of bounds.

    Raises:
        BlockError: a block has more than `longest` instructions.
    """
    declarations: dict[str, None] = {}
    constants = [constant_text(i) for i in graph.inputs if i.data is not None]
    made: list[tuple[Function, list[Inner]]] = []
    for nest in deadline.within("writing code", program.nests):
        if nest.like is not None:
            function, inner = made[nest.like.nest]
            here = _Renumbered(params, nest.like)
            made.append((here.function(function), [replace(x, of=here.function(x.of)) for x in inner]))
            continue
        emitter = NestEmitter(graph, params, machine, program.layouts)
        text = nest_function(emitter, nest)
        if longest < math.inf:
            _check_blocks(nest.stage, [text, *(f.of.text for f in emitter.functions)], longest)
        made.append((Function(text, tuple(emitter.uniforms or ())), emitter.functions))
        declarations.update(emitter.code.declarations)
    linked = outline.linked(made, name, NAME)
    functions: dict[str, str] = {}  # text -> name
    calls: list[Call] = []
    for nest, f in zip(program.nests, merged(linked.functions), strict=True):
        calls.append(Call(nest, functions.setdefault(f.text, f"{name}.nest{len(functions)}"), f.uniforms))
    bodies = [*linked.texts.values(), *(text.replace(NAME, f"@{function}", 1) for text, function in functions.items())]
    driver = driver_text(graph, calls, params, name, machine)
    declarations.update(driver.declarations)
    head = "\n".join([*constants, *sorted(declarations)])
    wide = 8 * machine.width
    attributes = (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{wide}" "min-legal-vector-width"="{wide}" '
        '"no-trapping-math"="true" "no-builtins" }'
    )
    return "\n\n".join([head, *bodies, driver.text, attributes]) + "\n"


class _Renumbered:
    """The numbers that a nest is given which has the code of another one."""

    def __init__(self, params: Params, like: Like) -> None:
        self.like = like
        self.slots: dict[int, int] = {}
        for names in (params.arrays, params.scratch):
            self.slots |= {names[old]: params.slot(new) for old, new in like.arrays.items() if old in names}
        self.slots |= {
            params.symbols[old]: params.symbols[new] for old, new in like.sizes.items() if old in params.symbols
        }

    def function(self, f: Function) -> Function:
        return Function(f.text, tuple(map(self.uniform, f.uniforms)))

    def uniform(self, what: Uniform) -> Uniform:
        if isinstance(what, Poly):
            return self.like.poly(what)
        return None if what is None else (self.slots.get(what[0], what[0]), what[1])


def _check_blocks(stage: str, texts: list[str], longest: float) -> None:
    length = max(map(longest_block, texts))
    if length > longest:
        raise BlockError(
            stage,
            f"{length} instructions in one block of code of {stage}, more than {longest}: unroll, or inline, less",
        )


def constant_text(i: Input) -> str:
    """A small constant array as a global."""
    data = np.frombuffer(i.data or b"", np.uint8)
    cells = ", ".join(f"i8 {b}" for b in data)
    return f"@{global_name(i.name)} = private unnamed_addr constant [{len(data)} x i8] [{cells}], align 64"


def nest_function(e: NestEmitter, nest: Nest) -> str:
    """The text of the function of a nest, named `NAME`."""
    e.written = set(nest.writes)
    e.changing = frozenset(e.written.intersection(sources(nest.body)))
    e.buffers = nest.buffers
    e.vars[BEGIN], e.vars[END] = Val("%begin", I64, 1, 0), Val("%end", I64, 1, 0)
    e.stmts(nest.body)
    streaming_stores.finish(e)
    return e.defined("i64 %begin", "i64 %end", "i64 %task")


# -- statements


def _let(e: NestEmitter, s: Let) -> None:
    e.name(s.var, s.value)


def _choose(e: NestEmitter, s: Choose) -> None:
    test = e.int(s.test)
    condition = e.code.emit(f"icmp sge i64 {test.text}, 0", BOOL, 1, test)
    e.define(s.var, e.choose(condition, e.int(s.yes), e.int(s.no)))


def _for(e: NestEmitter, s: For) -> None:
    limit, first = (None if p is None else e.int(p) for p in (s.limit, s.first))
    e.loop(s.var, e.int(s.begin), e.int(s.end), s.step, lambda: e.stmts(s.body), limit, first, s.rare)


def _if(e: NestEmitter, s: If) -> None:
    condition = e.code.emit(f"icmp sge i64 {e.int(s.value).text}, 0", BOOL, 1, e.int(s.value))
    e.branch(condition, lambda: e.stmts(s.body), (lambda: e.stmts(s.otherwise)) if s.otherwise else None)


def _block(e: NestEmitter, s: Block) -> None:
    memory.prefetch(e, s.ahead)
    stores.store_all(e, s.stores, s.sets)


def _reset_window(e: NestEmitter, s: ResetWindow) -> None:
    e.done[s.stage] = e.done.get(s.stage) or e.alloca("i64")
    e.code.effect(f"store i64 {-(1 << 62)}, ptr {e.done[s.stage]}")


def _sliding_produce(e: NestEmitter, s: SlidingProduce) -> None:
    """What is new in this iteration."""
    at = e.done[s.stage]
    done = e.code.here(f"load i64, ptr {at}, align 8", I64)
    begin, end = e.minmax("max", e.int(s.first), done), e.int(s.end)
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
        Vectors: vectors.emit,
        LineStart: vectors.line_start,
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
VALUES.update({Load: memory.load, Register: registers.value})
