"""Tail strategies: the last iteration of a loop whose step does not divide its range."""

from __future__ import annotations

from typing import Literal

from hjit.kernels.lower.placing.inner_loops import inner_loops, is_alone, vector_loop
from hjit.sched.analysis.bounds import Reads
from hjit.sched.language.definitions import is_repeatable
from hjit.sched.language.tree import Loop, own

# exact: all iterations are whole. shift_inwards: the last one starts earlier, and repeats some of what the one before
# it did. peel: what is left runs in steps of one after the loop. clip: the last iteration is shorter.
SerialTail = Literal["exact", "shift_inwards", "peel", "clip"]
VectorTail = Literal["shift_inwards", "predicate", "guard_with_if"]  # see `VectorLoop`


def serial_tail(reads: Reads, node: Loop, step: int, size: int | None) -> SerialTail:
    """Of a loop in steps of `step` over `size` elements, None where the run decides."""
    if size is not None and size % step == 0:
        return "exact"
    inner = inner_loops(node)[0]
    if inner.tail == "shift_inwards":
        return "shift_inwards"
    if not is_unrolled(node):
        return "clip"
    return "shift_inwards" if inner.tail == "auto" and _is_repeatable(reads, node) else "peel"


def vector_tail(reads: Reads, node: Loop) -> VectorTail:
    """Of the vectors that a loop is, or that run inside it."""
    kind = vector_loop(node).tail
    if kind == "predicate":
        return "predicate"
    return "shift_inwards" if kind != "guard_with_if" and _is_repeatable(reads, node) else "guard_with_if"


def is_unrolled(node: Loop) -> bool:
    """Is an iteration unrolled, and nothing of another stage in it, so that a shorter one would be code of its own?"""
    return inner_loops(node)[0].kind == "unroll" and is_alone(node)


def _is_repeatable(reads: Reads, node: Loop) -> bool:
    """May iterations of a loop be run twice?"""
    return is_repeatable(reads.stages[node.stage], own(node, node.stage).definitions)
