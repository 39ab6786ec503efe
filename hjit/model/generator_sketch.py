"""A random program under construction: values with units and bounds, and the text of the function so far.

A value knows the meaning of its axes and how often each was halved (the units of Adams 2019, section 5, which make it
safe to mix stages), between which numbers it lies, and whether every correct compiler gives the same bits. So nothing
is run to write a program, and a program never overflows, divides by zero or decides on a rounding error.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
SMALLEST = 17  # pixels along an axis of an image
LARGEST = 300.0  # numbers that floats may reach before they are scaled


class Unsuitable(Exception):
    """No value suits the stage, or its result would be too small or too large; another stage is drawn."""


@dataclass(frozen=True)
class Value:
    """A variable of the program.

    Attributes:
        axes: a letter for each axis: h and w of the image, c for channels.
        scale: how often h and w were halved, relative to the inputs.
        low, high: what the elements lie between.
        exact: does no result depend on the order of a sum or on the last bits of a transcendental function?
    """

    name: str
    axes: str
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    scale: tuple[int, int] = (0, 0)
    exact: bool = True

    @property
    def is_image(self) -> bool:
        return "h" in self.axes and "w" in self.axes

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    @property
    def most(self) -> float:
        """The largest magnitude, never zero."""
        return max(abs(self.low), abs(self.high)) or 1.0

    @property
    def elements(self) -> int:
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    def size(self, axis: str) -> int:
        return self.shape[self.axes.index(axis)] if axis in self.axes else 1

    def extent(self, axis: str) -> str:
        """The text of a size."""
        return f"{self.name}.shape[{self.axes.index(axis)}]"

    def at(self, **cuts: str) -> str:
        """The text of this value cut along some axes."""
        parts = [cuts.get(axis, ":") for axis in self.axes]
        while parts and parts[-1] == ":":
            parts.pop()
        if len(parts) > 2 and parts[:-1] == [":"] * (len(parts) - 1) == [":"] * (len(self.axes) - 1):
            parts = ["...", parts[-1]]
        return f"{self.name}[{', '.join(parts)}]" if parts else self.name

    def resized(self, **sizes: int) -> tuple[int, ...]:
        """The shape with some sizes changed."""
        return tuple(sizes.get(axis, n) for axis, n in zip(self.axes, self.shape, strict=True))

    def scaled(self, axes: str, by: int) -> tuple[int, int]:
        """The scale after halving (1) or doubling (-1) along some axes."""
        return self.scale[0] + by * ("h" in axes), self.scale[1] + by * ("w" in axes)


@dataclass(frozen=True)
class Parameter:
    """An argument of the program: an image, an array of weights, or a number, whose shape is ()."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    axes: str = ""


def nice(x: float) -> float:
    """A number as a person writes it: two digits."""
    return float(f"{x:.2g}")


def bracketed(text: str) -> str:
    """An expression as an operand: in brackets, where it is more than a name or a call."""
    if re.fullmatch(r"[\w.]+", text):
        return text
    head, _, rest = text.partition("(")
    depth = 1
    for k, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text if k == len(rest) - 1 and re.fullmatch(r"[\w.]+", head) else f"({text})"
    return f"({text})"


def plus(x: float) -> str:
    """A number to be added."""
    return f"- {-x:g}" if x < 0 else f"+ {x:g}"


def span(start: int, stop: int) -> str:
    """A slice that leaves out `start` at the beginning and `stop` at the end."""
    return f"{start or ''}:{-stop or ''}"


def limits(dtype: str) -> tuple[float, float]:
    """The range of an integer dtype."""
    info = np.iinfo(dtype)
    return float(info.min), float(info.max)


