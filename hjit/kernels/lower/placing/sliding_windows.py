"""Sliding windows: the part of a stage that an iteration must compute because earlier iterations have not.

A stage that is computed inside a loop but stored outside of it keeps what earlier iterations computed (Halide 2012,
section 4.3). Along the axis that moves with the loop only the last elements are kept, in a circular buffer as long as
the window that an iteration reads; if vectors run along that axis, all are kept, since a vector cannot wrap around. The
loop starts some iterations early (warm-up), so that the first iterations need not compute more than the others.
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
        sliding: for each stage that slides along it, the region that all iterations together require, as inferred at
            the place around this one. Its producers have memory, or computed elements, for that region only.
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
        first: the first index along it that any iteration needs.
        end: the end of what the iteration needs.
        new: the most elements along the axis that one iteration adds; 0: the first iteration computes all.
        window: the most elements along the axis that one iteration reads; 0: all are kept.
        low: the first index that this iteration reads, if the window moves by more than its length, so that elements
            in between are never needed; else None.
    """

    axis: int
    first: Poly
    end: Poly
    new: int
    window: int
    low: Poly | None = None

    def part(self, region: Region, begin: Poly) -> Region:
        """The part of a region that an iteration computes, if the elements before `begin` are there."""
        s = region[self.axis].newest(self.new) if self.new else region[self.axis]
        return (*region[: self.axis], replace(s, low=begin, high=self.end - 1), *region[self.axis + 1 :])


@dataclass(frozen=True, slots=True)
class Needed:
    """What is required at a place.

    Attributes:
        regions: of the stages that begin there.
        windows: of those that slide.
        warm_up: how many iterations early the loop around the place starts, to fill the windows.
        early: the stages that the warm-up iterations compute.
    """

    regions: dict[str, Region]
    windows: dict[str, Window]
    warm_up: int = 0
    early: frozenset[str] = frozenset()


def infer(site: SlidingSite, name: Namer, name_first: Namer) -> Needed:
    """The regions that are required at a site, and which part of them is new in each iteration.

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
    """The region of each stage that the first iteration of the loop requires."""
    var, _, begin = site.loop

    def start(p: Poly) -> Poly:
        return p.substitute(lambda a: begin if a == var else None)

    opened = {
        stage: {k: replace(s, low=start(s.low), high=start(s.high), base=start(s.base)) for k, s in dims.items()}
        for stage, dims in site.opened.items()
    }
    return infer_bounds(replace(site, opened=opened), name)


def _slide(site: SlidingSite, stage: str, region: Region) -> tuple[Window, Region]:
    """How a stage slides, and the part of its region that an iteration computes after all iterations before it."""
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
    """How many iterations early the loop must start, so that the stage adds at most `new` elements in each."""
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
    """The stages that warm-up iterations compute: those with windows, and their producers.

    Some of what they compute is never used, and made of elements that were never written. So no such element may be an
    index.

    Raises:
        SlidingError: a stage would look up elements at such indices.
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
        groups = (site.reads.group(stage, k) for k in range(len(definitions)))
        work += ((source, window) for group in groups for source in group.footprints)
    return frozenset(found)


def _error(site: SlidingSite, stage: str, why: str) -> SlidingError:
    return SlidingError(stage, f"{stage} cannot slide along {site.loop[0]}: {why}; store it inside that loop")
