"""The network of the cost model: its numbers, its files; and the weighted sum, which needs neither."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hjit.errors import ModelError
from hjit.model import network
from hjit.model.costs import Cost, WeightedSum
from hjit.model.feature_names import MACHINE, OPERATIONS, PIPELINE, SCHEDULE
from hjit.model.network import Network, load, prepare
from hjit.model.terms import COEFFICIENTS, WHOLE_GUESSES
from tests.test_import import loaded_by

AT_ROOT = SCHEDULE.index("working_set_at_root")
FACTS = np.array([8, 32, 32e3, 1e6, 16e6, 20e9], np.float32)
assert len(FACTS) == len(MACHINE)


def features(seed: int, batch: int = 4, stages: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Random features of a pipeline and of schedules; the last stage is the output."""
    rng = np.random.default_rng(seed)
    pipeline = rng.poisson(0.7, (stages, len(PIPELINE))).astype(np.float32)
    pipeline[:, PIPELINE.index("is_output")] = np.arange(stages) == stages - 1
    return pipeline, np.round(np.exp(rng.normal(3, 3, (batch, stages, len(SCHEDULE))))).astype(np.float32)


PIPE, SCHED = features(0)
NET = network.random(3)


# -- numbers


@pytest.mark.parametrize("cost", [NET, WeightedSum()])
def test_stages_of_several_nests_are_costed_together(cost: Cost) -> None:
    pipeline, schedule = features(1, 300, 5)
    schedule[..., SCHEDULE.index("working_set_at_root")] = 0  # which no nest knows
    prepared = cost.prepare(pipeline, FACTS)
    stages = np.random.default_rng(0).integers(0, 5, 2 * network.ROWS + 7)
    batch = np.arange(len(stages)) % 300
    wanted = prepared.stages(schedule)[batch, stages]
    np.testing.assert_allclose(prepared.rows(schedule[batch, stages], stages), wanted, rtol=1e-5)
    assert len(prepared.rows(schedule[:0, 0], stages[:0])) == 0


def test_coefficients_follow_section_4_2() -> None:
    """Figure 4 computed anew, one stage of one schedule at a time, in double precision."""
    a = {name: x.astype(np.float64) for name, x in NET.arrays.items()}
    found = NET.prepare(PIPE, FACTS).coefficients(SCHED)
    logged = PIPE.astype(np.float64)
    k = PIPELINE.index("reduction_points")
    logged[:, k] = np.log1p(logged[:, k])
    for i in range(SCHED.shape[0]):
        for j in range(SCHED.shape[1]):
            positive = 1 / (1 + np.exp(-a["pipeline_weights"]))
            algorithm = (logged[j] * a["pipeline_scale"]) @ positive
            normal = (np.log1p(SCHED[i, j].astype(np.float64)) - a["schedule_mean"]) * a["schedule_scale"]
            facts = (np.log1p(FACTS.astype(np.float64)) - a["machine_mean"]) * a["machine_scale"]
            schedule = np.maximum(normal @ a["schedule_weights"] + facts @ a["machine_weights"] + a["schedule_bias"], 0)
            stacked = np.concatenate([algorithm, schedule])
            last = stacked @ np.concatenate([a["pipeline_mix"], a["schedule_mix"]]) + a["mix_bias"]
            np.testing.assert_allclose(found[i, j], np.logaddexp(0, last) * np.exp(a["log_unit"]), rtol=1e-4)


