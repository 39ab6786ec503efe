"""Tuning that goes on: what is timed, what is kept of it, how it ends, and that it is never slower as timed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import cache, cli
from hjit.call import compiling
from hjit.errors import OptionError, ScheduleError, TraceError
from hjit.kernels.runtime.kernel import Bound
from hjit.model import samples
from hjit.sched.search.refine import Schedule
from hjit.sched.search.search import keep_probability
from hjit.training import rounds
from hjit.tuning import autotune, candidates, decide, learning, plans, sampling
from hjit.tuning.autotune import Tuned
from hjit.tuning.learning import Learner, can_fit
from hjit.tuning.sampling import Sampler
from tests.sched.test_space import Program, blurred, product, pyramid
from tests.scripts import run_script
from tests.test_build import decided

Array = np.ndarray[Any, Any]
IMAGE = np.random.default_rng(3).standard_normal((70, 96)).astype(np.float32)
SECONDS = 30.0  # more than enough


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Few schedules, a bias in place of fits, and a cache of the test's own."""
    monkeypatch.setattr(plans, "_plans", {})
    for name, value in (("BATCH", 4), ("PLATEAU", 1), ("BATCH_SECONDS", 0.001), ("CONFIRMED_SECONDS", 0.001)):
        monkeypatch.setattr(autotune, name, value)
    monkeypatch.setattr(sampling, "NEIGHBOURS", 1)
    monkeypatch.setattr(autotune, "can_fit", lambda: False)
    with hjit.options(cache_dir=tmp_path):
        yield tmp_path


def trees_of_kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The schedules of kernels that are bound from now on, by the kernels' names; None is the default one."""
    trees: dict[str, Any] = {}
    real = compiling.bind

    def bind(scheduled: Any, *given: Any) -> Bound:
        bound = real(scheduled, *given)
        trees[bound.kernel.name] = scheduled.tree
        return bound

    monkeypatch.setattr(compiling, "bind", bind)
    return trees


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[bool, int], float]], None]:
    """Kernels take what a function says, of whether it is by the default schedule, and how many were timed before."""
    clock, order = [0.0], dict[str, int]()

    def by(seconds: Callable[[bool, int], float]) -> None:
        real, trees = Bound.run, trees_of_kernels(monkeypatch)

        def run(self: Bound, *given: Any) -> bool:
            number = order.setdefault(self.kernel.name, len(order))
            clock[0] += seconds(trees[self.kernel.name] is None, number)
            return real(self, *given)

        monkeypatch.setattr(Bound, "run", run)
        monkeypatch.setattr(
            candidates, "time", SimpleNamespace(perf_counter=lambda: clock[0], process_time=lambda: clock[0])
        )

    return by


@pytest.mark.parametrize("function", [blurred, pyramid, product, decided])
def test_a_tuned_function_computes_what_numpy_does(function: Any, small: Path) -> None:
    f = hjit.pipeline(function, tune="greedy")
    found = f.tune(IMAGE, budget=SECONDS)
    assert found.candidates > 1 and found.batches >= 1 and found.default > 0 and found.speedup >= 1
    assert f.tuned is found and "times as fast" in str(found)
    np.testing.assert_allclose(f(IMAGE), function(IMAGE), rtol=1e-5, atol=1e-5)
    assert f.stats.fallbacks == 0 and f.stats.verified
    assert any('"tune": "autotune"' in x.read_bytes().partition(b"\n")[0].decode() for x in small.glob("*.plan"))


