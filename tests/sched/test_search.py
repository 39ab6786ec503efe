"""The search: its presets against textbook searches of random trees, and what can be put around it."""

from __future__ import annotations

import heapq
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import mb2fbs
from benchmarks.plain_trees import OneByOne
from hjit.errors import OptionError
from hjit.sched.search import search as searching
from hjit.sched.search.search import DepthPriority, Found, Options, Parameters, Record, keep_probability, presets

State = tuple[int, ...]
SEEDS = range(150)
SAMPLED: Options[Any] = Options(sample=True, buckets=lambda family, fineness: np.zeros(len(family), np.int64))


def search(
    tree: Any,
    start: Any,
    parameters: Parameters,
    options: Options[Any] | None = None,
    bucket: Callable[[Any, int], Any] | None = None,
) -> Found[Any]:
    """A search of a tree that knows nothing of families."""
    families = OneByOne(tree, bucket)
    options = options or Options()
    return searching.search(
        families, start, parameters, options if bucket is None else replace(options, buckets=families.buckets)
    )


class RandomTree:
    """States are tuples of choices. Complete states at different depths, dead ends, and equal costs occur.

    Args:
        level: all states at the last depth are complete, no others, and there are no dead ends.
        monotone: costs grow on the way down, and no two are equal.

    Attributes:
        expanded: the states whose children were asked for, in that order.
        asked: the states whose costs were asked for, one list for each time.
    """

    def __init__(self, seed: int, deepest: int = 4, level: bool = False, monotone: bool = False) -> None:
        self.rng, self.deepest, self.level, self.monotone = random.Random(seed), deepest, level, monotone
        self.costs: dict[State, float] = {}
        self.below: dict[State, list[State]] = {}
        self.ends: dict[State, bool] = {}
        self._grow((), 0.0)
        self.expanded: list[State] = []
        self.asked: list[list[State]] = []

    def _grow(self, s: State, above: float) -> None:
        self.costs[s] = above + self.rng.random() if self.monotone else float(self.rng.randint(0, 12))
        self.ends[s] = len(s) == self.deepest or (not self.level and len(s) > 1 and self.rng.random() < 0.15)
        self.below[s] = [] if self.ends[s] else [s + (k,) for k in range(self.rng.randint(2 if self.level else 0, 4))]
        if not s:
            self.below[s] = [(0,), (1,), (2,)]
        for c in self.below[s]:
            self._grow(c, self.costs[s])

    def children(self, state: State) -> Sequence[State]:
        self.expanded.append(state)
        return self.below[state]

    def cost(self, states: Sequence[State]) -> list[float]:
        self.asked.append(list(states))
        return [self.costs[s] for s in states]

    def depth(self, state: State) -> int:
        return len(state)

    def is_complete(self, state: State) -> bool:
        return self.ends[state]


def found_by(tree: RandomTree, parameters: Parameters, **options: Any) -> tuple[list[State], float]:
    """The expansions, in order, and the cost found."""
    tree.expanded, tree.asked = [], []
    found = search(tree, (), parameters, Options(**options))
    return tree.expanded, found.cost


# -- textbook searches: each gives the expansions, in order, and the cost of the result


class Heap:
    """A priority queue; of equal costs the one that was put in first."""

    def __init__(self, tree: RandomTree) -> None:
        self.tree, self.items, self.count = tree, list[tuple[float, int, State]](), 0

    def push(self, s: State) -> None:
        heapq.heappush(self.items, (self.tree.costs[s], self.count, s))
        self.count += 1

    def pop(self) -> State:
        return heapq.heappop(self.items)[2]


def greedy(tree: RandomTree) -> tuple[list[State], float]:
    s: State = ()
    expanded = []
    while not tree.ends[s]:
        expanded.append(s)
        if not tree.below[s]:
            return expanded, inf
        s = min(tree.below[s], key=tree.costs.__getitem__)
    return expanded, tree.costs[s]


def breadth_first(tree: RandomTree) -> tuple[list[State], float]:
    return beam(tree, None)


