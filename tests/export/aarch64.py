"""Exported aarch64 objects, run on an emulated processor inside this process (the package ``unicorn``).

The C code that goes with an object is compiled for this machine, so that Python calls the exported function by its C
interface; where that code calls the kernel, the emulated processor runs it, on this process's own memory. Tests that
import this are skipped where there is no such package.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hjit.kernels.runtime.linking import elf
from tests.export.c_library import COMPILER, Library

unicorn = pytest.importorskip("unicorn")
arm = pytest.importorskip("unicorn.arm64_const")

PAGE, CHUNK, STACK, STOP = 4096, 1 << 16, 1 << 20, 4
_X = [getattr(arm, f"UC_ARM64_REG_X{k}") for k in range(8)]
_D = [getattr(arm, f"UC_ARM64_REG_D{k}") for k in range(2)]
_KEPT = (arm.UC_ARM64_REG_PC, arm.UC_ARM64_REG_SP, arm.UC_ARM64_REG_X30)


# How a relocation changes the instruction, or the word, at `place`: S + A is `target`.


def _branch(word: int, target: int, place: int) -> int:
    distance = target - place
    assert -(1 << 27) <= distance < 1 << 27 and distance % 4 == 0
    return word & 0xFC000000 | distance >> 2 & 0x3FFFFFF


def _page(word: int, target: int, place: int) -> int:
    pages = (target >> 12) - (place >> 12)
    assert -(1 << 20) <= pages < 1 << 20
    return word & 0x9F00001F | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5


def _distance(word: int, target: int, place: int) -> int:
    return target - place & 0xFFFFFFFF


def _low(shift: int) -> Callable[[int, int, int], int]:
    def change(word: int, target: int, place: int) -> int:
        low = target & 0xFFF
        assert low % (1 << shift) == 0
        return word & ~(0xFFF << 10) | low >> shift << 10

    return change


RELOCATIONS: Mapping[int, Callable[[int, int, int], int]] = {
    261: _distance,  # R_AARCH64_PREL32
    275: _page,  # R_AARCH64_ADR_PREL_PG_HI21
    277: _low(0),  # R_AARCH64_ADD_ABS_LO12_NC
    278: _low(0),  # R_AARCH64_LDST8_ABS_LO12_NC
    282: _branch,  # R_AARCH64_JUMP26
    283: _branch,  # R_AARCH64_CALL26
    284: _low(1),  # R_AARCH64_LDST16_ABS_LO12_NC
    285: _low(2),  # R_AARCH64_LDST32_ABS_LO12_NC
    286: _low(3),  # R_AARCH64_LDST64_ABS_LO12_NC
    299: _low(4),  # R_AARCH64_LDST128_ABS_LO12_NC
}


# What kernels may call: the C library's functions, on this process's memory.

_LIBM = ctypes.CDLL("libm.so.6")
_MEMORY = {"memcpy": ctypes.memmove, "memmove": ctypes.memmove, "memset": ctypes.memset}
_ONE = "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh cbrt".split()
_TWO = "pow atan2 fmod hypot".split()
_MATHS = {name + suffix: n for n, names in ((1, _ONE), (2, _TWO)) for name in names for suffix in ("", "f")}


def _maths(name: str) -> Callable[..., float]:
    number = ctypes.c_float if name.endswith("f") else ctypes.c_double
    function: Any = _LIBM[name]
    function.restype, function.argtypes = number, [number] * _MATHS[name]
    return function  # type: ignore[no-any-return]


class Memory:
    """Memory of this process that the emulated processor knows at the same addresses."""

    def __init__(self, size: int) -> None:
        self.block = mmap.mmap(-1, -(-size // PAGE) * PAGE)
        self.size = len(self.block)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.block))

    def map(self, uc: Any, access: int) -> None:
        uc.mem_map_ptr(self.start, self.size, access, ctypes.c_void_p(self.start))


class Code:
    """An object file, linked into memory.

    Attributes:
        symbols: addresses.
        sizes: of what symbols name, in bytes.
        externals: where the processor stops, since the code calls a function of the C library.
        finished: where it stops when all is done.
        text: the instructions, as they are in the file.

    Raises:
        ValueError: it is no such object.
        NotImplementedError: it has a relocation, or calls a function, that is not known here.
    """

    def __init__(self, data: bytes) -> None:
        file = elf.read(data, elf.AARCH64)
        (table,) = file.of_kind(elf.SYMTAB)
        symbols = file.symbols(table)
        outside = sorted({s.name for s in symbols if s.section == elf.UNDEFINED and s.name})
        unknown = [name for name in outside if name not in _MEMORY and name not in _MATHS]
        if unknown:
            raise NotImplementedError(f"the emulated machine has no {', '.join(unknown)}")
        places, end = elf.layout(file.sections)
        end = -(-end // 4) * 4
        self.memory = Memory(end + STOP * (len(outside) + 1))
        base = self.memory.start
        for k, at in places.items():
            self.memory.block[at : at + file.sections[k].size] = file.content(file.sections[k])
        self.externals = {base + end + STOP * k: name for k, name in enumerate(outside)}
        self.finished = base + end + STOP * len(outside)
        by_name = {name: at for at, name in self.externals.items()}
        where = [by_name.get(s.name) or base + places.get(s.section, 0) + s.offset for s in symbols]
        self.symbols = {s.name: at for s, at in zip(symbols, where, strict=True) if s.name}
        self.text = [file.content(s) for s in file.sections if s.flags & elf.EXECUTABLE]
        self.sizes = {s.name: s.size for s in symbols}
        for relocations in file.of_kind(elf.RELA):
            if relocations.info in places:
                self._relocate(file.relocations(relocations), places[relocations.info], where)

    def _relocate(self, relocations: Iterable[elf.Relocation], start: int, where: Sequence[int]) -> None:
        for r in relocations:
            if r.kind not in RELOCATIONS:
                raise NotImplementedError(f"relocation {r.kind} of aarch64")
            place = start + r.offset
            (word,) = struct.unpack_from("<I", self.memory.block, place)
            word = RELOCATIONS[r.kind](word, where[r.symbol] + r.addend, self.memory.start + place)
            struct.pack_into("<I", self.memory.block, place, word)


def _regions() -> Iterator[tuple[int, int, bool]]:
    """Readable memory of this process: first and last address, and whether it is writable."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, access = line.split()[:2]
        if access[0] == "r":
            first, end = (int(x, 16) for x in area.split("-"))
            yield first, end, access[1] == "w"


