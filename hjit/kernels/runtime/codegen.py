"""numba's code generator, with hjit's short list of LLVM passes. It is imported only to compile: importing numba takes
longer than loading all kernels of a warm start.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock

from hjit.kernels.runtime import features

TARGETS = 8  # code generators that are kept: one for each value of the option `target`, and one for quick compilation


class _Library(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A code library with a short optimisation run.

    hjit's LLVM IR has its invariants hoisted and its common subexpressions shared already. What is left for LLVM is to
    keep accumulators in registers and to combine instructions: a tenth of the time of its O2, for the same code.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        builder = self._codegen._pass_builder(loop_vectorize=False, slp_vectorize=False, opt=1)
        manager = llvm.create_new_module_pass_manager()
        manager.add_sroa_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
        manager.run(self._final_module, builder)


class Codegen(codegen.JITCPUCodegen):  # type: ignore[misc]
    """Compiles for this processor, or for a level of x86-64; if `quick`, in a quarter of the time, for slower code."""

    _library_class = _Library

    def __init__(self, name: str, cpu: str, quick: bool = False) -> None:
        self._cpu, self._quick = cpu, quick
        super().__init__(name)

    def _customize_tm_options(self, options: dict[str, Any]) -> None:
        super()._customize_tm_options(options)
        if self._quick:
            options["opt"] = 0

    def _get_host_cpu_name(self) -> str:
        return self._cpu or str(super()._get_host_cpu_name())

    def _get_host_cpu_features(self) -> str:
        return "" if self._cpu else str(super()._get_host_cpu_features())


@lru_cache(maxsize=TARGETS)
def codegen_for(target: str, quick: bool = False) -> Codegen:
    """The generator for a value of the option `target`; `quick`: of code that runs once."""
    features.load_libraries()
    return Codegen("hjit", "" if target == "cpu" else target, quick)


__all__ = ["Codegen", "codegen_for", "global_compiler_lock"]
