"""What a function does besides computing is done at every call, as by the plain function, or the function is refused."""

# ruff: noqa: B028 - where a warning points to is tested
from __future__ import annotations

import collections
import contextvars
import decimal
import functools
import gc
import itertools
import logging
import os
import random
import secrets
import shutil
import subprocess
import sys
import threading
import traceback
import types
import uuid
import warnings
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from scipy import ndimage

import hjit
import hjit.call.checks.against_numpy
from hjit.trace.tracing.recording.recorder import tracing

IMAGE = np.random.default_rng(2).random((20, 30))
LOG = logging.getLogger("hjit.tests.effects")
ADAPTER = logging.LoggerAdapter(LOG, {"job": 3})
info = LOG.info


class Seen(logging.Handler):
    """Keeps what matters of log records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[Any, ...]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(
            (
                record.name,
                record.levelno,
                record.getMessage(),
                record.pathname,
                record.lineno,
                record.funcName,
                getattr(record, "job", None),
            )
        )


@pytest.fixture(autouse=True)
def seen() -> Iterator[Seen]:
    handler = Seen()
    LOG.addHandler(handler)
    logging.root.addHandler(handler)
    before = LOG.level, LOG.propagate
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    yield handler
    LOG.removeHandler(handler)
    logging.root.removeHandler(handler)
    LOG.level, LOG.propagate = before


def effects(seen: Seen, f: Any, *args: Any) -> tuple[Any, list[Any], list[Any]]:
    """What a call gives, logs and warns of."""
    seen.records.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = f(*args)
    found = [(str(w.message), w.category, w.filename, w.lineno) for w in caught]
    assert not any(issubclass(w.category, hjit.HjitWarning) for w in caught)
    return result, [*seen.records], found


def helper(img: Any) -> Any:
    warnings.warn("use another one", DeprecationWarning, stacklevel=2)
    return img + 1


def warns(img: Any) -> Any:
    warnings.warn("slow")
    warnings.warn_explicit("elsewhere", UserWarning, "elsewhere.py", 3)
    out = helper(img)
    if out.max() > 3:
        warnings.warn(RuntimeWarning(f"large: {out.shape}"))
    return out * 2


def logs(img: Any, gain: float) -> Any:
    LOG.info("mean of %s times %s", img.shape, gain)
    LOG.debug("not seen at first")
    out = img * gain
    LOG.warning("the first is %.5f, or %r", out[0, 0], float(out[0, 0]))
    if out[0, 0] > 1:
        ADAPTER.error("too much: %s", f"{out[0, 0]:.3f}")
    LOG.log(35, {"a": 1})
    info("stored %(what)s", {"what": "name"})
    logging.getLogger(LOG.name).critical("end")
    logging.warning("of the root")
    return out


@pytest.mark.parametrize("verify", ["first", "off"])
def test_warnings_at_every_call(seen: Seen, verify: str) -> None:
    p = hjit.pipeline(warns, verify=verify)
    for image in (IMAGE, IMAGE, IMAGE * 9, IMAGE, IMAGE * 9, IMAGE[:10]):
        ours, expected = effects(seen, p, image), effects(seen, warns, image)
        assert len(expected[2]) >= 3
        assert ours[1:] == expected[1:]
        np.testing.assert_array_equal(ours[0], expected[0])
    assert (p.stats.traces, p.stats.fallbacks) == (3, 0)


def test_warnings_from_a_module_that_runs_as_main(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader of `python -m package.module` knows it by that name, and refuses `__main__`."""
    monkeypatch.setitem(warns.__globals__, "__loader__", SourceFileLoader("package.module", __file__))
    monkeypatch.setitem(warns.__globals__, "__name__", "__main__")
    p = hjit.pipeline(warns)
    for _ in range(3):
        assert effects(seen, p, IMAGE)[1:] == effects(seen, warns, IMAGE)[1:]
    assert (p.stats.traces, p.stats.fallbacks) == (1, 0)


@pytest.mark.parametrize("verify", ["first", "off"])
def test_log_records_at_every_call(seen: Seen, verify: str) -> None:
    p = hjit.pipeline(logs, verify=verify)
    for image, gain in ((IMAGE, 1.0), (IMAGE, 2.0), (IMAGE * 9, 2.0), (IMAGE, 1.0), (IMAGE[:10], 1.0)):
        ours, expected = effects(seen, p, image, gain), effects(seen, logs, image, gain)
        assert len(expected[1]) >= 5
        assert ours[1:] == expected[1:]
    assert p.stats.fallbacks == 0
    LOG.setLevel(logging.DEBUG)
    assert "not seen at first" in [r[2] for r in effects(seen, p, IMAGE, 1.0)[1]]


def test_warnings_that_name_a_caller(seen: Seen) -> None:
    def f(img: Any) -> Any:
        warnings.warn("of the caller", stacklevel=2)
        warnings.warn("of its caller", stacklevel=3)
        return img + 1

    p = hjit.pipeline(f, verify="off")
    ours = [effects(seen, g, IMAGE)[2] for g in (p, p, f)]
    assert ours[0] == ours[1] == ours[2]
    assert [w[2] for w in ours[0]] == [__file__] * 2


