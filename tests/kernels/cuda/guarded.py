"""Kernels on PoCL whose arrays end, and in a second run begin, at pages that may not be touched: a kernel that reads or
writes one element outside of an array ends its process. ``python -m tests.kernels.cuda.guarded CASE ...``.

A case is the name of an application, ``by hand`` after it for its schedule by hand, or one of `FAMILIES`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import hjit
from benchmarks import apps
from benchmarks.gpu.candidates import schedule_file
from benchmarks.rows import problem
from hjit.kernels.cuda.compilers import opencl
from hjit.kernels.cuda.runtime.device import VARIABLE
from tests.kernels.cuda.on_opencl import module
from tests.numpy_check import guarded
from tests.trace.test_canonical import canonical

BY_HAND = " by hand"
RNG = np.random.default_rng(8)
IMAGE = RNG.random((37, 53), np.float32)
BYTES = RNG.permutation(np.arange(37 * 53, dtype=np.uint32)).reshape(37, 53).astype(np.uint8)  # 0 and 255 among them
LONG = RNG.integers(-99, 99, (3, 1100))


def padded(mode: str) -> Callable[[Any], Any]:
    def stencil(a: Any) -> Any:
        p = np.pad(a, ((2, 1), (1, 3)), mode=mode)  # type: ignore[call-overload]
        return p[:-3, 1:-3] + p[3:, 4:] * 2 - p[2:-1, :-4]

    return stencil


def recurrence(a: Any) -> Any:
    out = a.copy()
    for y in range(1, out.shape[0]):
        out[y] = 0.5 * out[y - 1] + 0.25 * a[y]
    return out


def pyramid(a: Any) -> Any:
    half = (a[:-1:2, :-1:2] + a[1::2, 1::2]) / 2
    return np.repeat(np.repeat(half, 2, axis=0), 2, axis=1) - a[: 2 * half.shape[0], : 2 * half.shape[1]]


def joined(a: Any, b: Any) -> Any:
    out = np.zeros((16, 8), np.int32)
    np.add.at(out, (a >> 4, b & 7), 1)
    return out


FAMILIES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{f"border {mode}": (padded(mode), (IMAGE,)) for mode in ("edge", "reflect", "symmetric", "wrap", "constant")},
    "stencil inside": (lambda a: a[:-2, 1:-1] + a[2:, 1:-1] - a[1:-1, :-2] * a[1:-1, 2:], (IMAGE,)),
    "views": (lambda a, b: a[::-1, ::2] + b[::3] * 2, (IMAGE[:30], np.asfortranarray(RNG.random((90, 27))))),
    "parts": (lambda a: a * 2 + 1, (IMAGE[3:, ::-2],)),
    "bytes": (lambda a: (a.astype(np.uint16) + a[::-1]) >> 1, (BYTES[:, :51],)),
    "pyramid": (pyramid, (IMAGE,)),
    "gather": (lambda table, i: table[i], (RNG.random(256, np.float32), BYTES)),
    "gather of rows": (lambda a, i: a[i, ::-1] - 1, (IMAGE, np.array([0, 36, 5, -1, -37]))),
    "chosen": (lambda a: np.take_along_axis(a, a.argmin(axis=1)[:, None], 1), (IMAGE,)),
    "row sums": (lambda a: (a * 2).sum(axis=1), (IMAGE,)),
    "column means": (lambda a: a.mean(axis=0), (IMAGE,)),
    "all of an array": (lambda a: (a.max(), a.argmin(), (a * a).sum()), (RNG.random((129, 517)),)),
    "scan": (lambda a: np.cumsum(a, axis=1), (LONG,)),
    "scan of columns": (lambda a: np.maximum.accumulate(a[::-1], axis=0), (IMAGE,)),
    "recurrence": (recurrence, (IMAGE,)),
    "histogram": (lambda a: np.bincount(a.ravel(), minlength=256), (BYTES,)),
    "histogram of floats": (lambda a: np.histogram(a, 20, (0, 1))[0], (IMAGE,)),
    "scatter": (joined, (BYTES, BYTES[::-1].copy())),
    "small sorts": (lambda a: np.median(np.stack([a[:-2], a[1:-1], a[2:]]), axis=0), (IMAGE,)),
}
BROKEN = ("border reflect", "gather", "row sums", "scan", "scatter")
_POINTER = re.compile(r"\b(v_\w+_array)\b(?!\s*[,)])")  # used in the kernel, not a parameter


@contextlib.contextmanager
def guard_pages(at_end: bool) -> Iterator[list[str]]:
    """Kernels run on copies of their arrays, each of which ends (or begins) at a page that may not be touched; the
    names of those that did so."""
    usual, launched = opencl.Program.launch, list[str]()

    def launch(
        self: Any, name: str, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared_bytes: int = 0
    ) -> None:
        there = [guarded(a, at_end) if isinstance(a, np.ndarray) else a for a in args]
        usual(self, name, grid, block, there, shared_bytes)
        launched.append(name)
        for a, b in zip(args, there, strict=True):
            if isinstance(a, np.ndarray) and a.flags.writeable and a.size:
                old, new = a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)
                np.copyto(old, new, where=old != new)  # what it wrote: arrays may share memory that none else writes

    opencl.Program.launch = launch  # type: ignore[method-assign]
    try:
        yield launched
    finally:
        opencl.Program.launch = usual  # type: ignore[method-assign]


def run(case: str) -> None:
    """Compare a case with NumPy between guard pages."""
    directives, rtol, atol = None, 1e-4, 1e-5
    if case in FAMILIES:
        function, args = FAMILIES[case]
        expected = function(*args)
    else:
        app = case.removesuffix(BY_HAND)
        p = problem(app, "planar", small=True)
        assert p is not None
        function, args, expected, (rtol, atol) = p.function, p.arguments, p.expected, p.tolerance
        if case != app:
            directives = hjit.Schedule.load(schedule_file(app, "planar"))
    for at_end in (True, False):
        f = hjit.pipeline(function, target="cuda", verify="off", cache="off", blas=False, numpy_if_faster=False)
        with guard_pages(at_end) as launched:
            found = f.use(directives)(*args)
        assert launched and f.stats.fallbacks == 0
        pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        for a, b in pairs:
            np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol, atol)


def broken(case: str) -> Iterator[tuple[str, int]]:
    """Run a case with all indices of one array shifted past its end, or before its beginning; for each the signal that
    its process, a fork, ends by: 0, where it goes on as if all were well."""
    function, args = FAMILIES[case]
    graph = canonical(function, *args)
    program, kernels = module(graph)
    for name in sorted(set(_POINTER.findall(kernels.text))):
        for shift in (1, -1):
            child = os.fork()
            if not child:
                _die_of(name, shift, graph, program, args)
            status = os.waitpid(child, 0)[1]
            yield f"{name} {shift:+}", os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def _die_of(name: str, shift: int, *given: Any) -> None:
    """Run kernels, and end the process."""
    try:
        from tests.kernels.cuda import launching, running  # they ask for the device, whose threads no fork has

        usual = launching.compiled
        launching.compiled = lambda text: usual(shifted(text, name, shift))
        with guard_pages(at_end=shift > 0):
            graph, program, args = given
            running.computed(graph, program, *args)
        os._exit(0)
    finally:
        os._exit(1)


def shifted(text: str, name: str, shift: int) -> str:
    """Kernels that take each element of an array for another one."""
    return _POINTER.sub(lambda m: f"({name} + {shift})" if m[1] == name else m[0], text)


def all_cases() -> tuple[str, ...]:
    by_hand = (f"{app}{BY_HAND}" for app in apps.NAMES if schedule_file(app, "planar").exists())
    return (*FAMILIES, *apps.NAMES, *by_hand)


if __name__ == "__main__":
    os.environ[VARIABLE] = "opencl"
    if sys.argv[1:2] == ["--broken"]:
        for case in sys.argv[2:]:
            for what, signal in broken(case):
                print(case, what, signal, sep="\t", flush=True)
    else:
        for case in sys.argv[1:] or all_cases():
            print(case, flush=True)  # the last one is that which dies
            run(case)
