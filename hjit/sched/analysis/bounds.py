"""Bounds inference for lowering: the region of each stage that is required at a place in the schedule tree.

Regions are polynomials of the sizes. `hjit.sched.analysis.propagation` walks from the consumers back to the producers,
and lists the other modules that infer regions. An axis is required whole where its interval is not known, or where the
stage cannot be cut along it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hjit.sched.analysis.propagation import DefinitionGroup, Footprint, Uses, hulls, propagate
from hjit.sched.language.tree import Compute, Loop, Node, dims_of
from hjit.trace.ir.graph import Graph, Stage, single_dim
from hjit.trace.ir.intervals import SYMBOLIC, Interval, Over, bounds_of, ends, whole
from hjit.trace.ir.poly import ZERO, Dim, Poly, extremum, poly

Region = tuple[Interval, ...]  # one interval for each axis
Dims = Mapping[int, Interval]  # one for each dimension of a definition
Namer = Callable[[str, Region], Region]  # gives the bounds of a stage's region names, so that expressions stay small
Definitions = DefinitionGroup[Interval | None]  # on symbols, each of one definition


class Reads:
    """The definitions of a Graph as bounds inference needs them: footprints, inverse targets, whole axes; memoised."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.stages = graph.by_name
        self._groups: dict[tuple[str, int], Definitions] = {}
        self._indices: dict[tuple[str, int], dict[str, tuple[tuple[Poly, ...], ...]]] = {}
        self._moving: dict[tuple[str, int, int], dict[str, frozenset[int]]] = {}
        self._whole: dict[str, frozenset[int]] = {}
        self._step: dict[str, tuple[int, ...]] = {}

    @cached_property
    def position(self) -> dict[str, int]:
        """Stages in the order of the Graph."""
        return {s.name: k for k, s in enumerate(self.graph.stages)}

    def group(self, stage: str, number: int) -> Definitions:
        """One definition of a stage."""
        found = self._groups.get((stage, number))
        if found is None:
            found = self._groups[stage, number] = self._group(self.stages[stage], number)
        return found

    def _group(self, s: Stage, number: int) -> Definitions:
        d = s.definitions[number]
        full = {k: whole(n) for k, n in enumerate(d.extents)}
        inverse: dict[int, tuple[int, int, int, Over[Interval | None] | None]] = {}
        for axis, p in enumerate(d.target):
            k = single_dim(p, len(d.dims))
            if k is not None and k not in inverse:  # a second axis that it moves along is whole
                inverse[k] = k, axis, *_inverse(p, k, d.dims[k], s.shape[axis])
        footprints = {
            source: Footprint(
                tuple(
                    () if axis in self.whole_axes(source) else tuple(bounds_of(p, SYMBOLIC, full) for p in indices)
                    for axis, indices in enumerate(axes)
                )
            )
            for source, axes in self.indices(s.name, number).items()
            if source in self.stages and source != s.name
        }
        return DefinitionGroup(s.name, full, tuple(inverse.values()), footprints)

    def indices(self, stage: str, number: int) -> dict[str, tuple[tuple[Poly, ...], ...]]:
        """The indices by which a definition reads each axis of a source; of those that differ by constants, the least
        and the greatest."""
        found = self._indices.get((stage, number))
        if found is None:
            loads: dict[str, list[tuple[Poly, ...]]] = {}
            for load in self.stages[stage].definitions[number].loads:
                loads.setdefault(load.source, []).append(load.index)
            found = {source: tuple(map(ends, zip(*indices, strict=True))) for source, indices in loads.items()}
            self._indices[stage, number] = found
        return found

    def moving(self, stage: str, number: int, k: int) -> dict[str, frozenset[int]]:
        """The axes of each array along which a definition writes or reads it when its dimension k moves."""
        found = self._moving.get((stage, number, k))
        if found is None:
            found = self._moving[stage, number, k] = {}
            target = tuple((p,) for p in self.stages[stage].definitions[number].target)
            for name, axes in (*self.indices(stage, number).items(), (stage, target)):
                along = {axis for axis, ps in enumerate(axes) if any(p.mentions(Dim(k)) for p in ps)}
                found[name] = found.get(name, frozenset()) | along
        return found

    def region(self, stage: str, uses: Uses[Definitions]) -> Region:
        """The region of a stage that its consumers require."""
        s = self.stages[stage]
        found = hulls(uses.of(stage), SYMBOLIC)
        region = (
            whole_region(s)
            if found is None
            else tuple(whole(n) if x is None else x.clipped(n) for n, x in zip(s.shape, found, strict=True))
        )
        return _rounded(region, self.steps(stage), s.shape)

    def steps(self, stage: str) -> tuple[int, ...]:
        """For each axis the number of elements of a stage that are computed together."""
        found = self._step.get(stage)
        if found is None:
            found = self._step[stage] = _steps(self.stages[stage])
        return found

    def whole_axes(self, stage: str) -> frozenset[int]:
        """The axes along which a stage cannot be computed in parts."""
        found = self._whole.get(stage)
        if found is None:
            found = self._whole[stage] = frozenset(whole_axes(self.stages[stage]))
        return found


def _inverse(p: Poly, k: int, n: Poly, length: Poly) -> tuple[int, Over[Interval | None] | None]:
    """For an index ``c * Dim(k) + rest`` into an axis: c, and the function from the axis's interval to that of the
    dimension of `n` elements."""
    c = p.coefficient(Dim(k))
    assert c is not None and c.is_const
    by, rest = c.const, p - poly(Dim(k)) * c
    if rest == ZERO and by == 1 and n == length:
        return by, None
    every, all_of_it = whole(length), whole(n)
    return by, lambda x: all_of_it if x == every else x.solved(by, rest, n)


