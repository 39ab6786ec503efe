"""Integers above `SMALL`, which are run-time sizes of a kernel, named after their value."""

from __future__ import annotations

from hjit.trace.ir.poly import Atom, Poly, Sym


def large_number(n: int) -> Sym:
    """The size that is a number."""
    return Sym(f"k{n}")


def with_numbers(p: Poly) -> Poly:
    """The polynomial with all numbers as constants: for facts about the current trace only."""
    return p.substitute(_number)


def _number(a: Atom) -> int | None:
    return int(a.name[1:]) if isinstance(a, Sym) and a.name[0] == "k" and a.name[1:].isdecimal() else None
