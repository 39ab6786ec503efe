"""Kernels touch nothing outside of their arrays: on PoCL, between pages that may not be touched."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.cuda.guarded import BROKEN, BY_HAND, FAMILIES, all_cases
from tests.kernels.cuda.launching import needs_opencl

ROOT = Path(__file__).parents[3]
QUICK = ("blur", "unsharp", "harris", "camera_pipe", "bilateral_grid", "iir_blur", "mat_mul", "conv_layer")
QUICK_BY_HAND = tuple(f"{app}{BY_HAND}" for app in ("blur_large", "hist", "camera_pipe"))
pytestmark = [
    needs_opencl,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are protected by Linux"),
]


def run(*args: str) -> list[str]:
    """The lines of `tests.kernels.cuda.guarded`, a process of its own, which kernels may end."""
    command = [sys.executable, "-m", "tests.kernels.cuda.guarded", *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{lines[-1:]} ended with {done.returncode}: {done.stderr[-2000:]}"
    return lines


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(tuple(FAMILIES), id="families"),
        pytest.param((*QUICK, *QUICK_BY_HAND), id="applications"),
        pytest.param(
            tuple(x for x in all_cases() if x not in {*FAMILIES, *QUICK, *QUICK_BY_HAND}),
            id="other applications",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_kernels_touch_their_arrays_only(cases: tuple[str, ...]) -> None:
    assert run(*cases) == [*cases]


def test_one_element_outside_of_any_array_is_seen() -> None:
    """Indices of one array shifted by one, past the end of it and before its beginning, in kernels of several kinds."""
    found = [line.split("\t") for line in run("--broken", *BROKEN)]
    assert {case for case, _, _ in found} == {*BROKEN}
    assert len(found) >= 4 * len(BROKEN)  # two arrays, at both ends
    not_seen = [(case, what) for case, what, ended in found if int(ended) not in (signal.SIGSEGV, signal.SIGBUS)]
    assert not not_seen
