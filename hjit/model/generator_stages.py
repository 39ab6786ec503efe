"""The kinds of stages of random programs, a function each, and `KINDS`, the table of their weights.

The vocabulary is that of the generator of Adams 2019, section 5 (convolutions, pooling, activations, resampling, unary
and binary operations, all-to-all, scans, slices, histograms), and what NumPy image code does besides. A stage reads
values of the sketch, appends lines to it and returns its result; where no value suits, it raises `Unsuitable`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hjit.model.generator_local import (
    bilateral,
    blend,
    box,
    combined,
    convert,
    float_step,
    order_filter,
    padded,
    pointwise,
    separable,
    several,
    stencil,
    stencil_2d,
    stencil_ndimage,
    stencil_pad,
    summed,
)
from hjit.model.generator_sketch import SMALLEST, Sketch, Unsuitable, Value, limits, nice, span

WORK = 1.5e8  # multiplications of one stage at most


# -- resampling


def down(s: Sketch) -> Value:
    """Half the size, of one axis or both: every second pixel, the mean of blocks, or filtered first."""
    v = s.some(lambda v: min(v.size("h"), v.size("w")) > 2 * SMALLEST + 4 and max(v.scale) < 4)
    return halved(s, v)


def halved(s: Sketch, v: Value) -> Value:
    """`v` at half the size, in one of five ways."""
    how = s.weighted((("strided", 3), ("mean", 3), ("four", 2), ("filtered", 2), ("line", 2)))
    axis = s.one("hw")
    if how == "line":
        n = v.size(axis)
        return s.let("half", v.at(**{axis: "::2"}), v, shape=v.resized(**{axis: (n + 1) // 2}), scale=v.scaled(axis, 1))
    if how == "strided":
        shape = v.resized(h=(v.size("h") + 1) // 2, w=(v.size("w") + 1) // 2)
        return s.let("half", v.at(h="::2", w="::2"), v, shape=shape, scale=v.scaled("hw", 1))
    if how == "filtered":
        v = s.wide(v, 4)
        for axis in "hw":
            n = v.size(axis)
            taps = [(1, v.at(**{axis: ":-2:2"})), (2, v.at(**{axis: "1:-1:2"})), (1, v.at(**{axis: "2::2"}))]
            text, low, high, _ = summed(s, v, taps)
            v = s.let(
                "half", text, v, shape=v.resized(**{axis: (n - 1) // 2}), low=low, high=high, scale=v.scaled(axis, 1)
            )
        return v
    h, w = v.size("h") // 2, v.size("w") // 2
    if (v.size("h"), v.size("w")) != (2 * h, 2 * w):
        v = s.let(
            "even",
            v.at(h=f": {v.extent('h')} // 2 * 2", w=f": {v.extent('w')} // 2 * 2"),
            v,
            shape=v.resized(h=2 * h, w=2 * w),
        )
    if how == "four":
        v = s.wide(v, 4)
        taps = [(1, v.at(h=f"{y}::2", w=f"{x}::2")) for y in (0, 1) for x in (0, 1)]
        text, low, high, _ = summed(s, v, taps)
        return s.let("half", text, v, shape=v.resized(h=h, w=w), low=low, high=high, scale=v.scaled("hw", 1))
    v = s.floating(v)
    text, axes = _blocks(v, 2)
    return s.let(
        "half", f"{text}.mean(axis={axes})", v, shape=v.resized(h=h, w=w), scale=v.scaled("hw", 1), exact=False
    )


def _blocks(v: Value, n: int) -> tuple[str, tuple[int, ...]]:
    """The text of a reshape into blocks, and the axes inside them."""
    shape: list[str] = []
    inner: list[int] = []
    for axis in v.axes:
        shape.append(f"{v.extent(axis)} // {n}" if axis in "hw" else v.extent(axis))
        if axis in "hw":
            shape.append(str(n))
            inner.append(len(shape) - 1)
    return f"{v.name}.reshape({', '.join(shape)})", tuple(inner)


def up(s: Sketch) -> Value:
    """Twice the size: repeated, spread out with zeros between, by an index, or interpolated."""
    v = s.some(lambda v: max(v.scale) > 0 or (s.chance(0.3) and v.elements * 4 <= s.limit))
    return doubled(s, v, "".join(axis for k, axis in enumerate("hw") if v.scale[k] > 0) or "hw")


def doubled(s: Sketch, v: Value, axes: str) -> Value:
    """`v` at twice the size along `axes`, in one of four ways."""
    how = s.one(("repeat", "zeros", "linear", "linear", "index"))
    if how in ("linear", "zeros"):
        v = s.floating(v)
    for axis in axes:
        n = v.size(axis)
        k = v.axes.index(axis)
        changes = {"shape": v.resized(**{axis: 2 * n}), "scale": v.scaled(axis, -1)}
        size = ", ".join(f"2 * {v.extent(a)}" if a == axis else v.extent(a) for a in v.axes)
        cut = partial(_part, v, axis)
        if how == "repeat":
            v = s.let("double", f"np.repeat({v.name}, 2, axis={k})", v, **changes)
        elif how == "index":
            v = s.let("double", v.at(**{axis: f"np.arange(2 * {v.extent(axis)}) // 2"}), v, **changes)
        elif how == "zeros":
            lines = [f"{{}} = np.zeros(({size}), np.{v.dtype})", f"{cut('::2')} = {v.name}"]
            v = s.filled("double", lines, v, low=min(v.low, 0), high=max(v.high, 0), **changes)
        else:
            a, b, last = v.at(**{axis: ":-1"}), v.at(**{axis: "1:"}), v.at(**{axis: "-1"})
            lines = [
                f"{{}} = np.empty(({size}), np.{v.dtype})",
                f"{cut('::2')} = {v.name}",
                f"{cut('1:-1:2')} = ({a} + {b}) / 2",
                f"{cut('-1')} = {last}",
            ]
            v = s.filled("double", lines, v, **changes)
    return v


def _part(v: Value, axis: str, key: str) -> str:
    """A part along an axis of a new variable, ``{}``, whose axes are those of `v`."""
    return f"{{}}{v.at(**{axis: key})[len(v.name) :]}"


def pyramid(s: Sketch) -> Value:
    """Down, something on the coarse level, up again, and combined with the fine level."""
    v = s.floating(s.some(lambda v: min(v.size("h"), v.size("w")) > 2 * SMALLEST + 12))
    levels = [v]
    for _ in range(s.integer(1, 3)):
        if min(levels[-1].size("h"), levels[-1].size("w")) > 2 * SMALLEST + 12:
            levels.append(halved(s, levels[-1]))
    x = levels.pop()
    if s.chance(0.7):
        text, low, high, exact = float_step(s, x.name, x.low, x.high, x.exact)
        text, low, high = s.tamed(text, low, high)
        x = s.let("coarse", text, x, low=low, high=high, exact=exact)
    while levels:
        fine = levels.pop()
        x = doubled(s, x, "".join(axis for k, axis in enumerate("hw") if x.scale[k] > fine.scale[k]))
        x = combined(s, x, fine)
    return x


# -- reductions and scans


def reduction(s: Sketch) -> Value:
    """The sum, mean or extreme along an axis: a plane, a row, a column or one number."""
    v = s.some()
    axis = s.one([a for a in v.axes for _ in range(3 if a == "c" else 1)])
    if s.chance(0.15):
        how = s.one(("max", "min"))
        return s.let("peak", f"{v.name}.{how}()", v, axes="", shape=())
    k, n = v.axes.index(axis), v.size(axis)
    axes, shape = v.axes.replace(axis, ""), v.shape[:k] + v.shape[k + 1 :]
    how = s.one(("sum", "mean", "max", "min"))
    if how in ("max", "min"):
        return s.let("peak", f"np.{how}({v.name}, axis={k})", v, axes=axes, shape=shape)
    if how == "mean" or not v.is_float:
        v = s.floating(v)
        return s.let("mean", f"{v.name}.mean(axis={k})", v, axes=axes, shape=shape, exact=False)
    text, low, high = s.tamed(f"{v.name}.sum(axis={k})", v.low * n, v.high * n)
    return s.let("total", text, v, axes=axes, shape=shape, low=low, high=high, exact=False)


def integral(s: Sketch) -> Value:
    """The sum along an axis of whole numbers, which is exact."""
    v = s.some(lambda v: not v.is_float)
    axis = s.one(v.axes)
    k = v.axes.index(axis)
    shape = v.shape[:k] + v.shape[k + 1 :]
    text = f"{v.name}.sum(axis={k}, dtype=np.int64) // {v.extent(axis)}"
    return s.let("total", text, v, axes=v.axes.replace(axis, ""), shape=shape, dtype="int64")


def normalised(s: Sketch) -> Value:
    """An image less a mean of its own, or divided by a peak of its own."""
    v = s.floating(s.some())
    axis = s.one(v.axes)
    k = v.axes.index(axis)
    if s.chance(0.6):
        part = "" if v.exact else "0.5 * "
        text = f"{v.name} - {part}{v.name}.mean(axis={k}, keepdims=True)"
        return s.let("centred", text, v, low=min(v.low, v.low - v.high), high=max(v.high, v.high - v.low), exact=False)
    floor = nice(v.most / 8)
    text = f"{v.name} / (np.abs({v.name}).max(axis={k}, keepdims=True) + {floor:g})"
    return s.let("relative", text, v, low=-1, high=1)


def all_to_all(s: Sketch) -> Value:
    """An image of a column and a row: of its means, its peaks, or of coordinates."""
    v = s.floating(s.some(lambda v: len(v.axes) == 2))
    rows, columns = f"{v.axes[0]}s", f"{v.axes[1]}s"
    if s.chance(0.5):
        a = s.temporary(rows, f"np.arange({v.name}.shape[0], dtype=np.{v.dtype}) / {v.name}.shape[0]")
        b = s.temporary(columns, f"np.arange({v.name}.shape[1], dtype=np.{v.dtype}) / {v.name}.shape[1]")
        factors = (
            f"* ({a}[:, None] + {b}[None, :]) / 2",
            f"* ({a}[:, None] * {b})",
            f"/ (1 + {a}[:, None] ** 2 + {b} ** 2)",
        )
        return s.let("shaded", f"{v.name} {s.one(factors)}", v, low=min(v.low, 0), high=max(v.high, 0))
    how = s.one(("mean", "max"))
    a, b = s.temporary(rows, f"{v.name}.{how}(axis=1)"), s.temporary(columns, f"{v.name}.{how}(axis=0)")
    both = s.one(
        (f"0.5 * ({a}[:, None] + {b}[None, :])", f"np.maximum({a}[:, None], {b})", f"np.add.outer({a}, {b}) / 2")
    )
    return s.let(
        "flat", f"{v.name} - {both}", v, low=v.low - v.high, high=v.high - v.low, exact=v.exact and how == "max"
    )


def scan(s: Sketch) -> Value:
    """A running sum or extreme along an axis, forwards or backwards."""
    v = s.some()
    axis = s.one("hw")
    k, n = v.axes.index(axis), v.size(axis)
    back = v.at(**{axis: "::-1"}) if s.chance(0.3) else v.name
    how = s.one(("cumsum", "cumsum", "maximum", "minimum"))
    if how != "cumsum":
        return s.let("running", f"np.{how}.accumulate({back}, axis={k})", v)
    if v.is_float:
        return s.let(
            "running", f"np.cumsum({back}, axis={k}) / {n}", v, low=min(v.low, 0), high=max(v.high, 0), exact=False
        )
    low, high = min(v.low, 0), max(v.high, 0)
    return s.let(
        "running", f"np.cumsum({back}, axis={k}, dtype=np.int64) // {n}", v, dtype="int64", low=low - 1, high=high
    )


# -- histograms and gathers


def histogram(s: Sketch) -> Value:
    """Equalisation: the histogram of bytes, its running sum as a look-up table, and the gather."""
    v = s.bytes_of(s.some(lambda v: v.exact))
    if s.chance(0.6):
        counts = s.temporary("hist", f"np.bincount({v.name}.ravel(), minlength=256)")
    else:
        counts = s.temporary("hist", "np.zeros(256, np.int64)")
        s.line(f"np.add.at({counts}, {v.name}, 1)")
    if s.chance(0.25):
        kept = s.temporary("dens", f"{counts} / {counts}.sum()")
        return s.let("level", f"1 - {kept}[{v.name}]", v, dtype="float64", low=0, high=1)
    running = s.temporary("cdf", f"np.cumsum({counts})")
    dtype = s.one(("uint8", "float32"))
    share = f"{running} * 255 // {running}[-1]" if dtype == "uint8" else f"{running} / {running}[-1]"
    lut = s.temporary("lut", f"({share}).astype(np.{dtype})")
    return s.let("level", f"{lut}[{v.name}]", v, dtype=dtype, low=0, high=255 if dtype == "uint8" else 1)


def lookup(s: Sketch) -> Value:
    """A look-up table of bytes: a formula, or an argument."""
    v = s.bytes_of(s.some(lambda v: v.exact))
    dtype = s.one(("uint8", "uint16", "float32"))
    high = {"uint8": 255, "uint16": 4095, "float32": 1}[dtype]
    if s.chance(0.4):
        lut = s.parameter("lut", (256,), dtype, 0, high).name
    else:
        curve = f"(np.arange(256) / 255) ** {s.one((0.4545, 0.5, 1.5, 2.2)):g}"
        lut = s.temporary(
            "lut", f"({high} * {curve}).astype(np.{dtype})" if high > 1 else f"({curve}).astype(np.float32)"
        )
    read = f"{lut}[{v.name}]" if s.chance(0.7) else f"np.take({lut}, {v.name})"
    return s.let("toned", read, v, dtype=dtype, low=0, high=high)


def move(s: Sketch) -> Value:
    """The pixels elsewhere: rolled, mirrored, or gathered by rows and columns that are known."""
    v = s.some()
    axis = s.one("hw")
    k = v.axes.index(axis)
    how = s.one(("roll", "mirror", "gather"))
    if how == "roll":
        return s.let("moved", f"np.roll({v.name}, {s.one((-3, -1, 1, 2, 8))}, axis={k})", v)
    if how == "mirror":
        return s.let("moved", v.at(**{axis: "::-1"}), v)
    n = v.extent(axis)
    index = s.temporary("index", f"np.clip(np.arange({n}) + {s.one((-5, -2, 3, 7))}, 0, {n} - 1)")
    return s.let("moved", v.at(**{axis: index}), v)


# -- channels: linear algebra and layers


def channelled(s: Sketch) -> Value:
    """Floats with channels, made of several planes where there are none."""
    if s.suiting(lambda v: v.is_image and v.size("c") >= 2):
        return s.floating(s.some(lambda v: v.size("c") >= 2))
    return s.floating(stack(s))


def channel_mix(s: Sketch) -> Value:
    """Every channel a weighted sum of all channels: einsum, matmul, tensordot, or written out."""
    v = channelled(s)
    c, o = v.size("c"), s.one((1, 2, 3, 3, 4, 8))
    if v.elements * o > WORK:
        raise Unsuitable
    m = v.most
    if c <= 4 and o <= 4 and s.chance(0.6):
        rows = [[s.number(-0.3, 1) for _ in range(c)] for _ in range(o)]
        weights = s.temporary("matrix", f"np.array({rows}, np.{v.dtype})")
        bound = m * c
    else:
        weights = s.parameter("weights", (o, c), v.dtype, nice(-1.5 / c), nice(1.5 / c)).name
        bound = m * 1.6
    last = v.axes[-1] == "c"
    spatial = v.axes.replace("c", "")
    einsum = f'np.einsum("oc,{v.axes}->{v.axes.replace("c", "o")}", {weights}, {v.name})'
    sizes = f"{o}, {v.extent(spatial[0])}, {v.extent(spatial[1])}"
    flat = f"({weights} @ {v.name}.reshape({v.extent('c')}, -1)).reshape({sizes})"
    text = s.one(
        (
            einsum,
            f"{v.name} @ {weights}.T" if last else flat,
            einsum if last else f"np.tensordot({weights}, {v.name}, axes=1)",
        )
    )
    text, low, high = s.tamed(text, -bound, bound)
    return s.let("mixed", text, v, shape=v.resized(c=o), low=low, high=high, exact=False)


def conv_layer(s: Sketch) -> Value:
    """A convolution over channels, with a bias and an activation."""
    v = channelled(s)
    c, o, n = v.size("c"), s.one((2, 4, 8, 8, 16, 24)), s.one((1, 3, 3))
    if v.elements * o * n * n > WORK:
        raise Unsuitable
    last = v.axes[-1] == "c"
    bound = nice(3 / (c * n * n))
    shape = (n, n, c, o) if last else (o, c, n, n)
    weights = s.parameter("weights", shape, v.dtype, -bound, bound).name
    bias = s.parameter("bias", (o,), v.dtype, -0.1, 0.1).name
    p = padded(s, v, dict.fromkeys("hw", n // 2), dict.fromkeys("hw", n // 2), "constant") if n > 1 else v
    window = p.at(h=f"dy : dy + {v.extent('h')}", w=f"dx : dx + {v.extent('w')}")
    size = ", ".join(str(o) if axis == "c" else v.extent(axis) for axis in v.axes)
    spatial = v.axes.replace("c", "")
    taps = f"{weights}[dy, dx]" if last else f"{weights}[:, :, dy, dx]"
    product = f"{window} @ {taps}" if last else f'np.einsum("oc,{v.axes}->o{spatial}", {taps}, {window})'
    loop = [
        f"{{}} = np.zeros(({size}), np.{v.dtype})",
        f"for dy in range({n}):",
        f"    for dx in range({n}):",
        f"        {{}} += {product}",
    ]
    axes = tuple(v.axes.index(axis) for axis in spatial)
    view = f"np.lib.stride_tricks.sliding_window_view({p.name}, ({n}, {n}), axis={axes})"
    first, second, over = (view, weights, "(2, 3, 4), (2, 0, 1)") if last else (weights, view, "(1, 2, 3), (0, 3, 4)")
    whole = f"np.tensordot({first}, {second}, axes=({over}))"
    high = 3.1 * p.most
    made = {"shape": v.resized(c=o), "low": -high, "high": high, "exact": False}
    conv = s.filled("conv", loop if s.chance(0.6) else [f"{{}} = {whole}"], v, **made)
    text = f"np.maximum({conv.name} + {bias if last else f'{bias}[:, None, None]'}, 0)"
    text, low, high = s.tamed(text, 0, high + 0.1)
    return s.let("layer", text, conv, low=low, high=high)


def depthwise(s: Sketch) -> Value:
    """A stencil whose weights are those of the channel."""
    v = channelled(s)
    c = v.size("c")
    last = v.axes[-1] == "c"
    weights = s.parameter("taps", (3, c), v.dtype, -0.5, 0.5).name
    axis = s.one("hw")
    rest = "" if last else ", :, None, None"
    text = " + ".join(f"{v.at(**{axis: span(k, 2 - k)})} * {weights}[{k}{rest}]" for k in range(3))
    text, low, high = s.tamed(text, -1.5 * v.most, 1.5 * v.most)
    return s.let("depth", text, v, shape=v.resized(**{axis: v.size(axis) - 2}), low=low, high=high)


def pool(s: Sketch) -> Value:
    """The maximum or mean of blocks."""
    v = s.some(lambda v: min(v.size("h"), v.size("w")) > 2 * SMALLEST + 4 and max(v.scale) < 3)
    how = s.one(("max", "max", "mean", "min"))
    v = s.floating(v) if how == "mean" else v
    h, w = v.size("h") // 2, v.size("w") // 2
    even = s.let(
        "even",
        v.at(h=f": {v.extent('h')} // 2 * 2", w=f": {v.extent('w')} // 2 * 2"),
        v,
        shape=v.resized(h=2 * h, w=2 * w),
    )
    text, axes = _blocks(even, 2)
    return s.let(
        "pooled",
        f"{text}.{how}(axis={axes})",
        v,
        shape=v.resized(h=h, w=w),
        scale=v.scaled("hw", 1),
        exact=v.exact and how != "mean",
    )


# -- shapes and assembly


def transpose(s: Sketch) -> Value:
    """The axes in another order: rows for columns, planar for interleaved."""
    v = s.some()
    order = (
        v.axes[::-1] if len(v.axes) == 2 else v.axes[1:] + v.axes[0] if v.axes[0] == "c" else v.axes[-1] + v.axes[:-1]
    )
    v = s.transposed(v, order)
    return s.let("laid", f"np.ascontiguousarray({v.name})", v) if s.chance(0.3) else v


def crop(s: Sketch) -> Value:
    """A part: one channel, or without a border."""
    v = s.some()
    if v.size("c") > 1 and s.chance(0.6):
        shape = tuple(n for axis, n in zip(v.axes, v.shape, strict=True) if axis != "c")
        return s.let("plane", v.at(c=str(s.integer(0, v.size("c") - 1))), v, axes=v.axes.replace("c", ""), shape=shape)
    a, b = s.integer(1, 4), s.integer(1, 4)
    return s.let(
        "inner", v.at(h=span(a, a), w=span(b, b)), v, shape=v.resized(h=v.size("h") - 2 * a, w=v.size("w") - 2 * b)
    )


def planes(s: Sketch, n: int) -> list[Value]:
    """Images without channels, of the same units, size and dtype."""
    found = [s.some(lambda v: len(v.axes) == 2)]
    for _ in range(n - 1):
        others = s.suiting(lambda v: v.is_image and len(v.axes) == 2 and v not in found)
        found.append(s.one(others or found))
    if len({v.dtype for v in found}) > 1:
        found = [s.floating(v) for v in found]
    like, *others = found
    for k, v in enumerate(others):
        others[k], like = s.matched(v, like)
    return [like, *(s.cropped(v, like) for v in others)]


def stack(s: Sketch) -> Value:
    """Planes as the channels of one image."""
    found = planes(s, s.integer(2, 4))
    like = found[0]
    for v in found[1:]:
        like = s.joined(v, like, low=min(v.low, like.low), high=max(v.high, like.high))
    names = ", ".join(v.name for v in found)
    if s.chance(0.5):
        return s.let("planes", f"np.stack([{names}])", like, axes=f"c{like.axes}", shape=(len(found), *like.shape))
    return s.let("pixels", f"np.stack([{names}], axis=-1)", like, axes=f"{like.axes}c", shape=(*like.shape, len(found)))


def concatenate(s: Sketch) -> Value:
    """Channels of two images, or an image joined with its mirror image."""
    if len(s.suiting(lambda v: v.is_image and "c" in v.axes)) < 2:
        v = s.some(lambda v: 2 * v.elements <= s.limit)
        axis = s.one("hw")
        text = f"np.concatenate([{v.name}, {v.at(**{axis: '::-1'})}], axis={v.axes.index(axis)})"
        return s.let("joined", text, v, shape=v.resized(**{axis: 2 * v.size(axis)}))
    b = s.some(lambda v: "c" in v.axes)
    a = s.some(lambda v: "c" in v.axes and v.name != b.name and v.size("c") == b.size("c"))
    if a.is_float != b.is_float:
        a, b = s.floating(a), s.floating(b)
    a, b = s.matched(a, b)
    both = s.joined(a, b, low=min(a.low, b.low), high=max(a.high, b.high))
    text = f"np.concatenate([{a.name}, {b.name}], axis={b.axes.index('c')})"
    return s.let("joined", text, both, shape=both.resized(c=a.size("c") + b.size("c")))


def conditional(s: Sketch) -> Value:
    """A copy into which another image is written where a condition holds."""
    like = s.some()
    v = s.some(lambda v: v.axes == like.axes and v.size("c") == like.size("c"))
    mask = s.some(
        lambda v: v.exact and v.scale == like.scale and (v.axes == like.axes and v.size("c") == like.size("c"))
    )
    if len({v.is_float, like.is_float}) > 1:
        v, like = s.floating(v), s.floating(like)
    v, like = s.matched(v, like)
    mask, like = s.matched(mask, like)
    v, like = s.matched(v, like)
    t = (mask.low + mask.high) / 2
    where = s.temporary("mask", f"{mask.name} {s.one('<>')} {nice(t) if mask.is_float else int(t):g}")
    source = f"{v.name}.astype(np.{like.dtype})" if v.dtype != like.dtype else v.name
    lines = [
        "{} = " + like.name + ".copy()",
        s.one((f"{{}}[{where}] = {source}[{where}]", f"np.copyto({{}}, {source}, where={where})")),
    ]
    low, high = (
        (min(v.low, like.low), max(v.high, like.high)) if v.dtype == like.dtype or like.is_float else limits(like.dtype)
    )
    return s.filled("patched", lines, like, low=low, high=high, exact=v.exact and like.exact)


def piecewise(s: Sketch) -> Value:
    """An image written in parts: every second row by another formula, or the border apart."""
    v = s.floating(s.some())
    t = nice(v.most / 2)
    axis = s.one("hw")
    cut = partial(_part, v, axis)

    def at(key: str) -> str:
        return v.at(**{axis: key})

    new = f"{{}} = np.empty_like({v.name})"
    choices = (
        [new, f"{cut('0::2')} = {at('0::2')} * 0.5", f"{cut('1::2')} = {at('1::2')} - {t:g}"],
        [
            new,
            f"{cut('1:-1')} = ({at(':-2')} + {at('2:')}) / 2",
            f"{cut('0')} = {at('0')}",
            f"{cut('-1')} = {at('-1')}",
        ],
        [f"{{}} = {v.name}.copy()", f"{cut('1::2')} = np.minimum({at('1::2')}, {t:g})"],
        [f"{{}} = {v.name}.copy()", f"{cut('1:')} += {at(':-1')}", "{} *= 0.5"],
        [f"{{}} = {v.name}.copy()", f"{cut(':2')} = 0", f"{cut('-2:')} = 0"],
    )
    return s.filled("woven", s.one(choices), v, low=v.low - t, high=max(v.high, 0))


KINDS: tuple[tuple[str, Callable[[Sketch], Value], float], ...] = (
    ("pointwise", pointwise, 18),
    ("blend", blend, 12),
    ("several", several, 5),
    ("convert", convert, 4),
    ("stencil", stencil, 6),
    ("stencil_2d", stencil_2d, 6),
    ("stencil_pad", stencil_pad, 6),
    ("separable", separable, 6),
    ("stencil_ndimage", stencil_ndimage, 4),
    ("order_filter", order_filter, 2),
    ("bilateral", bilateral, 1),
    ("box", box, 2),
    ("down", down, 5),
    ("up", up, 4),
    ("pyramid", pyramid, 3),
    ("reduction", reduction, 3),
    ("integral", integral, 1),
    ("normalised", normalised, 2),
    ("all_to_all", all_to_all, 2),
    ("scan", scan, 2),
    ("histogram", histogram, 1.5),
    ("lookup", lookup, 3),
    ("move", move, 2),
    ("channel_mix", channel_mix, 3),
    ("conv_layer", conv_layer, 3),
    ("depthwise", depthwise, 1.5),
    ("pool", pool, 3),
    ("transpose", transpose, 2),
    ("crop", crop, 2),
    ("stack", stack, 2),
    ("concatenate", concatenate, 1.5),
    ("conditional", conditional, 2),
    ("piecewise", piecewise, 2.5),
)
"""Name, function and weight of each kind of stage."""
