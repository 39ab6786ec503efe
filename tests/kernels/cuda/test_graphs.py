"""Kernels of one call as a CUDA graph: when one is captured, which calls it runs, and when it is not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda.runtime import graphs
from hjit.kernels.cuda.runtime.graphs import KEPT, MOST_MISSES, RUNS, Graphs
from tests.kernels.cuda import fake_cupy
from tests.kernels.cuda.launching import needs_device

IMAGE = np.random.default_rng(7).random((40, 50), np.float32)


def normalised(a: Any, k: float) -> Any:
    b = a - a.max()
    return b / b.min() + np.float32(k)


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setitem(fake_cupy.costs, "graph", 1.0)
    monkeypatch.setitem(fake_cupy.costs, "kernel", 1e6)  # so that graphs are faster, whatever this machine takes
    with fake_cupy.installed() as cupy:
        fake_cupy.log.clear()
        yield cupy


def ran(f: Callable[[], Any]) -> list[str]:
    """What is run in a call, and its waiting for the result."""
    fake_cupy.log.clear()
    result = f()
    assert fake_cupy.log == []  # nothing has run yet
    result.get()
    return [x.partition(" on ")[0] for x in fake_cupy.log if x != "get"]


def settled(cp: Any, f: Any, *args: Any) -> None:
    """Call a function until it is decided how its kernels are launched."""
    for _ in range(3 * RUNS + 8):
        f(*args).get()


@needs_device
def test_launches_that_come_again_are_a_graph(cp: Any) -> None:
    f, a = hjit.pipeline(normalised), cp.asarray(IMAGE)
    first = f(a, 1.0).get()
    settled(cp, f, a, 1.0)
    if fake_cupy.is_installed_as(cp):
        assert ran(lambda: f(a, 1.0)) == ["graph"]
        assert "as a CUDA graph" in f.on("cuda").explain(a, 1.0)
    np.testing.assert_array_equal(f(a, 1.0).get(), first)
    np.testing.assert_array_equal(first, normalised(IMAGE, 1.0))


@needs_device
def test_graphs_run_with_the_arrays_and_numbers_of_their_calls_only(cp: Any) -> None:
    f = hjit.pipeline(normalised)
    images = [IMAGE, -IMAGE, IMAGE[::-1].copy()]
    given = [cp.asarray(x) for x in images]
    settled(cp, f, given[0], 1.0)
    kept = []
    for n in range(60):
        k, scale = n % 3, float(n // 7 % 2)
        result = f(given[k], scale)
        kept = kept[-(n % 5) :] + [result]  # results lie where others did, or elsewhere
        np.testing.assert_array_equal(result.get(), normalised(images[k], scale))
        if n % 10 == 9:  # arrays move, and others lie where they were
            given[k] = None
            images[k] = np.random.default_rng(n).random(IMAGE.shape, np.float32)
            given[k] = cp.asarray(images[k])


@needs_device
def test_the_sign_of_zero_is_part_of_a_number(cp: Any) -> None:
    f, a = hjit.pipeline(lambda a, k: (a - a.max()) * 0 * k), cp.asarray(IMAGE)
    settled(cp, f, a, 0.0)
    settled(cp, f, a, -0.0)
    for k in (0.0, -0.0, 0.0):
        expected = np.signbit((IMAGE - IMAGE.max()) * 0 * np.float32(k))
        np.testing.assert_array_equal(np.signbit(f(a, k).get()), expected)


@needs_device
def test_slower_graphs_are_not_kept(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fake_cupy.is_installed_as(cp):
        pytest.skip("a GPU takes the time that it takes")
    monkeypatch.setitem(fake_cupy.costs, "graph", 1e8)
    f, a = hjit.pipeline(normalised), cp.asarray(IMAGE)
    settled(cp, f, a, 1.0)
    assert set(ran(lambda: f(a, 1.0))) == {"kernel"}
    assert "graph" not in f.on("cuda").explain(a, 1.0)
    np.testing.assert_array_equal(f(a, 1.0).get(), normalised(IMAGE, 1.0))


@needs_device
def test_graphs_of_the_caller_have_kernels_in_them(cp: Any) -> None:
    f, a = hjit.pipeline(normalised), cp.asarray(IMAGE)
    settled(cp, f, a, 1.0)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        result = f(a, 1.0)
        graph = stream.end_capture()
    a[...] = cp.asarray(-IMAGE)
    if fake_cupy.is_installed_as(cp):
        assert len(graph.work) > 1
    for _ in range(2):
        graph.launch()
        np.testing.assert_array_equal(result.get(), normalised(-IMAGE, 1.0))


@needs_device
def test_graphs_run_on_the_current_stream(cp: Any) -> None:
    f, a = hjit.pipeline(normalised), cp.asarray(IMAGE)
    settled(cp, f, a, 1.0)
    cp.cuda.get_current_stream().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(3):
            fake_cupy.log.clear()
            result = f(a, 1.0)
            np.testing.assert_array_equal(result.get(), normalised(IMAGE, 1.0))
            assert not fake_cupy.is_installed_as(cp) or {
                x.partition(" on ")[2] for x in fake_cupy.log if x != "get"
            } == {stream.name}


@needs_device
def test_indices_out_of_bounds_raise_from_graphs(cp: Any) -> None:
    def gathered(a: Any, i: Any) -> Any:
        b = a - a.max()
        return b[i] + a.sum()

    f = hjit.pipeline(gathered, verify="off")
    i, bad = cp.asarray(np.array([1, 2, 39])), cp.asarray(np.array([1, 2, 40]))
    a = cp.asarray(IMAGE)
    for n in range(3 * RUNS + 8):
        np.testing.assert_allclose(f(a, i).get(), gathered(IMAGE, np.array([1, 2, 39])), rtol=1e-5)
        if n % 5 == 4:
            with pytest.raises(IndexError):
                f(a, bad)


@needs_device
def test_what_cannot_be_captured_is_launched(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Any, mode: Any = None) -> None:
        raise RuntimeError("not this driver")

    if not fake_cupy.is_installed_as(cp):
        pytest.skip("the driver captures")
    monkeypatch.setattr(fake_cupy.Stream, "begin_capture", refused)
    f, a = hjit.pipeline(normalised), cp.asarray(IMAGE)
    settled(cp, f, a, 1.0)
    assert set(ran(lambda: f(a, 1.0))) == {"kernel"}


class Device:
    """What counts captures, and takes the time that it is told."""

    def __init__(self, graph: float, plain: float) -> None:
        self.seconds, self.clock, self.captures, self.busy = {"graph": graph, "plain": plain}, 0.0, 0, False
        self.log: list[str] = []
        self.done = True

    def launch(self) -> None:
        self.clock += self.seconds["plain"]
        self.log.append("plain")

    def is_capturing(self) -> bool:
        return self.busy

    def captured(self, launch: Callable[[], None]) -> Any:
        self.captures += 1
        return object()

    def replay(self, graph: Any) -> None:
        self.clock += self.seconds["graph"]
        self.log.append("graph")

    def event(self) -> float:
        return self.clock

    def elapsed(self, start: float, end: float) -> float | None:
        return end - start if self.done else None


def test_the_faster_kind_stays() -> None:
    for graph, plain, faster in ((1.0, 2.0, True), (2.0, 1.0, False), (1.0, 1.0, False)):
        device = Device(graph, plain)
        g = Graphs(device)
        for _ in range(3 * RUNS):
            g.run("same", device.launch)
        assert g.is_faster is faster and device.log[-1] == ("graph" if faster else "plain")
        assert device.log.count("graph") >= RUNS


def test_nothing_waits_for_times() -> None:
    device = Device(1.0, 2.0)
    g = Graphs(device)
    device.done = False
    for _ in range(100):
        g.run("same", device.launch)
    assert g.is_faster is None and device.log.count("graph") == RUNS
    device.done = True
    for _ in range(2):
        g.run("same", device.launch)
    assert g.is_faster and device.log[-1] == "graph"


def test_graphs_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_MISSES", 10**6)
    device = Device(1.0, 2.0)
    g = Graphs(device)
    for k in range(500):
        g.run(k % (KEPT + 5), device.launch)
    assert len(g._known) <= KEPT and len(g._noted) <= graphs.NOTED


def test_calls_that_do_not_come_again_have_no_graphs() -> None:
    device = Device(1.0, 2.0)
    g = Graphs(device)
    for k in range(2 * MOST_MISSES):
        g.run(k, device.launch)
    assert g.is_faster is False and device.captures == 0 and device.log == ["plain"] * 2 * MOST_MISSES


def test_no_graph_is_captured_while_the_caller_captures() -> None:
    device = Device(1.0, 2.0)
    g = Graphs(device)
    device.busy = True
    for _ in range(100):
        g.run("same", device.launch)
    assert device.captures == 0 and set(device.log) == {"plain"}


def test_other_threads_launch_meanwhile() -> None:
    device = Device(1.0, 2.0)
    g = Graphs(device)

    def launch() -> None:
        device.launch()
        g.run("same", device.launch)  # as if from another thread

    for _ in range(5):
        g.run("same", launch)
    assert device.log == ["plain"] * 4 + ["graph"] + ["plain"] * 2 + ["graph"]


def test_times_that_cannot_be_read_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(1.0, 2.0)
    g = Graphs(device)

    def refused(start: float, end: float) -> float:
        raise RuntimeError("cudaErrorStreamCaptureUnsafe")

    monkeypatch.setattr(device, "elapsed", refused)
    for _ in range(20):
        g.run("same", device.launch)
    assert g.is_faster is False and device.log[-1] == "plain"
