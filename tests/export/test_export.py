"""Functions as C libraries: results, sizes, and what they refuse."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hjit
from hjit.errors import HjitError, OptionError
from hjit.export.targets import platform
from hjit.kernels.runtime.features import LEVELS, host_features
from tests.export.c_library import COMPILER, Context, Library, as_c

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
TABLE = np.linspace(0, 1, 2000, dtype=np.float32)


def image(*shape: int, dtype: Any = np.float32) -> Any:
    return ((np.arange(np.prod(shape)) * 7919 % 10007) % 251 + 1).astype(dtype).reshape(shape)


def point(a: Any, b: Any, gain: float, offset: int) -> Any:
    return {"sum": a * (2 * gain + 1) + b, "shifted": a - offset}


def border(a: Any) -> Any:
    p = np.pad(a, 2, mode="reflect")
    return ndimage.median_filter(p[2:-2, :-4] + p[2:-2, 4:], 3)


def reduced(a: Any) -> Any:
    return a.max(0), np.bincount(a.ravel(), minlength=256), a.T * 2


def pyramid(a: Any) -> Any:
    half = a[:-1:2] + a[1::2]
    quarter = half[:, :-1:2] + half[:, 1::2]
    return quarter, quarter[1:] - quarter[:-1]


def in_place(a: Any, b: Any) -> Any:
    a[1:-1] += b[2:]
    return b * TABLE[: b.shape[1]]


def views(a: Any, b: Any) -> Any:
    a += 1
    mean = (a + b) / 2
    return a[::2, 3:], b.T, mean[1:], mean[:-1], np.array([0.5, 2.5])


def looked_up(a: Any, table: Any) -> Any:
    return table[a]


def numbers(a: Any, x: float, n: int, q: Any) -> Any:
    scale = np.float32(math.sqrt(x) / 3 - -x)
    return a * scale + (abs(n) % 5 - n // 3 + max(n, 2)) * q


def sizes_as_numbers(a: Any, k: int) -> Any:
    h, w = a.shape
    y = np.arange(h)[:, None] / (h - 1)
    brighter = 1.5 if h / 8 > 1.25 else 2.5
    return a * (0.25 * w) + np.float32(h) * brighter, a * (k * h) - math.sqrt(h * w) / len(a), y * a + a / a.size


CASES: dict[Any, tuple[tuple[Any, ...], tuple[Any, ...]]] = {  # exported with the first arguments, called with both
    point: ((image(40, 50), image(40, 50), 0.5, 3), (image(17, 91), image(17, 91), -0.3, 7)),
    border: ((image(64, 70),), (image(17, 33),)),
    reduced: ((image(40, 50, dtype="u1"),), (image(301, 17, dtype="u1"),)),
    pyramid: ((image(80, 90),), (image(333, 38),)),
    in_place: ((image(40, 50), image(40, 50)), (image(333, 1171)[:, 300:1000], image(333, 700))),
    views: ((image(40, 50), image(40, 50)), (image(37, 600), image(37, 600))),
    numbers: ((image(40, 50), 0.7, -7, np.float32(1.5)), (image(40, 50), 2.0, -8, np.float32(-0.1))),
    sizes_as_numbers: ((image(40, 50), 3), (image(333, 38), -2)),
    looked_up: ((image(40, 50, dtype="i8"), image(300)), (image(20, 17, dtype="i8"), image(252))),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with object files of all of these, and the C code that goes with them."""
    found = tmp_path_factory.mktemp("exported")
    for f, (args, _) in CASES.items():
        exported = hjit.pipeline(f).export(found / f"{f.__name__}.o", *args)
        assert exported.files == tuple(found / f"{f.__name__}{suffix}" for suffix in (".o", ".h", ".c"))
        assert not exported.fixed
    return found


@pytest.fixture(scope="module")
def libraries(folder: Path) -> dict[str, Library]:
    """The functions, as C calls them."""
    files = [f"{f.__name__}.{suffix}" for f in CASES for suffix in "co"]
    subprocess.run(
        [str(COMPILER), "-shared", "-fPIC", "-o", "all.so", *files, "-lm", "-pthread"], cwd=folder, check=True
    )
    types = {f: tuple(x.dtype for x in leaves(f(*copies(args)))) for f, (args, _) in CASES.items()}
    return {f.__name__: Library(folder / "all.so", types[f], f.__name__) for f in CASES}


def leaves(x: Any) -> list[Any]:
    return list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, tuple) else [x]


def copies(args: Any) -> list[Any]:
    return [x.copy() if isinstance(x, np.ndarray) else x for x in args]


