"""The LLVM emitter: loop IR -> one module of LLVM IR as text.

Every nest is a function ``nest(ctx, begin, end, task)`` over a part of its parallel iterations. The driver runs the
nests in order and splits those that have enough work into tasks. Addresses, strides, scalars and sizes are passed to
a nest as arguments (`Uniform`), so that nests that differ only in these, such as the levels of a pyramid, share a
function. Each folder imports only those above it (`tests/test_rooms.py`):

    builder/        LLVM IR as text: values, scopes, where instructions go; functions that differ in constants merged
    vecmath/        operations on vectors
    nest/           the function of a nest: its state, indices, registers, and the functions that it calls
    memory/         loads, stores and prefetches
    driver/         the entry of a kernel, which runs its nests, one by one or by a table
    statements.py   each statement of the loop IR
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hjit.errors import BlockError
from hjit.kernels.llvm import statements
from hjit.kernels.llvm.builder.blocks import longest_block
from hjit.kernels.llvm.builder.function_merging import Function, Inner, Uniform, merged
from hjit.kernels.llvm.driver.entry import driver_text
from hjit.kernels.llvm.driver.launching import Call
from hjit.kernels.llvm.nest import outline
from hjit.kernels.llvm.nest.emitter import NAME, NestEmitter, global_name
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.nest_merging import Renaming
from hjit.kernels.lower.params import Params
from hjit.kernels.lower.program import Program
from hjit.process import deadline
from hjit.trace.ir.graph import Graph, Input
from hjit.trace.ir.poly import Poly


def emit_module(
    graph: Graph, program: Program, params: Params, name: str, machine: Machine, longest: float = math.inf
) -> str:
    """LLVM IR of a kernel with the entry ``i32 name(ptr params)``, which returns 1 if an index is out of bounds.

    Raises:
        BlockError: a block has more than `longest` instructions.
    """
    declarations: dict[str, None] = {}
    constants = [constant_text(i) for i in graph.inputs if i.data is not None]
    made: list[tuple[Function, list[Inner]]] = []
    for nest in deadline.within("writing code", program.nests):
        if nest.renaming is not None:
            function, inner = made[nest.renaming.nest]
            here = _Renumbered(params, nest.renaming)
            made.append((here.function(function), [replace(x, of=here.function(x.of)) for x in inner]))
            continue
        emitter = NestEmitter(graph, params, machine, program.layouts)
        text = statements.nest_function(emitter, nest)
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
    """The arguments of a nest that shares the code of another one."""

    def __init__(self, params: Params, renaming: Renaming) -> None:
        self.renaming = renaming
        self.slots: dict[int, int] = {}
        for names in (params.arrays, params.scratch):
            self.slots |= {names[old]: params.slot(new) for old, new in renaming.arrays.items() if old in names}
        self.slots |= {
            params.symbols[old]: params.symbols[new] for old, new in renaming.sizes.items() if old in params.symbols
        }

    def function(self, f: Function) -> Function:
        return Function(f.text, tuple(map(self.uniform, f.uniforms)))

    def uniform(self, what: Uniform) -> Uniform:
        if isinstance(what, Poly):
            return self.renaming.poly(what)
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
