"""Options: the decorator before the context, the context before the environment; unknown ones are errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import hjit
from hjit import OptionError
from hjit.options import _CHOICES, GivenOptions, Options, from_environment, resolve
from tests.scripts import run_script

IMAGE = np.ones((40, 50))


def test_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HJIT_CACHE_DIR")
    monkeypatch.delenv("HJIT_TUNE")
    monkeypatch.delenv("HJIT_NUMPY_IF_FASTER")
    monkeypatch.delenv("HJIT_ON_UNSUPPORTED")
    monkeypatch.delenv("HJIT_TARGET", raising=False)
    assert resolve({}) == Options()
    monkeypatch.setenv("HJIT_NUM_THREADS", "3")
    monkeypatch.setenv("HJIT_VERIFY", "off")
    assert resolve({}).num_threads == 3
    with hjit.options(num_threads=2):
        assert resolve({}).num_threads == 2
        assert resolve({}).verify == "off"
        assert resolve({"num_threads": 1}).num_threads == 1
        with hjit.options(verify="first"):
            assert resolve({}).num_threads == 2
            assert resolve({}).verify == "first"
        assert resolve({}).verify == "off"
    assert resolve({}).num_threads == 3


def test_type_checkers_know_the_options_and_their_values() -> None:
    hints = get_type_hints(GivenOptions)
    assert list(hints) == [f.name for f in fields(Options)]
    words = {name: {x for x in _words(hint) if isinstance(x, str)} for name, hint in hints.items()}
    allowed = {name: {x for x in values if isinstance(x, str)} for name, values in _CHOICES.items()}
    assert {name: found for name, found in words.items() if found} == {
        n: found for n, found in allowed.items() if found
    }


def _words(hint: Any) -> Iterator[Any]:
    """The values of all Literals in a type."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        for part in get_args(hint):
            yield from _words(part)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("FAST_MATH", "1", True),
        ("FAST_MATH", "no", False),
        ("DISABLE", "TRUE", True),
        ("DISABLE", "", False),
        ("CACHE", "ro", "ro"),
        ("TARGET", "x86-64-v3", "x86-64-v3"),
        ("ON_UNSUPPORTED", "numpy", "numpy"),
        ("CACHE_DIR", "/somewhere", "/somewhere"),
        ("NUM_THREADS", "4", 4),
    ],
)
def test_environment(name: str, text: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"HJIT_{name}", text)
    assert getattr(resolve({}), name.lower()) == value
    assert from_environment()[name.lower()] == value


@pytest.mark.parametrize(
    "given",
    [
        {"no_such": 1},
        {"verify": "sometimes"},
        {"cache": True},
        {"num_threads": -1},
        {"num_threads": 1.5},
        {"num_threads": True},
        {"fast_math": 1},
        {"fast_math": "yes"},
        {"target": ""},
        {"target": None},
        {"cache_dir": 3},
        {"cache_dir": None},
        {"on_unsupported": []},
        {"disable": None},
    ],
)
def test_unknown_names_and_values(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        hjit.pipeline(**given)
    assert next(iter(given)) in str(caught.value)
    with pytest.raises(ValueError, match=next(iter(given))), hjit.options(**given):
        pass


@pytest.mark.parametrize(
    ("name", "text"),
    [("NUM_THREADS", "many"), ("NUM_THREADS", "-1"), ("FAST_MATH", "perhaps"), ("VERIFY", "last"), ("CACHE", "RW")],
)
def test_unknown_values_in_the_environment(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"HJIT_{name}", text)
    with pytest.raises(OptionError, match=text):
        hjit.pipeline(lambda img: img + 1)(IMAGE)


def test_a_context_is_of_its_thread_and_ends_with_an_exception() -> None:
    seen = []
    with pytest.raises(KeyError), hjit.options(num_threads=1):
        thread = threading.Thread(target=lambda: seen.append(resolve({}).num_threads))
        thread.start()
        thread.join()
        raise KeyError
    assert seen == [0]
    assert resolve({}).num_threads == 0


def test_a_context_reaches_calls() -> None:
    p = hjit.pipeline(lambda img: img + 1)
    p(IMAGE)
    with hjit.options(disable=True):
        p(IMAGE)
    assert p.stats.fallbacks == 1
    with hjit.options(num_threads=1):
        p(IMAGE)
    p(IMAGE)
    assert p.stats.fallbacks == 1
    assert p.stats.traces == 2
    q = hjit.pipeline(lambda img: img + 1, disable=True)
    with hjit.options(disable=False):
        np.testing.assert_array_equal(q(IMAGE), IMAGE + 1)
    assert q.stats.fallbacks == 1


def test_fast_math_and_threads_compute_the_same() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((300, 300)), rng.random((300, 300))
    f = lambda a, b: (a * b + a / 3).sum(axis=0)  # noqa: E731
    for given in ({"fast_math": True}, {"num_threads": 1}, {"num_threads": 1000}):
        np.testing.assert_allclose(hjit.pipeline(f, verify="off", **given)(a, b), f(a, b), rtol=1e-12)


def test_a_folder_as_a_path(tmp_path: Path) -> None:
    p = hjit.pipeline(lambda img: img + 12345, cache_dir=tmp_path / "cache")
    np.testing.assert_array_equal(p(IMAGE), IMAGE + 12345)
    assert p.stats.compilations == 1
    assert len(list((tmp_path / "cache").glob("*.code"))) == 1


def test_disabled_loads_no_compiler(tmp_path: Path) -> None:
    out = run_script(
        tmp_path,
        """
        import sys
        import numpy as np
        import hjit

        @hjit.pipeline(verify="off")
        def f(img):
            print("in", type(img).__name__)
            return img + 1

        for _ in range(2):
            assert (f(np.ones(3)) == 2).all()
        assert f.stats.fallbacks == 2
        print(sorted({"numba", "llvmlite", "jax", "hjit.kernels"} & set(sys.modules)))
    """,
        HJIT_DISABLE="1",
    )
    assert out.splitlines() == ["in ndarray", "in ndarray", "[]"]


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("TUNE", "foo", "choose one of 0, stored, greedy, refined, beam, one_shot, top_five, autotune"),
        ("NUM_THREADS", "abc", "a whole number from 0"),
        ("BLAS", "foo", "choose one of auto, 0, 1"),
        ("FAST_MATH", "foo", "choose one of 0, 1"),
        ("BUDGET", "foo", "seconds, or none"),
        ("TUNE_BUDGET", "foo", "seconds, more than 0"),
    ],
)
def test_what_values_in_the_environment_may_be(name: str, text: str, allowed: str, monkeypatch: Any) -> None:
    monkeypatch.setenv(f"HJIT_{name}", text)
    with pytest.raises(OptionError, match=f"^HJIT_{name}='{text}': {allowed}"):
        from_environment()
