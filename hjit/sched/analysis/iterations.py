"""Loops in numbers: what the middle iteration of each has of its dimension, and how often what is inside it runs.

Of each loop the middle iteration stands for all (Adams 2019, section 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hjit.sched.analysis.footprint import Interval
from hjit.sched.analysis.tape import Num, Range, ceil_div, choose, floor_div, least, most, product, range_of, within
from hjit.sched.language.tree import DimKey, Loop, dims_of


class Left(NamedTuple):
    """What is left of a dimension inside some of the loops over it.

    Attributes:
        low, length: what the iteration at hand has of it.
        total: its length in one production of the stage.
        pieces: how many such iterations one production has.
        range: indices that it never leaves.
    """

    low: Num
    length: Num
    total: Num
    pieces: Num
    range: Range


class StageLoop(NamedTuple):
    """A loop around a computation, of the same stage.

    Attributes:
        loop: without what is in it, and of its size the sign only.
        size: of the loop, None where it runs over all.
        length: what one run of it has of its dimension.
        step: how far one iteration goes.
    """

    loop: Loop
    size: Num | None
    length: Num
    step: Num


@dataclass(frozen=True, slots=True, eq=False)
class Env:
    """What is known at a place of the tree, at its middle iteration.

    Attributes:
        dims: for each stage whose loops are open here, the ranges of its dimensions.
        left: of the dimensions of the innermost of these stages.
        base, lengths: the ranges and lengths of its dimensions in one production.
        tile: what is left inside the innermost of its loops that runs iterations over a pure dimension.
        loops: its loops.
        productions: how many productions of it there are.
        outside: what is known around the innermost loop, as far as one task runs it; None: there is no loop.
        innermost: that loop.
    """

    dims: dict[str, list[Interval]]
    left: dict[DimKey, Left]
    base: list[Interval]
    lengths: list[Num]
    tile: dict[DimKey, Left]
    loops: tuple[StageLoop, ...]
    productions: Num
    outside: Env | None
    innermost: StageLoop | None

    @property
    def times(self) -> Num:
        """How often the place runs."""
        return self.productions * product(x.pieces for x in self.left.values())


def left_of(env: Env, loop: Loop) -> Left:
    """What is left of a loop's dimension, before it."""
    found = env.left.get(loop.dim)
    if found is not None:
        return found
    ks = dims_of(loop.dim)
    every = product(env.lengths[k] for k in ks)
    low = env.base[ks[0]][0] if len(ks) == 1 else 0.0
    last = range_of(env.base[ks[0]][1] if len(ks) == 1 else every - 1.0)[1]
    return Left(low, every, every, 1.0, (range_of(low)[0], last))


def narrowed(env: Env, loop: Loop, size: Num) -> tuple[dict[str, list[Interval]], dict[DimKey, Left]]:
    """`Env.dims` and `left` at the middle one of the pieces of `size` elements of a loop's dimension."""
    old = left_of(env, loop)
    middle = floor_div(most(ceil_div(old.length, size), 1.0) - 1.0, 2.0)
    low, length = within(old.low + middle * size, *old.range), least(old.length, size)
    ends = low, within(low + (length - 1.0), old.range[0] - 1.0, old.range[1])
    dims = list(env.dims[loop.stage])
    if isinstance(loop.dim, int):
        dims[loop.dim] = ends
    else:
        _unfuse(dims, env.base, loop.dim, *ends)
    left = Left(low, length, old.total, ceil_div(old.total, size), old.range)
    return {**env.dims, loop.stage: dims}, {**env.left, loop.dim: left}


def _unfuse(dims: list[Interval], base: Sequence[Interval], fused: tuple[int, ...], first: Num, last: Num) -> None:
    """The ranges of the parts of a fused dimension from that of the whole; a part that starts anew within it is
    whole."""
    for k in reversed(fused[1:]):
        low, high = base[k]
        n = most(high - low + 1.0, 1.0)
        up, down = floor_div(first, n), floor_div(last, n)
        one = up >= down
        dims[k] = choose(one, low + first - up * n, low), choose(one, low + last - down * n, high)
        first, last = up, down
    low = base[fused[0]][0]
    dims[fused[0]] = low + first, low + last
