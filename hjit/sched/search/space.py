"""The space of schedules as a tree of decisions, for `hjit.sched.search.search`.

Stages are decided on from the outputs back to the inputs (Adams 2019, section 3.1). First where a stage is computed and
stored: inlined, at the root, or in a loop of its consumers' nest, which may get one more level of tiles for it; and
which of its axes is innermost in memory. Then, for each of its nests, what loops it has: `hjit.sched.search.templates`.
Ways that differ in sizes only are one `Batch`, which is costed at once.

A decision changes one of the children of the root, and what a child costs is kept: `hjit.sched.search.nest_costs`.
What a rule of `hjit.sched.search.pruning` forbids is left out, or costs infinitely much.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from hjit.model.costs import Cost
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.features.featurise import layouts_of
from hjit.sched.language.build import (
    Path,
    at,
    attached,
    flattened,
    iteration_size,
    loops_around,
    own_nests,
    replaced,
)
from hjit.sched.language.check import nest_faults
from hjit.sched.language.memory import C_ORDER, Layout, Strides, away_from_borders
from hjit.sched.language.tree import Loop, Node, Root, Store, computes, dims_of, walk
from hjit.sched.native.argument_block import Featuriser
from hjit.sched.search.batches import IN_C_ORDER, NONE, Batch, Layouts, Rows, State
from hjit.sched.search.buckets import Buckets
from hjit.sched.search.isomorphic_stages import IsomorphicStages
from hjit.sched.search.nest_costs import NOTHING, Machine, NestCosts, SearchCounters
from hjit.sched.search.pruning import Rules
from hjit.sched.search.successors import Floats, Ints, Some
from hjit.sched.search.templates import Sizes, Template, Templates, chosen, product_of
from hjit.sched.search.thresholds import LAUNCHED_TASKS, TILED_DIMS
from hjit.sched.search.unrolled_bodies import unrolled_instructions
from hjit.trace.ir.analysis.costs import instruction_count
from hjit.trace.ir.graph import Definition, Graph, Stage, single_dim
from hjit.trace.ir.poly import Dim

# a nest, whether it is at the root, the order of its stage in memory, and whether planes may be loops
TemplateKey = tuple[str, tuple[int, ...], bool, tuple[int, ...], bool]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision: where a stage is computed (`group` is None), or the loops of one of its nests."""

    stage: str
    group: tuple[int, ...] | None