def test_numpy_and_jax_agree() -> None:
    import jax.numpy as jnp

    jax_side = prepare(NET.arrays, PIPE, FACTS, jnp).stages(SCHED)
    np.testing.assert_allclose(jax_side, NET.stages(PIPE, SCHED, FACTS), rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_coefficients_are_positive(seed: int) -> None:
    pipeline, schedule = features(seed)
    found = network.random(seed).prepare(pipeline, FACTS).coefficients(schedule)
    assert found.shape == (4, 5, 27)
    assert (found > 0).all() and np.isfinite(found).all()


def test_costs_are_seconds_of_each_stage() -> None:
    found = NET.stages(PIPE, SCHED, FACTS)
    assert found.shape == (4, 5) and found.dtype == np.float32
    c = NET.prepare(PIPE, FACTS).coefficients(np.zeros_like(SCHED))
    only_mallocs = np.zeros_like(SCHED)
    only_mallocs[..., SCHEDULE.index("num_realizations")] = 1e-6  # so few that they do not change the coefficients
    np.testing.assert_allclose(NET.stages(PIPE, only_mallocs, FACTS), c[..., 23] * 1e-15, rtol=1e-3)


def test_a_stage_costs_the_same_with_others_and_alone() -> None:
    alone = SCHED.copy()
    alone[..., AT_ROOT] = 0  # what all stages share
    whole = NET.stages(PIPE, alone, FACTS)
    np.testing.assert_allclose(NET.stages(PIPE[[1, 3]], alone[2:3][:, [1, 3]], FACTS), whole[2:3][:, [1, 3]], rtol=1e-5)


# -- the working set of a whole schedule


def test_what_a_schedule_allocates_costs_beside_its_stages() -> None:
    stages, allocated = SCHED.copy(), np.array([0.0, 1e6, 16e6, 1e9])
    stages[..., AT_ROOT] = 0
    all_of_it = stages.copy()
    all_of_it[:, :3, AT_ROOT] = allocated[:, None]  # the others are not placed, or inlined
    prepared = NET.prepare(PIPE, FACTS)
    seconds = prepared.whole(allocated)
    assert seconds is not None and seconds[0] == 0 and (np.diff(seconds) > 0).all()
    by_byte, beyond = (1e-9 * x for x in WHOLE_GUESSES.values())
    np.testing.assert_allclose(seconds, by_byte * allocated + beyond * np.maximum(allocated - 16e6, 0), rtol=1e-5)
    more = prepared.stages(all_of_it).astype(np.float64) - prepared.stages(stages)
    np.testing.assert_allclose(more[:, :3], np.repeat(seconds[:, None] / 3, 3, 1), rtol=1e-3, atol=1e-9)
    assert not more[:, 3:].any()
    large = np.repeat(all_of_it, network.ROWS, 0)  # more than are worked out at once
    np.testing.assert_allclose(prepared.stages(large)[:: network.ROWS], prepared.stages(all_of_it), rtol=1e-6)


def test_weights_of_before_know_nothing_of_it(tmp_path: Path) -> None:
    """Those that come with hjit, and files that have no such array: the same costs, to the last bit."""
    from hjit.tuning.limits import WEIGHTS

    path = tmp_path / "weights.npz"
    NET.save(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name not in network.BEFORE}
    np.savez(path, **arrays)
    none = SCHED.copy()
    none[..., AT_ROOT] = 0
    for known in (load(path), load(WEIGHTS)):
        prepared = known.prepare(PIPE, FACTS)
        assert prepared.whole(np.array([1e9])) is None
        np.testing.assert_array_equal(prepared.stages(SCHED), prepared.stages(none))
    assert WeightedSum().prepare(PIPE, FACTS).whole(np.array([1e9])) is None


def test_stages_of_zeros_cost_nothing_and_change_no_other() -> None:
    more = NET.stages(np.pad(PIPE, ((0, 3), (0, 0))), np.pad(SCHED, ((0, 0), (0, 3), (0, 0))), FACTS)
    np.testing.assert_allclose(more[:, :5], NET.stages(PIPE, SCHED, FACTS), rtol=1e-5)
    assert (more[:, 5:] == 0).all()


@pytest.mark.parametrize("fact", MACHINE)
def test_facts_of_the_machine_matter(fact: str) -> None:
    other = FACTS.copy()
    other[MACHINE.index(fact)] *= 4
    assert (NET.prepare(PIPE, other).coefficients(SCHED) != NET.prepare(PIPE, FACTS).coefficients(SCHED)).any()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_pipeline_head_grows_with_every_operation(operation: str) -> None:
    ones = {
        **NET.arrays,
        "pipeline_mix": np.ones_like(NET.arrays["pipeline_mix"]),
    }  # so that coefficients show the embedding
    more = PIPE.copy()
    more[:, PIPELINE.index(f"op_{operation}")] += 1
    assert (prepare(ones, more, FACTS).embedded > prepare(ones, PIPE, FACTS).embedded).all()


def test_empty_batches_and_features_of_float64_are_fine() -> None:
    assert NET.stages(PIPE, SCHED[:0], FACTS).shape == (0, 5)
    np.testing.assert_array_equal(
        NET.stages(PIPE.astype(np.float64), SCHED.astype(np.float64), FACTS.astype(np.float64)),
        NET.stages(PIPE, SCHED, FACTS),
    )


def limited(**given: float) -> network.Network:
    """The network with other limits."""
    return network.Network({**NET.arrays, **{name: np.full_like(NET.arrays[name], x) for name, x in given.items()}})


def test_coefficients_do_not_change_beyond_the_limits() -> None:
    net = limited(schedule_high=3.0).prepare(PIPE, FACTS)
    np.testing.assert_array_equal(
        net.coefficients(np.full_like(SCHED, 1e3)), net.coefficients(np.full_like(SCHED, 1e9))
    )
    free = NET.prepare(PIPE, FACTS)
    assert (free.coefficients(np.full_like(SCHED, 1e3)) != free.coefficients(np.full_like(SCHED, 1e9))).any()


def test_a_point_of_many_operations_costs_as_several_of_some() -> None:
    per_point = np.array([x.endswith("_points") for x in COEFFICIENTS])
    some = np.where(network.COUNTS, 4, 1).astype(np.float32)[None]
    many = np.where(network.COUNTS, 12, 1).astype(np.float32)[None]
    net = limited(pipeline_high=4.0)
    a, b = (net.prepare(p, FACTS).coefficients(SCHED[:, :1]) for p in (some, many))
    np.testing.assert_allclose(b[..., per_point], 3 * a[..., per_point], rtol=1e-6)
    np.testing.assert_allclose(b[..., ~per_point], a[..., ~per_point], rtol=1e-6)


def test_random_networks_follow_their_seed() -> None:
    again, other = network.random(3), network.random(4)
    np.testing.assert_array_equal(again.stages(PIPE, SCHED, FACTS), NET.stages(PIPE, SCHED, FACTS))
    assert (other.stages(PIPE, SCHED, FACTS) != NET.stages(PIPE, SCHED, FACTS)).all()


def test_a_process_that_predicts_loads_no_jax() -> None:
    code = "import numpy as np, hjit.model.costs, hjit.model.fit\nfrom hjit.model import network, feature_names\n"
    code += "x = network.random(0).stages(*(np.ones(s) for s in ((2, len(feature_names.PIPELINE)), (3, 2, len(feature_names.SCHEDULE)), len(feature_names.MACHINE))))"
    assert loaded_by(code) == []


# -- files


def test_a_saved_network_predicts_the_same(tmp_path: Path) -> None:
    NET.save(tmp_path / "weights.npz")
    np.testing.assert_array_equal(
        load(tmp_path / "weights.npz").stages(PIPE, SCHED, FACTS), NET.stages(PIPE, SCHED, FACTS)
    )


def test_a_network_of_another_width_is_saved_too(tmp_path: Path) -> None:
    wide = network.random(0, 5, 48)
    wide.save(tmp_path / "weights")
    np.testing.assert_array_equal(
        load(tmp_path / "weights").stages(PIPE, SCHED, FACTS), wide.stages(PIPE, SCHED, FACTS)
    )


def saved(**changed: Any) -> bytes:
    """The bytes of a file of NET with other arrays, or without those that are None."""
    about = json.dumps({"format": network.FORMAT, **network.NAMES})
    arrays = {"about": np.array(about), **NET.arrays, **changed}
    out = io.BytesIO()
    np.savez(out, **{name: x for name, x in arrays.items() if x is not None})
    return out.getvalue()


def about(**changed: Any) -> bytes:
    return saved(about=np.array(json.dumps({"format": network.FORMAT, **network.NAMES, **changed})))


def refusal(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "weights.npz"
    path.write_bytes(data)
    with pytest.raises(ModelError, match="weights.npz") as error:
        load(path)
    return str(error.value)


def test_what_these_tests_write_is_read_when_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "weights.npz").write_bytes(saved())
    assert isinstance(load(tmp_path / "weights.npz"), Network)


@pytest.mark.parametrize("kind", ["pipeline", "schedule", "machine", "coefficients"])
def test_a_file_for_other_names_is_refused_and_says_which(kind: str, tmp_path: Path) -> None:
    ours = network.NAMES[kind]
    assert "moonlight" in refusal(tmp_path, about(**{kind: [*ours[:-1], "moonlight"]}))
    assert "moonlight" in refusal(tmp_path, about(**{kind: [*ours, "moonlight"]}))
    assert ours[0] in refusal(tmp_path, about(**{kind: ours[1:]}))
    assert "another order" in refusal(tmp_path, about(**{kind: ours[::-1]}))


def test_another_format_is_refused_by_its_name(tmp_path: Path) -> None:
    assert "hjit-network-99" in refusal(tmp_path, about(format="hjit-network-99"))


@pytest.mark.parametrize(
    "data", [b"", b"weights", b"PK\x03\x04", b"\x93NUMPY", b"\x80\x04N."], ids=["empty", "text", "zip", "npy", "pickle"]
)
def test_a_file_that_is_not_npz_is_refused(data: bytes, tmp_path: Path) -> None:
    assert "not a cost model" in refusal(tmp_path, data)


def test_npy_and_foreign_npz_are_refused(tmp_path: Path) -> None:
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, np.zeros(3))
    np.savez(npz, a=np.zeros(3))
    for data in (npy.getvalue(), npz.getvalue()):
        assert "not a cost model" in refusal(tmp_path, data)


