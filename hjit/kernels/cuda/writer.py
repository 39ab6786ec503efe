"""The text of a kernel while it is written: lines, their indentation, and C names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

INDENT = "    "


class Writer:
    """Writes the body of a kernel.

    Attributes:
        heads: the first lines, such as declarations of shared memory.
        lines: the others.
    """

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.lines: list[str] = []
        self._depth = 1
        self._taken: Counter[str] = Counter()

    def head(self, text: str) -> None:
        """Add one of the first lines."""
        self.heads.append(INDENT + text)

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(INDENT * self._depth + text)

    @contextmanager
    def braces(self, head: str = "") -> Iterator[None]:
        """A block in braces."""
        self.line(f"{head}{{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def fresh(self, name: str) -> str:
        """A new C name."""
        plain = "v_" + re.sub(r"\W", "_", name)
        self._taken[plain] += 1
        return plain if self._taken[plain] == 1 else self.fresh(f"{name}_{self._taken[plain]}")

    def numbered(self, name: str) -> str:
        """A new C name for a temporary: `name` with a number."""
        self._taken[name] += 1
        return f"{name}_{self._taken[name]}"
