"""The search of a tree of decisions for a cheap complete state: one loop, of which the known searches are settings.

The loop is the memory-bounded best-first beam search (MB2FBS) of Gao 2022, Algorithm 2. A queue holds states, the best
first. Every round expands the first `beta1` of them (forward), keeps the `beta2` after them as they are (onward), and
forgets the rest; children and kept states are the next queue. At most `beta` states of one depth are expanded at all.
`presets` names the settings of the paper's Table 1: greedy, beam, best-first and so on.

Around it, all off unless asked for: passes from coarse to fine over buckets of similar states (Adams 2019, section 3.2),
samples of each bucket instead of all its states (Anderson 2021, section 3.1), random dropout (Adams 2019, section 4.3),
a priority that weighs cost and depth (Gao 2022, "MB2FBS for Halide"), and limits. Nothing here knows what a state is.
"""

from __future__ import annotations

import random
import sys
from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from hjit.errors import OptionError

State = TypeVar("State")

REASONABLE = 1.2  # how much worse than the best a complete state may be for its bucket to be looked at again; Adams's code


class Tree(Protocol[State]):
    """What is searched. Complete states have no children that matter; others may have none, and end there."""

    def children(self, state: State) -> Sequence[State]:
        """The states after one more decision, in an order that is always the same."""

    def cost(self, states: Sequence[State]) -> Iterable[float]:
        """A cost for each state, in the same unit for all, neither negative nor NaN; inf: nothing comes of it. Asked for many states at once."""

    def depth(self, state: State) -> int:
        """How many decisions were made."""

    def is_complete(self, state: State) -> bool:
        """Whether no decision is left to make: only such a state is a result."""