class Processor:
    """One that runs the code of an object; `parallel_for`: the address of the function that runs tasks."""

    def __init__(self, code: Code) -> None:
        self.code, self.stack = code, Memory(STACK)
        self.parallel_for: int | None = None
        self.called: Counter[str] = Counter()
        self.uc = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.uc.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vector registers may be used
        code.memory.map(self.uc, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
        self.stack.map(self.uc, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE)
        self.mapped: list[tuple[int, int]] = []
        missing = unicorn.UC_HOOK_MEM_READ_UNMAPPED | unicorn.UC_HOOK_MEM_WRITE_UNMAPPED
        self.uc.hook_add(missing, self._on_missing)
        stops = [*code.externals, code.finished]
        self.uc.hook_add(unicorn.UC_HOOK_CODE, lambda uc, *_: uc.emu_stop(), None, min(stops), max(stops))

    def call(self, name: str, *args: int) -> int:
        """``int32_t name(...)``, of integers and pointers.

        Raises:
            unicorn.UcError: it reads, writes or runs what it may not.
        """
        self.uc.reg_write(arm.UC_ARM64_REG_SP, self.stack.start + STACK)
        try:
            self._run(self.code.symbols[name], args)
            return ctypes.c_int32(self.uc.reg_read(_X[0])).value
        finally:
            for first, size in self.mapped:
                self.uc.mem_unmap(first, size)
            self.mapped.clear()

    def _run(self, address: int, args: Sequence[int]) -> None:
        """Until the function at this address returns."""
        uc = self.uc
        for register, x in zip(_X, args, strict=False):
            uc.reg_write(register, x)
        uc.reg_write(arm.UC_ARM64_REG_X30, self.code.finished)
        while address != self.code.finished:
            try:
                uc.emu_start(address, 0)
            except unicorn.UcError:
                if uc.reg_read(arm.UC_ARM64_REG_PC) != self.parallel_for:
                    raise
            address = uc.reg_read(arm.UC_ARM64_REG_PC)
            if address != self.code.finished:
                self._call_outside(address)
                address = uc.reg_read(arm.UC_ARM64_REG_X30)

    def _call_outside(self, address: int) -> None:
        uc, name = self.uc, self.code.externals.get(address, "")
        given = [uc.reg_read(r) for r in _X]
        self.called[name or "hj_parallel_for"] += 1
        if address == self.parallel_for:
            kept = [(r, uc.reg_read(r)) for r in _KEPT]
            for k in range(ctypes.c_int64.from_address(given[2]).value):
                first, one = ctypes.c_int64(k), ctypes.c_int64(1)
                at = [ctypes.addressof(x) for x in (first, one, one)]
                self._run(given[0], [*at, given[4]])
            for r, x in kept:
                uc.reg_write(r, x)
        elif name in _MEMORY:
            _MEMORY[name](*given[:3])
        else:
            kind = "<f4" if name.endswith("f") else "<f8"
            args = [float(np.array([uc.reg_read(r)], "<u8").view(kind)[0]) for r in _D[: _MATHS[name]]]
            result = np.zeros(1, "<u8")
            result.view(kind)[0] = _maths(name)(*args)
            uc.reg_write(_D[0], int(result[0]))

    def _on_missing(self, uc: Any, access: int, address: int, *_: Any) -> bool:
        """Memory of this process, when it is first used; False: there is none."""
        for low, high, is_writable in _regions():
            if low <= address < high:
                first, end = max(low, address // CHUNK * CHUNK), min(high, address // CHUNK * CHUNK + CHUNK)
                if any(first < at + size and at < end for at, size in self.mapped):
                    first, end = address // PAGE * PAGE, address // PAGE * PAGE + PAGE
                right = unicorn.UC_PROT_READ | (unicorn.UC_PROT_WRITE if is_writable else 0)
                uc.mem_map_ptr(first, end - first, right, ctypes.c_void_p(first))
                self.mapped.append((first, end - first))
                return True
        return False


_Kernel = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)


class Emulated:
    """Functions of a folder, by name, as `Library`: `names` with the dtypes of their results.

    Raises:
        subprocess.CalledProcessError: their C code is refused.
    """

    def __init__(self, folder: Path, names: Mapping[str, Sequence[np.dtype[Any]]]) -> None:
        codes = {name: Code((folder / f"{name}.o").read_bytes()) for name in names}
        for name, code in codes.items():
            (folder / f"{name}_here.c").write_text(_here(name))
            (folder / f"{name}_data.c").write_text(_data(name, code))
        files = [f"{name}_{part}.c" for name in names for part in ("here", "data")]
        command = [str(COMPILER), "-shared", "-fPIC", "-O0", "-o", "here.so", *files, "-lm", "-pthread"]
        subprocess.run(command, cwd=folder, check=True)
        self.library = ctypes.CDLL(str(folder / "here.so"))
        self.functions = {name: Library(folder / "here.so", tuple(types), name) for name, types in names.items()}
        self.processors = {name: Processor(code) for name, code in codes.items()}
        self.kernels = [self._installed(name, processor) for name, processor in self.processors.items()]
        self.failure: BaseException | None = None

    def _installed(self, name: str, processor: Processor) -> Any:
        """Python's function that the C code calls in place of the kernel."""
        code = processor.code
        processor.parallel_for = ctypes.c_void_p.in_dll(self.library, f"{name}_parallel_for").value
        for symbol in _data_of(name, code):
            room = ctypes.c_char.in_dll(self.library, symbol)
            ctypes.memmove(ctypes.addressof(room), code.symbols[symbol], code.sizes[symbol])

        def run(params: int) -> int:
            try:
                return processor.call(f"hjit_{name}", params)
            except BaseException as error:  # which C cannot pass on
                self.failure = error
                return 1

        kernel = _Kernel(run)
        ctypes.c_void_p.in_dll(self.library, f"{name}_emulated").value = ctypes.cast(kernel, ctypes.c_void_p).value
        return kernel

    def __call__(self, name: str, *args: Any, context: Any = None) -> list[np.ndarray[Any, Any]]:
        """The results of a function."""
        self.failure = None
        try:
            return self.functions[name](*args, context=context)
        finally:
            if self.failure:
                raise self.failure


def _data_of(name: str, code: Code) -> list[str]:
    return [s for s in code.symbols if s.startswith(f"hjit_{name}_data")]


def _here(name: str) -> str:
    """The C code of a function, and a kernel that is called through a pointer."""
    return (
        f'#include "{name}.c"\n'
        f"int32_t (*{name}_emulated)(int64_t *params);\n"
        f"int32_t hjit_{name}(int64_t *params) {{ return {name}_emulated(params); }}\n"
        f"void *{name}_parallel_for = (void *)hj_parallel_for;\n"
    )


def _data(name: str, code: Code) -> str:
    """Room for the arrays that are part of the code."""
    lines = [f"_Alignas(64) unsigned char {s}[{code.sizes[s]}];" for s in _data_of(name, code)]
    return "\n".join([*lines, ""])
