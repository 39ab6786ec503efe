"""Required regions, propagated from consumers back to producers: bounds inference over intervals of any kind.

What a consumer computes, through the indices by which it reads, is what of its producer it needs. Of an interval it
matters only how indices are evaluated over it (`hjit.trace.ir.intervals.Domain`).
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
class Part(Generic[X]):
    """What a computation of a schedule tree evaluates: definitions of a stage that share their loops.

    Attributes:
        whole: the intervals of all iterations, by dimension.
        inverse: of the dimensions those that one axis of the stage tells: dimension, axis, how far the axis moves with
            the dimension, and the function from the interval of the axis to that of the dimension; None: they are one.
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
        """What stands for these iterations when what they read is worked out."""
        return dims


P = TypeVar("P", bound=Part[Any])


class Use(NamedTuple, Generic[P]):
    """A consumer, and the iterations that it runs."""

    part: P
    footprint: Any
    dims: Any


class Uses(Generic[P]):
    """The consumers so far of some stages; consumers are added from the last one back."""

    def __init__(self, stages: Iterable[str]) -> None:
        self._of: dict[str, list[Use[P]]] = {stage: [] for stage in stages}

    def add(self, part: P, dims: Any) -> None:
        """A consumer of all that it reads."""
        reads = [source for source in part.footprints if source in self._of and source != part.stage]
        reading = part.reading(dims) if reads else None
        for source in reads:
            self._of[source].append(Use(part, part.footprints[source], reading))

    def of(self, stage: str) -> Sequence[Use[P]]:
        return self._of.get(stage, ())


def hulls(uses: Sequence[Use[Any]], domain: Domain[X]) -> Hulls[X] | None:
    """What of each axis of an array its consumers need; None: there are none."""
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
    computed: Iterable[P],
    position: Mapping[str, int],
    opened: Mapping[str, Any],
    begin: Callable[[str, Uses[P]], Sequence[Any]],
) -> None:
    """Bounds inference at a place in the tree.

    Args:
        computed: what is computed under the place, the consumers among it.
        position: of the stages in the order of the Graph.
        opened: of the stages whose loops are open there, the iterations that are still to run.
        begin: of a stage that begins under the place, the region that its own producers must serve, given who uses it.
    """
    here: dict[str, list[P]] = {}
    for part in computed:
        here.setdefault(part.stage, []).append(part)
    uses: Uses[P] = Uses(stage for stage in here if opened.get(stage) is None)
    for stage in sorted(here, key=position.__getitem__, reverse=True):
        dims = opened.get(stage)
        region = begin(stage, uses) if dims is None else ()
        for part in here[stage]:
            uses.add(part, part.dims(region) if dims is None else dims)