# -- settings


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of Gao 2022, Algorithm 2; each is a whole number or `math.inf`.

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
    """What a search does around Algorithm 2; the defaults are the bare algorithm.

    Attributes:
        passes: number of searches one after the other; each knows what those before it found.
        depth: depth of the deepest states. With it, states are ordered by `DepthPriority`; without, by cost.
        bucket: ``bucket(state, fineness)``: equal for states that are alike; the fineness counts up from 0, the
            coarsest. In pass p = 0, 1, ... the n-th best state of a bucket (fineness p + 1) and a depth has its cost
            multiplied by n, as long as it is in the queue with the others. From pass 1 on only states are costed that
            share a bucket (fineness p - 1) with a state on the way to a finalist that is at most 20 % dearer than the
            best.
        sample: of the B children of a state in one bucket (fineness p), cost log2(B) random ones, rounded down, but
            one at least.
        keep: how probable it is that a state whose turn has come is expanded, not dropped for the next one in the
            queue; see `keep_probability`. The last one is not dropped if no other was taken, so that a queue whose
            memory is 1 drops nothing.
        seed: of all random choices.
        at_once: a complete state counts as soon as its cost is known. Otherwise it counts when its turn comes, as in
            Algorithm 2, and one that drops out of the queue before is lost. The same states are expanded either way.
        finalists: number of complete states to hand back.
        expansions: how many states may be expanded.
        asked: how many costs are asked for at once, at most.
        stop: asked before each expansion, and between costs that are not asked for at once; where it is true, the search ends with what it has.

    Raises:
        OptionError: a number is out of range, or samples are wanted and there are no buckets.
    """

    passes: int = 1
    depth: int | None = None
    bucket: Callable[[State, int], Hashable] | None = None
    sample: bool = False
    keep: float = 1.0
    seed: int = 0
    at_once: bool = True
    finalists: int = 32
    expansions: float = inf
    asked: float = inf
    stop: Callable[[], bool] = never

    def __post_init__(self) -> None:
        for name in ("passes", "finalists", "asked"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.keep <= 1:
            raise OptionError(f"keep is {self.keep}; it is a probability")
        if self.sample and self.bucket is None:
            raise OptionError("sample needs bucket: samples are drawn from buckets")


def keep_probability(stages: int, untouched: float = 1 / 20) -> float:
    """The `keep` with which a greedy search drops nothing with probability `untouched` (Adams 2019, section 4.3).

    Two decisions are made for each of the stages: p = untouched ** (1 / (2 * stages)).
    """
    return untouched ** (1 / (2 * stages))


# -- results


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new best cost, and after how many expansions and costs asked it was found."""

    expansions: int
    costs: int
    cost: float


@dataclass(frozen=True, slots=True)
class Record:
    """What happened in a search.

    Attributes:
        expansions: number of states expanded.
        costs: number of costs asked.
        longest: number of states in the queue when it was longest.
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
    """What a search found.

    Attributes:
        finalists: the best complete states and their costs, the cheapest first; of equal ones one. Empty if none was reached.
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

Priority = Callable[[float, int], float]


def by_cost(cost: float, depth: int) -> float:
    """The cost alone."""
    return cost


@dataclass(frozen=True, slots=True)
class DepthPriority:
    """The priority of Gao 2022, "MB2FBS for Halide": rho = (X - cost) / (D_max - depth), here with its sign turned.

    Attributes:
        best: X, the lowest cost of a complete state so far. Where it is inf the deepest are first: what the formula
            tends to for large X (the paper takes 10**9).
        horizon: D_max, more than the depth of any state.
    """

    best: float
    horizon: int

    def __call__(self, cost: float, depth: int) -> float:
        return -depth if self.best == inf else (cost - self.best) / (self.horizon - depth)


# -- the search


def search(tree: Tree[State], start: State, parameters: Parameters, options: Options[State] | None = None) -> Found[State]:
    """Search a tree for cheap complete states.

    Equal arguments give equal results. A round takes time in proportion to the length of the queue.

    Args:
        start: the root of the tree, or of the part of it to search.

    Raises:
        ValueError: the tree gives not one cost for each state.
    """
    options = options or Options()
    run = _Search(tree, parameters, options)
    permitted: set[Hashable] | None = None
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
    permitted: set[Hashable] | None


@dataclass(slots=True, eq=False)
class _Node(Generic[State]):
    """A state in the queue and the way to it; nodes are sorted by `rank`."""

    state: State
    parent: _Node[State] | None
    cost: float
    depth: int
    complete: bool
    alike: Hashable
    rank: tuple[float, float]  # its priority and its cost, both with the penalty


class _Search(Generic[State]):
    """What the passes share: counts, finalists, random numbers."""

    def __init__(self, tree: Tree[State], parameters: Parameters, options: Options[State]) -> None:
        self.tree, self.parameters, self.options = tree, parameters, options
        self.random = random.Random(options.seed)
        self.expansions = self.costs = self.longest = 0
        self.finalists: list[_Node[State]] = []
        self.improvements: list[Improvement] = []
        self.halted: State | None = None
        self.stopped = False

    @property
    def best(self) -> float:
        return self.improvements[-1].cost if self.improvements else inf

    def explore(self, start: State, this: _Pass) -> None:
        """Gao 2022, Algorithm 2."""
        limits = self.parameters
        pops: Counter[int] = Counter()
        queue = self._sorted(self._costed([(start, None)], this), this)
        while queue and not self.stopped:
            forward = self._incomplete(self._taken(queue))
            onward = self._incomplete(queue[: _index(limits.beta2)])
            children: list[tuple[State, _Node[State] | None]] = []
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
                children += [(c, node) for c in self._allowed(self.tree.children(node.state), this)]
            queue = self._sorted(onward + self._costed(children, this), this)
        self._halt(queue)

    def _halt(self, nodes: Sequence[_Node[State]]) -> None:
        """Keep the best of the deepest states that are not complete."""
        left = [n for n in nodes if not n.complete]
        self.halted = min(left, key=lambda n: (-n.depth, n.rank)).state if left else None

    def _taken(self, queue: list[_Node[State]]) -> list[_Node[State]]:
        """The first `beta1` that dropout leaves; they and those dropped go out of the queue."""
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
        """The nodes that are not complete; the turn of the others has come."""
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

    def _allowed(self, states: Sequence[State], this: _Pass) -> Sequence[State]:
        """The children of a state that are worth a cost."""
        bucket = self.options.bucket
        if bucket is None:
            return states
        if this.permitted is not None:
            states = [s for s in states if bucket(s, this.fineness - 1) in this.permitted]
        if self.options.sample:
            groups: dict[Hashable, list[int]] = {}
            for k, s in enumerate(states):
                groups.setdefault(bucket(s, this.fineness), []).append(k)
            chosen = [self.random.sample(g, max(1, len(g).bit_length() - 1)) for g in groups.values()]
            states = [states[k] for k in sorted(k for g in chosen for k in g)]
        return states

    def _costed(self, states: Sequence[tuple[State, _Node[State] | None]], this: _Pass) -> list[_Node[State]]:
        """States, each with its parent, as nodes; only the first ones where there is no time for the others."""
        nodes: list[_Node[State]] = []
        most = _index(self.options.asked)
        for k in range(0, len(states), most):
            if k and self.options.stop():
                self.stopped = True
                break
            nodes += self._costed_at_once(states[k : k + most], this)
        return nodes

    def _costed_at_once(self, states: Sequence[tuple[State, _Node[State] | None]], this: _Pass) -> list[_Node[State]]:
        tree, bucket = self.tree, self.options.bucket
        costs = tree.cost([s for s, _ in states])
        self.costs += len(states)
        nodes = []
        for (state, parent), cost in zip(states, map(float, costs), strict=True):
            if cost == inf:
                continue
            depth = tree.depth(state)
            alike = None if bucket is None else bucket(state, this.fineness + 1)
            rank = (this.priority(cost, depth), cost)
            node = _Node(state, parent, cost, depth, tree.is_complete(state), alike, rank)
            nodes.append(node)
            if node.complete and self.options.at_once:
                self._finish(node)
        return nodes

    def _sorted(self, nodes: list[_Node[State]], this: _Pass) -> list[_Node[State]]:
        """The nodes as a queue, the best first, no longer than the memory."""
        if self.options.bucket is not None:
            members: Counter[tuple[int, Hashable]] = Counter()
            for node in sorted(nodes, key=attrgetter("cost")):
                members[node.depth, node.alike] += 1
                cost = node.cost * members[node.depth, node.alike]
                node.rank = (this.priority(cost, node.depth), cost)
        nodes.sort(key=attrgetter("rank"))  # stable: the older one of equals stays first
        del nodes[_index(self.parameters.memory) :]
        self.longest = max(self.longest, len(nodes))
        return nodes

    def buckets_of_finalists(self, fineness: int) -> set[Hashable] | None:
        """The buckets on the ways to the best finalists; None, which permits all, where there are none."""
        bucket = self.options.bucket
        if bucket is None or not self.finalists:
            return None
        found = set()
        for finalist in self.finalists:
            node: _Node[State] | None = finalist if finalist.cost <= REASONABLE * self.best else None
            while node is not None:
                found.add(bucket(node.state, fineness))
                node = node.parent
        return found

    def found(self) -> Found[State]:
        record = Record(self.expansions, self.costs, self.longest, tuple(self.improvements), self.stopped)
        return Found(tuple((n.cost, n.state) for n in self.finalists), record, self.halted)


def _index(limit: float) -> int:
    """A limit as the end of a slice."""
    return sys.maxsize if limit == inf else int(limit)
