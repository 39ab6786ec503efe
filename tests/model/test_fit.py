"""Fitting the network: a known truth is found again, and how samples are grouped, padded and measured."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hjit.errors import ModelError
from hjit.model import network
from hjit.model.costs import WeightedSum
from hjit.model.feature_names import MACHINE, OPERATIONS, PIPELINE, SCHEDULE
from hjit.model.fit import (
    BATCH,
    Accuracy,
    Program,
    Report,
    accuracy,
    fit,
    padded,
    same_program,
    scaled,
    split,
    steadied,
)
from hjit.model.network import Network, prepare
from hjit.model.terms import stage_costs

FACTS = np.array([8, 32, 32e3, 1e6, 16e6, 20e9], np.float32)
IS_OUTPUT = PIPELINE.index("is_output")


def schedules(rng: np.random.Generator, count: int, stages: int) -> np.ndarray:
    """Random features with the sizes of real ones: a million points of each stage, in more or fewer realizations and tasks."""
    shape = (count, stages)
    points = np.exp(rng.normal(13, 1, (1, stages))) * np.exp(np.abs(rng.normal(0, 0.5, shape)))
    vector, tail, parts = (
        2.0 ** rng.integers(2, 6, shape),
        rng.random(shape) ** 3,
        np.ceil(np.exp(rng.normal(3, 2, shape))),
    )
    tasks = np.where(rng.random(shape) < 0.5, np.ceil(np.exp(rng.normal(2, 1, shape))), 1)
    known = {
        "num_realizations": parts,
        "num_productions": parts * 2,
        "inner_parallelism": tasks,
        "outer_parallelism": np.where(tasks > 1, 1, 16),
        "vector_size": vector,
        "num_vectors": points * (1 - tail) / vector,
        "num_scalars": points * tail,
        "bytes_at_realization": points * 4 / parts,
        "bytes_at_production": points * 2 / parts,
        "bytes_at_task": points * 4 / tasks,
        "innermost_bytes_at_task": np.exp(rng.normal(7, 1, shape)),
        "unique_bytes_read_per_realization": points / parts * np.exp(rng.normal(1, 0.5, shape)),
        "vector_loads_per_vector": np.exp(rng.normal(1, 0.5, shape)),
        "scalar_loads_per_scalar": np.exp(rng.normal(1, 0.5, shape)),
        "unique_bytes_read_per_vector": np.exp(rng.normal(5, 1, shape)),
        "working_set": np.exp(rng.normal(12, 2, shape)),
    }
    features = np.zeros((*shape, len(SCHEDULE)))
    for name, values in known.items():
        features[..., SCHEDULE.index(name)] = np.round(values)
    return features


def truth(seed: int, programs: int, count: int, most: int = 8) -> list[Program]:
    """Programs whose runtimes follow the formula of the terms: computing costs by operation, all else by one number each."""
    rng = np.random.default_rng(seed)
    fixed = np.exp(rng.normal(np.log([1.0] * 2 + [0.1] * 2 + [0.05] * 22 + [0.01]), 1))
    by_operation = rng.random(len(OPERATIONS)) * 0.2
    found = []
    for _ in range(programs):
        stages = int(rng.integers(2, most + 1))
        pipeline = rng.poisson(0.6, (stages, len(PIPELINE))).astype(float)
        pipeline[:, IS_OUTPUT] = np.arange(stages) == stages - 1
        coefficients = np.tile(fixed, (stages, 1))
        coefficients[:, :4] *= (0.2 + pipeline[:, : len(OPERATIONS)] @ by_operation)[:, None]
        features = schedules(rng, count, stages)
        runtimes = stage_costs(coefficients, features, pipeline[:, IS_OUTPUT], FACTS).sum(-1)
        found.append(Program(pipeline, features, runtimes, FACTS))
    return found


FEW = truth(1, 6, 10)


# -- fitting


def test_a_known_truth_is_found_again() -> None:
    programs = truth(0, 120, 32, most=11)
    _, report = fit(programs, passes=15, learning_rate=1e-2)
    assert report.held_out is not None and report.held_out.programs == 24
    assert report.held_out.throughput_r2 > 0.95
    assert report.held_out.log_runtime_r2 > 0.98
    assert report.held_out.rank > 0.97
    assert report.held_out.choice < 1.05
    assert report.losses[-1] < report.losses[0] / 4
    untrained = accuracy(network.random(0), programs)
    assert untrained.rank < report.held_out.rank - 0.1  # what the fit has added to the terms


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_the_error_of_logarithms_finds_a_known_truth_too(decay: float) -> None:
    _, report = fit(truth(0, 60, 24, most=7), passes=12, learning_rate=1e-2, loss="log", decay=decay)
    assert report.held_out is not None
    assert report.held_out.rank > 0.9
    assert report.held_out.choice < 1.1


def test_decay_shrinks_what_tells_situations_apart() -> None:
    (free, _), (held, _) = fit(FEW, passes=4), fit(FEW, passes=4, decay=30.0)
    assert np.abs(held.arrays["schedule_mix"]).sum() < 0.8 * np.abs(free.arrays["schedule_mix"]).sum()
    assert np.abs(held.arrays["log_unit"]).sum() > 0.9 * np.abs(free.arrays["log_unit"]).sum()


def test_an_unknown_error_is_refused() -> None:
    with pytest.raises(ModelError, match="throughput, log"):
        fit(FEW, passes=1, loss="absolute")


def test_the_same_seed_gives_the_same_network_and_another_does_not() -> None:
    (one, first), (two, second), (three, third) = fit(FEW, passes=2), fit(FEW, passes=2), fit(FEW, passes=2, seed=1)
    assert first == second
    assert first.losses != third.losses
    for name, x in one.arrays.items():
        np.testing.assert_array_equal(x, two.arrays[name])
    assert any((x != three.arrays[name]).any() for name, x in one.arrays.items())


def test_a_fit_goes_on_from_a_network_and_keeps_its_normalisation() -> None:
    before, first = fit(FEW, passes=30, learning_rate=1e-2, held_out=0)
    after, second = fit(FEW[:3], passes=1, held_out=0, start=before)
    np.testing.assert_array_equal(after.arrays["schedule_mean"], before.arrays["schedule_mean"])
    assert second.losses[0] < first.losses[0] / 2


def test_what_one_machine_teaches_does_not_change_how_others_differ_from_it() -> None:
    start, _ = fit([replace(p, machine=FACTS * (1 + k % 3)) for k, p in enumerate(FEW)], passes=2)
    more, _ = fit(FEW, start=start, passes=2)
    changed = [not np.array_equal(more.arrays[name], start.arrays[name]) for name in ("schedule_bias", "pipeline_mix")]
    assert all(changed)
    np.testing.assert_allclose(more.arrays["machine_weights"], start.arrays["machine_weights"], atol=1e-6)


def test_facts_that_vary_are_learnt() -> None:
    both = [replace(p, machine=FACTS * np.array([1 + k % 2, 1, 1, 1, 1, 1], np.float32)) for k, p in enumerate(FEW)]
    start, _ = fit(both, passes=2)
    more, _ = fit(both, start=start, passes=2)
    moved = np.abs(more.arrays["machine_weights"] - start.arrays["machine_weights"]).max(1)
    assert moved[0] > 1e-4 and (moved[1:] < 1e-6).all()


def two_machines(power: float, off: float = 1.0) -> list[Program]:
    """Programs whose runtimes on a machine of four times the bandwidth are less by the same factor; a few of them by
    `off` times that."""
    found = []
    for k, p in enumerate(truth(2, 12, 6)):
        machine = FACTS * np.array([1, 1, 1, 1, 1, 4], np.float32)
        factor = 4.0**-power * (off if k < 3 else 1)
        found += [p, replace(p, machine=machine, runtimes=p.runtimes * factor)]
    return found


@pytest.mark.parametrize(("power", "expected"), [(0.6, 0.6), (0.0, 0.0), (1.5, 1.0), (-0.5, 0.0)])
def test_how_much_faster_machines_are_is_a_power_of_their_bandwidth(power: float, expected: float) -> None:
    programs = two_machines(power)
    start = network.random(0)
    net = scaled(start, programs)
    assert net.arrays["bandwidth_power"] == pytest.approx(expected, abs=0.02)
    assert scaled(net, programs).arrays["bandwidth_power"] == pytest.approx(expected, abs=0.02)
    p = programs[0]
    (before, after) = (x.stages(p.pipeline, p.schedule, p.machine).sum(-1) for x in (start, net))
    np.testing.assert_array_equal(before.argsort(), after.argsort())


def test_samples_that_other_work_slowed_down_do_not_change_the_power() -> None:
    assert scaled(network.random(0), two_machines(0.6, off=2.5)).arrays["bandwidth_power"] == pytest.approx(
        0.6, abs=0.1
    )


def test_one_machine_says_nothing_of_the_bandwidth() -> None:
    net = scaled(scaled(network.random(0), two_machines(0.6)), FEW)
    assert net.arrays["bandwidth_power"] == pytest.approx(0.6, abs=0.02)


def test_machines_of_more_bandwidth_than_was_seen_are_as_the_fastest_seen() -> None:
    programs = two_machines(0.6)
    net = scaled(network.random(0), programs)
    slow, fast, faster, slower = (
        net.prepare(programs[0].pipeline, FACTS * np.array([1, 1, 1, 1, 1, k], np.float32)).unit
        for k in (1, 4, 40, 0.1)
    )
    np.testing.assert_allclose(fast, slow * 4 ** -net.arrays["bandwidth_power"], rtol=1e-4)
    np.testing.assert_array_equal(faster, fast)
    np.testing.assert_array_equal(slower, slow)


def test_a_network_knows_the_range_of_what_it_was_fitted_to() -> None:
    """And a later fit makes it wider, never narrower."""
    larger = replace(FEW[0], schedule=FEW[0].schedule * 100, pipeline=FEW[0].pipeline * 100)
    before, _ = fit(FEW, passes=1, held_out=0)
    after, _ = fit([larger], passes=1, held_out=0, start=before)
    logs = np.concatenate([np.log1p(p.schedule).reshape(-1, len(SCHEDULE)) for p in FEW])
    assert (before.arrays["schedule_high"] <= logs.max(0)).all()
    assert (before.arrays["schedule_high"] >= np.median(logs, axis=0)).all()
    for high in ("schedule_high", "pipeline_high"):
        assert (after.arrays[high] >= before.arrays[high]).all()
        assert (after.arrays[high] > before.arrays[high]).any()
    np.testing.assert_array_equal(after.arrays["schedule_low"], before.arrays["schedule_low"])


def test_only_weights_are_trained() -> None:
    """A fit changes nothing of the network that it starts from, and of the new one all but the normalisation."""
    start = network.random(0)
    before = {name: x.copy() for name, x in start.arrays.items()}
    machines = [replace(p, machine=FACTS * k, runtimes=p.runtimes / k) for p in FEW for k in (1, 2)]
    after, _ = fit(machines, passes=1, start=start)
    for name, x in before.items():
        np.testing.assert_array_equal(start.arrays[name], x)
        fixed = name in network.FIXED and name not in network.SPEED
        assert (after.arrays[name] == x).all() == fixed, name
        assert after.arrays[name].dtype == np.float32


def test_a_feature_that_never_varied_has_no_effect() -> None:
    net, _ = fit(FEW, passes=1)
    pipeline, machine = FEW[0].pipeline, FEW[0].machine * 2  # all samples are of one machine
    np.testing.assert_array_equal(net.prepare(pipeline, machine).bias, net.prepare(pipeline, FEW[0].machine).bias)


def test_training_starts_with_features_and_runtimes_in_proportion() -> None:
    net, _ = fit(FEW, passes=1, learning_rate=0, held_out=0)
    logs = np.concatenate([np.log1p(p.schedule).reshape(-1, len(SCHEDULE)) for p in FEW])
    normal = (logs - net.arrays["schedule_mean"]) * net.arrays["schedule_scale"]
    varied = logs.std(0) > 0
    assert 0 < varied.sum() < len(SCHEDULE)
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(normal.std(0), varied, rtol=1e-3)
    errors = [np.log(net.stages(p.pipeline, p.schedule, p.machine).sum(-1) / p.runtimes) for p in FEW]
    assert np.concatenate(errors).mean() == pytest.approx(0, abs=1e-3)


def test_one_program_can_be_fitted_when_none_is_held_out() -> None:
    _, report = fit(FEW[:1], passes=1, held_out=0)
    assert report.held_out is None and report.trained.programs == 1
    with pytest.raises(ModelError, match="hold out fewer"):
        fit(FEW[:1], passes=1)
    with pytest.raises(ModelError, match="of 0 programs"):
        fit([])


def test_passes_are_shown_as_they_end() -> None:
    seen: list[tuple[int, float]] = []
    _, report = fit(FEW, passes=3, show=lambda number, loss: seen.append((number, loss)))
    assert seen == list(enumerate(report.losses))


def test_a_fitted_network_is_saved_and_loaded(tmp_path: Path) -> None:
    net, _ = fit(FEW, passes=1)
    net.save(tmp_path / "weights.npz")
    p = FEW[0]
    np.testing.assert_array_equal(
        network.load(tmp_path / "weights.npz").stages(p.pipeline, p.schedule, p.machine),
        net.stages(p.pipeline, p.schedule, p.machine),
    )


# -- batches


def reference_loss(net: Network, p: Program, chosen: np.ndarray) -> float:
    """The paper's error without padding, in NumPy."""
    predicted = net.stages(p.pipeline, p.schedule[chosen], p.machine).sum(-1)
    measured = p.runtimes[chosen]
    return float(np.mean((measured.min() / predicted - measured.min() / measured) ** 2))


