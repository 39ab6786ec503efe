"""What a process does that finds on disk what an earlier one has made: it traces, loads kernels, and runs them."""

from __future__ import annotations

import functools
import json
import marshal
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import cache
from tests.scripts import run_script

HEAD = """
    import json, sys, warnings
    import numpy as np
    import hjit

    calls = []
    GAIN = 3.0

    def counted(f):
        def call(*args):
            calls.append(f.__name__)
            return f(*args)
        return call
"""
TAIL = """
    plain = f.py_func
    result = f(*args)
    from hjit.call import build
    heavy = [m for m in ("numba", "llvmlite.binding", "hjit.trace.passes.canonical",
                         "hjit.tuning.decide", "hjit.verify.comparison") if m in sys.modules]
    s = f.stats
    expected = plain(*args)
    for x, y in zip(result if isinstance(result, tuple) else (result,),
                    expected if isinstance(expected, tuple) else (expected,)):
        assert np.allclose(x, y, rtol=1e-6, equal_nan=True), (x, y)
    print(json.dumps({"heavy": heavy, "compiled": s.compilations, "loaded": s.cache_hits, "traces": s.traces,
                      "verified": s.verified, "fallbacks": s.fallbacks}))
"""
STENCIL = """
    @hjit.pipeline
    def f(img, weight):
        blurred = (img[:-2] + img[1:-1] + img[2:]) / 3
        return img[1:-1] + weight * (blurred - img[1:-1]) * GAIN, np.sin(blurred) ** 0.3

    args = np.linspace(0, 1, 60 * 70).reshape(60, 70), 0.5
"""
DECISION = """
    @hjit.pipeline
    def f(img):
        if img.max() > 0.5:
            return np.exp(img) - img.mean()
        return np.log(img + 1)

    args = (np.linspace(0, 1, 60 * 70).reshape(60, 70),)
"""
LARGE_DECISION = """
    @hjit.pipeline
    def f(img):
        if np.sqrt(img).mean() > 0.5:
            return np.exp(img) - img.mean()
        return np.log(img + 1)

    args = (np.linspace(0, 1, 1100 * 1000).reshape(1100, 1000),)
"""
HELPED = """
    def helper(img):
        return np.hypot(img, 2)

    @hjit.pipeline
    def f(img):
        out = np.zeros_like(img)
        out[1:-1] = helper(img)[1:-1]
        return out, out.argmax()

    args = (np.linspace(0, 1, 60 * 70, dtype=np.float32).reshape(60, 70),)
"""
PRODUCT = """
    @hjit.pipeline
    def f(a, b):
        return np.maximum(a @ b, 0) + 1

    args = np.linspace(0, 1, 300 * 200).reshape(300, 200), np.linspace(-1, 1, 200 * 300).reshape(200, 300)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return runner(tmp_path, monkeypatch)


def runner(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """Runs a script in a process of its own, all with one cache; what it prints."""
    for name in ("HJIT_CHECK", "HJIT_TUNE"):
        patch.delenv(name)
    patch.setenv("HJIT_CACHE_DIR", str(folder / "cache"))

    def run(text: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run_script(folder, HEAD + text + TAIL).splitlines()[-1])
        return found

    return run


def entries(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / "cache").glob(f"*.{kind}"))


@pytest.mark.parametrize("text", [STENCIL, DECISION, LARGE_DECISION, HELPED, PRODUCT])
def test_it_loads_no_compiler_and_compares_nothing(text: str, run: Any) -> None:
    first, second = run(text), run(text)
    assert first["compiled"] > 0 and first["verified"] is True and "llvmlite.binding" in first["heavy"]
    assert second == {**second, "compiled": 0, "loaded": first["compiled"], "traces": 1, "verified": True}
    assert second["heavy"] == [] and second["fallbacks"] == 0


def test_numpy_does_not_run(run: Any) -> None:
    """The plain function runs in the first process, to be compared with; in the second it is only traced."""
    text = STENCIL.replace("blurred = ", "np.testing.assert_equal(0, 0); blurred = ") + "\n    f(*args)\n"
    counting = """
    from hjit.call.checks.verified_calls import VerifiedCalls
    original = VerifiedCalls.verify
    def verify(self, *args):
        calls.append("compared")
        return original(self, *args)
    VerifiedCalls.verify = verify
