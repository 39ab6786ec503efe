"""The interface of a search space: a tree of states, in families whose states are costed together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)
Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Family(Protocol[State_co]):
    """States of the same depth, all complete or none, that are costed together; referred to by number."""

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
    """The interface of a search space. Children of complete states are ignored; other states without children are dead
    ends."""

    def families(self, state: State) -> Iterable[Family[State]]:
        """The states after one more decision, in an order that is always the same."""

    def alone(self, state: State) -> Family[State]:
        """A family of this state only."""

    def cost(self, some: Sequence[Some[State]]) -> Iterable[Floats]:
        """A cost for each state, in the same unit for all, neither negative nor NaN; inf: nothing comes of it."""