@pytest.mark.parametrize("chosen", [[3], [5, 1, 8], list(range(10))])
def test_the_loss_is_that_of_the_paper_and_padding_does_not_change_it(chosen: list[int]) -> None:
    from hjit.model.fit import LOSSES, _loss, scaled

    net, p = scaled(network.random(0), FEW), FEW[0]
    batch = padded(p, np.array(chosen))
    assert batch["schedule"].shape == (BATCH, 8, len(SCHEDULE))
    assert float(_loss(net.arrays, batch, LOSSES["throughput"])) == pytest.approx(
        reference_loss(net, p, np.array(chosen)), rel=1e-3
    )


def test_the_times_of_parts_count_by_their_share() -> None:
    from hjit.model.fit import LOSSES, PARTS, _loss

    net, p = network.random(0), next(p for p in FEW if len(p.pipeline) > 2)
    costs = net.stages(p.pipeline, p.schedule, p.machine)
    part = np.minimum(np.arange(len(p.pipeline)), 1)  # the first stage, and all others
    seconds = np.zeros(costs.shape)
    seconds[:, 0], seconds[:, 1] = 2 * costs[:, 0], costs[:, 1:].sum(-1)
    whole = Program(p.pipeline, p.schedule, seconds.sum(-1), p.machine)
    known = replace(whole, part=np.tile(part, (len(costs), 1)), part_runtimes=seconds)
    chosen = np.arange(3)
    losses = [float(_loss(net.arrays, padded(x, chosen), LOSSES["log"])) for x in (whole, known)]
    share, counts = seconds[:3, 0] / seconds[:3].sum(-1), np.sqrt(whole.runtimes[:3].min() / whole.runtimes[:3])
    assert losses[1] - losses[0] == pytest.approx(PARTS * np.mean(counts * share * np.log(2) ** 2), rel=1e-3)