def warns_callers(img: Any) -> Any:
    warnings.warn("of the caller", stacklevel=2)
    warns_callers_of_callers()
    LOG.warning("of the caller", stacklevel=2)
    return img + 1


def warns_callers_of_callers() -> None:
    warnings.warn("of the function", stacklevel=2)
    warnings.warn("of the caller", stacklevel=3)
    warnings.warn("of its caller", stacklevel=4)
    warnings.warn("of nobody", stacklevel=400)
    LOG.warning("of its caller", stacklevel=4)


def warns_callers_and_is_not_traced(img: Any) -> Any:
    warnings.warn("of the caller", stacklevel=2)
    LOG.warning("of its caller", stacklevel=3)
    sys.stdout.write("")
    return img + 1


@pytest.mark.parametrize(
    "options", [{}, {"verify": "off"}, {"disable": True}, {"on_unsupported": "numpy"}], ids=lambda x: "".join(x)
)
def test_warnings_name_the_same_caller_however_the_function_runs(
    seen: Seen, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hjit.call.checks.against_numpy, "MIN_SECONDS", 0.0)  # calls are timed, too
    monkeypatch.setattr(hjit.call.checks.against_numpy, "SUSPECT_RATIO", 0.0)
    f = warns_callers_and_is_not_traced if "on_unsupported" in options else warns_callers
    p = hjit.pipeline(f, **options)

    def call(g: Any) -> Any:
        return g(IMAGE)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(p)
    runs = [effects(seen, call, g) for g in (hjit.pipeline(f, verify="first") if not options else p, p, p, p, p, f)]
    for _, records, found in runs:
        assert records == runs[-1][1] and found == runs[-1][2]
        assert len(records) == (2 if f is warns_callers else 1)
    assert {w[2] for w in runs[-1][2]} >= {__file__}


