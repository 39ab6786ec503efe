"""Type checkers, mypy and pyright, see the signature of the plain function through `pipeline`."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

IMAGE = "numpy.ndarray[tuple[Any, ...], numpy.dtype[numpy.floating[numpy._typing._nbit_base._32Bit]]]"
PLAIN = f"[[img: {IMAGE}, radius: int =, *, scale: float =], {IMAGE}]"

SOURCE = """
import numpy as np
import numpy.typing as npt
import hjit

Image = npt.NDArray[np.float32]

@hjit.pipeline
def blur(img: Image, radius: int = 1, *, scale: float = 1.0) -> Image:
    return img

@hjit.pipeline(tune=False, verify="off")
def moments(a: Image, b: Image) -> tuple[Image, int]:
    return a + b, 1

class Filters:
    gain = 2.0

    @hjit.pipeline
    def amplify(self, img: Image) -> Image:
        return img * np.float32(self.gain)

    @hjit.pipeline
    @staticmethod
    def double(img: Image) -> Image:
        return img * 2

img: Image = np.zeros((4, 4), np.float32)
"""

REVEALED = {
    "blur": f"hjit.pipeline.Pipeline{PLAIN}",
    'blur.on("cuda")': f"hjit.pipeline.Pipeline{PLAIN}",
    "blur.use(None)": f"hjit.pipeline.Pipeline{PLAIN}",
    "blur(img, 2, scale=0.5)": IMAGE,
    "blur.into(img, img, radius=3)": IMAGE,
    "moments(img, b=img)": f"tuple[{IMAGE}, int]",
    "Filters().amplify(img)": IMAGE,
    "Filters.double(img)": IMAGE,
    "hjit.pipeline(blur.py_func)": f"hjit.pipeline.Pipeline{PLAIN}",
    "blur.stats.calls": "int",
}
REFUSED = {
    'blur("no")': "arg-type",
    "blur(img, radius=1.5)": "arg-type",
    "blur(img, 1, 2.0)": "call-arg",
    "blur()": "call-arg",
    "moments(img)": "call-arg",
    "blur.into(img, img, 'no')": "arg-type",
    "Filters().amplify(3)": "arg-type",
    "blur.no_such_method": "attr-defined",
    'hjit.pipeline(blur.py_func, verfy="off")': "call-overload",
    'hjit.pipeline(verfy="off")': "call-overload",
    'hjit.options(tune="hard")': "arg-type",
    'hjit.accelerate("skimage.filters", budget="long")': "arg-type",
}


def written(folder: Path) -> Path:
    """The source, and the expressions after it."""
    file = folder / "user.py"
    file.write_text(SOURCE + "".join(f"reveal_type({x})\n" for x in REVEALED) + "".join(f"{x}\n" for x in REFUSED))
    return file


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """What mypy says of each line of the source, and of the expressions after it."""
    api = pytest.importorskip("mypy.api")
    folder = tmp_path_factory.mktemp("types")
    file = written(folder)
    options = [
        "--config-file=",
        "--strict",
        "--show-error-codes",
        "--no-pretty",
        f"--cache-dir={ROOT / 'build' / 'test-mypy'}",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(ROOT))
        said, wrong, _ = api.run([*options, "--follow-imports=silent", str(file)])
    assert not wrong, wrong
    found: dict[int, list[str]] = {}
    for line in said.splitlines():
        if (place := re.match(r".*user\.py:(\d+): (.*)", line)) is not None:
            found.setdefault(int(place[1]), []).append(place[2])
    return found


FIRST = SOURCE.count("\n") + 1


def test_a_decorated_source_is_well_typed(checked: dict[int, list[str]]) -> None:
    assert not [text for line, text in checked.items() if line < FIRST]


@pytest.mark.parametrize(("number", "expression"), [*enumerate(REVEALED)], ids=list(REVEALED))
def test_types_are_those_of_the_plain_function(number: int, expression: str, checked: dict[int, list[str]]) -> None:
    assert checked[FIRST + number] == [f'note: Revealed type is "{REVEALED[expression]}"']


@pytest.mark.parametrize(("number", "expression"), [*enumerate(REFUSED)], ids=list(REFUSED))
def test_wrong_calls_are_refused(number: int, expression: str, checked: dict[int, list[str]]) -> None:
    said = checked[FIRST + len(REVEALED) + number]
    assert any(text.startswith("error") and text.endswith(f"[{REFUSED[expression]}]") for text in said), said


# -- pyright

IMAGE_P = "ndarray[tuple[Any, ...], dtype[floating[_32Bit]]]"
PLAIN_P = f"[(img: {IMAGE_P}, radius: int = 1, *, scale: float = 1), {IMAGE_P}]"
REVEALED_P = {
    **dict.fromkeys(("blur", 'blur.on("cuda")', "blur.use(None)", "hjit.pipeline(blur.py_func)"), f"Pipeline{PLAIN_P}"),
    **{x: IMAGE_P for x, said in REVEALED.items() if said == IMAGE},
    "moments(img, b=img)": f"tuple[{IMAGE_P}, int]",
    "blur.stats.calls": "int",
}
RULES_P = {
    "arg-type": "reportArgumentType",
    "call-arg": "reportCallIssue",
    "call-overload": "reportCallIssue",
    "attr-defined": "reportAttributeAccessIssue",
}


API = """
import numpy as np
import numpy.typing as npt

