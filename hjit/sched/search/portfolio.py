"""Portfolio search: searches of one space under several sets of rules, of which the cheapest schedule is taken.

What a search decides first looks cheap or expensive by what is assumed of the stages that are decided on later, and no
assumption is right for all Graphs. A producer with a level of tiles of its own costs a little less while those further
up count as whole images in memory, and then keeps these from sharing its loop: a beam of 32 found schedules for
camera_pipe that were predicted to take 1.05 times the default schedule's time, and 0.95 times without such tiles, in a
fifth of the seconds. Of many isomorphic stages most look best apart until all of them are together
(`Rules.share_choices`). So the stricter spaces are searched first, each with either assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from hjit.sched.search.batches import State
from hjit.sched.search.search import Found, Options, Parameters, never, presets, search
from hjit.sched.search.space import Space
from hjit.sched.search.thresholds import MANY_STAGES

GREEDY = presets()["greedy"]
VARIATIONS: Sequence[Mapping[str, Any]] = (
    {"producer_tiles": False, "share_choices": True, "together": MANY_STAGES},
    {"producer_tiles": False, "share_choices": True, "together": MANY_STAGES, "optimistic": True},
    {"producer_tiles": False},
    {"producer_tiles": False, "optimistic": True},
    {},
    {"optimistic": True},
)
"""What each set of rules changes of `hjit.sched.search.pruning.Rules`."""
SAMPLED: Sequence[Mapping[str, Any]] = (
    *VARIATIONS,
    {"producer_tiles": False, "plane_loops": True},
    {"producer_tiles": False, "plane_loops": True, "optimistic": True},
)
"""The sets of rules of samples: weights that were fitted to few schedules of the last two think too well of them."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The result of searching a space under some rules."""

    space: Space
    found: Found[State]


def variations(space: Space, sets: Sequence[Mapping[str, Any]] = VARIATIONS) -> list[Space]:
    """The space under each set of rules."""
    return [Space.under(space, replace(space.rules, **changed)) for changed in sets]


def greedily(space: Space, stop: Callable[[], bool] = never) -> Found[State]:
    """A greedy search of a space."""
    return completed(space, search(space, space.start, GREEDY, Options(stop=stop)))


def greedy_searches(
    space: Space,
    stop: Callable[[], bool] = never,
    further: Callable[[], bool] | None = None,
    sets: Sequence[Mapping[str, Any]] = VARIATIONS,
) -> list[Searched]:
    """Greedy searches under each set of rules, the cheapest first.

    Args:
        further: ends all but the first, of which none is begun then; as `stop` if not given.
        sets: of rules.
    """
    first, *others = variations(space, sets)
    found, further = [Searched(first, greedily(first, stop))], further or stop
    for x in others:
        if further():
            break
        found.append(Searched(x, greedily(x, further)))
    return cheapest_first(found)


def beam_searches(
    spaces: Sequence[Space], parameters: Parameters, options: Callable[[Space, int], Options[State]]
) -> list[Searched]:
    """Searches of some spaces with other parameters, the cheapest first.

    Args:
        options: for a space, and its number.
    """
    return cheapest_first(
        Searched(x, completed(x, search(x, x.start, parameters, options(x, n)))) for n, x in enumerate(spaces)
    )


def cheapest_first(found: Iterable[Searched]) -> list[Searched]:
    """Searches, the one with the cheapest result first."""
    return sorted(found, key=lambda x: x.found.cost)


def completed(space: Space, found: Found[State]) -> Found[State]:
    """The result of a search; if it was stopped, its furthest state with all other stages at the root."""
    if found.finalists or found.halted is None:
        return found
    stages = [s.name for s in space.graph.stages]
    rest = Space.freezing(space, {n: "inline" if space.frozen.get(n) == "inline" else "root" for n in stages}, stages)
    (batch,) = rest.families(found.halted)
    ((cost,),) = space.cost([(batch, np.zeros(1, np.int64))])
    return replace(found, finalists=((float(cost), batch[0]),) if cost < inf else ())
