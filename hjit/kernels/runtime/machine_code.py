"""Compiled kernels: object code of earlier processes to machine code in memory, without LLVM, which takes longer to
import than kernels to load.

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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

# -- a compilation with LLVM that nobody waits for any more

_given_up: Future[bytes] | None = None


def give_up(call: Future[bytes]) -> None:
    """LLVM goes on compiling, and nobody waits for it."""
    global _given_up
    _given_up = call


def is_busy() -> bool:
    """Does LLVM still compile what it was given too much time for? It holds its lock: nothing can be compiled."""
    return _given_up is not None and not _given_up.done()


# -- kernels


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code of a kernel.

    Attributes:
        entry: ``i32 entry(ptr params)`` as a ctypes function that releases the GIL; the code lives as long as it.
        library: what owns the code; None: the entry.
    """

    entry: Callable[[Any], int]
    library: Any


PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)


class NotLinked(Exception):
    """Only LLVM can load it."""


def linked(object_code: bytes, name: str) -> Compiled:
    """The kernel of some object code, in memory of its own.

    Raises:
        NotLinked: it is nothing that hjit makes for x86-64, is damaged, or the system does not let it be loaded.
    """
    try:
        return _loaded(object_code, name)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NotLinked(f"damaged: {error}") from None


def _loaded(object_code: bytes, name: str) -> Compiled:
    """As `linked`; errors of damaged code are Python's own."""
    if not sys.platform.startswith("linux") or object_code[: len(_HEAD)] != _HEAD:
        raise NotLinked("the system, or the format")
    sections = _sections(object_code)
    places, size = _placed(sections)
    image = bytearray(size)
    for k, start in places.items():
        s = sections[k]
        if s.kind == _PROGBITS:
            image[start : start + s.size] = object_code[s.offset : s.offset + s.size]
    address = _pages(size)
    try:
        for s in sections:
            if s.kind == _RELA and s.info in places:
                _relocate(image, places, address, sections, s, object_code)
        _fill(address, image)
        entry = PROTOTYPE(address + _entry(object_code, sections, places, name))
    except BaseException:
        _free(address, size)
        raise
    weakref.finalize(entry, _free, address, size).atexit = False  # a daemon thread may run it to the very end
    return Compiled(entry, None)


# -- ELF

_HEAD = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 1, 62)  # relocatable, of 64 bits, little-endian, x86-64
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_WRITE, _ALLOC, _TLS = 1, 2, 1024
_R_64 = 1  # R_X86_64_64: a symbol's address and an addend, in 8 bytes
MOST_BYTES = 256 << 20  # of a kernel


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


def _sections(data: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 40)
    length, count = struct.unpack_from("<HH", data, 58)
    found = []
    for k in range(count):
        _, kind, flags, _, offset, size, link, info, align, _ = struct.unpack_from(
            "<IIQQQQIIQQ", data, start + k * length
        )
        if kind != _NOBITS and offset + size > len(data):
            raise ValueError("a section beyond the end")
        found.append(_Section(kind, flags, offset, size, link, info, align))
    return found


def _placed(sections: Sequence[_Section]) -> tuple[dict[int, int], int]:
    """Where those that are loaded begin in the memory, by number; and how long that is.

    Raises:
        NotLinked: one of them is none of code and constants.
    """
    places, end = {}, 0
    for k, s in enumerate(sections):
        if s.flags & _ALLOC and s.size:
            if s.kind not in (_PROGBITS, _NOBITS) or s.flags & (_WRITE | _TLS) or s.align > mmap.PAGESIZE:
                raise NotLinked(f"a section of kind {s.kind}, {s.flags}")
            align = max(s.align, 1)
            places[k] = -(-end // align) * align
            end = places[k] + s.size
    if not 0 < end <= MOST_BYTES:
        raise NotLinked(f"{end} bytes")
    return places, end


def _relocate(
    image: bytearray, places: dict[int, int], base: int, sections: Sequence[_Section], table: _Section, data: bytes
) -> None:
    """Write addresses into a section.

    Raises:
        NotLinked: there are other relocations than those, or a symbol that is not known.
    """
    start, end = places[table.info], places[table.info] + sections[table.info].size
    symbols = sections[table.link]
    for k in range(table.size // 24):
        offset, info, addend = struct.unpack_from("<QQq", data, table.offset + 24 * k)
        if info & 0xFFFFFFFF != _R_64 or not 0 <= offset <= end - start - 8:
            raise NotLinked(f"a relocation of type {info & 0xFFFFFFFF}")
        name, _, _, section, value, _ = _symbol(data, symbols, info >> 32)
        if section in places:
            address = base + places[section] + value
        elif section == 0:
            address = _external(_text(data, sections[symbols.link], name))
        else:
            raise NotLinked(f"a symbol of section {section}")
        struct.pack_into("<Q", image, start + offset, (address + addend) & 0xFFFFFFFFFFFFFFFF)


def _symbol(data: bytes, symbols: _Section, k: int) -> tuple[int, int, int, int, int, int]:
    """Name, info, other, section, value and size."""
    if not 0 <= k < symbols.size // 24:
        raise ValueError("no such symbol")
    found: tuple[int, int, int, int, int, int] = struct.unpack_from("<IBBHQQ", data, symbols.offset + 24 * k)
    return found


def _text(data: bytes, strings: _Section, at: int) -> str:
    return data[strings.offset + at : data.index(b"\0", strings.offset + at)].decode()


def _entry(data: bytes, sections: Sequence[_Section], places: dict[int, int], name: str) -> int:
    """Where a function is in the memory.

    Raises:
        NotLinked: there is none of this name.
    """
    for table in (s for s in sections if s.kind == _SYMTAB):
        for k in range(table.size // 24):
            at, _, _, section, value, _ = _symbol(data, table, k)
            if section in places and _text(data, sections[table.link], at) == name:
                if value >= sections[section].size:
                    raise ValueError("a symbol beyond its section")
                return places[section] + value
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


# -- memory


@functools.lru_cache(maxsize=1)
def _memory() -> tuple[Any, Any, Any]:
    """The C library's mmap, mprotect and munmap.

    What Python's own `mmap` makes goes when Python ends, while daemon threads may still run what is in it.
    """
    library = ctypes.CDLL(None)
    size, number, address = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    library.mmap.argtypes, library.mmap.restype = [address, size, number, number, number, ctypes.c_ssize_t], address
    library.mprotect.argtypes, library.mprotect.restype = [address, size, number], number
    library.munmap.argtypes, library.munmap.restype = [address, size], number
    return library.mmap, library.mprotect, library.munmap


def _pages(size: int) -> int:
    """The address of new pages.

    Raises:
        NotLinked: there are none.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    found: int | None = _memory()[0](None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if found is None or found == _FAILED:
        raise NotLinked("no memory")
    return found


_FAILED = ctypes.c_void_p(-1).value


def _fill(address: int, image: bytearray) -> None:
    """Write pages, for good: from now on they can be executed, and no longer be written.

    Raises:
        NotLinked: the system does not let them be executed.
    """
    ctypes.memmove(address, bytes(image), len(image))
    if _memory()[1](address, len(image), mmap.PROT_READ | mmap.PROT_EXEC):
        raise NotLinked("the system does not let memory be executed")


def _free(address: int, size: int) -> None:
    """Give pages back whose code nobody can call any more."""
    if not sys.is_finalizing():
        _memory()[2](address, size)
