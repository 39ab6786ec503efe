"""Programs, compiled and bound to sizes: what runs the loops that a trace leaves to no Graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hjit import cache
from hjit.kernels.llvm.emit import emit_module
from hjit.kernels.lower.params import params_of
from hjit.kernels.lower.programs.lowering import lower_program
from hjit.kernels.runtime import backend, bind
from hjit.kernels.runtime.kernel import Bound, Kernel, kernel_named
from hjit.kernels.runtime.lowered import Lowered, machine
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.options import Options
from hjit.process import debug
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import walk
from hjit.trace.ir.key import Key
from hjit.trace.ir.poly import Poly, Sym, deep_atoms
from hjit.trace.ir.programs.steps import Define, Loop, Program, Update, every, exprs

Array = np.ndarray[Any, Any]


def run_loops(options: Options, program: Program, sizes: Mapping[str, int]) -> Callable[[Sequence[Array]], bool]:
    """What runs a program on arrays in C order: its inputs, and those that it changes, in place.

    It is False where an index is out of bounds, or NumPy refuses something: then these hold anything.

    Raises:
        CompileError: it cannot be lowered.
    """
    bound = _bound(options, program, sizes)

    def run(arrays: Sequence[Array]) -> bool:
        refused = np.zeros((), np.bool_)
        return bound.run((), [*arrays, refused], ()) and not refused

    return run


def _bound(options: Options, program: Program, sizes: Mapping[str, int]) -> Bound:
    symbols = tuple(dict.fromkeys(_symbols(program)))
    text = str(program)
    target = replace(machine(options), small=False)
    name = "hjit_" + cache.digest(
        text, backend.machine_text(options.target), cache.versions(), str(options.fast_math), "program"
    )[:40]  # fmt: skip
    graph, loops = lower_program(program, target)
    debug.say("loops", name, lambda: loops)
    scheduled = Scheduled(graph, Key(text, symbols), None, lambda: iter(()))

    def make() -> Kernel:
        params = params_of(graph, symbols, ())
        llvm = emit_module(graph, loops, params, name, target)
        debug.say("llvm", name, lambda: llvm)
        return bind.compiled(Lowered(graph, Root(()), loops, params, llvm, name), symbols, options)

    kernel = kernel_named(name, options, make)
    assert kernel is not None
    return Bound(kernel, bind.parameters(scheduled, kernel, options, sizes, {}), options)


def _symbols(program: Program) -> Iterator[str]:
    """The run-time sizes that it depends on, in its order."""
    for p in _polys(program):
        for a in deep_atoms(p):
            if isinstance(a, Sym):
                yield a.name


def _polys(program: Program) -> Iterator[Poly]:
    """All polynomials in it."""
    for shape in (*(i.shape for i in program.inputs), *(s.shape for s in (*program.arrays, *program.local))):
        yield from shape
    for s in every(program.body):
        if isinstance(s, Loop):
            yield from (s.begin, s.end)
        definitions = s.stage.definitions if isinstance(s, Define) else (s.definition,) if isinstance(s, Update) else ()
        for d in definitions:
            yield from (*d.extents, *d.target)
        for e in walk(*exprs(s)):
            yield from e.polys