def test_the_error_of_logarithms_grows_slowly_where_a_sample_is_far_off() -> None:
    from hjit.model.fit import APART, COMMON, LOSSES

    measured, counts = np.ones(4), np.ones(4)
    near, far, farther, together = (
        float(LOSSES["log"](np.exp(np.array(x)), measured, counts))
        for x in ([0.1, -0.1, 0.1, -0.1], [2, -2, 2, -2], [3, -3, 3, -3], [0.2] * 4)
    )
    assert near == pytest.approx(0.1**2, rel=1e-3)
    assert far == pytest.approx(2 * APART * 2 - APART**2, rel=1e-3)
    assert farther - far == pytest.approx(2 * APART, rel=1e-3)
    assert together == pytest.approx(COMMON * 0.2**2, rel=1e-3)


def test_padding_does_not_change_costs() -> None:
    import jax.numpy as jnp

    net, p = network.random(0), FEW[1]
    batch = padded(p, np.array([4, 2]))
    costs = np.asarray(prepare(net.arrays, batch["pipeline"], batch["machine"], jnp).stages(batch["schedule"]))
    plain = net.stages(p.pipeline, p.schedule[[4, 2]], p.machine)
    np.testing.assert_allclose(costs[:2, : len(p.pipeline)], plain, rtol=1e-4)
    np.testing.assert_allclose(costs.sum(-1)[:2], plain.sum(-1), rtol=1e-4)
    assert batch["counts"].tolist() == [1, 1] + [0] * (BATCH - 2)


