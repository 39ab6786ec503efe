"""The applications' schedules by hand for a GPU: results are NumPy's, and no register is spilled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from benchmarks import apps
from benchmarks.gpu.candidates import schedule_file
from benchmarks.gpu.suite import LAYOUTS
from benchmarks.rows import problem
from hjit.kernels.cuda.compilers import nvrtc
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.test_application_kernels import CAPABILITIES

CASES = [(app, layout) for app in apps.NAMES for layout in LAYOUTS if schedule_file(app, layout).exists()]
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def pipeline(function: Any, app: str, layout: str, fast_math: bool = False) -> Any:
    f: Any = hjit.pipeline(function, target="cuda", fast_math=fast_math, verify="off", cache="off", blas=False)
    return f.use(hjit.Schedule.load(schedule_file(app, layout)))


def rotated() -> list[Any]:
    """Each schedule for one capability, by turns; the others are slow."""
    usual = {(*case, CAPABILITIES[k % len(CAPABILITIES)]) for k, case in enumerate(CASES)}
    every = [(*case, capability) for case in CASES for capability in CAPABILITIES]
    return [pytest.param(*x, marks=[] if x in usual else pytest.mark.slow) for x in every]


def test_every_file_is_of_an_application() -> None:
    folder = schedule_file("blur", "planar").parent
    assert {x.name for x in folder.iterdir()} == {schedule_file(*case).name for case in CASES} != set()


@needs_device
@pytest.mark.parametrize(("app", "layout"), CASES)
def test_results_are_numpys(app: str, layout: str, on_device: None) -> None:
    assert_numpys(app, layout, fast_math=CASES.index((app, layout)) % 2 == 1)


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize(("app", "layout"), CASES)
def test_results_with_the_other_arithmetic_are_numpys(app: str, layout: str, on_device: None) -> None:
    assert_numpys(app, layout, fast_math=CASES.index((app, layout)) % 2 == 0)


def assert_numpys(app: str, layout: str, fast_math: bool) -> None:
    p = problem(app, layout, small=True)
    assert p is not None
    f = pipeline(p.function, app, layout, fast_math)
    rtol, atol = p.tolerance
    found = f(*p.arguments)
    np.testing.assert_allclose(found.astype(np.float64), p.expected.astype(np.float64), rtol, atol)
    assert f.stats.fallbacks == 0


@needs_nvrtc
@pytest.mark.parametrize(("app", "layout", "capability"), rotated())
def test_no_register_is_spilled(app: str, layout: str, capability: int) -> None:
    if capability not in nvrtc.capabilities():
        pytest.skip(f"this NVRTC has no sm_{capability}")
    p = problem(app, layout, small=True)
    assert p is not None
    kernels = pipeline(p.function, app, layout).kernels(*p.arguments, capability=capability)
    assert len(kernels) > 0
    assert not [x for x in kernels if x.resources.spill_loads or x.resources.spill_stores]
