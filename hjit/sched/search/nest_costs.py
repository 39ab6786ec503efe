"""The costs of the children of the root, memoised; computed for many choices of their loop sizes at once.

The cost of a schedule is the sum over the children of its root (Anderson 2021, section 3.3), plus the cost of the
memory that they allocate together, if the cost model has such a term (`hjit.model.terms.whole_terms`): for this, the
bytes of each child are kept with its cost. What a rule of `hjit.sched.search.pruning` forbids has infinite cost.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from hjit.model.costs import Cost, PreparedCost
from hjit.model.feature_names import SCHEDULE
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.features.algorithm_features import pipeline_features
from hjit.sched.features.featurise import Structure, nest_features
from hjit.sched.features.results import NestFeatures, merged
from hjit.sched.language.groups import groups
from hjit.sched.language.memory import C_ORDER
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Node, Root, computes
from hjit.sched.native.argument_block import Featuriser
from hjit.sched.search.batches import IN_C_ORDER, NONE, Batch, Layouts, NestCost, Rows
from hjit.sched.search.pruning import Rules
from hjit.sched.search.successors import Floats, Ints
from hjit.sched.search.templates import Sizes, Templates, chosen, columns, parallel_iterations
from hjit.sched.search.thresholds import COST_BITS, COSTED_ROWS, MAX_BATCH, MAX_OTHERS, MAX_PLANS
from hjit.trace.ir.graph import Graph

NOTHING: frozenset[str] = frozenset()
CALLS, AT_ROOT = SCHEDULE.index("inlined_calls"), SCHEDULE.index("working_set_at_root")


@dataclass(slots=True)
class SearchCounters:
    """Counters of the searches of a space.

    Attributes:
        evaluations: number of schedules whose cost was evaluated.
        featurised: number of those whose features were computed, and not found among those of before.
    """

    evaluations: int = 0
    featurised: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _OtherNests:
    """Several nests together: their cost, their evaluations of each inlined stage, [stages], and their bytes."""

    cost: float
    calls: Floats
    allocated: float


@dataclass(frozen=True, slots=True, eq=False)
class _Featurised:
    """A nest whose features are known: the stage that it is of, what is inlined, and where its stages are in the
    Graph."""

    head: str
    inlined: frozenset[str]
    features: NestFeatures
    at: Ints


@dataclass(slots=True)
class _Memory:
    """The memoised costs.

    Attributes:
        known: of nests whose sizes are chosen or open, by all that their costs depend on.
        unchanged: of nests whose sizes are chosen, by what is at hand without looking at what they read.
        others: of the nests that a decision does not change, together, by number.
        numbers: of all that these depend on.
        number: the next one; none is used twice.
        prepared: the cost model for the stages of the Graph; None: not yet.
    """

    known: dict[Hashable, NestCost] = field(default_factory=dict)
    unchanged: dict[Hashable, NestCost] = field(default_factory=dict)
    others: dict[int, _OtherNests] = field(default_factory=dict)
    numbers: dict[Hashable, int] = field(default_factory=dict)
    number: Iterator[int] = field(default_factory=itertools.count)
    prepared: PreparedCost | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that schedules are searched for.

    Attributes:
        facts: of the machine, see `hjit.model.feature_names.MACHINE`.
        cores: number of threads.
    """

    facts: Sequence[float]
    cores: int
    target: Target


