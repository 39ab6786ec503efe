"""Random Python functions as users write them: arguments of all types, statements of `tests.fuzz`, `idioms`."""

from __future__ import annotations

import itertools
import linecache
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import ndimage

from tests import fuzz
from tests.campaign import arguments, objects, outside
from tests.campaign.arguments import Spec
from tests.campaign.idioms import IDIOMS
from tests.campaign.kinds import Case

LAYOUTS = ("F", "step", "reversed", "inside", "rows reversed")
SCALARS = {
    "n": ("0", "1", "3", "-2", "7", "300", "-129", "True", "2**31", "2**63 - 1"),
    "t": ("0.5", "1.25", "-3.0", "0.0", "1e10", "float('nan')", "float('inf')"),
    "q": (
        "np.uint8(5)",
        "np.int16(-300)",
        "np.float32(0.1)",
        "np.int64(7)",
        "np.float64(2.5)",
        "np.bool_(True)",
        "np.uint32(2**31)",
        "np.int8(-1)",
        "np.float16(1.5)",
    ),
    "flag": ("True", "False"),
}
USUAL = {"n": 4, "t": 3, "q": 9, "flag": 2}  # of those values, how many are drawn most of the time
OWN_IDIOMS = 0.6  # of all statements
OUTSIDE = 0.15  # of those
_serial = itertools.count()


class Author(fuzz.Writer):
    """Draws a function; variables whose names begin with ``s`` may differ in their last bits and decide nothing.

    Attributes:
        outside: the share of blocks that read or change what is outside of the function.
    """

    def __init__(self, seed: int, outside: float = OUTSIDE) -> None:
        self.outside = outside
        super().__init__(seed)

    def inputs(self) -> None:
        r = self.r
        self.specs: dict[str, Spec] = {}
        h, w = r.choice(fuzz.SIZES), r.choice(fuzz.SIZES)
        numbers = "sample" if r.random() < 0.15 else "image"
        for k in range(r.randint(1, 3)):
            shape: tuple[int, ...] = r.choice([(h, w), (h, w), (h, w), (h, w, 3), (h, w, 3), (3, h, w), (w,), (w, h)])
            dtype = r.choice(fuzz.COMMON if r.random() < 0.7 else fuzz.DTYPES)
            layout = r.choice(LAYOUTS) if r.random() < 0.3 else arguments.WHOLE
            self.specs["abc"[k]] = arguments.array(dtype, shape, layout, self.seed + k, numbers)
        self.specs["lut"] = arguments.array(
            r.choice(fuzz.COMMON), (r.choice((8, 32, 256)),), arguments.WHOLE, self.seed, "image"
        )
        for name in SCALARS:
            self.specs[name] = arguments.scalar(self._value(name))
        self.objects = r.choice(("method", *objects.SOURCES))
        self.specs |= {name: arguments.scalar(text) for name, text in outside.objects(self).items()}
        self.env = {name: arguments.made(spec) for name, spec in self.specs.items()}
        self.env |= {"np": np, "ndi": ndimage}

    def _value(self, name: str) -> str:
        values = SCALARS[name]
        return self.r.choice(values if self.r.random() < 0.2 else values[: USUAL[name]])

    # -- drawing
    def one_of(self, *choices: Any) -> Any:
        return self.r.choice(choices)

    def scalar(self) -> str:
        """A run-time scalar or a constant."""
        return self.r.choice(
            ["n", "n", "t", "q", "q", "flag", "2", "0.5", "True", "np.float32(0.5)", "np.int16(3)", "-1"]
        )

    def arrays(self, ok: Callable[[Any], bool] = lambda a: True) -> list[str]:
        return (
            super().arrays(lambda a: ok(a))
            if not self._soft()
            else [n for n in super().arrays(ok) if n not in self._soft()]
        )

    def _soft(self) -> set[str]:
        return {n for n in self.env if re.fullmatch(r"s\d+", n)}

    def draw(self) -> str:
        if self.r.random() > OWN_IDIOMS:
            return super().draw()
        return self.r.choice(outside.IDIOMS if self.r.random() < self.outside else IDIOMS)(
            self, f"v{len(self.statements)}"
        )

    def function(self, length: int) -> Case:
        """A case: blocks of lines, what is returned, and two sets of arguments."""
        for _ in range(20 * length):
            if len(self.statements) < length:
                self.step()
        new = [n for n in self.env if re.fullmatch(r"[vs]\d+", n)]
        returned = new[-1:] + [n for n in new[:-1] if self.r.random() < 0.25]
        case: Case = {"blocks": self.statements, "returned": returned or ["a"], "args": [self.specs, self._others()]}
        return used(case)

    def _others(self) -> dict[str, Spec]:
        """Arguments of another call: other sizes or the same, other scalars or the same."""
        sizes = {n for s in self.specs.values() if "shape" in s for n in s["shape"] if n > 4}
        other = (
            {n: self.r.choice(fuzz.SIZES[4:]) for n in sorted(sizes - {8, 32, 256})} if self.r.random() < 0.5 else {}
        )
        found = {name: arguments.resized(spec, other) for name, spec in self.specs.items()}
        for name in SCALARS:
            if self.r.random() < 0.5:
                found[name] = arguments.scalar(self._value(name))
        if self.r.random() < 0.7:
            found |= {name: arguments.scalar(text) for name, text in outside.objects(self).items()}
        return found