def test_programs_of_many_sizes_have_few_shapes() -> None:
    rng = np.random.default_rng(0)
    sizes = {}
    for stages in range(1, 33):
        p = Program(np.zeros((stages, len(PIPELINE))), schedules(rng, 2, stages), np.ones(2), FACTS)
        sizes[stages] = padded(p, np.array([0]))["pipeline"].shape[0]
    assert all(found >= stages for stages, found in sizes.items())
    assert set(sizes.values()) == {8, 16, 32}


def test_a_pass_uses_every_schedule_once_in_batches_of_one_program() -> None:
    from hjit.model.fit import _batches

    programs = truth(2, 3, 70)  # 32 + 32 + 6 schedules
    seen = []
    for batch in _batches(programs, np.random.default_rng(0)):
        seen += batch["runtimes"][batch["counts"] > 0].tolist()
        (mine,) = [p for p in programs if np.isin(batch["runtimes"], p.runtimes).all()]
        assert (batch["pipeline"][: len(mine.pipeline)] == mine.pipeline).all()
    assert sorted(seen) == sorted(t for p in programs for t in p.runtimes.tolist())


def test_the_same_program_is_never_on_both_sides() -> None:
    elsewhere = [Program(p.pipeline, p.schedule, p.runtimes * 2, p.machine * 2) for p in FEW]
    for seed in range(5):
        train, test = split([*FEW, *elsewhere], 0.3, np.random.default_rng(seed))
        assert (len(train), len(test)) == (8, 4)
        assert not {p.pipeline.tobytes() for p in train} & {p.pipeline.tobytes() for p in test}