class NestCosts:
    """The costs of the children of the root, of any schedule of a Graph.

    Args:
        sized: the Graph in numbers.
        sizes: numbers of the run-time sizes by name.
        memoise: are costs kept? If not, all are computed again whenever they are needed.

    Attributes:
        pipeline: the features of the stages that do not depend on schedules, [stages, len(PIPELINE)].
        counters: shared by spaces that are the same but for what is frozen.
    """

    def __init__(
        self,
        sized: SizedGraph,
        sizes: Mapping[str, int],
        cost: Cost,
        machine: Machine,
        templates: Templates,
        rules: Rules,
        memoise: bool,
    ) -> None:
        self.sized, self.cost_model, self.cores = sized, cost, machine.cores
        self.templates, self.rules, self.memoise = templates, rules, memoise
        self.graph: Graph = sized.graph
        self.machine = np.asarray(machine.facts, np.float32)
        self.pipeline = pipeline_features(self.graph, sizes)
        self.groups = {s.name: groups(s) for s in self.graph.stages}
        self.placed = dict.fromkeys((s.name for s in self.graph.stages), C_ORDER)
        self.counters = SearchCounters()
        self._sources = {s.name: s.sources for s in self.graph.stages}
        self._sized: dict[frozenset[str], SizedGraph] = {frozenset(): sized}
        self._most: dict[str, float] = {}
        self._memory = _Memory()
        self._read: dict[tuple[Node, frozenset[str]], frozenset[str]] = {}

    @staticmethod
    def like(nests: NestCosts, cost: Cost) -> NestCosts:
        """The same under another cost model; memoised features are shared."""
        new = copy.copy(nests)
        new.cost_model, new.counters, new._memory = cost, SearchCounters(), _Memory()
        return new

    def sized_for(self, inlined: frozenset[str]) -> SizedGraph:
        """The `SizedGraph` with some stages inlined."""
        sized = self._sized.get(inlined)
        if sized is None:
            sized = self._sized[inlined] = self.sized.inlining(inlined)
        return sized

    def compute_by(self, featuriser: Featuriser | None) -> None:
        """Compute the features of new nests by a compiled featuriser from now on."""
        for x in self._sized.values():
            x.featuriser = featuriser

    def through(self, nest: Node, inlined: frozenset[str]) -> frozenset[str]:
        """The inlined stages that matter for a nest."""
        if not inlined:
            return inlined
        found: set[str] = set()
        work = list({c.stage for c in computes(nest)})
        while work:
            for source in self._sources[work.pop()]:
                if source in inlined and source not in found:
                    found.add(source)
                    work.append(source)
        return frozenset(found)

    @property
    def plans(self) -> int:
        """The number of nests for which the computation of features is kept."""
        return sum(len(x.plans) for x in self._sized.values())

    def forget(self, limit: int | None = None) -> None:
        """Bound what is recorded of nests, to `MAX_PLANS` or `limit`. Their costs are kept, so that little of it is
        needed again."""
        if self.plans > (MAX_PLANS if limit is None else limit):
            for x in self._sized.values():
                x.forget()

    # -- of batches
    def look_up(self, batches: Sequence[Batch]) -> None:
        """Find what the nests of some batches cost. Those that differ in sizes only, of all batches, are one array."""
        memory = self._memory
        found: list[tuple[Hashable, Batch, Node, bool]] = []
        wanted: dict[Hashable, tuple[Structure, Sizes]] = {}
        for b in batches:
            is_known = self._others_number(b) in memory.others
            for k in range(len(b.nests)) if not is_known else () if b.changed is None else (b.changed,):
                nest, is_new = b.nests[k], k == b.changed
                if not is_new and self._chosen_key(nest, b.inlined, b.layouts, b.undecided) in memory.unchanged:
                    continue
                through, sizes = self.through(nest, b.inlined), b.sizes if is_new else NONE
                key = self._key(nest, sizes, through, b.layouts, b.undecided)
                found.append((key, b, nest, is_new))
                if key not in memory.known and key not in wanted:
                    wanted[key] = self._structured(nest, sizes, through, b.layouts, b.undecided)
        parts = _by_structure(wanted)
        some = ((wanted[keys[0]][0], np.concatenate([wanted[key][1] for key in keys])) for keys in parts)
        for keys, whole in zip(parts, self._run(some), strict=True):
            ends = [0, *itertools.accumulate(len(wanted[key][1]) for key in keys)]
            memory.known.update((key, whole.some(slice(*ends[k : k + 2]))) for k, key in enumerate(keys))
        for key, b, nest, is_new in found:
            if is_new:
                b.own = memory.known[key]
            else:
                memory.unchanged[self._chosen_key(nest, b.inlined, b.layouts, b.undecided)] = memory.known[key]

    def costs(self, batch: Batch, rows: Rows) -> Floats:
        """The costs of states: the sums over their nests."""
        others = self._others(batch)
        if batch.changed is None:
            return np.full(len(batch.sizes[rows]), others.cost + float(self.whole(np.array(others.allocated))))
        if batch.own is not None:
            own = batch.own.some(rows)
        else:
            own = self.known(
                batch.nests[batch.changed], batch.sizes[rows], batch.inlined, batch.layouts, batch.undecided
            )
        total = own.costs + others.cost + self.whole(own.allocated + others.allocated)
        elsewhere = others.calls[own.called]
        if elsewhere.any():  # of what one nest alone computes it is known
            every = np.where(elsewhere > 0.0, elsewhere, -inf)[:, None] + own.calls
            total = np.where(self.rules.is_too_often(every, self._least[own.called][:, None]).any(0), inf, total)
        return total

    def _others(self, batch: Batch) -> _OtherNests:
        """The nests of a batch that do not change; many batches have the same."""
        if not self.memoise:
            return self._together(batch)
        number = self._others_number(batch)
        found = self._memory.others.get(number)
        if found is None:
            found = self._memory.others[number] = self._together(batch)
        return found

    def _others_number(self, batch: Batch) -> int:
        """A number for the nests that a batch leaves as they are, and all that their costs depend on."""
        if batch.others_number is None:
            memory = self._memory
            if len(memory.numbers) >= MAX_OTHERS:
                memory.numbers.clear()
                memory.others.clear()
            key = tuple(batch.others), batch.inlined, frozenset(batch.layouts.items()), batch.undecided
            batch.others_number = memory.numbers.get(key)
            if batch.others_number is None:
                batch.others_number = memory.numbers[key] = next(memory.number)
        return batch.others_number

    def _together(self, batch: Batch) -> _OtherNests:
        cost, calls, times = 0.0, np.zeros(len(self.graph.stages)), np.zeros(len(self.graph.stages))
        allocated = 0.0
        for nest in batch.others:
            own = self.unchanged(nest, batch.inlined, batch.layouts, batch.undecided)
            cost += float(own.costs[0])
            allocated += float(own.allocated[0])
            if len(own.called):
                calls[own.called] += own.calls[:, 0]
                times[own.called] += 1.0
        is_forbidden = times.any() and (self.rules.is_too_often(calls, self._least) & (times > 1.0)).any()
        return _OtherNests(inf if is_forbidden else cost, calls, allocated)

    def whole(self, allocated: Floats) -> Floats:
        """The cost of schedules in addition to their nests, by the bytes that they allocate in total."""
        seconds = self._prepared.whole(allocated)
        return np.zeros(np.shape(allocated)) if seconds is None else _rounded(np.asarray(seconds, np.float64))

    @functools.cached_property
    def _least(self) -> Floats:
        """Evaluations that each stage needs at the least."""
        parts = [[self.sized.group(s.name, group) for group in self.groups[s.name]] for s in self.graph.stages]
        return np.array([sum(map(self.sized.minimum, each)) for each in parts], np.float64)

    def keep(self, batch: Batch, row: int, nest: Node) -> None:
        """What the child of the root costs that a decision changed is known, now that its sizes are chosen: `nest`."""
        if batch.own is not None:
            key = self._key(nest, NONE, self.through(nest, batch.inlined), batch.layouts, batch.undecided)
            self._memory.known.setdefault(key, batch.own.some(slice(row, row + 1)))

    # -- of one nest
    def unchanged(
        self, nest: Node, inlined: frozenset[str], layouts: Layouts, undecided: frozenset[str] = NOTHING
    ) -> NestCost:
        """What is known of a nest whose sizes are chosen."""
        if not self.memoise:
            return self.known(nest, NONE, inlined, layouts, undecided)
        key = self._chosen_key(nest, inlined, layouts, undecided)
        found = self._memory.unchanged.get(key)
        if found is None:
            found = self._memory.unchanged[key] = self.known(nest, NONE, inlined, layouts, undecided)
        return found

    def known(
        self,
        nest: Node,
        sizes: Sizes,
        inlined: frozenset[str] = NOTHING,
        layouts: Layouts = IN_C_ORDER,
        undecided: frozenset[str] = NOTHING,
    ) -> NestCost:
        """The cost of a nest, and what else is known of it, for each choice of its sizes.

        Args:
            layouts: of what is not in C order in memory.
            undecided: stages that are not placed yet, as far as that matters; see `hjit.sched.search.pruning.Rules`.
        """
        through = self.through(nest, inlined)
        if not self.memoise:
            return next(self._run([self._structured(nest, sizes, through, layouts, undecided)]))
        key = self._key(nest, sizes, through, layouts, undecided)
        found = self._memory.known.get(key)
        if found is None:
            found = next(self._run([self._structured(nest, sizes, through, layouts, undecided)]))
            self._memory.known[key] = found
        return found

    def features(self, tree: Root, inlined: frozenset[str], layouts: Layouts) -> Floats:
        """The features of a schedule as the cost model sees them, [stages, len(SCHEDULE)]: those of each nest alone,
        and `working_set_at_root`."""
        found = np.zeros((len(self.graph.stages), len(SCHEDULE)))
        allocated = 0.0
        for nest in tree.children:
            sized = self.sized_for(self.through(nest, inlined))
            part = nest_features(sized, nest, None, self.placed | layouts)
            for name, row in zip(part.stages, part.values[0], strict=True):
                k = sized.position[name]
                found[k] = merged([found[k][None], row[None]])[0] if found[k].any() else row
            allocated += float(part.allocated[0])
        placed = found.any(-1) & np.array([s.name not in inlined for s in self.graph.stages], np.bool_)
        found[placed, AT_ROOT] = allocated
        return found

    # -- what costs depend on
    def _read_by(self, nest: Node, inlined: frozenset[str]) -> frozenset[str]:
        """What a nest reads, looked through what is inlined."""
        found = self._read.get((nest, inlined))
        if found is None:
            names = {c.stage for c in computes(nest)} | self.through(nest, inlined)
            found = frozenset().union(*(self._sources[name] for name in names)) - names
            self._read[nest, inlined] = found
        return found

    def _chosen_key(self, nest: Node, inlined: frozenset[str], layouts: Layouts, undecided: frozenset[str]) -> Hashable:
        return (
            nest,
            inlined,
            frozenset(layouts.items()),
            undecided & self._read_by(nest, inlined) if undecided else undecided,
        )

    def _key(
        self, nest: Node, sizes: Sizes, through: frozenset[str], layouts: Layouts, undecided: frozenset[str]
    ) -> Hashable:
        """Everything that the cost of a nest depends on: layouts, and stages that are not placed, if it reads them."""
        if not layouts and not undecided:
            return nest, sizes.tobytes(), through
        read = self._read_by(nest, through)
        return (
            nest,
            sizes.tobytes(),
            through,
            tuple((name, layout) for name, layout in sorted(layouts.items()) if name in read),
            undecided & read,
        )

    def _structured(
        self, nest: Node, sizes: Sizes, through: frozenset[str], layouts: Layouts, undecided: frozenset[str]
    ) -> tuple[Structure, Sizes]:
        """What the features of a nest are worked out from: its structure, and the sizes of its loops."""
        placed = self.placed | layouts if layouts else self.placed
        if undecided:
            placed = {n: x for n, x in placed.items() if n not in undecided}
        return Structure.of(self.sized_for(through), nest, placed), columns(nest, sizes)

    def _run(self, nests: Iterable[tuple[Structure, Sizes]]) -> Iterator[NestCost]:
        """What is known of some nests, for each choice of the sizes of their loops. Few of them are held at once, and
        their stages costed together: for one nest alone, calling NumPy takes longer than computing."""
        held: list[_Featurised] = []
        rows = 0
        for structure, sizes in nests:
            self.counters.featurised += len(sizes)
            plan = structure.plan(sizes)
            features = plan.run(sizes)
            at = np.array([self.sized.position[n] for n in features.stages], np.int64)
            held.append(_Featurised(plan.head, plan.graph.inlined, features, at))
            rows += len(sizes) * len(at)
            if rows >= COSTED_ROWS:
                yield from self._costed(held)
                held, rows = [], 0
        yield from self._costed(held)

    def _costed(self, held: Sequence[_Featurised]) -> Iterator[NestCost]:
        if not held:
            return
        schedule = np.concatenate([x.features.values.reshape(-1, len(SCHEDULE)) for x in held])
        stages = np.concatenate([np.tile(x.at, len(x.features.values)) for x in held])
        every = np.asarray(self._prepared.rows(schedule, stages), np.float64)
        first = 0
        for x in held:
            values = x.features.values
            end = first + len(values) * len(x.at)
            costs = _rounded(every[first:end].reshape(len(values), -1).sum(-1))
            pruned = self.rules.pruned(values, self._least[x.at], self.cores, self._most_tasks(x.head))
            is_inlined = np.array([n in x.inlined for n in x.features.stages], np.bool_)
            calls = values[:, is_inlined, CALLS].T.copy()
            yield NestCost(np.where(pruned, inf, costs), x.at[is_inlined], calls, x.features.allocated)
            first = end

    @property
    def _prepared(self) -> PreparedCost:
        """The cost model for the stages of the Graph."""
        if self._memory.prepared is None:
            self._memory.prepared = self.cost_model.prepare(self.pipeline, self.machine)
        return self._memory.prepared

    def _most_tasks(self, stage: str) -> float:
        """How many tasks a stage has by default, the nest with the fewest: iterations of its parallel loops."""
        found = self._most.get(stage)
        if found is None:
            found = self._most[stage] = min(self._default_tasks(stage))
        return found

    def _default_tasks(self, stage: str) -> Iterator[float]:
        s = self.graph.stage(stage)
        for group in self.groups[stage]:
            extents = self.sized.group(stage, group).extents
            first = next(iter(self.templates.of(s, group, extents, True)))
            yield parallel_iterations(chosen(first.node, first.sizes[0]), extents)


def _rounded(costs: Floats) -> Floats:
    """Costs rounded to the bits that do not depend on what else was computed with them."""
    mantissas, exponents = np.frexp(costs)
    return np.asarray(np.ldexp(np.rint(mantissas * 2.0**COST_BITS), exponents - COST_BITS), np.float64)


def _by_structure(wanted: Mapping[Hashable, tuple[Structure, Sizes]]) -> list[list[Hashable]]:
    """What differs in sizes only, in parts of not too many choices: arrays that fit in caches."""
    parts: list[list[Hashable]] = []
    parts_of: dict[Hashable, tuple[list[Hashable], int]] = {}
    for key, (structure, sizes) in wanted.items():
        alike = structure.graph, structure.key
        part, count = parts_of.get(alike, ([], 0))
        if not part or count + len(sizes) > MAX_BATCH:
            part, count = [], 0
            parts.append(part)
        part.append(key)
        parts_of[alike] = part, count + len(sizes)
    return parts
