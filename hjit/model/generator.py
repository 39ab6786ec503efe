"""Random image pipelines as NumPy source, which the cost model is trained on: section 5 of Adams 2019.

A program is a DAG of stages drawn from a table of kinds, over images whose axes have units. As in the paper, programs
are neither long nor meaningful: they show the model every situation that a stage can be in. Where this differs:

- A program is a NumPy function, so a stage is what a line of NumPy is, and views, copies and joins are stages, too.
- The paper's generator mixes any of Halide's types; here images are uint8, uint16, int32, float32 and sometimes
  float64, and mostly become floats early, as image code does.
- Values have bounds, and nothing decides on inexact numbers, so that every run can be compared with NumPy's.
- Every stage is used: what nothing reads at the end is combined into the one or two results.
- Three programs in ten have stages as large applications have them, too (`hjit.model.generator_windows`,
  `hjit.model.generator_gathers`), so that no feature of these is beyond what a cost model was trained on.
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from typing import Any

import numpy as np

from hjit.model.generator_gathers import GATHERS
from hjit.model.generator_local import combined
from hjit.model.generator_sketch import Parameter, Sketch, Unsuitable, Value
from hjit.model.generator_stages import KINDS
from hjit.model.generator_windows import WINDOWS

LENGTHS = (4, 25)  # stages of a program
PIXELS = (256**2, 1536**2)  # of an image of the default size, those of all channels
LAYOUTS = (("hw", 5.0), ("hwc", 2.5), ("chw", 2.0), ("features", 1.5))
DTYPES = (("uint8", 4.0), ("uint16", 1.5), ("int32", 0.7), ("float32", 5.0), ("float64", 0.5))
BOUNDS = {"uint8": (0, 255), "uint16": (0, 4095), "int32": (-2000, 2000), "float32": (0, 1), "float64": (0, 1)}
EVERY_KIND = (*KINDS, *WINDOWS, *GATHERS)
LARGE = 0.3  # of the programs have stages of all kinds, the others of `KINDS`
ATTEMPTS = 40  # draws of a stage before the program ends as it is


@dataclass(frozen=True)
class Program:
    """A function as NumPy source, and what it is called with.

    Attributes:
        stages: the kind of each stage in the order in which they were drawn; `blend` for those that join loose ends.
    """

    seed: int
    source: str
    parameters: tuple[Parameter, ...]
    stages: tuple[str, ...]

    def __str__(self) -> str:
        return self.source

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The compiled source; tracebacks show its lines."""
        size = "x".join(map(str, self.parameters[0].shape))
        name = f"<random program {self.seed} {size}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        scope: dict[str, Any] = {"__name__": "random_program"}
        exec(compile(self.source, name, "exec"), scope)
        function: Callable[..., Any] = scope["pipeline"]
        return function

    def inputs(self, seed: int = 0) -> tuple[Any, ...]:
        """Arguments for the function: images of waves and noise, uniform weights, and numbers."""
        r = np.random.default_rng(seed)
        return tuple(_array(p, r) for p in self.parameters)


def _array(p: Parameter, r: np.random.Generator) -> np.ndarray[Any, Any] | float:
    if not p.shape:
        return round(float(r.uniform(p.low, p.high)), 3)
    x = r.random(p.shape, np.float32)
    for axis, n in zip(p.axes, p.shape, strict=False):
        if axis in "hw":
            wave = 0.5 + 0.5 * np.sin(np.arange(n, dtype=np.float32) * (r.uniform(1, 4) * 6.3 / n) + r.uniform(0, 6.3))
            x = 0.6 * x + 0.4 * wave.reshape([n if a == axis else 1 for a in p.axes])
    x = p.low + (p.high - p.low) * x
    return np.ascontiguousarray((np.rint(x) if not p.dtype.startswith("float") else x).astype(p.dtype))


def random_program(seed: int, size: int | None = None, longest: int = LENGTHS[1]) -> Program:
    """The program of a seed, always the same.

    Args:
        size: about the number of pixels of an image; one of many channels has fewer. None: from 256 x 256 to
            1536 x 1536, small ones more often, with fewer pixels where there are channels or many stages.
        longest: stages of a program at most, of those that half of the programs are drawn with; the others have few.
    """
    s, kinds = drawn(seed, size, longest)
    return Program(seed, _source(s), tuple(s.parameters), kinds)


