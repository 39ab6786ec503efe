"""States of `hjit.sched.search.space`: partial schedules. A `Batch` holds those that differ in loop sizes only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.sched.language.memory import Layout
from hjit.sched.language.tree import Node, Root
from hjit.sched.search.successors import Floats, Ints
from hjit.sched.search.templates import Sizes, chosen

Layouts = dict[str, Layout]
Rows = slice | np.ndarray[Any, Any]
IN_C_ORDER: Layouts = {}
NONE: Sizes = np.zeros((1, 0), np.int64)  # the one choice of a nest whose sizes are known


@dataclass(frozen=True, slots=True, eq=False)
class NestCost:
    """The cost of a child of the root, and what else is known of it, for each choice of its loop sizes.

    Attributes:
        costs: inf where a rule forbids it.
        called: positions in the Graph of the stages that are inlined into it.
        calls: how often it evaluates each of those, [called, choices].
        allocated: bytes that it allocates, [choices].
    """

    costs: Floats
    called: Ints
    calls: Floats
    allocated: Floats

    def some(self, rows: Rows) -> NestCost:
        """Of some choices."""
        return NestCost(self.costs[rows], self.called, self.calls[:, rows], self.allocated[rows])


@dataclass(slots=True, eq=False)
class Batch:
    """Variants of one decision that differ in loop sizes only: a `hjit.sched.search.successors.Family`.

    Attributes:
        step: number of the decision that is next.
        nests: the children of the root.
        changed: the one that the decision makes or changes, with negative sizes (see `Template`), or None.
        sizes: [choices, columns].
        inlined: the stages that are.
        layouts: of stages that are not in C order in memory.
        undecided: the stages of which it is not decided yet where they are computed, where that is to matter.
        is_complete: was it the last decision?
        costs: of each choice; NaN where not known.
        own: of the changed child of the root; None where that is not known, or not kept.
        others_number: one for all batches that leave equal nests as they are; None where it is not known yet.
        buckets: by fineness the number of each choice's bucket.
    """

    step: int
    nests: tuple[Node, ...]
    changed: int | None
    sizes: Sizes
    inlined: frozenset[str]
    layouts: Layouts
    undecided: frozenset[str] = frozenset()
    is_complete: bool = False
    costs: Floats = field(init=False)
    own: NestCost | None = field(init=False, default=None)
    others_number: int | None = field(init=False, default=None)
    buckets: dict[int, Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.costs = np.full(len(self.sizes), np.nan)

    @property
    def others(self) -> list[Node]:
        """The children of the root that the decision does not change."""
        return [nest for k, nest in enumerate(self.nests) if k != self.changed]

    @property
    def depth(self) -> int:
        """How many decisions were made."""
        return self.step

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, row: int) -> State:
        return State(self, row)


class State:
    """A partial schedule."""

    __slots__ = ("_nests", "batch", "row")

    def __init__(self, batch: Batch, row: int) -> None:
        self.batch, self.row = batch, row
        self._nests: tuple[Node, ...] | None = None

    @property
    def nests(self) -> tuple[Node, ...]:
        """The children of the root."""
        if self._nests is None:
            nests, k = self.batch.nests, self.batch.changed
            if k is not None and self.batch.sizes.shape[1]:
                nests = (*nests[:k], chosen(nests[k], self.batch.sizes[self.row]), *nests[k + 1 :])
            self._nests = nests
        return self._nests

    def share(self, known: dict[Node, Node]) -> None:
        """Replace nests by equal ones of other states, so that comparing them is fast."""
        self._nests = tuple(known.setdefault(x, x) for x in self.nests)

    @property
    def tree(self) -> Root:
        """The schedule."""
        return Root(self.nests)

    @property
    def inlined(self) -> frozenset[str]:
        """Stages that are computed wherever they are read."""
        return self.batch.inlined

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.nests == other.nests and self.inlined == other.inlined

    def __hash__(self) -> int:
        return hash((self.nests, self.inlined))
