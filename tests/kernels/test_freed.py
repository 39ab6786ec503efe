"""Compiled code goes with the last pipeline that holds it, beyond a number of kernels that are kept, and never while it may still be called."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.runtime import backend, kernel
from hjit.kernels.runtime.codegen import global_compiler_lock
from tests.scripts import run_script

IMAGE = np.arange(600.0).reshape(20, 30)
KEPT = 8

Alive = Callable[[], int]


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Alive]:
    """How many libraries there are of those that were made since the test began; a few kernels are kept."""
    made: list[weakref.ref[Any]] = []
    load = backend.load_object

    def loaded(*args: Any) -> Any:
        found = load(*args)
        made.append(weakref.ref(found.library))
        return found

    def count() -> int:
        gc.collect()
        return sum(x() is not None for x in made)

    monkeypatch.setattr(kernel, "_kernels", {})
    monkeypatch.setattr(kernel, "KEPT", KEPT)
    monkeypatch.setattr(backend, "load_object", loaded)
    yield count


def pipeline(n: int) -> Any:
    """A pipeline with a kernel of its own."""
    return hjit.pipeline(eval(f"lambda img: img * {n} + 0.5"), verify="off", cache="off", tune=False)


def check(p: Any, n: int) -> None:
    np.testing.assert_array_equal(p(IMAGE), IMAGE * n + 0.5)


def test_kernels_go_with_their_pipelines(alive: Alive) -> None:
    for n in range(300):
        check(pipeline(n), n)
        if n % 50 == 49:
            assert alive() == KEPT


def test_kernels_stay_with_their_pipelines(alive: Alive) -> None:
    count = 5 * KEPT
    held = {n: pipeline(n) for n in range(count)}
    for n, p in held.items():
        check(p, n)
    assert alive() == count
    for n, p in held.items():
        check(p, n)
        np.testing.assert_array_equal(p(IMAGE[3:]), IMAGE[3:] * n + 0.5)  # another size, the same kernel
        assert p.stats.compilations == 1
    assert alive() == count
    del p
    for n in range(0, count, 2):
        del held[n]
    assert count // 2 <= alive() <= count // 2 + KEPT
    for n, p in held.items():
        check(p, n)
    del p
    held.clear()
    assert alive() == KEPT


def test_a_kernel_of_two_pipelines_goes_with_the_second(alive: Alive) -> None:
    first, second = pipeline(-1), pipeline(-1)
    check(first, -1)
    for n in range(2 * KEPT):
        check(pipeline(n), n)
    check(second, -1)  # the kernel is found although it is no longer among those that are kept
    assert second.stats.compilations == 0
    for n in range(2 * KEPT):
        check(pipeline(n), n)
    assert alive() == KEPT + 1
    del first
    assert alive() == KEPT + 1
    check(second, -1)
    del second
    assert alive() == KEPT


def test_a_pipeline_that_is_made_again_finds_its_kernel(alive: Alive) -> None:
    for _ in range(5):
        for n in range(KEPT):
            check(pipeline(n), n)
    assert alive() == KEPT
    p = pipeline(0)
    check(p, 0)
    assert p.stats.compilations == 0


def test_other_schedules_free_theirs(alive: Alive) -> None:
    p = pipeline(3)
    check(p, 3)
    (name,) = [s.name for s in p.graph(IMAGE)[0].stages]
    for lanes in range(2, 2 + 2 * KEPT):
        s = p.use(None).schedule(IMAGE)
        s[name].split("x", "xo", "xi", lanes)
        p.use(s)
        check(p, 3)
    assert alive() == KEPT
    p.use(None)
    check(p, 3)
    assert alive() == KEPT


def test_code_that_can_be_called_is_not_freed(alive: Alive) -> None:
    p = pipeline(7)
    check(p, 7)
    (bound,) = next(iter(p._entries.values())).variants[0].bounds
    entry = bound.kernel.compiled.entry
    del p, bound
    kernel._kernels.clear()
    assert alive() == 1
    del entry
    assert alive() == 0


@pytest.mark.parametrize("lock", ["hjit's", "numba's", "numba's, here"])
def test_nothing_is_freed_while_something_compiles_or_forks(lock: str, alive: Alive) -> None:
    """A fork takes numba's lock, in its own thread."""
    held = {
        "hjit's": backend._lock,
        "numba's": global_compiler_lock,
        "numba's, here": global_compiler_lock,
    }[lock]
    ready, go = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            ready.set()
            go.wait()

    check(pipeline(1), 1)
    if lock == "numba's, here":
        with held:
            kernel._kernels.clear()
            assert alive() == 1
    else:
        other = threading.Thread(target=hold)
        other.start()
        ready.wait()
        kernel._kernels.clear()
        assert alive() == 1
        go.set()
        other.join()
    check(pipeline(2), 2)
    assert alive() == 1  # what was put off is freed with the next that compiles; the new one is kept


def test_many_threads_make_and_drop_kernels(alive: Alive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "KEPT", 1)

    def work(seed: int) -> None:
        for n in range(12):
            p = pipeline(seed % 3 * 100 + n)
            for _ in range(3):
                check(p, seed % 3 * 100 + n)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    check(pipeline(-5), -5)
    assert alive() == 1


def test_forks_and_the_end_while_threads_drop_kernels(tmp_path: Path) -> None:
    out = run_script(
        tmp_path,
        """
    import os, threading
    import numpy as np
    import hjit
    from hjit.kernels.runtime import kernel

    kernel.KEPT = 1
    img = np.arange(600.0).reshape(20, 30)

    def check(n):
        p = hjit.pipeline(eval(f"lambda img: img * {n} + 0.5"), verify="off", cache="off", tune=False)
        assert np.array_equal(p(img), img * n + 0.5)

    def forever(n):
        while True:
            n += 2
            check(n)

    check(0)
    for k in range(2):
        threading.Thread(target=forever, args=(k,), daemon=True).start()
    for _ in range(8):
        check(-1)
        pid = os.fork()
        if pid == 0:
            for n in range(3):
                check(-n)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    print("done")
    """,
    )
    assert out.split() == ["done"]


def test_bytes_that_are_no_object_code() -> None:
    pipeline(1)(IMAGE)
    for data in (b"", b"x", b"not object code at all"):
        with pytest.raises(hjit.CompileError, match="no object code"):
            backend.load_object(data, "hjit_0")
