"""``python -m benchmarks gpu``: what an entry says, and what becomes of candidates that fail."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from benchmarks.gpu import suite, table, worker
from benchmarks.gpu.candidates import Absent, Candidate, Setting
from benchmarks.gpu.clock import RESOLUTION, Clock, must_move
from hjit.kernels.cuda.compilers import opencl
from hjit.kernels.lower import nest_merging
from tests.kernels.cuda import fake_cupy
from tests.kernels.test_nest_merging import twelve
from tests.numpy_check import image

needs_opencl = pytest.mark.skipif(not opencl.is_available(), reason="needs an OpenCL device")
PEERS = {"jax": "left out", "torch": "left out"}


@pytest.fixture
def cupy() -> Iterator[Any]:
    with worker.package(stand_in=True) as found:
        yield found


def setting(cupy: Any, app: str = "blur") -> Setting:
    return Setting(cupy, app, "planar", True, None, stand_in=True)


@needs_opencl
def test_an_entry(cupy: Any) -> None:
    s, at = setting(cupy, "unsharp"), list[str]()
    entry = worker.measure(s, 0.0, PEERS, at.append)
    kernels = s.pipelines["hjit default"].kernels(*s.args)
    assert entry["kernels"] == len(kernels) > 0
    assert entry["kernel_bytes"] == sum(x.estimate.bytes for x in kernels) >= s.p.bytes
    rows = entry["rows"]
    ours = {"hjit default", "hjit default fast", "hjit manual", "hjit manual fast"}
    assert {name for name, r in rows.items() if r.get("kernels_part_of_copy", 0) > 0} == ours
    assert all(rows[name]["part_of_copy"] > 0 and rows[name]["agrees"] for name in ours)
    assert rows["jax"] == rows["torch"] == {"error": "left out"}
    assert entry["numpy_arrays_ms"] > 0 and "numpy_arrays_error" not in entry
    by_halide = ["halide manual", "halide anderson2021"]
    mine = ["hjit default", "hjit default fast", "hjit manual", "hjit manual fast"]
    assert at == ["copy", *mine, "cupy", *by_halide, "timing"]


def test_bytes_are_those_of_the_table_of_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nests with the body of an earlier one, too."""
    monkeypatch.setattr(nest_merging, "MANY", 2)

    f: Any = hjit.pipeline(twelve, target="cuda", verify="off", cache="off")
    args = [image((40, 50), np.float32)]
    assert "as nest" in str(f.loops(*args)), "no nest has the body of another"
    found = f.kernels(*args)
    assert must_move(f, args) == (len(found), sum(x.estimate.bytes for x in found))


@needs_opencl
def test_no_time_is_shorter_than_the_clock_tells(cupy: Any) -> None:
    assert Clock(cupy).seconds(Candidate("nothing", lambda: None), 1) == RESOLUTION