@needs_compiler
@pytest.mark.parametrize("f", CASES, ids=lambda f: str(f.__name__))
def test_results_are_numpys(f: Any, libraries: dict[str, Library]) -> None:
    for args in CASES[f]:
        for threads in (1, 3):
            mine, numpys = copies(args), copies(args)
            results = libraries[f.__name__](*mine, context=Context(threads=threads))
            for found, expected in zip(results, leaves(f(*numpys)), strict=True):
                np.testing.assert_array_equal(found, expected)
                assert found.strides == expected.strides or f is views  # of which C has copies
            for x, y in zip(mine, numpys, strict=True):
                np.testing.assert_array_equal(x, y)


@needs_compiler
def test_strides_are_the_callers(libraries: dict[str, Library]) -> None:
    whole = image(90, 200)
    a, b = whole[::-2, :70], image(100, 70)[10:55]
    found, _ = libraries["point"](a, b, 0.25, 1)
    np.testing.assert_array_equal(found, point(a, b, 0.25, 1)["sum"])
    before = whole.copy()
    (found,) = libraries["in_place"](whole[:45, 20:90], b)
    in_place(before[:45, 20:90], b)
    np.testing.assert_array_equal(whole, before)


@needs_compiler
def test_what_is_refused(libraries: dict[str, Library]) -> None:
    f, a, b = libraries["point"], image(30, 40), image(30, 40)
    out = [np.empty_like(a), np.empty_like(a)]

    def status(*args: Any, outputs: Any = out) -> str:
        return f.run((*args, 0.5, 3), outputs)

    assert status(a, b) == "HJIT_OK"
    assert f.shapes(a, b[:20])[0] == status(a, b[:20]) == "HJIT_WRONG_SHAPE"
    assert status(a[:16], b[:16], outputs=[x[:16] for x in out]) == "HJIT_WRONG_SHAPE"  # those are constants of kernels
    assert status(a[0], b) == "HJIT_WRONG_RANK"
    assert status(a.T.copy().T, b) == "HJIT_WRONG_STRIDES"
    assert status(a, b, outputs=[out[0][:20], out[1]]) == "HJIT_WRONG_SHAPE"
    assert status(a, b, outputs=[out[0].T.copy().T, out[1]]) == "HJIT_WRONG_STRIDES"
    assert status(a, b, outputs=[a, out[1]]) == status(a, b, outputs=[out[0], out[0]]) == "HJIT_OVERLAP"
    assert f._call(None, None, ctypes.c_double(0), ctypes.c_int64(0), None, None, None) == 1
    nothing = as_c(a)
    nothing.data = None
    given = [nothing, as_c(b), ctypes.c_double(0), ctypes.c_int64(0), *map(as_c, out)]
    assert f._call(*(ctypes.byref(x) if hasattr(x, "ndim") else x for x in given), None) == 1


@needs_compiler
def test_indices_out_of_bounds_and_memory_that_is_not_there(libraries: dict[str, Library]) -> None:
    f, a, table = libraries["looked_up"], image(20, 17, dtype="i8"), image(252)
    out = [np.empty(a.shape, np.float32)]
    assert f.run((a - 252, table), out) == "HJIT_OK"
    assert f.run((a, table[:200]), out) == f.run((a - 300, table), out) == "HJIT_OUT_OF_BOUNDS"
    asked: list[int] = []
    allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(
        lambda user, n: asked.append(n)  # type: ignore[func-returns-value]
    )
    context = Context(allocate=ctypes.cast(allocate, ctypes.c_void_p).value)
    assert f.run((a, table), out, context) == "HJIT_NO_MEMORY"
    assert asked


@needs_compiler
def test_tasks_on_the_callers_threads(libraries: dict[str, Library]) -> None:
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    seen: list[int] = []

    def parallel(user: Any, task: Any, work: Any, n: int) -> None:
        seen.append(n)
        for k in reversed(range(n)):
            run(task)(work, k)

    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    hook = kind(parallel)
    context = Context(threads=2, parallel=ctypes.cast(hook, ctypes.c_void_p).value)
    a = image(700, 800)
    np.testing.assert_array_equal(libraries["pyramid"](a, context=context)[0], pyramid(a)[0])
    assert seen


