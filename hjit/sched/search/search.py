"""The search: one loop over a tree of decisions, of which the known searches are settings.

The loop is the memory-bounded best-first beam search (MB2FBS) of Gao 2022, Algorithm 2. A queue holds states, the best
first. Every round expands the first `beta1` of them (forward), keeps the `beta2` after them as they are (onward), and
forgets the rest; children and kept states are the next queue. At most `beta` states of one depth are expanded at all.
`presets` names the settings of the paper's Table 1: greedy, beam, best-first and so on.

States come in families whose costs are computed together, as arrays; of a family only those become nodes of the
queue that may ever be expanded.

Around it, all off by default: passes from coarse to fine over buckets of similar states (Adams 2019, section 3.2),
samples of each bucket instead of all its states (Anderson 2021, section 3.1), random dropout (Adams 2019, section 4.3),
a priority that weighs cost and depth (Gao 2022, "MB2FBS for Halide"), and limits. Nothing here knows what a state is.
"""

from __future__ import annotations

import random
import sys
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Generic

import numpy as np

from hjit.errors import OptionError
from hjit.sched.search.successors import Family, Floats, Ints, State, Tree
from hjit.sched.search.thresholds import FINALIST_COST

# -- settings


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of Gao 2022, Algorithm 2; each is an integer or `math.inf`.

    Attributes:
        beta1: how many states a round expands.
        beta2: how many of those after them it keeps unexpanded; the rest of the queue is forgotten.
        beta: how many states of one depth are expanded in all (the paper's POPS); inf: not controlled.
        memory: how many states the queue holds (M). Any M of `beta1 + beta2` or more is the same search.

    Raises:
        OptionError: one is too small, or no whole number.
    """

    beta1: float
    beta2: float
    beta: float = inf
    memory: float = inf

    def __post_init__(self) -> None:
        for name, least in (("beta1", 1), ("beta2", 0), ("beta", 1), ("memory", 1)):
            value = getattr(self, name)
            if not value >= least or value not in (inf, value // 1):
                raise OptionError(f"{name} is {value}; it must be inf or a whole number of at least {least}")


def presets(width: int = 32, onward: int = 2, memory: float = inf) -> dict[str, Parameters]:
    """The rows of Gao 2022, Table 1.

    The M of the table is given where it changes the search, or bounds its queue as the other parameters do anyway. For
    the best-first beam the table has `beta2 = beta - 1`, which forgets states that the search of that name (Meister
    2020) comes back to; here it keeps them.

    Args:
        width: number of states of a beam; `beta1 + beta2` of the new searches.
        onward: `beta2` of the new searches.
        memory: number of states that the memory-bounded best-first search holds.

    Raises:
        OptionError: one is too small, or `onward` is not less than `width`.
    """
    return {
        "breadth-first": Parameters(inf, 0),
        "best-first": Parameters(1, inf),
        "greedy": Parameters(1, 0, 1, memory=1),
        "memory-bounded best-first": Parameters(1, inf, memory=memory),
        "beam": Parameters(width, 0, width, memory=width),
        "best-first beam": Parameters(1, inf, width),
        "controlled mb2fbs": Parameters(width - onward, onward, width, memory=width),
        "mb2fbs": Parameters(width - onward, onward, memory=width),
    }


def never() -> bool:
    """Do not stop."""
    return False


@dataclass(frozen=True, slots=True)
class Options(Generic[State]):
    """Options of a search besides Algorithm 2; the defaults are the plain algorithm.

    Attributes:
        passes: number of searches one after the other; each knows what those before it found.
        depth: depth of the deepest states. With it, states are ordered by `DepthPriority`; without, by cost.
        buckets: ``buckets(family, fineness)``: a number for each state of a family, equal for similar ones; the
            fineness counts up from 0, the coarsest. In pass p = 0, 1, ... the n-th best state of a bucket (fineness p +
            1) and a depth has its cost multiplied by n, as long as it is in the queue with the others. From pass 1 on
            only states are costed that share a bucket (fineness p - 1) with a state on the way to a finalist that is at
            most 20 % more expensive than the best.
        sample: of the B children of a state in one bucket (fineness p), cost log2(B) random ones, rounded down, but
            one at least.
        keep: how probable it is that the next state is expanded, not dropped for the next one in the
            queue; see `keep_probability`. The last one is not dropped if no other was taken, so that a queue whose
            memory is 1 drops nothing.
        seed: of all random choices.
        at_once: a complete state counts as soon as its cost is known. Otherwise it counts when it is the next one, as
            in Algorithm 2, and one that drops out of the queue before is lost. The same states are expanded either way.
        finalists: number of complete states to hand back.
        expansions: how many states may be expanded.
        batch_size: how many states are costed at once, at most.
        stop: called before each expansion, and between batches of costs; where it is true, the search ends with what it
            has.

    Raises:
        OptionError: a number is out of range, or samples are wanted and there are no buckets.
    """

    passes: int = 1
    depth: int | None = None
    buckets: Callable[[Family[State], int], Ints] | None = None
    sample: bool = False
    keep: float = 1.0
    seed: int = 0
    at_once: bool = True
    finalists: int = 32
    expansions: float = inf
    batch_size: float = inf
    stop: Callable[[], bool] = never

    def __post_init__(self) -> None:
        for name in ("passes", "finalists", "batch_size"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.keep <= 1:
            raise OptionError(f"keep is {self.keep}; it is a probability")
        if self.sample and self.buckets is None:
            raise OptionError("sample needs buckets, of which samples are drawn")


def keep_probability(decisions: int, untouched: float = 1 / 20) -> float:
    """The `keep` with which a greedy search drops nothing with probability `untouched` (Adams 2019, section 4.3).

    Adams makes two decisions for each stage.
    """
    return float(untouched ** (1 / decisions))


# -- results


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new best cost, and after how many expansions and evaluations of costs it was found."""

    expansions: int
    costs: int
    cost: float


@dataclass(frozen=True, slots=True)
class Record:
    """Statistics of a search.

    Attributes:
        expansions: number of states expanded.
        costs: number of costs evaluated.
        longest: number of states in the queue when it was longest; those that can never be expanded do not count.
        improvements: the best cost over time.
        stopped: whether `stop` or the limit of expansions ended it.
    """

    expansions: int
    costs: int
    longest: int
    improvements: tuple[Improvement, ...]
    stopped: bool


@dataclass(frozen=True, slots=True)
class Found(Generic[State]):
    """The result of a search.

    Attributes:
        finalists: the best complete states and their costs, the cheapest first; of equal ones one. Empty if none was
            reached.
        halted: of the incomplete states that were left where the search was ended, the best of the deepest.
    """

    finalists: tuple[tuple[float, State], ...]
    record: Record
    halted: State | None = None

    @property
    def best(self) -> State | None:
        """The cheapest complete state."""
        return self.finalists[0][1] if self.finalists else None

    @property
    def cost(self) -> float:
        """Its cost; inf if there is none."""
        return self.finalists[0][0] if self.finalists else inf


# -- priorities: the state with the lowest is next; among equal ones the cheaper, then the older

Priority = Callable[[Floats, Ints], Floats]


def by_cost(cost: Floats, depth: Ints) -> Floats:
    """The cost alone."""
    return cost


@dataclass(frozen=True, slots=True)
class DepthPriority:
    """The priority of Gao 2022, "MB2FBS for Halide": rho = (X - cost) / (D_max - depth), here with its sign changed.

    Attributes:
        best: X, the lowest cost of a complete state so far. Where it is inf the deepest are first: what the formula
            tends to for large X (the paper takes 10**9).
        horizon: D_max, more than the depth of any state.
    """

    best: float
    horizon: int

    def __call__(self, cost: Floats, depth: Ints) -> Floats:
        return np.negative(depth, dtype=np.float64) if self.best == inf else (cost - self.best) / (self.horizon - depth)


# -- the search


def search(
    tree: Tree[State], start: State, parameters: Parameters, options: Options[State] | None = None
) -> Found[State]:
    """Search a tree for cheap complete states.

    Equal arguments give equal results. A round takes time in proportion to the length of the queue.

    Args:
        start: the root of the tree, or of the part of it to search.

    Raises:
        ValueError: the tree gives not one cost for each state.
    """
    options = options or Options()
    run = _Search(tree, parameters, options)
    permitted: Ints | None = None
    for p in range(options.passes):
        priority = by_cost if options.depth is None else DepthPriority(run.best, (p + 1) * options.depth + 1)
        run.explore(start, _Pass(priority, p, permitted))
        if run.stopped:
            break
        permitted = run.buckets_of_finalists(p)
    return run.found()


@dataclass(frozen=True, slots=True)
class _Pass:
    """`permitted`: the coarser buckets to stay in; None: all."""

    priority: Priority
    fineness: int
    permitted: Ints | None


@dataclass(frozen=True, slots=True, eq=False)
class _Step(Generic[State]):
    """Successors of a node."""

    family: Family[State]
    rows: Ints
    parent: _Node[State] | None


@dataclass(slots=True, eq=False)
class _Node(Generic[State]):
    """A state in the queue and the way to it; nodes are sorted by `rank`."""

    family: Family[State]
    row: int
    parent: _Node[State] | None
    cost: float
    rank: tuple[float, float]  # its priority and its cost, both with the penalty

    @property
    def state(self) -> State:
        return self.family[self.row]

    @property
    def depth(self) -> int:
        return self.family.depth

    @property
    def complete(self) -> bool:
        return self.family.is_complete


class _Search(Generic[State]):
    """The state that all passes share: counts, finalists, random numbers."""

    def __init__(self, tree: Tree[State], parameters: Parameters, options: Options[State]) -> None:
        self.tree, self.parameters, self.options = tree, parameters, options
        self.random = random.Random(options.seed)
        self.expansions = self.costs = self.longest = 0
        self.finalists: list[_Node[State]] = []
        self.improvements: list[Improvement] = []
        self.halted: State | None = None
        self.stopped = False
        limits = parameters.beta1 + parameters.beta2 if self.options.keep == 1 else inf
        self.most = _index(min(parameters.memory, limits))  # in the queue: what is after so many is never expanded

    @property
    def best(self) -> float:
        return self.improvements[-1].cost if self.improvements else inf

    def explore(self, start: State, this: _Pass) -> None:
        """Gao 2022, Algorithm 2."""
        limits = self.parameters
        pops: Counter[int] = Counter()
        queue = self._sorted([], self._costed([_Step(self.tree.alone(start), np.zeros(1, np.int64), None)]), this)
        while queue and not self.stopped:
            forward = self._incomplete(self._taken(queue))
            onward = self._incomplete(queue[: _index(limits.beta2)])
            steps: list[_Step[State]] = []
            for node in forward:
                if pops[node.depth] >= limits.beta:
                    continue
                if self.options.stop():
                    self.stopped = True
                    self._halt([*forward, *onward, *queue])
                    return
                if self.expansions >= self.options.expansions:
                    self.stopped = True
                    break
                pops[node.depth] += 1
                self.expansions += 1
                steps += self._allowed(node, this)
            queue = self._sorted(onward, self._costed(steps), this)
        self._halt(queue)

    def _halt(self, nodes: Sequence[_Node[State]]) -> None:
        """Keep the best of the deepest incomplete states."""
        left = [n for n in nodes if not n.complete]
        self.halted = min(left, key=lambda n: (-n.depth, n.rank)).state if left else None

    def _taken(self, queue: list[_Node[State]]) -> list[_Node[State]]:
        """The first `beta1` nodes that dropout leaves; these and the dropped ones leave the queue."""
        keep, count = self.options.keep, _index(self.parameters.beta1)
        if keep == 1:
            taken = queue[:count]
            del queue[:count]
            return taken
        taken = []
        seen = 0
        while seen < len(queue) and len(taken) < count:
            node = queue[seen]
            seen += 1
            last = seen == len(queue) and not taken
            if last or self.random.random() < keep:
                taken.append(node)
        del queue[:seen]
        return taken

    def _incomplete(self, nodes: list[_Node[State]]) -> list[_Node[State]]:
        """The nodes that are not complete; the others count now."""
        if not self.options.at_once:
            for node in nodes:
                if node.complete:
                    self._finish(node)
        return [n for n in nodes if not n.complete]

    def _finish(self, node: _Node[State]) -> None:
        """Count a complete state."""
        if node.cost < self.best:
            self.improvements.append(Improvement(self.expansions, self.costs, node.cost))
        if not any(known.cost == node.cost and known.state == node.state for known in self.finalists):
            insort(self.finalists, node, key=attrgetter("cost"))
            del self.finalists[self.options.finalists :]

    def _finish_all(self, step: _Step[State], costs: Floats) -> None:
        """Count complete states as far as they are cheap enough."""
        for k in np.argsort(costs, kind="stable"):
            cost = float(costs[k])
            full = len(self.finalists) == self.options.finalists
            if cost == inf or (full and cost >= self.finalists[-1].cost):
                break
            self._finish(_Node(step.family, int(step.rows[k]), step.parent, cost, (cost, cost)))

    def _allowed(self, node: _Node[State], this: _Pass) -> list[_Step[State]]:
        """The children of a node that are to be costed."""
        steps = [_Step(f, np.arange(len(f)), node) for f in self.tree.families(node.state)]
        buckets = self.options.buckets
        if buckets is not None and this.permitted is not None and steps:
            numbers = [buckets(x.family, this.fineness - 1) for x in steps]
            permitted = np.split(np.isin(np.concatenate(numbers), this.permitted), np.cumsum([len(x) for x in numbers]))
            steps = [_Step(x.family, x.rows[some], node) for x, some in zip(steps, permitted[:-1], strict=True)]
        if buckets is not None and self.options.sample:
            steps = self._sampled(steps, [buckets(x.family, this.fineness)[x.rows] for x in steps])
        return [x for x in steps if len(x.rows)]

    def _sampled(self, steps: Sequence[_Step[State]], numbers: Sequence[Ints]) -> list[_Step[State]]:
        """For a bucket of B states, log2(B) random ones."""
        groups: dict[int, list[tuple[int, int]]] = {}
        for n, own in enumerate(numbers):
            for k, number in enumerate(own.tolist()):
                groups.setdefault(number, []).append((n, k))
        chosen: list[list[int]] = [[] for _ in steps]
        for g in groups.values():
            for n, k in self.random.sample(g, max(1, len(g).bit_length() - 1)):
                chosen[n].append(k)
        return [
            _Step(x.family, x.rows[np.sort(np.array(some, np.int64))], x.parent)
            for x, some in zip(steps, chosen, strict=True)
        ]

    def _costed(self, steps: Sequence[_Step[State]]) -> list[tuple[_Step[State], Floats]]:
        """The steps with their costs; only the first ones if there is no time for the others."""
        found: list[tuple[_Step[State], Floats]] = []
        for k, some in enumerate(_portions(steps, _index(self.options.batch_size))):
            if k and self.options.stop():
                self.stopped = True
                break
            costs = self.tree.cost([(x.family, x.rows) for x in some])
            self.costs += sum(len(x.rows) for x in some)
            found += zip(some, costs, strict=True)
            if self.options.at_once:
                for x, own in found[len(found) - len(some) :]:
                    if x.family.is_complete:
                        self._finish_all(x, own)
        return found

    def _sorted(
        self, onward: list[_Node[State]], found: Sequence[tuple[_Step[State], Floats]], this: _Pass
    ) -> list[_Node[State]]:
        """The queue of some nodes and their successors, the best first, as far as they can be expanded."""
        steps = [x for x, _ in found]
        costs = np.array([n.cost for n in onward])
        costs = np.concatenate([costs, *(c for _, c in found)])
        depths = np.concatenate(
            [np.array([n.depth for n in onward], np.int64), *(np.full(len(x.rows), x.family.depth) for x in steps)]
        )
        penalised = costs
        if self.options.buckets is not None:
            numbers = [self._penalty_buckets(n.family, np.array([n.row]), this) for n in onward] + [
                self._penalty_buckets(x.family, x.rows, this) for x in steps
            ]
            penalised = costs * _places(costs, depths, np.concatenate([*numbers, np.zeros(0, np.int64)]))
        priorities = this.priority(penalised, depths)
        order = np.lexsort((penalised, priorities))  # stable: the older one of equals stays first
        order = order[costs[order] < inf][: self.most]
        self.longest = max(self.longest, len(order))
        ends = np.cumsum([len(x.rows) for x in steps])
        queue = []
        for k in order.tolist():
            rank = float(priorities[k]), float(penalised[k])
            if k < len(onward):
                onward[k].rank = rank
                queue.append(onward[k])
                continue
            n = int(np.searchsorted(ends, k - len(onward), side="right"))
            x = steps[n]
            row = int(x.rows[k - len(onward) - (ends[n] - len(x.rows))])
            queue.append(_Node(x.family, row, x.parent, float(costs[k]), rank))
        return queue

    def _penalty_buckets(self, family: Family[State], rows: Ints, this: _Pass) -> Ints:
        """The buckets that penalties are for."""
        assert self.options.buckets is not None
        return self.options.buckets(family, this.fineness + 1)[rows]

    def buckets_of_finalists(self, fineness: int) -> Ints | None:
        """The buckets on the ways to the best finalists; None, which permits all, where there are none."""
        buckets = self.options.buckets
        if buckets is None or not self.finalists:
            return None
        found = set()
        for finalist in self.finalists:
            node: _Node[State] | None = finalist if finalist.cost <= FINALIST_COST * self.best else None
            while node is not None:
                found.add(int(buckets(node.family, fineness)[node.row]))
                node = node.parent
        return np.array(sorted(found), np.int64)

    def found(self) -> Found[State]:
        record = Record(self.expansions, self.costs, self.longest, tuple(self.improvements), self.stopped)
        return Found(tuple((n.cost, n.state) for n in self.finalists), record, self.halted)


def _portions(steps: Sequence[_Step[State]], most: int) -> Iterator[list[_Step[State]]]:
    """The steps in portions with a limited number of states."""
    part: list[_Step[State]] = []
    room = most
    for x in steps:
        rows = x.rows
        while len(rows) > room:
            if room:
                part.append(_Step(x.family, rows[:room], x.parent))
            yield part
            part, rows, room = [], rows[room:], most
        part.append(_Step(x.family, rows, x.parent))
        room -= len(rows)
    if part:
        yield part


def _places(costs: Floats, depths: Ints, buckets: Ints) -> Ints:
    """The rank of each state in its bucket and depth, the cheapest being 1; of equal ones, the older one is first."""
    order = np.lexsort((costs, buckets, depths))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(buckets[order]) != 0) | (np.diff(depths[order]) != 0)
    first = np.flatnonzero(new)
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order))) + 1
    return found


def _index(limit: float) -> int:
    """A limit as the end of a slice."""
    return sys.maxsize if limit == inf else int(limit)
