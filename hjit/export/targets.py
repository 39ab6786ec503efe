"""The targets of exported code, and compiling LLVM IR to an object file for each."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import llvmlite.binding as llvm

from hjit.errors import CompileError, OptionError
from hjit.kernels.lower.machine import Machine
from hjit.kernels.runtime import backend, features
from hjit.kernels.runtime.features import AARCH64, LEVELS
from hjit.process import machine
from hjit.sched.language.target import Target, native_width, table_bytes


@dataclass(frozen=True, slots=True)
class Platform:
    """A processor and a system.

    Attributes:
        triple: LLVM's name of it; "": this machine's.
        cpu: LLVM's name of the processor.
        features: see `hjit.kernels.runtime.features`.
        checked: what C code asks of the processor that it runs on, by ``__builtin_cpu_supports``.
    """

    name: str
    triple: str
    cpu: str
    features: frozenset[str]
    checked: tuple[str, ...] = ()

    @property
    def machine(self) -> Machine:
        """What to generate code for."""
        return Machine(native_width(self.features), self.features)

    @property
    def target(self) -> Target:
        """As schedules know it; where it is this machine, its plans are those of calls."""
        found = Target(native_width(self.features), table_bytes(self.features))
        return replace(found, l2_bytes=machine.caches()["2"]) if self.is_here() else found

    def is_here(self) -> bool:
        """Does this machine run its code?"""
        return self.features <= features.host_features() and bool(self.features)

    def is_linked_here(self) -> bool:
        """Does the C compiler of this machine make libraries of it?"""
        return self.is_here() or (self.name in LEVELS and "x86" in features.host_features())


_AVX512 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_V3 = ("avx", "avx2", "bmi", "bmi2", "fma")
_CHECKED = {"x86-64-v2": ("sse4.2", "popcnt"), "x86-64-v3": _V3, "x86-64-v4": (*_V3, *_AVX512)}
PLATFORMS: Mapping[str, Platform] = {
    name: Platform(name, "x86_64-unknown-linux-gnu", name, LEVELS[name], _CHECKED[name]) for name in LEVELS
} | {"aarch64": Platform("aarch64", "aarch64-unknown-linux-gnu", "generic", AARCH64)}


def platform(name: str) -> Platform:
    """What is compiled for; "cpu": the highest level of x86-64 that this machine has.

    Raises:
        OptionError: there is no such target, or this machine is none of them.
    """
    if name == "cpu":
        here = [p for p in PLATFORMS.values() if p.is_here()]
        if not here:
            raise OptionError(f"this machine is none of {', '.join(PLATFORMS)}: say which is meant by target=")
        return here[-1]
    if name not in PLATFORMS:
        raise OptionError(f"target={name!r}: exported code is for one of {', '.join(map(repr, ('cpu', *PLATFORMS)))}")
    return PLATFORMS[name]


def platforms(names: Sequence[str]) -> list[Platform]:
    """One platform, or several levels of x86-64 from the lowest to the highest.

    Raises:
        OptionError: there is no such target, or one library cannot be for all of them.
    """
    found = [platform(name) for name in dict.fromkeys(names)]
    if not found:
        raise OptionError(f"targets=[]: one or more of {', '.join(LEVELS)}")
    if len(found) > 1:
        odd = [p.name for p in found if p.name not in LEVELS]
        if odd:
            raise OptionError(
                f"targets: one library has several levels of x86-64, and not {', '.join(odd)} beside them"
            )
        order = list(LEVELS)
        found = [PLATFORMS[n] for n in sorted({p.name for p in found}, key=order.index)]
    return found


@functools.lru_cache(maxsize=1)
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def object_code(text: str, name: str, where: Platform) -> bytes:
    """The object file of a module of LLVM IR, independent of its position: it can be part of a shared library.

    Raises:
        CompileError: LLVM refuses the module.
    """
    with backend.alone():
        _initialise()
        target = llvm.Target.from_triple(where.triple)
        emitter = target.create_target_machine(cpu=where.cpu, opt=3, reloc="pic", codemodel="default")
        try:
            module = llvm.parse_assembly(text)
            module.triple, module.data_layout = where.triple, str(emitter.target_data)
            module.verify()
        except RuntimeError as error:
            raise CompileError(f"LLVM refuses the generated code of {name}: {error}. Please report this.") from None
        optimise(module, emitter)
        return bytes(emitter.emit_object(module))


def optimise(module: llvm.ModuleRef, emitter: llvm.TargetMachine) -> None:
    """The passes of `hjit.kernels.runtime.codegen`: what is left for LLVM to do."""
    builder = llvm.create_pass_builder(emitter, llvm.create_pipeline_tuning_options(speed_level=1))
    manager = llvm.create_new_module_pass_manager()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    manager.run(module, builder)