def beam(tree: RandomTree, width: int | None) -> tuple[list[State], float]:
    layer: list[State] = [()]
    expanded, best = [], inf
    while layer:
        layer = sorted(layer, key=tree.costs.__getitem__)[:width]
        best = min([best, *(tree.costs[s] for s in layer if tree.ends[s])])
        layer = [s for s in layer if not tree.ends[s]]
        expanded += layer
        layer = [c for s in layer for c in tree.below[s]]
    return expanded, best


def best_first(tree: RandomTree) -> tuple[list[State], float]:
    return best_first_beam(tree, inf)


def best_first_beam(tree: RandomTree, width: float) -> tuple[list[State], float]:
    """Meister 2020, Algorithm 2, to the end of its queue; best-first search if the width is inf."""
    queue, pops, expanded, best = Heap(tree), Counter[int](), list[State](), inf
    queue.push(())
    while queue.items:
        s = queue.pop()
        if tree.ends[s]:
            best = min(best, tree.costs[s])
        elif pops[len(s)] < width:
            pops[len(s)] += 1
            expanded.append(s)
            for c in tree.below[s]:
                queue.push(c)
    return expanded, best


def memory_bounded(tree: RandomTree, memory: int) -> tuple[list[State], float]:
    """Gao 2022, Algorithm 1, where complete states leave the queue at the next iteration."""
    queue, expanded, best = Heap(tree), list[State](), inf
    queue.push(())
    while queue.items:
        best = min([best, *(cost for cost, _, s in queue.items if tree.ends[s])])
        first = queue.items[0][2]
        queue.items = [x for x in queue.items if not tree.ends[x[2]]]
        heapq.heapify(queue.items)
        if tree.ends[first]:
            continue
        s = queue.pop()
        expanded.append(s)
        for c in tree.below[s]:
            queue.push(c)
            if len(queue.items) > memory:
                queue.items.remove(max(queue.items))
                heapq.heapify(queue.items)
    return expanded, best


Rank = Callable[[float, int], float]


def cost_alone(cost: float, depth: int) -> float:
    return cost


def algorithm_2(
    tree: RandomTree, beta1: float, beta2: float, beta: float, memory: float, rank: Rank = cost_alone
) -> tuple[list[State], float]:
    """Gao 2022, Algorithm 2, line by line."""
    number = 0

    def item(s: State) -> tuple[float, float, int, State]:
        nonlocal number
        number += 1
        return rank(tree.costs[s], len(s)), tree.costs[s], number, s

    q = [item(())]
    pops, expanded, best = Counter[int](), list[State](), inf
    while q:
        u: list[tuple[float, float, int, State]] = []
        i = 0
        while i < beta1 + beta2 and q:
            i += 1
            popped = min(q)
            q.remove(popped)
            s = popped[-1]
            if tree.ends[s]:
                best = min(best, tree.costs[s])
                continue
            if i > beta1:
                u.append(popped)
            elif pops[len(s)] < beta:
                expanded.append(s)
                pops[len(s)] += 1
                u += [item(c) for c in tree.below[s]]
            while len(u) > memory:
                u.remove(max(u))
        q = u
    return expanded, best


TEXTBOOK: dict[str, Callable[[RandomTree], tuple[list[State], float]]] = {
    "breadth-first": breadth_first,
    "best-first": best_first,
    "greedy": greedy,
    "memory-bounded best-first": lambda tree: memory_bounded(tree, 5),
    "beam": lambda tree: beam(tree, 4),
    "best-first beam": lambda tree: best_first_beam(tree, 4),
    "controlled mb2fbs": lambda tree: algorithm_2(tree, 3, 1, 4, 4 * tree.deepest),
    "mb2fbs": lambda tree: algorithm_2(tree, 3, 1, inf, inf),
}


@pytest.mark.parametrize("name", TEXTBOOK)
def test_a_preset_is_the_textbook_search_of_its_name(name: str) -> None:
    parameters = presets(4, 1, memory=5)[name]
    for seed in SEEDS:
        tree = RandomTree(seed)
        assert found_by(tree, parameters, at_once=False) == TEXTBOOK[name](tree), f"seed {seed}"


