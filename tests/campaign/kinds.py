"""What a campaign runs: a module for each kind of case, with its share of the time.

A kind is a module with

    LIMIT                       seconds that a case may take on a busy machine
    case(seed) -> Case          what a seed stands for, as JSON data: always the same
    run(case) -> Result         run it; in a worker, which it may end
    smaller(case) -> cases      cases with less in them, the smallest first; any of which may still fail
    described(case) -> str      what a person needs to see
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

Case = dict[str, Any]

# Shares of the time.
SHARES = {
    "programs": 45,
    "schedules": 15,
    "mutated_schedules": 10,
    "mutated_caches": 8,
    "kills": 7,
    "threads": 8,
    "forks": 7,
}


@dataclass(frozen=True)
class Result:
    """How a case went.

    Attributes:
        status: "ok"; "failed"; "refused": hjit says that it does not do this, which it may; "invalid": NumPy does not
            do it either.
        sort: of a failure, in a word or two: what stays the same while a case is made smaller.
        text: what was wrong, or why it was refused.
    """

    status: str
    sort: str = ""
    text: str = ""


OK = Result("ok")


class Kind(Protocol):
    """See the head of this module."""

    LIMIT: float

    def case(self, seed: int) -> Case: ...
    def run(self, case: Case) -> Result: ...
    def smaller(self, case: Case) -> Iterator[Case]: ...
    def described(self, case: Case) -> str: ...


def kind(name: str) -> Kind:
    """The module of a kind."""
    return cast(Kind, importlib.import_module(f"tests.campaign.{name}"))
