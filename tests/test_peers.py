"""The applications in JAX and PyTorch, small, on the CPU, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import apps, peers, rows
from benchmarks.gpu.candidates import Absent, Setting


def problem(app: str) -> rows.Problem:
    found = rows.problem(app, "planar", small=True)
    assert found is not None
    return found


def assert_agrees(got: Any, p: rows.Problem) -> None:
    """As the benchmark asks for; said with numbers."""
    got = np.asarray(got)
    assert (got.shape, got.dtype) == (p.expected.shape, p.expected.dtype)
    rtol, atol = p.tolerance
    np.testing.assert_allclose(got, p.expected, rtol=rtol, atol=atol)
    assert rows.agrees(got, p.expected, p.tolerance)


@pytest.mark.parametrize("app", apps.NAMES)
def test_jax_computes_what_numpy_does(app: str) -> None:
    pytest.importorskip("jax")
    from benchmarks.peers import jax

    p = problem(app)
    made = jax.build(app, p.arguments, threads=2)
    out = np.full(made.shape, 99).astype(made.dtype)
    made.run(out)
    assert_agrees(out, p)


def on_torch(p: rows.Problem, compiled: bool) -> Any:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    function = peers.function("torch", p.app)
    if compiled:
        function = torch.compile(function, dynamic=False, fullgraph=True)
    with torch.no_grad():
        return function(*(torch.as_tensor(x) if isinstance(x, np.ndarray) else x for x in p.arguments)).numpy()


@pytest.mark.parametrize("app", apps.NAMES)
def test_torch_computes_what_numpy_does(app: str) -> None:
    p = problem(app)
    assert_agrees(on_torch(p, compiled=False), p)


@pytest.mark.slow
@pytest.mark.parametrize("app", apps.NAMES)
def test_torch_compiles_each_as_one_graph(app: str) -> None:
    p = problem(app)
    assert_agrees(on_torch(p, compiled=True), p)


@pytest.mark.parametrize("package", ["jax", "torch"])
def test_each_application_has_a_version(package: str) -> None:
    assert [app for app in apps.NAMES if not peers.has(package, app)] == []


class Arrays:
    """What a setting needs of CuPy before anything runs."""

    asarray = staticmethod(np.asarray)


@pytest.mark.parametrize("package", ["jax", "torch"])
def test_versions_are_candidates(package: str) -> None:
    pytest.importorskip(package, exc_type=ImportError)
    s = Setting(Arrays, "blur", "planar", True, None, stand_in=True)
    c = getattr(s, package)()
    assert c.name == package and c.how.startswith("by the clock") and c.wait is not None
    assert_agrees(c.run(), s.p)
    c.wait()
    last = Setting(Arrays, "unsharp", "channels_last", True, None, stand_in=True)
    with pytest.raises(Absent):
        getattr(last, package)()


def test_jax_without_a_gpu_is_no_candidate_for_one() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() == "gpu":
        pytest.skip("there is one")
    with pytest.raises(RuntimeError, match="JAX has no GPU here"):
        Setting(Arrays, "blur", "planar", True, None).jax()
