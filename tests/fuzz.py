"""Random NumPy image programs, compiled and compared with NumPy: ``python -m tests.fuzz --count 1000 --seed 0``.

A program is a list of statements, drawn one at a time and run at once, so that shapes and dtypes are always right.
Only operations whose results are exact are drawn. A failure is cut down to the fewest statements that still fail.

The cost model's generator, `hjit.model.generator`, writes larger programs without running them, and cannot write these: it
knows images of five dtypes and at least 17 pixels a side, in C order. Here are all dtypes that wrap around, memory in any
order, images of one pixel and of none, and writes through views: what tracing and lowering are tested on. `tests.generated`
runs the generator's.
"""

from __future__ import annotations

import argparse
import itertools
import linecache
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.numpy_check import check, image

SIZES = (1, 2, 3, 5, 8, 15, 16, 17, 18, 23, 31, 32, 33, 34, 47, 48, 49, 63, 64, 65, 70, 100, 129)
DTYPES = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
)
COMMON = ("uint8", "uint16", "int16", "int32", "int64", "float32", "float64")
MAX_ELEMENTS = 40_000
_serial = itertools.count()


@dataclass(frozen=True)
class Program:
    """A function as text, and the arguments to call it with."""

    statements: tuple[str, ...]
    returned: tuple[str, ...]
    args: dict[str, Any]

    @property
    def source(self) -> str:
        body = "".join(f"    {s}\n" for s in self.statements)
        return f"def f({', '.join(self.args)}):\n{body}    return {', '.join(self.returned)}\n"

    def function(self) -> Callable[..., Any]:
        name = f"<fuzz {next(_serial)}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        scope: dict[str, Any] = {"np": np}
        exec(compile(self.source, name, "exec"), scope)
        function: Callable[..., Any] = scope["f"]
        return function

    def fails(self, **options: Any) -> str | None:
        """What is wrong with the compiled program, or None. A program that NumPy cannot run is not wrong."""
        args = list(self.args.values())
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.function()(*[a.copy() if isinstance(a, np.ndarray) else a for a in args])
        except Exception:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(self.function(), *args, zeros=False, **options)
        except Exception as error:
            return "".join(traceback.format_exception_only(error)).strip()
        return None

    def described(self) -> str:
        what = {
            n: f"{a.dtype}{list(a.shape)} strides {a.strides}" if isinstance(a, np.ndarray) else repr(a)
            for n, a in self.args.items()
        }
        return self.source + "\n".join(f"# {n}: {w}" for n, w in what.items())


