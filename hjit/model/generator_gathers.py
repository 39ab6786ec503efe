"""Random stages like those of large applications: gathers, and arrays of other shapes than the image's.

They have warps and look-ups with up to 32 gathers, scatters into grids, four-dimensional volumes, blocks, mosaics,
matrix products, and arguments of other sizes than the image's. Values that determine an index are exact.
"""

from __future__ import annotations

from hjit.model.generator_local import padded
from hjit.model.generator_sketch import SMALLEST, Sketch, Unsuitable, Value, nice
from hjit.model.generator_windows import once

PRODUCT = 1.2e9  # multiplications of one product of matrices at most
# the weights of a cubic B-spline: positive, and together one
CUBIC = (
    "(1 - {f}) * (1 - {f}) * (1 - {f}) / 6",
    "(3 * {f} * {f} * {f} - 6 * {f} * {f} + 4) / 6",
    "(-3 * {f} * {f} * {f} + 3 * {f} * {f} + 3 * {f} + 1) / 6",
    "{f} * {f} * {f} / 6",
)


# -- gathers


def _position(s: Sketch, v: Value, k: int, column: str, row: str) -> tuple[str, str, str]:
    """Where along its spatial axis number `k` a warp reads: the text of the size, and names of the index and of the
    fraction behind it, [rows, columns] or less."""
    axis = v.axes.replace("c", "")[k]
    size = v.extent(axis)
    own, other = (row, column) if k == 0 else (column, row)
    shift = f"{s.number(0.8, 1.1):g} * {own} + {s.number(-0.1, 0.1):g} * {other} + {s.number(-3, 3):g}"
    if s.chance(0.3):
        shift = f"{s.number(0.8, 1.1):g} * {own} + {s.number(-3, 3):g}"
    at = s.temporary("at", f"np.clip({shift}, 0, {size} - 1)")
    index = s.temporary("index", f"np.minimum({at}.astype(np.int32), {size} - 2)")
    return size, index, s.temporary("part", f"{at} - {index}.astype(np.float32)")


def warp(s: Sketch) -> Value:
    """A geometric transform, interpolated linearly (4 gathers) or by cubic splines (16)."""
    v = s.floating(s.some(lambda v: len(v.axes) == 2 or "c" in (v.axes[:1], v.axes[-1:])))
    spatial = v.axes.replace("c", "")
    row = s.temporary("rows", f"np.arange({v.extent(spatial[0])}, dtype=np.float32)[:, None]")
    column = s.temporary("columns", f"np.arange({v.extent(spatial[1])}, dtype=np.float32)")
    height, y, fy = _position(s, v, 0, column, row)
    width, x, fx = _position(s, v, 1, column, row)
    lead, tail = (":, ", "") if v.axes[0] == "c" else ("", "[..., None]" if v.axes[-1] == "c" else "")
    fy, fx = (f"np.broadcast_to({f}, ({height}, {width})){tail}" if tail else f for f in (fy, fx))
    if s.chance(0.6):
        a, b, c, d = (f"{v.name}[{lead}{y}{i}, {x}{j}]" for i in ("", " + 1") for j in ("", " + 1"))
        top, bottom = f"{a} * (1 - {fx}) + {b} * {fx}", f"{c} * (1 - {fx}) + {d} * {fx}"
        return s.let("warped", f"({top}) * (1 - {fy}) + ({bottom}) * {fy}", v)
    wy = s.temporary("along", f"[{', '.join(x.format(f=fy) for x in CUBIC)}]")
    wx = s.temporary("across", f"[{', '.join(x.format(f=fx) for x in CUBIC)}]")
    read = f"{v.name}[{lead}np.clip({y} + dy - 1, 0, {height} - 1), np.clip({x} + dx - 1, 0, {width} - 1)]"
    lines = [
        f"{{}} = np.zeros_like({v.name})",
        "for dy in range(4):",
        "    for dx in range(4):",
        f"        {{}} += {wy}[dy] * {wx}[dx] * {read}",
    ]
    return s.filled("warped", lines, v)


