"""A nest at concrete sizes: how often each place in it runs, and which regions of stages are computed and stored there.

The walk down the tree is that of lowering (`hjit.kernels.lower.placing`: `walk`, `sliding_windows`), on numbers instead
of symbols. At each place it knows the remaining range of every dimension and how often the place runs; where stages
begin, bounds inference finds the regions that are required of them. The middle iteration of each loop represents all of
them (`hjit.sched.analysis.iterations`).

A search looks at many nests that differ in one stage. So results are memoised by their inputs (`SizedGraph.memo`) and
reused for other nests; they must not depend on the rest of a nest. Numbers of places do, and are kept separately.
`Env`, `Task`, `RequiredRegion`, `Allocation` and `Site` are made once for equal inputs, and are keys of the memo by
identity (``eq=False``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from hjit.sched.analysis.bounds import vector_axes
from hjit.sched.analysis.footprint import ANYWHERE, NUMERIC, Interval, Memory, Region, extent, joined
from hjit.sched.analysis.iterations import Env, StageLoop, narrowed, remaining_of
from hjit.sched.analysis.propagation import Use, Uses, hulls, propagate
from hjit.sched.analysis.sized import DefinitionGroup, SizedGraph
from hjit.sched.analysis.sliding import STILL, Speeds
from hjit.sched.analysis.tape import Num, Truth, ceil_div, choose, least, most, power_of_two, product, total
from hjit.sched.language.build import flattened, parallel_loops
from hjit.sched.language.kinds import LoopKind
from hjit.sched.language.memory import Layout
from hjit.sched.language.tree import Compute, DimKey, Loop, Node, Store, Tail, dims_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """The middle task of a nest: some iterations of its parallel loops, or the whole nest if it has none.

    Attributes:
        head: the stage of the nest.
        count: how many tasks there are.
        dims: the ranges of the head's dimensions that the task covers.
        regions: the region of each stage that the task computes.
    """

    head: str
    count: Num
    dims: list[Interval]
    regions: dict[str, Region]


@dataclass(frozen=True, slots=True, eq=False)
class RequiredRegion:
    """The region of a stage that is required at a place.

    Attributes:
        region: all that is read there.
        part: what one iteration computes of it: with a sliding window, only what is new.
        windows: the lengths of the axes along which it slides; zero for tilings in which it does not.
    """

    region: Region
    part: Region
    windows: dict[int, Num]


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """The storage of a stage.

    Attributes:
        region: the part of the stage that one realization holds.
        count: how many realizations there are.
    """

    region: Region
    count: Num
    layout: Layout


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """The place and the region of a computed stage.

    Attributes:
        region: what one production computes; with a sliding window, what earlier iterations have not computed.
        count: how many productions there are.
        first: what the first production after a reset of the sliding window computes.
        turns: how many productions there are between two resets.
        run: what all of them need together.
        runs: how many resets there are.
        allocation: its storage.
        memory: the layout of that storage, or of the circular buffer.
    """

    region: Region
    count: Num
    first: Region
    turns: Num
    run: Region
    runs: Num
    allocation: Allocation
    memory: Memory


@dataclass(frozen=True, slots=True)
class Leaf:
    """A `Compute` node of the tree.

    Attributes:
        env: its environment; along a vector, with all lanes.
        alone: for each loop of `env.loops`: does it contain computations of this stage only?
        place: the place of its task.
    """

    group: DefinitionGroup
    site: Site
    task: Task
    env: Env
    alone: tuple[bool, ...]
    place: int


@dataclass(slots=True)
class Sites:
    """The result of the walk: one child of the root.

    Attributes:
        heads: the stages that are computed at the root.
        leaves: its computations, in the order in which they run.
        sites: by stage.
        places: for each stage, where it is stored and computed, as numbers of places in the order of the walk.
        inside: for each stage, the first and last places inside its loops.
        stored: pairs of a place and the bytes that are stored there.
        ends: for each place, the last one inside it; place 0 contains all others.
        memo: what was computed for this nest, and is reused for similar ones.
    """

    heads: tuple[str, ...] = ()
    leaves: list[Leaf] = field(default_factory=list)
    sites: dict[str, Site] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    inside: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    stored: list[tuple[int, Num]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    memo: dict[Any, Any] = field(default_factory=dict)
    _allocated: dict[int, Num] = field(default_factory=dict)

    def allocated(self, *intervals: tuple[int, int]) -> Num:
        """The bytes of everything stored at places from first to last."""
        return total(n for at, n in self.stored if any(a <= at <= b for a, b in intervals))

    def allocated_at(self, place: int) -> Num:
        """The bytes of everything stored at a place and further in, once the walk is done."""
        found = self._allocated.get(place)  # many ask for the same few
        if found is None:
            found = self._allocated[place] = self.allocated((place, self.ends[place]))
        return found


def sites_of(graph: SizedGraph, nest: Node, sizes: Sequence[Num]) -> Sites:
    """Walk down one child of the root.

    Args:
        sizes: replace the sizes of the loops that have one, in the order of `hjit.sched.language.tree.walk`; the same
            objects for equal loops.
    """
    return _Walk(graph, nest, sizes).sites()


class _Walk:
    def __init__(self, graph: SizedGraph, nest: Node, sizes: Sequence[Num]) -> None:
        self.graph, self.nest = graph, nest
        # By node: as each definition is computed once, no two nodes of a nest are equal.
        self.under: dict[Node, tuple[Compute, ...]] = {}  # what is computed under a node
        self.inner: dict[Loop, Loop] = {}  # the next loop over the dimension of a loop
        self.sized: list[Loop] = []
        self._look(nest, {})
        self.size = dict(zip(self.sized, sizes, strict=True))
        self.round_up = self._rounding()
        self.memo: dict[Any, Any] = {} if self.round_up else graph.memo
        self.found = Sites(memo=self.memo)
        self.allocations: dict[str, tuple[Allocation, int]] = {}
        self.task: tuple[Task, int]

    @cached_property
    def vectors(self) -> dict[str, frozenset[int]]:
        """The axes of each stage that vectors run along; needed only where a window slides."""
        return vector_axes(self.graph.reads, self.nest)

    def _once(self, make: Callable[[], T], *key: Any) -> T:
        """The result of `make`, computed once for all nests."""
        found: T | None = self.memo.get(key)
        if found is None:
            found = self.memo[key] = make()
        return found

    # -- questions about the tree
    def _look(self, node: Node, around: dict[tuple[str, DimKey], Loop]) -> tuple[Compute, ...]:
        """Note what is computed under each node, the loops of a size, and the next loop over each loop's dimension."""
        if isinstance(node, Compute):
            for key in [key for key in around if key[0] == node.stage]:
                del around[key]  # what follows is another computation, with loops of its own
            found: tuple[Compute, ...] = (node,)
        else:
            if isinstance(node, Loop):
                outer = around.get((node.stage, node.dim))
                if outer is not None:
                    self.inner[outer] = node
                around[node.stage, node.dim] = node
                if node.size is not None:
                    self.sized.append(node)
            found = ()
            for x in node.children:
                found += self._look(x, around)
        self.under[node] = found
        return found

    def _rounding(self) -> dict[str, dict[int, Num]]:
        """Stage -> axis -> the multiple that its region is rounded up to, by the tail strategy "round_up"."""
        found: dict[str, dict[int, Num]] = {}
        for x in self.sized:
            if x.tail == "round_up":
                for k, axis, c, _ in self._group_of(x).inverse:
                    if k == x.dim:
                        sizes = found.setdefault(x.stage, {})
                        sizes[axis] = most(sizes.get(axis, 1.0), self.size[x] * float(c))
        return found

    def _group_of(self, node: Loop | Compute) -> DefinitionGroup:
        """The first computation of a node's stage under it."""
        for c in self.under[node]:
            if c.stage == node.stage:
                return self.graph.group(c.stage, c.definitions)
        raise AssertionError(node)

    def _step(self, loop: Loop) -> Num:
        """The number of elements that one iteration of a loop advances."""
        inner = self.inner.get(loop)
        return 1.0 if inner is None else self.size[inner]

    # -- all of it
    def sites(self) -> Sites:
        found = self.found
        items, stores = flattened((self.nest,))
        found.heads = tuple(dict.fromkeys(x.stage for x in items))
        top = self._new_place()
        for x in stores:
            if x.stage in found.heads:
                self._whole(x.stage, layout_of(x), top)
        for item in items:
            self._nest(item, [x for x in stores if x.stage not in found.heads])
        self._close(top)
        return found

    def _whole(self, name: str, layout: Layout, top: int) -> None:
        """Note a stage that is computed at the root."""

        def make() -> tuple[Allocation, Site]:
            region = tuple((0.0, n - 1.0) for n in self.graph.shape(name))
            allocation = Allocation(region, 1.0, layout)
            return allocation, self._site(name, region, 1.0, allocation)

        allocation, site = self._once(make, "whole", name, layout)
        self.allocations[name] = allocation, top
        self._note(name, site, top, top)

    def _nest(self, item: Loop | Compute, stores: Sequence[Store]) -> None:
        """One loop nest. Stages that are stored around it, but not computed at the root, have storage in each task."""
        group, place, under = self._group_of(item), self._new_place(), self.under[item]
        opened = self._once(lambda: _opened(group, group.whole, 1.0, TOP), "top", group)
        env = self._middle_task(item, opened)
        task = self._once(lambda: self._task(group, env, under), "task", env, under)
        self.task = task, place
        for x in stores:
            if x.stage in task.regions:
                self.allocations[x.stage] = self._allocation(x, task.regions[x.stage], env, task), place
        self._visit(item, env, place, ())
        self._close(place)
        self.found.inside.setdefault(group.stage, []).append((place, self.found.ends[place]))

    def _task(self, group: DefinitionGroup, env: Env, under: Sequence[Compute]) -> Task:
        dims = env.dims[group.stage]
        regions = {name: x.region for name, x in self._regions(env, under).items()}
        for c in under:
            if c.stage == group.stage:
                regions[c.stage] = joined(
                    regions.get(c.stage), self.graph.group(c.stage, c.definitions).written.region(dims)
                )
        return Task(group.stage, env.times, dims, regions)

    def _middle_task(self, item: Loop | Compute, env: Env) -> Env:
        """The environment of the middle task: a block of iterations, whole inner parallel loops first."""
        loops = [(_head(x), self._step(x)) for x in parallel_loops(item)]

        def make() -> Env:
            inside = env
            iterations = [ceil_div(remaining_of(inside, x).length, step) for x, step in loops]
            count = product(iterations)
            each: Num = (
                1.0 if self.graph.tasks is None else ceil_div(count, most(least(count, float(self.graph.tasks)), 1.0))
            )
            for (loop, step), n in zip(reversed(loops), reversed(iterations), strict=True):
                some = most(least(each, n), 1.0)
                each = ceil_div(each, some)
                dims, remaining = narrowed(inside, loop, some * step)
                inside = replace(inside, dims=dims, remaining=remaining)
            return inside

        return self._once(make, "middle", env, *loops)

    # -- places
    def _new_place(self) -> int:
        self.found.ends.append(len(self.found.ends))
        return len(self.found.ends) - 1

    def _close(self, place: int) -> None:
        self.found.ends[place] = len(self.found.ends) - 1

    def _visit(self, node: Loop | Compute, env: Env, place: int, alone: tuple[bool, ...]) -> None:
        if isinstance(node, Compute):
            group = self.graph.group(node.stage, node.definitions)
            self.found.leaves.append(Leaf(group, self.found.sites[node.stage], self.task[0], env, alone, self.task[1]))
            return
        inside, under = self._new_place(), self.under[node]
        is_alone = len(under) == 1 or all(c.stage == node.stage for c in under)
        self._inside(node.children, self._entered(env, node), inside, (*alone, is_alone))
        self._close(inside)

    def _entered(self, env: Env, loop: Loop) -> Env:
        """The environment inside a loop, at its middle iteration; inside a vector loop, with all lanes."""
        head, group = _head(loop), self._group_of(loop)
        size, step = self.size.get(loop), self._step(loop)

        def make() -> Env:
            own = StageLoop(head, size, remaining_of(env, head).length, step)
            if head.kind == "vector":
                return replace(env, loops=(*env.loops, own))
            dims, remaining = narrowed(env, head, step)
            runs_iterations = head.kind != "unroll" and dims_of(head.dim)[0] < group.pure
            return Env(
                dims,
                remaining,
                env.base,
                env.lengths,
                remaining if runs_iterations else env.tile,
                (*env.loops, own),
                env.productions,
                env,
                own,
            )

        return self._once(make, "in", env, head, group, size, step)

    def _inside(self, children: tuple[Node, ...], env: Env, place: int, alone: tuple[bool, ...]) -> None:
        """What runs at a place."""
        items, stores = flattened(children)
        new = dict.fromkeys(x.stage for x in items if x.stage not in env.dims)
        if new or stores:
            self._begin(new, items, stores, env, place)
        for x in items:
            if x.stage in new:
                at = len(self.found.ends)
                self._visit(x, self._begun(self.found.sites[x.stage], self._group_of(x), env), place, ())
                self.found.inside.setdefault(x.stage, []).append((at, len(self.found.ends) - 1))
            else:
                self._visit(x, env, place, alone)

    def _begun(self, site: Site, group: DefinitionGroup, env: Env) -> Env:
        """The environment where the loops of a stage begin inside others."""
        return self._once(lambda: _opened(group, group.dims(site.region), site.count, env), "open", env, site, group)

    def _allocation(self, store: Store, region: Region, env: Env, of: Task | RequiredRegion) -> Allocation:
        """The storage of a part of a stage, which is that `of` something."""
        layout = layout_of(store)
        return self._once(lambda: Allocation(region, env.times, layout), "allocation", env, of, store.stage, layout)

    def _begin(
        self, new: Iterable[str], items: Sequence[Loop | Compute], stores: Sequence[Store], env: Env, place: int
    ) -> None:
        """How much of the stages that begin at a place is computed there, and of those that are stored there, kept."""
        computed = tuple(c for x in items for c in self.under[x])
        sliding = frozenset(new) - {x.stage for x in stores}
        found = self._once(lambda: self._regions(env, computed, sliding), "regions", env, computed, sliding)
        for x in stores:
            self.allocations[x.stage] = self._allocation(x, found[x.stage].region, env, found[x.stage]), place
        outside = env.outside
        first: dict[str, RequiredRegion] = {}
        run: dict[str, RequiredRegion] = {}
        if sliding and outside is not None:
            first = self._once(lambda: self._regions(env, computed), "regions", env, computed, frozenset())
            run = self._once(lambda: self._regions(outside, computed), "regions", outside, computed, frozenset())
        for name in new:
            allocation, at = self.allocations[name]
            slid = (first[name], run[name]) if name in sliding and name in run else None
            self._note(name, self._begun_site(name, found[name], slid, env, allocation), at, place)

    def _begun_site(
        self,
        name: str,
        need: RequiredRegion,
        slid: tuple[RequiredRegion, RequiredRegion] | None,
        env: Env,
        allocation: Allocation,
    ) -> Site:
        """What is computed of a stage at a place; `slid`: `first` and `run` of `_sliding_site`."""
        if slid is None:
            return self._once(
                lambda: self._site(name, need.part, env.times, allocation), "site", name, env, need, allocation
            )
        first, run = slid
        axes = self.vectors.get(name, frozenset())
        return self._once(
            lambda: self._sliding_site(name, need, first.region, run.region, env, allocation, axes),
            *("site", name, env, need, run, allocation, axes),
        )

    def _note(self, name: str, site: Site, stored: int, place: int) -> None:
        """Note where a stage is computed and stored."""
        self.found.sites[name] = site
        self.found.places[name] = stored, place
        self.found.stored.append((stored, site.memory.bytes))

    def _site(self, name: str, region: Region, count: Num, allocation: Allocation) -> Site:
        """What is computed of a stage at a place where no window of it slides."""
        memory = self.graph.buffer(name, [extent(x) for x in allocation.region], allocation.layout)
        return Site(region, count, region, 1.0, region, count, allocation, memory)

    def _sliding_site(
        self,
        name: str,
        need: RequiredRegion,
        first: Region,
        run: Region,
        env: Env,
        allocation: Allocation,
        axes: Collection[int],
    ) -> Site:
        """What is computed of a stage at a place inside the loop around which it is stored.

        Args:
            first, run: what is required by the first iteration and by all of them, from one time that it has nothing to
                the next.
            axes: those that vectors run along.
        """
        outside, loop = env.outside, env.innermost
        assert outside is not None and loop is not None, "it slides along that loop"
        lengths = [extent(x) for x in allocation.region]
        slides: Truth = False
        for axis, n in need.windows.items():  # zero for tilings where they do not slide
            slides = slides | (n > 0.0)
            if axis not in axes:
                lengths[axis] = choose(n > 0.0, power_of_two(most(n, 1.0)), lengths[axis])
        runs = outside.times
        count = choose(slides, env.times, runs)  # the first iteration computes all of what does not slide
        turns = choose(slides, ceil_div(loop.length, loop.step), 1.0)
        first = tuple((choose(slides, a, c), choose(slides, b, d)) for (a, b), (c, d) in zip(first, run, strict=True))
        memory = self.graph.buffer(name, lengths, allocation.layout)
        return Site(need.part, count, first, turns, run, runs, allocation, memory)

    def _regions(
        self, env: Env, computed: Iterable[Compute], sliding: Collection[str] = ()
    ) -> dict[str, RequiredRegion]:
        """Required regions of the stages that begin under a place; see `hjit.sched.analysis.bounds.infer_bounds`."""
        found: dict[str, RequiredRegion] = {}
        speeds: dict[str, Speeds] = {}
        slacks: dict[str, Speeds] = {}

        def begin(name: str, uses: Uses[DefinitionGroup]) -> Region:
            consumers = uses.of(name)
            needs = hulls(consumers, NUMERIC)
            wanted, region = self.graph.completed(name, needs, self.round_up.get(name, {}))
            slack = _slack(consumers, len(region), slacks) if sliding else ()  # windows alone have it
            if name in sliding and env.innermost is not None and consumers:
                moving = _speeds(name, uses, env, speeds)
                found[name] = steady(region, wanted, moving, self.graph.reads.steps(name), slack, env.innermost)
                slack = tuple(STILL if v > 0 else x for v, x in zip(moving, slack, strict=True))
            else:
                found[name] = RequiredRegion(region, region, {})
            slacks[name] = slack
            return found[name].part

        groups = [self.graph.group(c.stage, c.definitions) for c in computed]
        propagate(groups, self.graph.position, env.dims, begin)
        return found


