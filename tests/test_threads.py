"""Threads, forks, spawned processes and interrupts; with tbb, and with the fallback in Python."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.entry import limit
from hjit.process import signals
from tests.scripts import run_script

pytestmark = pytest.mark.filterwarnings("error::hjit.HjitWarning")

IMAGE = np.linspace(0, 9, 600 * 500).reshape(600, 500)
LAYERS = ("tbb", "python")
START = """
    import os
    import sys
    import threading
    import numpy as np
    import hjit
    from hjit.kernels.runtime import launch

    img = np.linspace(0, 9, 1500 * 1000).reshape(1500, 1000)

    @hjit.pipeline(verify="off")
    def f(img):
        return np.sqrt(img[1:] + img[:-1]) * 2 + img.sum() * 0

    expected = f.py_func(img)

    def check():
        assert np.array_equal(f(img), expected)

    def wait(pid):
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == 0, status
"""


def at_once(tasks: list[Any]) -> None:
    """Run all tasks in threads that start together."""
    barrier = threading.Barrier(len(tasks))

    def run(task: Any) -> None:
        barrier.wait()
        task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        for done in [pool.submit(run, t) for t in tasks]:
            done.result()


def script(tmp_path: Path, layer: str, text: str, **environment: str) -> str:
    return run_script(tmp_path, START + text, HJIT_THREADING_LAYER=layer, **environment)


# -- threads of this process


@pytest.mark.usefixtures("no_kernels")
def test_first_calls_race() -> None:
    for verify in ("first", "off"):
        p = hjit.pipeline(lambda img: img * 3 + img[0], verify=verify, cache="off")
        expected = IMAGE * 3 + IMAGE[0]
        at_once([lambda p=p, e=expected: np.testing.assert_array_equal(p(IMAGE), e)] * 8)
        assert p.stats.traces == 1
        assert p.stats.compilations == (verify == "first")


def test_one_pipeline_in_eight_threads() -> None:
    p = hjit.pipeline(lambda img, s: np.maximum(img[1:], img[:-1]) * s, verify="off")
    images = [IMAGE[: 600 - k] + k for k in range(8)]

    def task(k: int) -> None:
        for s in range(20):
            np.testing.assert_array_equal(p(images[k], float(s)), np.maximum(images[k][1:], images[k][:-1]) * s)

    at_once([lambda k=k: task(k) for k in range(8)])
    assert p.stats.traces == 8


def test_different_pipelines_in_eight_threads() -> None:
    functions = [lambda img, k=k: np.roll(img, k, 0) * (k + 1) + img.max() for k in range(8)]

    def task(f: Any) -> None:
        p = hjit.pipeline(f)
        for _ in range(5):
            np.testing.assert_array_equal(p(IMAGE), f(IMAGE))

    at_once([lambda f=f: task(f) for f in functions])


def test_decisions_and_options_in_threads() -> None:
    def f(img: Any) -> Any:
        return img / 2 if img.max() > 5 else img + 1

    p = hjit.pipeline(f, verify="off")

    def task(k: int) -> None:
        with hjit.options(num_threads=1 + k % 2):
            for n in range(10):
                image = IMAGE[:50] * ((n + k) % 2 + 0.01)
                np.testing.assert_array_equal(p(image), f(image))

    at_once([lambda k=k: task(k) for k in range(8)])
    assert p.stats.traces <= 4


def test_pipelines_that_call_each_other_under_verification() -> None:
    inner = hjit.pipeline(lambda img: img + 1)
    outer = hjit.pipeline(lambda img: inner(img) * 2)
    at_once([lambda: inner(IMAGE), lambda: outer(IMAGE)] * 4)
    np.testing.assert_array_equal(outer(IMAGE), (IMAGE + 1) * 2)


def test_an_exception_in_one_thread_does_not_stop_others() -> None:
    p = hjit.pipeline(lambda img, index: img[index] * 2)
    good, bad = np.array([1, 2]), np.array([1, 5000])

    def task(k: int) -> None:
        for n in range(10):
            if (n + k) % 2:
                with pytest.raises(IndexError):
                    p(IMAGE, bad)
            else:
                np.testing.assert_array_equal(p(IMAGE, good), IMAGE[good] * 2)

    at_once([lambda k=k: task(k) for k in range(8)])


def test_what_is_known_is_forgotten_while_other_threads_add_to_it() -> None:
    known = dict.fromkeys(range(9), 1)
    added = iter(range(9, 12))

    def another(frame: Any, event: str, arg: object) -> None:
        if event == "c_call" and frame.f_code is limit.__code__ and (key := next(added, None)):
            known[key] = 1

    sys.setprofile(another)
    try:
        limit(known, 4)
    finally:
        sys.setprofile(None)
    assert 8 in known and 0 not in known and next(added, None) is None


def test_one_thread() -> None:
    f = lambda img: np.sqrt(img) + img[::-1]  # noqa: E731
    for n in (1, 2, 3, 64):
        np.testing.assert_array_equal(hjit.pipeline(f, num_threads=n, verify="off")(IMAGE), f(IMAGE))


def test_dask_threads() -> None:
    delayed = pytest.importorskip("dask").delayed
    threaded = pytest.importorskip("dask.threaded")
    p = hjit.pipeline(lambda img: np.sqrt(img) * 2)
    found = delayed(list)([delayed(p)(IMAGE + k) for k in range(8)]).compute(scheduler=threaded.get)
    for k, image in enumerate(found):
        np.testing.assert_array_equal(image, np.sqrt(IMAGE + k) * 2)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_threads_that_a_function_starts() -> None:
    class Mean(threading.Thread):
        def __init__(self, x: Any) -> None:
            super().__init__()
            self.x = x

        def run(self) -> None:
            self.mean = self.x.mean(0)

    started: list[int] = []

    def f(img: Any) -> Any:
        parts = [Mean(img[k::2] * 2) for k in range(2)]
        other = threading.Thread(target=started.append, args=(1,))
        for t in (*parts, other):
            t.start()
            t.join()
        return np.stack([t.mean for t in parts]) + 1

    p = hjit.pipeline(f, on_unsupported="break")
    for n in (1, 2, 3):
        np.testing.assert_allclose(p(IMAGE), f(IMAGE))
        assert len(started) == 2 * n


# -- in processes of their own, for each threading layer


@pytest.mark.parametrize("layer", LAYERS)
def test_the_layer(layer: str, tmp_path: Path) -> None:
    out = script(
        tmp_path,
        layer,
        """
    check()
    check()
    print(launch.parallel_for()[1])
    def task():
        for _ in range(10):
            check()
    threads = [threading.Thread(target=task) for _ in range(8)]
    for t in threads: t.start()
    check()
    for t in threads: t.join()
    """,
    )
    assert out.split() == [layer]


def test_an_unknown_layer(tmp_path: Path) -> None:
    out = script(
        tmp_path,
        "omp",
        """
    try:
        f(img)
    except hjit.OptionError as error:
        print(error)
    """,
    )
    assert "HJIT_THREADING_LAYER='omp'" in out


@pytest.mark.parametrize("layer", LAYERS)
def test_forks(layer: str, tmp_path: Path) -> None:
    out = script(
        tmp_path,
        layer,
        """
    def child():
        pid = os.fork()
        if pid == 0:
            try:
                check()
                check()
                threads = [threading.Thread(target=check) for _ in range(4)]
                for t in threads: t.start()
                for t in threads: t.join()
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(3)
        wait(pid)

    child()
    check()
    child()
    child()
    check()
    print("done")
    """,
    )
    assert out.split() == ["done"]


@pytest.mark.parametrize("layer", LAYERS)
def test_forks_while_other_threads_compile_and_run(layer: str, tmp_path: Path) -> None:
    out = script(
        tmp_path,
        layer,
        """
    stop = threading.Event()
    def busy(seed):
        k = seed
        while not stop.is_set():
            k += 2
            g = hjit.pipeline(eval(f"lambda img: np.sqrt(img) * (1 + {k})"), verify="off", cache="off")
            g(img[:200])
            check()
    check()
    threads = [threading.Thread(target=busy, args=(s,)) for s in range(2)]
    for t in threads: t.start()
    for _ in range(6):
        pid = os.fork()
        if pid == 0:
            g = hjit.pipeline(lambda img: np.abs(img) * 5 + 3, verify="off", cache="off")
            ok = np.array_equal(g(img), np.abs(img) * 5 + 3) and np.array_equal(f(img), expected)
            os._exit(0 if ok else 3)
        wait(pid)
    stop.set()
    for t in threads: t.join()
    print("done")
    """,
    )
    assert out.splitlines()[-1] == "done"


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(layer: str, method: str, tmp_path: Path) -> None:
    out = script(
        tmp_path,
        layer,
        f"""
    import multiprocessing
    if __name__ == "__main__":
        check()
        with multiprocessing.get_context("{method}").Pool(2) as pool:
            for k, found in enumerate(pool.map(f, [img[: 300 + k] for k in range(6)])):
                assert np.array_equal(found, f.py_func(img[: 300 + k]))
        check()
        print("done")
    """,
    )
    assert out.split() == ["done"]


@pytest.mark.parametrize("layer", LAYERS)
def test_interrupts(layer: str, tmp_path: Path) -> None:
    out = script(
        tmp_path,
        layer,
        """
    import signal
    import time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
    ignored = []  # by Python: in what it calls when an object is gone
    sys.unraisablehook = lambda x: ignored.append(x.exc_type)
    check()
    interrupted = 0
    for n in range(60):
        try:
            threading.Timer(0.002 * (n % 7) + 0.001, os.kill, (os.getpid(), signal.SIGINT)).start()
            end = time.monotonic() + 5
            while time.monotonic() < end:
                if n % 3 == 0:
                    hjit.pipeline(lambda img: img * n + 1, verify="off", cache="off")(img[:n + 1])
                check()
        except KeyboardInterrupt:
            interrupted += 1
    for _ in range(3):
        check()
    assert hjit.pipeline(lambda img: img - 17)(img)[0, 0] == -17
    print(interrupted + ignored.count(KeyboardInterrupt))
    """,
    )
    assert out.split() == ["60"]


@pytest.mark.parametrize("layer", LAYERS)
def test_at_exit_and_in_daemons(layer: str, tmp_path: Path) -> None:
    out = script(
        tmp_path,
        layer,
        """
    import atexit
    check()
    atexit.register(lambda: (check(), print("exit")))
    def forever():
        while True:
            f(img)
    threading.Thread(target=forever, daemon=True).start()
    print("main", flush=True)
    """,
    )
    assert out.split() == ["main", "exit"]


def test_one_thread_from_the_environment(tmp_path: Path) -> None:
    out = script(
        tmp_path,
        "tbb",
        """
    check()
    print(f._state.options.of(()).num_threads)
    """,
        HJIT_NUM_THREADS="1",
    )
    assert out.split() == ["1"]


def test_inside_numba(tmp_path: Path) -> None:
    out = script(
        tmp_path,
        "tbb",
        """
    import numba

    @numba.njit(parallel=True)
    def outer(img, out):
        for k in numba.prange(4):
            with numba.objmode():
                out[k] = f(img)[0, 0]

    out = np.zeros(4)
    outer(img, out)
    assert (out == expected[0, 0]).all()
    check()
    print("done")
    """,
    )
    assert out.split() == ["done"]


# -- after the main thread


FIRST = """
    import threading
    import numpy as np
    import hjit

    img = np.linspace(0, 9, 1500 * 1000).reshape(1500, 1000)

    def first():
        g = hjit.pipeline(lambda img: np.abs(img) * 5 + 3)
        assert np.array_equal(g(img), np.abs(img) * 5 + 3) and np.array_equal(g(img[9:]), np.abs(img[9:]) * 5 + 3)
        print("first", flush=True)