def test_warnings_that_name_a_caller_are_shown_once_for_each() -> None:
    def calls(g: Any) -> None:
        for _ in range(4):
            g(IMAGE)
        for _ in range(4):
            g(IMAGE)

    lines = []
    for g in (warns_callers, hjit.pipeline(warns_callers)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            globals().pop("__warningregistry__", None)
            calls(g)
        lines.append([(str(w.message), w.filename, w.lineno) for w in caught])
        assert [w[0] for w in lines[-1]].count("of the caller") == 2
    assert lines[0] == lines[1]


def test_a_traceback_shows_the_source_of_frames_that_warnings_do_not_count() -> None:
    with pytest.raises(hjit.TraceError) as caught:
        hjit.pipeline(lambda img: print(img))(IMAGE)
    lines = [f.line for f in traceback.extract_tb(caught.value.__traceback__) if "compiled_function.py" in f.filename]
    assert "return self._call(key, args, kwargs)" in lines


def test_warnings_are_shown_once_where_that_is_asked_for() -> None:
    def f(img: Any) -> Any:
        warnings.warn("once")
        return img + 1

    for g in (f, hjit.pipeline(f)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            globals().pop("__warningregistry__", None)
            for _ in range(4):
                g(IMAGE)
        assert len(caught) == 1


def test_warnings_that_are_errors() -> None:
    def f(img: Any) -> Any:
        img += 1
        try:
            warnings.warn("caught")
        except UserWarning:
            img += 2
        warnings.warn("not caught", FutureWarning)
        img += 4
        return img

    p = hjit.pipeline(f, verify="off")
    for action in ("ignore", "error", "ignore", "error"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)  # type: ignore[arg-type]
            ours, expected = IMAGE.copy(), IMAGE.copy()
            for g, image in ((p, ours), (f, expected)):
                if action == "error":
                    with pytest.raises(FutureWarning, match="not caught"):
                        g(image)
                else:
                    g(image)
            np.testing.assert_array_equal(ours, expected)


def test_warnings_that_are_errors_but_for_filters_before() -> None:
    def f(img: Any) -> Any:
        warnings.warn("seen")
        return img + 1

    p = hjit.pipeline(f, verify="off")
    for before, fallbacks in (("always", 0), ("ignore", 0), ("error", 1)):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("error")
            warnings.simplefilter(before)  # type: ignore[arg-type]
            if fallbacks:
                with pytest.raises(UserWarning, match="seen"):
                    p(IMAGE)
            else:
                p(IMAGE)
        assert p.stats.fallbacks == fallbacks


def test_an_effect_sees_what_was_there_then(seen: Seen) -> None:
    def f(img: Any) -> Any:
        LOG.info("before %s", img[:2, 0])
        img[0] = 7
        LOG.info("after %s", img[:2, 0])
        img[0] = 8

    p = hjit.pipeline(f)
    for _ in range(3):
        ours, expected = (effects(seen, g, IMAGE.copy())[1] for g in (p, f))
        assert ours == expected


def test_a_call_that_starts_over_gives_no_effect_twice(seen: Seen) -> None:
    def f(img: Any, index: Any) -> Any:
        LOG.info("begin")
        if img.max() > 1:
            LOG.info("large")
        try:
            img = np.linalg.inv(img)
        except np.linalg.LinAlgError:
            LOG.info("singular")
        return img[index]

    def tried(g: Any, *args: Any) -> Any:
        try:
            return g(*args)
        except IndexError:
            return None

    square, good, bad = IMAGE[:20, :20], np.arange(3), np.array([90])
    calls = [
        (square, good),
        (square * 9, good),
        (square * 0, good),
        (square, bad),
        (square, good),
        (square * 9, bad),
        (square * 0, good),
    ]
    for start in range(len(calls)):
        p = hjit.pipeline(f)
        for args in (*calls[start:], *calls[:start]):
            assert effects(seen, tried, p, *args)[1] == effects(seen, tried, f, *args)[1]


def test_effects_of_loops(seen: Seen) -> None:
    def f(img: Any) -> Any:
        out = np.zeros_like(img)
        for y in range(img.shape[0]):
            LOG.info("row %d", y)
            out[y] = img[y] * 2
        return out

    p = hjit.pipeline(f)
    for _ in range(2):
        assert effects(seen, p, IMAGE)[1] == effects(seen, f, IMAGE)[1]


def test_numpy_own_warnings_from_python(seen: Seen) -> None:
    def f(img: Any) -> Any:
        return np.nanmean(img, axis=0)

    p = hjit.pipeline(f, verify="off")
    for image in (IMAGE, IMAGE * np.nan, IMAGE * np.nan, IMAGE):
        assert [w[:2] for w in effects(seen, p, image)[2]] == [w[:2] for w in effects(seen, f, image)[2]]


def test_what_is_ignored_stays_ignored(seen: Seen) -> None:
    def f(img: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("not seen")
            out = np.nanmean(img * np.nan, axis=0)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="nor this")
            warnings.warn("nor this one")
            warnings.warn("but this one")
        with np.errstate(all="ignore"):
            return out + scipy.special.xlogy(img, -img)[0]

    p = hjit.pipeline(f)
    for _ in range(3):
        ours, expected = effects(seen, p, IMAGE), effects(seen, f, IMAGE)
        assert [w[0] for w in expected[2]] == ["but this one"]
        assert ours[2] == expected[2]
    assert p.stats.fallbacks == 0


def divides_or_not(img: Any) -> Any:
    try:
        with np.errstate(divide="raise"):
            return 1 / img
    except FloatingPointError:
        return img


def turns_warnings_into_errors(img: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return 1 / img
        except RuntimeWarning:
            return img


def records_warnings(img: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = 1 / img
    return out * len(caught)


def logs_a_traceback(img: Any) -> Any:
    try:
        return np.linalg.inv(img)
    except np.linalg.LinAlgError:
        LOG.exception("singular")
        return img


class Counter:
    """A class whose attributes the function changes."""

    calls = 0
    names: Any = ("a",)


def counts_in_a_class(img: Any) -> Any:
    Counter.calls += 1
    Counter.names += ("b",)
    return img


def appended(x: Any, to: list[Any]) -> Any:
    to.append(x.max())
    return x


@pytest.mark.parametrize("f", [lambda to: lambda x: to.append(x.max()), lambda to: to.append,
    lambda to: functools.partial(appended, to=to)], ids=["closure", "method", "partial"])  # fmt: skip
def test_functions_among_the_arguments_that_change_something(f: Any) -> None:
    kept: list[Any] = []
    with pytest.raises(hjit.TraceError, match="that outlives"):
        hjit.pipeline(lambda img, keep: (keep(img), img * 2)[1])(IMAGE, f(kept))
    assert not kept


def counts() -> Any:
    n = 0

    def f(img: Any) -> Any:
        nonlocal n
        n += 1
        return img * n

    return f


SETTINGS = types.ModuleType("settings")
KEPT: list[Any] = []
keep = KEPT.append
USERS = collections.UserList([1.0])
CONTEXT: contextvars.ContextVar[float] = contextvars.ContextVar("context", default=1.0)


def sets_an_attribute_of_a_module(img: Any) -> Any:
    SETTINGS.calls = 3  # type: ignore[attr-defined]
    return img


def sets_an_attribute_of_a_function(img: Any) -> Any:
    counts.calls = 3  # type: ignore[attr-defined]
    return img


@pytest.mark.parametrize(
    "f",
    [
        sets_an_attribute_of_a_module,
        sets_an_attribute_of_a_function,
        lambda img: keep(1) or img,
        lambda img: USERS.append(2.0) or img,
        lambda img: img * CONTEXT.get(),
        lambda img: warnings.resetwarnings() or img,
        divides_or_not,
        turns_warnings_into_errors,
        records_warnings,
        logs_a_traceback,
        counts(),
        counts_in_a_class,
        lambda img: warnings.simplefilter("ignore") or img,
        lambda img: LOG.setLevel(3) or img,
        lambda img: (sys.stdout.write("computing"), img)[1],
        lambda img: (sys.stderr.write("computing"), img)[1],
        lambda img: os.makedirs("/nowhere/at/all") or img,
    ],
)
def test_what_cannot_be_done_at_every_call_is_refused(f: Any, capsys: Any) -> None:
    bad = np.zeros((5, 5))
    with pytest.raises(hjit.TraceError) as caught:
        hjit.pipeline(f)(bad)
    assert caught.value.origin is not None
    assert caught.value.origin.filename == __file__
    assert not KEPT and not hasattr(SETTINGS, "calls") and not hasattr(counts, "calls")
    assert capsys.readouterr() == ("", "")
    assert (Counter.calls, Counter.names) == (0, ("a",))


def test_the_plain_function_runs_instead() -> None:
    p = hjit.pipeline(divides_or_not, on_unsupported="numpy")
    with pytest.warns(hjit.HjitWarning, match=r"errstate\('raise'\)"):
        np.testing.assert_array_equal(p(IMAGE + 1), 1 / (IMAGE + 1))
    np.testing.assert_array_equal(p(IMAGE * 0), IMAGE * 0)


def test_text_of_numbers_is_that_of_each_call() -> None:
    def f(img: Any) -> Any:
        return f"{img.max():.3f} {img.max()} {float(img.max())!r} {img[0, 0]!s} {img.sum(axis=(0, 1), keepdims=True).astype(int)}"

    p = hjit.pipeline(f)
    for image in (IMAGE, IMAGE * 2, IMAGE):
        assert p(image) == f(image)
    assert p.stats.fallbacks == 0
    with pytest.raises(hjit.TraceError, match=r"format\(\) of an array"):
        hjit.pipeline(lambda img: f"{img}")(IMAGE)


def test_files_that_the_process_has_are_left_alone(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as file, pytest.raises(hjit.TraceError, match=r"file\.write"):
        hjit.pipeline(lambda img: (file.write("x"), img)[1])(IMAGE)
    assert (tmp_path / "log").read_text() == ""


TICKETS = itertools.count()
COUNTS = collections.Counter(a=1)
DICE = random.Random(3)
ROLL = DICE.random


def next_ticket(img: Any) -> Any:
    return img * next(TICKETS)


def counted(img: Any) -> Any:
    COUNTS["a"] += 1
    return img


def quietly_writes(img: Any) -> Any:
    try:
        Path("made by the function").write_text("x")
    except Exception:
        return img
    return img + 1


def imports_uuid(img: Any) -> Any:
    import uuid as names

    return img + names.uuid4().int % 7


def asks_for_the_environment(img: Any) -> Any:
    os.environ["HJIT_TESTS_EFFECTS"] = "1"
    return img


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda img: Path("made by the function").write_text("x") and img, r"open\('made by the function'\)"),
        (lambda img: Path("made by the function").mkdir() or img, r"os\.mkdir\('made by the function'\)"),
        (lambda img: shutil.copy(__file__, "made by the function") and img, "shutil.copyfile"),
        (lambda img: np.save("made by the function", IMAGE) or img, "open"),
        (lambda img: subprocess.run([sys.executable, "-c", ""]) and img, "subprocess.Popen"),
        (quietly_writes, "open"),
        (lambda img: img + os.urandom(1)[0], r"os\.urandom: its result changes from call to call"),
        (lambda img: img + secrets.token_bytes(1)[0], r"secrets\.token_bytes: its result changes from call to call"),
        (lambda img: img + secrets.randbits(4), r"secrets\.randbits: its result changes from call to call"),
        (lambda img: img + uuid.uuid1().int % 7, r"uuid\.uuid1: its result changes from call to call"),
        (imports_uuid, r"uuid\.uuid4: its result changes from call to call"),
        (lambda img: img + random.SystemRandom().random(), r"random\.SystemRandom\(\): without a seed"),
        (lambda img: img + random.Random().random(), r"random\.Random\(\): without a seed"),
        (lambda img: img + DICE.choice([1, 6]), r"random\.choice: its result changes from call to call"),
        (asks_for_the_environment, r"os\.environ\[\.\.\.\] = "),
        (next_ticket, "TICKETS: count: each call takes items"),
        (counted, "COUNTS: the function changes a Counter"),
    ],
)
def test_what_library_code_does_for_a_function_is_refused_before_it_is_done(
    f: Any, why: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hjit.TraceError, match=why):
        hjit.pipeline(f, cache="off")(IMAGE)
    assert list(tmp_path.iterdir()) == [] and dict(COUNTS) == {"a": 1}
    assert repr(TICKETS) == "count(0)" and "HJIT_TESTS_EFFECTS" not in os.environ


@pytest.mark.parametrize("draw", [ROLL, np.random.default_rng(0).random])
def test_a_draw_that_is_an_argument_is_made_at_every_call(draw: Any) -> None:
    p = hjit.pipeline(lambda img, draw: img + draw(), cache="off")
    assert not np.array_equal(p(IMAGE, draw), p(IMAGE, draw))


def test_generators_that_have_a_seed_or_are_not_used_are_no_effects() -> None:
    def f(img: Any) -> Any:
        return img + random.Random(3).random() + isinstance(DICE, random.Random)

    p, state = hjit.pipeline(f, cache="off"), DICE.getstate()
    for _ in range(3):
        np.testing.assert_array_equal(p(IMAGE), f(IMAGE))
    assert p.stats.fallbacks == 0 and p.stats.traces == 1 and DICE.getstate() == state
    same = hjit.pipeline(lambda img: img + uuid.uuid5(uuid.NAMESPACE_DNS, "hjit").int % 7, cache="off")
    np.testing.assert_array_equal(same(IMAGE), same.py_func(IMAGE))


def test_imports_and_counters_that_are_read_are_no_effects() -> None:
    def f(img: Any) -> Any:
        import tabnanny  # of the standard library, and imported by nobody else

        return img * COUNTS["a"] + COUNTS["nothing"] + bool(tabnanny.verbose)

    p = hjit.pipeline(f, cache="off")
    np.testing.assert_array_equal(p(IMAGE), IMAGE)
    COUNTS["a"] = 3
    try:
        np.testing.assert_array_equal(p(IMAGE), IMAGE * 3)
    finally:
        COUNTS["a"] = 1
    assert p.stats.fallbacks == 0


# -- traces that fail


@pytest.mark.parametrize("own", [False, True])
def test_a_function_whose_trace_fails_runs_once_a_call(seen: Seen, own: bool) -> None:
    def f(img: Any) -> Any:
        LOG.info("begin")
        warnings.warn("begun")
        img[0] = 5
        if own or tracing():
            raise RuntimeError("a gap of the tracer, or the function's own")
        LOG.info("end")
        return img * 2

    def tried(g: Any, img: Any) -> Any:
        try:
            return g(img)
        except RuntimeError as error:
            return str(error)

    p = hjit.pipeline(f, on_unsupported="numpy")
    if not own:
        with pytest.warns(hjit.HjitWarning, match="tracing raised RuntimeError"):
            p(IMAGE[:5].copy())
        assert [r[2] for r in seen.records] == ["begin", "end"]
    for _ in range(3):
        ours, expected = IMAGE.copy(), IMAGE.copy()
        a, b = effects(seen, tried, p, ours), effects(seen, tried, f, expected)
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:] == b[1:]
        np.testing.assert_array_equal(ours, expected)


def test_an_exception_of_its_own_is_raised_with_its_effects_once(seen: Seen) -> None:
    def f(img: Any) -> Any:
        LOG.info("begin")
        raise ValueError("never")

    p = hjit.pipeline(f)
    for _ in range(2):
        seen.records.clear()
        with pytest.raises(ValueError, match="never"):
            p(IMAGE)
        assert len(seen.records) == 1


@pytest.mark.parametrize("name", ["exists", "lexists", "isfile", "getsize", "access"])
def test_whether_a_file_exists_is_asked_at_every_call(name: str, tmp_path: Path) -> None:
    path = tmp_path / "flag"

    def function(a: Any) -> Any:
        match name:
            case "getsize":
                return a + os.path.getsize(path)
            case "access":
                there = os.access(path, os.R_OK)
            case "exists":
                there = os.path.exists(path)
            case _:
                there = getattr(os.path, name)(path)
        return a * 2 if there else a * 3

    f, a = hjit.pipeline(function, cache="off", verify="off"), np.ones((3, 4))
    path.write_text("xy")
    for change in (lambda: None, lambda: path.write_text("five!"), path.unlink, lambda: path.write_text("xy")):
        change()
        if path.exists() or name != "getsize":
            np.testing.assert_array_equal(f(a), function(a))
    assert f.stats.fallbacks == 0


PATH_QUESTIONS: dict[str, Callable[[Path], Any]] = {
    "exists": lambda path: path.exists(),
    "is_file": lambda path: path.is_file(),
    "is_dir": lambda path: path.is_dir(),
    "is_symlink": lambda path: path.is_symlink(),
    "resolve": lambda path: path.resolve() == path.parent.resolve() / "other",
    "samefile": lambda path: path.exists() and path.samefile(path.parent / "." / path.name),
    "joined": lambda path: (path.parent / path.name).exists(),
    "sibling": lambda path: path.with_name("sibling").with_name("flag").is_file(),
    "made": lambda path: Path(str(path)).exists(),
    "called on the class": lambda path: isinstance(path, Path) and type(path).exists(path),
    "cwd": lambda path: (Path.cwd() / path.name).exists() and (Path.cwd() / path.name).is_file(),
    "os": lambda path: os.path.exists(path),
    "caught": lambda path: _size(path) == 4,
    "owner": lambda path: path.exists() and len(path.owner()) > 0,
}


def _size(path: Path) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return -1


@pytest.mark.parametrize("name", PATH_QUESTIONS)
def test_a_path_is_asked_at_every_call(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, other, question = tmp_path / "flag", tmp_path / "other", PATH_QUESTIONS[name]

    def captured(a: Any) -> Any:
        return a * 2 if question(path) else a * 3

    def given(a: Any, path: Path) -> Any:
        return a * 2 if question(path) else a * 3

    f, g = (hjit.pipeline(x, cache="off", verify="off") for x in (captured, given))
    a = np.ones((3, 4))
    other.write_text("four")
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: path.write_text("four"),
        path.unlink,
        lambda: path.symlink_to(other),
        path.unlink,
        path.mkdir,
        path.rmdir,
    ]
    for change in changes:
        change()
        for _ in range(2):
            np.testing.assert_array_equal(f(a), captured(a))
            np.testing.assert_array_equal(g(a, path), given(a, path))
    assert f.stats.fallbacks == g.stats.fallbacks == 0
    assert f.stats.traces < len(changes)  # an answer that came before has a trace already


def test_the_status_of_a_path_is_refused(tmp_path: Path) -> None:
    for f in (lambda a: a + tmp_path.stat().st_size, lambda a: a + tmp_path.lstat().st_size):
        with pytest.raises(hjit.TraceError, match=r"pathlib\.Path\.stat"):
            hjit.pipeline(f)(IMAGE)


def test_a_path_is_a_path_to_the_function(tmp_path: Path) -> None:
    def f(a: Any) -> Any:
        assert isinstance(tmp_path, Path) and type(tmp_path) is type(Path("x"))
        text = f"{tmp_path} {tmp_path!r} {tmp_path.name} {Path('b', 'c').as_posix()} {tmp_path == Path(str(tmp_path))}"
        LOG.info("%r %s", tmp_path, {tmp_path: 1}[tmp_path])
        return a + len(text)

    p = hjit.pipeline(f)
    for _ in range(3):
        np.testing.assert_array_equal(p(IMAGE), f(IMAGE))
    assert p.stats.fallbacks == 0


def test_environment_variables_are_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = os.environ

    def f(a: Any) -> Any:
        first = float(os.environ.get("HJIT_TESTS_GAIN", "1")) + float(os.getenv("HJIT_TESTS_GAIN", "1"))
        second = 5 if "HJIT_TESTS_GAIN" in environ and environ["HJIT_TESTS_GAIN"] == "2" else 7
        return a * first + second + sum(name.startswith("HJIT_TESTS_GAIN") for name in os.environ.copy())

    p = hjit.pipeline(f, cache="off", verify="off")
    for value in ("2", "3", None, "2"):
        if value is None:
            monkeypatch.delenv("HJIT_TESTS_GAIN")
        else:
            monkeypatch.setenv("HJIT_TESTS_GAIN", value)
        for _ in range(2):
            np.testing.assert_array_equal(p(IMAGE), f(IMAGE))
    assert p.stats.fallbacks == 0 and p.stats.traces == 3


def test_the_working_folder_is_asked_at_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(lambda a: a + len(os.getcwd()) + len(os.path.abspath("x")))
    for folder in ("a", "longer", "a"):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        np.testing.assert_array_equal(p(IMAGE), p.py_func(IMAGE))
    assert p.stats.fallbacks == 0


def _more_digits() -> None:
    np.set_printoptions(precision=np.get_printoptions()["precision"] + 1)


def _larger_buffers() -> None:
    np.setbufsize(np.getbufsize() + 16)


def _other_errors() -> None:
    np.seterr(under="warn" if np.geterr()["under"] == "ignore" else "ignore")


def _other_garbage() -> None:
    gc.disable() if gc.isenabled() else gc.enable()


def _deeper() -> None:
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)


