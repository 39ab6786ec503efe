"""What `hjit.sched.search.search` searches: a tree of states, told in families of those whose costs are found together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)
Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Family(Protocol[State_co]):
    """States after as many decisions, all or none of them complete, whose costs are found together; by their number in it."""

    @property
    def depth(self) -> int:
        """How many decisions were made."""

    @property
    def is_complete(self) -> bool:
        """Whether no decision is left to make: only such states are results."""

    def __len__(self) -> int:
        """How many states."""

    def __getitem__(self, row: int) -> State_co:
        """One of them."""


Some = tuple[Family[State], Ints]  # a family, and the rows of those of its states that are meant


class Tree(Protocol[State]):
    """What is searched. Complete states have no children that matter; others may have none, and end there."""

    def families(self, state: State) -> Iterable[Family[State]]:
        """The states after one more decision, in an order that is always the same."""

    def alone(self, state: State) -> Family[State]:
        """A family of this state only."""

    def cost(self, some: Sequence[Some[State]]) -> Iterable[Floats]:
        """A cost for each state, in the same unit for all, neither negative nor NaN; inf: nothing comes of it. Asked for many states at once."""


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