"""
    show = "\n    print(len(calls))\n    sys.exit(0)\n"
    assert run_lines(run, counting + text + show) == 1
    assert run_lines(run, counting + text + show) == 0


def run_lines(run: Any, text: str) -> int:
    found: int = run(text)  # the script ends before the tail: it prints a number
    return found


def test_a_changed_function_helper_or_global_is_noticed(run: Any) -> None:
    run(STENCIL)
    assert run(STENCIL)["compiled"] == 0
    assert run(STENCIL.replace("/ 3", "/ 4"))["compiled"] == 1
    assert run(STENCIL.replace("args =", "GAIN = 5.0\n    args ="))["compiled"] == 1
    assert run(STENCIL.replace("70), 0.5", "70), 0.7"))["compiled"] == 0  # a number that kernels take
    run(HELPED)
    assert run(HELPED.replace("np.hypot(img, 2)", "np.hypot(img, 3)"))["compiled"] > 0
    assert run(HELPED)["compiled"] == 0


def test_other_code_with_the_same_kernels_is_compared(run: Any) -> None:
    """A verdict is of the code that was traced, not of kernels alone."""
    run(STENCIL)
    same = run(STENCIL.replace("blurred = (", "unused = 1\n        blurred = ("))
    assert same["compiled"] == 0 and "hjit.verify.comparison" in same["heavy"] and same["verified"] is True


def test_another_size_is_canonicalised_and_then_stored(run: Any, tmp_path: Path) -> None:
    run(STENCIL)
    assert len(entries(tmp_path, "bound")) == 1
    smaller = STENCIL.replace("60 * 70).reshape(60, 70)", "50 * 70).reshape(50, 70)")
    assert run(smaller)["compiled"] == 0
    assert len(entries(tmp_path, "bound")) == 2
    assert run(smaller)["heavy"] == []


GREEDY = STENCIL.replace("@hjit.pipeline", "@hjit.pipeline(tune='greedy')")


@pytest.fixture(scope="module")
def greedy_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a first process leaves."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        runner(folder, patch)(GREEDY)
    return folder / "cache"


@pytest.mark.parametrize("kind", ["code", "plan", "bound", "verdict"])
@pytest.mark.parametrize("damage", [b"", b"{}", None])
def test_what_is_gone_or_damaged_costs_time_only(
    kind: str, damage: bytes | None, run: Any, tmp_path: Path, greedy_cache: Path
) -> None:
    shutil.copytree(greedy_cache, tmp_path / "cache")
    for path in entries(tmp_path, kind):
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-3] + damage)
    found = run(GREEDY)
    assert found["verified"] is True and found["compiled"] == (kind == "code")


# Prints what the first call came to, and what had to be computed while the function was traced
EVALUATING = """
    from hjit.call import build
    original, evaluated = build.evaluate, []
    build.evaluate = lambda rec, names, *args: evaluated.append(names) or original(rec, names, *args)
"""
EVALUATED = """
    results = [f(*args) for args in images]
    assert all(np.array_equal(result, f.py_func(*args)) for result, args in zip(results, images))
    print(json.dumps({"evaluated": len(evaluated), "traces": f.stats.traces, "fallbacks": f.stats.fallbacks}))
    sys.exit(0)
"""
CONDITIONS = """
    @hjit.pipeline
    def f(img):
        if img.min() < 0:
            img = img - img.min()
        return img * 2 if img.max() > 0.5 else img + 1

    image = np.linspace(0, 1, 60 * 70).reshape(60, 70)
    images = [(image,)]
