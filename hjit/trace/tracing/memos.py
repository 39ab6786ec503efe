"""Memoised results of a trace: array code often asks for the same shapes and views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Memos:
    """Results by what they follow from.

    Keys have the identities of shapes and indices, which are faster to hash than these: each entry keeps alive what
    its key knows so.

    Attributes:
        operations: what is the same for all element-wise operations on such operands, see `hjit.trace.ops.elementwise`.
        views: of arrays that are alike, by the same key: the shapes and indices before and after.
        broadcasts: shapes that were broadcast with each other, and the result.
    """

    operations: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    views: dict[tuple[Any, ...], tuple[Any, ...]] = field(default_factory=dict)
    broadcasts: dict[tuple[int, ...], tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]] = field(default_factory=dict)
    _others: dict[tuple[Any, ...], tuple[Any, Any]] = field(default_factory=dict)

    def once(self, key: tuple[Any, ...], keep: Any, make: Callable[[], T]) -> T:
        """What `make` gives, made once for a key; `keep`: what the key knows by identity, and so has to stay."""
        found = self._others.get(key)
        if found is None:
            found = self._others[key] = keep, make()
        made: T = found[1]
        return made