TOP = Env({}, {}, [], [], {}, (), 1.0, None, None)


def _opened(group: DefinitionGroup, dims: list[Interval], productions: Num, env: Env) -> Env:
    """The environment in which the loops of a stage begin, with these dimensions."""
    return Env(
        {**env.dims, group.stage: dims}, {}, dims, group.lengths(dims), {}, (), productions, env.outside, env.innermost
    )


def _head(loop: Loop) -> Loop:
    """A loop without what is in it, and with the sign of its size only; the same object for equal ones."""
    size = loop.size
    return _plain_loop(loop.stage, loop.dim, loop.kind, None if size is None else -1 if size < 0 else 1, loop.tail)


@lru_cache(maxsize=1 << 16)
def _plain_loop(stage: str, dim: DimKey, kind: LoopKind, size: int | None, tail: Tail) -> Loop:
    return Loop(stage, dim, kind, size, (), tail)


def layout_of(store: Store) -> Layout:
    """The memory layout of a stage that is stored."""
    return Layout(store.order, store.align)


def steady(
    region: Region, wanted: Region, speeds: Speeds, steps: Sequence[int], slack: Speeds, loop: StageLoop
) -> RequiredRegion:
    """The part of a region that an iteration computes after all earlier ones.

    Args:
        wanted: the region unclipped.
        speeds: elements of each axis by which it moves with one of the loop's dimension.
        steps: how many elements of each axis are computed together.
        slack: by how much longer its window is for the iterations at the array's ends.
    """
    found = list(region)
    windows: dict[int, Num] = {}
    several = loop.length > loop.step
    for axis, (x, v, c, more) in enumerate(zip(region, speeds, steps, slack, strict=True)):
        if v > 0 and wanted[axis] != ANYWHERE:
            new = least(ceil_div(loop.step * float(v.numerator), float(v.denominator * c)) * float(c), extent(x))
            low, high = NUMERIC.newest(x, new)
            found[axis] = choose(several, low, x[0]), high
            windows[axis] = choose(several, extent(wanted[axis]) + float(more), 0.0)
    return RequiredRegion(region, tuple(found), windows)


