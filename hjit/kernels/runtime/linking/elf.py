"""Relocatable object files in the format ELF, of 64 bits and little-endian, as LLVM writes them on Linux.

The fields are those of the System V ABI (generic part, chapter 4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

X86_64, AARCH64 = 62, 183  # e_machine
PROGBITS, SYMTAB, RELA, NOBITS = 1, 2, 4, 8  # kinds of sections
WRITE, ALLOCATED, EXECUTABLE, THREAD_LOCAL = 1, 2, 4, 1024  # flags of sections
UNDEFINED = 0  # the section of symbols that are defined elsewhere
_RELOCATABLE = 1
_HEAD = b"\x7fELF\x02\x01\x01" + bytes(9)  # 64 bits, little-endian, version 1, no extensions of a system
_SECTION, _SYMBOL, _RELOCATION = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), struct.Struct("<QQq")


@dataclass(frozen=True, slots=True)
class Section:
    """A section; `offset` and `size` in bytes.

    Attributes:
        link: the number of another section: of relocations their symbols, of symbols their names.
        info: of relocations the number of the section that they change.
    """

    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name for an offset into the section of that number."""

    name: str
    section: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """What stands at `offset` of a section depends on the address of the symbol of that number, and on `addend`."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """The bytes of an object file, and its sections."""

    data: bytes
    sections: tuple[Section, ...]

    def content(self, s: Section) -> bytes:
        """The bytes of a section."""
        return bytes(s.size) if s.kind == NOBITS else self.data[s.offset : s.offset + s.size]

    def of_kind(self, kind: int) -> Iterator[Section]:
        """The sections of a kind."""
        return (s for s in self.sections if s.kind == kind)

    def symbols(self, table: Section) -> list[Symbol]:
        """A symbol table.

        Raises:
            struct.error, IndexError, ValueError: it is damaged.
        """
        if table.kind != SYMTAB:
            raise ValueError("no symbol table")
        names, found = self.sections[table.link].offset, []
        for name, _, _, section, value, size in _SYMBOL.iter_unpack(self.content(table)):
            at = names + name
            found.append(Symbol(self.data[at : self.data.index(b"\0", at)].decode(), section, value, size))
        return found

    def relocations(self, table: Section) -> Iterator[Relocation]:
        """A table of relocations.

        Raises:
            struct.error: it is damaged.
        """
        for offset, info, addend in _RELOCATION.iter_unpack(self.content(table)):
            yield Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)


def read(data: bytes, machine: int) -> ObjectFile:
    """An object file for a machine.

    Raises:
        struct.error, ValueError: it is none, or is damaged.
    """
    if data[:16] != _HEAD or struct.unpack_from("<HH", data, 16) != (_RELOCATABLE, machine):
        raise ValueError(f"this is no relocatable ELF object of {({X86_64: 'x86-64', AARCH64: 'aarch64'})[machine]}")
    (start,), (length, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    found = []
    for k in range(count):
        _, kind, flags, _, offset, size, link, info, align, _ = _SECTION.unpack_from(data, start + k * length)
        if kind != NOBITS and offset + size > len(data):
            raise ValueError("a section beyond the end")
        found.append(Section(kind, flags, offset, size, link, info, align))
    return ObjectFile(data, tuple(found))


def layout(sections: Iterable[Section]) -> tuple[dict[int, int], int]:
    """Where the sections that are part of the program begin in memory, by number, one after the other; and the end."""
    places, end = {}, 0
    for k, s in enumerate(sections):
        if s.flags & ALLOCATED and s.size:
            align = max(s.align, 1)
            places[k] = -(-end // align) * align
            end = places[k] + s.size
    return places, end