def look_ups(s: Sketch) -> Value:
    """A sum of three to eight look-up tables of one pixel, or a table of rows and columns by two images."""
    v = s.bytes_of(s.some(lambda v: v.exact))
    if s.chance(0.4):
        other = s.bytes_of(s.some(lambda u: u.exact and u.axes == v.axes and u.size("c") == v.size("c")))
        other, v = s.matched(other, v)
        table = s.parameter("table", (64, 64), "float32", 0, 1).name
        return s.let("toned", f"{table}[{other.name} >> 2, {v.name} >> 2]", v, dtype="float32", low=0, high=1)
    n = s.integer(3, 8)
    tables = s.parameter("tables", (n, 256), "float32", 0, 1).name
    text = " + ".join(f"{tables}[{k}, {v.name if k % 2 else f'255 - {v.name}'}]" for k in range(n))
    return s.let("toned", text, v, dtype="float32", low=0, high=n)


def joint_histogram(s: Sketch) -> Value:
    """How often each pair of brightnesses occurs, and each pixel's own count; or weighted counts."""
    v = s.bytes_of(s.some(lambda v: v.exact))
    if s.chance(0.4):
        sums = s.temporary("sums", f"np.bincount({v.name}.ravel(), {v.name}.ravel() * 0.5, minlength=256)")
        return s.let("level", f"{sums}[{v.name}] / {sums}.sum()", v, dtype="float64", low=0, high=1.001, exact=False)
    other = s.bytes_of(s.some(lambda u: u.exact and u.axes == v.axes and u.size("c") == v.size("c")))
    other, v = s.matched(other, v)
    counts = s.temporary("counts", "np.zeros((32, 32), np.int64)")
    s.line(f"np.add.at({counts}, ({v.name} >> 3, {other.name} >> 3), 1)")
    text = f"{counts}[{v.name} >> 3, {other.name} >> 3] / {counts}.max()"
    return s.let("level", text, v, dtype="float64", low=0, high=1)


def grid(s: Sketch) -> Value:
    """A bilateral grid: sums by place and brightness, blurred along all axes, and read by 8 gathers a channel."""
    once(s, "grid")
    v = s.floating(s.some(lambda v: v.axes == "hw" and v.exact))
    bins, cell, channels = s.one((6, 8, 10)), s.one((8, 16)), s.one((2, 2, 4))
    scale = nice(bins / max(v.high - v.low, 1e-3))
    bins += 2  # `nice` may round up
    at = s.temporary("at", f"({v.name} - {nice(v.low):g}) * {scale:g} + 0.5")
    z = s.temporary("bin", f"np.clip({at}.astype(np.int32), 0, {bins - 1})")
    row = s.temporary("rows", f"np.arange({v.extent('h')})[:, None]")
    column = s.temporary("columns", f"np.arange({v.extent('w')})")
    cells = f"({v.extent('h')} - 1) // {cell} + 2, ({v.extent('w')} - 1) // {cell} + 2"
    g = s.temporary("grid", f"np.zeros(({channels}, {bins + 1}, {cells}), np.float32)")
    place = f"{z}, {row} // {cell}, {column} // {cell}"
    summed = [v.name, "np.float32(1.0)", f"{v.name} * {v.name}", f"np.abs({v.name})"][:channels]
    for k, text in enumerate(summed):
        s.line(f"np.add.at({g}[{k}], ({place}), {text})")
    p = s.temporary("p", f'np.pad({g}, ((0, 0), (1, 1), (1, 1), (1, 1)), mode="edge")')
    for axis in (1, 2, 3):
        lead = ":, " * axis
        p = s.temporary("blurred", f"{p}[{lead}:-2] + 2 * {p}[{lead}1:-1] + {p}[{lead}2:]")
    exactly = s.temporary("position", f"np.clip(({v.name} - {nice(v.low):g}) * {scale:g}, 0, {bins - 1})")
    zi = s.temporary("level", f"{exactly}.astype(np.int32)")
    zf = s.temporary("part", f"{exactly} - {zi}.astype(np.float32)")
    yf = s.temporary("along", f"({row} % {cell}).astype(np.float32) / {cell}")
    xf = s.temporary("across", f"({column} % {cell}).astype(np.float32) / {cell}")

    def corner(dz: int) -> str:
        read = [
            [f"{p}[:, {zi} + {dz}, {row} // {cell} + {dy}, {column} // {cell} + {dx}]" for dx in (0, 1)]
            for dy in (0, 1)
        ]
        lines = [f"({a} * (1 - {xf}) + {b} * {xf})" for a, b in read]
        return f"({lines[0]} * (1 - {yf}) + {lines[1]} * {yf})"

    sliced = s.temporary("sliced", f"{corner(0)} * (1 - {zf}) + {corner(1)} * {zf}")
    low, high = min(v.low, 0), max(v.high, 0)
    text = f"{sliced}[0] / ({sliced}[1] + 0.001)"
    if channels == 4:
        text = f"{text} + np.minimum(({sliced}[2] + {sliced}[3]) * 0.001, 1)"
        high += 1
    return s.let("sliced", text, v, low=low, high=high, exact=False)