def test_a_program_is_the_same_at_all_sizes_of_its_images() -> None:
    """What a reduction does for a point depends on how it is split, and that on the size."""
    larger = []
    for p in FEW:
        pipeline = p.pipeline.copy()
        for name in ("reduction_points", "op_const", "op_index", "access_strided"):
            pipeline[:, PIPELINE.index(name)] += 3
        larger.append(replace(p, pipeline=pipeline))
    assert [same_program(p) for p in larger] == [same_program(p) for p in FEW]
    assert len({same_program(p) for p in FEW}) == len(FEW)
    for seed in range(5):
        train, test = split([*FEW, *larger], 0.3, np.random.default_rng(seed))
        assert not {same_program(p) for p in train} & {same_program(p) for p in test}


# -- samples


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pipeline": np.zeros((3, 5))}, "pipeline of a program has the shape"),
        ({"schedule": np.zeros((4, 2, len(SCHEDULE)))}, "schedule of a program has the shape"),
        ({"machine": np.zeros(3)}, "machine of a program has the shape"),
        ({"runtimes": np.zeros(4)}, "runtime of a program is zero"),
        ({"runtimes": np.array([1, 2, -1, 3.0])}, "negative or not finite"),
        ({"runtimes": np.array([1, 2, np.nan, 3.0])}, "negative or not finite"),
        ({"schedule": np.full((4, 3, len(SCHEDULE)), np.inf)}, "negative or not finite"),
        ({"schedule": np.zeros((0, 3, len(SCHEDULE))), "runtimes": np.zeros(0)}, "shape"),
    ],
)
def test_samples_that_are_none_are_refused(changed: dict[str, np.ndarray], message: str) -> None:
    good = {
        "pipeline": np.zeros((3, len(PIPELINE))),
        "schedule": np.ones((4, 3, len(SCHEDULE))),
        "runtimes": np.ones(4),
        "machine": np.ones(len(MACHINE)),
    }
    assert Program(**good).runtimes.dtype == np.float32
    with pytest.raises(ModelError, match=message):
        Program(**{**good, **changed})