import hjit

Image = npt.NDArray[np.float32]

@hjit.pipeline
def blur(img: Image) -> Image:
    return img

class Tools:
    @staticmethod
    @hjit.pipeline
    def twice(img: Image) -> Image:
        return img

img: Image = np.zeros((4, 4), np.float32)
print(Tools.twice(img).shape, Tools().twice(img).shape)
s = blur.schedule(img)
s["x"].tile("y", "x", "yo", "xo", "yi", "xi", 4, 4).parallel("yo").vectorize("xi", 8)
s["x"].compute_at("y", "yo").store_root().unroll("x").reorder("y", "x")
s["x"].rfactor("r0", 4).compute_at(s["x"], "y")
print(s.stages, s["x"].loops, len(s), s.inlined)
s.save("x.json")
blur.use(hjit.Schedule.load("x.json"))(img)
print(blur.explain(img), blur.graph(img), blur.loops(img), blur.inspect_llvm(img), blur.inspect_asm(img))
trees = blur.tree(img)
print(trees[0].to_json(), trees)
blur.use(trees)
exported = blur.export("f.so", img, targets=["x86-64-v2"])
print(exported.files[0].name, exported.target, exported.header)
hjit.bundle("f.hjit", blur, (blur, img))
service = hjit.load("f.hjit")
print(service.blur(img))
with hjit.options(tune=False):
    blur(img)
with hjit.accelerate("skimage.filters") as accelerated:
    print([row.calls for row in accelerated.rows()])
tuned = blur.tune(img, budget=3)
print(tuned.seconds, tuned.default)
report = blur.report(img)
report.save("x.html")
print(blur.stats.traces, blur.stats.calls, blur.py_func(img), blur.kernels(img), blur.inspect_cuda(img))
try:
    blur.into(img, img)
except hjit.TraceError as error:
    print(error.operation, error.reason, error.advice)
"""


def pyright() -> list[str]:
    """The command; pyright is not run where it would fetch node first."""
    if shutil.which("node") is None:
        pytest.skip("pyright needs node on the PATH")
    if importlib.util.find_spec("pyright") is not None:
        return [sys.executable, "-m", "pyright"]
    found = shutil.which("pyright")
    if found is None:
        pytest.skip("pyright is not installed")
    return [found]


@pytest.fixture(scope="module")
def checked_by_pyright(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[tuple[str, str]]]:
    """The rules and messages of pyright, in its strict mode, by line; those of `API` are negative."""
    folder = tmp_path_factory.mktemp("pyright")
    (folder / "api.py").write_text(API)
    settings = {"include": [written(folder).name, "api.py"], "extraPaths": [str(ROOT)], "typeCheckingMode": "strict"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings | {"pythonVersion": "3.11"}))
    command = [*pyright(), "-p", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    try:
        told = json.loads(done.stdout)["generalDiagnostics"]
    except ValueError:
        pytest.skip(f"pyright does not run here: {(done.stderr or done.stdout)[-300:]}")
    found: dict[int, list[tuple[str, str]]] = {}
    for d in told:
        line = d["range"]["start"]["line"] + 1
        if d["file"].endswith("api.py"):
            line = -line
        found.setdefault(line, []).append((d.get("rule", d["severity"]), d["message"]))
    return found


def test_a_decorated_source_is_well_typed_for_pyright(checked_by_pyright: dict[int, list[tuple[str, str]]]) -> None:
    assert not [said for line, said in checked_by_pyright.items() if 0 < line < FIRST]


def test_pyright_sees_the_types_of_the_plain_function(checked_by_pyright: dict[int, list[tuple[str, str]]]) -> None:
    for line, x in enumerate(REVEALED, FIRST):
        assert checked_by_pyright[line] == [("information", f'Type of "{x}" is "{REVEALED_P[x]}"')]


def test_pyright_refuses_wrong_calls(checked_by_pyright: dict[int, list[tuple[str, str]]]) -> None:
    for line, (x, rule) in enumerate(REFUSED.items(), FIRST + len(REVEALED)):
        assert RULES_P[rule] in [found for found, _ in checked_by_pyright[line]], x


def test_pyright_knows_all_types_of_the_api(checked_by_pyright: dict[int, list[tuple[str, str]]]) -> None:
    assert not {-line: said for line, said in checked_by_pyright.items() if line < 0}
