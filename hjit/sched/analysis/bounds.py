"""bounds inference: how much of each stage must be computed at a place in the tree.

From the consumers back to the producers: what a consumer computes there, through the indices by which it reads, is
what of the producer it needs there. Axes that cannot be told, or that a stage must have whole, are whole axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cached_property, lru_cache

from hjit.sched.language.tree import Compute, Loop, Node, computes, dims_of, walk
from hjit.trace.ir.graph import Definition, Graph, Load, Stage
from hjit.trace.ir.intervals import Interval, interval, whole
from hjit.trace.ir.poly import Dim, FloorDiv, Poly, Var, extremum, poly, single_dim

Region = tuple[Interval, ...]  # one interval for each axis
Dims = Mapping[int, Interval]  # a interval for each dimension of a definition


class Reads:
    """What of a Graph bounds inference asks again and again."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.stages = graph.by_name
        self._loads: dict[tuple[str, int], dict[str, list[Load]]] = {}
        self._indices: dict[tuple[str, int, str], tuple[tuple[Poly, ...], ...]] = {}
        self._full: dict[tuple[str, int], Dims] = {}
        self._whole: dict[str, frozenset[int]] = {}
        self._step: dict[str, tuple[int, ...]] = {}

    @cached_property
    def position(self) -> dict[str, int]:
        """Stages in the order of the Graph."""
        return {s.name: k for k, s in enumerate(self.graph.stages)}

    def of(self, stage: str, number: int) -> dict[str, list[Load]]:
        """The loads of a definition, by source."""
        found = self._loads.get((stage, number))
        if found is None:
            found = self._loads[stage, number] = {}
            for load in self.stages[stage].definitions[number].loads:
                found.setdefault(load.source, []).append(load)
        return found

    def indices(self, stage: str, number: int, source: str) -> tuple[tuple[Poly, ...], ...]:
        """By which indices a definition reads each axis of a source; of those that differ by constants, the first and the last."""
        found = self._indices.get((stage, number, source))
        if found is None:
            axes = zip(*(load.index for load in self.of(stage, number)[source]), strict=True)
            found = self._indices[stage, number, source] = tuple(map(_ends, axes))
        return found

    def full(self, stage: str, number: int) -> Dims:
        """The whole range of each dimension of a definition."""
        found = self._full.get((stage, number))
        if found is None:
            found = self._full[stage, number] = {
                k: whole(n) for k, n in enumerate(self.stages[stage].definitions[number].extents)
            }
        return found

    def steps(self, stage: str) -> tuple[int, ...]:
        """Per axis how many elements of a stage are computed together."""
        found = self._step.get(stage)
        if found is None:
            found = self._step[stage] = _steps(self.stages[stage])
        return found

    def whole_axes(self, stage: str) -> frozenset[int]:
        """Axes along which no part of a stage can be computed by itself."""
        found = self._whole.get(stage)
        if found is None:
            found = self._whole[stage] = frozenset(_whole_axes(self.stages[stage]))
        return found


def _ends(indices: Iterable[Poly]) -> tuple[Poly, ...]:
    """Of indices that differ by constants the least and the greatest: the others read what is between them."""
    constants: dict[Poly, list[int]] = {}
    for p in indices:
        constants.setdefault(p - p.const, []).append(p.const)
    return tuple(p + c for p, found in constants.items() for c in dict.fromkeys((min(found), max(found))))


def _steps(s: Stage) -> tuple[int, ...]:
    """Per axis how many elements pieces like ``out[0::2]`` and ``out[1::2]`` write side by side: regions are multiples of it."""
    found = [1] * len(s.shape)
    for d in s.updates:
        for axis, p in enumerate(d.target):
            k = single_dim(p, len(d.dims))
            c = None if k is None else p.coefficient(Dim(k))
            if c is not None and c.is_const:
                found[axis] = math.lcm(found[axis], c.const)
    return tuple(found)


def _rounded(region: Region, steps: tuple[int, ...], shape: tuple[Poly, ...]) -> Region:
    """The region, its parts of axes extended to multiples of the steps."""
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
    """The region, its whole axes as those of the region around it."""
    if around is None:
        return region
    return tuple(wide if s == whole(n) else s for s, wide, n in zip(region, around, shape, strict=True))