# -- arrays of four dimensions


def volume(s: Sketch) -> Value:
    """Differences of two images at several shifts, stacked, smoothed, and reduced to the best or to a mean."""
    once(s, "volume")
    a = s.floating(s.some())
    b = s.floating(s.some(lambda u: u.axes == a.axes and u.size("c") == a.size("c")))
    b, a = s.matched(b, a)
    b = s.cropped(b, a)
    both = s.joined(b, a)
    n = s.one((4, 8, 16, 32))
    if n * a.elements > 4 * s.limit:
        raise Unsuitable
    axis = s.one("hw")
    p = padded(s, b, {}, {axis: n}, "edge")
    read = p.at(**{axis: f"k : k + {a.extent(axis)}"})
    stacked = s.temporary("volume", f"np.stack([np.abs({a.name} - {read}) for k in range({n})])")
    most = a.most + p.most
    if s.chance(0.6):
        k = 1 + a.axes.index(axis)
        lead = ":, " * k
        widths = ", ".join("(1, 1)" if j == k else "(0, 0)" for j in range(1 + len(a.axes)))
        q = s.temporary("q", f'np.pad({stacked}, ({widths}), mode="edge")')
        stacked = s.temporary("cost", f"({q}[{lead}:-2] + 2 * {q}[{lead}1:-1] + {q}[{lead}2:]) / 4")
    how = s.one(("min", "max", "mean", "soft", "argmin"))
    if how == "argmin" and both.exact:
        text = f"{stacked}.argmin(axis=0).astype(np.float32)"
        return s.let("depth", text, both, dtype="float32", low=0, high=n, exact=True)
    if how == "soft":
        weights = s.temporary("weights", f"np.exp(-{stacked} / {nice(most):g})")
        text = f"({stacked} * {weights}).sum(axis=0) / {weights}.sum(axis=0)"
        return s.let("matched", text, both, low=0, high=most, exact=False)
    how = "min" if how == "argmin" else how
    text = f"{stacked}.{how}(axis=0)"
    return s.let("matched", text, both, low=0, high=most, exact=both.exact and how != "mean")