def test_sizes_that_python_takes_apart_are_fixed(tmp_path: Path) -> None:
    def f(a: Any, b: Any) -> Any:
        return a[: int(0.5 * a.shape[0])] * (1.5 if b.shape[0] % 2 else 2.5), b[: b.shape[0] // 3] + b.mean()

    exported = hjit.pipeline(f).export(tmp_path / "f.o", image(40, 60), image(60, 90), target="aarch64")
    assert exported.fixed == ("a.0",)
    assert "a.shape[0] == 40" in exported.header
    assert "((b.shape[0])%(2)) == 0" in exported.header


def runs_over_rows(a: Any) -> Any:
    out = a.copy()
    for y in range(1, a.shape[0]):
        out[y] += 0.5 * out[y - 1]
    for x in range(a.shape[1] - 2, -1, -1):
        out[:, x] += 0.5 * out[:, x + 1]
    return out


def counts_rows_and_columns(a: Any) -> Any:
    return np.linspace(0, 1, a.shape[0])[:, None] * a + np.arange(a.shape[1])


@pytest.mark.parametrize("f", [runs_over_rows, counts_rows_and_columns])
def test_sizes_that_loops_and_ranges_run_over_may_differ(f: Any, tmp_path: Path) -> None:
    text = hjit.pipeline(f).export(tmp_path / "f.o", image(60, 70), target="aarch64").header
    assert re.findall(r"^     (a\.shape.*)$", text, re.MULTILINE) == ["a.shape[0] > 16", "a.shape[1] > 16"]


def test_ranges_of_numbers_need_their_rows(tmp_path: Path) -> None:
    def f(a: Any) -> Any:
        out = a.copy()
        for y in range(1, 50):
            out[y] += out[y - 1]
        return out

    exported = hjit.pipeline(f).export(tmp_path / "f.o", image(60, 70), target="aarch64")
    assert "a.shape[0] > 49" in exported.header


def decides(a: Any) -> Any:
    return a if a.max() > 3 else a + 1


def draws(a: Any) -> Any:
    return a + np.random.rand()


def calls(a: Any) -> Any:
    return np.fft.fft2(a).real


def gives_other_bytes(a: Any) -> Any:
    return a.view(np.int32), a + 1


def rounds(a: Any, x: float) -> Any:
    return a * round(x * 3.0, 2)


@pytest.mark.parametrize(
    ("f", "args", "what"),
    [
        (decides, (), "a Python decision on a computed value"),
        (draws, (), "random numbers"),
        (calls, (), "numpy.fft.fft2 is called as it is"),
        (gives_other_bytes, (), "a view of an argument, of another dtype"),
        (rounds, (0.5,), "compiled for the number 1.5, which is computed of x"),
    ],
)
def test_what_needs_python(f: Any, args: Any, what: str, tmp_path: Path) -> None:
    try:
        assert what in hjit.pipeline(f).export(tmp_path / "f.o", image(40, 50), *args).header
    except HjitError as error:
        assert what in str(error)
        assert "What to do: " in str(error)
        assert not [*tmp_path.iterdir()]


def test_refusals_name_the_line(tmp_path: Path) -> None:
    def f(a: Any, way: int) -> Any:
        b = a * 2
        if way == 0:
            return b if b.max() > 3 else a
        if way == 1:
            return b + np.linalg.inv(b)
        return b, 3

    for way, line in enumerate((3, 5, 0)):
        with pytest.raises(HjitError, match=f"^{__file__}:{f.__code__.co_firstlineno + line} in f: export: "):
            hjit.pipeline(f).export(tmp_path / "f.o", image(40, 40), way)


def test_folders_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        hjit.pipeline(pyramid).export(tmp_path / "none" / "f.o", image(40, 50))
    assert caught.value.filename == str(tmp_path / "none" / "f.o") and not [*tmp_path.iterdir()]


def test_names_and_targets(tmp_path: Path) -> None:
    f = hjit.pipeline(pyramid)
    with pytest.raises(OptionError, match=r"ends in \.o"):
        f.export(tmp_path / "f.dll", image(40, 50))
    for name in ("a b", "int", "malloc", "NULL", "hjit_array"):
        with pytest.raises(OptionError, match="no name for a C function of one's own"):
            f.export(tmp_path / "f.o", image(40, 50), name=name)
    with pytest.raises(OptionError, match="name at least one"):
        f.export(tmp_path / "f.o", image(40, 50), targets=[])
    with pytest.raises(OptionError, match="aarch64"):
        f.export(tmp_path / "f.o", image(40, 50), target="sparc")
    with pytest.raises(OptionError, match="is linked there"):
        f.export(tmp_path / "f.so", image(40, 50), target="aarch64")
    levels: Any = ("x86-64-v2", "x86-64-v3")
    with pytest.raises(OptionError, match=r"targets=\['x86-64-v2', 'x86-64-v3'\]"):
        f.export(tmp_path / "f.o", image(40, 50), target=levels)
    with pytest.raises(OptionError, match="target=None: the name of one"):
        hjit.pipeline(pyramid).export(tmp_path / "f.o", image(40, 50), target=None)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="For one: target='aarch64'"):
        f.export(tmp_path / "f.o", image(40, 50), targets="aarch64")
    assert not [*tmp_path.iterdir()]


