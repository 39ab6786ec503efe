"""The terms of appendix B of Adams 2019, on stages worked out by hand from its formulas."""

from typing import Any

import numpy as np
import pytest

from hjit.model.feature_names import MACHINE, SCHEDULE
from hjit.model.terms import COEFFICIENTS, stage_costs, terms


def row(**features: float) -> np.ndarray:
    """Schedule features of one stage of one schedule, [1, 1, features]; those not named are zero."""
    x = np.zeros((1, 1, len(SCHEDULE)), np.float32)
    for name, value in features.items():
        x[0, 0, SCHEDULE.index(name)] = value
    return x


def machine(cores: int, **facts: float) -> np.ndarray:
    x = np.ones(len(MACHINE), np.float32)
    for name, value in {"cores": cores, "l3_bytes": 1e12, **facts}.items():
        x[MACHINE.index(name)] = value
    return x


def found(schedule: np.ndarray, *, is_output: bool = False, cores: int = 4) -> dict[int, float]:
    """The terms that are not zero, by the number of their coefficient in the paper."""
    values = terms(schedule, np.array([float(is_output)], np.float32), machine(cores))
    assert values.shape == (1, 1, 27)
    return {k: float(v) for k, v in enumerate(values[0, 0]) if v != 0}


def test_there_are_27_coefficients() -> None:
    assert len(COEFFICIENTS) == 27


def test_a_stage_without_features_costs_nothing() -> None:
    assert found(row()) == {}


# compute_cost = select(inlined_calls > 0, vector_size * num_vectors * c0 + num_scalars * c1, ... * c2 + num_scalars * c3)


def test_an_inlined_stage_pays_c0_and_c1_only() -> None:
    assert found(row(inlined_calls=810, vector_size=8, num_vectors=100, num_scalars=10)) == {0: 800, 1: 10}


def test_an_inlined_stage_without_parallelism_has_no_negative_terms() -> None:
    assert found(row(inlined_calls=810, num_productions=5, inner_parallelism=0, vector_size=8, num_vectors=100)) == {
        0: 800
    }


SERIAL = row(
    num_realizations=6,
    num_productions=12,
    inner_parallelism=1,
    outer_parallelism=1,
    bytes_at_realization=4096,
    bytes_at_production=2048,
    vector_size=16,
    num_vectors=50,
    num_scalars=7,
    scalar_loads_per_vector=2,
    vector_loads_per_vector=3,
    scalar_loads_per_scalar=5,
    unique_bytes_read_per_vector=192,
    unique_lines_read_per_vector=4,
    unique_bytes_read_per_realization=5000,
    unique_lines_read_per_realization=9,
    unique_bytes_read_per_task=60000,
    unique_lines_read_per_task=11,
    bytes_at_task=24576,
    innermost_bytes_at_task=512,
    working_set=8192,
)


def serial_terms() -> dict[int, float]:
    return {
        2: 16 * 50,
        3: 7,  # the tail
        4: 6 * 9,
        5: 6 * 5000,
        6: 50 * 3,
        7: 7 * 5,
        8: 50 * 2,
        9: 7 * 192,
        10: 50 * 192,
        11: 7 * 4,
        12: 50 * 4,
        13: 1 * 60000,
        14: 1 * 11,
        17: 6 * (1 * 24576 / 512),  # alpha, neither parallel nor an output
        20: 6 * 4096,  # beta
        22: 2048 * min(1, 4096 / 512) * 1 * 1,
        23: 6,
        26: 8192,
    }


def test_a_serial_stage_inside_a_pipeline() -> None:
    assert found(SERIAL) == pytest.approx(serial_terms())


def test_an_output_pays_for_stores_by_c16_and_c19() -> None:
    expected = serial_terms()
    expected[16], expected[19] = expected.pop(17), expected.pop(20)
    assert found(SERIAL, is_output=True) == pytest.approx(expected)


PARALLEL: dict[str, Any] = {
    "num_realizations": 1,
    "num_productions": 1,
    "inner_parallelism": 10,
    "outer_parallelism": 1,
    "bytes_at_realization": 40000,
    "bytes_at_production": 40000,
    "vector_size": 8,
    "num_vectors": 1200,
    "num_scalars": 400,
    "unique_bytes_read_per_task": 700,
    "unique_lines_read_per_task": 3,
    "bytes_at_task": 4000,
    "innermost_bytes_at_task": 2000,
}