class Writer:
    """Draws a program; `env` holds the value of every variable."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.seed = seed
        self.args: dict[str, Any] = {}
        self.env: dict[str, Any] = {}
        self.statements: list[str] = []
        self.inputs()

    # -- drawing
    def inputs(self) -> None:
        r = self.r
        h, w = r.choice(SIZES), r.choice(SIZES)
        if r.random() < 0.02:
            h = 0
        for k in range(r.randint(1, 3)):
            shape: tuple[int, ...] = r.choice(
                [(h, w), (h, w), (h, w), (h, w, 3), (h, w, r.choice((1, 2, 4))), (3, h, w), (w,)]
            )
            a = image(shape, r.choice(COMMON if r.random() < 0.7 else DTYPES), self.seed + k)
            kind = r.random()
            if kind < 0.1:
                a = np.asfortranarray(a)
            elif kind < 0.2:
                a = np.repeat(a, 2, axis=-1)[..., ::2]
            elif kind < 0.25:
                a = np.ascontiguousarray(a[::-1])[::-1]
            elif kind < 0.3 and a.ndim > 1:
                a = np.ascontiguousarray(a.swapaxes(0, 1)).swapaxes(0, 1)
            self.args["abc"[k]] = a
        self.args["lut"] = image((r.choice((8, 32, 256)),), r.choice(COMMON), self.seed)
        self.args["n"] = r.choice((0, 1, 3, -2))
        self.args["t"] = r.choice((0.5, 1.25, -3.0))
        self.env = {n: a.copy(order="K") if isinstance(a, np.ndarray) else a for n, a in self.args.items()}
        self.env["np"] = np

    def arrays(self, ok: Callable[[Any], bool] = lambda a: True) -> list[str]:
        return [n for n, a in self.env.items() if isinstance(a, np.ndarray) and n != "lut" and ok(a)]

    def pick(self, ok: Callable[[Any], bool] = lambda a: True) -> str:
        names = self.arrays(ok)
        if not names:
            raise LookupError
        return self.r.choice(names[-4:] if self.r.random() < 0.6 else names)

    def number(self, a: Any) -> str:
        r = self.r
        if a.dtype.kind == "f":
            return r.choice(["0.5", "2", "-1.25", "3", "t", "n", "np.float32(0.1)"])
        if a.dtype.kind == "u":
            return r.choice(["1", "2", "3", "7", "100", "np.uint8(5)"])
        return r.choice(["1", "2", "-3", "n", "100"]) if a.dtype.kind == "i" else r.choice(["True", "1", "n"])

    def other(self, name: str) -> str:
        """An operand that broadcasts with `name`."""
        a, r = self.env[name], self.r
        if r.random() < 0.3:
            return self.number(a)
        same = self.arrays(lambda b: _broadcasts(a.shape, b.shape))
        b = r.choice(same)
        text = b
        if self.env[b].ndim > 1 and r.random() < 0.2:
            text = b + r.choice(["[:1]", "[:, :1]", "[::-1]", "[:, ::-1]", "[-1:]"])
        return text

    def slice(self, n: int) -> str:
        r = self.r
        return r.choice(
            [
                ":",
                ":",
                "1:",
                ":-1",
                "1:-1",
                "::2",
                "1::2",
                "::-1",
                "::-2",
                "2:",
                f":{max(n // 2, 1)}",
                f"{n // 3}:",
                "::3",
                "-3:",
                "::4",
                "::5",
            ]
        )

    def draw(self) -> str:
        """One statement, or LookupError where no variable suits it."""
        r, v = self.r, f"v{len(self.statements)}"
        kind = r.choice(KINDS)
        return kind(self, v)

    def step(self) -> None:
        before = {n: a.copy(order="K") if isinstance(a, np.ndarray) else a for n, a in self.env.items()}
        try:
            text = self.draw()
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(text, self.env)
        except Exception:
            self.env = before
            return
        self.env.pop("__builtins__", None)
        new = [a for n, a in self.env.items() if isinstance(a, (np.ndarray, np.generic))]
        if any(a.size > MAX_ELEMENTS or a.dtype.kind not in "biuf" or a.itemsize > 8 for a in new):
            self.env = before
            return
        self.statements.append(text)

    def program(self, length: int) -> Program:
        for _ in range(20 * length):  # with some arguments hardly a statement works
            if len(self.statements) < length:
                self.step()
        made = [n for n in self.env if n.startswith("v")]
        names = made[-1:] + [n for n in made[:-1] if self.r.random() < 0.15]
        return Program(tuple(self.statements), tuple(names) or ("a",), self.args)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(a, b) == a
    except ValueError:
        return False


# -- statements: each draws one, `v` being the new variable


def unary(w: Writer, v: str) -> str:
    a = w.pick()
    return f"{v} = " + w.r.choice(
        [
            f"-{a}",
            f"abs({a})",
            f"~{a}",
            f"np.square({a})",
            f"np.rint({a})",
            f"np.floor({a})",
            f"np.sign({a})",
            f"np.sqrt(abs({a}))",
            f"np.trunc({a} * 0.25)",
            f"+{a}",
        ]
    )


def binary(w: Writer, v: str) -> str:
    a = w.pick()
    b = w.other(a)
    return f"{v} = " + w.r.choice(
        [
            f"{a} + {b}",
            f"{a} - {b}",
            f"{b} - {a}",
            f"{a} * {b}",
            f"np.maximum({a}, {b})",
            f"np.minimum({b}, {a})",
            f"{a} / (abs({b}) + 1)",
            f"{a} // 3",
            f"{a} % 7",
            f"{a} & {b}",
            f"{a} ^ {b}",
            f"{a} | {b}",
            f"{a} >> 2",
            f"{a} << 1",
            f"np.hypot({a} * 0, {b} * 0)",
            f"np.clip({a}, {w.number(w.env[a])}, {w.number(w.env[a])})",
        ]
    )


def compare(w: Writer, v: str) -> str:
    a = w.pick()
    return f"{v} = {a} {w.r.choice(['<', '<=', '>', '>=', '==', '!='])} {w.other(a)}"


def where(w: Writer, v: str) -> str:
    a = w.pick()
    return f"{v} = np.where({a} {w.r.choice('<>')} {w.other(a)}, {w.other(a)}, {a})"


def cut(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 0)
    return f"{v} = {a}[{', '.join(w.slice(n) for n in w.env[a].shape)}]"


def turn(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 1)
    return f"{v} = " + w.r.choice(
        [
            f"{a}.T",
            f"np.moveaxis({a}, -1, 0)",
            f"np.moveaxis({a}, 0, -1)",
            f"{a}.swapaxes(0, 1)",
            f"np.rot90({a})",
            f"np.rot90({a}, 3)",
            f"np.flipud({a})",
            f"np.fliplr({a})",
            f"{a}[..., ::-1]",
            f"{a}[None]",
            f"{a}[:, None]",
            f"{a}[..., 0]",
            f"{a}[0]",
            f"{a}[-1]",
        ]
    )


def shape(w: Writer, v: str) -> str:
    """Results of hjit are in C order, NumPy's in that of their arguments: whether a reshape is a view is then not the same."""
    a = w.pick(lambda x: x.ndim > 0)
    x = w.env[a]
    copy = (
        ""
        if all(y.flags.c_contiguous for y in w.args.values() if isinstance(y, np.ndarray)) and x.flags.c_contiguous
        else ".copy()"
    )
    return f"{v} = " + w.r.choice(
        [
            f"{a}.reshape(-1){copy}",
            f"{a}.ravel(){copy}",
            f"{a}.reshape({x.shape[-1]}, -1){copy}",
            f"{a}.reshape({x.shape[0]}, -1){copy}",
            f"np.squeeze({a})",
            f"np.broadcast_to({a}[:1], {a}.shape)",
            f"np.repeat({a}, 2, axis={w.r.randrange(x.ndim)})",
            f"np.tile({a}, 2)",
            f"np.atleast_3d({a})",
            f"np.expand_dims({a}, {w.r.randrange(x.ndim + 1)})",
        ]
    )


