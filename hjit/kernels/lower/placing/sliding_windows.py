"""Sliding windows: what of a stage is new at each iteration of the loop that it is computed in.

A stage whose memory lies outside that loop keeps what earlier iterations computed (Halide 2012, section 4.3). Of the
axis that moves with the loop only the last elements are kept, in a circular buffer as long as the window that an
iteration reads; where vectors run along that axis, all are kept: they do not go round a circle. So that no iteration
must compute more than its part, the loop starts some iterations early with the sliding stages and what they read.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from hjit.errors import SlidingError
from hjit.kernels.lower.thresholds import MAX_WARM_UP
from hjit.sched.analysis.bounds import ComputeSite, Namer, Region, infer_bounds
from hjit.sched.analysis.sliding import advance, warm_up_iterations
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import ZERO, Poly, Var, extremum


@dataclass(frozen=True, slots=True)
class SlidingSite(ComputeSite):
    """A place in the tree where stages are computed, and how they slide along the loop around it.

    Attributes:
        iteration: that loop: its variable, step, and begin; None: there is none.
        sliding: for each stage that slides along it what of the stage all iterations together need, as the place around
            this one has it: its producers have memory, or have computed their part, for that only, wherever it is
            stored itself.
        vectors: the axes of each stage along which vectors run.
    """

    iteration: tuple[Var, int, Poly] | None = None
    sliding: Mapping[str, Region] = field(default_factory=dict)
    vectors: Mapping[str, Container[int]] = field(default_factory=dict)

    @property
    def loop(self) -> tuple[Var, int, Poly]:
        """The loop that stages slide along."""
        assert self.iteration is not None
        return self.iteration


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


@dataclass(frozen=True, slots=True)
class Needed:
    """What is needed at a place.

    Attributes:
        regions: of each stage that begins there.
        windows: of those among them that slide.
        warm_up: iterations that the loop around the place starts early to fill the windows.
        early: the stages that these iterations compute.
    """

    regions: dict[str, Region]
    windows: dict[str, Window]
    warm_up: int = 0
    early: frozenset[str] = frozenset()


def infer(site: SlidingSite, name: Namer, name_first: Namer) -> Needed:
    """What is needed at a site, and what of that is new at each iteration.

    Args:
        name, name_first: give names to the bounds of regions, and to those of the first iteration.

    Raises:
        SlidingError: a stage cannot slide along the loop around the site.
    """
    if not site.sliding:
        return Needed(infer_bounds(site, name), {})
    first = _first_regions(site, name_first)
    windows: dict[str, Window] = {}

    def served(stage: str, region: Region) -> Region:
        if stage not in site.sliding or not region:
            return region
        windows[stage], part = _slide(site, stage, region)
        return part

    regions = infer_bounds(site, name, served)
    warm_up = 0
    for stage, w in windows.items():
        if w.new:
            windows[stage] = _from_first(site, stage, w, first[stage])
            warm_up = max(warm_up, _warm_up(site, stage, w, regions[stage], first[stage]))
    return Needed(regions, windows, warm_up, _needed_early(site, windows, regions) if warm_up else frozenset())


def _first_regions(site: SlidingSite, name: Namer) -> dict[str, Region]:
    """What of each stage all iterations together need at the loop's begin."""
    var, _, begin = site.loop

    def start(p: Poly) -> Poly:
        return p.substitute(lambda a: begin if a == var else None)

    opened = {
        stage: {k: replace(s, low=start(s.low), high=start(s.high), base=start(s.base)) for k, s in dims.items()}
        for stage, dims in site.opened.items()
    }
    return infer_bounds(replace(site, opened=opened), name)


def _slide(site: SlidingSite, stage: str, region: Region) -> tuple[Window, Region]:
    """How a stage slides, and the part of its region that one iteration computes when all before it have been."""
    var, step, _ = site.loop
    moving = [k for k, s in enumerate(region) if s.base.mentions(var)]
    if not moving:
        return Window(0, region[0].low, region[0].high + 1, 0, 0), region
    if len(moving) > 1:
        raise _error(site, stage, f"what it computes moves along {len(moving)} axes at once")
    (axis,) = moving
    s = region[axis]
    new = advance(s.base, var, step)
    if new is None:
        raise _error(site, stage, "what is needed of it does not move on steadily")
    if not s.length.is_const:
        raise _error(site, stage, "the part of it that an iteration reads has no known length")
    length = s.length.const
    low = s.base + s.first if new > length else None
    new = min(max(new, 1), max(length, 1))
    extent = site.reads.stages[stage].shape[axis]
    end = extremum("min", s.base + s.last + 1, site.sliding[stage][axis].high + 1)
    kept = 0 if axis in site.vectors.get(stage, ()) else length
    part = replace(s, high=end - 1).newest(new).clipped(extent)
    return Window(axis, ZERO, end, new, kept, low), (*region[:axis], part, *region[axis + 1 :])


def _from_first(site: SlidingSite, stage: str, w: Window, first: Region) -> Window:
    """The window, from the first index that any iteration needs."""
    s = first[w.axis]
    begin = extremum("max", s.base + s.first, site.sliding[stage][w.axis].low)
    return replace(w, first=begin if w.low is None else extremum("max", begin, w.low))


def _warm_up(site: SlidingSite, stage: str, w: Window, region: Region, first: Region) -> int:
    """How many iterations before the first one the stage adds no more than `new` elements."""
    var, step, _ = site.loop
    s: Interval = region[w.axis]
    reach = s.last - first[w.axis].first
    if not reach.is_const:
        raise _error(site, stage, "the part of it that an iteration reads has no known length")
    iterations = warm_up_iterations(s.base, var, step, reach.const, w.new, MAX_WARM_UP)
    if iterations is None:
        raise _error(site, stage, "it would have to start too long before")
    return iterations


def _needed_early(site: SlidingSite, windows: dict[str, Window], regions: dict[str, Region]) -> frozenset[str]:
    """The stages that windows need in the iterations before the first one: what they read, and what that reads.

    Where a window needs nothing yet, those compute what nobody reads, of what nobody has written: no index may be among
    it.

    Raises:
        SlidingError: one is.
    """
    found: set[str] = set()
    work = [(stage, stage) for stage in windows]
    while work:
        stage, window = work.pop()
        if stage not in regions or stage in site.opened or stage in found:
            continue
        found.add(stage)
        definitions = site.reads.stages[stage].definitions
        if stage not in windows and any(p.exprs for d in definitions for x in d.loads for p in x.index):
            why = f"it reads {stage}, which looks up elements at computed indices, and is stored inside the loop"
            raise _error(site, window, why)
        parts = (site.reads.part(stage, k) for k in range(len(definitions)))
        work += ((source, window) for part in parts for source in part.footprints)
    return frozenset(found)


def _error(site: SlidingSite, stage: str, why: str) -> SlidingError:
    return SlidingError(stage, f"{stage} cannot slide along {site.loop[0]}: {why}; store it inside that loop")