def batch_layer(s: Sketch) -> Value:
    """A convolution of a batch of feature maps, arguments of another size than the image, and a maximum over it."""
    once(s, "batch")
    base = s.limit
    side = max(20, min(104, int(base**0.28)))
    c = max(4, min(128, int((base / 8) ** 0.35)))
    n, last = s.one((2, 5, 12)), s.chance(0.6)
    side, c = (side, c) if n < 12 else (max(20, side // 2), max(4, c // 2))
    shape = (n, side, side, c) if last else (n, c, side, side)
    maps = s.parameter("batch", shape, "float32", 0, 1).name
    bound = nice(3 / (9 * c))
    weights = s.parameter("weights", (3, 3, c, c), "float32", -bound, bound).name
    out = s.fresh("sums")
    if last:
        size = f"{maps}.shape[1] - 2, {maps}.shape[2] - 2"
        new = f"{out} = np.zeros(({maps}.shape[0], {size}, {weights}.shape[3]), np.float32)"
        window = f"{maps}[:, dy : dy + {out}.shape[1], dx : dx + {out}.shape[2]]"
        step, axes = f"{out} += {window} @ {weights}[dy, dx]", "hwc"
        made = (side - 2, side - 2, c)
    else:
        size = f"{maps}.shape[2] - 2, {maps}.shape[3] - 2"
        new = f"{out} = np.zeros(({maps}.shape[0], {weights}.shape[3], {size}), np.float32)"
        window = f"{maps}[:, :, dy : dy + {out}.shape[2], dx : dx + {out}.shape[3]]"
        step, axes = f'{out} += np.einsum("nchw,co->nohw", {window}, {weights}[dy, dx])', "chw"
        made = (c, side - 2, side - 2)
    lines = [new, "for dy in range(3):", "    for dx in range(3):", f"        {step}"]
    for text in lines:
        s.line(text)
    like = Value(out, axes, made, "float32", -3.1, 3.1, exact=False)
    if last and s.chance(0.6):  # one below the other
        sizes = n * (side - 2), side - 2, c
        bias = s.parameter("bias", (c,), "float32", -0.1, 0.1).name
        text = f"np.concatenate(list(np.maximum({out} + {bias}, 0)))"
        return s.let("layer", text, like, shape=sizes, low=0, high=3.3)
    how = s.one(("max", "max", "min"))
    return s.let("layer", f"np.maximum({out}.{how}(axis=0), 0)", like, low=0, high=3.1)


def strips(s: Sketch) -> Value:
    """Several products of every 32nd to 128th column, interpolated along rows, and read again by all columns."""
    v = s.floating(s.some(lambda v: len(v.axes) == 2))
    n, k, cell = s.integer(2, 8), s.one((32, 64, 128)), s.one((2, 8, 16))
    part = v.at(**{v.axes[1]: f"::{k}"})
    stacked = s.temporary("strips", f"np.stack([{part} * (k + 1) for k in range({n})])")
    row = s.temporary("rows", f"np.arange({v.extent(v.axes[0])})")
    part = s.temporary("part", f"(({row} % {cell}).astype(np.float32) / {cell})[:, None]")
    near, far = (f"{stacked}[:, {x}]" for x in (f"{row} // {cell}", f"np.minimum({row} // {cell} + 1, {row}[-1])"))
    table = s.temporary("table", f"{near} * (1 - {part}) + {far} * {part}")
    column = s.temporary("columns", f"np.arange({v.extent(v.axes[1])}) // {k}")
    text = " + ".join(f"{table}[{j}, {row}[:, None], {column}]" for j in range(n))
    by = n * (n + 1) // 2
    dtype = "float64" if v.dtype == "float64" else "float32"
    return s.let("spread", f"({text}) / {by}", v, dtype=dtype)


def blocks(s: Sketch) -> Value:
    """A transform of blocks of 8 x 8 pixels, by products of small matrices, and back: reshapes to four dimensions."""
    v = s.floating(s.some(lambda v: len(v.axes) == 2))
    n = 8
    basis = s.temporary("basis", f"np.cos((2 * np.arange({n}) + 1) * np.arange({n})[:, None] * np.pi / {2 * n})")
    scale = s.temporary("scale", f"np.sqrt(np.where(np.arange({n}) == 0, 1, 2) / {n})[:, None]")
    matrix = s.temporary("matrix", f"({basis} * {scale}).astype(np.{v.dtype})")
    h, w = (f"{v.extent(a)} // {n}" for a in v.axes)
    sizes = tuple(x // n * n for x in v.shape)
    cut = v.at(**{a: f": {v.extent(a)} // {n} * {n}" for a in v.axes})
    tiles = s.temporary("tiles", f"{cut}.reshape({h}, {n}, {w}, {n}).transpose(0, 2, 1, 3)")
    found = s.temporary("spectrum", f"{matrix} @ {tiles} @ {matrix}.T")
    t = nice(v.most / 4)
    kept = s.temporary("kept", f"np.sign({found}) * np.maximum(np.abs({found}) - {t:g}, 0)")
    back = s.temporary("back", f"{matrix}.T @ {kept} @ {matrix}")
    text = f"{back}.transpose(0, 2, 1, 3).reshape({h} * {n}, {w} * {n})"
    text, low, high = s.tamed(text, -8.1 * v.most, 8.1 * v.most)
    return s.let("cleaned", text, v, shape=sizes, low=low, high=high, exact=False)


def flat(s: Sketch) -> Value:
    """The pixels as one row: standardised, differences, or running means along all of them."""
    v = s.floating(s.some())
    row = s.temporary("row", f"{v.name}.reshape(-1)")
    how = s.one(("standard", "difference", "mean"))
    if how == "difference" and v.exact:
        text = f"np.concatenate([{row}[:1], {row}[1:] - {row}[:-1]])"
        most = v.high - v.low
        return s.let("edges", f"{text}.reshape({v.name}.shape)", v, low=min(v.low, -most), high=max(v.high, most))
    if how == "standard":
        text = f"(({row} - {row}.mean()) / ({row}.std() + {nice(v.most):g})).reshape({v.name}.shape)"
        most = 2.1
        return s.let("standard", text, v, low=-most, high=most, exact=False)
    text = f"(np.cumsum({row}) / np.arange(1, {row}.size + 1)).reshape({v.name}.shape).astype(np.{v.dtype})"
    return s.let("averaged", text, v, exact=False)


# -- mosaics, products, arguments of other sizes


def mosaic(s: Sketch) -> Value:
    """The four phases of a Bayer mosaic interpolated, and interleaved to an image of three channels."""
    v = s.some(lambda v: len(v.axes) == 2 and 3 * v.elements <= s.limit)
    v = s.wide(v, 4)
    a, b = v.axes[0], v.axes[1]
    if min(v.shape) < SMALLEST + 5:
        raise Unsuitable
    even = v.at(**{x: f": {v.extent(x)} // 2 * 2" for x in v.axes})
    q = s.temporary("raw", f'np.pad({even}, 2, mode="{s.one(("reflect", "symmetric"))}")')
    # with one more on each side
    phases = {(y, x): s.temporary("phase", f"{q}[{y}::2, {x}::2]") for y in (0, 1) for x in (0, 1)}
    centre = {k: f"{name}[1:-1, 1:-1]" for k, name in phases.items()}
    over = "/ {n}" if v.is_float else "// {n}"

    def mean(*texts: str) -> str:
        return f"({' + '.join(texts)}) {over.format(n=len(texts))}"

    def at(key: tuple[int, int], dy: int, dx: int) -> str:
        cuts = (f"{1 + d}:{-1 + d or ''}" for d in (dy, dx))
        return f"{phases[key]}[{', '.join(cuts)}]"

    green = (0, 1), (1, 0)
    red, blue = (0, 0), (1, 1)
    planes: list[dict[tuple[int, int], str]] = [
        {
            red: centre[red],
            green[0]: mean(at(red, 0, 0), at(red, 0, 1)),
            green[1]: mean(at(red, 0, 0), at(red, 1, 0)),
            blue: mean(at(red, 0, 0), at(red, 0, 1), at(red, 1, 0), at(red, 1, 1)),
        },
        {
            red: mean(at(green[0], 0, 0), at(green[0], 0, -1), at(green[1], 0, 0), at(green[1], -1, 0)),
            green[0]: centre[green[0]],
            green[1]: centre[green[1]],
            blue: mean(at(green[0], 0, 0), at(green[0], 1, 0), at(green[1], 0, 0), at(green[1], 0, 1)),
        },
        {
            blue: centre[blue],
            green[0]: mean(at(blue, 0, 0), at(blue, -1, 0)),
            green[1]: mean(at(blue, 0, 0), at(blue, 0, -1)),
            red: mean(at(blue, 0, 0), at(blue, -1, 0), at(blue, 0, -1), at(blue, -1, -1)),
        },
    ]
    last = s.chance(0.5)
    sizes = f"{v.extent(a)} // 2 * 2, {v.extent(b)} // 2 * 2"
    lines = [f"{{}} = np.empty(({f'{sizes}, 3' if last else f'3, {sizes}'}), np.{v.dtype})"]
    for c, plane in enumerate(planes):
        for (y, x), text in plane.items():
            key = f"{y}::2, {x}::2, {c}" if last else f"{c}, {y}::2, {x}::2"
            lines.append(f"{{}}[{key}] = {text}")
    h, w = (n // 2 * 2 for n in v.shape)
    made = {"axes": f"{v.axes}c", "shape": (h, w, 3)} if last else {"axes": f"c{v.axes}", "shape": (3, h, w)}
    return s.filled("colours", lines, v, **made)


def product(s: Sketch) -> Value:
    """An image as a matrix: times one of weights, or times itself."""
    once(s, "product")
    v = s.floating(s.some(lambda v: len(v.axes) == 2))
    rows, columns = v.shape
    if s.chance(0.3):
        if rows * rows * columns > PRODUCT or rows * rows > s.limit:
            raise Unsuitable
        text, low, high = s.tamed(f"{v.name} @ {v.name}.T / {v.name}.shape[1]", -(v.most**2), v.most**2)
        return s.let("product", text, v, shape=(rows, rows), low=low, high=high, exact=False)
    n = min(columns, int(PRODUCT / (rows * columns)))
    if n < SMALLEST:
        raise Unsuitable
    bound = nice(1.5 / columns)
    weights = s.parameter("weights", (columns, n), v.dtype, -bound, bound).name
    text, low, high = s.tamed(f"{v.name} @ {weights}", -1.6 * v.most, 1.6 * v.most)
    return s.let("product", text, v, shape=(rows, n), low=low, high=high, exact=False)


def small_guide(s: Sketch) -> Value:
    """An argument of a half to an eighth of the image's size, which is enlarged where it meets others."""
    v = s.some(lambda v: v.scale == (0, 0) and not v.name.startswith("guide"))
    n = s.integer(1, 3)
    sizes = {axis: v.size(axis) >> n for axis in v.axes if axis in "hw"}
    if min(sizes.values()) < SMALLEST:
        raise Unsuitable
    plane = s.chance(0.4)
    axes = v.axes.replace("c", "") if plane else v.axes
    shape = tuple(sizes.get(axis, v.size(axis)) for axis in axes)
    dtype = s.one(("float32", "float32", "uint8"))
    guide = s.known(s.parameter("small", shape, dtype, 0, 255 if dtype == "uint8" else 1, axes, (n, n)))
    k = s.number(0.5, 1.5)
    return s.let("gain", f"{k:g} * {s.floating(guide).name}", s.floating(guide), low=0, high=k)


GATHERS = (
    ("warp", warp, 8.0),
    ("look_ups", look_ups, 4.0),
    ("joint_histogram", joint_histogram, 3.0),
    ("grid", grid, 7.0),
    ("volume", volume, 6.0),
    ("batch_layer", batch_layer, 4.0),
    ("strips", strips, 3.0),
    ("blocks", blocks, 3.0),
    ("flat", flat, 3.0),
    ("mosaic", mosaic, 6.0),
    ("product", product, 5.0),
    ("small_guide", small_guide, 5.0),
)
"""Name, function and weight of each kind of stage here."""