def used(case: Case) -> Case:
    """The case without arguments that no line names; the first array stays."""
    text = "\n".join([*case["blocks"], *case["returned"]])
    keep = [name for k, name in enumerate(case["args"][0]) if k == 0 or re.search(rf"\b{name}\b", text)]
    return {**case, "args": [{name: specs[name] for name in keep} for specs in case["args"]]}


def enclosed(case: Case) -> list[str]:
    """The scalars that are variables around the function instead of arguments."""
    return [name for name in case["args"][0] if name in SCALARS] if case.get("enclosed") else []


def source(case: Case) -> str:
    """The function as text."""
    body = "".join(f"    {line}\n" for block in case["blocks"] for line in block.split("\n"))
    around = enclosed(case)
    text = f"def f({', '.join(x for x in case['args'][0] if x not in around)}):\n{body}    return {', '.join(case['returned'])}\n"
    if not around:
        return text
    names = ", ".join(around)
    setting = f"def put(*values):\n    nonlocal {names}\n    {names}, = values\n"
    indented = "".join(f"    {line}\n" for line in (text + setting).splitlines())
    return f"def around({names}):\n{indented}    return f, put\nf, put = around({', '.join('0' for _ in around)})\n"


class Enclosed:
    """The function called as if those scalars were arguments."""

    def __init__(self, case: Case, scope: dict[str, Any]) -> None:
        self.f, self.put, self.around = scope["f"], scope["put"], [name in enclosed(case) for name in case["args"][0]]

    @property
    def stats(self) -> Any:
        return self.f.stats

    def __call__(self, *args: Any) -> Any:
        self.put(*(x for x, is_around in zip(args, self.around, strict=True) if is_around))
        return self.f(*(x for x, is_around in zip(args, self.around, strict=True) if not is_around))


def function(case: Case, made: Callable[[Any], Any] = lambda f: f) -> Any:
    """The function as `made`, a new one each time; its lines are known to whoever shows source."""
    name, text = f"<campaign {next(_serial)}>", source(case)
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope: dict[str, Any] = {"np": np, "ndi": ndimage}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, name, "exec"), scope)
    scope["f"] = made(scope["f"])
    return Enclosed(case, scope) if enclosed(case) else scope["f"]


def random_case(seed: int, by_itself: bool = False) -> Case:
    """The function of a seed and its arguments, always the same; `by_itself`: it changes nothing outside of it."""
    w = Author(seed, 0.0 if by_itself else OUTSIDE)
    return w.function(w.r.choice((2, 3, 4, 6, 9, 14)))


def described(case: Case) -> str:
    """The function and its arguments, to read and to run."""
    lines = [
        f"# call {k}: " + "; ".join(f"{n} = {arguments.described(s)}" for n, s in specs.items())
        for k, specs in enumerate(case["args"])
    ]
    options = [f"# options: {case['options']}"] if case.get("options") else []
    return source(case) + "\n".join([*lines, *options])
