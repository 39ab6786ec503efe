"""Random stages that are point-wise, or read a few neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hjit.model.generator_sketch import Sketch, Unsuitable, Value, bracketed, limits, nice, plus, span

Expression = tuple[str, float, float, bool]  # text, low, high, is it exact
PADS = ("edge", "reflect", "wrap", "constant", "symmetric")
ROWS_1D = (
    (1, 1),
    (1, 2, 1),
    (1, 1, 1),
    (-1, 0, 1),
    (1, -2, 1),
    (1, 4, 6, 4, 1),
    (1, 0, 2, 0, 1),
    (1, 1, 1, 1, 1),
    (-1, 4, 10, 4, -1),
    (1, 3, 3, 1),
)
ROWS_2D = (
    ((0, 1, 0), (1, 4, 1), (0, 1, 0)),
    ((0, 1, 0), (1, -4, 1), (0, 1, 0)),
    ((1, 2, 1), (2, 4, 2), (1, 2, 1)),
    ((-1, 0, 1), (-2, 0, 2), (-1, 0, 1)),
    ((-1, -2, -1), (0, 0, 0), (1, 2, 1)),
    ((0, -1, 0), (-1, 5, -1), (0, -1, 0)),
    ((1, 1, 1), (1, 1, 1), (1, 1, 1)),
    ((1, 0, 1), (0, 0, 0), (1, 0, 1)),
)


# -- point-wise


def over(k: float) -> str:
    """The text of a division; nothing of one by 1."""
    return f" / {k:g}" if k != 1 else ""


def float_step(s: Sketch, x: str, low: float, high: float, exact: bool) -> Expression:
    """One operation on floats."""
    m = max(abs(low), abs(high)) or 1.0
    t = nice(low + (high - low) * (0.2 + 0.6 * s.random()))
    k, b = s.number(0.5, 1.5), nice(m * (s.random() - 0.5))
    floor = nice(m / 8)
    size = f"np.abs({x})" if low < 0 else x
    choices: list[tuple[Expression, float]] = [
        ((f"{k:g} * {x} {plus(b)}", k * low + b, k * high + b, exact), 3),
        ((f"np.abs({x} {plus(-t)})", 0, max(high - t, t - low), exact), 2),
        (
            (
                f"np.clip({x}, {nice(low / 2):g}, {t:g})" if nice(low / 2) < t else f"np.minimum({x}, {t:g})",
                low,
                high,
                exact,
            ),
            3,
        ),
        ((f"np.maximum({x}, {t:g})", t, max(high, t), exact), 2),
        ((f"np.where({x} > 0, {x}, 0.1 * {x})", low, high, exact), 1 if low < 0 < high else 0),
        ((f"np.sqrt({size} + {floor:g})", floor**0.5, (m + floor) ** 0.5, exact), 1.5),
        ((f"np.exp(-{size}{over(nice(m))})", 0.3, 1, False), 1),
        ((f"1 / (1 + np.exp(-{x}{over(nice(m / 3))}))", 0, 1, False), 0.7),
        ((f"np.tanh({x}{over(nice(m / 2))})", -1, 1, False), 0.5),
        ((f"np.log1p({size})", 0, m, False), 0.7),
        ((f"np.log({size} + {floor:g})", -6, 8, False), 0.5),
        ((f"({size}{over(nice(m))} + 0.05) ** {s.one((0.4545, 2.2, 0.8, 1.5)):g}", 0, 1.4, False), 1),
        ((f"{x} * {x}{over(nice(m))}", 0, m * 1.1, exact), 1.5),
        ((f"{floor:g} / ({size} + {floor:g})", 0.1, 1, exact), 1),
        ((f"np.sin({x}{over(nice(m / 2))})", -1, 1, False), 0.3),
    ]
    if exact:
        choices += [
            ((f"np.round({x} * {nice(16 / m):g}) / {nice(16 / m):g}", low - m / 16, high + m / 16, True), 0.7),
            ((f"np.where({x} > {t:g}, {x}, {b:g})", min(low, b), max(high, b), True), 1.5),
        ]
    return s.weighted(choices)


def int_step(s: Sketch, v: Value) -> Expression:
    """One operation on whole numbers, of which one that leaves the dtype's range wraps around."""
    x, low, high = v.name, v.low, v.high
    t = int(low + (high - low) * (0.2 + 0.6 * s.random()))
    k = s.integer(1, 3)
    top = min(int(high), np.iinfo(v.dtype).max)  # bounds are floats: int64's is rounded up
    choices: list[tuple[Expression, float]] = [
        ((f"{x} >> {k}", min(low, 0), max(high, 0), True), 1.5),
        ((f"{x} // {s.integer(2, 9)}", min(low, 0), max(high, 0), True), 1),
        ((f"np.clip({x}, {int(low + (t - low) / 2)}, {t})", low, t, True), 2),
        ((f"np.minimum({x}, {t})", low, t, True), 1),
        ((f"np.where({x} > {t}, {x}, {t // 2})", low, high, True), 1.5),
        ((f"{top} - {x}", top - high, top - low, True), 1.5),
        ((f"{x} ^ {min(85, top)}" if top > 0 else f"-{x}", *limits(v.dtype), True), 0.5),
        ((f"{x} & {max(1, top // 2)}", 0, max(1, top // 2), True), 0.5),
        ((f"{x} * {k} + {min(k, top)}", *limits(v.dtype), True), 0.7),
        ((f"np.abs({x})" if low < 0 else f"np.maximum({x}, {t})", 0, v.most, True), 1),
    ]
    return s.weighted(choices)


def pointwise(s: Sketch) -> Value:
    """A chain of one to four operations, on one line or one a line."""
    v = s.some(images=s.chance(0.95))
    if not v.is_float and s.chance(0.5):
        v = s.floating(v)
    if not v.is_float:
        for _ in range(s.integer(1, 2)):
            text, low, high, _ = int_step(s, v)
            v = s.let("code", text, v, low=low, high=high)
        return v
    length = s.integer(1, 4)
    nested = s.chance(0.3)
    text = v.name
    for k in range(length):
        step, low, high, exact = float_step(s, "@", v.low, v.high, v.exact)
        step, low, high = s.tamed(step, low, high)
        if step.count("@") > 1 and text != v.name:  # an operand that is needed twice gets a name
            v = s.let("curve", text, v)
            text = v.name
        text = step.replace("@", bracketed(text))
        if nested and k < length - 1 and len(text) < 60:
            v = replace(v, name="", low=low, high=high, exact=exact)
        else:
            v = s.let("curve", text, v, low=low, high=high, exact=exact)
            text = v.name
    return v


def blend(s: Sketch) -> Value:
    """Two stages combined; Adams 2019's binary operation."""
    b = s.some()
    a = s.some(lambda v: v.name != b.name, images=s.chance(0.9))
    return combined(s, a, b)


def combined(s: Sketch, a: Value, b: Value) -> Value:
    """One binary operation on a value of any units and axes, and an image whose units and axes the result has."""
    if a.is_float != b.is_float:
        a, b = s.floating(a), s.floating(b)
    a, b = s.matched(a, b)
    if a.is_float and not b.is_float:  # a mean of its channels
        b = s.floating(b)
    both = s.joined(a, b)
    return (_float_pair if both.is_float else _int_pair)(s, a, b, both)


def _float_pair(s: Sketch, a: Value, b: Value, both: Value) -> Value:
    x, y = a.name, b.name
    ma, mb = a.most, b.most
    w = s.number(0.2, 0.8)
    floor = nice(mb / 4)
    k = nice(mb)
    top, bottom = max(a.high, b.high), min(a.low, b.low)
    t = nice((b.low + b.high) / 2)
    less = y if both.exact else f"{w:g} * {y}"  # the difference of nearly equal inexact numbers is noise
    far = b.name if b.low >= 0 else f"np.abs({b.name})"
    choices: list[tuple[Expression, float]] = [
        ((f"{x} + {y}", a.low + b.low, a.high + b.high, True), 2),
        ((f"{x} - {less}", min(a.low, a.low - b.high), max(a.high, a.high - b.low), True), 3),
        ((f"{y} + {w:g} * ({x} - {y})", bottom, top, True), 3),
        ((f"{w:g} * {x} + {nice(1 - w):g} * {y}", bottom, top, True), 2),
        ((f"np.maximum({x}, {y})", max(a.low, b.low), top, True), 1.5),
        ((f"np.minimum({x}, {y})", bottom, min(a.high, b.high), True), 1),
        ((f"{x} * {y}{over(k)}", -ma * 1.1, ma * 1.1, True), 2.5),
        ((f"{x} * ({k:g} + {y}) / {nice(2 * k):g}", -ma * 1.1, ma * 1.1, True), 1),
        ((f"{x} / ({far} + {floor:g})", -ma / floor, ma / floor, True), 1.5),
        ((f"np.sqrt({x} * {x} + {y} * {y} + {nice(((ma + mb) / 8) ** 2):g})", 0, 1.2 * (ma + mb), True), 1.5),
        ((f"np.hypot({x}, {y})", 0, ma + mb, False), 0.4),
        ((f"np.abs({x} - {less})", 0, max(a.high - b.low, b.high - a.low, ma), True), 1.5),
        ((f"{x} * np.exp(-{far}{over(k)})", -ma, ma, False), 0.6),
        ((f"np.arctan2({y}, np.abs({x}) + {nice(ma / 8):g})", -1.6, 1.6, False), 0.3),
    ]
    if both.exact:
        choices += [
            ((f"np.where({y} > {t:g}, {x}, {y})", bottom, top, True), 1.5),
            ((f"np.where({x} < {y}, {x} * {w:g}, {y})", min(bottom, w * a.low), top, True), 1),
        ]
    text, low, high, exact = s.weighted(choices)
    text, low, high = s.tamed(text, low, high)
    return s.let("mix", text, both, low=low, high=high, exact=both.exact and exact)


def _int_pair(s: Sketch, a: Value, b: Value, both: Value) -> Value:
    x, y = a.name, b.name
    low, high = min(a.low, b.low), max(a.high, b.high)
    every = limits(both.dtype)
    choices: list[tuple[tuple[str, float, float], float]] = [
        ((f"np.maximum({x}, {y})", max(a.low, b.low), high), 2),
        ((f"np.minimum({x}, {y})", low, min(a.high, b.high)), 2),
        ((f"({x} >> 1) + ({y} >> 1)", low, high), 2),
        ((f"np.where({x} > {y}, {x} - {y}, {y} - {x})", 0, min(every[1], a.most + b.most)), 1.5),
        ((f"np.where({y} > {int((b.low + b.high) / 2)}, {x}, {y})", low, high), 1.5),
        ((f"{x} + {y}", *every), 1),
        ((f"{x} - {y}", *every), 1),
        ((f"{x} ^ {y}", *every), 0.5),
        ((f"{x} & {y}", *every), 0.5),
    ]
    (text, low, high), _ = s.weighted([((c, 0), w) for c, w in choices])
    return s.let("code", text, both, low=low, high=high)


def several(s: Sketch) -> Value:
    """Three or four stages in one weighted sum, or one stage that chooses between two others."""
    choose = s.chance(0.3)
    found: list[Value] = []
    for k in range(3 if choose else s.integer(3, 4)):
        found.append(s.some(lambda v: all(v.name != u.name for u in found), images=k == 0))
    like, *others = map(s.floating, found)
    parts = []
    for v in others:
        v, like = s.matched(v, like)
        parts.append(v)
    if len({n for n in (v.size("c") for v in parts) if n > 1}) > 1:  # each goes with one channel, not with each other
        raise Unsuitable
    parts = [like] + [s.cropped(v, like) for v in parts]  # `like` became smaller meanwhile
    both = like
    for v in parts[1:]:
        both = s.joined(v, both)
    m = max(v.most for v in parts)
    if choose and both.exact:
        a, b, c = parts
        text = f"np.where({b.name} > {nice((b.low + b.high) / 2):g}, {a.name}, {c.name})"
        return s.let("chosen", text, both, low=-m, high=m)
    weights = [s.number(0.1, 0.5) for _ in parts]
    text = " + ".join(f"{w:g} * {v.name}" for w, v in zip(weights, parts, strict=True))
    return s.let("weighted", text, both, low=-2 * m, high=2 * m)


def convert(s: Sketch) -> Value:
    """Another dtype."""
    v = s.some()
    if not v.is_float and s.chance(0.6):
        return s.floating(v)
    kind = s.weighted((("uint8", 3), ("uint16", 2), ("int32", 2), ("float64", 1)))
    if kind == "float64" or v.dtype == "float64":
        dtype = "float32" if v.dtype == "float64" else "float64"
        return s.let("real", f"{v.name}.astype(np.{dtype})", v, dtype=dtype)
    if kind == "uint8":
        return s.bytes_of(v)
    if not v.exact:
        raise Unsuitable
    if not v.is_float:
        low, high = limits(kind)
        inside = low <= v.low and v.high <= high
        text = v.name if inside else f"np.clip({v.name}, 0, {int(min(v.high, high))})"
        return s.let(
            "code", f"{text}.astype(np.{kind})", v, dtype=kind, low=v.low if inside else 0, high=min(v.high, high)
        )
    k = nice(4095 / v.most)
    text = f"np.rint({v.name} * {k:g})"
    text = f"np.clip({text}, 0, 4095)" if kind == "uint16" else text
    low = 0 if kind == "uint16" else -8191
    return s.let("code", f"{text}.astype(np.{kind})", v, dtype=kind, low=low, high=4095 if kind == "uint16" else 8191)


# -- stencils


def summed(s: Sketch, v: Value, taps: Sequence[tuple[int, str]]) -> Expression:
    """The scaled sum of weighted texts, each of `v` somewhere else; what is inexact is not differentiated."""
    taps = [(w if v.exact else abs(w), text) for w, text in taps if w]
    plus, minus = sum(w for w, _ in taps if w > 0), -sum(w for w, _ in taps if w < 0)
    low, high = plus * v.low - minus * v.high, plus * v.high - minus * v.low
    by = plus - minus if plus - minus > 1 else max(plus, minus)
    if v.is_float and s.chance(0.3):
        terms = [f"{w / by:.4g} * {text}".removeprefix("1 * ").replace("-1 * ", "-") for w, text in taps]
        return " + ".join(terms).replace("+ -", "- "), low / by * 1.001, high / by * 1.001, True
    terms = [text if w == 1 else f"-{text}" if w == -1 else f"{w} * {text}" for w, text in taps]
    text = " + ".join(terms).replace("+ -", "- ")
    if by == 1:
        return text, low, high, True
    if v.is_float:
        return (
            (f"({text}) * {1 / by:g}" if by & (by - 1) == 0 and s.chance(0.5) else f"({text}) / {by}"),
            low / by,
            high / by,
            True,
        )
    shift = by & (by - 1) == 0 and s.chance(0.5)
    return f"({text}) >> {by.bit_length() - 1}" if shift else f"({text}) // {by}", low / by - 1, high / by, True


def total(rows: Sequence[Sequence[int]]) -> int:
    """What the weights of a stencil amount to."""
    return sum(abs(w) for row in rows for w in row)


def drawn_taps(s: Sketch) -> tuple[tuple[int, ...], ...]:
    """Weights of rows and columns: named ones, or random and sparse."""
    if s.chance(0.6):
        return s.one(ROWS_2D)
    h, w = s.one((3, 3, 5, 2)), s.one((3, 3, 5, 2))
    rows = [[s.integer(-2, 4) if s.chance(0.6) else 0 for _ in range(w)] for _ in range(h)]
    rows[h // 2][w // 2] = s.integer(2, 5)
    return tuple(map(tuple, rows))


def line_filter(s: Sketch, v: Value, axis: str, row: Sequence[int], step: int, base: str) -> Value:
    """A stencil along one axis, by slices; the result is shorter."""
    width = (len(row) - 1) * step
    taps = [(w, v.at(**{axis: span(k * step, width - k * step)})) for k, w in enumerate(row)]
    text, low, high, _ = summed(s, v, taps)
    text, low, high = s.tamed(text, low, high) if v.is_float else (text, low, high)
    return s.let(base, text, v, shape=v.resized(**{axis: v.size(axis) - width}), low=low, high=high)


def padded(s: Sketch, v: Value, before: dict[str, int], after: dict[str, int], mode: str) -> Value:
    """np.pad along some axes."""
    widths = [(before.get(axis, 0), after.get(axis, 0)) for axis in v.axes]
    text = (
        str(widths[0][0])
        if len(set(widths)) == 1 and widths[0][0] == widths[0][1]
        else f"({', '.join(map(str, widths))})"
    )
    how = "" if mode == "constant" and s.chance(0.5) else f', mode="{mode}"'
    low, high = (min(v.low, 0), max(v.high, 0)) if mode == "constant" else (v.low, v.high)
    shape = tuple(n + a + b for n, (a, b) in zip(v.shape, widths, strict=True))
    return s.let("p", f"np.pad({v.name}, {text}{how})", v, shape=shape, low=low, high=high)


def stencil(s: Sketch) -> Value:
    """A stencil along one axis, by slices; the taps may lie apart."""
    v = s.some()
    row = s.one(ROWS_1D)
    v = s.wide(v, total((row,)), min(row) < 0)
    return line_filter(s, v, s.one("hw"), row, s.one((1, 1, 1, 2, 4)), "blur" if min(row) >= 0 else "slope")


def separable(s: Sketch) -> Value:
    """The same stencil along both axes, one after the other, of a padded image or one that becomes smaller."""
    v = s.some()
    row = s.one(ROWS_1D)
    v = s.wide(v, total((row,)) ** 2, min(row) < 0)
    first, second = s.one((("h", "w"), ("w", "h")))
    if s.chance(0.5):
        before, after = dict.fromkeys("hw", len(row) // 2), dict.fromkeys("hw", (len(row) - 1) // 2)
        v = padded(s, v, before, after, s.one(PADS))
    return line_filter(s, line_filter(s, v, first, row, 1, "across"), second, row, 1, "blur")


def windows(v: Value, rows: Sequence[Sequence[int]]) -> list[tuple[int, str]]:
    """Weights and slices of a stencil on rows and columns."""
    h, w = len(rows) - 1, len(rows[0]) - 1
    return [(x, v.at(h=span(y, h - y), w=span(k, w - k))) for y, row in enumerate(rows) for k, x in enumerate(row)]


def stencil_2d(s: Sketch) -> Value:
    """A stencil on rows and columns, by slices; the result is smaller."""
    rows = drawn_taps(s)
    v = s.wide(s.some(), total(rows), min(map(min, rows)) < 0)
    text, low, high, _ = summed(s, v, windows(v, rows))
    text, low, high = s.tamed(text, low, high) if v.is_float else (text, low, high)
    shape = v.resized(h=v.size("h") - len(rows) + 1, w=v.size("w") - len(rows[0]) + 1)
    return s.let("filtered", text, v, shape=shape, low=low, high=high)


def stencil_pad(s: Sketch) -> Value:
    """A stencil on a padded image, by slices: one sum, or a loop over the taps."""
    rows = drawn_taps(s)
    v = s.wide(s.some(), total(rows), min(map(min, rows)) < 0)
    h, w = len(rows), len(rows[0])
    p = padded(s, v, {"h": h // 2, "w": w // 2}, {"h": (h - 1) // 2, "w": (w - 1) // 2}, s.one(PADS))
    if not v.is_float or s.chance(0.7):
        text, low, high, _ = summed(s, p, windows(p, rows))
        text, low, high = s.tamed(text, low, high) if v.is_float else (text, low, high)
        return s.let("filtered", text, v, low=low, high=high)
    by = total(rows)
    kernel = s.temporary("kernel", f"np.array({[list(row) for row in rows]}, np.{v.dtype}) / {by}")
    lines = [
        f"{{}} = np.zeros({v.name}.shape, np.{v.dtype})",
        f"for dy in range({h}):",
        f"    for dx in range({w}):",
        f"        {{}} += {kernel}[dy, dx] * {p.at(h='dy : dy + ' + v.extent('h'), w='dx : dx + ' + v.extent('w'))}",
    ]
    return s.filled("filtered", lines, v, low=-p.most, high=p.most)


def stencil_ndimage(s: Sketch) -> Value:
    """A filter of scipy.ndimage."""
    v = s.floating(s.some())
    mode = f', mode="{s.one(("reflect", "nearest", "mirror", "wrap", "constant"))}"'
    spatial = tuple(k for k, axis in enumerate(v.axes) if axis in "hw")

    def sizes(n: int) -> str:
        return str(n) if len(v.axes) == 2 else str(tuple(n if axis in "hw" else 1 for axis in v.axes))

    sigma = s.one((0.8, 1.0, 1.5))
    sigmas = f"{sigma:g}" if len(v.axes) == 2 else str(tuple(sigma if axis in "hw" else 0 for axis in v.axes))
    rows = [list(row) for row in drawn_taps(s)]
    kernel = f"np.array({rows}) / {total(rows)}"
    if len(v.axes) == 3:
        kernel = f"({kernel})[{', '.join(':' if axis in 'hw' else 'None' for axis in v.axes)}]"
    line = s.one(ROWS_1D)
    choices = (
        (f"ndimage.convolve({v.name}, {kernel}{mode})", 2),
        (f"ndimage.correlate1d({v.name}, np.array({list(line)}) / {total((line,))}, axis={s.one(spatial)}{mode})", 2),
        (f"ndimage.uniform_filter({v.name}, {sizes(s.one((3, 5, 7)))}{mode})", 1.5),
        (f"ndimage.gaussian_filter({v.name}, {sigmas}{mode})", 2),
        (f"ndimage.maximum_filter({v.name}, size={sizes(3)}{mode})", 0.7),
        (f"ndimage.minimum_filter({v.name}, size={sizes(3)}{mode})", 0.7),
        (f"ndimage.median_filter({v.name}, size={sizes(3)}{mode})", 0.5),
        (f"ndimage.sobel({v.name}, axis={s.one(spatial)}{mode}) / {8 if len(v.axes) == 2 else 32}", 1),
    )
    m = v.most * 1.01
    return s.let("smooth", s.weighted(choices), v, low=min(-m, v.low), high=m, exact=False)


def order_filter(s: Sketch) -> Value:
    """The minimum, maximum or median of neighbours."""
    v = s.some()
    axis = s.one("hw")
    p = padded(s, v, {axis: 1}, {axis: 1}, s.one(("edge", "reflect"))) if s.chance(0.6) else v
    shape = v.shape if p is not v else v.resized(**{axis: v.size(axis) - 2})
    a, b, c = (p.at(**{axis: span(k, 2 - k)}) for k in range(3))
    f, g = s.one((("maximum", "minimum"), ("minimum", "maximum")))
    if s.chance(0.3) and v.is_float:
        return s.let("median", f"np.median(np.stack([{a}, {b}, {c}]), axis=0)", v, shape=shape, low=p.low, high=p.high)
    if s.chance(0.3):
        return s.let(
            "median", f"np.{f}(np.{g}({a}, {b}), np.{g}(np.{f}({a}, {b}), {c}))", v, shape=shape, low=p.low, high=p.high
        )
    return s.let("grown", f"np.{f}(np.{f}({a}, {b}), {c})", v, shape=shape, low=p.low, high=p.high)


def bilateral(s: Sketch) -> Value:
    """Neighbours weighted by how like they are."""
    v = s.floating(s.some())
    p = padded(s, v, {"h": 1, "w": 1}, {"h": 1, "w": 1}, s.one(("edge", "reflect", "wrap")))
    t = s.temporary
    near = p.at(h="dy : dy + " + v.extent("h"), w="dx : dx + " + v.extent("w"))
    norm = t("norm", f"np.zeros({v.name}.shape, np.{v.dtype})")
    offsets = s.one(("((0, 1), (1, 0), (1, 1), (1, 2), (2, 1))", "[(y, x) for y in range(3) for x in range(3)]"))
    lines = [
        f"{{}} = np.zeros({v.name}.shape, np.{v.dtype})",
        f"for dy, dx in {offsets}:",
        f"    near = {near}",
        f"    weight = np.exp(-((near - {v.name}) ** 2) * {nice(2 / v.most**2):g})",
        "    {} += weight * near",
        f"    {norm} += weight",
        f"{{}} /= {norm}",
    ]
    return s.filled("steady", lines, v, exact=False)


def box(s: Sketch) -> Value:
    """A box filter as the difference of two places of a running sum."""
    v = s.some()
    axis = s.one("hw")
    n = s.one((3, 5, 7, 9, 15))
    dtype = "float64" if v.is_float else "int64"
    c = s.let("running", f"np.cumsum({v.name}, axis={v.axes.index(axis)}, dtype=np.{dtype})", v, dtype=dtype)
    shape = v.resized(**{axis: v.size(axis) - n})
    difference = f"{c.at(**{axis: f'{n}:'})} - {c.at(**{axis: f':-{n}'})}"
    if v.is_float:
        back = f"(({difference}) / {n}).astype(np.{v.dtype})" if v.dtype != dtype else f"({difference}) / {n}"
        return s.let("box", back, v, shape=shape, exact=False)
    return s.let("box", f"({difference}) // {n}", v, dtype=dtype, shape=shape)
