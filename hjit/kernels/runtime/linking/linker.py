"""Linking object code of earlier processes into memory, without LLVM, whose import takes longer than loading kernels.

What hjit's kernels are compiled to for x86-64 is simple: code and constants, all of which name each other and functions
of the C library by absolute addresses (LLVM's large code model). Anything else is left to LLVM, as are other systems.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from hjit.kernels.runtime.linking import elf, memory
from hjit.kernels.runtime.linking.memory import NotLinked
from hjit.kernels.runtime.machine_code import PROTOTYPE, Compiled

_R_64 = 1  # R_X86_64_64: a symbol's address and an addend, in 8 bytes
MOST_BYTES = 256 << 20  # of a kernel


def linked(object_code: bytes, name: str) -> Compiled:
    """The kernel of some object code, in memory of its own.

    Raises:
        NotLinked: it is nothing that hjit makes for x86-64, is damaged, or the system does not let it be loaded.
    """
    if not sys.platform.startswith("linux"):
        raise NotLinked("the system")
    try:
        return _loaded(elf.read(object_code, elf.X86_64), name)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NotLinked(f"damaged: {error}") from None


def _loaded(file: elf.ObjectFile, name: str) -> Compiled:
    """As `linked`; errors of damaged code are Python's own."""
    places, size = _placed(file)
    image = bytearray(size)
    for k, start in places.items():
        s = file.sections[k]
        image[start : start + s.size] = file.content(s)
    address = memory.pages(size)
    try:
        for table in file.of_kind(elf.RELA):
            if table.info in places:
                _relocate(image, places, address, file, table)
        memory.fill(address, image)
        entry = PROTOTYPE(address + _entry(file, places, name))
    except BaseException:
        memory.free(address, size)
        raise
    weakref.finalize(entry, memory.free, address, size).atexit = False  # a daemon thread may run it to the very end
    return Compiled(entry, None)


def _placed(file: elf.ObjectFile) -> tuple[dict[int, int], int]:
    """Where sections begin in the memory, by number; and how long that is.

    Raises:
        NotLinked: one of them is none of code and constants.
    """
    places, end = elf.layout(file.sections)
    for s in (file.sections[k] for k in places):
        is_constant = not s.flags & (elf.WRITE | elf.THREAD_LOCAL)
        if s.kind not in (elf.PROGBITS, elf.NOBITS) or not is_constant or s.align > mmap.PAGESIZE:
            raise NotLinked(f"a section of kind {s.kind}, {s.flags}")
    if not 0 < end <= MOST_BYTES:
        raise NotLinked(f"{end} bytes")
    return places, end


def _relocate(image: bytearray, places: Mapping[int, int], base: int, file: elf.ObjectFile, table: elf.Section) -> None:
    """Write addresses into a section.

    Raises:
        NotLinked: there are other relocations than those, or a symbol that is not known.
    """
    start, size = places[table.info], file.sections[table.info].size
    symbols = file.symbols(file.sections[table.link])
    for r in file.relocations(table):
        if r.kind != _R_64 or not 0 <= r.offset <= size - 8:
            raise NotLinked(f"a relocation of type {r.kind}")
        symbol = symbols[r.symbol]
        if symbol.section in places:
            address = base + places[symbol.section] + symbol.offset
        elif symbol.section == elf.UNDEFINED:
            address = _external(symbol.name)
        else:
            raise NotLinked(f"a symbol of section {symbol.section}")
        struct.pack_into("<Q", image, start + r.offset, (address + r.addend) & 0xFFFFFFFFFFFFFFFF)


def _entry(file: elf.ObjectFile, places: Mapping[int, int], name: str) -> int:
    """Where a function is in the memory.

    Raises:
        NotLinked: there is none of this name.
    """
    for table in file.of_kind(elf.SYMTAB):
        for symbol in file.symbols(table):
            if symbol.section in places and symbol.name == name:
                if symbol.offset >= file.sections[symbol.section].size:
                    raise ValueError("a symbol beyond its section")
                return places[symbol.section] + symbol.offset
    raise NotLinked(f"no entry {name}")


@functools.lru_cache(maxsize=512)
def _external(name: str) -> int:
    """The address of a function of the C library: its vector functions, its scalar ones, or one of this process.

    Raises:
        NotLinked: there is none.
    """
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise NotLinked(f"no function {name}")


@functools.lru_cache(maxsize=1)
def _libraries() -> list[Any]:
    found = []
    for name in ("libm.so.6", "libmvec.so.1", None):
        try:
            found.append(ctypes.CDLL(name))
        except OSError:
            continue
    return found