def pad(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 0)
    width = w.r.choice(
        ["1", "2", "(1, 2)", "(3, 0)", str([(w.r.randint(0, 3), w.r.randint(0, 3)) for _ in w.env[a].shape])]
    )
    return f"{v} = np.pad({a}, {width}, mode={w.r.choice(['constant', 'edge', 'reflect', 'symmetric', 'wrap'])!r})"


def stencil(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim == 2)
    r = w.r
    taps = [(r.randint(0, 2), r.randint(0, 2), w.number(w.env[a])) for _ in range(r.randint(1, 5))]
    if r.random() < 0.5:
        head = f"p = np.pad({a}, 1, mode={r.choice(['edge', 'reflect', 'symmetric', 'wrap', 'constant'])!r}); "
        view = [f"p[{i}:{i} + {a}.shape[0], {j}:{j} + {a}.shape[1]]" for i, j, _ in taps]
    else:
        head = ""
        view = [f"{a}[{i}:{i - 2 or None}, {j}:{j - 2 or None}]" for i, j, _ in taps]
    return f"{head}{v} = " + " + ".join(f"{x} * {c}" for x, (_, _, c) in zip(view, taps, strict=True))


def join(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 0)
    b = w.r.choice(w.arrays(lambda x: x.shape == w.env[a].shape))
    return f"{v} = " + w.r.choice(
        [
            f"np.stack([{a}, {b}], axis=-1)",
            f"np.stack([{a}, {b}, {a}])",
            f"np.concatenate([{a}, {b}])",
            f"np.concatenate([{b}, {a}], axis=-1)",
            f"np.dstack([{a}, {b}])",
            f"np.hstack([{a}, {b}])",
        ]
    )