class Space:
    """All schedules of a Graph at some sizes, for one machine and one cost model.

    Args:
        sizes: numbers of the run-time sizes by name.
        rules: what is pruned.
        memoise: are the costs of nests kept? If not, every decision works all of them out again.
        featuriser: see `SizedGraph`.

    Attributes:
        decisions: in the order in which they are made.
        nests: what children of the root cost.
        buckets: of similar states, for `hjit.sched.search.search.Options`.
    """

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, int],
        cost: Cost,
        machine: Machine,
        rules: Rules | None = None,
        memoise: bool = True,
        featuriser: Featuriser | None = None,
    ) -> None:
        self.graph, self.target, self.rules = graph, machine.target, rules or Rules()
        tasks = machine.cores * LAUNCHED_TASKS
        self.sized = SizedGraph(graph, sizes, self.target.vector_bytes, tasks=tasks, featuriser=featuriser)
        self.templates = Templates(Strides(graph), self.target, machine.cores, self.rules.tiles)
        self.nests = NestCosts(self.sized, sizes, cost, machine, self.templates, self.rules, memoise)
        self.consumers = graph.consumers()
        self.groups = self.nests.groups
        self.decisions = [Decision(s.name, g) for s in reversed(graph.stages) for g in (None, *self.groups[s.name])]
        self.first_of = {d.stage: k for k, d in enumerate(self.decisions) if d.group is None}
        self._legal: dict[TemplateKey, list[Template]] = {}
        self._short: dict[frozenset[str], bool] = {}
        self._unrolled: dict[tuple[Node, frozenset[str]], int] = {}
        self._nodes: dict[Node, Node] = {}
        self._orders_in: dict[tuple[Node, str, frozenset[str]], tuple[tuple[int, ...], ...]] = {}
        self._lengths = {s.name: float(max(instruction_count(d.value) for d in s.definitions)) for s in graph.stages}
        self._places_read = {s.name: Counter(x.source for x in s.loads) for s in graph.stages}
        self._first: dict[TemplateKey, Template] = {}
        self.buckets = Buckets()
        self._isomorphic = IsomorphicStages.of(graph)
        self._freeze({}, ())

    @staticmethod
    def like(space: Space, cost: Cost) -> Space:
        """The same space under another cost model; memoised features are shared."""
        new = copy.copy(space)
        new.nests = NestCosts.like(space.nests, cost)
        return new

    @staticmethod
    def freezing(space: Space, frozen: Mapping[str, str], frozen_loops: Collection[str] = ()) -> Space:
        """The same space with some stages frozen; memoised costs are shared.

        Args:
            frozen: for some stages where they are computed, "root", "inline" or "apart", which is either: what is not
                searched (Anderson 2021, section 3.2).
            frozen_loops: stages whose loops are those of the default schedule: what is not searched, either.
        """
        new = copy.copy(space)
        new._freeze(frozen, frozen_loops)
        return new

    @staticmethod
    def under(space: Space, rules: Rules) -> Space:
        """The same space under rules with the same pruning of nests; memoised costs are shared."""
        new = copy.copy(space)
        new.rules, new.buckets = rules, Buckets()
        new._freeze(space.frozen, space.frozen_loops)
        return new

    @property
    def counters(self) -> SearchCounters:
        """What the searches of the space have done."""
        return self.nests.counters

    @property
    def undecided_steps(self) -> int:
        """The number of decisions that leave a choice."""
        return len(self.decisions) - len(self._forced)

    @property
    def kinds(self) -> int:
        """The number of stages, isomorphic ones counted once."""
        return len(set(self._isomorphic.kind.values()))

    @property
    def start(self) -> State:
        """The initial state: only frozen stages are decided; readers are costed with the stages that will be inlined
        into them."""
        inlined = frozenset(
            s.name for s in self.graph.stages if self.frozen.get(s.name) == "inline" and self.may_inline(s)
        )
        return Batch(0, (), None, NONE, inlined, {}, self._undecided[0], not self.decisions)[0]

    # -- the tree of decisions (hjit.sched.search.search.Tree)
    def families(self, state: State) -> list[Batch]:
        """All permitted variants of the next decision, after decisions without a choice."""
        while state.batch.step in self._forced:
            (batch,) = self._batches(state)
            state = batch[0]
        if state.batch.is_complete:
            return [self.alone(state)]
        if self.rules.share_choices:
            after = self._after_isomorphic(state)
            if after is not None:
                return [after]
        state.share(self._nodes)
        if state.batch.changed is not None:
            self.nests.keep(state.batch, state.row, state.nests[state.batch.changed])
        return list(self._batches(state))

    def alone(self, state: State) -> Batch:
        """A family of one state."""
        b = state.batch
        return replace(b, nests=state.nests, changed=None, sizes=NONE, buckets={})

    def _after(
        self, state: State, nests: tuple[Node, ...], changed: int | None = None, sizes: Sizes = NONE, **more: Any
    ) -> Batch:
        """What there is after the next decision; `more`: what else is new."""
        b, step = state.batch, state.batch.step + 1
        given = {"inlined": b.inlined, "layouts": b.layouts, "undecided": self._undecided[step], **more}
        return Batch(step, nests, changed, sizes, **given, is_complete=step == len(self.decisions))

    def _freeze(self, frozen: Mapping[str, str], frozen_loops: Collection[str]) -> None:
        self.frozen, self.frozen_loops = dict(frozen), frozenset(frozen_loops)
        self._undecided = [frozenset[str]()]  # after each decision, what may be anywhere yet
        for d in reversed(self.decisions):
            is_undecided = self.rules.optimistic and d.group is None and d.stage not in self.frozen
            self._undecided.insert(0, self._undecided[0] | {d.stage} if is_undecided else self._undecided[0])
        self._forced = frozenset(
            step for step, d in enumerate(self.decisions) if self._is_forced(self.graph.stage(d.stage), d.group)
        )

    def _is_forced(self, s: Stage, group: tuple[int, ...] | None) -> bool:
        """Is there only one choice, whatever the earlier decisions were?"""
        if group is not None:
            return s.name in self.frozen_loops
        only = self.frozen.get(s.name)
        return only == "root" or (self.may_inline(s) if only == "inline" else s.name in self.graph.outputs)

    def _batches(self, state: State) -> Iterator[Batch]:
        decision = self.decisions[state.batch.step] if state.batch.step < len(self.decisions) else None
        if decision is None:
            return
        s = self.graph.stage(decision.stage)
        if decision.group is None:
            yield from self._places(state, s)
        elif s.name in state.inlined:  # nothing to choose; what was decided as often costs as much of the schedule
            yield self._after(state, state.nests)
        else:
            yield from self._loops(state, s, decision.group)

    # -- isomorphic stages
    def _after_isomorphic(self, state: State) -> Batch | None:
        """The state after the next decisions, as far as stages can take the choice of an isomorphic one before them.

        None if the next stage cannot, or a rule forbids the result.
        """
        start = state
        while not state.batch.is_complete:
            decision = self.decisions[state.batch.step]
            s = self.graph.stage(decision.stage)
            again: Batch | None = None
            if state.batch.step in self._forced or (decision.group is not None and s.name in state.inlined):
                (again,) = self._batches(state)
            elif (
                s.name in self._isomorphic.before and not {s.name, self._isomorphic.before[s.name]} & self.frozen.keys()
            ):
                group = decision.group
                again = self._place_again(state, s) if group is None else self._loops_again(state, s, group)
            if again is None:
                break
            state = again[0]
        after = self.alone(state)
        return after if state is not start and self._is_permitted(after) else None

    def _place_again(self, state: State, s: Stage) -> Batch | None:
        """The stage computed where the isomorphic one before it is; None if it cannot be."""
        wanted = self._isomorphic.place(state.nests, state.inlined, self._isomorphic.before[s.name])
        same = (x for x in self._places(state, s) if self._isomorphic.place(x.nests, x.inlined, s.name) == wanted)
        return next(same, None)

    def _loops_again(self, state: State, s: Stage, group: tuple[int, ...]) -> Batch | None:
        """The nest of the stage with the loops of the isomorphic one before it, if they are at the same place."""
        kind, nests, inlined = self._isomorphic, state.nests, state.inlined
        if kind.place(nests, inlined, s.name) != kind.place(nests, inlined, kind.before[s.name]):
            return None
        node = kind.nest(nests, s.name, self.groups[s.name].index(group))
        if node is None or not self._is_legal(s, Template(node, NONE)):
            return None
        number, whole, path = self._own_nest(state, s, group)
        tree = replaced(whole, path, node)
        assert isinstance(tree, Root)
        return self._after(state, (*nests[:number], *tree.children, *nests[number + 1 :]))

    def _is_permitted(self, batch: Batch) -> bool:
        """Is the only choice of a batch permitted by all rules?"""
        ((cost,),) = self.cost([(batch, np.zeros(1, np.int64))])
        return bool(cost < inf)

    # -- where a stage is computed
    def _places(self, state: State, s: Stage) -> Iterator[Batch]:
        only = self.frozen.get(s.name)
        orders = self._orders(state, s) if only is None else [()]
        if only != "inline":
            for order in orders:
                at_root = Store(s.name, tuple(self._plain(s, g, True, order) for g in self.groups[s.name]), order)
                yield self._after(
                    state, (at_root, *state.nests), 0, layouts=_with_order(state.batch.layouts, s.name, order)
                )
        if s.name in self.graph.outputs or only == "root":
            return
        inlined = state.inlined | {s.name}
        if self.may_inline(s) and (
            only == "inline"
            or (only in (None, "apart") and self.is_short(inlined) and self._unrolls_few(state.nests, s, inlined))
        ):
            yield self._after(state, state.nests, inlined=inlined)
        if only is None and is_divisible(s):
            for order in orders:
                yield from self._inside(state, s, order)

    def _orders(self, state: State, s: Stage) -> list[tuple[int, ...]]:
        """The layouts of a stage: C order, or the axis along which a reader's vectors run innermost."""
        found: dict[tuple[int, ...], None] = {(): None}
        if not self.rules.orders or s.name in self.graph.outputs or len(s.shape) < 2:
            return [*found]
        for nest in state.nests:
            key = nest, s.name, state.inlined
            orders = self._orders_in.get(key)
            if orders is None:
                orders = self._orders_in[key] = tuple(self._along_vectors(nest, s, state.inlined))
            found.update(dict.fromkeys(orders))
        return [*found]

    def _along_vectors(self, nest: Node, s: Stage, inlined: frozenset[str]) -> Iterator[tuple[int, ...]]:
        """The orders in which that axis of a stage is innermost along which the vectors of a nest read it."""
        readers, axes = self._readers(s.name, inlined), range(len(s.shape))
        for x in walk(nest):
            if isinstance(x, Loop) and x.kind == "vector" and x.stage in readers:
                c = next(c for c in computes(x) if c.stage == x.stage)
                group = self.nests.sized_for(self.nests.through(nest, inlined)).group(c.stage, c.definitions)
                for index in (index for source, index in group.loads if source == s.name):
                    along = [k for k in axes if away_from_borders(index[k]).mentions(Dim(dims_of(x.dim)[-1]))]
                    if along and axes[-1] not in along:
                        yield *(k for k in axes if k != along[-1]), along[-1]

    def may_inline(self, s: Stage) -> bool:
        """Is it a single pure definition that no gather reads, with no source that is written in the same nest?"""
        return s.initial is not None and not s.updates and s.name not in self.graph.outputs

    def is_short(self, inlined: frozenset[str]) -> bool:
        """Do all stages take few operations per evaluation, with some stages inlined at each of their uses?"""
        found = self._short.get(inlined)
        if found is None:
            lengths: dict[str, float] = {}
            for s in self.graph.stages:
                lengths[s.name] = self._lengths[s.name] + sum(
                    n * lengths[x] for x, n in self._places_read[s.name].items() if x in inlined
                )
            found = self._short[inlined] = max(lengths.values()) <= max(self.rules.inlined, *self._lengths.values())
        return found

    def _unrolls_few(self, nests: tuple[Node, ...], s: Stage, inlined: frozenset[str]) -> bool:
        """Have the unrolled bodies that a stage is inlined into, which were chosen before it, few operations still?"""
        through = ((nest, self.nests.through(nest, inlined)) for nest in nests)
        return all(
            self._unrolled_instructions(nest, found) <= self.rules.inlined for nest, found in through if s.name in found
        )

    def _unrolled_instructions(self, nest: Node, inlined: frozenset[str]) -> int:
        found = self._unrolled.get((nest, inlined))
        if found is None:
            found = self._unrolled[nest, inlined] = unrolled_instructions(self.nests, nest, inlined)
        return found

    def _inside(self, state: State, s: Stage, order: tuple[int, ...]) -> Iterator[Batch]:
        """Computed in a loop around all consumers, or in a new level of tiles there."""
        layouts = _with_order(state.batch.layouts, s.name, order)
        readers = self._readers(s.name, state.inlined)
        for number, nest in enumerate(state.nests):
            if not any(c.stage in readers for c in computes(nest)):
                continue
            if any(c.stage in readers for k, other in enumerate(state.nests) if k != number for c in computes(other)):
                return  # consumers in several nests
            if len({c.stage for c in computes(nest)}) >= self.rules.together:
                return
            own = Store(s.name, tuple(self._plain(s, g, False, order) for g in self.groups[s.name]), order)
            for node, sizes in self._with_stage(nest, own, readers):
                yield self._after(
                    state, (*state.nests[:number], node, *state.nests[number + 1 :]), number, sizes, layouts=layouts
                )

    def _readers(self, name: str, inlined: Collection[str]) -> set[str]:
        """The stages that read a stage, looked through those that are inlined."""
        found: set[str] = set()
        for c in self.consumers[name]:
            found |= self._readers(c, inlined) if c in inlined else {c}
        return found

    def _with_stage(self, nest: Node, own: Store, readers: Collection[str]) -> Iterator[tuple[Node, Sizes]]:
        """The nest with the nests of another stage inserted at each possible place."""
        whole = Root((nest,))
        empty = replace(own, children=())
        sites = [p for p in loops_around(whole, readers) if self.rules.is_site(self.graph, whole, p)]
        for site in sites:
            slides = bool(sliding_at(whole, site) & set(readers))
            for tiled, sizes in self._tiled(whole, site):
                for outer in self.rules.stores(tiled, site):
                    if slides and outer == site:
                        continue  # what a window reads slides with it: see `hjit.kernels.lower.placing.sliding_windows`
                    yield attached(tiled, own.children, site, outer, empty).children[0], sizes

    def _tiled(self, whole: Root, site: Path) -> Iterator[tuple[Root, Sizes]]:
        """The tree with one more level of tiles inside a loop, and choices for their sizes."""
        loop = at(whole, site)
        assert isinstance(loop, Loop)
        if not self.rules.producer_tiles or _has_parallel_loops(loop):  # those are outermost: no tile is around one
            yield whole, NONE
            return
        around = [
            x for k in range(len(site) + 1) if isinstance(x := at(whole, site[:k]), Loop) and x.stage == loop.stage
        ]
        dims = [k for k in dict.fromkeys(x.dim for x in around) if isinstance(k, int)][-TILED_DIMS:]
        extents = self._extents(whole, site)
        options = tuple(self.rules.tile_sizes(around, iteration_size(loop, k), k, extents[k]) for k in dims)
        children = loop.children
        for column, k in reversed([*enumerate(dims)]):
            children = (Loop(loop.stage, k, "serial", -column - 1, children),)
        tree = replaced(whole, site, replace(loop, children=children))
        assert isinstance(tree, Root)
        yield tree, product_of(options)

    def _extents(self, whole: Root, site: Path) -> Sequence[float]:
        loop = at(whole, site)
        assert isinstance(loop, Loop)
        c = next(c for c in computes(loop) if c.stage == loop.stage)
        return self.sized.group(c.stage, c.definitions).extents

    # -- the loops of a nest
    def _loops(self, state: State, s: Stage, group: tuple[int, ...]) -> Iterator[Batch]:
        number, whole, path = self._own_nest(state, s, group)
        at_root = all(isinstance(at(whole, path[:k]), (Root, Store)) for k in range(len(path)))
        order = state.batch.layouts[s.name].order if s.name in state.batch.layouts else ()
        for template in (
            [self._first_template(s, group, at_root, order)]
            if s.name in self.frozen_loops
            else self._templates(s, group, at_root, order)
        ):
            node = replaced(whole, path, template.node)
            assert isinstance(node, Root)
            nests = (*state.nests[:number], *node.children, *state.nests[number + 1 :])
            yield self._after(state, nests, number, template.sizes)

    def _own_nest(self, state: State, s: Stage, group: tuple[int, ...]) -> tuple[int, Root, Path]:
        """Which child of the root a nest of a stage is in, that child, and where in it."""
        number, nest = next((k, x) for k, x in enumerate(state.nests) if any(c.stage == s.name for c in computes(x)))
        whole = Root((nest,))
        return number, whole, own_nests(whole, s.name)[self.groups[s.name].index(group)]

    def _templates(self, s: Stage, group: tuple[int, ...], at_root: bool, order: tuple[int, ...]) -> list[Template]:
        """The legal templates of a nest. Whether one is depends on nothing around it."""
        key = s.name, group, at_root, order, self.rules.plane_loops
        found = self._legal.get(key)
        if found is None:
            every = [*self.templates.of(s, group, self.sized.group(s.name, group).extents, at_root, *key[3:])]
            legal = [x for x in every if self._is_legal(s, x)]
            found = self._legal[key] = legal or every
        return found

    def _first_template(self, s: Stage, group: tuple[int, ...], at_root: bool, order: tuple[int, ...]) -> Template:
        """The nest of the default schedule, and no choice of sizes; another one where it is not legal, or is pruned."""
        key = s.name, group, at_root, order, self.rules.plane_loops
        found = self._first.get(key)
        if found is None:
            first = next(iter(self.templates.of(s, group, self.sized.group(s.name, group).extents, at_root, order)))
            node = chosen(first.node, first.sizes[0]) if self._is_legal(s, first) else None
            if node is None or (at_root and self.nest_costs(Store(s.name, (node,), order), NONE) == inf):
                node = next(self._permitted(s, group, at_root, order), node)
            if node is None:
                template = self._templates(s, group, at_root, order)[0]
                node = chosen(template.node, template.sizes[0])
            found = self._first[key] = Template(node, NONE)
        return found

    def _permitted(self, s: Stage, group: tuple[int, ...], at_root: bool, order: tuple[int, ...]) -> Iterator[Node]:
        """Of each template of a nest the first one that no rule forbids."""
        for x in self._templates(s, group, at_root, order):
            costs = self.nest_costs(Store(s.name, (x.node,), order), x.sizes) if at_root else np.zeros(len(x.sizes))
            yield from (chosen(x.node, row) for row in x.sizes[costs < inf][:1])

    def _plain(self, s: Stage, group: tuple[int, ...], at_root: bool, order: tuple[int, ...]) -> Node:
        """The nest that a stage has before its templates are looked at."""
        return self._first_template(s, group, at_root, order).node

    def _is_legal(self, s: Stage, template: Template) -> bool:
        """Is a template alone legal, by the rules of `hjit.sched.language.check`? Sizes do not matter."""
        node = chosen(template.node, template.sizes[0])
        part = Graph(self.graph.inputs, self.graph.scalars, (s,), tuple(n for n in self.graph.outputs if n == s.name))
        return next(nest_faults(Root((Store(s.name, (node,)),)), part), None) is None

    # -- costs
    def cost(self, some: Sequence[Some[State]]) -> Iterable[Floats]:
        """The predicted costs of states: those of their nests together."""
        self.nests.forget()
        missing: list[tuple[Batch, Rows]] = []
        wanted: list[tuple[Batch, Ints]] = []
        for batch, rows in some:
            assert isinstance(batch, Batch)
            wanted.append((batch, rows))
            self.counters.evaluations += len(rows)
            unknown = rows[np.isnan(batch.costs[rows])]
            if len(unknown):  # all at once hardly cost more than some, and kept for other passes
                missing.append((batch, slice(None) if self.nests.memoise else unknown))
        if self.nests.memoise:
            self.nests.look_up([batch for batch, _ in missing])
        for batch, which in missing:
            batch.costs[which] = self.nests.costs(batch, which)
        return [batch.costs[rows] for batch, rows in wanted]

    def costs_by_stage(self, tree: Root, inlined: frozenset[str] = frozenset()) -> dict[str, float]:
        """The predicted cost of the child of the root that computes each stage; inlined ones cost what readers do."""
        found: dict[str, float] = {}
        layouts = _layouts(tree)
        for nest in tree.children:
            (cost,) = self.nest_costs(nest, NONE, inlined, layouts)
            for name in {c.stage for c in computes(nest)} | self.nests.through(nest, inlined):
                found[name] = found.get(name, 0.0) + float(cost)
        return found

    def costs_of_nests(self, tree: Root, inlined: frozenset[str] = frozenset()) -> list[float]:
        """The predicted cost of each child of the root of any complete schedule of the Graph, without what they cost
        together (see `schedule_cost`)."""
        layouts = _layouts(tree)
        return [float(self.nests.unchanged(nest, inlined, layouts).costs[0]) for nest in tree.children]

    def schedule_cost(self, tree: Root, inlined: frozenset[str] = frozenset()) -> float:
        """The predicted cost of any complete schedule of the Graph."""
        layouts = _layouts(tree)
        nests = [self.nests.unchanged(nest, inlined, layouts) for nest in tree.children]
        allocated = np.array(sum(float(x.allocated[0]) for x in nests))
        return sum(float(x.costs[0]) for x in nests) + float(self.nests.whole(allocated))

    def tree_cost(self, tree: Root, stop: Callable[[], bool] = lambda: False) -> float:
        """The predicted cost of any schedule of the Graph.

        Once `stop` is true, nests not looked at yet count as much as those that are.
        """
        layouts, costs, allocated = _layouts(tree), list[float](), 0.0
        for nest in tree.children:
            own = self.nests.unchanged(nest, NOTHING, layouts)
            costs.append(float(own.costs[0]))
            allocated += float(own.allocated[0])
            if stop():
                break
        times = len(tree.children) / max(len(costs), 1)
        return sum(costs) * times + float(self.nests.whole(np.array(allocated * times)))

    def features(self, tree: Root, inlined: frozenset[str] = frozenset()) -> Floats:
        """The features of a schedule as the cost model sees them, [stages, len(SCHEDULE)]: see `NestCosts.features`."""
        return self.nests.features(tree, inlined, _layouts(tree))

    def nest_costs(
        self, nest: Node, sizes: Sizes, inlined: frozenset[str] = frozenset(), layouts: Layouts = IN_C_ORDER
    ) -> Floats:
        """The costs of one child of the root, for each choice of its sizes; `layouts`: of what is not in C order."""
        return self.nests.known(nest, sizes, inlined, layouts).costs


