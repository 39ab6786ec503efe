"""Modules whose functions run compiled without a change of their code."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from skimage import filters

import hjit

IMAGE = np.random.default_rng(2).random((40, 50))
TEXT = """
import numpy as np

__all__ = ["soft", "hard", "LIMIT", "Kind"]
LIMIT = 3
Kind = type("Kind", (), {})

def soft(a):
    return np.exp(a) * 2

def hard(a):
    b = np.sqrt(a) + 1
    return np.unique(np.round(b * 4)).size * b

def _hidden(a):
    return a

class Methods:
    def __init__(self):
        self.by_name = {"soft": soft, "hidden": _hidden}

METHODS, ORDER = Methods(), [hard, _hidden]

def chosen(name):
    return METHODS.by_name[name] is soft
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    yield from written("softening", TEXT, tmp_path, monkeypatch)


def written(name: str, text: str, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module of the test's own."""
    (folder / f"{name}.py").write_text(text)
    patch.syspath_prepend(folder)
    yield importlib.import_module(name)
    sys.modules.pop(name)


def test_public_functions_are_pipelines_in_a_block(package: types.ModuleType) -> None:
    plain = package.soft, package.hard, package._hidden
    with hjit.accelerate("softening", on_unsupported="break") as accelerated:
        assert set(accelerated.pipelines) == {"softening.soft", "softening.hard"}
        np.testing.assert_allclose(package.soft(IMAGE), plain[0](IMAGE), rtol=1e-12)
        np.testing.assert_allclose(package.hard(IMAGE), plain[1](IMAGE), rtol=1e-12)
        assert isinstance(package.Kind, type) and package.LIMIT == 3 and package._hidden is plain[2]
        assert "softening.soft: 1 calls, compiled" in str(accelerated)
        assert "softening.hard: 1 calls, in Python, with " in str(accelerated)
    assert (package.soft, package.hard, package._hidden) == plain


def test_what_others_put_there_stays(package: types.ModuleType) -> None:
    accelerated = hjit.accelerate("softening")
    package.soft = len
    accelerated.undo()
    accelerated.undo()
    assert package.soft is len and isinstance(package.hard, types.FunctionType)
    assert str(accelerated).endswith("none of which has been called")


def test_functions_in_tables_are_those_of_the_names(package: types.ModuleType) -> None:
    plain = dict(package.METHODS.by_name), list(package.ORDER)
    with hjit.accelerate("softening"):
        assert package.chosen("soft") and package.METHODS.by_name["soft"] is package.soft
        assert [package.hard, package._hidden] == package.ORDER
        assert package.METHODS.by_name["hidden"] is package._hidden
    assert (package.METHODS.by_name, package.ORDER) == plain


def test_tables_of_code_that_knows_the_functions_by_other_names_stay(
    package: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = types.ModuleType("softening.front")  # as a package's __init__ that has the names of its modules
    vars(front).update(soft=package.soft, chosen=package.chosen, METHODS=package.METHODS)
    monkeypatch.setitem(sys.modules, front.__name__, front)
    with hjit.accelerate(front):
        assert front.soft is not package.soft and front.chosen("soft") and package.chosen("soft")
    with hjit.accelerate(front, package):
        assert package.METHODS.by_name["soft"] is package.soft is front.soft and front.chosen("soft")


def test_what_tables_of_the_package_say_of_functions_is_found(
    package: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = types.ModuleType("softening.capabilities")
    elsewhere.TABLE = {package.soft: "whole", package._hidden: "none"}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, elsewhere.__name__, elsewhere)
    before = dict(elsewhere.TABLE)
    plain = package.soft
    with hjit.accelerate("softening"):
        assert package.soft is not plain
        assert elsewhere.TABLE[package.soft] == elsewhere.TABLE[plain] == "whole"
    assert before == elsewhere.TABLE


def test_a_package_that_loads_its_functions_late() -> None:
    plain = filters.sobel
    with hjit.accelerate("skimage.filters") as accelerated:
        assert "skimage.filters.sobel" in accelerated.pipelines
        got = filters.sobel(IMAGE)
        assert accelerated.pipelines["skimage.filters.sobel"].stats.compilations + 1
    np.testing.assert_allclose(got, plain(IMAGE), rtol=1e-10, atol=1e-14)
    assert filters.sobel is plain


def test_wrong_names_and_options() -> None:
    with pytest.raises(ModuleNotFoundError):
        hjit.accelerate("no_such_package")
    with pytest.raises(hjit.OptionError):
        hjit.accelerate()
    with pytest.raises(hjit.OptionError):
        hjit.accelerate("skimage.filters", speed="high")


def test_the_command_runs_a_script(package: types.ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys, numpy as np, softening\nprint(softening.soft(np.ones(3))[0] > 5, sys.argv[1:])\n")
    command = [sys.executable, "-m", "hjit", "run", "--accelerate", "softening", str(script), "--level", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=_environment(tmp_path))
    assert done.stdout == "True ['--level', '3']\n"
    assert done.stderr == "softening.soft: 1 calls, compiled\n"
    command[5] = "no_such_package"
    assert subprocess.run(command, capture_output=True, check=False, env=_environment(tmp_path)).returncode == 1


SCRIPT = """from __future__ import annotations
import inspect, pickle, sys
import numpy as np

def soft(img: np.ndarray, n=2):
    return np.sqrt(img * n)

def _own(img):
    return img

def pieces(img):
    yield img

def main():
    print(soft(np.full((3, 3), 2.0))[0, 0], *pieces(1), sys.argv[1:], __name__, __file__ == sys.argv[0])
    print(pickle.loads(pickle.dumps(soft)) is soft, type(main).__name__, type(_own).__name__, inspect.getsource(soft)[:4])

if __name__ == "__main__":
    main()
    sys.exit(3)
"""


def test_the_command_runs_a_script_without_names(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "hjit", "run", str(script), "--level"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=_environment(tmp_path)
    )
    assert done.stdout == "2.0 1 ['--level'] __main__ True\nTrue function function def \n"
    assert (done.returncode, done.stderr) == (3, "soft: 1 calls, compiled\n")
    script.write_text("def f(x)\n")
    assert "SyntaxError" in subprocess.run(command, capture_output=True, text=True, env=_environment(tmp_path)).stderr


def _environment(folder: Path) -> dict[str, str]:
    import os

    root = str(Path(hjit.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{root}"}


def test_modules_in_place_of_their_names(package: types.ModuleType) -> None:
    with hjit.accelerate(package) as modules:
        assert "softening.soft" in modules.pipelines
        np.testing.assert_array_equal(package.soft(IMAGE), np.exp(IMAGE) * 2)
    with pytest.raises(hjit.OptionError, match="accelerate takes modules, or their names, not 3"):
        hjit.accelerate(3)  # type: ignore[arg-type]


def test_generators_stay_as_they_are(package: types.ModuleType) -> None:
    code = "def rows(a):\n    yield from a\nasync def later(a):\n    return a\n"
    exec(code, package.__dict__)
    package.__all__ = ["soft", "rows", "later"]
    with hjit.accelerate("softening") as modules:
        assert list(modules.pipelines) == ["softening.soft"]


DEPRECATED = """
import warnings
import numpy as np

__all__ = ["soft", "mild"]
FACTORS = np.linspace(1, 2, 50)

def soft(a):
    return np.exp(a) * 2

def __getattr__(name):
    if name in ("mild", "FACTOR", "FACTORS_OF_OLD"):
        warnings.warn(f"{name} is deprecated", DeprecationWarning, stacklevel=2)
        return {"mild": soft, "FACTOR": 1.5, "FACTORS_OF_OLD": FACTORS}[name]
    raise AttributeError(name)
"""


@pytest.fixture
def deprecated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    yield from written("softened", DEPRECATED, tmp_path, monkeypatch)


def test_deprecated_names_stay_as_they_are(deprecated: types.ModuleType) -> None:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        with hjit.accelerate("softened") as accelerated:
            assert set(accelerated.pipelines) == {"softened.soft"} and not given
            for k in (1, 2):
                assert deprecated.mild is deprecated.soft and len(given) == k


@pytest.mark.parametrize("verify", ["first", "off"])
def test_deprecated_names_warn_at_every_call(deprecated: types.ModuleType, verify: str) -> None:
    def f(a: np.ndarray) -> np.ndarray:
        return deprecated.mild(a) * deprecated.FACTOR + deprecated.FACTORS_OF_OLD

    p = hjit.pipeline(f, verify=verify, on_unsupported="raise", numpy_if_faster=False)
    for k in range(4):
        deprecated.FACTORS[3] = k
        if k == 2:
            make = deprecated.__getattr__
            deprecated.__getattr__ = lambda name: make(name) if name != "FACTOR" else 2.5
        said, found = [], []
        for g in (p, f):
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                found.append(g(IMAGE))
            said.append([(str(w.message), w.category, w.filename, w.lineno) for w in given])
        np.testing.assert_allclose(*found, rtol=1e-12)
        assert said[0] == said[1]


@pytest.mark.parametrize("name", ["numpy", "numpy.fft", np.linalg, "numba", "hjit.options"])
def test_what_hjit_itself_runs_on_is_refused(name: Any) -> None:
    before = dict(vars(np))
    with pytest.raises(hjit.OptionError, match="hjit runs on it itself. What to do: name the modules that call it"):
        hjit.accelerate(name)
    assert dict(vars(np)) == before


def test_functions_whose_calls_only_begin_something_stay_as_they_are() -> None:
    module = types.ModuleType("beginning")
    text = """
import contextlib, functools

@contextlib.contextmanager
def opened(x):
    yield x

def logged(f):
    @functools.wraps(f)
    def method(*args):
        return f(*args)
    return method

@logged
def rows(img):
    yield from img

def doubled(img):
    return img * 2
"""
    exec(text, module.__dict__)
    with hjit.accelerate(module) as accelerated:
        assert set(accelerated.pipelines) == {"beginning.logged", "beginning.doubled"}
        with module.opened(3) as x:
            assert x == 3
