"""Bounds inference: required regions, propagated from consumers back to producers.

What a consumer computes, through the indices by which it reads, is what it requires of its producer. The propagation is
written once, for intervals of any kind: a `hjit.trace.ir.intervals.Domain` says how indices are evaluated over them.

==========================================  ==========================  ========================================
module                                      intervals                   for
==========================================  ==========================  ========================================
`hjit.sched.analysis.bounds`                polynomials of the sizes    lowering: the loops of all sizes
`hjit.sched.analysis.sites`                 numbers, or expressions     features: concrete sizes, many tilings
                                            of tile sizes (`tape`)      at once
==========================================  ==========================  ========================================

Three other modules infer regions without this propagation, since their problem is another one:

- `hjit.sched.native.regions` is `sites` once more, as loops over tables of numbers that are compiled; tests compare the
  two.
- `hjit.chunks.bounds` has no schedule tree. Each chunk of a result is a region of its own (intervals are arrays of
  numbers, one for each chunk), regions may be empty, and it also says whether boundary modes have an effect.
- `hjit.trace.passes.elimination.demanded_regions` shrinks whole stages before there is a schedule. An extent must stay
  one polynomial, without minima and maxima, as it becomes the shape of the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from hjit.trace.ir.intervals import Domain, Over

X = TypeVar("X")  # an interval
Hulls = tuple[X | None, ...]  # one for each axis; None: all of it


@dataclass(frozen=True, slots=True, eq=False)
class Footprint(Generic[X]):
    """What loads read of an array, as a function of the intervals of the dimensions.

    Attributes:
        axes: for each axis the intervals around whose hull nothing else is read; none: the whole axis is needed.
    """

    axes: tuple[tuple[Over[X], ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class DefinitionGroup(Generic[X]):
    """Definitions of a stage that share their loops: what a `Compute` node of a schedule tree evaluates.

    Attributes:
        whole: the iteration domain: an interval for each dimension.
        inverse: the dimensions that an axis of the stage determines: dimension, axis, how far the axis moves with the
            dimension, and the function from the axis's interval to the dimension's; None: the identity.
        footprints: what is loaded, by source.
    """

    stage: str
    whole: Any
    inverse: tuple[tuple[int, int, int, Over[X] | None], ...]
    footprints: Mapping[str, Footprint[X]]

    def dims(self, region: Sequence[X]) -> Any:
        """The iterations that write a region: the target's inverse image."""
        found = self.whole.copy()
        for k, axis, _, solved in self.inverse:
            found[k] = region[axis] if solved is None else solved(region[axis])
        return found

    def reading(self, dims: Any) -> Any:
        """The iterations with which reads are evaluated."""
        return dims


G = TypeVar("G", bound=DefinitionGroup[Any])


class Use(NamedTuple, Generic[G]):
    """A consumer, and the iterations that it runs."""

    group: G
    footprint: Any
    dims: Any


class Uses(Generic[G]):
    """The consumers so far of some stages; consumers are added from the last one back."""

    def __init__(self, stages: Iterable[str]) -> None:
        self._of: dict[str, list[Use[G]]] = {stage: [] for stage in stages}

    def add(self, group: G, dims: Any) -> None:
        """Add a consumer of everything that it reads."""
        reads = [source for source in group.footprints if source in self._of and source != group.stage]
        reading = group.reading(dims) if reads else None
        for source in reads:
            self._of[source].append(Use(group, group.footprints[source], reading))

    def of(self, stage: str) -> Sequence[Use[G]]:
        return self._of.get(stage, ())


def hulls(uses: Sequence[Use[Any]], domain: Domain[X]) -> Hulls[X] | None:
    """For each axis of an array, the hull of the intervals that its consumers need; None: there are no consumers."""
    if not uses:
        return None
    first, *others = uses
    total = [_hull(parts, first.dims, domain) for parts in first.footprint.axes]
    for use in others:
        for k, parts in enumerate(use.footprint.axes):
            if total[k] is not None:
                total[k] = _hull(parts, use.dims, domain, total[k])
    return tuple(total)


def _hull(parts: Sequence[Over[X]], dims: Any, domain: Domain[X], total: X | None = None) -> X | None:
    """The smallest interval around `total` and the others; None where it is unknown."""
    for part in parts:
        x = part(dims)
        total = x if total is None else domain.hull(total, x)
        if total is None:
            return None
    return total if parts else None


def propagate(
    computed: Iterable[G],
    position: Mapping[str, int],
    opened: Mapping[str, Any],
    begin: Callable[[str, Uses[G]], Sequence[Any]],
) -> None:
    """Bounds inference at a place in the tree.

    Args:
        computed: what is computed under the place, the consumers among it.
        position: of the stages in the order of the Graph.
        opened: of the stages whose loops are open there, the iterations that are still to run.
        begin: of a stage that begins under the place, the region that its own producers must serve, given who uses it.
    """
    here: dict[str, list[G]] = {}
    for group in computed:
        here.setdefault(group.stage, []).append(group)
    uses: Uses[G] = Uses(stage for stage in here if opened.get(stage) is None)
    for stage in sorted(here, key=position.__getitem__, reverse=True):
        dims = opened.get(stage)
        region = begin(stage, uses) if dims is None else ()
        for group in here[stage]:
            uses.add(group, group.dims(region) if dims is None else dims)
