"""The hand-designed terms of the cost model (Adams 2019, appendix B).

The paper's cost of a stage is linear in its coefficients c0 to c26, so it is a dot product: `terms` gives what each
coefficient multiplies, and a model (`hjit.model.network`) the coefficients, in nanoseconds for one unit of a term.
Where the paper selects one coefficient of several, the terms of the others are zero. A stage whose features are all
zero costs nothing, whatever the coefficients: rows of zeros are padding.

Everything here takes `xp`, numpy or jax.numpy: one definition serves a search in plain NumPy and a training in JAX.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from hjit.model.feature_names import MACHINE, SCHEDULE

Array = Any  # of numpy or jax.numpy

PAGE = 4096  # bytes, as in the paper's formula

GUESSES = {
    "inlined_vector_points": 0.1,
    "inlined_scalar_points": 1.0,
    "vector_points": 0.1,
    "scalar_points": 1.0,
    "lines_read_by_realizations": 1.0,
    "bytes_read_by_realizations": 0.05,
    "vector_loads_of_vectors": 0.5,
    "scalar_loads_of_scalars": 0.5,
    "scalar_loads_of_vectors": 0.5,
    "bytes_read_by_scalars": 0.05,
    "bytes_read_by_vectors": 0.01,
    "lines_read_by_scalars": 0.5,
    "lines_read_by_vectors": 0.5,
    "bytes_read_by_tasks": 0.05,
    "lines_read_by_tasks": 1.0,
    "lines_written_in_parallel": 5.0,
    "lines_written_of_output": 1.0,
    "lines_written": 1.0,
    "bytes_written_in_parallel": 0.1,
    "bytes_written_of_output": 0.1,
    "bytes_written": 0.05,
    "false_sharing": 1.0,
    "page_faults": 0.001,
    "allocations": 5.0,
    "parallel_launches": 2000.0,
    "parallel_tasks": 200.0,
    "working_set": 0.01,
}
"""c0 to c26 in order: the name of each, and nanoseconds of the right magnitude, where training starts."""

COEFFICIENTS = tuple(GUESSES)

WHOLE_GUESSES = {"bytes_allocated": 0.002, "bytes_allocated_beyond_caches": 0.02}
"""The terms of a whole schedule, of its `working_set_at_root`: the name of each, and nanoseconds, as above."""

WHOLE = tuple(WHOLE_GUESSES)


def terms(schedule: Array, is_output: Array, machine: Array, xp: ModuleType = np) -> Array:
    """What each coefficient multiplies, with the names of appendix B.

    Args:
        schedule: [batch, stages, len(SCHEDULE)], any float dtype, not negative.
        is_output: [stages], 1 for outputs of the pipeline, else 0.
        machine: [len(MACHINE)].
        xp: numpy or jax.numpy.

    Returns:
        [batch, stages, 27], not negative, in the dtype of `schedule`.
    """
    f = SimpleNamespace(**dict(zip(SCHEDULE, schedule.T.copy(), strict=True)))  # [stages, batch] each, in one piece
    num_tasks = _m(f.inner_parallelism * f.outer_parallelism)
    tasks_per_core = num_tasks / _m(xp.asarray(machine, dtype=schedule.dtype)[MACHINE.index("cores")])
    idle_cores = xp.ceil(tasks_per_core) / _m(tasks_per_core)
    # the paper's max_threads_hitting_same_page_fault
    faulting = xp.minimum(f.inner_parallelism, PAGE / _m(f.innermost_bytes_at_task))
    rows = (*_compute(f, idle_cores), *_load(f, num_tasks), *_store(f, is_output[:, None] > 0), *_overhead(f, faulting))
    return xp.stack(rows).T


def _m(x: Array) -> Array:
    """The paper's m(x): at least 1."""
    return x.clip(min=1)


def _indicator(condition: Array, f: SimpleNamespace) -> Array:
    """1 where the condition holds, else 0, in the features' dtype: a product with it is the paper's select."""
    return condition.astype(f.num_vectors.dtype)


def _compute(f: SimpleNamespace, idle_cores: Array) -> tuple[Array, ...]:
    """c0 to c3: penalized_compute_cost."""
    inlined = _indicator(f.inlined_calls > 0, f)
    vectors, scalars = f.vector_size * f.num_vectors * idle_cores, f.num_scalars * idle_cores
    return inlined * vectors, inlined * scalars, (1 - inlined) * vectors, (1 - inlined) * scalars