@needs_opencl
def test_a_candidate_without_a_pipeline_and_failures_are_said(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Candidate:
        raise IndexError("out of range")

    def absent(*_: object) -> Candidate:
        raise Absent("none")

    monkeypatch.setattr(Setting, "hjit", failing)
    monkeypatch.setattr(Setting, "by_cupy", absent)
    entry = worker.measure(setting(cupy), 0.0, PEERS)
    assert entry["rows"]["hjit default"] == {"error": "IndexError: out of range"}
    assert "cupy" not in entry["rows"] and "kernels" not in entry
    assert "blur, hjit default: IndexError: out of range" in list(table.problems("blur", entry))


@needs_opencl
def test_a_candidate_that_spoils_the_device_ends_the_process(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent leaves it out then: no other one would run in this process."""
    at: list[str] = []

    def spoilt() -> None:
        if at[-1] != "copy":
            raise fake_cupy.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    def failing(*_: object) -> Candidate:
        spoilt()
        raise AssertionError

    monkeypatch.setattr(Setting, "hjit", failing)
    monkeypatch.setattr(cupy.cuda.runtime, "deviceSynchronize", spoilt)
    with pytest.raises(RuntimeError, match="IllegalAddress"):
        worker.measure(setting(cupy), 0.0, PEERS, at.append)
    assert at == ["copy", "hjit default"]


@needs_opencl
def test_calls_with_numpy_arrays_that_fail_are_said(cupy: Any) -> None:
    s = setting(cupy)

    def full(*_: object) -> None:
        raise MemoryError("no pinned memory")

    found = worker._with_transfers(full, s.p.arguments)
    assert found == {"numpy_arrays_error": "MemoryError: no pinned memory"}
    assert list(table.problems("blur", found)) == ["blur, NumPy arrays: MemoryError: no pinned memory"]


def test_a_candidate_that_ends_the_process_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    def process(request: dict[str, Any], limit: float) -> tuple[dict[str, Any], str | None]:
        asked.append(dict(request["skip"]))
        at = next((name for name in ("jax", "torch") if name not in request["skip"]), None)
        return ({"rows": {}} if at is None else {"error": f"{at} died"}), at

    monkeypatch.setattr(suite, "process", process)
    assert suite.measured({"app": "blur"}, float("inf")) == {"rows": {}}
    assert asked == [{}, {"jax": "jax died"}, {"jax": "jax died", "torch": "torch died"}]
    monkeypatch.setattr(suite, "process", lambda request, limit: ({"error": "while timing"}, "timing"))
    assert suite.measured({"app": "blur"}, float("inf")) == {"error": "while timing"}


def test_the_exception_that_ended_a_process_is_said() -> None:
    found, at = suite.process(
        {"app": "no such", "layout": "planar", "small": True, "halide": None, "stand_in": True}, 60.0
    )
    assert found["error"].startswith("the process ended with status 1: ModuleNotFoundError: No module") and at is None


def test_a_candidate_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "answer.json"
    file.with_name("answer.json.at").write_text("torch")
    times = itertools.count(0.0, suite.BUILD_SECONDS / 3)
    monkeypatch.setattr("benchmarks.gpu.suite.time.monotonic", lambda: next(times))
    monkeypatch.setattr(suite, "POLL_SECONDS", 0.01)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert suite._wait(child, file, 1e9) == "its first call was not done in 90 s"
        assert suite._wait(child, file, 50.0) == "not done in 50 s"
    finally:
        child.kill()
        child.wait()
    assert suite._wait(child, file, 1e9) is None


def test_entries_of_an_earlier_run_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"gpu": {"name": "A"}, "commit": "c"}
    monkeypatch.setattr(suite, "LATE", ("torch",))
    monkeypatch.setattr(suite, "process", lambda request, limit: (known, None))
    monkeypatch.setattr(suite, "measured", lambda request, end: {"rows": {}, "app": request["app"]})
    old = {
        "blur": {"rows": {"cupy": {}}, "gpu": "A", "small": True},
        "hist": {"rows": {"cupy": {}}, "gpu": "B", "small": True},
        "snake": {"error": "not done", "gpu": "A", "small": True},
    }
    kept: list[int] = []
    found = suite.run(
        ("blur", "hist", "snake", "harris"), {"apps": old}, small=True, keep=lambda n: kept.append(len(n["apps"]))
    )["apps"]
    assert found["blur"] is old["blur"] and found["hist"]["app"] == "hist" and found["snake"]["app"] == "snake"
    assert list(found) == ["blur", "hist", "snake", "harris", "harris channels_last"]
    assert kept == [2, 3, 4, 5, *[5] * 3]  # those that PyTorch has a version of, with it then
    assert all(x.get("late", []) == [] for x in found.values())
    assert suite.run(("hist",), {"apps": {}}, minutes=0)["apps"] == {}


def test_applications_with_candidates_that_take_long_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, list[str]]] = []

    def measured(request: dict[str, Any], end: float) -> dict[str, Any]:
        asked.append((request["app"], request["layout"], request["late"]))
        died = request["app"] == "hist" or (request["app"] == "harris" and not request["late"])
        return {"error": "died"} if died else {"rows": {}}

    monkeypatch.setattr(suite, "LATE", ("torch",))
    monkeypatch.setattr(suite, "process", lambda request, limit: ({"gpu": {"name": "A"}, "commit": "c"}, None))
    monkeypatch.setattr(suite, "measured", measured)
    found = suite.run(("hist", "harris", "blur"))["apps"]
    assert asked == [
        ("hist", "planar", ["torch"]),
        ("harris", "planar", ["torch"]),
        ("harris", "channels_last", []),
        ("blur", "planar", ["torch"]),
        ("harris", "planar", []),
        ("blur", "planar", []),
    ]
    assert found["hist"]["error"] == "died" and found["blur"]["late"] == []
    assert found["harris"] == {"rows": {}, "late": ["torch"], "commit": "c", "gpu": "A", "small": False}


def test_the_table_needs_no_more_than_print(capsys: pytest.CaptureFixture[str]) -> None:
    ratios = {"jax": {"median": 2.0}}
    rows = {
        "copy": {"median_ms": 1.0},
        "jax": {"median_ms": 4.0, "agrees": False},
        "torch": {"error": "no compiler"},
        "hjit default": {"median_ms": 2.0, "agrees": True, "part_of_copy": 0.5, "ratios": ratios},
    }
    numbers = {"gpu": {"name": "A"}, "copy_gbs": 1000.0, "call_us": {"hjit": 3.0}}
    table.show({**numbers, "apps": {"blur": {"rows": rows, "numpy_arrays_ms": 12.34}, "hist": {"error": "died"}}})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ms on A; copies 1000 GB/s"
    assert lines[2].split() == ["blur", "1", "-", "4", "(disagrees)", "failed", "-", "-", "-", "2", "-", "0.50", "12.3"]
    assert "jax / hjit default: 2.00 (of 1)" in lines
    assert lines[-3:] == ["blur, jax: disagrees with NumPy", "blur, torch: no compiler", "hist: died"]
