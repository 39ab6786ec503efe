"""The cost model of one Graph, from what was timed of it (Adams 2019, section 4.3).

With JAX and Optax, the network is fitted to the timed schedules, starting from the weights of this process. Without
them, schedules are ranked by these weights, and only the mean error of the Graph is corrected.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hjit.model.costs import Cost
from hjit.model.network import Network
from hjit.model.samples import Dataset
from hjit.sched.search.refine import Schedule
from hjit.sched.search.space import Space
from hjit.tuning.limits import FIT_PASSES, FIT_RATE, MIN_SAMPLES
from hjit.tuning.weights import weights

if TYPE_CHECKING:
    from hjit.model.fit import Program

log = logging.getLogger("hjit")


def can_fit() -> bool:
    """Is there what fits the network?"""
    from hjit.model.fit import missing_packages

    return not missing_packages()


class Learner:
    """What was timed of one Graph, and the cost model that follows from it.

    Args:
        space: what gives features.
        fits: may the network be fitted? Else there is a bias only.

    Attributes:
        cost: the present cost model.
        bias: measured over predicted seconds of it, the geometric mean.
        fitted: how often it was fitted.
    """

    def __init__(self, space: Space, fits: bool) -> None:
        self._space, self._fits = space, fits
        self._features: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []
        self._seconds: list[float] = []
        self.cost: Cost = weights()
        self.bias, self.fitted = 1.0, 0

    def add(self, schedule: Schedule, seconds: float) -> None:
        """One that was timed."""
        self._features.append(self._space.features(schedule.tree, schedule.inlined))
        self._seconds.append(seconds)

    def learn(self, stop: Callable[[], bool]) -> bool:
        """Take all that was timed into account; is there a new cost model?"""
        if not self._seconds:
            return False
        is_new = False
        if self._fits and len(self._seconds) >= MIN_SAMPLES and not stop():
            self.cost = self._fitted()
            self.fitted += 1
            is_new = True
        nests = self._space.nests
        predicted = self.cost.stages(nests.pipeline, np.stack(self._features), nests.machine).sum(-1)
        errors = np.log(np.array(self._seconds) / np.maximum(np.asarray(predicted, np.float64), 1e-12))
        self.bias = math.exp(float(errors.mean()))
        return is_new

    def samples(self) -> Dataset | None:
        """All that was timed, as training takes it; None: a single schedule, which says little."""
        if len(self._seconds) < 2:
            return None
        return Dataset((self._program(),), (("tuned",) * len(self._seconds),))

    def predicted(self, schedule: Schedule) -> float:
        """Seconds that a schedule takes, as the present cost model has it, and the bias."""
        nests = self._space.nests
        features = self._space.features(schedule.tree, schedule.inlined)[None]
        return self.bias * float(self.cost.stages(nests.pipeline, features, nests.machine).sum())

    def _fitted(self) -> Network:
        """From the weights of this process, and not from the latest: no batch counts more than another."""
        from hjit.model.fit import fit

        start = weights()
        assert isinstance(start, Network)
        network, report = fit(
            [self._program()], start=start, passes=FIT_PASSES, learning_rate=FIT_RATE, loss="log", held_out=0.0
        )
        log.debug("cost model fitted to %d schedules: rank %.2f", len(self._seconds), report.trained.rank)
        return network

    def _program(self) -> Program:
        """All that was timed."""
        from hjit.model.fit import Program

        nests = self._space.nests
        return Program(nests.pipeline, np.stack(self._features), np.array(self._seconds), nests.machine)