def _longer_path() -> None:
    sys.path.append("nowhere")


def _more_precise() -> None:
    decimal.getcontext().prec += 1


@pytest.mark.parametrize(
    ("change", "look"),
    [
        (_more_digits, lambda: np.get_printoptions()["precision"]),
        (_larger_buffers, np.getbufsize),
        (_other_errors, lambda: np.geterr()["under"]),
        (_other_garbage, gc.isenabled),
        (_deeper, sys.getrecursionlimit),
        (_longer_path, lambda: len(sys.path)),
        (_more_precise, lambda: decimal.getcontext().prec),
    ],
)
def test_settings_that_outlive_a_function_change_at_every_call(change: Any, look: Any) -> None:
    def f(a: Any) -> Any:
        change()
        return a * 2

    with np.errstate(), np.printoptions(), decimal.localcontext():
        path = sys.path[:]
        limit, buffer = sys.getrecursionlimit(), np.getbufsize()
        try:
            pipe = hjit.pipeline(f, on_unsupported="break", numpy_if_faster=False, verify="off", cache="off")
            seen = [look()]
            for _ in range(4):
                np.testing.assert_array_equal(pipe(IMAGE), IMAGE * 2)
                seen.append(look())
            assert all(x != y for x, y in itertools.pairwise(seen))
        finally:
            sys.path[:] = path
            gc.enable()
            sys.setrecursionlimit(limit)
            np.setbufsize(buffer)
        with pytest.raises(hjit.TraceError, match="outlives|reads or writes"):
            hjit.pipeline(f, on_unsupported="raise")(IMAGE)


