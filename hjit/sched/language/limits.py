"""How large the numbers and the trees of schedules may be. What is larger is refused before anything is lowered.

A schedule may come from a person, a file, or a file that was damaged. Every number below has room for schedules that
anybody would write; beyond it machine integers wrap round, or LLVM takes minutes, or ends the process.
`hjit.sched.language.check` applies them to trees, `hjit.sched.hand.directives` to directives as they are given, so that
the message names the line that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from hjit.errors import ScheduleError
from hjit.sched.language.kinds import LOOP_KINDS, MEMORY_LEVELS, Memory
from hjit.sched.language.tree import TAILS, Compute, Loop, Node, Root, Store, dims_of, loop_name

# elements of an inner loop, of what is prefetched ahead: sums of a few indices stay within 32 bits, see
# `hjit.kernels.lower.params.SMALL_ARRAY`
MAX_SIZE = 1 << 28
# lanes of one vector: four registers of bytes, or 32 of float64. LLVM ends the process from 65,536 on, and is slow long
# before
MAX_LANES = 256
MAX_UNROLL = 256  # copies of one body: LLVM's time grows with them, see `MAX_CODE`
# elements that the axes of a stage are rounded up to, all axes multiplied: a longer gap is memory that nobody reads
MAX_ALIGN = 1 << 20
MAX_PARTS = 1 << 16  # of a reduction: each is an element of a stage that is kept in memory
# loops around one computation: lowering calls itself for each, and what it knows of tiles in tiles grows with the
# square of them
MAX_LOOPS = 64
MAX_DEPTH = 400  # nodes from the root to a computation: what walks trees calls itself for each node
MAX_NODES = 100_000  # of a tree; what lowering takes grows with them
MAX_DIRECTIVES = 10_000  # of a schedule; each of them makes the list of its stage's loops anew
MAX_PREFETCHES = 64  # arrays that a computation prefetches
# vector registers computed in the code of one computation, all its copies together: LLVM takes some seconds for them
MAX_CODE = 60_000
# what a lane of a division of integers, but by a constant, counts in `MAX_CODE`: no processor divides them in vectors
DIVISION_CODE = 16


def shown(n: Any) -> str:
    """A number, or whatever stands in its place, in a message: short."""
    if isinstance(n, int) and not isinstance(n, bool) and n.bit_length() > 128:
        return f"{'-' if n < 0 else ''}2**{n.bit_length() - 1} or more"  # Python does not print integers of any length
    text = repr(n)
    return text if len(text) <= 80 else text[:77] + "..."


def is_size(n: object) -> bool:
    """Is it a number of elements that an inner loop may have?"""
    return type(n) is int and 1 <= n <= MAX_SIZE


def check_number(what: str, n: object, most: int, unit: str) -> None:
    """Is it a whole number from 1 to `most`?

    Raises:
        ScheduleError: `what`, and what is allowed.
    """
    if type(n) is not int or not 1 <= n <= most:
        raise ScheduleError(f"{what}: {shown(n)} is not a number of {unit}; allowed are whole numbers from 1 to {most}")


# -- trees


def check_nodes(root: object) -> None:
    """Is it a tree of nodes, each with the fields that it has to have, neither too deep nor too large? Later checks
    rely on that.

    Raises:
        ScheduleError: it names the node, and what is allowed.
    """
    if not isinstance(root, Root):
        raise ScheduleError(f"a schedule starts at its root, not at {shown(root)}")
    nodes: list[tuple[Any, int, int]] = [(root, 0, 0)]  # node, nodes and loops above it
    seen = 0
    while nodes:  # not recursive: this is what finds that a tree is too deep
        node, depth, loops = nodes.pop()
        seen += 1
        if not isinstance(node, (Compute, Loop, Store)) and node is not root:
            raise ScheduleError(f"{shown(node)} is no node of a schedule; there are stores, loops and computations")
        for problem in _wrong_fields(node):
            raise ScheduleError(problem)
        loops += isinstance(node, Loop)
        for n, most, unit in (
            (seen, MAX_NODES, "nodes"),
            (depth, MAX_DEPTH, "nodes above one another"),
            (loops, MAX_LOOPS, "loops in one another"),
        ):
            if n > most:
                raise ScheduleError(f"{_name(node)}: the tree has more than {most} {unit}")
        if not isinstance(node, Compute):
            nodes += [(c, depth + 1, loops) for c in node.children]


def _name(node: Any) -> str:
    return "root" if isinstance(node, Root) else f"{type(node).__name__.lower()} {shown(node.stage)}"


def _wrong_fields(node: Node) -> Iterator[str]:
    """What is wrong with a node alone."""
    name = _name(node)
    if not isinstance(node, Root) and type(node.stage) is not str:
        yield f"{name}: a stage is named by a string"
    if not isinstance(node, Compute) and not (
        isinstance(node.children, tuple) and (node.children or isinstance(node, Root))
    ):
        yield f"{name}: nothing is computed inside it; its children are a tuple of nodes"
    match node:
        case Compute():
            if not _are_numbers(node.definitions) or not node.definitions:
                yield f"{name}: {shown(node.definitions)} are no numbers of definitions"
            yield from _wrong_ahead(name, node.ahead)
        case Loop():
            if not (_is_number(node.dim) or (_are_numbers(node.dim) and len(dims_of(node.dim)) > 1)):
                yield f"{name}: {shown(node.dim)} is neither a dimension nor several"
            elif node.kind not in LOOP_KINDS:
                yield f"{name}: there is no kind of loop {shown(node.kind)}; there are {', '.join(LOOP_KINDS)}"
            elif node.tail not in TAILS:
                yield f"{name}: there is no tail {shown(node.tail)}; there are {', '.join(TAILS)}"
            elif node.size is not None and not is_size(node.size):
                allowed = f"allowed are whole numbers from 1 to {MAX_SIZE} elements"
                yield f"{name}, dimension {shown(node.dim)}: {shown(node.size)} is not a size; {allowed}"
            elif node.kind == "vector" and node.size is not None and node.size > MAX_LANES:
                advice = "split the loop, and make a part of it a vector"
                yield f"{loop_name(node)}: {node.size} lanes, more than {MAX_LANES}; {advice}"
        case Store():
            if type(node.memory) is not str or node.memory not in MEMORY_LEVELS:
                yield f"{name}: there is no memory {shown(node.memory)}; there is {', '.join(MEMORY_LEVELS)}"
            if not _are_numbers(node.order):
                yield f"{name}: {shown(node.order)} is no order of axes"
            if not _are_numbers(node.align):
                yield f"{name}: {shown(node.align)} are no numbers of elements that axes are multiples of"
            elif math.prod(node.align) > MAX_ALIGN:
                yield f"{name}: it is aligned to {shown(math.prod(node.align))} elements, more than {MAX_ALIGN}"


def _wrong_ahead(name: str, ahead: Any) -> Iterator[str]:
    if not isinstance(ahead, tuple) or not all(isinstance(x, tuple) and len(x) == 3 for x in ahead):
        yield f"{name}: what is prefetched are an array, a dimension and a number of elements each, not {shown(ahead)}"
        return
    if len(ahead) > MAX_PREFETCHES:
        yield f"{name}: it prefetches {len(ahead)} times, more than {MAX_PREFETCHES}"
    for source, dim, n in ahead:
        if type(source) is not str or not _is_number(dim) or not is_size(n):
            wanted = f"{shown(source)} at dimension {shown(dim)}, {shown(n)} elements later"
            allowed = f"an array, a dimension, and from 1 to {MAX_SIZE} elements are needed"
            yield f"{name}: it cannot prefetch {wanted}; {allowed}"


def _is_number(n: object) -> bool:
    return type(n) is int and n >= 0


def _are_numbers(numbers: object) -> bool:
    return isinstance(numbers, tuple) and all(map(_is_number, numbers))


def check_buffer(stage: str, lengths: Sequence[int], memory: Memory = "heap") -> None:
    """May a buffer have axes of these constant lengths?

    Raises:
        ScheduleError: it is too large.
    """
    most = MEMORY_LEVELS[memory].max_elements
    if math.prod(lengths) > most:
        sizes = " x ".join(map(str, lengths))
        advice = f"more than {most}; make the tiles smaller"
        raise ScheduleError(f"store {stage}: the tiles that it is computed for need {sizes} elements of it, {advice}")
