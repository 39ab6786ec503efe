"""The kinds of targets, loops and memory: a row of a table each.

A new kind of loop is its word in `LoopKind`, its row in `LOOP_KINDS`, and the rule that says where it is legal, in
`hjit.sched.language.loop_rules`. A new level of memory is the same with `Memory`, `MEMORY_LEVELS` and `MEMORY_RULES` of
`hjit.sched.language.check`. A new kind of target is its word in `TargetKind` and its row in `TARGET_KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LoopKind = Literal["serial", "parallel", "vector", "unroll", "gpu_block", "gpu_thread", "gpu_lane"]
Memory = Literal["heap", "shared", "register"]
TargetKind = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class LoopTraits:
    """What holds of a kind of loop.

    Attributes:
        is_straight_line: its iterations become straight-line code or lanes: no stage is computed or stored inside one.
        is_outermost: its iterations run at the same time, in no order: only the outermost loops of a root are such.
        colour: in pictures of schedules.
    """

    is_straight_line: bool
    colour: str
    is_outermost: bool = False


@dataclass(frozen=True, slots=True)
class MemoryTraits:
    """What holds of a level of memory.

    Attributes:
        max_elements: of one buffer; on the heap, addresses in bytes stay far within 64 bits. What a block or a thread
            of a GPU may have in bytes is looked at where kernels are written, by `hjit.kernels.cuda.emit`.
    """

    max_elements: int


@dataclass(frozen=True, slots=True)
class TargetTraits:
    """What a kind of target has."""

    loops: tuple[LoopKind, ...]
    memory: tuple[Memory, ...]


LOOP_KINDS: Mapping[LoopKind, LoopTraits] = {
    "serial": LoopTraits(is_straight_line=False, colour="#f1f5f9"),
    "parallel": LoopTraits(is_straight_line=False, colour="#fde68a", is_outermost=True),
    "vector": LoopTraits(is_straight_line=True, colour="#bbf7d0"),
    "unroll": LoopTraits(is_straight_line=True, colour="#e9d5ff"),
    "gpu_block": LoopTraits(is_straight_line=False, colour="#fdba74", is_outermost=True),
    "gpu_thread": LoopTraits(is_straight_line=False, colour="#fef08a"),
    "gpu_lane": LoopTraits(is_straight_line=False, colour="#d9f99d"),
}
MEMORY_LEVELS: Mapping[Memory, MemoryTraits] = {
    "heap": MemoryTraits(max_elements=1 << 40),
    "shared": MemoryTraits(max_elements=1 << 18),
    "register": MemoryTraits(max_elements=1 << 16),
}
TARGET_KINDS: Mapping[TargetKind, TargetTraits] = {
    "cpu": TargetTraits(("serial", "parallel", "vector", "unroll"), ("heap",)),
    "cuda": TargetTraits(
        ("serial", "parallel", "unroll", "gpu_block", "gpu_thread", "gpu_lane"), ("heap", "shared", "register")
    ),
}