def test_a_setting_that_is_put_back_is_no_effect() -> None:
    def f(a: Any) -> Any:
        before = np.seterr(all="ignore")
        found = np.sqrt(a - 1)
        np.seterr(**before)
        return found

    pipe = hjit.pipeline(f, on_unsupported="raise", cache="off")
    np.testing.assert_array_equal(pipe(IMAGE), f(IMAGE))


def test_a_counter_among_the_attributes_of_a_function_counts() -> None:
    def counted(a: Any) -> Any:
        counted.calls = getattr(counted, "calls", 0) + 1  # type: ignore[attr-defined]
        return a * 2

    pipe = hjit.pipeline(counted, on_unsupported="break", numpy_if_faster=False, cache="off")
    for _ in range(5):
        np.testing.assert_array_equal(pipe(IMAGE), IMAGE * 2)
    assert counted.calls == 5  # type: ignore[attr-defined]


def left_by_a_refusal(a: Any) -> Any:
    def rows() -> Iterator[Any]:
        with np.errstate(all="ignore"):
            for row in a:
                yield row / 2

    found = rows()
    first = next(found)
    print(end="")
    return first


def refused_where_it_is_closed(a: Any) -> Any:
    def rows() -> Iterator[Any]:
        for row in a:
            try:
                yield row.sum()
            finally:
                print(end="")

    return a + next(x for x in rows() if x is not None)