def _rounded_up(region: Region, sizes: Mapping[int, int], shape: tuple[Poly, ...], is_one: bool) -> Region:
    """The region, some axes extended to multiples of a size, as far as there are elements.

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


def _whole_axes(s: Stage) -> Iterable[int]:
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


def dims_of_region(s: Stage, d: Definition, region: Region) -> dict[int, Interval]:
    """The iterations of a definition that write a region: the target's inverse image."""
    found = {k: whole(n) for k, n in enumerate(d.extents)}
    for axis, p in enumerate(d.target):
        k = single_dim(p, len(d.dims))
        b = region[axis]
        if k is None or b == whole(s.shape[axis]):
            continue
        c = p.coefficient(Dim(k))
        assert c is not None and c.is_const
        rest = p - poly(Dim(k)) * c
        moved = Interval(b.low - rest, b.high - rest, b.base, b.first - rest, b.last - rest, b.partial)
        if c != poly(1):
            up = c.const - 1
            low, high = moved.low + up, moved.high
            base, first = moved.base, moved.first + up
            exact = all(x % c.const == 0 for x in base.terms.values()) and base.const % c.const == 0
            last = moved.last // c.const if exact else (moved.last + up) // c.const
            moved = Interval(low // c.const, high // c.const, base // c.const, first // c.const, last)
        if rest != poly(0) or c != poly(1) or d.dims[k] != s.shape[axis]:
            low, high = extremum("max", moved.low, poly(0)), extremum("min", moved.high, d.dims[k] - 1)
            moved = Interval(low, high, moved.base, moved.first, moved.last, True)
        found[k] = moved
    return found


def infer_bounds(
    reads: Reads,
    computed: Iterable[Compute],
    open_dims: Callable[[str, int], Dims | None],
    name: Callable[[str, Region], Region],
    steady: Callable[[str, Region], Region] = lambda stage, region: region,
    round_up: Mapping[str, Mapping[int, int]] = {},
    around: Mapping[str, Region] = {},
    begun: Container[str] = (),
) -> dict[str, Region]:
    """The regions of all stages that are computed under one place in the tree.

    Args:
        computed: what is computed there, the consumers among it.
        open_dims: for a definition whose loops are open there, what it still has to compute; else None.
        name: gives a region's bounds names, so that expressions stay small.
        steady: the part of a region that its own producers must serve at each turn; see `hjit.kernels.lower.sliding_windows`.
        round_up: stage -> axis -> what its part of the axis is made a multiple of.
        around: the regions at the place that this one is inside of. There is memory for no more, and less cannot always be told further in.
        begun: the stages whose own loops are directly at the place, not inside loops of others.
    """
    here: dict[str, list[int]] = {}
    for c in computed:
        here.setdefault(c.stage, []).extend(c.definitions)
    found: dict[str, Region] = {}
    needs = Needs(reads)
    for stage in sorted(here, key=reads.position.__getitem__, reverse=True):
        is_open = open_dims(stage, here[stage][0]) is not None
        served: Region = ()
        if not is_open:
            region = _inside(needs.region(stage), around.get(stage), reads.stages[stage].shape)
            found[stage] = name(
                stage, _rounded_up(region, round_up.get(stage, {}), reads.stages[stage].shape, stage in begun)
            )
            served = steady(stage, found[stage])
        for number in here[stage]:
            dims = (
                open_dims(stage, number)
                if is_open
                else dims_of_region(reads.stages[stage], reads.stages[stage].definitions[number], served)
            )
            assert dims is not None
            needs.add(stage, number, dims)
    return found


def vector_axes(reads: Reads, top: Node) -> dict[str, frozenset[int]]:
    """The axes of each stage of a nest along which vectors write or read it."""
    lanes: dict[str, set[int]] = {}
    for x in walk(top):
        if isinstance(x, Loop) and x.kind == "vector":
            lanes.setdefault(x.stage, set()).update(dims_of(x.dim))
    found: dict[str, set[int]] = {}
    for c in computes(top):
        dims = [Dim(k) for k in lanes.get(c.stage, ())]
        for number in c.definitions if dims else ():
            d = reads.stages[c.stage].definitions[number]
            of = {source: reads.indices(c.stage, number, source) for source in reads.of(c.stage, number)}
            for stage, axes in ((c.stage, tuple((p,) for p in d.target)), *of.items()):
                here = (axis for axis, ps in enumerate(axes) if any(p.mentions(x) for p in ps for x in dims))
                found.setdefault(stage, set()).update(here)
    return {stage: frozenset(axes) for stage, axes in found.items()}


class Needs:
    """What is needed of each stage by the consumers so far, which are added from the last one back."""

    def __init__(self, reads: Reads) -> None:
        self.reads = reads
        self._users: dict[str, list[tuple[str, int, Dims]]] = {}

    def add(self, stage: str, number: int, dims: Dims) -> None:
        """A consumer: a definition and what it computes."""
        for source in self.reads.of(stage, number):
            if source != stage:
                self._users.setdefault(source, []).append((stage, number, dims))

    def region(self, stage: str) -> Region:
        """How much of a stage they need."""
        s = self.reads.stages[stage]
        total: list[Interval | None] = [None] * len(s.shape)
        unknown = set(self.reads.whole_axes(stage))
        for consumer, number, dims in self._users.get(stage, ()):
            full = self.reads.full(consumer, number)
            for axis, indices in enumerate(self.reads.indices(consumer, number, stage)):
                if axis not in unknown:
                    total[axis] = _hull(total[axis], indices, dims, full)
                    if total[axis] is None:
                        unknown.add(axis)
        region = tuple(
            whole(n) if t is None or axis in unknown else t.clipped(n)
            for axis, (n, t) in enumerate(zip(s.shape, total, strict=True))
        )
        return _rounded(region, self.reads.steps(stage), s.shape)


def _hull(total: Interval | None, indices: Iterable[Poly], dims: Dims, full: Dims) -> Interval | None:
    """The smallest interval around `total` and all that the indices reach; None where it cannot be told."""
    for p in indices:
        part = interval(p, dims, full)
        total = part if total is None or part is None else total.hull(part)
        if total is None:
            return None
    return total


@lru_cache(maxsize=1 << 14)
def advance(p: Poly, var: Var, step: int) -> int | None:
    """An upper bound of how much an expression grows when `var` grows by `step` (which may be negative); None where it may fall."""
    total = 0
    for m, c in p.terms.items():
        if not any(a == var or poly(a).mentions(var) for a in m):
            continue
        if len(m) != 1 or c < 0:
            return None
        a = m[0]
        if a == var:
            total += c * step
        elif isinstance(a, FloorDiv) and a.by.is_const and not a.by.mentions(var):
            inner = advance(a.arg, var, step)
            if inner is None:
                return None
            total += c * -(-inner // a.by.const)
        else:
            return None
    return total


def turns_before(base: Poly, var: Var, step: int, reach: int, new: int, most: int) -> int | None:
    """How many turns of `step` before the first one a window must begin, so that no turn adds more than `new` elements; None: more than `most`.

    Args:
        base: what the window moves with.
        reach: from its first element to its last one.
    """
    for turns in range(most + 1):
        back = advance(base, var, -turns * step)
        if back is not None and back + reach + 1 <= new:
            return turns
    return None