"""


def evaluated(folder: Path, text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_script(folder, HEAD + EVALUATING + text + EVALUATED).splitlines()[-1])
    return found


@pytest.mark.parametrize("damage", [b"", b"[[1, 2]]", b'[["x", 1, "", 2]]'])
def test_conditions_are_taken_to_come_out_as_before(damage: bytes, run: Any, tmp_path: Path) -> None:
    found = functools.partial(evaluated, tmp_path)
    first, second = found(CONDITIONS), found(CONDITIONS)
    assert first == {"evaluated": 2, "traces": 1, "fallbacks": 0} and second == {**first, "evaluated": 0}
    other = CONDITIONS.replace("[(image,)]", "[(image / 4,), (image,), (image / 4,)]")
    assert found(other) == {"evaluated": 2, "traces": 2, "fallbacks": 0}  # and that is expected from then on
    assert found(CONDITIONS.replace("[(image,)]", "[(image / 4,)]")) == second
    moved = CONDITIONS.replace("img.max()", "img.mean()").replace(
        "        return img * 2", "        pass\n        return img * 2"
    )
    assert found(moved)["evaluated"] == 2  # another function
    for path in entries(tmp_path, "outcomes"):
        cache.store(path.stem, damage, {}, tmp_path / "cache", "rw", "outcomes")
    assert found(CONDITIONS) == first


def test_a_number_behind_an_assumed_condition_needs_no_compiler(run: Any) -> None:
    """The first process had computed it for the condition, and left no kernel of it."""
    counted = """
    @hjit.pipeline
    def f(img):
        below = np.count_nonzero(np.sqrt(img) * 2 + 1 < 1.5)
        if below > 0:
            return img + float(f"{below}")
        return img

    args = (np.linspace(0, 1, 700 * 700).reshape(700, 700),)
"""
    assert run(counted)["compiled"] > 0
    second = run(counted)
    assert (second["compiled"], second["heavy"]) == (0, [])


def test_a_condition_that_guards_a_call_is_computed(run: Any, tmp_path: Path) -> None:
    """The call might not bear what the condition keeps from it."""
    guarding = """
    @hjit.pipeline
    def f(img):
        if img.max() > 0.5:
            return img * 2
        return np.linalg.inv(img + np.eye(60))

    image = np.linspace(0, 1, 60 * 60).reshape(60, 60)
    images = [(image / 4,)]
    from hjit.trace.tracing.externs import calls
    real = calls.record_extern_call
    def record(rec, extern):
        outcome = real(rec, extern)
        assert not rec.known.assumed
        return outcome
    calls.record_extern_call = record
"""

    evaluated(tmp_path, guarding)
    assert evaluated(tmp_path, guarding)["evaluated"] >= 2
    assert evaluated(tmp_path, guarding.replace("[(image / 4,)]", "[(image,)]"))["fallbacks"] == 0


def test_a_changed_plan_is_noticed(run: Any, tmp_path: Path) -> None:
    """What traces came to follows from plans, which a longer search may replace."""
    large = STENCIL.replace("60 * 70).reshape(60, 70)", "600 * 700).reshape(600, 700)")
    run(large)
    (plan,) = entries(tmp_path, "plan")
    assert run(large)["heavy"] == []
    plan.unlink()
    assert "hjit.tuning.decide" in run(large)["heavy"]


def test_the_graph_and_the_schedule_can_be_asked_for(run: Any) -> None:
    show = "\n    f(*args)\n    g, t = str(f.graph(*args)), str(f.tree(*args))\n    assert 'sin' in g and 'root' in t\n"
    run(STENCIL)
    assert run(STENCIL + show)["compiled"] == 0


def test_a_verdict_is_kept_of_what_was_right_only(run: Any, tmp_path: Path) -> None:
    wrong = """
    from hjit.kernels.runtime.kernel import Bound
    run = Bound.run
    def wrong(self, arrays, outputs, *more):
        done = run(self, arrays, outputs, *more)
        outputs[0][...] = 7
        return done
    Bound.run = wrong
    import warnings
    warnings.simplefilter("ignore")