@pytest.mark.parametrize("f", [left_by_a_refusal, refused_where_it_is_closed])
def test_generators_that_are_closed_early_say_nothing(
    f: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    pipe = hjit.pipeline(f, on_unsupported="break", numpy_if_faster=False, cache="off")
    for _ in range(3):
        np.testing.assert_array_equal(pipe(IMAGE), f(IMAGE))
    gc.collect()
    assert capsys.readouterr().err == ""
    with pytest.raises(hjit.TraceError, match="print"):
        hjit.pipeline(f, on_unsupported="raise", cache="off")(IMAGE)
    gc.collect()
    assert capsys.readouterr().err == ""


SIZE_WARNINGS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda a: a.mean(), (np.zeros((0, 5)),)),
    (lambda a: a[:0].mean() + a, (np.ones(30),)),
    (lambda a: np.mean(a, axis=1), (np.zeros((3, 0), np.float32),)),
    (lambda a: a.mean(axis=0), (np.zeros((3, 0)),)),
    (lambda a: a.mean(), (np.zeros((0, 5), complex),)),
    (lambda a: a.std(ddof=1), (np.zeros(1),)),
    (lambda a: np.var(a), (np.zeros(0),)),
    (lambda a: np.var(a, ddof=3, axis=0) + 1, (np.zeros((2, 5)),)),
    (lambda a: a.var(), (np.zeros((0, 5), complex),)),
    (lambda a, k: a.std(ddof=k), (np.ones(20), 25)),
]