def test_the_working_set_of_a_schedule_has_terms_of_its_own() -> None:
    """No head of the network sees it, and weights that were fitted without it go on without it."""
    at_root, rng = SCHEDULE.index("working_set_at_root"), np.random.default_rng(0)
    programs = []
    for p in FEW:
        schedule = p.schedule.copy()
        schedule[..., at_root] = allocated = np.exp(rng.uniform(12, 20, (len(schedule), 1)))
        programs.append(replace(p, schedule=schedule, runtimes=p.runtimes + 5e-11 * allocated[:, 0]))
    net, _ = fit(programs, passes=2, held_out=0.0)
    seen = {name: net.arrays[name][at_root] for name in ("schedule_scale", "schedule_low", "schedule_high")}
    assert not any(seen.values())
    allocated = np.array([1e6, 1e9])
    seconds = net.prepare(programs[0].pipeline, FACTS).whole(allocated)
    assert seconds is not None and (seconds > 0).all()
    unfitted = np.full_like(net.arrays["whole_log_unit"], network.UNFITTED)
    again, _ = fit(programs, start=Network({**net.arrays, "whole_log_unit": unfitted}), passes=2, held_out=0.0)
    assert (again.arrays["whole_log_unit"] == unfitted).all()
    assert again.prepare(programs[0].pipeline, FACTS).whole(allocated) is None


# -- accuracy


class Foretold:
    """A cost that predicts given numbers for the program with so many stages."""

    def __init__(self, *seconds: list[float]) -> None:
        self.seconds = {k + 1: np.array(x) for k, x in enumerate(seconds)}

    def prepare(self, pipeline: np.ndarray, machine: np.ndarray) -> "Foretold":
        raise NotImplementedError

    def stages(self, pipeline: np.ndarray, schedule: np.ndarray, machine: np.ndarray) -> np.ndarray:
        n = len(pipeline)
        return np.repeat(self.seconds[n][:, None] / n, n, axis=1)


def measured(*seconds: list[float]) -> list[Program]:
    """Programs of 1, 2, ... stages with these runtimes."""
    return [
        Program(
            np.zeros((k + 1, len(PIPELINE))),
            np.zeros((len(x), k + 1, len(SCHEDULE))),
            np.array(x),
            np.ones(len(MACHINE)),
        )
        for k, x in enumerate(seconds)
    ]


def test_a_perfect_cost_is_perfect() -> None:
    assert accuracy(Foretold([1, 2, 3], [5, 4]), measured([1, 2, 3], [5, 4])) == Accuracy(
        2, 5, 1.0, 1.0, 1.0, pytest.approx(1.0), 1.0
    )


