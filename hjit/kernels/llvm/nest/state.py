"""Parts of the state of a `hjit.kernels.llvm.nest.emitter.NestEmitter`: stores, registers, paired loads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hjit.kernels.llvm.builder.code import Val
from hjit.kernels.lower.loopir import Stmt
from hjit.trace.ir.poly import Poly


@dataclass(slots=True)
class StoreState:
    """Which arrays the nest stores to: loads of the others may be moved.

    Attributes:
        written: the arrays that it writes.
        changing: those that it reads, too.
        bodies: the blocks of statements that are being emitted, with the depth of their scopes.
        storing: what the current statement stores to.
        versions: how often each array was stored to so far.
    """

    written: set[str] = field(default_factory=set)
    changing: frozenset[str] = frozenset()
    bodies: list[tuple[int, tuple[Stmt, ...]]] = field(default_factory=list)
    storing: tuple[str, ...] = ()
    versions: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class RegisterState:
    """The registers of the loop IR.

    Attributes:
        memory: where each is, and its lanes.
        named: the values of those that are set only once.
    """

    memory: dict[str, tuple[str, int]] = field(default_factory=dict)
    named: dict[str, Val] = field(default_factory=dict)


@dataclass(slots=True)
class PairedLoads:
    """Loads of the current statement that one instruction does two of; see `hjit.kernels.llvm.memory.gathers`.

    Attributes:
        pairs: by location.
        loaded: the values that were loaded so.
    """

    pairs: dict[tuple[str, Poly], Any] = field(default_factory=dict)
    loaded: dict[tuple[str, Poly], Val] = field(default_factory=dict)
