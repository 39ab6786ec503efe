"""Programs, lowered and compiled. Imported only where the kernel, or how it is bound to sizes, is not on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import hjit.cache as cache
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
from hjit.trace.ir.key import Key
from hjit.trace.ir.programs.steps import Program


def compiled(options: Options, program: Program, text: str, symbols: Sequence[str], sizes: Mapping[str, int]) -> Bound:
    """The kernel of a program, found or compiled, for some sizes.

    Args:
        text: tells programs apart.
        symbols: the sizes that it depends on.

    Raises:
        CompileError: it cannot be lowered.
        OverBudget: there is no time to compile it.
    """
    target = replace(machine(options), small=False)
    key = text, backend.machine_text(options.target), cache.versions(), str(options.fast_math), "program"
    name = "hjit_" + cache.digest(*key)[:40]
    graph, loops = lower_program(program, target)
    debug.say("loops", name, lambda: loops)
    symbols = tuple(symbols)

    def make() -> Kernel:
        params = params_of(graph, symbols, loops.buffers)
        llvm = emit_module(graph, loops, params, name, target)
        debug.say("llvm", name, lambda: llvm)
        return bind.compiled(Lowered(graph, Root(()), loops, params, llvm, name), symbols, options)

    kernel = kernel_named(name, options, make)
    assert kernel is not None
    scheduled = Scheduled(graph, Key(text, symbols), None, lambda: iter(()))
    return Bound(kernel, bind.parameters(scheduled, kernel, options, sizes, {}), options)