def test_every_row_of_table_1_is_a_preset() -> None:
    assert set(presets()) == set(TEXTBOOK)


def test_any_parameters_are_algorithm_2() -> None:
    for seed in SEEDS:
        rng = random.Random(seed)
        tree = RandomTree(seed)
        numbers = (
            rng.choice((1, 2, 3, 7, inf)),
            rng.choice((0, 1, 2, 5, inf)),
            rng.choice((1, 2, 5, inf)),
            rng.choice((1, 2, 4, 9, inf)),
        )
        assert found_by(tree, Parameters(*numbers), at_once=False) == algorithm_2(tree, *numbers), (
            f"seed {seed}, {numbers}"
        )


def test_more_memory_than_beta1_and_beta2_changes_nothing() -> None:
    for seed in SEEDS:
        tree = RandomTree(seed)
        for beta in (inf, 3):
            runs = [found_by(tree, Parameters(2, 3, beta, memory), at_once=False) for memory in (5, 6, 50, inf)]
            assert all(r == runs[0] for r in runs), f"seed {seed}"


def test_a_controlled_search_expands_at_most_beta_states_of_a_depth() -> None:
    most = 0
    for seed in SEEDS:
        expanded, _ = found_by(RandomTree(seed), Parameters(2, 2, 3))
        most = max(most, *Counter(map(len, expanded)).values())
    assert most == 3


def test_where_costs_grow_on_the_way_down_a_best_first_beam_expands_what_a_beam_does() -> None:
    for seed in SEEDS:
        tree = RandomTree(seed, level=True, monotone=True)
        (wide, cost), (first, same) = (found_by(tree, presets(3)[name]) for name in ("beam", "best-first beam"))
        assert (set(wide), cost) == (set(first), same), f"seed {seed}"


class Small:
    """A tree of given costs: the letters of a state are its decisions; states without children are complete."""

    def __init__(self, **costs: float) -> None:
        self.costs = {"": 0.0, **costs}
        self.expanded: list[str] = []
        self.asked: list[list[str]] = []

    def children(self, state: str) -> list[str]:
        self.expanded.append(state)
        return [s for s in self.costs if s and s[:-1] == state]

    def cost(self, states: Sequence[str]) -> np.ndarray[Any, Any]:
        self.asked.append(list(states))
        return np.array([self.costs[s] for s in states])

    def depth(self, state: str) -> int:
        return len(state)

    def is_complete(self, state: str) -> bool:
        return not any(s and s[:-1] == state for s in self.costs)


def test_beta2_of_the_papers_best_first_beam_forgets_a_state_of_the_beam() -> None:
    tree = Small(a=2, b=3, aa=10, ab=11, ba=20, bb=21, aaa=30, aba=1, baa=30, bba=30)
    assert search(tree, "", presets(2, 1)["best-first beam"]).best == "aba"
    assert search(tree, "", Parameters(1, 1, 2)).best != "aba"


# -- priorities


def test_the_priority_is_the_papers_formula() -> None:
    assert DepthPriority(100.0, 9)(30.0, 2) == -(100.0 - 30.0) / (9 - 2)


def test_passes_with_a_depth_are_algorithm_2_with_the_papers_priorities() -> None:
    numbers = (3, 2, 4, inf)
    for seed in SEEDS:
        tree = RandomTree(seed)
        expanded: list[State] = []
        best = inf
        for i in (1, 2, 3):
            x, horizon = (1e9 if best == inf else best), i * tree.deepest + 1
            states, cost = algorithm_2(tree, *numbers, rank=lambda c, d: -(x - c) / (horizon - d))
            expanded, best = expanded + states, min(best, cost)
        assert found_by(tree, Parameters(*numbers), at_once=False, depth=tree.deepest, passes=3) == (expanded, best), (
            f"seed {seed}"
        )


