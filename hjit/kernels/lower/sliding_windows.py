"""Sliding windows: what of a stage is new at each iteration of the loop that it is computed in.

A stage whose memory lies outside that loop keeps what earlier iterations computed (Halide 2012, section 4.3). Of the
axis that moves with the loop only the last elements are kept, in a circular buffer as long as the window that an
iteration reads; where vectors run along that axis, all are kept: they do not go round a circle. So that no iteration
must compute more than its part, the loop starts some iterations early with nothing but the sliding stages.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace

from hjit.errors import SlidingError
from hjit.kernels.lower.loopir import If, SlidingProduce, Stmt
from hjit.kernels.lower.thresholds import MAX_WARM_UP
from hjit.sched.analysis.bounds import Reads, Region, infer_bounds
from hjit.sched.analysis.sliding import advance, warm_up_iterations
from hjit.sched.language.tree import Compute
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import ZERO, Poly, Var, extremum, poly


@dataclass(frozen=True, slots=True)
class Window:
    """How a stage slides.

    Attributes:
        axis: the one that moves.
        first: the first index of it that any iteration needs.
        end: how far an iteration comes.
        new: elements of the axis that one iteration adds at most; 0: the first iteration computes all.
        window: elements of the axis that one iteration reads at most; 0: all are kept.
        low: the first one that this iteration reads, where the window moves on by more than its length: what lies
            between is never needed.
    """

    axis: int
    first: Poly
    end: Poly
    new: int
    window: int
    low: Poly | None = None

    def part(self, region: Region, begin: Poly) -> Region:
        """The part of a region that an iteration computes, from `begin` on."""
        s = region[self.axis].newest(self.new) if self.new else region[self.axis]
        return (*region[: self.axis], replace(s, low=begin, high=self.end - 1), *region[self.axis + 1 :])


class Windows:
    """The sliding stages of one place.

    Args:
        sliding: for each what of it all iterations together need, as the place around this one has it: its producers
            have memory, or have computed their part, for that only, wherever it is stored itself.
        around: the regions at the place around this one; see `hjit.sched.analysis.bounds`.
        begun: the stages whose own loops are directly at the place.
        vectors: the axes of each stage along which vectors run; see `hjit.sched.analysis.bounds.vector_axes`.

    Attributes:
        slides: what was found, by stage.
        warm: iterations before the first one.
    """

    def __init__(
        self,
        reads: Reads,
        computed: list[Compute],
        round_up: Mapping[str, Mapping[int, int]],
        iteration: tuple[Var, int, Poly] | None,
        sliding: Mapping[str, Region],
        intervals: dict[str, dict[int, Interval]],
        around: Mapping[str, Region],
        begun: Container[str],
        vectors: Mapping[str, Container[int]],
    ) -> None:
        self.reads, self.computed, self.round_up, self.iteration, self.sliding, self.intervals = (
            reads,
            computed,
            round_up,
            iteration,
            sliding,
            intervals,
        )
        self.around, self.begun, self.vectors = around, begun, vectors
        self.slides: dict[str, Window] = {}
        self.warm = 0
        self._last: dict[str, Interval] = {}

    def first_regions(self, name: Callable[[str, Region], Region]) -> dict[str, Region]:
        """What of each stage all iterations together need at the loop's begin."""
        if not self.sliding:
            return {}
        assert self.iteration is not None
        var, _, begin = self.iteration

        def start(p: Poly) -> Poly:
            return p.substitute(lambda a: begin if a == var else None)

        opened = {
            stage: {k: replace(s, low=start(s.low), high=start(s.high), base=start(s.base)) for k, s in dims.items()}
            for stage, dims in self.intervals.items()
        }
        return infer_bounds(
            self.reads, self.computed, opened, name, round_up=self.round_up, around=self.around, begun=self.begun
        )

    def steady(self, stage: str, region: Region) -> Region:
        """The part of a region that one iteration computes when all before have been."""
        if stage not in self.sliding or not region:
            return region
        assert self.iteration is not None
        var, step, _ = self.iteration
        moving = [k for k, s in enumerate(region) if s.base.mentions(var)]
        if not moving:
            self.slides[stage] = Window(0, region[0].low, region[0].high + 1, 0, 0)
            return region
        if len(moving) > 1:
            raise self._error(stage, f"what it computes moves along {len(moving)} axes at once")
        (axis,) = moving
        s = region[axis]
        new = advance(s.base, var, step)
        if new is None:
            raise self._error(stage, "what is needed of it does not move on steadily")
        if not s.length.is_const:
            raise self._error(stage, "the part of it that an iteration reads has no known length")
        length = s.length.const
        low = s.base + s.first if new > length else None
        new = min(max(new, 1), max(length, 1))
        self._last[stage] = s
        extent = self.reads.stages[stage].shape[axis]
        end = extremum("min", s.base + s.last + 1, self.sliding[stage][axis].high + 1)
        kept = 0 if axis in self.vectors.get(stage, ()) else length
        self.slides[stage] = Window(axis, ZERO, end, new, kept, low)
        part = replace(s, high=end - 1).newest(new).clipped(extent)
        return (*region[:axis], part, *region[axis + 1 :])

    def finish(self, found: dict[str, Region], first: dict[str, Region]) -> None:
        """Where each stage starts, and how early the loop must."""
        for stage, w in self.slides.items():
            if w.new:
                s = first[stage][w.axis]
                begin = extremum("max", s.base + s.first, self.sliding[stage][w.axis].low)
                self.slides[stage] = replace(w, first=begin if w.low is None else extremum("max", begin, w.low))
                self.warm = max(self.warm, self._iterations_before(stage, w, s))
        if not self.warm:
            return
        for stage in self.slides:
            for number in range(len(self.reads.stages[stage].definitions)):
                for source in self.reads.part(stage, number).footprints:
                    if source in found and source not in self.slides and self._is_here(source):
                        why = f"{stage}, which reads it, is stored outside of the loop and it is not"
                        why += "; store it inside that loop"
                        raise SlidingError(stage, f"{source} cannot slide along {self._loop}: {why}")

    def _is_here(self, stage: str) -> bool:
        return stage not in self.intervals

    def _iterations_before(self, stage: str, w: Window, first: Interval) -> int:
        """How many iterations before the first one the stage adds no more than `new` elements."""
        assert self.iteration is not None
        var, step, _ = self.iteration
        s = self._last[stage]
        reach = s.last - first.first
        if not reach.is_const:
            raise self._error(stage, "the part of it that an iteration reads has no known length")
        iterations = warm_up_iterations(s.base, var, step, reach.const, w.new, MAX_WARM_UP)
        if iterations is None:
            raise self._error(stage, "it would have to start too long before")
        return iterations

    def when_begun(self, body: tuple[Stmt, ...]) -> Stmt:
        """`body`, not before the first iteration."""
        assert self.iteration is not None
        var, _, begin = self.iteration
        return If(poly(var) - begin, body)

    @property
    def _loop(self) -> str:
        assert self.iteration is not None
        return str(self.iteration[0])

    def _error(self, stage: str, why: str) -> SlidingError:
        return SlidingError(stage, f"{stage} cannot slide along {self._loop}: {why}; store it inside that loop")


def slides_of(body: Iterable[Stmt]) -> list[str]:
    """Stages that slide along the loop with this body."""
    return list(dict.fromkeys(s.stage for s in body if isinstance(s, SlidingProduce)))