"""
    assert run(wrong + STENCIL)["verified"] is False
    assert entries(tmp_path, "verdict") == []
    assert run(STENCIL)["verified"] is True
    assert len(entries(tmp_path, "verdict")) == 1


def test_flipped_decisions_are_told_by_each_process_without_comparing_again(run: Any) -> None:
    flipped = """
    from hjit.kernels.runtime.kernel import Bound
    original = Bound.run
    def changed(self, arrays, outputs, *more):
        done = original(self, arrays, outputs, *more)
        outputs[0][3, 4] = ~outputs[0][3, 4]
        return done

    img = np.random.default_rng(0).random((60, 70))
    edge = np.exp(img)  # every element is at its threshold
    edge[::2] *= 2

    @hjit.pipeline
    def f(a, t):
        return np.exp(a) >= t

    if not FOUND:
        Bound.run = changed
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        f(img, edge)
    Bound.run = original
    told = [str(w.message) for w in seen]
    print(json.dumps([told, f.stats.flipped, f.stats.fallbacks, f.stats.verified]))
    sys.exit(0)
"""
    first, second = (run(flipped.replace("FOUND", str(found))) for found in (False, True))
    assert len(first[0]) == 1 and "differ from NumPy's by more than a rounding" in first[0][0]
    assert first[1] > 0 and first[3] is True
    assert second == first


PARTS = """
    def helper(img):
        return np.sqrt(img) * np.unique(img).size

    @hjit.pipeline(on_unsupported="break")
    def f(img):
        x = np.exp(img) - img.mean()
        lines = [str(v) for v in x[0] if v > 0]
        return helper(x * x) + len(lines) + np.log(x + 3)

    args = (np.linspace(0, 1, 60 * 70).reshape(60, 70),)
"""
BY_PARTS = """
    f(*args)
    all = [f, *(part for part, _, _ in f.parts.parts), *(p for _, p in f.parts.callees.made.values())]
    print(json.dumps({"traces": [f.stats.traces], "parts": len(all) - 1, "line": f.parts.kept[1], "why": f.parts.why}))
    sys.exit(0)
"""


def test_what_could_not_be_traced_is_split_at_once(run: Any, tmp_path: Path) -> None:
    counting = """
    from hjit.call import build
    original = build.traced_call
    refused = []
    def traced_call(*args, **kwargs):
        try:
            return original(*args, **kwargs)
        except Exception as error:
            refused.append(str(error))
            raise
    build.traced_call = traced_call
"""
    show = BY_PARTS.replace('"why"', '"refused": len(refused), "why"')

    def found(text: str) -> dict[str, Any]:
        return json.loads(run_script(tmp_path, HEAD + counting + text + show).splitlines()[-1])  # type: ignore[no-any-return]

    first, second = found(PARTS), found(PARTS)
    assert first["refused"] > 0 and entries(tmp_path, "refusal")
    assert second == {**first, "refused": 0}
    assert found(PARTS.replace("len(lines)", "len(lines) * 2"))["refused"] > 0  # another function
    assert found(PARTS.replace("70).reshape(60, 70)", "80).reshape(60, 80)"))["refused"] > 0  # another key
    for path in entries(tmp_path, "refusal"):
        path.write_bytes(path.read_bytes()[:-3])
    assert found(PARTS) == first


SPLITTING = """
    from hjit.call.stored import splits
    original, done = splits.split, []
    splits.split = lambda function, *args: done.append(function.__name__) or original(function, *args)