@pytest.mark.parametrize("verify", ["first", "off"])
def test_numpys_warning_of_a_mask_without_out(seen: Seen, verify: Any) -> None:
    def unsaid(a: Any) -> Any:
        return np.where(a > 0.5, np.divide(1.0, a, where=a > 0.5), 0)

    def said(a: Any) -> Any:
        return np.where(a > 0.5, np.divide(1.0, a, out=None, where=a > 0.5), 0)

    for f in (unsaid, said):
        pipe = hjit.pipeline(f, verify=verify, on_unsupported="raise", numpy_if_faster=False, cache="off")
        for image in (IMAGE, IMAGE, IMAGE * 0.9):
            ours, expected = effects(seen, pipe, image), effects(seen, f, image)
            assert ours[1:] == expected[1:]
            assert len(expected[2]) == (f is unsaid)
            np.testing.assert_array_equal(ours[0], expected[0])


@pytest.mark.parametrize(("function", "args"), SIZE_WARNINGS)
def test_numpys_warnings_of_sizes(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Those of invalid values aside, which README says are not given."""

    def texts(f: Callable[..., Any]) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            f(*args)
        given = [str(w.message) for w in found]
        return [t for t in given if not t.startswith(("invalid value", "divide by zero"))]

    f = hjit.pipeline(function, verify="off")
    assert [texts(f) for _ in range(3)] == [texts(function)] * 3
    assert not f.stats.fallbacks


# -- warnings of library code that runs once, while the function is traced


def fits_a_line(img: Any) -> Any:
    return img * np.polyfit([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], 2)[0]


def ignores(img: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fits_a_line(img)


@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize(
    "f",
    [
        fits_a_line,
        ignores,
        lambda img: fits_a_line(img) + fits_a_line(img),
        lambda img: np.histogram(
            img > 0, 5
        ),  # which hjit calls for NumPy's warning: it points to the line all the same
        lambda img: np.maximum(img, 0, np.zeros(img.shape)),
    ],
)
def test_warnings_of_libraries_are_given_at_every_call(f: Any, verify: Any, seen: Seen) -> None:
    pipe = hjit.pipeline(f, verify=verify)
    for _ in range(3):
        assert effects(seen, pipe, IMAGE)[2] == effects(seen, f, IMAGE)[2]
    assert pipe.stats.fallbacks == 0


@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize(
    ("function", "args"),
    [(ndimage.spline_filter, (IMAGE + 1j, 3, np.float64)), (np.histogram, (IMAGE > 0.5, 5))],
)
def test_warnings_of_a_function_of_a_library_point_to_its_caller(
    function: Any, args: Any, verify: Any, seen: Seen
) -> None:
    pipe = hjit.pipeline(function, verify=verify)
    for _ in range(3):
        found = [effects(seen, f, *args)[2] for f in (pipe, function)]  # in one line
        assert found[0] == found[1] != []


def test_warnings_of_libraries_go_by_the_filters(seen: Seen) -> None:
    shown = []
    for f in (fits_a_line, hjit.pipeline(fits_a_line), hjit.pipeline(fits_a_line, verify="off")):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _ in range(3):
                f(IMAGE)
        shown.append(len(caught))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(np.exceptions.RankWarning):
                f(IMAGE)
        assert len(effects(seen, f, IMAGE)[2]) == 1
    assert shown == [1, 1, 1]


class Region:
    def __init__(self, img: Any) -> None:
        self.img = img

    @property
    def mean(self) -> Any:
        warnings.warn("use img.mean()", FutureWarning, stacklevel=2)
        return self.img.mean()


def test_methods_that_run_as_they_are_warn_at_every_call(seen: Seen) -> None:
    def f(img: Any) -> Any:
        return Region(img * 2).mean + 1

    for p in (hjit.pipeline(f), hjit.pipeline(f, verify="off")):
        for _ in range(3):
            assert effects(seen, p, IMAGE)[2] == effects(seen, f, IMAGE)[2]
        assert p.stats.fallbacks == 0


def test_extern_calls_warn_once_at_later_calls(seen: Seen) -> None:
    def f(img: Any) -> Any:
        return np.median(img[:0]) * np.ones(3)

    p = hjit.pipeline(f, verify="off")
    effects(seen, p, IMAGE)
    for _ in range(2):
        assert [w[0] for w in effects(seen, p, IMAGE)[2]].count("Mean of empty slice") == 1


def test_warnings_of_other_threads_are_shown() -> None:
    from hjit.trace.capture.side_effects.library_warnings import NotedWarnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        block = NotedWarnings()
        with block:
            thread = threading.Thread(target=warnings.warn, args=("of another thread",))
            thread.start()
            thread.join()
    assert [str(w.message) for w in caught] == ["of another thread"] and block.noted == []


def test_what_python_says_of_source_is_not_said_again(tmp_path: Path) -> None:
    """hjit compiles the source of functions with breaks."""
    file = tmp_path / "of_escapes.py"
    file.write_text("import uuid\ndef f(x):\n    '\\d'\n    uuid.uuid4()\n    return x * 2 if x.ndim is 2 else x\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f = SourceFileLoader("of_escapes", str(file)).load_module().f
        count = len(caught)
        p = hjit.pipeline(f, on_unsupported="break")
        p(IMAGE)
    assert count >= 2 and p.stats.parts
    assert [str(w.message) for w in caught[count:] if w.category in (SyntaxWarning, DeprecationWarning)] == []


class Stream:
    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, text: str) -> None:
        self.file.write(text)


class Bar:
    """As those of packages that show progress."""

    def __init__(self, n: int, file: Any = None) -> None:
        self.n, self.stream = n, Stream(file or sys.stderr)

    def __iter__(self) -> Any:
        for k in range(self.n):
            self.stream.write(f"{k} ")
            yield k


class Prints:
    def __init__(self) -> None:
        print("made", file=sys.stderr)


class Logs:
    def __init__(self) -> None:
        LOG.warning("made")


def makes_one_that_logs(a: Any) -> Any:
    Logs()
    return np.sqrt(a) * 2 + 1


def test_objects_that_the_function_makes_log_at_every_call(caplog: pytest.LogCaptureFixture) -> None:
    p = hjit.pipeline(makes_one_that_logs, on_unsupported="break")
    for _ in range(20):
        p(np.ones((9, 20)))
    assert len(caplog.records) == 20


class Unused:
    def show(self) -> None:
        print("shown")

    def __repr__(self) -> str:
        print("asked for")
        return "an object"


def makes_one_that_prints(a: Any) -> Any:
    Prints()
    return np.sqrt(a) * 2 + 1


def shows_progress(a: Any) -> Any:
    for k in Bar(3):
        a = np.sqrt(a) + k
    return a


def shows_progress_by_a_name(a: Any) -> Any:
    from tests.test_effects import Bar as Shown

    bar = Bar if a.size < 9 else Shown
    for k in bar(3):
        a = np.sqrt(a) + k
    return a


@pytest.mark.parametrize("f", [makes_one_that_prints, shows_progress, shows_progress_by_a_name])
def test_objects_that_the_function_makes_print_at_every_call(f: Any, capsys: pytest.CaptureFixture[str]) -> None:
    a = np.random.default_rng(0).random((9, 20))
    f(a)
    expected = capsys.readouterr().err
    p = hjit.pipeline(f, on_unsupported="break")
    for _ in range(20):
        np.testing.assert_allclose(p(a), p.py_func(a))
        assert capsys.readouterr().err == 2 * expected


def test_methods_that_are_not_called_may_print() -> None:
    p = hjit.pipeline(lambda a: (Unused(), a * 2)[1], on_unsupported="raise")
    np.testing.assert_array_equal(p(np.ones(20)), 2)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a * 2 + b,
        lambda a, b: (b, b[::2], a + 1),
        lambda a, b: np.linalg.solve(a, b) + 1,
        lambda a, b: np.fft.fft(b * 1j).real + a,
    ],
    ids=["computed", "views", "extern call", "complex"],
)
def test_asking_whether_an_array_may_be_written_to_gives_no_warning(f: Any) -> None:
    """`flags.writeable` of what `np.broadcast_arrays` makes does."""
    a, b = np.broadcast_arrays(np.eye(20) + 1, np.arange(20.0))
    p = hjit.pipeline(f, on_unsupported="break")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            ours, expected = p(a, b), f(a, b)
            for x, y in zip(*((r if type(r) is tuple else (r,)) for r in (ours, expected)), strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-12)
                assert x.strides == y.strides
