"""``hjit profile``: the functions where a script's time goes, tried compiled, and the patch that decorates them."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.profiler import Profiler, Row, patched, rows
from hjit.report.equality import difference, text
from hjit.report.kinds import BREAKS, WHOLE
from hjit.report.patch import patch

IMAGE = np.random.default_rng(1).random((60, 80))
SCRIPT = '''"""A script."""
import sys
import numpy as np
from shades import Shade, listed

def outer(img, n=2):
    for _ in range(n):
        img = inner(img) * 0.5 + np.sin(img)
    return img

def inner(img):
    return np.sqrt(img * img + 1) - np.cos(img)

def counts(img):
    print("printed once a call")
    total = np.exp(img)
    return np.tanh(total) * np.unique(np.round(total)).size

def main():
    img = np.random.default_rng(0).random((300, 400))
    for _ in range(5):
        outer(img), counts(img), Shade(2).apply(img), listed(img)
    print(sys.argv[1:])
    return 3

sys.exit(main())
'''
SHADES = """import functools
import numpy as np

def named(f):
    @functools.wraps(f)
    def call(*args, **kwargs):
        return f(*args, **kwargs)
    return call

class Shade:
    def __init__(self, gain):
        self.gain = gain

    def apply(self, img):
        return np.clip(img * self.gain, 0, 1) + np.exp(img)

@named
def listed(img):
    return [np.exp(img), np.sin(img)]