def test_what_was_timed_joins_the_samples_that_weights_are_fitted_to(
    small: Path, timed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    timed(lambda is_default, number: 1.0 if is_default else 0.5 - number / 1000)
    f = hjit.pipeline(blurred, tune="greedy")
    found = f.tune(IMAGE, budget=SECONDS)
    ((_, about, data),) = cache.entries("samples", small)
    kept = samples.from_bytes(data, "")
    (program,) = kept.programs
    assert about["samples"] == len(program.runtimes) == len(kept.origins[0]) >= 2
    assert program.runtimes.min() == pytest.approx(found.seconds) and {*kept.origins[0]} == {"tuned"}

    fitted: list[int] = []
    monkeypatch.setattr(rounds.Training, "run", lambda *given: fitted.append(len(given[-1])))
    assert cli.main(["train", str(tmp_path / "a"), "--own"]) == 0
    assert cli.main(["train", str(tmp_path / "b")]) == 0
    assert fitted == [1, 0]


def test_the_arguments_stay_as_they_are() -> None:
    def raised(a: Array) -> Array:
        a += 1
        return a[1:] * a[:-1]

    f = hjit.pipeline(raised, tune="greedy")
    image = IMAGE.copy()
    f.tune(image, budget=SECONDS)
    np.testing.assert_array_equal(image, IMAGE)
    np.testing.assert_array_equal(f(image), (IMAGE + 1)[1:] * (IMAGE + 1)[:-1])
    np.testing.assert_array_equal(image, IMAGE + 1)


def test_what_is_not_faster_as_timed_is_not_kept(timed: Any) -> None:
    timed(lambda is_default, number: 1.0 if is_default else 1.0 + number / 100)
    f = hjit.pipeline(blurred, tune="greedy")
    found = f.tune(IMAGE, budget=SECONDS)
    assert found.candidates > 2 and found.speedup == 1 and found.seconds == pytest.approx(1.0)
    assert str(f.tree(IMAGE)) == str(hjit.pipeline(blurred, tune=False).tree(IMAGE))


def test_the_fastest_as_timed_is_kept(timed: Any) -> None:
    timed(lambda is_default, number: 1.0 if is_default else 0.5 - number / 1000)
    f = hjit.pipeline(blurred, tune="greedy")
    found = f.tune(IMAGE, budget=SECONDS)
    assert found.default == pytest.approx(1.0) and found.seconds == pytest.approx(
        0.5 - found.candidates / 1000, abs=0.01
    )
    assert str(f.tree(IMAGE)) != str(hjit.pipeline(blurred, tune=False).tree(IMAGE))


def test_one_that_is_fast_only_while_it_is_compared_is_not_kept(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [False]
    real = autotune._Tuning._confirmed

    def confirmed(self: Any, *given: Any) -> Any:
        ends[0] = True
        return real(self, *given)

    monkeypatch.setattr(autotune._Tuning, "_confirmed", confirmed)
    timed(lambda is_default, number: 1.0 if is_default else 2.0 if ends[0] else 0.5)
    f = hjit.pipeline(blurred, tune="greedy")
    assert f.tune(IMAGE, budget=SECONDS).speedup == 1 and ends[0]
    assert str(f.tree(IMAGE)) == str(hjit.pipeline(blurred, tune=False).tree(IMAGE))


def test_a_machine_that_gets_slower_is_no_loss(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "PLATEAU", 2)
    runs = itertools.count(1)
    timed(lambda is_default, number: next(runs) * (1.0 if is_default else 0.5 if number == 1 else 0.8))
    f = hjit.pipeline(blurred, tune="greedy")
    found = f.tune(IMAGE, budget=SECONDS)
    assert found.batches >= 3 and found.speedup > 1.5, "times of different batches are not compared as they are"


def test_it_ends_where_nothing_is_gained_and_where_the_time_is_over(
    timed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(lambda is_default, number: 1.0)
    f = hjit.pipeline(blurred, tune="greedy")
    found = f.tune(IMAGE, budget=SECONDS)
    assert found.why == "1 batches brought no gain" and found.batches == 2
    now = [0.0]

    def later() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(autotune, "time", SimpleNamespace(perf_counter=later))
    monkeypatch.setattr(autotune, "PLATEAU", 1000)
    assert f.tune(IMAGE, budget=200).why == "the time was over"


def test_an_interruption_keeps_the_best_so_far(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(lambda is_default, number: 1.0 if is_default else 0.5)
    real = Sampler.batch
    interrupted = []

    def batch(self: Sampler, *given: Any) -> Iterator[Schedule]:
        yield from itertools.islice(real(self, *given), 2)
        interrupted.append(True)
        raise KeyboardInterrupt

    monkeypatch.setattr(Sampler, "batch", batch)
    f = hjit.pipeline(blurred, tune="greedy")
    found = f.tune(IMAGE, budget=SECONDS)
    assert interrupted == [True] and found.why == "it was interrupted" and found.speedup == pytest.approx(2.0)
    assert str(f.tree(IMAGE)) != str(hjit.pipeline(blurred, tune=False).tree(IMAGE))
    g = hjit.pipeline(pyramid, tune="autotune")  # a first call gives its result all the same
    np.testing.assert_allclose(g(IMAGE), pyramid(IMAGE), rtol=1e-5)
    assert len(interrupted) == 2 and g.tuned is not None and g.tuned.why == "it was interrupted"


def test_an_interruption_before_anything_was_timed_keeps_nothing(monkeypatch: pytest.MonkeyPatch, small: Path) -> None:
    def interrupted(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(autotune._Tuning, "_known", interrupted)
    f = hjit.pipeline(blurred, tune="greedy")
    assert str(f.tune(IMAGE, budget=SECONDS)) == "not tuned: it was interrupted"
    assert list(small.glob("*.plan")) == []


def test_a_first_call_tunes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    real = autotune.autotune

    def counted(*given: Any) -> Tuned:
        runs.append(given)
        return real(*given)

    monkeypatch.setattr(autotune, "autotune", counted)
    for _ in range(2):
        f = hjit.pipeline(blurred, tune="autotune", tune_budget=SECONDS)
        np.testing.assert_allclose(f(IMAGE), blurred(IMAGE), rtol=1e-5)
        f(IMAGE)
    assert len(runs) == 1


SCRIPT = """
import sys
import numpy as np
import hjit
from hjit.tuning import autotune, autoschedule

for name, value in (("BATCH", 4), ("PLATEAU", 1)):
    setattr(autotune, name, value)

@hjit.pipeline(tune="greedy")
def f(a):
    soft = (a[:-2] + a[1:-1] + a[2:]) / 3
    return np.sqrt(np.abs(soft[:, :-2] + soft[:, 1:-1] + soft[:, 2:]))

def refused(*given):
    raise SystemExit("searched")

image = np.ones((600, 800), np.float32)
if "tune" in sys.argv[1:] or TUNES:
    found = f.tune(image, budget=30)
    assert found.default > 0
else:
    autoschedule.searched = refused
    f(image)
print(str(f.tree(image)))
"""


def test_a_plan_is_found_in_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path))
    trees = [run_script(tmp_path, f"TUNES = {tunes}\n{SCRIPT}") for tunes in (True, False)]
    assert trees[0] == trees[1] and trees[0].startswith("root")


def test_what_is_stored_runs_without_a_search(monkeypatch: pytest.MonkeyPatch, timed: Any) -> None:
    timed(lambda is_default, number: 1.0 if is_default else 0.5)
    hjit.pipeline(blurred, tune="greedy").tune(IMAGE, budget=SECONDS)

    def refused(*given: Any) -> Any:
        raise AssertionError("searched")

    monkeypatch.setattr(decide, "search", refused)
    plain = str(hjit.pipeline(blurred, tune=False).tree(IMAGE))
    for tune in ("stored", "greedy", "beam", "top_five", "autotune"):
        f = hjit.pipeline(blurred, tune=tune)
        np.testing.assert_allclose(f(IMAGE), blurred(IMAGE), rtol=1e-5)
        assert str(f.tree(IMAGE)) != plain
    g = hjit.pipeline(pyramid, tune="stored")  # nothing is: the default schedule
    assert str(g.tree(IMAGE)) == str(hjit.pipeline(pyramid, tune=False).tree(IMAGE))


def test_a_pipeline_without_searches_may_be_tuned(timed: Any) -> None:
    timed(lambda is_default, number: 1.0 if is_default else 0.5)
    f = hjit.pipeline(blurred, tune=False)
    plain = str(f.tree(IMAGE))
    f.tune(IMAGE, budget=SECONDS)
    assert str(f.tree(IMAGE)) != plain
    assert str(hjit.pipeline(blurred, tune=False).tree(IMAGE)) == plain, "another one asked for the default schedule"


def test_a_function_in_parts_is_tuned_part_by_part() -> None:
    def parted(a: Array) -> Array:
        soft = (a[1:] + a[:-1]) * 2
        count = len({round(x, 1) for x in soft[0].tolist()})  # too many decisions
        return np.sqrt(np.abs(soft[1:] - soft[:-1])) + count

    f = hjit.pipeline(parted, tune="greedy", on_unsupported="break")
    found = f.tune(IMAGE, budget=SECONDS)
    np.testing.assert_allclose(f(IMAGE), parted(IMAGE), rtol=1e-5)
    assert f.stats.parts > 0 and found.candidates > 1, str(found)


def test_what_cannot_be_tuned_says_why() -> None:
    f = hjit.pipeline(blurred, tune="greedy")
    f.use(f.schedule(IMAGE))
    with pytest.raises(ScheduleError, match="f.use"):
        f.tune(IMAGE)
    with pytest.raises(ScheduleError, match="GPU"):
        hjit.pipeline(blurred, target="cuda").tune(IMAGE)
    for wrong in (0, -1, float("nan"), "much", True):
        with pytest.raises(OptionError, match="budget"):
            hjit.pipeline(blurred).tune(IMAGE, budget=wrong)  # type: ignore[arg-type]
    with pytest.raises(TraceError):
        hjit.pipeline(lambda a: float(a.sum()) + len(str(a.tolist())), on_unsupported="raise").tune(IMAGE)
    assert "not tuned" in str(hjit.pipeline(lambda a: a[1:], tune="greedy").tune(IMAGE, budget=SECONDS))


def test_a_schedule_that_cannot_be_compiled_is_lost_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(make: Any, choice: Any, segments_of: Any) -> Any:
        raise ScheduleError("no")

    monkeypatch.setattr(autotune, "with_fixes", refused)
    f = hjit.pipeline(blurred, tune="greedy")
    found = f.tune(IMAGE, budget=SECONDS)
    assert found.lost > 0 and found.speedup == 1 and f"{found.lost} more could not be compiled" in str(found)
    np.testing.assert_allclose(f(IMAGE), blurred(IMAGE), rtol=1e-5)


def test_it_ends_where_llvm_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(make: Any, choice: Any, segments_of: Any) -> Any:
        monkeypatch.setattr(autotune, "is_busy", lambda: True)
        raise autotune.deadline.OverBudget("compiling")

    monkeypatch.setattr(autotune, "with_fixes", endless)
    found = hjit.pipeline(blurred, tune="greedy").tune(IMAGE, budget=SECONDS)
    assert 1 <= found.lost <= 2 and found.why == "it was stopped"


# -- samples, and what is learnt


def test_one_sample_in_twenty_drops_nothing() -> None:
    p = Program(blurred)
    sampler = Sampler(p.space, 0, SECONDS, lambda: False)
    assert sampler.keep**p.space.undecided_steps == pytest.approx(1 / 20)
    assert sampler.keep == pytest.approx(keep_probability(p.space.undecided_steps))


def test_samples_differ_and_the_plain_beam_and_local_search_are_among_them() -> None:
    p = Program(pyramid)
    sampler = Sampler(p.space, 0, SECONDS, lambda: False)
    start = Schedule(p.segment.default, frozenset())
    first = [*sampler.batch(12, start)]
    assert len(set(first)) > 4
    beam = [*sampler._beam()]
    assert set(beam) <= set(first)
    again = [*Sampler(p.space, 0, SECONDS, lambda: False).batch(12, start)]
    assert first == again, "equal seeds have equal samples"
    assert [*Sampler(p.space, 0, SECONDS, lambda: True).batch(12, start)] != []


def samples_of(p: Program, count: int) -> list[tuple[Schedule, float]]:
    """Schedules, with times that the cost model does not foresee: those of what is computed at the root are long."""
    sampler = Sampler(p.space, 1, SECONDS, lambda: False)
    found = dict.fromkeys(sampler.batch(count, Schedule(p.segment.default, frozenset())))
    rng = random.Random(0)
    return [(x, 1e-3 * len(x.tree.children) ** 2 * (1 + 0.01 * rng.random())) for x in found]


def test_without_jax_the_mean_error_is_corrected() -> None:
    p = Program(pyramid)
    learner = Learner(p.space, fits=False)
    some = samples_of(p, 12)
    for x, seconds in some:
        learner.add(x, seconds)
    assert not learner.learn(lambda: False) and learner.fitted == 0
    errors = [np.log(seconds / learner.predicted(x)) for x, seconds in some]
    assert np.mean(errors) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.skipif(not can_fit(), reason="JAX and Optax are not installed")
def test_with_jax_the_cost_model_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "FIT_PASSES", 200)
    p = Program(pyramid)
    some = samples_of(p, 16)
    before, after = Learner(p.space, fits=False), Learner(p.space, fits=True)
    for learner in (before, after):
        for x, seconds in some:
            learner.add(x, seconds)
        learner.learn(lambda: False)
    assert after.fitted == 1

    def error(learner: Learner) -> float:
        return float(np.mean([np.log(seconds / learner.predicted(x)) ** 2 for x, seconds in some]))

    assert error(after) < error(before)


def test_without_what_fits_nothing_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path))
    text = run_script(tmp_path, f"TUNES = True\n{SCRIPT.replace('budget=30', 'budget=3')}\nprint('jax' in sys.modules)")
    assert text.splitlines()[-1] == "False", "a short budget leaves no time for that"


# -- Anderson's modes


def test_one_shot_is_not_timed_and_the_top_five_are(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []

    def measured(kernels: Any, *_: Any) -> tuple[int, list[float]]:
        timed.append(len(kernels))
        return 0, [1.0] * len(kernels)

    monkeypatch.setattr(candidates, "measured", measured)
    one = hjit.pipeline(pyramid, tune="one_shot")
    np.testing.assert_allclose(one(IMAGE), pyramid(IMAGE), rtol=1e-5)
    assert timed == []
    five = hjit.pipeline(pyramid, tune="top_five")
    np.testing.assert_allclose(five(IMAGE), pyramid(IMAGE), rtol=1e-5)
    assert len(timed) == 1 and 2 <= timed[0] <= 6
    hjit.pipeline(pyramid, tune="one_shot")(IMAGE)
    hjit.pipeline(pyramid, tune="top_five")(IMAGE)
    assert len(timed) == 1, "plans are kept"
