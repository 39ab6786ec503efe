"""Which indices are known to be at least 0: their divisions need no care of signs."""

from __future__ import annotations

from collections.abc import Iterable

from hjit.trace.ir.poly import Atom, Boundary, Extremum, FloorDiv, Mod, Poly, Var


class Signs:
    """What is known at a place of a kernel's text.

    Args:
        natural: variables and sizes that are never negative.
    """

    def __init__(self, natural: Iterable[Atom]) -> None:
        self.natural = set(natural)

    def bind(self, var: Var, *least: Poly) -> None:
        """A variable that is one of these, or more; it may have been another one's name before."""
        is_natural = all(map(self.is_natural, least))
        (self.natural.add if is_natural else self.natural.discard)(var)

    def is_natural(self, p: Poly) -> bool:
        """Is it never negative?"""
        return p.const >= 0 and all(c > 0 and all(map(self._is_natural, m)) for m, c in p.terms.items())

    def _is_natural(self, a: Atom) -> bool:
        match a:
            case Mod() | Boundary():
                return True
            case FloorDiv():
                return self.is_natural(a.arg)
            case Extremum():
                return (any if a.which == "max" else all)(map(self.is_natural, (a.a, a.b)))
        return a in self.natural