def extreme(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 0 and x.size > 0)
    axis = w.r.choice(["None", *map(str, range(-1, w.env[a].ndim))])
    how = w.r.choice(["max", "min", "max", "ptp"]) if w.env[a].dtype != bool else w.r.choice(["any", "all", "max"])
    fn = f"np.{how}({a}, axis={axis}, keepdims=True)"
    return f"{v} = " + w.r.choice(
        [
            fn,
            fn,
            f"{a} - {fn}",
            f"np.maximum({a} * 2, {fn})",
            f"np.argmax({a}, axis={axis})",
            f"np.argmin({a}, axis={axis})",
        ]
    )


def total(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 0)
    x = w.env[a]
    axis = w.r.choice(["None", *map(str, range(-1, x.ndim))])
    part = a if x.dtype.kind in "iub" else f"({a} > 0)"
    return f"{v} = " + w.r.choice(
        [
            f"np.sum({part}, axis={axis}, keepdims=True)",
            f"{a} - np.sum({part}, axis={axis}, keepdims=True)",
            f"np.count_nonzero({part}, axis={axis})",
            f"np.sum({part}, axis={axis}, where={part} != 0)",
            f"np.mean({a} > 0, axis={axis}, keepdims=True)",
            f"np.prod({part}, axis={axis})",
            f"np.sum({a} > 0, axis={axis}, dtype=np.float32)",
        ]
    )


def scan(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 0)
    x = w.env[a]
    axis = w.r.randrange(x.ndim)
    part = a if x.dtype.kind in "iub" else f"({a} > 0)"
    return f"{v} = " + w.r.choice(
        [
            f"np.cumsum({part}, axis={axis})",
            f"np.maximum.accumulate({a}, axis={axis})",
            f"np.minimum.accumulate({a}, axis={axis})",
            f"np.cumsum({part})",
            f"np.cumsum({part}, axis={axis}, dtype=np.int32)",
        ]
    )


def gather(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.dtype.kind in "iu" and x.ndim > 0)
    n = len(w.env["lut"])
    rows = w.r.choice(w.arrays(lambda x: x.ndim > 0 and x.shape[0] > 0))
    m = w.env[rows].shape[0]
    return f"{v} = " + w.r.choice(
        [
            f"lut[{a} % {n}]",
            f"np.take(lut, {a} % {n})",
            f"lut[{a} & {n - 1}]",
            f"lut[-1 - {a}.astype(np.int64) % {n}]",
            f"{rows}[{a}[:2] % {m}]",
            f"{rows}[np.arange({m}) // 2]",
            f"{rows}[np.array([0, -1, 0])]",
        ]
    )


def convert(w: Writer, v: str) -> str:
    a = w.pick()
    dtype = w.r.choice(DTYPES)
    safe = w.env[a].dtype.kind != "f" or np.dtype(dtype).kind in "fb"
    return f"{v} = {a if safe else f'np.clip(np.nan_to_num({a}), 0, 100)'}.astype(np.{dtype if dtype != 'bool' else 'bool_'})"


def neighbours(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 0)
    axis = w.r.randrange(w.env[a].ndim)
    return f"{v} = " + w.r.choice(
        [
            f"np.roll({a}, {w.r.randint(-20, 20)}, axis={axis})",
            f"np.diff({a}, axis={axis})",
            f"np.diff({a}, n=2, axis={axis})",
            f"np.roll({a}, 3)",
            f"np.sort({a}[..., :3], axis=-1)",
            f"np.flip({a}, {axis})",
        ]
    )


