"""The kinds of targets, loops and memory: a row of a table each.

A new kind of loop is its word in `LoopKind`, its row in `LOOP_KINDS`, and the rule that says where it is legal, in
`hjit.sched.language.check.LOOP_KIND_RULES`. A new level of memory is the same with `Memory`, `MEMORY_LEVELS` and
`MEMORY_RULES`. A new kind of target is its word in `TargetKind` and its row in `TARGET_KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LoopKind = Literal["serial", "parallel", "vector", "unroll"]
Memory = Literal["heap"]
TargetKind = Literal["cpu"]


@dataclass(frozen=True, slots=True)
class LoopTraits:
    """What holds of a kind of loop.

    Attributes:
        is_straight_line: its iterations become straight-line code or lanes: no stage is computed or stored inside one.
        colour: in pictures of schedules.
    """

    is_straight_line: bool
    colour: str


@dataclass(frozen=True, slots=True)
class MemoryTraits:
    """What holds of a level of memory.

    Attributes:
        max_elements: of one buffer; on the heap, addresses in bytes stay far within 64 bits.
    """

    max_elements: int


@dataclass(frozen=True, slots=True)
class TargetTraits:
    """What a kind of target has."""

    loops: tuple[LoopKind, ...]
    memory: tuple[Memory, ...]


LOOP_KINDS: Mapping[LoopKind, LoopTraits] = {
    "serial": LoopTraits(is_straight_line=False, colour="#f1f5f9"),
    "parallel": LoopTraits(is_straight_line=False, colour="#fde68a"),
    "vector": LoopTraits(is_straight_line=True, colour="#bbf7d0"),
    "unroll": LoopTraits(is_straight_line=True, colour="#e9d5ff"),
}
MEMORY_LEVELS: Mapping[Memory, MemoryTraits] = {"heap": MemoryTraits(max_elements=1 << 40)}
TARGET_KINDS: Mapping[TargetKind, TargetTraits] = {
    "cpu": TargetTraits(("serial", "parallel", "vector", "unroll"), ("heap",)),
}