@pytest.mark.parametrize("is_output", [False, True])
def test_a_parallel_stage(is_output: bool) -> None:
    # 10 tasks on 4 cores: 2.5 tasks a core, so that compute waits for ceil(2.5) / 2.5 = 1.2.
    expected = {
        2: 8 * 1200 * 1.2,
        3: 400 * 1.2,
        13: 10 * 700,
        14: 10 * 3,
        15: 1 * (10 * 4000 / 2000),  # alpha of a parallel stage, an output or not
        18: 1 * 40000,  # beta
        21: (1200 + 400) / 2000,
        22: 40000 * (4096 / 2000) * 10 * 1,  # min(10, 4096 / 2000) threads in one page
        23: 1,
        24: 1,
        25: 1 * (10 - 1),
    }
    assert found(row(**PARALLEL), is_output=is_output) == pytest.approx(expected)


def test_no_more_threads_fault_on_a_page_than_there_are() -> None:
    narrow = row(**{**PARALLEL, "innermost_bytes_at_task": 100})
    assert found(narrow)[22] == pytest.approx(40000 * 10 * 10)  # 4096 / 100 > 10


@pytest.mark.parametrize(
    ("inner", "outer", "cores", "factor"),
    [
        (1, 1, 8, 1),
        (8, 1, 8, 1),
        (9, 1, 8, 16 / 9),
        (3, 5, 8, 16 / 15),
        (1, 12, 8, 16 / 12),
        (1, 100, 1, 1),
        (0, 0, 8, 1),
    ],
)
def test_idle_cores_make_only_computing_dearer(inner: int, outer: int, cores: int, factor: float) -> None:
    s = row(
        inner_parallelism=inner,
        outer_parallelism=outer,
        vector_size=4,
        num_vectors=100,
        num_scalars=30,
        scalar_loads_per_scalar=2,
    )
    values = found(s, cores=cores)
    assert (values[2], values[3]) == pytest.approx((400 * factor, 30 * factor))
    assert values[7] == 30 * 2


def test_a_nested_stage_counts_tasks_by_those_around_it() -> None:
    values = found(
        row(
            inner_parallelism=1,
            outer_parallelism=6,
            num_productions=60,
            unique_bytes_read_per_task=100,
            bytes_at_production=50,
        )
    )
    assert values == pytest.approx({13: 6 * 100, 22: 50 * min(1, 4096) * 6})


def test_sizes_below_one_divide_as_one() -> None:
    values = found(
        row(
            num_realizations=2,
            inner_parallelism=2,
            outer_parallelism=1,
            bytes_at_task=30,
            innermost_bytes_at_task=0,
            num_vectors=5,
        )
    )
    assert (values[15], values[21]) == (2 * 2 * 30, 5)


def test_no_stage_is_faster_than_memory() -> None:
    """But where the last cache holds what it reads and writes."""
    schedule = row(num_realizations=3, bytes_at_realization=400, unique_bytes_read_per_realization=800)
    for cache, seconds in ((1000, 3 * (400 + 800) / (2 * 50)), (1300, 0)):
        cost = stage_costs(np.zeros(27), schedule, np.zeros(1), machine(4, l3_bytes=cache, bandwidth=50))
        assert cost == pytest.approx(seconds)


def test_the_cost_of_a_stage_is_in_nanoseconds_per_unit() -> None:
    both = np.concatenate([SERIAL, row(inlined_calls=810, vector_size=8, num_vectors=100, num_scalars=10)], axis=1)
    both = np.concatenate([both, both[:, ::-1]])
    c = np.arange(1.0, 28)
    first = sum((k + 1) * v for k, v in serial_terms().items())
    second = 1 * 800 + 2 * 10
    assert stage_costs(c, both, np.zeros(2), machine(4)) == pytest.approx(
        np.array([[first, second], [second, first]]) * 1e-9
    )


def test_each_stage_has_its_own_coefficients() -> None:
    two = np.concatenate([row(num_realizations=3)] * 2, axis=1)
    c = np.zeros((1, 2, 27))
    c[0, 0, 23], c[0, 1, 23] = 100, 7
    assert stage_costs(c, two, np.zeros(2), machine(4)) == pytest.approx(np.array([[300e-9, 21e-9]]))


def test_jax_computes_the_same_terms() -> None:
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    schedule = np.round(np.exp(rng.normal(2, 3, (5, 7, len(SCHEDULE))))).astype(np.float32)
    outputs = np.eye(7, dtype=np.float32)[-1]
    ours = terms(schedule, outputs, machine(6))
    theirs = terms(jnp.asarray(schedule), jnp.asarray(outputs), jnp.asarray(machine(6)), jnp)
    np.testing.assert_allclose(theirs, ours, rtol=1e-6)


def test_terms_keep_the_dtype_of_the_features() -> None:
    assert terms(SERIAL, np.zeros(1), machine(4).astype(np.float64)).dtype == np.float32
