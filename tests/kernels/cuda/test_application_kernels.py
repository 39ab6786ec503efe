"""The applications' kernels by default schedules, compiled by NVRTC to machine code that spills no register."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import apps
from hjit.kernels.cuda.compilers import nvrtc
from tests.kernels.cuda.on_opencl import module
from tests.trace.test_canonical import canonical

CAPABILITIES = (75, 80, 90, 100)
CASES = [(app, capability) for app in apps.NAMES for capability in CAPABILITIES]
pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="the package nvidia-cuda-nvrtc is not installed")


def cases() -> list[Any]:
    """Every second application for one capability, by turns; the others are slow."""
    usual = {(app, CAPABILITIES[k % len(CAPABILITIES)]) for k, app in enumerate(apps.NAMES[::2])}
    return [pytest.param(*x, marks=[] if x in usual else pytest.mark.slow) for x in CASES]


def compiles_without_spills(app: str, capability: int, shape: tuple[int, ...]) -> None:
    if capability not in nvrtc.capabilities():
        pytest.skip(f"this NVRTC has no sm_{capability}")
    m = apps.load(app)
    _, kernels = module(canonical(getattr(m, app), *m.inputs(np.random.default_rng(1), shape)))
    made = nvrtc.compiled(kernels.text, capability)
    assert made.cubin.startswith(b"\x7fELF")
    assert made.resources.keys() == {x.kernel for x in kernels.launches}
    assert all(0 < r.registers <= 255 for r in made.resources.values()), made.log
    spilled = {name: r for name, r in made.resources.items() if r.spill_loads or r.spill_stores}
    assert not spilled


@pytest.mark.parametrize(("app", "capability"), cases())
def test_no_register_is_spilled(app: str, capability: int) -> None:
    compiles_without_spills(app, capability, apps.load(app).SMALL)


@pytest.mark.slow
@pytest.mark.parametrize(("app", "capability"), CASES)
def test_no_register_is_spilled_at_the_sizes_that_are_timed(app: str, capability: int) -> None:
    """A size of few pixels may be a constant of a kernel, where a larger one is not."""
    compiles_without_spills(app, capability, apps.load(app).SHAPE)


def test_every_capability_is_in_the_usual_run() -> None:
    usual = [x.values for x in cases() if not x.marks]
    assert {capability for _, capability in usual} == set(CAPABILITIES)
    assert [app for app, _ in usual] == list(apps.NAMES[::2])