# -- results and records


def test_a_complete_start_is_the_result() -> None:
    tree = Small()
    found = search(tree, "", presets()["beam"])
    assert (found.best, found.cost, found.record.expansions, found.record.costs) == ("", 0.0, 0, 1)


def test_where_nothing_complete_is_reached_there_is_no_result() -> None:
    tree = RandomTree(0)
    tree.ends = dict.fromkeys(tree.ends, False)
    found = search(tree, (), presets()["beam"])
    assert (found.best, found.cost, found.finalists) == (None, inf, ())


@pytest.mark.parametrize("name", ["greedy", "beam", "controlled mb2fbs", "mb2fbs"])
def test_what_costs_infinitely_much_takes_nobodys_place(name: str) -> None:
    tree = Small(a=inf, b=2, aa=1, ba=4, bb=inf)
    found = search(tree, "", presets(2, 1)[name], Options(depth=3))
    assert [state for _, state in found.finalists] == ["ba"] and "a" not in tree.expanded
    assert search(Small(a=inf, b=inf), "", presets(2, 1)[name]).best is None


def test_counting_complete_states_at_once_changes_the_result_only() -> None:
    better = 0
    for seed in SEEDS:
        tree = RandomTree(seed)
        at_once = found_by(tree, Parameters(2, 1))
        literal = found_by(tree, Parameters(2, 1), at_once=False)
        assert at_once[0] == literal[0] and at_once[1] <= literal[1]
        assert at_once[1] == min((tree.costs[s] for asked in tree.asked for s in asked if tree.ends[s]), default=inf)
        better += at_once[1] < literal[1]
    assert better


def test_the_record_counts_what_the_tree_was_asked() -> None:
    for seed in SEEDS:
        tree = RandomTree(seed)
        found = search(tree, (), Parameters(2, 3, memory=4), Options(passes=2))
        record = found.record
        assert record.expansions == len(tree.expanded)
        assert record.costs == sum(map(len, tree.asked))
        assert 1 <= record.longest <= 4
        assert not record.stopped
        assert [i.cost for i in record.improvements] == sorted({i.cost for i in record.improvements}, reverse=True)
        assert [i.costs for i in record.improvements] == sorted(i.costs for i in record.improvements)
        assert found.cost == (record.improvements[-1].cost if record.improvements else inf)


def test_costs_are_asked_for_a_whole_round_at_once() -> None:
    tree = RandomTree(3, level=True)
    search(tree, (), presets(6)["beam"])
    assert [{len(s) for s in asked} for asked in tree.asked] == [{0}, {1}, {2}, {3}, {4}]


def test_costs_are_asked_for_in_parts_and_time_is_looked_at_between() -> None:
    tree = RandomTree(5, level=True)
    whole = search(tree, (), presets(6)["beam"])
    asked, tree.asked = [s for some in tree.asked for s in some], []
    assert search(tree, (), presets(6)["beam"], Options(batch_size=4)).finalists == whole.finalists
    assert [s for some in tree.asked for s in some] == asked and max(map(len, tree.asked)) == 4
    tree.asked = []
    found = search(tree, (), presets(6)["beam"], Options(batch_size=4, stop=lambda: len(tree.asked) == 3))
    assert found.record.stopped and len(tree.asked) == 3
    with pytest.raises(OptionError, match="batch_size"):
        Options(batch_size=0)


def test_finalists_are_the_cheapest_complete_states_each_once() -> None:
    for seed in SEEDS:
        tree = RandomTree(seed)
        found = search(tree, (), Parameters(5, 2), Options(passes=2, finalists=4))
        seen = {s for asked in tree.asked for s in asked if tree.ends[s]}
        assert [cost for cost, _ in found.finalists] == sorted(tree.costs[s] for s in seen)[:4]
        assert len({s for _, s in found.finalists}) == len(found.finalists)
        assert all(tree.costs[s] == cost and s in seen for cost, s in found.finalists)


# -- limits


