"""A nest in numbers: how often each of its places runs, and what of each stage is computed and stored there.

The walk down the tree is that of lowering (`hjit.kernels.lower`, `hjit.kernels.windows`), over numbers: at each place it
knows what is left of every dimension and how often the place runs, and where stages begin, box inference says how much of
them is needed. Of each loop the middle turn stands for all (`hjit.sched.turns`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from hjit.sched.boxes import vector_axes
from hjit.sched.build import flattened, parallel_loops
from hjit.sched.footprint import ANYWHERE, Box, Interval, Memory, extent, joined
from hjit.sched.formulas import Num, Truth, ceil_div, choose, least, most, power_of_two, product, total
from hjit.sched.memory import Layout
from hjit.sched.sized import Part, SizedGraph
from hjit.sched.tree import Compute, DimKey, Loop, Node, Store, dims_of
from hjit.sched.turns import Env, Own, left_of, narrowed

Speeds = tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Task:
    """What the middle task of a nest has: some turns of the parallel loops, or all of the nest.

    Attributes:
        head: the stage whose nest it is.
        count: how many tasks there are.
        dims: the ranges of the head's dimensions.
        boxes: the part of each stage that the task computes.
        place: its number.
    """

    head: str
    count: Num
    dims: list[Interval]
    boxes: dict[str, Box]
    place: int


@dataclass(frozen=True, slots=True)
class Need:
    """What is needed of a stage at a place.

    Attributes:
        box: all that is read there.
        part: what one turn computes of it, when it slides.
        windows: the lengths of the axes along which it slides, zero for tilings where it does not.
    """

    box: Box
    part: Box
    windows: dict[int, Num]


@dataclass(frozen=True, slots=True)
class Held:
    """The storage of a stage.

    Attributes:
        box: the part of the stage that is alive in one realization.
        count: how many realizations there are.
        place: where it is.
    """

    box: Box
    count: Num
    place: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class Site:
    """Where a stage is computed, and how much of it there.

    Attributes:
        box: the part that one production computes, which with a sliding window is what the turns before have not.
        count: how many productions there are.
        run, runs: the part that is computed from one time that the stage has nothing to the next, and how often.
        held: its storage.
        memory: that storage; of a circular buffer, its length.
        place: where it is computed.
    """

    box: Box
    count: Num
    run: Box
    runs: Num
    held: Held
    memory: Memory
    place: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """A computation of the tree.

    Attributes:
        env: what is known there; along a vector, all its lanes.
    """

    part: Part
    site: Site
    task: Task
    env: Env


@dataclass(slots=True)
class Sites:
    """All that is known of one child of the root.

    Attributes:
        heads: the stages that are computed at the root.
        leaves: its computations, in the order in which they run.
        sites: by stage.
        inside: by stage, the places inside its loops, as first and last.
        stored: places with what is stored there, in bytes.
        ends: for each place the last one inside it; place 0 is around all.
    """

    heads: tuple[str, ...] = ()
    leaves: list[Leaf] = field(default_factory=list)
    sites: dict[str, Site] = field(default_factory=dict)
    inside: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    stored: list[tuple[int, Num]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    _allocated: dict[int, Num] = field(default_factory=dict)

    def allocated(self, *spans: tuple[int, int]) -> Num:
        """Bytes of all that is stored at places from first to last."""
        return total(n for at, n in self.stored if any(a <= at <= b for a, b in spans))

    def allocated_at(self, place: int) -> Num:
        """Bytes of all that is stored at a place and further in; asked when the walk is over."""
        found = self._allocated.get(place)  # many ask for the same few
        if found is None:
            found = self._allocated[place] = self.allocated((place, self.ends[place]))
        return found


def sites_of(graph: SizedGraph, nest: Node, sizes: Sequence[Num]) -> Sites:
    """What is known of one child of the root.

    Args:
        sizes: of the loops that have one, in place of their own, in the order of `hjit.sched.tree.walk`.
    """
    return _Walk(graph, nest, sizes).sites()


class _Walk:
    def __init__(self, graph: SizedGraph, nest: Node, sizes: Sequence[Num]) -> None:
        self.graph, self.nest = graph, nest
        self.under: dict[int, tuple[Compute, ...]] = {}  # node -> what is computed under it
        self.inner: dict[int, Loop] = {}  # loop -> the next one over its dimension
        self.sized: list[Loop] = []
        self._look(nest, {})
        self.size = {id(x): n for x, n in zip(self.sized, sizes, strict=True)}
        self.round_up = self._rounding()
        self.found = Sites()
        self.held: dict[str, Held] = {}
        self.task: Task

    @cached_property
    def vectors(self) -> dict[str, frozenset[int]]:
        """The axes of each stage that vectors run along; asked only where a window slides."""
        return vector_axes(self.graph.reads, self.nest)

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
                    self.inner[id(outer)] = node
                around[node.stage, node.dim] = node
                if node.size is not None:
                    self.sized.append(node)
            found = ()
            for x in node.children:
                found += self._look(x, around)
        self.under[id(node)] = found
        return found

    def _rounding(self) -> dict[str, dict[int, Num]]:
        """Stage -> axis -> what its part of the axis is made a multiple of, as the tail "round_up" says."""
        found: dict[str, dict[int, Num]] = {}
        for x in self.sized:
            if x.tail == "round_up":
                for k, axis, c, _, _ in self._part_of(x).inverse:
                    if k == x.dim:
                        sizes = found.setdefault(x.stage, {})
                        sizes[axis] = most(sizes.get(axis, 1.0), self.size[id(x)] * c)
        return found

    def _part_of(self, node: Loop | Compute) -> Part:
        """The first computation of a node's stage under it."""
        for c in self.under[id(node)]:
            if c.stage == node.stage:
                return self.graph.part(c.stage, c.definitions)
        raise AssertionError(node)

    def _step(self, loop: Loop) -> Num:
        """How far one turn of a loop goes."""
        inner = self.inner.get(id(loop))
        return 1.0 if inner is None else self.size[id(inner)]

    # -- all of it
    def sites(self) -> Sites:
        found = self.found
        items, stores = flattened((self.nest,))
        found.heads = tuple(dict.fromkeys(x.stage for x in items))
        top = self._new_place()
        for x in stores:
            if x.stage in found.heads:
                box = tuple((0.0, n - 1.0) for n in self.graph.shape(x.stage))
                self.held[x.stage] = Held(box, 1.0, top, layout_of(x))
                self._add(x.stage, box, 1.0, box, 1.0, top)
        for item in items:
            self._nest(item, [x for x in stores if x.stage not in found.heads])
        self._close(top)
        return found

    def _nest(self, item: Loop | Compute, stores: Sequence[Store]) -> None:
        """One loop nest. What is stored around it and not computed at the root, each task has for itself."""
        part, place = self._part_of(item), self._new_place()
        env = self._middle_task(item, self._opened(item, part.whole, 1.0, Env({}, {}, [], [], {}, (), 1.0, None, None, place)))
        dims = env.dims[part.stage]
        boxes = {name: x.box for name, x in self._boxes(env, self.under[id(item)]).items()}
        for c in self.under[id(item)]:
            if c.stage == part.stage:
                boxes[c.stage] = joined(boxes.get(c.stage), self.graph.part(c.stage, c.definitions).written.region(dims))
        self.task = Task(part.stage, env.times, dims, boxes, place)
        for x in stores:
            if x.stage in boxes:
                self.held[x.stage] = Held(boxes[x.stage], env.times, place, layout_of(x))
        self._visit(item, env)
        self._close(place)
        self.found.inside.setdefault(part.stage, []).append((place, self.found.ends[place]))

    def _middle_task(self, item: Loop | Compute, env: Env) -> Env:
        """What the middle task has, as a block of turns: whole rounds of the inner parallel loops first."""
        loops = parallel_loops(item)
        turns = [ceil_div(left_of(env, x).length, self._step(x)) for x in loops]
        count = product(turns)
        each: Num = 1.0 if self.graph.tasks is None else ceil_div(count, most(least(count, float(self.graph.tasks)), 1.0))
        for loop, n in zip(reversed(loops), reversed(turns), strict=True):
            some = most(least(each, n), 1.0)
            each = ceil_div(each, some)
            dims, left = narrowed(env, loop, some * self._step(loop))
            env = env._replace(dims=dims, left=left)
        return env

    # -- places
    def _new_place(self) -> int:
        self.found.ends.append(len(self.found.ends))
        return len(self.found.ends) - 1

    def _close(self, place: int) -> None:
        self.found.ends[place] = len(self.found.ends) - 1

    def _opened(self, item: Loop | Compute, dims: list[Interval], productions: Num, env: Env) -> Env:
        """Where the loops of a stage begin that computes these dimensions."""
        lengths = self._part_of(item).lengths(dims)
        return Env({**env.dims, item.stage: dims}, {}, dims, lengths, {}, (), productions, env.run, env.around, env.place)

    def _visit(self, node: Loop | Compute, env: Env) -> None:
        if isinstance(node, Compute):
            part = self.graph.part(node.stage, node.definitions)
            self.found.leaves.append(Leaf(part, self.found.sites[node.stage], self.task, env))
            return
        place = self._new_place()
        self._inside(node.children, self._entered(env, node, place))
        self._close(place)

    def _entered(self, env: Env, loop: Loop, place: int) -> Env:
        """Inside a loop, at its middle turn; inside a vector loop, at all lanes."""
        under = self.under[id(loop)]
        alone = len(under) == 1 or all(c.stage == loop.stage for c in under)
        length, step = left_of(env, loop).length, self._step(loop)
        own = Own(loop, self.size.get(id(loop)), length, step, alone)
        if loop.kind == "vector":
            return env._replace(loops=(*env.loops, own), place=place)
        dims, left = narrowed(env, loop, step)
        runs_turns = loop.kind != "unroll" and dims_of(loop.dim)[0] < self._part_of(loop).pure
        return Env(dims, left, env.base, env.lengths, left if runs_turns else env.tile, (*env.loops, own), env.productions, env, own, place)

    def _inside(self, children: tuple[Node, ...], env: Env) -> None:
        """What runs at a place."""
        items, stores = flattened(children)
        new = dict.fromkeys(x.stage for x in items if x.stage not in env.dims)
        if new or stores:
            self._begin(new, items, stores, env)
        for x in items:
            if x.stage in new:
                site, at = self.found.sites[x.stage], len(self.found.ends)
                self._visit(x, self._opened(x, self._part_of(x).dims(site.box), site.count, env))
                self.found.inside.setdefault(x.stage, []).append((at, len(self.found.ends) - 1))
            else:
                self._visit(x, env)

    def _begin(self, new: Iterable[str], items: Sequence[Loop | Compute], stores: Sequence[Store], env: Env) -> None:
        """How much of the stages that begin at a place is computed there, and of those that are stored there, kept."""
        computed = tuple(c for x in items for c in self.under[id(x)])
        sliding = set(new) - {x.stage for x in stores}
        found = self._boxes(env, computed, sliding)
        for x in stores:
            self.held[x.stage] = Held(found[x.stage].box, env.times, env.place, layout_of(x))
        run = self._boxes(env.run, computed) if sliding and env.run is not None else {}
        for name in new:
            part, count = found[name].part, env.times
            if name in sliding and env.run is not None:
                self._add(name, part, count, run[name].box, env.run.times, env.place, found[name].windows)
            else:
                self._add(name, part, count, part, count, env.place)

    def _add(self, name: str, box: Box, count: Num, run: Box, runs: Num, place: int, windows: Mapping[int, Num] | None = None) -> None:
        """Note where a stage is computed.

        Args:
            windows: where it is stored further out, how long the windows of the axes are that slide, zero for tilings where they do not.
        """
        held = self.held[name]
        lengths = [extent(x) for x in held.box]
        if windows is not None:
            slides: Truth = False
            for axis, n in windows.items():
                slides = slides | (n > 0.0)
                if axis not in self.vectors.get(name, ()):
                    lengths[axis] = choose(n > 0.0, power_of_two(most(n, 1.0)), lengths[axis])
            count = choose(slides, count, runs)  # the first turn computes all of what does not slide
        memory = self.graph.buffer(name, lengths, held.layout)
        self.found.sites[name] = Site(box, count, run, runs, held, memory, place)
        self.found.stored.append((held.place, memory.bytes))

    def _boxes(self, env: Env, computed: Iterable[Compute], sliding: Collection[str] = ()) -> dict[str, Need]:
        """What is needed of the stages that begin under a place; see `hjit.sched.boxes.boxes`."""
        here: dict[str, list[Part]] = {}
        for c in computed:
            here.setdefault(c.stage, []).append(self.graph.part(c.stage, c.definitions))
        needs: dict[str, Box] = {}
        speeds: dict[str, Speeds] = {}
        found: dict[str, Need] = {}
        for name in sorted(here, key=self.graph.position.__getitem__, reverse=True):
            if name not in env.dims:
                wanted, box = self.graph.completed(name, needs.get(name), self.round_up.get(name, {}))
                if name in sliding and env.around is not None and name in speeds:
                    found[name] = steady(box, wanted, speeds[name], self.graph.reads.steps(name), env.around)
                else:
                    found[name] = Need(box, box, {})
            for part in here[name]:
                dims = env.dims[name] if name in env.dims else part.dims(found[name].part)
                moving = _speeds(part, env.around, speeds.get(name)) if sliding else ()
                for source, w in part.windows.items():
                    if source in here and source not in env.dims and source != name:
                        needs[source] = joined(needs.get(source), w.wanted(part.reading(dims)))
                        if sliding:
                            speeds[source] = tuple(map(max, w.speeds(moving), speeds.get(source, w.speeds(moving))))
        return found