@pytest.mark.parametrize(
    "json_text", ["", "[]", "3", "{}", '{"format": "hjit-network-2"}', '{"format": "hjit-network-2", "pipeline": 3}']
)
def test_a_description_that_is_none_is_refused(json_text: str, tmp_path: Path) -> None:
    assert "not a cost model" in refusal(tmp_path, saved(about=np.array(json_text)))


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = saved()
    for end in (*range(1, len(whole), len(whole) // 40), len(whole) - 1):
        assert "not a cost model" in refusal(tmp_path, whole[:end])


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    assert "not a cost model" in refusal(tmp_path, saved(mix_bias=np.array([print] * 27, dtype=object)))


@pytest.mark.parametrize(
    "changed",
    [
        {"mix_bias": None},
        {"mix_bias": np.zeros(26, np.float32)},
        {"mix_bias": np.zeros(27)},
        {"mix_bias": np.full(27, np.nan, np.float32)},
        {"schedule_weights": np.zeros((len(SCHEDULE), 25), np.float32)},
        {"extra": np.zeros(1, np.float32)},
    ],
    ids=["missing", "shape", "dtype", "nan", "width", "extra"],
)
def test_arrays_that_do_not_fit_are_refused_by_name(changed: dict[str, Any], tmp_path: Path) -> None:
    assert repr(next(iter(changed))) in refusal(tmp_path, saved(**changed))


@pytest.mark.parametrize("scalar", ["pipeline_mix", "schedule_mix"])
def test_widths_that_are_no_widths_are_refused(scalar: str, tmp_path: Path) -> None:
    assert "not a cost model" in refusal(tmp_path, saved(**{scalar: np.float32(1)}))


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "weights.npz")


# -- the weighted sum of the schedule-tree autoscheduler


def stage(*, operations: dict[str, int], is_output: bool = False, **schedule: float) -> tuple[np.ndarray, np.ndarray]:
    pipeline, features = np.zeros((1, len(PIPELINE))), np.zeros((1, 1, len(SCHEDULE)))
    for name, count in operations.items():
        pipeline[0, PIPELINE.index(f"op_{name}")] = count
    pipeline[0, PIPELINE.index("is_output")] = is_output
    for name, value in schedule.items():
        features[0, 0, SCHEDULE.index(name)] = value
    return pipeline, features


STORED: dict[str, float] = {
    "bytes_at_realization": 800,
    "points_computed_total": 200,
    "vector_size": 8,
    "num_vectors": 20,
    "num_scalars": 40,
    "scalar_loads_per_scalar": 3,
}


def test_weights_of_a_stored_stage() -> None:
    pipeline, schedule = stage(operations={"add": 2, "mul": 1, "sqrt": 1, "const": 5, "input_load": 3}, **STORED)
    # mem 0.1, loads 0.5, stores 0.5, arithmetic 1, mathematics 10; 8 * 20 + 40 = 200 points
    expected = 0.1 * 800 + 0.5 * 200 * 3 + 0.5 * 200 + 1.0 * 200 * 3 + 10.0 * 200 * 1
    assert WeightedSum().stages(pipeline, schedule, FACTS) == pytest.approx(np.array([[expected]]))


def test_an_output_has_no_memory_and_no_stores_of_its_own() -> None:
    pipeline, schedule = stage(operations={"sub": 1}, is_output=True, **STORED)
    assert WeightedSum().stages(pipeline, schedule, FACTS) == pytest.approx(np.array([[0.5 * 200 * 3 + 1.0 * 200]]))


def test_an_inlined_stage_computes_as_often_as_it_is_called() -> None:
    pipeline, schedule = stage(operations={"trig": 2, "add": 1}, inlined_calls=900, vector_size=8, num_vectors=50)
    assert WeightedSum().stages(pipeline, schedule, FACTS) == pytest.approx(np.array([[900 * (10.0 * 2 + 1.0)]]))


def test_the_weights_can_be_chosen() -> None:
    pipeline, schedule = stage(operations={"exp": 1, "div": 1}, **STORED)
    only = WeightedSum(mem=0, loads=0, stores=0, arithmetic=0, mathematics=2)
    assert only.stages(pipeline, schedule, FACTS) == pytest.approx(np.array([[400]]))


@pytest.mark.parametrize("cost", [NET, WeightedSum()], ids=["network", "weighted sum"])
def test_costs_prepared_for_a_graph_are_those_of_one_call(cost: Cost) -> None:
    ready = cost.prepare(PIPE, FACTS)
    for schedule in (SCHED, SCHED[:1]):
        found = ready.stages(schedule)
        assert found.shape == schedule.shape[:2] and (found >= 0).all()
        np.testing.assert_array_equal(found, cost.stages(PIPE, schedule, FACTS))