class Sketch:
    """The program so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random  # the one method whose numbers are promised to stay
        self.parameters: list[Parameter] = []
        self.lines: list[str] = []
        self.values: dict[str, Value] = {}
        self.unused: list[str] = []
        self.names: dict[str, int] = {}
        self.converted: dict[str, Value] = {}  # floats by the name of what they were made of
        self.limit = 0  # elements of a value

    # -- drawing
    def chance(self, p: float) -> bool:
        return self.random() < p

    def one(self, of: Sequence[T]) -> T:
        return of[int(self.random() * len(of))]

    def integer(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return low + int(self.random() * (high - low + 1))

    def number(self, low: float, high: float) -> float:
        return nice(low + self.random() * (high - low))

    def weighted(self, table: Sequence[tuple[T, float]]) -> T:
        x = self.random() * sum(w for _, w in table)
        for item, w in table:
            x -= w
            if x < 0:
                return item
        return table[-1][0]

    # -- values
    def suiting(self, ok: Callable[[Value], bool]) -> list[Value]:
        return [v for v in self.values.values() if ok(v)]

    def some(self, ok: Callable[[Value], bool] = lambda v: True, images: bool = True) -> Value:
        """A value to go on with: mostly one that nothing reads yet, and rather a late one."""
        found = self.suiting(lambda v: ok(v) and (v.is_image or not images))
        fresh = [v for v in found if v.name in self.unused]
        found = fresh if fresh and self.chance(0.88) else found
        if not found:
            raise Unsuitable
        return found[-1] if self.chance(0.4) else self.one(found)

    def parameter(
        self,
        base: str,
        shape: tuple[int, ...],
        dtype: str,
        low: float,
        high: float,
        axes: str = "",
        scale: tuple[int, int] = (0, 0),
    ) -> Value:
        p = Parameter(self.fresh(base), shape, dtype, low, high, axes)
        self.parameters.append(p)
        return Value(p.name, axes, shape, dtype, low, high, scale)

    def line(self, text: str) -> None:
        """Append a line; the variables on it are used, attributes of their names are not."""
        self.lines.append(text)
        read = re.findall(r"(?<![\w.])[A-Za-z_]\w*", text)
        self.unused = [name for name in self.unused if name not in read]

    def temporary(self, base: str, text: str) -> str:
        """A variable that no later stage reads."""
        name = self.fresh(base)
        self.line(f"{name} = {text}")
        return name

    def let(self, base: str, text: str, like: Value, **changes: Any) -> Value:
        """A variable of this value: `like` with some attributes changed.

        Raises:
            Unsuitable: it has too few pixels, or too many elements.
        """
        name = self.fresh(base)
        v = self.checked(replace(like, name=name, **changes))
        self.line(f"{name} = {text}")
        return v

    def filled(self, base: str, lines: Sequence[str], like: Value, **changes: Any) -> Value:
        """As `let`, of several lines in which ``{}`` is the variable."""
        name = self.fresh(base)
        v = self.checked(replace(like, name=name, **changes))
        for text in lines:
            self.line(text.replace("{}", name))
        return v

    def checked(self, v: Value) -> Value:
        if (
            any(n < SMALLEST for axis, n in zip(v.axes, v.shape, strict=True) if axis in "hw")
            or v.elements > self.limit
        ):
            raise Unsuitable
        if not v.is_float:
            low, high = limits(v.dtype)
            if v.low < low or v.high > high:
                v = replace(v, low=low, high=high)
        return v

    def known(self, v: Value) -> Value:
        """Let later stages read a value."""
        self.values[v.name] = v
        return v

    def keep(self, v: Value) -> Value:
        """See to it that a later stage reads a value."""
        self.unused.append(v.name)
        return self.known(v)

    def fresh(self, base: str) -> str:
        """A name that no variable has."""
        n = self.names[base] = self.names.get(base, 0) + 1
        return base if n == 1 else f"{base}{n}"

    def state(self) -> dict[str, Any]:
        return {k: x.copy() for k, x in vars(self).items() if isinstance(x, (list, dict))}

    def restore(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    # -- conversions
    def floating(self, v: Value) -> Value:
        """The same numbers as floats."""
        if v.is_float:
            return v
        if v.name in self.converted:
            return self.converted[v.name]
        dtype = "float64" if self.chance(0.08) else "float32"
        k = 255 if v.high == 255 else 4095 if v.high == 4095 else 1
        text = f"{v.name}.astype(np.{dtype})" + (f" / {k}" if k > 1 else "")
        low, high = v.low / k, v.high / k
        if max(abs(low), abs(high)) > LARGEST:
            by = 2.0 ** -np.ceil(np.log2(v.most / 16))
            text, low, high = f"{text} * {by:g}", low * by, high * by
        self.converted[v.name] = self.known(self.let("real", text, v, dtype=dtype, low=float(low), high=float(high)))
        return self.converted[v.name]

    def wide(self, v: Value, gain: float, signed: bool = False) -> Value:
        """A value whose sums by weights of this total do not wrap around; once in a while they do."""
        if v.is_float or (not signed and self.chance(0.03)):
            return v
        if self.chance(0.55):
            return self.floating(v)
        signed = signed and not v.dtype.startswith("int")
        if v.most * gain <= limits(v.dtype)[1] and not signed:
            return v
        fits = [
            t
            for t in ("uint16", "int32", "int64")
            if v.most * gain <= limits(t)[1] and not (t == "uint16" and (signed or v.low < 0))
        ]
        if not fits:
            return self.floating(v)
        return self.known(self.let("wide", f"{v.name}.astype(np.{fits[0]})", v, dtype=fits[0]))

    def bytes_of(self, v: Value) -> Value:
        """The numbers as uint8: of an exact value, so that all compilers round alike."""
        if v.dtype == "uint8":
            return v
        if not v.exact:
            raise Unsuitable
        if v.is_float:
            k = nice(255 / v.most)
            part = f"np.abs({v.name})" if v.low < 0 else v.name
            return self.let(
                "byte", f"np.clip({part} * {k:g}, 0, 255).astype(np.uint8)", v, dtype="uint8", low=0, high=255
            )
        shift = max(0, int(np.ceil(np.log2(v.most / 255))))
        part = f"({v.name} >> {shift})" if shift else v.name
        return self.let("byte", f"np.clip({part}, 0, 255).astype(np.uint8)", v, dtype="uint8", low=0, high=255)

    def tamed(self, text: str, low: float, high: float) -> tuple[str, float, float]:
        """A float expression, scaled where its numbers are large."""
        most = max(abs(low), abs(high))
        if most <= LARGEST:
            return text, low, high
        by = float(2.0 ** -np.ceil(np.log2(most / 16)))
        return f"{bracketed(text)} * {by:g}", low * by, high * by

    # -- units
    def halved(self, v: Value, axis: str) -> Value:
        n = (v.size(axis) + 1) // 2
        return self.let("part", v.at(**{axis: "::2"}), v, shape=v.resized(**{axis: n}), scale=v.scaled(axis, 1))

    def doubled(self, v: Value, axis: str) -> Value:
        text = f"np.repeat({v.name}, 2, axis={v.axes.index(axis)})"
        return self.let("spread", text, v, shape=v.resized(**{axis: 2 * v.size(axis)}), scale=v.scaled(axis, -1))

    def matched(self, v: Value, like: Value) -> tuple[Value, Value]:
        """Both, made to broadcast: resampled to the units of `like`, in its order of axes, cut to the same size."""
        for axis in v.axes:
            if axis not in like.axes:
                v = self._without(v, axis)
        for k, axis in enumerate("hw"):
            while axis in v.axes and v.scale[k] < like.scale[k]:
                v = self.halved(v, axis)
            while axis in v.axes and v.scale[k] > like.scale[k]:
                v = self.doubled(v, axis)
        if 1 not in (v.size("c"), like.size("c")) and v.size("c") != like.size("c"):
            v = self.let("plane", v.at(c=":1"), v, shape=v.resized(c=1))
        order = "".join(axis for axis in like.axes if axis in v.axes)
        if order != v.axes:
            v = self.transposed(v, order)
        v, like = self.cropped(v, like), self.cropped(like, v)
        tail = like.axes[like.axes.index(v.axes[0]) :] if v.axes else ""
        if tail != v.axes:
            key = ", ".join(":" if axis in v.axes else "None" for axis in tail)
            v = replace(v, name=f"{v.name}[{key}]", axes=tail, shape=tuple(v.size(axis) for axis in tail))
        return v, like

    def joined(self, v: Value, like: Value, **changes: Any) -> Value:
        """What an operation on two matched values gives."""
        shape = tuple(max(n, v.size(axis)) for axis, n in zip(like.axes, like.shape, strict=True))
        dtype = str(np.result_type(v.dtype, like.dtype))
        return replace(like, shape=shape, dtype=dtype, exact=v.exact and like.exact, **changes)

    def cropped(self, v: Value, like: Value) -> Value:
        """The middle of a value, no larger than another."""
        extra = {axis: v.size(axis) - like.size(axis) for axis in "hw" if axis in v.axes and axis in like.axes}
        extra = {axis: n for axis, n in extra.items() if n > 0}
        if not extra:
            return v
        cuts = {axis: span(n // 2, n - n // 2) for axis, n in extra.items()}
        return self.let("part", v.at(**cuts), v, shape=v.resized(**{axis: like.size(axis) for axis in extra}))

    def transposed(self, v: Value, order: str) -> Value:
        axes = tuple(v.axes.index(axis) for axis in order)
        if axes == tuple(reversed(range(len(axes)))):
            text = f"{v.name}.T"
        elif len(axes) == 3 and axes == (1, 2, 0):
            text = f"np.moveaxis({v.name}, 0, -1)"
        elif len(axes) == 3 and axes == (2, 0, 1):
            text = f"np.moveaxis({v.name}, -1, 0)"
        else:
            text = f"{v.name}.transpose({', '.join(map(str, axes))})"
        return self.let("turned", text, v, axes=order, shape=tuple(v.size(axis) for axis in order))

    def _without(self, v: Value, axis: str) -> Value:
        k = v.axes.index(axis)
        shape = v.shape[:k] + v.shape[k + 1 :]
        axes = v.axes.replace(axis, "")
        if axis == "c" and self.chance(0.5):
            return self.let("plane", v.at(c=str(self.integer(0, v.size("c") - 1))), v, axes=axes, shape=shape)
        v = self.floating(v)
        return self.let("mean", f"{v.name}.mean(axis={k})", v, axes=axes, shape=shape, exact=False)
