"""Buckets of similar states, from which a search samples (Adams 2019, section 3.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

import numpy as np

from hjit.sched.language.tree import Compute, Loop, Node, Store, computes
from hjit.sched.search.batches import NONE, Batch, State
from hjit.sched.search.successors import Family, Ints
from hjit.sched.search.templates import Sizes


class Buckets:
    """What states of one bucket share: the loops of their nests down to a depth, and sizes above it."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._outlines: defaultdict[int, dict[Node, int]] = defaultdict(dict)
        self._seen: dict[Hashable, tuple[list[bytes], Ints]] = {}

    def __call__(self, family: Family[State], fineness: int) -> Ints:
        """The number of the bucket of each state.

        A nest whose sizes are being chosen is another than one with the same loops of known sizes.
        """
        assert isinstance(family, Batch)
        found = family.buckets.get(fineness)
        if found is None:
            found = family.buckets[fineness] = self._of(family, fineness)
        return found

    def _of(self, b: Batch, fineness: int) -> Ints:
        known = map(self._outlines[fineness].get, b.nests)
        outlines = tuple(self._outlined(n, fineness) if x is None else x for n, x in zip(b.nests, known, strict=True))
        seen = (
            [] if b.changed is None else sorted({-n - 1 for n in _sizes_above(b.nests[b.changed], fineness) if n < 0})
        )
        key = self._numbers.setdefault((b.step, outlines, b.inlined), len(self._numbers))
        rows, which = self._alike(b.sizes, tuple(seen))
        return np.array([self._numbers.setdefault((key, row), len(self._numbers)) for row in rows], np.int64)[which]

    def _alike(self, sizes: Sizes, seen: tuple[int, ...]) -> tuple[list[bytes], Ints]:
        """What there is in some columns of choices, and which of that each choice has."""
        key = len(sizes), sizes.tobytes(), seen  # batches of many states have the same choices
        found = self._seen.get(key)
        if found is None:
            rows, which = _unique(sizes[:, seen]) if seen else (NONE, np.zeros(len(sizes), np.int64))
            found = self._seen[key] = [row.tobytes() for row in rows], which
        return found

    def _outlined(self, nest: Node, fineness: int) -> int:
        """A number for the outline of a nest."""
        found = self._numbers.setdefault(_outline(nest, fineness), len(self._numbers))
        self._outlines[fineness][nest] = found
        return found


def _outline(node: Node, depth: int) -> Hashable:
    """A tree down to a depth of loops, without the sizes at the last depth; only the stages of deeper levels count."""
    match node:
        case Compute():
            return node
        case Store(stage, children, order, align, memory):
            return stage, order, align, memory, tuple(_outline(c, depth) for c in children)
        case Loop(stage, dim, kind, size, children):
            if depth < 0:
                return tuple((c.stage, c.definitions) for c in computes(node))
            return (
                stage,
                dim,
                kind,
                size is None or (size if depth else -1),
                tuple(_outline(c, depth - 1) for c in children),
            )
    raise AssertionError(node)


def _sizes_above(node: Node, depth: int) -> Iterator[int]:
    """The sizes that are part of an outline."""
    if isinstance(node, Loop):
        if depth > 0 and node.size is not None:
            yield node.size
        depth -= 1
    if depth >= 0 and not isinstance(node, Compute):
        for c in node.children:
            yield from _sizes_above(c, depth)


def _unique(rows: Sizes) -> tuple[Sizes, Ints]:
    """The distinct rows in order, and the number of the distinct row of each.

    `np.unique` compares rows as structured elements, and makes a TypeError of the KeyboardInterrupt that ends one.
    """
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    is_new = np.ones(len(rows), bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(1)
    which = np.empty(len(rows), np.int64)
    which[order] = np.cumsum(is_new) - 1
    return ordered[is_new], which