def test_machines_that_are_alike_have_one_bandwidth() -> None:
    facts = [(2, 64, 1, 1, 1, x) for x in (1.0, 9.0, 2.0)] + [(1, 64, 1, 1, 1, 5.0)]
    programs = [replace(p, machine=np.array(m)) for p, m in zip(measured([1], [1], [1], [1]), facts, strict=True)]
    assert [tuple(p.machine) for p in steadied(programs)] == [(2, 64, 1, 1, 1, 2.0)] * 3 + [(1, 64, 1, 1, 1, 5.0)]
    assert programs[1].machine[-1] == 9


def test_accuracy_by_hand() -> None:
    found = accuracy(Foretold([1, 2, 4], [2, 1]), measured([1, 4, 2], [1, 4]))
    # Throughputs 1, 1/4, 1/2, 1, 1/4 against predicted 1, 1/2, 1/4, 1/2, 1: squares of differences 0 + 1/16 + 1/16 + 1/4 + 9/16.
    assert found.throughput_r2 == pytest.approx(1 - (15 / 16) / (2.375 - 3**2 / 5))
    # Relative to 1, 1/2 and 1/4 predicted, to 1, 1/2, of 1, 1/4 and 1/2, 1, 1/4: squares 0 + 1/16 + 1/16, 1/4 + 9/16.
    assert found.relative_r2 == found.throughput_r2
    assert accuracy(Foretold([3, 6, 12], [2, 1]), measured([1, 4, 2], [1, 4])).relative_r2 == found.relative_r2
    # In powers of two: 0, 2, 1, 0, 2 measured, 0, 1, 2, 1, 0 predicted.
    assert found.log_runtime_r2 == pytest.approx(1 - 7 / (9 - 5**2 / 5))
    assert found.rank == pytest.approx((0.5 - 1) / 2)  # 1 - 6 (0 + 1 + 1) / (3 * 8), and the other upside down
    assert found.choice == pytest.approx((1 * 4) ** 0.5)


def test_ranks_of_equal_predictions_are_shared() -> None:
    expected = np.corrcoef([1.5, 1.5, 3, 4], [1, 2, 3, 4])[0, 1]
    assert accuracy(Foretold([7, 7, 9, 11]), measured([1, 2, 3, 4])).rank == pytest.approx(expected)
    assert accuracy(Foretold([7, 7, 7]), measured([1, 2, 3])).rank == 0


def test_what_samples_do_not_say_is_nan() -> None:
    assert np.isnan(accuracy(Foretold([1]), measured([1])).rank)
    assert np.isnan(accuracy(Foretold(), []).throughput_r2)


def test_any_cost_can_be_ranked() -> None:
    found = accuracy(WeightedSum(), FEW)
    assert -1 <= found.rank <= 1 and found.choice >= 1


def test_the_report_prints_as_a_table() -> None:
    report = Report(
        (0.5, 0.25), Accuracy(4, 128, 0.91, 0.93, 0.97, 0.9, 1.02), Accuracy(1, 32, 0.81, 0.83, 0.87, 0.8, 1.12)
    )
    assert str(report).splitlines() == [
        "                  trained  held out",
        "programs                4         1",
        "schedules             128        32",
        "throughput_r2       0.910     0.810",
        "relative_r2         0.930     0.830",
        "log_runtime_r2      0.970     0.870",
        "rank                0.900     0.800",
        "choice              1.020     1.120",
        "loss 0.5000 at first, 0.2500 after 2 passes",
    ]
    page = report._repr_html_()
    assert "<td>rank</td><td>0.900</td><td>0.800</td>" in page and "after 2 passes" in page
    assert "0.800" not in Report((0.5,), report.trained, None)._repr_html_()


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ModuleNotFoundError, match=r'needs optax: pip install "hjit\[train\]"'):
        fit([])
    monkeypatch.undo()
    with pytest.raises(ModelError):
        fit([])
