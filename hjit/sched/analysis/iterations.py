"""The environment of a place in the schedule tree at concrete sizes (`hjit.kernels.lower.placing.environment` has
symbols): the range of each dimension that an iteration covers, and how often the place runs.

The middle iteration of each loop represents all of them (Adams 2019, section 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hjit.sched.analysis.footprint import Interval
from hjit.sched.analysis.tape import Num, Range, ceil_div, choose, floor_div, least, most, product, range_of, within
from hjit.sched.language.tree import DimKey, Loop, dims_of


class Remaining(NamedTuple):
    """The part of a dimension that remains inside some of the loops over it.

    Attributes:
        low, length: of the part that the represented iteration covers.
        total: the length of the dimension in one production of the stage.
        pieces: how many such parts one production has.
        range: bounds that indices never exceed.
    """

    low: Num
    length: Num
    total: Num
    pieces: Num
    range: Range


class StageLoop(NamedTuple):
    """A loop around a computation, over a dimension of the same stage.

    Attributes:
        loop: without children, and with the sign of its size only.
        size: of the loop; None if it runs over the whole dimension.
        length: how much of the dimension one run of the loop covers.
        step: how much of it one iteration covers.
    """

    loop: Loop
    size: Num | None
    length: Num
    step: Num


@dataclass(frozen=True, slots=True, eq=False)
class Env:
    """A place in the tree, at its middle iteration. A production is one realisation of a stage's region there.

    Attributes:
        dims: for each stage whose loops are open here, the ranges of its dimensions.
        remaining: of the dimensions of the innermost of these stages.
        base, lengths: ranges and lengths of its dimensions in one production.
        tile: what remains inside the innermost of its loops that runs iterations over a pure dimension.
        loops: its loops.
        productions: how many productions there are.
        outside: the environment around the innermost loop, as far as one task runs it; None if there is no loop.
        innermost: that loop.
    """

    dims: dict[str, list[Interval]]
    remaining: dict[DimKey, Remaining]
    base: list[Interval]
    lengths: list[Num]
    tile: dict[DimKey, Remaining]
    loops: tuple[StageLoop, ...]
    productions: Num
    outside: Env | None
    innermost: StageLoop | None

    @property
    def times(self) -> Num:
        """How many times the place runs."""
        return self.productions * product(x.pieces for x in self.remaining.values())


def remaining_of(env: Env, loop: Loop) -> Remaining:
    """The remaining range of a loop's dimension outside of the loop."""
    found = env.remaining.get(loop.dim)
    if found is not None:
        return found
    ks = dims_of(loop.dim)
    every = product(env.lengths[k] for k in ks)
    low = env.base[ks[0]][0] if len(ks) == 1 else 0.0
    last = range_of(env.base[ks[0]][1] if len(ks) == 1 else every - 1.0)[1]
    return Remaining(low, every, every, 1.0, (range_of(low)[0], last))


def narrowed(env: Env, loop: Loop, size: Num) -> tuple[dict[str, list[Interval]], dict[DimKey, Remaining]]:
    """`Env.dims` and `remaining` at the middle one of the pieces of `size` elements of a loop's dimension."""
    old = remaining_of(env, loop)
    middle = floor_div(most(ceil_div(old.length, size), 1.0) - 1.0, 2.0)
    low, length = within(old.low + middle * size, *old.range), least(old.length, size)
    ends = low, within(low + (length - 1.0), old.range[0] - 1.0, old.range[1])
    dims = list(env.dims[loop.stage])
    if isinstance(loop.dim, int):
        dims[loop.dim] = ends
    else:
        _unfuse(dims, env.base, loop.dim, *ends)
    remaining = Remaining(low, length, old.total, ceil_div(old.total, size), old.range)
    return {**env.dims, loop.stage: dims}, {**env.remaining, loop.dim: remaining}


def _unfuse(dims: list[Interval], base: Sequence[Interval], fused: tuple[int, ...], first: Num, last: Num) -> None:
    """Set the ranges of the dimensions that a fused loop runs over, from the range ``first .. last`` of the loop; a
    dimension that wraps around within that range is whole."""
    for k in reversed(fused[1:]):
        low, high = base[k]
        n = most(high - low + 1.0, 1.0)
        up, down = floor_div(first, n), floor_div(last, n)
        one = up >= down
        dims[k] = choose(one, low + first - up * n, low), choose(one, low + last - down * n, high)
        first, last = up, down
    low = base[fused[0]][0]
    dims[fused[0]] = low + first, low + last