def _with_order(layouts: Layouts, stage: str, order: tuple[int, ...]) -> Layouts:
    return {**layouts, stage: Layout(order)} if order else layouts


def _layouts(tree: Root) -> Layouts:
    """The layouts of stages that are not in C order."""
    return {name: x for name, x in layouts_of(tree).items() if x != C_ORDER}


def _has_parallel_loops(loop: Loop) -> bool:
    """Is a loop inside this one parallel?"""
    return any(isinstance(x, Loop) and x.kind == "parallel" for c in loop.children for x in walk(c))


def is_divisible(s: Stage) -> bool:
    """Can a stage be computed in parts along at least one axis? Scans run along others."""
    return any(all(_runs_along(d, axis) for d in s.definitions) for axis in range(len(s.shape)))


def _runs_along(d: Definition, axis: int) -> bool:
    """Does a pure dimension of a definition run along an axis of its stage?"""
    return not d.is_scatter and single_dim(d.target[axis], len(d.dims)) is not None


def sliding_at(root: Root, site: Path) -> set[str]:
    """The stages that are computed in a loop and stored further out."""
    loop = at(root, site)
    assert isinstance(loop, Loop)
    items, stores = flattened(loop.children)
    return {x.stage for x in items} - {x.stage for x in stores} - {loop.stage}