def _steps(s: Stage) -> tuple[int, ...]:
    """For each axis the step of interleaved pieces such as ``out[0::2]`` and ``out[1::2]``: regions are multiples of
    it."""
    found = [1] * len(s.shape)
    for d in s.updates:
        for axis, p in enumerate(d.target):
            k = single_dim(p, len(d.dims))
            c = None if k is None else p.coefficient(Dim(k))
            if c is not None and c.is_const:
                found[axis] = math.lcm(found[axis], c.const)
    return tuple(found)


def _rounded(region: Region, steps: tuple[int, ...], shape: tuple[Poly, ...]) -> Region:
    """The region, with partial axes extended to multiples of the steps."""
    found = []
    for s, c, n in zip(region, steps, shape, strict=True):
        if c > 1 and s != whole(n):
            down = s.floordiv(c).times(c)
            s = Interval(
                down.low,
                extremum("min", down.high + (c - 1), n - 1),
                down.base,
                down.first,
                down.last + (c - 1),
                s.partial,
            )
        found.append(s)
    return tuple(found)


def _inside(region: Region, around: Region | None, shape: tuple[Poly, ...]) -> Region:
    """The region, with whole axes replaced by those of the enclosing region."""
    if around is None:
        return region
    return tuple(wide if s == whole(n) else s for s, wide, n in zip(region, around, shape, strict=True))


def _rounded_up(region: Region, sizes: Mapping[int, int], shape: tuple[Poly, ...], is_one: bool) -> Region:
    """The region, with some axes extended to multiples of a size, as far as there are elements.

    Args:
        is_one: is it computed at once? Parts of it that are extended by themselves may each begin anywhere.
    """
    found = list(region)
    for axis, size in sizes.items():
        s, n = region[axis], shape[axis]
        if size > 1 and s != whole(n):
            if is_one:
                high = s.low + ((s.high - s.low + size) // size * size - 1)
                last = s.first + ((s.last - s.first + size) // size * size - 1)
            else:
                high, last = s.high + (size - 1), s.last + (size - 1)
            end = extremum("min", n - 1, s.base + last) if s.partial else n - 1
            found[axis] = Interval(s.low, extremum("min", high, end), s.base, s.first, last, s.partial)
    return tuple(found)


def whole_axes(s: Stage) -> Iterable[int]:
    """The axes along which a stage cannot be cut: its elements depend on each other, or targets are not dimensions."""
    for d in s.definitions:
        used: set[int] = set()
        own = [load for load in d.loads if load.source == s.name]
        for axis, p in enumerate(d.target):
            k = single_dim(p, len(d.dims))
            if k is None or k in used or any(load.index[axis] != p for load in own):
                yield axis
            else:
                used.add(k)
        if d.is_scatter:
            yield from range(len(s.shape))


def whole_region(s: Stage) -> Region:
    """All of a stage."""
    return tuple(whole(n) for n in s.shape)


@dataclass(frozen=True, slots=True)
class ComputeSite:
    """A place in the tree where stages are computed.

    Attributes:
        computed: what is computed there, the consumers among it.
        opened: of the stages whose loops are open there, what they still have to compute.
        round_up: stage -> axis -> what its part of the axis is made a multiple of.
        around: the regions at the place that this one is inside of. There is memory for no more, and less cannot always
            be told further in.
        begun: the stages whose own loops are directly at the place, not inside loops of others.
    """

    reads: Reads
    computed: Sequence[Compute]
    opened: Mapping[str, Dims] = field(default_factory=dict)
    round_up: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    around: Mapping[str, Region] = field(default_factory=dict)
    begun: Container[str] = ()


def all_of_it(stage: str, region: Region) -> Region:
    """Producers serve all of a region."""
    return region


def infer_bounds(
    site: ComputeSite, name: Namer, served: Callable[[str, Region], Region] = all_of_it
) -> dict[str, Region]:
    """The required regions of all stages that begin at a site.

    Args:
        served: the part of a region that its own producers must serve at each iteration; see
            `hjit.kernels.lower.placing.sliding_windows`.
    """
    reads = site.reads
    found: dict[str, Region] = {}

    def begin(stage: str, uses: Uses[Definitions]) -> Region:
        shape = reads.stages[stage].shape
        region = _inside(reads.region(stage, uses), site.around.get(stage), shape)
        found[stage] = name(stage, _rounded_up(region, site.round_up.get(stage, {}), shape, stage in site.begun))
        return served(stage, found[stage])

    groups = [reads.group(c.stage, number) for c in site.computed for number in c.definitions]
    propagate(groups, reads.position, site.opened, begin)
    return found


def vector_axes(reads: Reads, top: Node) -> dict[str, frozenset[int]]:
    """The axes of each stage of a nest along which vectors write or read it."""
    found: dict[str, set[int]] = {}
    nodes: list[tuple[Node, frozenset[tuple[str, int]]]] = [(top, frozenset())]  # with the vector loops around each
    while nodes:
        x, around = nodes.pop()
        if not isinstance(x, Compute):
            if isinstance(x, Loop) and x.kind == "vector":
                around |= {(x.stage, k) for k in dims_of(x.dim)}
            nodes += ((child, around) for child in x.children)
            continue
        dims = [k for stage, k in around if stage == x.stage]
        for number, k in itertools.product(x.definitions, dims):
            for stage, axes in reads.moving(x.stage, number, k).items():
                found.setdefault(stage, set()).update(axes)
    return {stage: frozenset(axes) for stage, axes in found.items()}
