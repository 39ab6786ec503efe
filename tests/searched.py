"""Random programs under the schedules that a search finds against NumPy: ``python -m tests.searched --count 1000 --seed 0``.

Programs of `tests.fuzz` and of the cost model's generator alternate; most schedules are searched greedily, some refined, some by a small
beam. What a search finds runs, also where the default schedule is the better one; a schedule that is refused fails.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any
from unittest import mock

from hjit.process import machine
from hjit.sched.search.search import presets
from hjit.sched.search.space import Space
from hjit.tuning import autoschedule, candidates, decide, plans
from hjit.tuning.choice import DEFAULT
from tests import fuzz, generated, seeds

BEAM_EVERY = 8  # of the programs of either kind
SMALL_BEAM = replace(autoschedule.EFFORTS["beam"], parameters=presets(4)["beam"], passes=2, seconds=20.0)
BRIEF = replace(autoschedule.EFFORTS["refined"], refine=0.3, timed=1)
BANDWIDTH = (2.0**31, 2.0**34)  # bytes a second: of the machine at hand, a seed would not always have the same schedule


def first(candidates: Any, found: Sequence[Any], *_: Any) -> Any:
    """The first of what a search found, untimed."""
    return found[0] if found else candidates.compiled(DEFAULT, True)


@contextlib.contextmanager
def forced(seed: int) -> Iterator[list[str]]:
    """Whatever a search finds runs; the list is why not."""
    refused: list[str] = []
    with (
        mock.patch.object(Space, "tree_cost", lambda *_: inf),  # of the default schedule: anything is better
        mock.patch.object(candidates, "fastest", first),
        mock.patch.object(decide, "refused", lambda error: refused.append(f"refused: {error}")),
        mock.patch.object(machine, "bandwidth", lambda _: BANDWIDTH[seed // 4 % 2]),
        mock.patch.object(machine, "caches", lambda: machine.USUAL_CACHES),
        mock.patch.dict(plans._plans, clear=True),  # a seed is searched however often it runs
        mock.patch.dict(autoschedule.EFFORTS, beam=SMALL_BEAM, refined=BRIEF),
    ):
        yield refused


def failure(seed: int) -> str | None:
    """What is wrong with the program of a seed and its schedule, or None."""
    number = seed // 2 % BEAM_EVERY
    options = {
        "tune": "beam" if number == BEAM_EVERY - 1 else "refined" if number % 4 == 1 else "greedy",
        "num_threads": 2,
    }
    with forced(seed) as refused:
        if seed % 2:
            why = generated.failure(seed, generated.PIXELS[seed // 2 % len(generated.PIXELS)], **options)
        else:
            why = fuzz.random_program(seed).fails(**options)
    return "; ".join([*refused, *filter(None, [why])]) or None


if __name__ == "__main__":
    sys.exit(seeds.main("tests.searched", __doc__, failure))
