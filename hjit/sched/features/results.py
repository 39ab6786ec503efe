"""The last steps of featurising a nest, compiled or in Python: count its loads, merge the computations of a stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.model.feature_names import SCHEDULE
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.analysis.tape import Array
from hjit.sched.features.load_counts import Block

LOADS = [
    SCHEDULE.index(name) for name in ("scalar_loads_per_vector", "vector_loads_per_vector", "scalar_loads_per_scalar")
]
CALLS = [SCHEDULE.index(name) for name in ("inlined_calls", "num_vectors", "num_scalars")]
COLUMN = {name: k for k, name in enumerate(SCHEDULE)}
Sizes = np.ndarray[Any, np.dtype[np.int64]]  # of loops, [batch, slots]


@dataclass(frozen=True)
class NestFeatures:
    """The features of the stages that one child of the root computes, and of those that are inlined into them.

    Attributes:
        stages: their names.
        values: float64 [batch, stages, len(SCHEDULE)]; working_set_at_root is zero.
        allocated: float64 [batch], bytes: what this nest adds to working_set_at_root.
    """

    stages: tuple[str, ...]
    values: Array
    allocated: Array


def finished(
    graph: SizedGraph,
    names: Sequence[str],
    values: Array,
    numbers: Array,
    blocks: Iterable[tuple[int, Block, slice]],
    allocated: Array,
) -> NestFeatures:
    """The features of a nest.

    Args:
        names: for each row of features the stage.
        values: the features, but for loads, and of calls of inlined stages as if there were one, float64
            [batch, rows, len(SCHEDULE)]; it is written to.
        numbers: what loads and calls are counted from, [numbers, batch], or one for all.
        blocks: rows with how their loads, or calls, are counted, and from which of these numbers.
        allocated: see `NestFeatures`.
    """
    alike = (numbers == numbers[:, :1]).all(1).tolist()
    for k, block, at in blocks:
        found = block.count(graph, numbers[at], all(alike[at]))
        if block.called is None:
            values[:, k, LOADS] = found
        else:
            values[:, k, CALLS] *= found[..., [0, 0, 1]]
    stages = tuple(dict.fromkeys(names))
    if len(stages) < len(names):
        values = np.stack([merged([values[:, k] for k, x in enumerate(names) if x == name]) for name in stages], 1)
    return NestFeatures(stages, values, allocated)


# -- several computations of one stage

MEANS = frozenset(
    """innermost_loop_extent innermost_pure_loop_extent unrolled_loop_extent inner_parallelism outer_parallelism
    vector_size scalar_loads_per_vector vector_loads_per_vector scalar_loads_per_scalar unique_bytes_read_per_vector
    unique_lines_read_per_vector bytes_at_task innermost_bytes_at_task working_set_at_task""".split()
)
SUMS = frozenset(
    """points_computed_per_realization points_computed_per_production points_computed_total points_computed_minimum
    inlined_calls unique_bytes_read_per_realization unique_lines_read_per_realization
    allocation_bytes_read_per_realization num_vectors num_scalars unique_bytes_read_per_task
    unique_lines_read_per_task""".split()
)
_IS_MEAN = np.array([name in MEANS for name in SCHEDULE])
_IS_SUM = np.array([name in SUMS for name in SCHEDULE])


def merged(rows: Sequence[Array]) -> Array:
    """The features of a stage from those of its computations, [batch, len(SCHEDULE)] each.

    Counts add up, what is said of one tile, task or vector is a mean over the points, and the rest is the stage's own.
    """
    if len(rows) == 1:
        return rows[0]
    every = np.stack(rows)
    weights = every[..., COLUMN["points_computed_total"]] + every[..., COLUMN["inlined_calls"]]
    weights = np.where(weights.sum(0) > 0.0, weights, 1.0)
    mean: Array = np.einsum("rb,rbf->bf", weights / weights.sum(0), every)
    return np.where(_IS_SUM, every.sum(0), np.where(_IS_MEAN, mean, every.max(0)))
