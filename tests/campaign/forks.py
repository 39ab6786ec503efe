"""Processes that fork, also while other threads compile and run: children and parents go on, with NumPy's results."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

from tests.campaign import programs, source, threads
from tests.campaign.kinds import OK, Case, Result

FIRST = 4 * 10**7  # of the seeds of its functions: others than those of `programs`
LIMIT = 180.0
FORKS = 4
CHILD = 45.0  # seconds for a child


def case(seed: int) -> Case:
    """A function that is known before, one that is not, and what other threads do."""
    r = random.Random(seed)
    return {
        "seed": seed,
        "functions": [programs.case(FIRST + 5 * seed + k, by_itself=True) for k in range(2)],
        "busy": r.choice((0, 1, 2)),
        "wait": r.random() * 0.05,
    }


def run(case: Case) -> Result:
    """Fork while other threads are busy; each child calls both functions."""
    known, new = case["functions"]
    for function in (known, new):
        result = programs.run(function)
        if result.status != "ok":
            return Result("invalid", f"in one process {result.status}") if result.status == "failed" else result
    call = threads.task(known)
    call(0)
    stop = threading.Event()
    wrong: list[Result] = []

    def busy() -> None:
        while not stop.is_set():
            for result in (call(0), programs.run(new, watch=False)):
                if result.status == "failed":
                    wrong.append(result)

    others = [threading.Thread(target=busy) for _ in range(case["busy"])]
    for t in others:
        t.start()
    try:
        for _ in range(FORKS):
            time.sleep(case["wait"])
            result = child([lambda: call(0), lambda: programs.run(new, watch=False), lambda: call(1)])
            if result.status == "failed":
                return result
    finally:
        stop.set()
        for t in others:
            t.join()
    after = call(0)
    return after if after.status == "failed" else wrong[0] if wrong else OK


def child(calls: list[Callable[[], Result]]) -> Result:
    """Call all of them in a forked process."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for call in calls:
                result = call()
                if result.status == "failed":
                    os.write(theirs, f"{result.sort}\n{result.text}".encode()[:4000])
                    os._exit(3)
            os._exit(0)
        except BaseException as error:
            os.write(theirs, f"raises {type(error).__name__}\n{error}".encode()[:4000])
            os._exit(4)
    os.close(theirs)
    try:
        return ended(pid, ours)
    finally:
        os.close(ours)


def ended(pid: int, pipe: int) -> Result:
    """How a child ended."""
    until = time.monotonic() + CHILD
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            if code == 0:
                return OK
            if code in (3, 4):
                sort, _, text = os.read(pipe, 4000).decode(errors="replace").partition("\n")
                return Result("failed", f"child {sort}", text)
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            return Result("failed", f"child dies {name}", f"a forked process ended: {name}")
        time.sleep(0.005)
    os.kill(pid, signal.SIGUSR1)  # the worker's handler says where it is
    time.sleep(1.0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return Result("failed", "child hangs", f"a forked process did not end within {CHILD:.0f} s")


def smaller(case: Case) -> Iterator[Case]:
    """Fewer threads, smaller functions."""
    if case["busy"]:
        yield {**case, "busy": case["busy"] - 1}
    for k, function in enumerate(case["functions"]):
        for less in programs.smaller(function):
            yield {**case, "functions": [*case["functions"][:k], less, *case["functions"][k + 1 :]]}


def described(case: Case) -> str:
    """The functions, and what other threads do."""
    return f"# {case['busy']} busy threads; the first function is known before the fork\n" + "\n".join(
        source.described(f) for f in case["functions"]
    )
