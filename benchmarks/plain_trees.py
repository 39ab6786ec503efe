"""Trees without families, for `hjit.sched.search.search`: the synthetic trees of a paper, and the textbook searches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Protocol

import numpy as np

from hjit.sched.search.successors import Family, Floats, Ints, Some, State


class PlainTree(Protocol[State]):
    """A tree that knows nothing of families."""

    def children(self, state: State) -> Sequence[State]:
        """The states after one more decision, in an order that is always the same."""

    def cost(self, states: Sequence[State]) -> Iterable[float]:
        """A cost for each state, as `Tree.cost`."""

    def depth(self, state: State) -> int:
        """How many decisions were made."""

    def is_complete(self, state: State) -> bool:
        """Whether no decision is left to make."""


@dataclass(frozen=True, slots=True, eq=False)
class Siblings(Generic[State]):
    """A family that is a list."""

    states: tuple[State, ...]
    depth: int
    is_complete: bool

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, row: int) -> State:
        return self.states[row]


class OneByOne(Generic[State]):
    """A plain tree as a `Tree`: neighbours of one depth are a family.

    Args:
        bucket: ``bucket(state, fineness)`` is equal for states that are alike; see `Options`.
    """

    def __init__(self, tree: PlainTree[State], bucket: Callable[[State, int], Hashable] | None = None) -> None:
        self.tree, self.bucket = tree, bucket
        self._numbers: dict[Hashable, int] = {}

    def families(self, state: State) -> list[Siblings[State]]:
        """The children of a state."""
        return [self._siblings(list(x)) for _, x in groupby(self.tree.children(state), self._kind)]

    def alone(self, state: State) -> Siblings[State]:
        """A family of this state only."""
        return self._siblings([state])

    def _siblings(self, states: Sequence[State]) -> Siblings[State]:
        return Siblings(tuple(states), *self._kind(states[0]))

    def _kind(self, state: State) -> tuple[int, bool]:
        return self.tree.depth(state), self.tree.is_complete(state)

    def cost(self, some: Sequence[Some[State]]) -> Iterator[Floats]:
        """The costs, all asked for at once."""
        states = [family[k] for family, rows in some for k in rows]
        costs = np.array([cost for _, cost in zip(states, self.tree.cost(states), strict=True)], np.float64)
        return iter(np.split(costs, np.cumsum([len(rows) for _, rows in some])[:-1]))

    def buckets(self, family: Family[State], fineness: int) -> Ints:
        """For `Options.buckets`."""
        assert self.bucket is not None
        keys = [self.bucket(family[k], fineness) for k in range(len(family))]
        return np.array([self._numbers.setdefault(key, len(self._numbers)) for key in keys], np.int64)