def _slack(consumers: Sequence[Use[DefinitionGroup]], axes: int, known: Mapping[str, Speeds]) -> Speeds:
    """How much larger the required region of a stage can be at its ends than in its middle, for each axis.

    Args:
        known: that of the stages that begin at the same place; of those whose loops are open iterations are exact.
    """
    found: Speeds = (STILL,) * axes
    for use in consumers:
        dims = [STILL] * len(use.group.extents)
        if use.group.stage in known:
            for k, axis, c, _ in use.group.inverse:
                dims[k] = known[use.group.stage][axis] / c
        found = tuple(map(max, found, use.footprint.slacks(dims)))
    return found


def _speeds(stage: str, uses: Uses[DefinitionGroup], env: Env, known: dict[str, Speeds]) -> Speeds:
    """How fast the required region of a stage moves along its axes with the loop around a place."""
    if stage not in known:
        found = [x.footprint.speeds(_speeds_of_dims(x.group, uses, env, known)) for x in uses.of(stage)]
        known[stage] = tuple(map(max, *found)) if len(found) > 1 else found[0]
    return known[stage]


def _speeds_of_dims(
    group: DefinitionGroup, uses: Uses[DefinitionGroup], env: Env, known: dict[str, Speeds]
) -> list[Fraction]:
    """How fast the dimensions of a stage do: with its own loop, or as its region moves with that of another stage."""
    found = [STILL] * len(group.extents)
    if env.innermost is not None and env.innermost.loop.stage == group.stage:
        first, *rest = dims_of(env.innermost.loop.dim)
        found[first] = Fraction(1, max(int(math.prod(group.extents[k] for k in rest)), 1))
    elif group.stage not in env.dims and uses.of(group.stage):
        region = _speeds(group.stage, uses, env, known)
        for k, axis, c, _ in group.inverse:
            found[k] = region[axis] / c
    return found
