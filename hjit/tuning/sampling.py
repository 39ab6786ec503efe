"""Schedules of one Graph that are worth timing, in batches (Adams 2019, section 4.3).

Most are found by a greedy search with random dropout: the state with the best prediction is expanded with a probability
p, otherwise the next one, and so on. p is such that one sample in twenty drops nothing: (1/20)^(1/d) for d decisions.
The results of a plain beam search, of local search from the fastest schedule so far, and some neighbours of that are
always included. Searches use the sets of rules of `hjit.sched.search.portfolio` round-robin.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator

from hjit.model.costs import Cost
from hjit.sched.search.batches import State
from hjit.sched.search.portfolio import SAMPLED, completed, variations
from hjit.sched.search.refine import Schedule, random_walk, refined
from hjit.sched.search.search import Found, Parameters, keep_probability, presets, search
from hjit.sched.search.search import Options as SearchOptions
from hjit.sched.search.space import Space
from hjit.tuning.autoschedule import frozen
from hjit.tuning.limits import (
    BEAM_PICKS,
    BEAM_WIDTH,
    FEW_STAGES,
    MAX_MOVES,
    NEIGHBOURS,
    SAMPLE_SECONDS,
    SEARCH_SHARE,
    UNTOUCHED,
)

STOCHASTIC_GREEDY = Parameters(1, 0)  # of each queue one state is expanded: the best that dropout leaves


class Sampler:
    """Schedules of a Graph, by the present cost model.

    Args:
        space: of all schedules; in that of a large Graph most stages are frozen, see `frozen`.
        seconds: for all batches; one search has a share of it at the most.
        stop: is it time to end?

    Attributes:
        space: under the present cost model. spaces: the same under each set of rules, which share what nests cost.
        keep: the probability p.
    """

    def __init__(self, space: Space, seed: int, seconds: float, stop: Callable[[], bool]) -> None:
        self._seconds, self._stop = min(SEARCH_SHARE * seconds, SAMPLE_SECONDS), stop
        self.whole = space  # local search changes any stage
        # all stages count, and not kinds as in `autoschedule`: most of the sets of rules decide on alike stages, too
        is_large = len(space.graph.stages) > FEW_STAGES
        self.space = frozen(space, self._for_a_while()) if is_large else space
        self.spaces, self._searches = variations(self.space, SAMPLED), itertools.count()
        self._random = random.Random(seed)
        self.keep = keep_probability(max(self.space.undecided_steps, 1), UNTOUCHED)

    def learn(self, cost: Cost) -> None:
        """Sample by this cost model from now on."""
        self.space, self.whole = Space.like(self.space, cost), Space.like(self.whole, cost)
        self.spaces = variations(self.space, SAMPLED)

    def batch(self, count: int, best: Schedule) -> Iterator[Schedule]:
        """About `count` schedules; some may be equal to each other, or to earlier ones.

        Args:
            best: the fastest so far.
        """
        yield from self._beam()
        yield refined(self.whole, best, self._seed(), self._for_a_while()).schedule
        for _ in range(NEIGHBOURS):
            if self._stop():
                return
            yield random_walk(self.whole, best, self._random.randint(1, MAX_MOVES), self._random)
        for _ in range(count - BEAM_PICKS - NEIGHBOURS - 1):
            if self._stop():
                return
            yield from self._sample()

    def _beam(self) -> Iterator[Schedule]:
        """What a beam without dropout finds."""
        around: SearchOptions[State] = SearchOptions(batch_size=500, stop=self._for_a_while())
        found = self._found(presets(BEAM_WIDTH)["beam"], around)
        yield from (Schedule(x.tree, x.inlined) for _, x in found.finalists[:BEAM_PICKS])

    def _sample(self) -> Iterator[Schedule]:
        """One schedule by dropout; none if the search ends without one."""
        around: SearchOptions[State] = SearchOptions(
            keep=self.keep, seed=self._seed(), batch_size=500, stop=self._for_a_while()
        )
        found = self._found(STOCHASTIC_GREEDY, around)
        yield from (Schedule(x.tree, x.inlined) for _, x in found.finalists[:1])

    def _found(self, parameters: Parameters, around: SearchOptions[State]) -> Found[State]:
        """What a search finds under the next set of rules."""
        space = self.spaces[next(self._searches) % len(self.spaces)]
        return completed(space, search(space, space.start, parameters, around))

    def _seed(self) -> int:
        return self._random.randrange(1 << 30)

    def _for_a_while(self) -> Callable[[], bool]:
        """Is it time to end, or has one search taken its share?"""
        end = time.perf_counter() + self._seconds
        return lambda: time.perf_counter() > end or self._stop()