def is_large(seed: int) -> bool:
    """Has the program of a seed stages as large applications have them? Its other draws do not depend on it."""
    return random.Random(f"large {seed}").random() < LARGE


def drawn(seed: int, size: int | None = None, longest: int = LENGTHS[1]) -> tuple[Sketch, tuple[str, ...]]:
    """The sketch of a program, and the kinds of its stages."""
    s = Sketch(seed)
    length = s.integer(LENGTHS[0], longest) if s.chance(0.5) else s.integer(LENGTHS[0], 12)
    _inputs(s, size, length)
    table = EVERY_KIND if is_large(seed) else KINDS
    kinds: list[str] = []
    misses = 0
    while (
        len(kinds) < LENGTHS[0] or len(kinds) + len(s.unused) - 1 < length
    ) and misses < ATTEMPTS:  # joining takes one each
        kind = s.weighted([((name, stage), weight) for name, stage, weight in table])
        if _attempt(s, kind[1]):
            kinds.append(kind[0])
        else:
            misses += 1
    wanted = 2 if s.chance(0.25) else 1
    while len(s.unused) > wanted and _attempt(s, _join):
        kinds.append("blend")
    return s, tuple(kinds)


def _inputs(s: Sketch, size: int | None, length: int) -> None:
    low, high = map(log, PIXELS)
    # so that many stages take no longer than few
    pixels = exp(low + (high - low) * s.random() ** 2) / max(1, length / 10)
    pixels = pixels if size is None else size
    layout = s.weighted(LAYOUTS)
    channels = s.one((4, 8, 8, 16)) if layout == "features" else 3 if s.chance(0.8) else s.one((2, 4))
    axes = "chw" if layout == "features" and s.chance(0.7) else "hwc" if layout == "features" else layout
    pixels = pixels / channels if layout == "features" or (size is None and layout != "hw") else pixels
    aspect = exp((s.random() - 0.5) * 1.2)
    h, w = max(24, round((pixels * aspect) ** 0.5)), max(24, round((pixels / aspect) ** 0.5))
    if s.chance(0.3):
        h, w = h // 16 * 16 + 16, w // 16 * 16 + 16
    dtype = "float32" if layout == "features" else s.weighted(DTYPES)
    for k in range(s.weighted(((1, 5.0), (2, 3.5), (3, 1.5)))):
        if k and s.chance(0.3):
            dtype = s.weighted(DTYPES)
        plane = k > 0 and len(axes) == 3 and s.chance(0.4)
        letters = axes.replace("c", "") if plane else axes
        shape = tuple({"h": h, "w": w, "c": channels}[a] for a in letters)
        s.keep(
            s.parameter(
                s.one(("img", "image", "x")) if k == 0 else s.one(("other", "guide", "y")),
                shape,
                dtype,
                *BOUNDS[dtype],
                letters,
            )
        )
        s.limit = max(s.limit, 4 * int(np.prod(shape)))


def _attempt(s: Sketch, stage: Callable[[Sketch], Value]) -> bool:
    """Draw a stage; the sketch is as before where no value suits."""
    before = s.state()
    try:
        s.keep(stage(s))
    except Unsuitable:
        s.restore(before)
        return False
    return True


def _join(s: Sketch) -> Value:
    """Two values that nothing reads, in the units of the coarser."""
    a, b = (s.values[name] for name in s.unused[-2:])
    a, b = (a, b) if (b.is_image, b.scale) > (a.is_image, a.scale) else (b, a)
    return combined(s, a, b)


def _source(s: Sketch) -> str:
    body = "".join(f"    {line}\n" for line in s.lines)
    imports = "import numpy as np\n" + ("from scipy import ndimage\n" if "ndimage." in body else "")
    results = ", ".join(s.unused)
    return f"{imports}\n\ndef pipeline({', '.join(p.name for p in s.parameters)}):\n{body}    return {results}\n"
