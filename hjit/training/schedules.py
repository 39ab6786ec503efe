"""Schedules worth measuring: those that a search considers, those that it picks, and random ones.

A cost model that has seen only random schedules errs most where a search goes, to what it thinks cheap. So a share of
what is measured are the picks of the present weights (Adams 2019, section 5): by a greedy search, by a beam, by local
search, and with random dropout.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator

import numpy as np

from hjit.model import network
from hjit.model.costs import Cost
from hjit.sched.default.schedules import default_schedule
from hjit.sched.search.batches import State
from hjit.sched.search.portfolio import (
    SAMPLED,
    VARIATIONS,
    beam_searches,
    cheapest_first,
    greedy_searches,
    variations,
)
from hjit.sched.search.refine import Schedule, random_walk, refined
from hjit.sched.search.search import Options as SearchOptions
from hjit.sched.search.search import presets
from hjit.sched.search.space import Space
from hjit.trace.ir.graph import Graph

RANDOM_TRIES = 8
LONGEST_WALK = 8  # moves from the default schedule
REFINED_MOVES = 150  # looked at
LOOKED_AT = (2, 4)  # ways of each decision that a cost model chooses from
WIDTH = 16  # of a beam
BEAM_PICKS = 3  # of its finalists
SEARCH_SECONDS = 4.0  # of one search

Named = tuple[str, Schedule]  # where a schedule comes from


def candidates(space: Space, graph: Graph, count: int, seed: int, cost: Cost | None = None) -> Iterator[Named]:
    """Schedules to measure: the default one, some near to it, random ones, and such as cost models find good.

    Args:
        cost: a cost model whose picks are measured, and which chooses every fourth of the others and refines some of
            those; None: random ones do, as for the first training set of section 5.
    """
    rng = random.Random(seed)
    default = Schedule(default_schedule(graph, space.target), frozenset())
    yield "default", default
    if cost is not None:
        for number, named in enumerate(picks(Space.like(space, cost), default, rng.randrange(1 << 30))):
            if number + 1 < count:
                yield named
                count -= 1
    for k in range(count - 1):
        under = Space.like(space, network.random(rng.randrange(1 << 30)) if cost is None or k % 4 == 3 else cost)
        if k % 4 == 0:
            state: State | None = random_state(space, rng)
        elif k % 4 == 1:
            yield "neighbour", random_walk(space, default, rng.randint(1, LONGEST_WALK), rng)
            continue
        else:
            state = chosen_state(rng.choice(variations(under, SAMPLED)), rng, rng.choice(LOOKED_AT))
        if state is not None:
            found = Schedule(state.tree, state.inlined)
            if k % 4 == 2 and rng.random() < 0.5:
                yield "refined", refined(under, found, rng.randrange(1 << 30), limited(REFINED_MOVES)).schedule
            else:
                yield "random" if k % 4 == 0 else "dropout", found


def picks(space: Space, default: Schedule, seed: int) -> Iterator[Named]:
    """What searches choose by the cost of a space, the best first, and what local search makes of it."""
    searches = greedy_searches(space, _for_seconds())
    found = [("greedy", x) for x in searches[0].found.finalists[:1]]
    spaces = [x.space for x in searches]
    beams = beam_searches(spaces, presets(WIDTH)["beam"], lambda x, n: SearchOptions(stop=_for_seconds(len(spaces))))
    chosen = cheapest_first([*beams, *searches])[0]  # a beam may end at a higher cost, or early
    found += [("beam", x) for x in (*chosen.found.finalists[:1], *beams[0].found.finalists[:BEAM_PICKS])]
    others = greedy_searches(space, _for_seconds(), sets=SAMPLED[len(VARIATIONS) :])
    found += [("greedy, other rules", x) for x in others[0].found.finalists[:1]]
    for name, (_, state) in found:
        yield name, Schedule(state.tree, state.inlined)
    best = min(found, key=lambda x: x[1][0])[1][1] if found else None
    start = default if best is None else Schedule(best.tree, best.inlined)
    yield "refined pick", refined(space, start, seed, limited(REFINED_MOVES)).schedule


def _for_seconds(share: int = 1) -> Callable[[], bool]:
    """True when a search has had its seconds, or one of several its share of them."""
    end = time.perf_counter() + SEARCH_SECONDS / share
    return lambda: time.perf_counter() > end


def limited(count: int) -> Callable[[], bool]:
    """True from the call after so many on."""
    calls = iter(range(count))
    return lambda: next(calls, None) is None


def random_state(space: Space, rng: random.Random) -> State | None:
    """Random decisions that break no rule in the end; None where that is hard to find."""
    for _ in range(RANDOM_TRIES):
        batch, row = space.start.batch, 0
        while not batch.is_complete:
            batch = rng.choice(space.families(batch[row]))
            row = rng.randrange(len(batch))
        ((cost,),) = space.cost([(batch, np.array([row]))])
        if cost < math.inf:
            return batch[row]
    return None


def chosen_state(space: Space, rng: random.Random, looked_at: int) -> State | None:
    """The best of a few random ways to make each decision; None where the rules forbid all.

    It is the dropout of Adams 2019, section 4.3, without the cost of what is dropped. Ways that differ in sizes only
    count as one, and of their sizes all are looked at.
    """
    state = space.start
    while not state.batch.is_complete:
        batches = space.families(state)
        rng.shuffle(batches)
        best = math.inf
        while batches and best == math.inf:
            some, batches = batches[:looked_at], batches[looked_at:]
            for batch, costs in zip(some, space.cost([(b, np.arange(len(b))) for b in some]), strict=True):
                k = int(np.argmin(costs))
                if costs[k] < best:
                    best, state = float(costs[k]), batch[k]
        if best == math.inf:
            return None
    return state