"""
WHEN = {
    "at exit": "import atexit; atexit.register(first)",
    "in a thread": "threading.Thread(target=lambda: (threading.main_thread().join(), first())).start()",
    "in a thread at exit": "import atexit; atexit.register(lambda: (t := threading.Thread(target=first), t.start(), t.join()))",
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("when", WHEN)
def test_a_first_call_when_the_main_thread_has_ended(when: str, layer: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    for _ in range(2):  # with an empty cache, and with a full one
        assert run_script(
            tmp_path, FIRST + "    " + WHEN[when], HJIT_THREADING_LAYER=layer, HJIT_CACHE_DIR=folder
        ).split() == ["first"]


def test_no_more_threads_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(signals, "_pools", {})
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert signals.signal_safe(lambda x: x + 1, 2) == 3
    assert signals.submit("test", 2, lambda x: x + 1, 2).result() == 3
    with pytest.raises(ZeroDivisionError):
        signals.signal_safe(lambda: 1 // 0)


def test_what_is_interrupted_before_it_began_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Any, *args: Any) -> None:
        raise KeyboardInterrupt

    ran: list[int] = []
    monkeypatch.setattr(signals._Pool, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        signals.signal_safe(ran.append, 1)
    assert ran == []


# -- forks


def test_forks_say_nothing_and_leave_no_thread_behind(tmp_path: Path) -> None:
    """Another thread has used tbb, so that the child of the fork cannot: not a word of that, from nobody."""
    out = script(
        tmp_path,
        "tbb",
        """
    def fork(expect):
        pid = os.fork()
        if pid == 0:
            check()
            os._exit(0 if launch.parallel_for()[1] == expect else 3)
        wait(pid)
        check()

    def used(release):
        check()
        ready.set()
        release.wait()

    os.dup2(1, 2)  # what is written to stderr counts, too
    check()
    fork("tbb")
    ready, release = threading.Event(), threading.Event()
    other = threading.Thread(target=used, args=(release,))
    other.start()
    ready.wait()
    for _ in range(3):
        fork("python")
    release.set()
    other.join()
    fork("tbb")
    t = threading.Thread(target=fork, args=("python",))
    t.start()
    t.join()
    """,
    )
    assert out == ""


def test_a_thread_that_has_just_ended_costs_children_no_tbb(tmp_path: Path) -> None:
    """It leaves TBB a little after Python has joined it; without a wait, about half of these children had lost TBB."""
    out = script(
        tmp_path,
        "tbb",
        """
    kept = 0
    for _ in range(30):
        other = threading.Thread(target=check)
        other.start()
        other.join()
        pid = os.fork()
        if pid == 0:
            os._exit(launch.parallel_for()[1] == "tbb")
        kept += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(kept)
    """,
    )
    assert int(out) >= 27


def test_a_fork_waits_for_no_thread_that_waits_for_it(tmp_path: Path) -> None:
    """`concurrent.futures.thread` holds a lock in a fork, which work in a pool of threads needs."""
    script(
        tmp_path,
        "tbb",
        """
    from hjit.process import forks
    import concurrent.futures
    forks.BUILD_SECONDS = 1e9

    pool = concurrent.futures.ThreadPoolExecutor(1)
    inside = threading.Event()

    def work():
        with forks.builds.inside():
            inside.set()
            while not forks.builds.is_closed:
                pass
            pool.submit(int).result()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    wait(pid)
    thread.join()
    """,
    )


def test_a_fork_waits_for_no_function_of_the_user(tmp_path: Path) -> None:
    """The first call runs the plain function, too, which here goes on only when there has been a fork."""
    script(
        tmp_path,
        "tbb",
        """
    from hjit.process import forks
    forks.BUILD_SECONDS = 1e9
    running, forked = threading.Event(), threading.Event()

    class Image(np.ndarray):
        pass

    def plain(img):
        return img * 2

    g = hjit.pipeline(plain)
    py_func = g.py_func
    def slow(*args):
        running.set()
        forked.wait()
        return py_func(*args)

    build = g._state.build
    def traced(*args):
        found = build(*args)
        g.py_func = slow
        return found
    g._state.build = traced

    first = threading.Thread(target=g, args=(img,))
    second = threading.Thread(target=g, args=(img,))  # waits for the first one
    first.start()
    running.wait()
    second.start()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    wait(pid)
    forked.set()
    first.join()
    second.join()
    """,
    )


def test_a_fork_waits_for_imports_of_other_threads(tmp_path: Path) -> None:
    text = """
    import hjit.cache
    import time

    spec = hjit.cache.__spec__

    def imports():
        spec._initializing = True
        begun.set()
        time.sleep(0.3)
        spec._initializing = False

    begun = threading.Event()
    threading.Thread(target=imports).start()
    begun.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(spec._initializing)
    wait(pid)
    print("done")
    """
    assert script(tmp_path, "python", text).split() == ["done"]