"""


# -- what is seen


def mutates(a: Any) -> None:
    a += 1


def returns(n: int) -> Any:
    return np.ones((n, n))


def counts(n: int) -> int:
    return sum(range(n))


def outside(a: Any) -> Any:
    return inside(a, scale=2) + 1


def inside(a: Any, *more: Any, scale: int = 1, **named: Any) -> Any:
    return a * scale


def repeats(a: Any, n: int) -> Any:
    return a if n == 0 else repeats(a, n - 1)


def noted(run: Callable[[], Any]) -> dict[str, Any]:
    """What is seen of the functions of this file, by name."""
    profiler = Profiler()
    with profiler.running():
        run()
    return {s.function.__name__: s for s in profiler.seen.values() if s is not None}


def test_functions_of_arrays_are_noted() -> None:
    a = np.zeros((3, 4))
    seen = noted(lambda: (mutates(a), returns(2), counts(9), (x for x in "ab")))
    assert {n: seen[n].has_arrays for n in ("mutates", "returns", "counts")} == {
        "mutates": True,
        "returns": True,
        "counts": False,
    }
    assert a.sum() == 12 and seen["mutates"].sample[0][0].sum() == 0, "copied before the call"
    assert seen["returns"].sample == ((2,), {})


def test_arguments_and_callers_are_noted() -> None:
    seen = noted(lambda: (outside(IMAGE), outside(IMAGE)))
    assert seen["inside"].calls == 2 and seen["inside"].sample[1] == {"scale": 2}
    assert outside.__code__ in seen["inside"].inside and outside.__code__ not in seen["outside"].inside
    seen = noted(lambda: (outside(IMAGE), inside(IMAGE, 7, 8, other=9)))
    assert outside.__code__ not in seen["inside"].inside
    (first, *rest), named = noted(lambda: inside(IMAGE, 7, 8, other=9))["inside"].sample
    assert rest == [7, 8] and named == {"scale": 1, "other": 9} and first is not IMAGE


def test_a_call_inside_its_own_counts_once() -> None:
    profiler = Profiler()
    with profiler.running():
        repeats(IMAGE, 20)
    (seen,) = (s for s in profiler.seen.values() if s is not None and s.function is repeats)
    assert seen.calls == 21 and 0 < seen.seconds <= profiler.seconds


def test_the_larger_arguments_are_kept() -> None:
    seen = noted(lambda: (inside(IMAGE[:2]), inside(IMAGE), inside(IMAGE[:3])))
    assert seen["inside"].sample[0][0].shape == IMAGE.shape


def test_functions_of_packages_are_noted_by_name() -> None:
    from skimage import filters

    names = set[str]()
    for modules in ((), ("skimage.filters",)):
        profiler = Profiler(modules)
        with profiler.running():
            filters.sobel(IMAGE)
        found = {s.function.__module__ for s in profiler.seen.values() if s is not None}
        assert ("skimage.filters.edges" in found) == bool(modules)
        names |= found
    assert not any(n.startswith("scipy") for n in names)


def test_what_cannot_be_called_again_is_said() -> None:
    left = [1]

    def once(a: Any) -> Any:
        return a * left.pop()

    profiler = Profiler()
    global only
    only = once
    only.__code__ = only.__code__.replace(co_qualname="only")
    with profiler.running():
        only(IMAGE)
    profiler.seconds = 1e-9
    (row,) = rows(profiler, 5)
    assert (row.name, row.pays, row.speed) == ("test_what_cannot_be_called_again_is_said.<locals>.once", False, None)
    assert "IndexError" in row.why


only: Any = None


# -- what is patched


def row(line: int, *, pays: bool = True, kind: str = WHOLE, own: bool = True) -> Row:
    return Row("f", __file__, line, 0.5, 1, kind, (), "", 2.0, 0.0, 0.1, pays, own)


def test_what_pays_is_patched() -> None:
    profiler = Profiler()
    with profiler.running():
        outside(IMAGE)
    lines = {n: globals()[n].__code__.co_firstlineno for n in ("inside", "outside")}
    both = [row(lines["outside"]), row(lines["inside"])]
    assert patched(both, profiler) == {__file__: [lines["outside"]]}, "the inner one is compiled with the outer one"
    assert patched([replace(both[0], kind=BREAKS), both[1]], profiler) == {__file__: [*lines.values()][::-1]}
    assert patched([row(1, pays=False), row(2, own=False)], profiler) == {}


HEADS = {
    "imports": ("import os\nimport sys\n\nX = 1\n", "import os\nimport sys\n+import hjit\n\nX = 1\n"),
    "docstring": ('"""Text."""\n\n', '"""Text."""\n+import hjit\n\n'),
    "future": ("from __future__ import annotations\n", "from __future__ import annotations\n+import hjit\n"),
    "comment": ("#!/usr/bin/env python\n# words\n", "#!/usr/bin/env python\n# words\n+import hjit\n"),
    "there": ("import hjit\n", "import hjit\n"),
    "other lines": ("import os\r\n", "import os\r\n+import hjit\r\n"),
}


@pytest.mark.parametrize("name", HEADS)
def test_the_import_stands_after_the_others(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    head, expected = HEADS[name]
    end = "\r\n" if "\r\n" in head else "\n"
    text = f"{head}@str{end}def f(a):{end}    return a"
    Path("x.py").write_bytes(text.encode())
    found = patch(Path("x.py"), [1 + head.count("\n")])
    added = [line for line in found.split("\n")[2:] if line.startswith("+")]
    assert [line.rstrip("\r") for line in added] == [
        *(["+import hjit"] if "+" in expected else []),
        "+@hjit.pipeline",
    ]
    assert "\\ No newline at end of file" in found
    after = "".join(line[1:] + "\n" for line in found.split("\n")[3:] if line[:1] in (" ", "+"))
    assert after.startswith(expected.replace("+import", "import"))
    assert after.replace("\r", "").endswith("@str\n@hjit.pipeline\ndef f(a):\n    return a\n"), (
        "the innermost decorator"
    )


def test_nothing_is_patched_where_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def f(a):\n    return a\n")
    assert patch(tmp_path / "x.py", [2]) == ""


# -- how far results are apart


def test_differences() -> None:
    a = np.array([1.0, -4.0, np.nan])
    assert difference(a, a.copy()) == 0.0 and difference((1, "a", [a]), (1, "a", [a.copy()])) == 0.0
    assert difference(a, a + [0, 1, 0]) == 0.25
    assert difference({"x": a}, {"x": a + [1e-3, 0, 0]}) == pytest.approx(2.5e-4)
    assert difference(np.array([200], np.uint8), np.array([100], np.uint8)) == 0.5
    for other in (a.astype(np.float32), a[:2], [1.0, -4.0, math.nan], np.array([1.0, -4.0, 5.0])):
        assert difference(a, other) == math.inf
    assert difference(1, 2) == math.inf and difference((1,), (1, 2)) == math.inf
    assert difference(np.zeros(2), np.ones(2)) == math.inf
    assert difference(np.array([1 + 1j]), np.array([1 + 2j])) == pytest.approx(1 / math.sqrt(2))
    assert [text(0.0), text(2.5e-7), text(math.inf)] == ["equal", "to 2e-07", "differ"]


class Nothing:
    """Without state."""


class Slots:
    __slots__ = ("image", "unused")

    def __init__(self, image: object) -> None:
        self.image = image


@dataclasses.dataclass
class Pair:
    image: np.ndarray[Any, Any]
    level: float = 1.0


def test_differences_of_objects() -> None:
    ones = np.ones(3)
    assert difference(Nothing(), Nothing()) == 0
    assert difference((Nothing(), ones), (Nothing(), ones * 2)) == 1.0
    assert difference(Slots(ones), Slots(ones.copy())) == 0 and difference(Slots(ones), Slots(ones * 1.5)) == 0.5
    assert difference(Pair(ones), Pair(ones.copy())) == 0  # `==` of which raises an error
    assert difference(Pair(ones), Pair(ones, 1.5)) == 0.5
    a, b = Nothing(), Nothing()
    for nothing in (a, b):
        vars(nothing)["itself"] = nothing
    assert difference(a, b) == 0
    vars(b)["more"] = 1
    assert difference(a, b) == math.inf and difference(Nothing(), Slots(1)) == math.inf
    assert difference((x for x in ()), (x for x in ())) == math.inf  # what they hold is not known


# -- the command


def test_the_command_lists_and_patches(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "shades.py").write_text(SHADES)
    root = str(Path(hjit.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "HJIT_ON_UNSUPPORTED": "break"}
    command = [
        sys.executable,
        "-m",
        "hjit",
        "profile",
        "--patch",
        "p.diff",
        "--json",
        "p.json",
        "script.py",
        "--n",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.count("printed once a call") == 5 and "['--n', '1']" in done.stdout
    found = json.loads((tmp_path / "p.json").read_text())["functions"]
    kinds = {f["name"]: (f["kind"], f["calls"]) for f in found}
    expected = {"outer": (WHOLE, 5), "inner": (WHOLE, 10), "counts": (BREAKS, 5), "Shade.apply": (WHOLE, 5)}
    expected["listed"] = (WHOLE, 5)
    assert {"outer", "counts"} <= kinds.keys() and kinds.items() <= expected.items()
    assert all(f["apart"] is not None and f["apart"] < 1e-12 for f in found)
    assert "counts: line 15: print" in done.stdout and "script.py:14" in done.stdout
    diff = (tmp_path / "p.diff").read_text()
    paying = [f for f in found if f["pays"]]
    assert (diff == "") == (not paying)
    if diff and shutil.which("git"):
        subprocess.run(["git", "apply", "p.diff"], cwd=tmp_path, check=True)
        again = subprocess.run(
            [sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
        )
        assert again.returncode == 3 and again.stdout.count("printed once a call") == 5


def test_wrong_scripts_are_refused(tmp_path: Path) -> None:
    from hjit.cli import main

    assert main(["profile", str(tmp_path / "nothing.py")]) == 1