def assign(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 0)
    x = w.env[a]
    key = ", ".join(w.slice(n) for n in x.shape)
    head = f"{v} = {a}.copy(); " if w.r.random() < 0.7 or not x.flags.writeable else ""
    t = v if head else a
    c = w.number(x)
    mask = f"{a} > {w.number(x)}"
    return head + w.r.choice(
        [
            f"{t}[{key}] = {c}",
            f"{t}[{key}] += {t}[{key}]",
            f"{t}[{key}] = {a}[{key}]",
            f"{t}[1:] += {t}[:-1]",
            f"{t}[:-1] -= {t}[1:]",
            f"{t}[{mask}] = {c}",
            f"{t}[{mask}] += 1",
            f"{t}[::-1] += {t}",
            f"{t}[...] = {t}[::-1]",
            f"{t}[..., 1:] = {t}[..., :-1]",
            f"{t} += {c}",
            f"{t}[0] = {t}[-1]",
            f"{t} *= 2",
            f"{t}[::2] = 1; {t}[1::2] = {t}[1::2] * 2",
            f"{t}[[0, -1, 0]] = {c}",
            f"{t}[{key}] *= {c}",
            f"np.add.at({t}, [0, 0, -1], {c})",
        ]
    )


def filled(w: Writer, v: str) -> str:
    a = w.pick(lambda x: x.ndim > 0)
    key = ", ".join(w.slice(n) for n in w.env[a].shape)
    new = w.r.choice(
        [
            f"np.zeros_like({a})",
            f"np.ones({a}.shape, np.{w.r.choice(COMMON)})",
            f"np.full_like({a}, 2)",
            f"np.empty_like({a}); {v}[...] = 3",
        ]
    )
    return f"{v} = {new}; {v}[{key}] = {a}[{key}]" + w.r.choice(["", f" * 2; {v}[0] = 1", f"; {v}[..., 0] += 1"])


KINDS: tuple[Callable[[Writer, str], str], ...] = (
    unary,
    binary,
    binary,
    binary,
    compare,
    where,
    cut,
    cut,
    turn,
    shape,
    pad,
    stencil,
    stencil,
    join,
    extreme,
    total,
    scan,
    gather,
    convert,
    convert,
    neighbours,
    assign,
    assign,
    filled,
)


def random_program(seed: int) -> Program:
    """The program of a seed, always the same."""
    w = Writer(seed)
    return w.program(w.r.choice((3, 5, 8, 12, 18, 25)))


def minimised(p: Program, **options: Any) -> Program:
    """The fewest statements and results that still fail."""
    changed = True
    while changed:
        changed = False
        smaller = [Program(p.statements, (n,), p.args) for n in p.returned if len(p.returned) > 1]
        smaller += [
            Program(p.statements[:k] + p.statements[k + 1 :], p.returned, p.args)
            for k in reversed(range(len(p.statements)))
        ]
        targets = [s.split(" = ")[0].split("; ")[-1] for s in p.statements]
        smaller += [
            Program(p.statements[: k + 1], (targets[k],), p.args)
            for k in range(len(p.statements) - 1)
            if targets[k].isidentifier()
        ]
        for candidate in smaller:
            if candidate.fails(**options):
                p, changed = candidate, True
                break
    return p


def main() -> int:
    """Run many programs and print the failing ones, cut down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print each program before it runs")
    parser.add_argument("--whole", action="store_true", help="do not cut failures down")
    given = parser.parse_args()
    failures = 0
    start = time.perf_counter()
    for seed in range(given.seed, given.seed + given.count):
        p = random_program(seed)
        if given.show:
            print(f"# seed {seed}\n{p.described()}", flush=True)
        why = p.fails()
        if why is not None:
            failures += 1
            small = p if given.whole else minimised(p)
            print(f"--- seed {seed}: {small.fails()}\n{small.described()}\n", flush=True)
    print(f"{given.count} programs, {failures} failures, {time.perf_counter() - start:.0f} s")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