@needs_compiler
def test_arguments_are_called_as_something_of_c(tmp_path: Path) -> None:
    def f(hjit_array: Any, NULL: Any, INT_MAX: float, sqrt: float, int64_t: int, memset: Any) -> Any:
        return hjit_array * math.sqrt(sqrt) + NULL * INT_MAX + int64_t - memset

    a = image(20, 30)
    args = (a, a + 1, 0.5, 2.0, 3, a * 2)
    hjit.pipeline(f).export(tmp_path / "f.so", *args)
    (found,) = Library(tmp_path / "f.so", (f(*args).dtype,))(*args)
    assert np.array_equal(found, f(*args))


def test_arrays_of_dask_are_refused(tmp_path: Path) -> None:
    array = pytest.importorskip("dask.array").ones((40, 50), chunks=20)
    with pytest.raises(HjitError, match="^an argument is an array of Dask. What to do: "):
        hjit.pipeline(pyramid).export(tmp_path / "f.o", array)
    with pytest.raises(HjitError, match="^an argument is an array of Dask. What to do: "):
        hjit.bundle(tmp_path / "f.hjit", (hjit.pipeline(pyramid), array))
    assert not [*tmp_path.iterdir()]


def test_without_a_c_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hjit.export.library._found_compiler", lambda: None)
    with pytest.raises(HjitError, match=r"no C compiler .*export an object file"):
        hjit.pipeline(pyramid).export(tmp_path / "f.so", image(40, 50))


MACHINES = {"x86-64-v2": 62, "x86-64-v3": 62, "x86-64-v4": 62, "aarch64": 183}  # ELF's numbers


@pytest.mark.parametrize("target", MACHINES)
def test_object_files_for_other_processors(target: str, tmp_path: Path) -> None:
    f = hjit.pipeline(lambda a, s: np.exp(np.sqrt(a) * s).astype(np.uint8)[1:] + np.uint8(3))
    exported = f.export(tmp_path / "f.o", image(40, 50), 0.2, target=target)
    assert [p.name for p in exported.files] == ["f.o", "f.h", "f.c"]
    head = exported.files[0].read_bytes()
    assert head[:4] == b"\x7fELF"
    assert int.from_bytes(head[18:20], "little") == MACHINES[target]


