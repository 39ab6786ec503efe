"""Both commands for a GPU in an environment that has no more than NumPy, SciPy, numba, CuPy, JAX and PyTorch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hjit.kernels.cuda.compilers import opencl
from tests.gpu import plain
from tests.scripts import ROOT

needs_opencl = pytest.mark.skipif(not opencl.is_available(), reason="needs an OpenCL device")


def in_plain(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python there, with the user's caches in a folder."""
    shutil.copy(plain.__file__, folder / "sitecustomize.py")
    paths = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "HJIT_CHECKOUT": str(ROOT)}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HJIT_")}
    environment |= {**paths, "XDG_CACHE_HOME": str(folder / "caches")}
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    ("name", "by", "is_refused"),
    [
        ("platformdirs", "hjit/cache.py", True),
        ("rich.console", "benchmarks/table.py", True),
        ("pytest", "tests/gpu/collect.py", True),
        ("hypothesis", "tests/test_fuzz.py", True),
        ("scipy.ndimage", "benchmarks/apps/snake.py", False),
        ("concurrent.futures", "benchmarks/rows.py", False),
        ("hjit.cache", "tests/test_cache.py", False),
        ("platformdirs", "/usr/lib/pyopencl/cache.py", False),
        ("platformdirs", ".venv/lib/python3.12/site-packages/pyopencl/cache.py", False),
    ],
)
def test_what_is_refused(name: str, by: str, is_refused: bool) -> None:
    assert plain.refused(name, str(ROOT / by)) is is_refused


@needs_opencl
def test_the_tests_run(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    words = ("--stand-in", "--jobs", "1", "--only", "applications,calls", "--json", str(file))
    done = in_plain(tmp_path, "-m", "tests.gpu", *words, "--cases", "blur_large")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert found["counts"] == {"applications": {"passed": 1}} and not found["left_out"]


@needs_opencl
def test_the_benchmark_runs(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    words = ("--stand-in", "--small", "--only", "blur", "--json", str(file))
    done = in_plain(tmp_path, "-m", "benchmarks", "gpu", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    entry = json.loads(file.read_text())["apps"]["blur"]
    rows = entry["rows"]
    assert {"copy", "cupy", "hjit default", "hjit default fast"} <= rows.keys()
    assert all(rows[name]["agrees"] for name in ("cupy", "hjit default")), rows
    assert entry["kernels"] > 0 and "numpy_arrays_ms" in entry, entry
    heading, names, blur, *_ = done.stdout.splitlines()[1:]
    assert heading.startswith("ms on Small GPU") and names.split()[0] == "copy" and blur.split()[0] == "blur"


def test_a_cache_is_kept_where_platformdirs_says(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from hjit import cache\nprint(cache.folder('', make=False))\nprint(cache.folder(''))\n")
    done = in_plain(tmp_path, str(script))
    assert done.stdout.splitlines() == ["None", str(tmp_path / "caches" / "hjit")], done.stderr