def test_a_limit_of_expansions_cuts_the_search_short() -> None:
    tree = RandomTree(5)
    whole, _ = found_by(tree, Parameters(2, 2))
    for n in range(len(whole) + 2):
        tree.expanded, tree.asked = [], []
        found = search(tree, (), Parameters(2, 2), Options(expansions=n))
        assert tree.expanded == whole[:n]
        assert found.record.stopped == (n < len(whole))
        assert found.cost == min((tree.costs[s] for asked in tree.asked for s in asked if tree.ends[s]), default=inf)
        assert {c for s in tree.expanded for c in tree.below[s]} <= {s for asked in tree.asked for s in asked}


def test_an_interrupt_leaves_the_best_complete_state_so_far() -> None:
    tree = RandomTree(8)
    once = len(found_by(tree, Parameters(2, 2))[0])
    whole, _ = found_by(tree, Parameters(2, 2), passes=2)
    for n in range(len(whole)):
        tree.expanded, tree.asked = [], []
        found = search(tree, (), Parameters(2, 2), Options(passes=2, stop=lambda: len(tree.expanded) == n))
        assert tree.expanded == whole[:n]
        assert found.record.stopped and tree.asked.count([()]) == (1 if n < once else 2)
        assert found.cost == min((tree.costs[s] for asked in tree.asked for s in asked if tree.ends[s]), default=inf)


# -- buckets


def test_a_penalty_makes_room_for_other_buckets() -> None:
    costs = {"a": 1.3, "b": 1, "c": 1.2, "d": 3, "aa": 1, "ba": 1, "ca": 1, "da": 1}
    plain, diverse = Small(**costs), Small(**costs)
    search(plain, "", presets(3)["beam"])
    search(diverse, "", presets(3)["beam"], bucket=lambda s, fineness: s == "d")
    assert plain.expanded == ["", "b", "c", "a"]
    assert diverse.expanded == ["", "b", "c", "d"]  # c counts 2 * 1.2, a 3 * 1.3


def test_penalties_are_for_states_of_one_depth_and_leave_the_costs_of_results_alone() -> None:
    tree = Small(a=1, b=5, aa=4, ab=4.5, aaa=7, aba=8, ba=9, bb=10)
    found = search(tree, "", Parameters(1, 1), bucket=lambda s, fineness: 0)
    assert tree.expanded == ["", "a", "aa", "b"]  # b counts 5, being alone; ab 2 * 4.5
    assert found.finalists == ((7.0, "aaa"), (9.0, "ba"), (10.0, "bb"))


def test_a_later_pass_stays_in_the_coarse_buckets_of_good_results() -> None:
    tree = Small(a=1, b=1, c=1, aa=10, ab=50, ba=12, ca=12.5)
    finenesses = set()

    def bucket(s: str, fineness: int) -> tuple[int, str]:
        finenesses.add(fineness)
        return fineness, s[: fineness + 1]

    search(tree, "", Parameters(9, 0), Options(passes=2), bucket=bucket)
    assert tree.asked == [[""], ["a", "b", "c"], ["aa", "ab", "ba", "ca"], [""], ["a", "b"], ["aa", "ab", "ba"]]
    assert finenesses == {0, 1, 2}


def test_a_pass_after_one_without_result_may_go_everywhere() -> None:
    tree = RandomTree(2)
    tree.ends = dict.fromkeys(tree.ends, False)
    search(tree, (), Parameters(3, 0), Options(passes=2), bucket=lambda s, fineness: 0)
    half = len(tree.asked) // 2
    assert half > 1 and tree.asked[:half] == tree.asked[half:]


def test_a_sample_has_log2_of_the_states_of_each_bucket() -> None:
    groups = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 9, "f": 17}
    letters = [(chr(0x4E00 + 100 * k + j), name) for k, (name, n) in enumerate(groups.items()) for j in range(n)]
    tree = Small(**{c: 1.0 for c, _ in letters})
    of = dict(letters)

    def bucket(s: str, fineness: int) -> str:
        return of.get(s, s) if fineness == 0 else s

    chosen = []
    for seed in range(20):
        tree.asked = []
        search(tree, "", Parameters(1, 0), replace(SAMPLED, seed=seed), bucket=bucket)
        assert Counter(of[s] for s in tree.asked[1]) == {name: max(1, int(log2(n))) for name, n in groups.items()}
        assert tree.asked[1] == sorted(tree.asked[1])
        chosen.append(tuple(tree.asked[1]))
    assert len(set(chosen)) > 1