@needs_compiler
def test_the_code_is_c_and_the_header_is_cpp(folder: Path) -> None:
    strict = [str(COMPILER), "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    for f in CASES:
        subprocess.run([*strict, "-std=c11", "-DHJIT_NO_THREADS", f"{f.__name__}.c"], cwd=folder, check=True)
    if shutil.which("c++"):
        (folder / "all.cpp").write_text("".join(f'#include "{f.__name__}.h"\n' for f in CASES))
        subprocess.run(["c++", *strict[1:], "all.cpp"], cwd=folder, check=True)


CROSS = shutil.which("aarch64-linux-gnu-gcc")
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
PROGRAM = Path(__file__).with_name("program.c")


def program(folder: Path, compiler: str, files: list[str], *runner: str) -> None:
    """Compile and run `program.c`, and compare what it has computed."""
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I.", str(PROGRAM), "-o", "program"]
    subprocess.run([compiler, *flags, *files, "-lm", "-pthread"], cwd=folder, check=True)
    a, b = image(60, 70), image(60, 70)[::-1].copy()
    (folder / "data").write_bytes(a.tobytes() + b.tobytes())
    subprocess.run([*runner, "./program", "60", "70"], cwd=folder, check=True)
    found = np.fromfile(folder / "results", np.float32).reshape(4, 60, 70)
    expected = [*point(a, b, 0.75, 5).values(), in_place(a, b), a]
    np.testing.assert_array_equal(found, np.stack(expected))


@needs_compiler
def test_a_program_in_c(folder: Path) -> None:
    library = hjit.pipeline(in_place).export(folder / "changed.so", *CASES[in_place][0])
    assert [p.name for p in library.files] == ["changed.so", "changed.h"]
    program(folder, str(COMPILER), ["point.o", "point.c", "./changed.so"])


@pytest.mark.skipif(not (CROSS and QEMU), reason="no compiler and no emulator of aarch64")
def test_a_program_on_aarch64(tmp_path: Path) -> None:
    for f, name in ((point, "point"), (in_place, "changed")):
        hjit.pipeline(f).export(tmp_path / f"{name}.o", *CASES[f][0], target="aarch64")
    files = [f"{name}.{suffix}" for name in ("point", "changed") for suffix in "oc"]
    program(tmp_path, str(CROSS), ["-static", *files], str(QEMU))


# -- several levels of x86-64 in one library

QEMU_X86 = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
needs_x86 = pytest.mark.skipif("x86" not in host_features(), reason="needs x86-64")


def level_here() -> str:
    """The highest level of x86-64 that this processor has."""
    return platform("cpu").name


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `point` for all levels: object files, and a program that is linked to them."""
    folder = tmp_path_factory.mktemp("levels")
    exported = hjit.pipeline(point).export(folder / "point.o", *CASES[point][0], targets=[*reversed(LEVELS)])
    assert [p.name for p in exported.files] == ["point_v2.o", "point_v3.o", "point_v4.o", "point.h", "point.c"]
    assert exported.target == "x86-64-v2, x86-64-v3, x86-64-v4"
    assert "const char *point_target(void);" in exported.header
    source = Path(__file__).with_name("levels.c")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I.", str(source), "-o", "levels"]
    files = ["point.c", "point_v2.o", "point_v3.o", "point_v4.o"]
    subprocess.run([str(COMPILER), *flags, *files, "-lm", "-pthread"], cwd=folder, check=True)
    return folder


def ran(folder: Path, *runner: str) -> str:
    """What the program prints; its results must be NumPy's, or nothing."""
    done = subprocess.run([*runner, "./levels"], cwd=folder, capture_output=True, text=True, check=True)
    found = np.fromfile(folder / "results", np.float32).reshape(2, 60, 70)
    a = image(60, 70)
    expected = np.stack([*point(a, a.ravel()[::-1].reshape(60, 70), 0.75, 5).values()])
    np.testing.assert_array_equal(found, expected if done.stdout.endswith("done\n") else np.zeros_like(expected))
    return done.stdout.strip()


@needs_compiler
@needs_x86
def test_a_program_of_several_levels_runs_the_highest(levels: Path) -> None:
    assert ran(levels) == f"{level_here()}: done"


@needs_compiler
@needs_x86
@pytest.mark.skipif(QEMU_X86 is None, reason="no emulator of x86-64")
@pytest.mark.parametrize(
    ("cpu", "what"),
    [
        ("Nehalem", "x86-64-v2: done"),
        ("Haswell", "x86-64-v3: done"),
        ("qemu64,-popcnt,-sse4.1,-sse4.2,-ssse3", "none: the processor lacks instructions that are needed"),
    ],
)
def test_a_lesser_processor_runs_what_it_has(levels: Path, cpu: str, what: str) -> None:
    assert ran(levels, str(QEMU_X86), "-cpu", cpu) == what


@needs_compiler
@needs_x86
def test_a_shared_library_of_several_levels(tmp_path: Path) -> None:
    args = CASES[in_place][0]
    exported = hjit.pipeline(in_place).export(tmp_path / "f.so", *args, targets=[*LEVELS])
    assert [p.name for p in exported.files] == ["f.so", "f.h"]
    library = Library(exported.files[0], (np.dtype(np.float32),))
    mine, numpys = copies(CASES[in_place][1]), copies(CASES[in_place][1])
    (found,) = library(*mine)
    np.testing.assert_array_equal(found, in_place(*numpys))
    np.testing.assert_array_equal(mine[0], numpys[0])
    name = ctypes.CDLL(str(exported.files[0])).f_target
    name.restype = ctypes.c_char_p
    assert name().decode() == level_here()
    assert library.run([image(40, 50), image(40)], [image(40, 50)]) == "HJIT_WRONG_RANK"


def test_one_library_has_levels_of_one_kind_of_processor(tmp_path: Path) -> None:
    f = hjit.pipeline(pyramid)
    with pytest.raises(OptionError, match="not aarch64 beside them"):
        f.export(tmp_path / "f.o", image(40, 50), targets=["x86-64-v2", "aarch64"])
    with pytest.raises(OptionError, match="sparc"):
        f.export(tmp_path / "f.o", image(40, 50), targets=["x86-64-v2", "sparc"])
    with pytest.raises(OptionError, match="give one of them"):
        f.export(tmp_path / "f.o", image(40, 50), target="cpu", targets=["x86-64-v2"])
    assert [p.name for p in f.export(tmp_path / "f.o", image(40, 50), targets=["aarch64"]).files] == [
        "f.o",
        "f.h",
        "f.c",
    ]
    assert not (tmp_path / "f_v2.o").exists()
