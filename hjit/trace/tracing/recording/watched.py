"""What outlives a call, and the traced function must not change: a later call runs compiled code, which does not."""

from __future__ import annotations

import array
import collections
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CellType
from typing import Any

_BUFFERS = (bytearray, array.array)
CONTAINERS = (list, dict, set, collections.deque, *_BUFFERS)


@dataclass(slots=True)
class Watched:
    """Variables, classes and containers from outside the function, as they were before the trace.

    Attributes:
        cells: closure cells of clones, with what they held and their names.
        classes: the user's classes that the function names, with their attributes.
        containers: lists, dicts and sets, with their contents and names.
    """

    cells: list[tuple[CellType, Any, str]] = field(default_factory=list)
    classes: dict[type, dict[str, Any]] = field(default_factory=dict)
    containers: list[tuple[Any, list[Any], str]] = field(default_factory=list)

    def add(self, x: Any, name: str) -> None:
        """Watch a list, dict, set, deque or buffer; nothing else has contents to change."""
        if isinstance(x, CONTAINERS):
            self.containers.append((x, contents(x), name))

    def changes(self) -> Iterator[tuple[str, str]]:
        """What was changed since: the operation, and why it cannot be traced."""
        for cls, attributes in self.classes.items():
            for name in _changed(cls, attributes):
                yield f"{cls.__name__}.{name} = ...", "the function changes a class that outlives it"
        for cell, value, name in self.cells:
            if _cell_contents(cell) is not value:
                yield f"nonlocal {name}", "the function assigns to a variable of an enclosing function"
        for container, before, name in self.containers:
            if not same_items(contents(container), before):
                yield name, f"the function changes a {type(container).__name__} that outlives it"

    def restore_classes(self) -> None:
        """Put the attributes of classes back to what they were."""
        for cls, before in self.classes.items():
            for name in _changed(cls, before):
                setattr(cls, name, before[name]) if name in before else delattr(cls, name)


def _changed(cls: type, before: dict[str, Any]) -> list[str]:
    """The attributes of a class that are not what they were; but for what Python itself keeps there."""
    now = vars(cls)
    return [
        n for n in {**before, **now} if not n.startswith("__") and now.get(n, _changed) is not before.get(n, _changed)
    ]


def _cell_contents(cell: CellType) -> Any:
    """What a cell holds; itself where that was deleted."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def contents(container: Any) -> list[Any]:
    """What makes a container the same: its items by identity, keys in order; of a buffer its bytes."""
    if isinstance(container, _BUFFERS):
        return [bytes(container)]
    return [*container, *container.values()] if isinstance(container, dict) else list(container)


def same_items(a: list[Any], b: list[Any]) -> bool:
    """Are these the same objects in the same order, or the same bytes?"""
    return len(a) == len(b) and all(x is y or (type(x) is bytes and x == y) for x, y in zip(a, b, strict=True))