"""


@pytest.mark.parametrize("damage", [b"", marshal.dumps((1, 2)), marshal.dumps((1, {"a": (1, 2, 3)}, None, False, {}))])
def test_a_function_is_split_once(damage: bytes, run: Any, tmp_path: Path) -> None:
    show = BY_PARTS.replace('"why"', '"split": len(done), "result": float(f(*args).sum()), "why"')

    def found(text: str) -> dict[str, Any]:
        return json.loads(run_script(tmp_path, HEAD + SPLITTING + text + show).splitlines()[-1])  # type: ignore[no-any-return]

    first, second = found(PARTS), found(PARTS)
    assert first["split"] > 0 and second == {**first, "split": 0}
    counts_frames = PARTS.replace("return np.sqrt", "warnings.warn('w', stacklevel=3); return np.sqrt")
    assert found(counts_frames)["split"] > 0  # f itself has not changed
    for path in entries(tmp_path, "split"):
        cache.store(path.stem, damage, {}, tmp_path / "cache", "rw", "split")
    assert found(PARTS) == first


def test_a_split_of_a_source_that_has_changed_since_is_not_kept(run: Any, tmp_path: Path) -> None:
    text = """
    import pathlib, sys
    sys.path.insert(0, "FOLDER")
    import helping
    pathlib.Path(helping.__file__).write_text(pathlib.Path(helping.__file__).read_text().replace("img * 2", "img * 3"))
    helping.f(np.ones((40, 50)))
    print(json.dumps(helping.f.stats.parts))
    sys.exit(0)
""".replace("FOLDER", str(tmp_path))
    (tmp_path / "helping.py").write_text(
        "import hjit\nimport numpy as np\n\n\n@hjit.pipeline(on_unsupported='break')\ndef f(img):\n"
        "    x = img * 2 + np.exp(img)\n    y = str(x[0])\n    return x * len(y) + np.log(x + 3)\n"
    )
    assert int(run_script(tmp_path, HEAD + text).splitlines()[-1]) > 0
    assert entries(tmp_path, "split") == []


def test_a_refusal_ends_with_what_was_refused(run: Any, tmp_path: Path) -> None:
    """The file of a helper that could not be traced has changed: the function is traced again."""
    text = """
    sys.path.insert(0, "FOLDER")
    from helping import helper

    @hjit.pipeline(on_unsupported="break")
    def f(img):
        return helper(np.exp(img) + 1) * 2

    args = (np.linspace(0, 1, 60 * 70).reshape(60, 70),)
    f(*args)
    print(json.dumps({"parts": f.stats.parts, "traces": f.stats.traces, "compiled": f.parts is None}))
    sys.exit(0)
""".replace("FOLDER", str(tmp_path))
    helping = tmp_path / "helping.py"
    helping.write_text("import numpy as np\n\n\ndef helper(x):\n    return x * len(str(x[0, 0]) + str(np.unique(x)))\n")
    assert run_script(tmp_path, HEAD + text) == run_script(tmp_path, HEAD + text)
    assert entries(tmp_path, "refusal")
    helping.write_text("def helper(x):\n    return x * 2.5\n")
    assert json.loads(run_script(tmp_path, HEAD + text).splitlines()[-1])["compiled"]


def test_a_refusal_is_of_one_of_the_functions_that_another_one_makes(tmp_path: Path) -> None:
    """They have the same code, and what they do follows from words and functions that they are made with."""

    def made_with(how: str, show: Any) -> Any:
        def f(img: Any, *, more: bool = how == "text") -> Any:
            shown = show(img) if more else 1
            return img * 2 + shown

        return f

    a = np.linspace(0, 1, 60 * 70).reshape(60, 70)
    for _ in range(2):
        for how, show, is_refused in (
            ("text", lambda x: len(str(x)), True),
            ("text", lambda x: len(x), False),
            ("number", lambda x: len(str(x)), False),
        ):
            f = hjit.pipeline(made_with(how, show), cache_dir=str(tmp_path), cache="rw", on_unsupported="break")
            np.testing.assert_array_equal(f(a), f.py_func(a))
            assert (f.parts is not None) == is_refused
    assert len(list(tmp_path.glob("*.refusal"))) == 1