# -- dropout


def test_the_seed_decides() -> None:
    def run(seed: int) -> tuple[list[State], Record]:
        tree = RandomTree(11)
        found = search(
            tree,
            (),
            Parameters(3, 1),
            replace(SAMPLED, keep=0.5, passes=3, seed=seed),
            bucket=lambda s, fineness: len(s),
        )
        return tree.expanded, found.record

    assert run(1) == run(1)
    assert len({str(run(seed)) for seed in range(10)}) > 1


def test_what_is_dropped_makes_way_for_the_next_and_the_last_is_never_dropped() -> None:
    tree = Small(a=1, b=2, c=3, ca=1, cb=2, aa=0, ba=0)
    found = search(tree, "", Parameters(1, 0), Options(keep=0.0, at_once=False))
    assert (tree.expanded, found.best) == (["", "c"], "cb")


def test_one_greedy_search_in_twenty_drops_nothing() -> None:
    stages = 3
    tree = RandomTree(4, deepest=2 * stages, level=True, monotone=True)
    expected = greedy(tree)
    keep = keep_probability(2 * stages)
    untouched = sum(
        found_by(tree, Parameters(1, 0), keep=keep, seed=seed, at_once=False) == expected for seed in range(1000)
    )
    assert 30 <= untouched <= 70


# -- errors


@pytest.mark.parametrize("numbers", [(0, 1), (1, -1), (1, 0, 0), (1, 0, 1, 0), (1.5, 0), (1, float("nan"))])
def test_parameters_out_of_range_are_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(OptionError, match="whole number"):
        Parameters(*numbers)


@pytest.mark.parametrize("given", [{"passes": 0}, {"finalists": 0}, {"keep": 1.5}, {"keep": -0.1}, {"sample": True}])
def test_options_out_of_range_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(given))):
        Options(**given)


def test_a_cost_must_come_for_each_state() -> None:
    tree = Small(a=1, b=2)
    tree.cost = lambda states: np.zeros(1)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="shorter"):
        search(tree, "", presets()["beam"])


# -- the paper's numbers


@pytest.mark.parametrize("beta2", [0, 2, 32, 128])
@pytest.mark.parametrize("beta", [inf, 256])
def test_synthetic_trees_take_as_many_expansions_as_in_table_5(beta2: int, beta: float) -> None:
    expansions = mb2fbs.TABLE_5[beta2][1 if beta == inf else 3]
    trees = [mb2fbs.SyntheticTree(seed, 100) for seed in range(3)]
    assert mb2fbs.score(trees, Parameters(256 - beta2, beta2, beta)).expansions == pytest.approx(expansions, rel=0.05)


def test_the_command_writes_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("QUICK_TREES", 1), ("DELTAS", (0, 100)), ("WIDTHS", (8,))):
        monkeypatch.setattr(mb2fbs, name, value)
    file = tmp_path / "new" / "numbers.json"
    mb2fbs.main(["--quick", "--json", str(file)])
    numbers = json.loads(file.read_text())
    assert {"machine", "versions", "commit"} <= set(numbers) and {"python", "numpy"} <= set(numbers["versions"])
    assert numbers["trees"] == 1
    assert [r["delta"] for r in numbers["figure_6"]] == [0, 100]
    assert numbers["figure_7"][0]["beam"]["expansions"] == 1 + 4 + 6 * 8
    assert numbers["table_5"][0]["controlled"]["expansions"] == 1 + 4 + 16 + 64 + 4 * 256
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("Figure 6", "Figure 7", "Table 5", "1639.8"))
