"""Random programs whose last bits are free, with verification on: ``python -m tests.inexact --count 1000 --seed 0``.

The programs of `tests.fuzz` with functions, sums, thresholds and indices of inexact numbers among their statements. No kernel may be
found wrong, and no first call may be without its bounds for want of a rule.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from typing import Any

import numpy as np

import hjit
from tests import fuzz

FORMS = (
    "np.exp({a} * 0.01)",
    "np.log(abs({a}) + 1)",
    "np.sin({a} * 1.0)",
    "np.cos({a}) * {b}",
    "np.arctan2({a}, {b} + 1.0)",
    "np.tanh({a} / 100)",
    "np.power(abs({a}) + 0.5, 0.45)",
    "np.hypot({a}, {b})",
    "np.logaddexp({a} * 0.1, {b} * 0.1)",
    "np.mod(np.exp({a} * 0.003), 1.0)",
    "np.floor(np.log1p(abs({a})) * 4)",
    "np.clip(np.exp({a} * 0.02), 0, 255).astype(np.uint8)",
    "np.rint({a} * 0.7 + {a}.mean()).astype(np.int32)",
    "np.arctan({a}) > {b}.mean()",
    "np.where({a} > {a}.mean(), {a}, {b})",
    "lut[np.clip(np.rint(np.sin({a} * 1.0) * 3 + 3), 0, 7).astype(np.intp)]",
    "{a}.sum(axis=0, keepdims=True)",
    "{a} - {a}.mean(axis=-1, keepdims=True)",
    "({a} - {a}.mean()) / ({a}.std() + 1e-3)",
    "{a} / {a}.sum(axis=0)",
    "np.var({a}, axis=0)",
    "np.cumsum({a} * 0.1, axis=0)",
    "np.prod(1 + np.abs({a}) * 1e-6, axis=0)",
    "np.sqrt((np.square({a} * 1.0)).sum(axis=-1))",
    "np.exp(-np.square({a} / 50.0)).max(axis=0)",
    "np.argmax(np.sin({a} * 1.0), axis=-1)",
    "np.histogram(np.sin({a} * 1.0), bins=8, range=(-1.0, 1.0))[0]",
    "np.sort(np.sin({a} * 1.0), axis=-1)",
    "np.median(np.exp({a} * 0.01), axis=-1)",
    "np.einsum('i...,i...->...', {a}, {a})",
)


def inexact(w: fuzz.Writer, v: str) -> str:
    """A statement of `FORMS`."""
    a = w.pick(lambda x: x.dtype.kind != "b")
    others = w.arrays(lambda x: x.dtype.kind != "b" and np.broadcast_shapes(w.env[a].shape, x.shape) == w.env[a].shape)
    return f"{v} = " + w.r.choice(FORMS).format(a=a, b=w.r.choice(others))


class Writer(fuzz.Writer):
    """Every third statement is inexact."""

    def draw(self) -> str:
        return inexact(self, f"v{len(self.statements)}") if self.r.random() < 0.3 else super().draw()


def random_program(seed: int) -> fuzz.Program:
    """The program of a seed, always the same."""
    w = Writer(seed)
    return w.program(w.r.choice((2, 3, 5, 8)))


class _Refusals(logging.Handler):
    """What the log says of missing bounds."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("no reference"):
            self.found.append(record.getMessage())


def verified(function: Any, *args: Any, **options: Any) -> tuple[Any, list[str]]:
    """The pipeline of a function after its first call, and what it said: warnings of wrong kernels, and bounds that are missing."""
    p = hjit.pipeline(function, verify="first", cache="off", tune=False, **options)
    handler, log = _Refusals(), logging.getLogger("hjit")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", hjit.HjitWarning)
            p(*[a.copy(order="K") if isinstance(a, np.ndarray) else a for a in args])
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    return p, [str(w.message) for w in seen if "differs from NumPy's" in str(w.message)] + handler.found


def fault(seed: int) -> str | None:
    """What is wrong with verifying the program of a seed."""
    program = random_program(seed)
    args = list(program.args.values())
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.function()(*[a.copy(order="K") if isinstance(a, np.ndarray) else a for a in args])
    except Exception:
        return None
    try:
        p, said = verified(program.function(), *args)
    except hjit.TraceError:
        return None
    return "; ".join(said) if said else "found wrong" if p.stats.verified is False else None


def main() -> int:
    """Run many programs and print those with a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    failures = 0
    for seed in range(given.seed, given.seed + given.count):
        why = fault(seed)
        if why is not None:
            failures += 1
            print(f"--- seed {seed}: {why}\n{random_program(seed).described()}\n", flush=True)
    print(f"{given.count} programs, {failures} failures")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