def _load(f: SimpleNamespace, num_tasks: Array) -> tuple[Array, ...]:
    """c4 to c14: load_cost."""
    return (
        f.num_realizations * f.unique_lines_read_per_realization,
        f.num_realizations * f.unique_bytes_read_per_realization,
        f.num_vectors * f.vector_loads_per_vector,
        f.num_scalars * f.scalar_loads_per_scalar,
        f.num_vectors * f.scalar_loads_per_vector,
        f.num_scalars * f.unique_bytes_read_per_vector,
        f.num_vectors * f.unique_bytes_read_per_vector,
        f.num_scalars * f.unique_lines_read_per_vector,
        f.num_vectors * f.unique_lines_read_per_vector,
        num_tasks * f.unique_bytes_read_per_task,
        num_tasks * f.unique_lines_read_per_task,
    )


def _store(f: SimpleNamespace, output: Array) -> tuple[Array, ...]:
    """c15 to c20: store_cost. One of three places counts: read by other cores, an output, neither."""
    lines_written_per_realization = f.inner_parallelism * f.bytes_at_task / _m(f.innermost_bytes_at_task)
    lines, stored = f.num_realizations * lines_written_per_realization, f.num_realizations * f.bytes_at_realization
    parallel = f.inner_parallelism > 1
    places = tuple(_indicator(x, f) for x in (parallel, ~parallel & output, ~parallel & ~output))
    return (*(x * lines for x in places), *(x * stored for x in places))


def _overhead(f: SimpleNamespace, faulting: Array) -> tuple[Array, ...]:
    """c21 to c26: the costs of false sharing, page faults, malloc, launches, tasks and the working set."""
    parallel = _indicator(f.inner_parallelism > 1, f)
    return (
        parallel * (f.num_vectors + f.num_scalars) / _m(f.innermost_bytes_at_task),
        f.bytes_at_production * faulting * f.inner_parallelism * f.outer_parallelism,
        f.num_realizations,
        parallel * f.num_productions,
        f.num_productions * (_m(f.inner_parallelism) - 1),  # _m: inner_parallelism may be 0 where a stage is inlined
        f.working_set,
    )


def stage_costs(coefficients: Array, schedule: Array, is_output: Array, machine: Array, xp: ModuleType = np) -> Array:
    """Seconds of each stage, [batch, stages].

    Args:
        coefficients: nanoseconds for one unit of each term; they broadcast to [batch, stages, 27].
        schedule, is_output, machine, xp: as for `terms`.
    """
    found = (terms(schedule, is_output, machine, xp) * coefficients).sum(-1) * 1e-9
    return xp.maximum(found, streaming(schedule, xp.asarray(machine, dtype=schedule.dtype)))


def whole_terms(allocated: Array, machine: Array, xp: ModuleType = np) -> Array:
    """What the coefficients of a whole schedule multiply, [batch, len(WHOLE)], not negative.

    The paper has `working_set_at_root` among the features of every stage, where it would couple the costs of all loop
    nests, each of which is costed once. Here it has terms of its own, in addition to those of the nests: pages that are
    touched for the first time, and memory that the last cache does not hold from one nest to the next.

    Args:
        allocated: bytes that all of a schedule allocates, its `working_set_at_root`, [batch].
        machine: [len(MACHINE)].
        xp: numpy or jax.numpy.
    """
    cache = xp.asarray(machine, dtype=allocated.dtype)[MACHINE.index("l3_bytes")]
    return xp.stack((allocated, xp.maximum(allocated - cache, 0)), -1)


def streaming(schedule: Array, machine: Array) -> Array:
    """Seconds that memory takes at least for what each stage reads and writes, [batch, stages]; 0 where the last cache
    holds that. It is not in the paper, whose programs are shorter: of hundreds of whole arrays few are in a cache when
    they are read."""
    realizations, written, read = (
        schedule[..., SCHEDULE.index(name)]
        for name in ("num_realizations", "bytes_at_realization", "unique_bytes_read_per_realization")
    )
    cache, copied = machine[MACHINE.index("l3_bytes")], machine[MACHINE.index("bandwidth")]
    return realizations * (written + read) / (2 * copied) * (written + read > cache)
