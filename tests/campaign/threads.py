"""Many threads at once: first calls that race, of one pipeline and of several, with arguments of their own."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import hjit
from tests.campaign import arguments, programs, source
from tests.campaign.kinds import OK, Case, Result
from tests.numpy_check import place

FIRST = 3 * 10**7  # of the seeds of its functions: others than those of `programs`
LIMIT = 180.0
CALLS = 3  # of each thread


def case(seed: int) -> Case:
    """Functions and numbers of threads."""
    r = random.Random(seed)
    functions = [
        {**programs.case(FIRST + 3 * seed + k, by_itself=True), "enclosed": False}
        for k in range(r.choice((1, 1, 2, 3)))
    ]  # whose variables are its own
    return {
        "seed": seed,
        "functions": functions,
        "threads": r.choice((2, 4, 8, 16)),
        "switch": r.choice((5e-3, 1e-4, 1e-6)),
    }


def run(case: Case) -> Result:
    """All threads begin at once; what each finds is compared with NumPy's."""
    for function in case["functions"]:
        result = programs.run(function)  # whatever is wrong in one thread is no matter of threads
        if result.status != "ok":
            return Result("invalid", f"in one thread {result.status}") if result.status == "failed" else result
    tasks = [task(function) for function in case["functions"]]
    wrong: list[Result] = []
    usual = sys.getswitchinterval()
    sys.setswitchinterval(case["switch"])
    try:
        at_once([tasks[k % len(tasks)] for k in range(case["threads"])], wrong)
    finally:
        sys.setswitchinterval(usual)
    return wrong[0] if wrong else OK


def task(function: Case) -> Callable[[int], Result]:
    """What a thread does, with a pipeline that all of them share."""
    options = {"verify": "off", "cache": "off", **function["options"]}
    pipe = hjit.pipeline(source.function(function), **options)
    plain = source.function(function)
    given: list[list[Any]] = []
    expected: list[Any] = []
    with np.errstate(all="ignore"):
        for specs in function["args"]:
            given.append([arguments.made(s) for s in specs.values()])
            try:
                theirs = place(given[-1], True)
                expected.append((plain(*theirs), theirs))
            except Exception as error:
                expected.append(error)

    def call(number: int) -> Result:
        which = number % len(given)
        ours = place(given[which], number % 2 == 0)
        numpys = expected[which]
        try:
            with np.errstate(all="ignore"):
                got = pipe(*ours)
        except hjit.TraceError:
            return OK
        except Exception as error:
            if isinstance(numpys, Exception) and isinstance(error, type(numpys)):
                return OK
            return Result("failed", f"raises {type(error).__name__}", f"{type(error).__name__}: {error}")
        if isinstance(numpys, Exception):
            return Result("failed", "no error", f"NumPy raises {numpys!r}, the pipeline does not")

        def explained() -> bool:
            checked = hjit.pipeline(source.function(function), **{**options, "verify": "first"})
            return programs.verified(checked, given[which])

        return programs.same(got, numpys[0], ours, numpys[1], function["returned"], explained)

    return call


def at_once(tasks: list[Callable[[int], Result]], wrong: list[Result]) -> None:
    """Run each in a thread."""
    barrier = threading.Barrier(len(tasks))

    def thread(number: int, call: Callable[[int], Result]) -> None:
        barrier.wait()
        for k in range(CALLS):
            try:
                result = call(number + k)
            except BaseException as error:
                result = Result("failed", f"raises {type(error).__name__}", repr(error))
            if result.status == "failed":
                wrong.append(result)

    threads = [threading.Thread(target=thread, args=item) for item in enumerate(tasks)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def smaller(case: Case) -> Iterator[Case]:
    """Fewer threads, fewer and smaller functions."""
    if case["threads"] > 2:
        yield {**case, "threads": case["threads"] // 2}
    functions = case["functions"]
    for k in range(len(functions) if len(functions) > 1 else 0):
        yield {**case, "functions": functions[:k] + functions[k + 1 :]}
    for k, function in enumerate(functions):
        for less in programs.smaller(function):
            yield {**case, "functions": [*functions[:k], less, *functions[k + 1 :]]}


def described(case: Case) -> str:
    """The functions and the threads."""
    return f"# {case['threads']} threads, sys.setswitchinterval({case['switch']})\n" + "\n".join(
        source.described(f) for f in case["functions"]
    )