def layout_of(store: Store) -> Layout:
    """How a stage that is stored lies in memory."""
    return Layout(store.order, store.align)


def steady(box: Box, wanted: Box, speeds: Speeds, steps: Sequence[int], loop: Own) -> Need:
    """What one turn of a loop computes of a box when all before have been.

    Args:
        wanted: the box unclipped.
        speeds: elements of each axis by which it moves with one of the loop's dimension.
        steps: how many elements of each axis are computed together.
    """
    found = list(box)
    windows: dict[int, Num] = {}
    several = loop.length > loop.step
    for axis, (x, v, c) in enumerate(zip(box, speeds, steps, strict=True)):
        if v > 0 and wanted[axis] != ANYWHERE:
            new = least(ceil_div(loop.step * float(v.numerator), float(v.denominator * c)) * float(c), extent(x))
            found[axis] = choose(several, x[1] - new + 1.0, x[0]), x[1]
            windows[axis] = choose(several, extent(wanted[axis]), 0.0)
    return Need(box, tuple(found), windows)


def _speeds(part: Part, loop: Own | None, box: Speeds | None) -> Speeds:
    """How fast the dimensions of a stage move with a loop: its own, or that of another stage, with which its box moves."""
    found = [Fraction(0)] * len(part.extents)
    if loop is not None and loop.loop.stage == part.stage:
        first, *rest = dims_of(loop.loop.dim)
        found[first] = Fraction(1, max(int(math.prod(part.extents[k] for k in rest)), 1))
    elif box is not None:
        for k, axis, c, _, _ in part.inverse:
            found[k] = box[axis] / int(c)
    return tuple(found)
