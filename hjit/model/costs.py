"""The interface between a search and a cost model, and a cost model without training.

A cost is a sum over stages, so a search asks for the costs of stages and keeps the sum of each loop nest. `Cost` is the
interface; the trained `hjit.model.network.Network` is one, `WeightedSum` another. In NumPy all through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hjit.model.feature_names import OPERATIONS, PIPELINE, SCHEDULE
from hjit.model.terms import Array


class PreparedCost(Protocol):
    """A cost for one graph on one machine."""

    def stages(self, schedule: Array) -> Array:
        """The cost of each stage, [batch, stages], of schedule features [batch, stages, len(SCHEDULE)]."""

    def rows(self, schedule: Array, stages: Array) -> Array:
        """The costs of some of the stages in any order, [rows], of schedule features [rows, len(SCHEDULE)]; `stages`:
        which of them each row is of."""

    def whole(self, allocated: Array) -> Array | None:
        """What a schedule costs besides its stages, [batch], of the bytes that it allocates in all, float64 [batch].

        None where that is nothing, whatever it allocates.
        """


class Cost(Protocol):
    """A cost model: the lower the better."""

    def prepare(self, pipeline: Array, machine: Array) -> PreparedCost:
        """The same model for some stages of one graph, with all computed that does not depend on the schedule.

        Args:
            pipeline: [stages, len(PIPELINE)].
            machine: [len(MACHINE)].
        """

    def stages(self, pipeline: Array, schedule: Array, machine: Array) -> Array:
        """The cost of each stage, [batch, stages], not negative; in seconds where the model predicts them.

        What a schedule costs besides its stages is shared by them, where their `working_set_at_root` is known.

        Args:
            pipeline: [stages, len(PIPELINE)].
            schedule: [batch, stages, len(SCHEDULE)].
            machine: [len(MACHINE)].
        """


MATHEMATICS = ("sqrt", "exp", "log", "pow", "trig", "hyperbolic")
"""The paper names sin, cos, tan and sqrt; the others cost as much."""

FREE = ("const", "scalar", "index", "input_load", "stage_load", "self_load", "gather", "other")
"""What is in a formula but computes nothing, or is counted as a load."""

ARITHMETIC = tuple(x for x in OPERATIONS if x not in MATHEMATICS + FREE)
"""The paper's language has + - * / only; what else computes costs as much as they do."""


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """The weighted sum of execution features of the schedule-tree autoscheduler, "Evaluation", with its weights.

    How its quantities are found in the features of Adams 2019, for each stage:

        mem                  bytes_at_realization: each allocation once, for its loops use the same memory again
        loads                points evaluated x scalar_loads_per_scalar; loads of inputs count too
        stores               points_computed_total
        arithmetic, mathematics    points evaluated x operations of a point

    where the points evaluated are inlined_calls of an inlined stage, else vector_size x num_vectors + num_scalars.
    Memory and stores are of intermediate results only, as in the paper. Parallel tasks and vectors change nothing.
    """

    mem: float = 0.1
    loads: float = 0.5
    stores: float = 0.5
    arithmetic: float = 1.0
    mathematics: float = 10.0

    def prepare(self, pipeline: Array, machine: Array) -> PreparedWeightedSum:
        """The sum for some stages of one graph; the machine makes no difference."""
        pipeline = np.asarray(pipeline)
        operations = self.arithmetic * _count(pipeline, ARITHMETIC) + self.mathematics * _count(pipeline, MATHEMATICS)
        return PreparedWeightedSum(self, operations, pipeline[:, PIPELINE.index("is_output")] == 0)

    def stages(self, pipeline: Array, schedule: Array, machine: Array) -> Array:
        """The cost of each stage, [batch, stages], without a unit; arguments as in `Cost.stages`."""
        return self.prepare(pipeline, machine).stages(schedule)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedWeightedSum:
    """A `WeightedSum` for one graph: the weighted operations of a point and what is stored, [stages] each."""

    weights: WeightedSum
    operations: Array
    intermediate: Array

    def stages(self, schedule: Array) -> Array:
        """The cost of each stage, [batch, stages], of schedule features [batch, stages, len(SCHEDULE)]."""
        f = dict(zip(SCHEDULE, np.moveaxis(np.asarray(schedule), -1, 0), strict=True))
        inlined = f["inlined_calls"]
        points = np.where(inlined > 0, inlined, f["vector_size"] * f["num_vectors"] + f["num_scalars"])
        kept = self.weights.mem * f["bytes_at_realization"] + self.weights.stores * f["points_computed_total"]
        return points * (self.operations + self.weights.loads * f["scalar_loads_per_scalar"]) + self.intermediate * kept

    def rows(self, schedule: Array, stages: Array) -> Array:
        """The costs of some stages; see `PreparedCost.rows`."""
        some = PreparedWeightedSum(self.weights, self.operations[stages], self.intermediate[stages])
        return some.stages(schedule[None])[0]

    def whole(self, allocated: Array) -> None:
        """Nothing; see `PreparedCost.whole`."""


def _count(pipeline: Array, operations: tuple[str, ...]) -> Array:
    """How many of some operations a point of each stage takes, [stages]."""
    return pipeline[:, [PIPELINE.index(f"op_{x}") for x in operations]].sum(-1)
