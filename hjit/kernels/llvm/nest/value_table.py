"""A table of emitted values, and of the scopes in which they are available."""

from __future__ import annotations

from hjit.kernels.llvm.builder.code import Val
from hjit.trace.ir.expressions import Expr
from hjit.trace.ir.poly import Atom, Poly

# an index, in how many lanes; a term of one, its factor and lanes; the address of an index in an array
Known = Poly | tuple[Poly, int] | tuple[tuple[Atom, ...], int, int] | tuple[str, Poly]


class ValueTable:
    """Emitted values: integers are also available in inner scopes, other values in their own loop or branch only.

    Attributes:
        integers: an index -> its value; what is open at the moment.
        values: expressions -> their values, for each loop and branch that is open.
    """

    __slots__ = ("_added", "integers", "values")

    def __init__(self) -> None:
        self.integers: dict[Known, Val] = {}
        self.values: list[dict[Expr, Val]] = [{}]
        self._added: list[list[Known]] = [[]]

    def open(self) -> None:
        """Enter a loop or a branch."""
        self.values.append({})
        self._added.append([])

    def close(self) -> None:
        """Leave it."""
        self.values.pop()
        for key in self._added.pop():
            self.integers.pop(key, None)

    def rename(self) -> None:
        """A name has a new meaning from now on."""
        for keys in self._added:
            for key in keys:
                self.integers.pop(key, None)
            keys.clear()
        self.forget()

    def forget(self) -> None:
        """Memory was written: values that were loaded from it are no longer valid."""
        self.values[-1].clear()

    def remember(self, key: Known, value: Val, everywhere: bool) -> None:
        """An integer; `everywhere`: it does not depend on any loop."""
        self.integers[key] = value
        if not everywhere:
            self._added[-1].append(key)
