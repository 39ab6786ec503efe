"""Random stages like those of large applications: long sums, filters, chains and pyramids.

What these and `hjit.model.generator_gathers` add to the other kinds is size: expressions of a hundred operations, loads
of a hundred neighbours, chains and pyramids of many stages.
"""

from __future__ import annotations

from collections.abc import Callable

from hjit.model.generator_local import PADS, padded
from hjit.model.generator_sketch import Sketch, Unsuitable, Value, limits, nice

# What a step of a chain makes of `p`, the value with one more pixel on each side: floats stay within their bounds, but
# for the gain.
STEPS: tuple[tuple[str, float], ...] = (
    ("({m[0]} + {m[1]} + {m[2]} + {m[3]} + 4 * {c}) / 8", 1.0),
    ("{c} + 0.2 * ({m[0]} + {m[1]} + {m[2]} + {m[3]} - 4 * {c})", 1.0),
    ("np.maximum(np.maximum({m[0]}, {m[1]}), np.maximum({m[2]}, {c}))", 1.0),
    ("({m[0]} + {c}) / 2 + 0.25 * ({m[1]} - {m[2]}) / (1 + np.abs({m[1]} - {m[2]}))", 1.0),
)


def once(s: Sketch, base: str) -> None:
    """Let a program have one stage with a variable of this name at most: many would take minutes to compile.

    Raises:
        Unsuitable: it has one.
    """
    if base in s.names:
        raise Unsuitable


def polynomial(s: Sketch) -> Value:
    """One expression of up to ninety operations on one pixel."""
    v = s.floating(s.some())
    x = s.let("unit", f"{v.name} / {nice(v.most):g}", v, low=-1.05, high=1.05)
    degree = s.one((12, 16, 20, 28, 40))
    factors = [s.number(-1, 1) for _ in range(degree + 1)]
    text, bound = f"{factors[0]:g}", abs(factors[0])
    for c in factors[1:]:
        text, bound = f"({text}) * {x.name} + {c:g}", bound * 1.05 + abs(c)
    return s.let("curve", text, x, low=-bound, high=bound)


def segments(s: Sketch) -> Value:
    """A curve of many straight parts: nested conditions, of which some are joined."""
    v = s.floating(s.some(lambda v: v.exact))
    text, m = v.name, v.most
    for _ in range(s.integer(5, 14)):
        t, k = nice(v.low + (v.high - v.low) * s.random()), s.number(0.3, 1)
        condition = f"{v.name} > {t:g}"
        if s.chance(0.3):
            condition = f"({condition}) | ({v.name} < {nice(t - m / 9):g}) | ({v.name} == {nice(t / 2):g})"
        text = f"np.where({condition}, {k:g} * {v.name}, {text})"
    return s.let("curve", text, v, low=min(v.low, 0), high=max(v.high, 0))


def transcendental(s: Sketch) -> Value:
    """Four to nine transcendental functions of one pixel."""
    v = s.floating(s.some())
    x = s.let("unit", f"{v.name} / {nice(v.most):g}", v, low=-1.05, high=1.05, exact=False).name
    size = f"np.abs({x})"
    table: tuple[tuple[str, float], ...] = (
        (f"np.exp(-{size})", 1),
        (f"np.sin({s.integer(1, 4)} * {x})", 1),
        (f"np.cos({s.integer(1, 4)} * {x})", 1),
        (f"np.tanh({x})", 1),
        (f"np.arctan2({x}, {size} + 0.5)", 1.6),
        (f"np.log1p({size})", 1),
        (f"({size} + 0.05) ** {s.one((0.4545, 2.2, 0.8)):g}", 1.4),
        (f"1 / (1 + np.exp(-{x}))", 1),
        (f"np.sqrt({size} + 0.1)", 1.1),
        (f"np.log({size} + 0.1)", 2.4),
        (f"np.arctan({x})", 1),
    )
    parts = [s.one(table) for _ in range(s.integer(4, 9))]
    text = parts[0][0]
    bound = parts[0][1]
    for part, most in parts[1:]:
        product = s.chance(0.4)
        text, bound = (f"({text}) * {part}", bound * most) if product else (f"{text} + {part}", bound + most)
    text, low, high = s.tamed(text, -bound, bound)
    return s.let("curve", text, v, low=low, high=high, exact=False)


def tuned(s: Sketch) -> Value:
    """An expression of numbers that are arguments."""
    v = s.floating(s.some())
    m = v.most
    factors = [s.parameter("strength", (), "float32", 0.5, 1.5).name for _ in range(s.integer(1, 3))]
    offsets = [s.parameter("level", (), "float32", 0.1, 0.9).name for _ in range(s.integer(1, 3))]
    text = " + ".join(f"{k} * {v.name}" for k in factors)
    text = f"np.clip({text}, {' - '.join(offsets)}, {nice(4 * m + 2):g})"
    text, low, high = s.tamed(text, -3, nice(4 * m + 2))
    return s.let("scaled", text, v, low=low, high=high)


def ratios(s: Sketch) -> Value:
    """A sum of four to eight quotients of one pixel."""
    v = s.floating(s.some())
    size = f"np.abs({v.name})" if v.low < 0 else v.name
    parts = [(s.number(0.1, 1), nice(v.most * s.number(0.2, 1))) for _ in range(s.integer(4, 8))]
    text = " + ".join(f"{k * c:g} / ({size} + {c:g})" for k, c in parts)
    return s.let("curve", text, v, low=0, high=1.01 * sum(k for k, _ in parts))


def periodic(s: Sketch) -> Value:
    """Remainders: of a number, of an array, of whole numbers."""
    v = s.some(lambda v: v.exact)
    if v.is_float and s.chance(0.4):
        t = nice(v.most / s.integer(2, 5))
        return s.let("wave", f"{v.name} % {t:g}", v, low=0, high=t)
    v = s.bytes_of(v)
    k = s.integer(3, 31)
    if s.chance(0.5):
        return s.let("code", f"({v.name} | {s.integer(1, 3)}) % {k}", v, low=0, high=k)
    others = s.suiting(lambda u: u.exact and u.dtype == "uint8" and u.axes == v.axes and u.size("c") == v.size("c"))
    other, v = s.matched(s.one(others) if others else v, v)
    both = s.joined(other, v)
    return s.let("code", f"{v.name} % (({other.name} >> 2) + {k})", both, low=0, high=64 + k)


def fixed_point(s: Sketch) -> Value:
    """Arithmetic of int16, with products of int32 and bits that are mixed; or a sum of narrowed parts."""
    byte = s.bytes_of(s.some(lambda v: v.exact))
    w = s.let(
        "fixed", f"({byte.name}.astype(np.int16) << 4) - {s.integer(1, 99)}", byte, dtype="int16", low=-99, high=4080
    )
    if s.chance(0.4):
        parts = (f"({w.name} >> {k}).astype(np.uint8)" for k in range(s.integer(4, 7)))
        return s.let("code", " + ".join(parts), w, dtype="uint8", low=0, high=255)
    k = s.integer(11, 63)
    text = f"(({w.name}.astype(np.int32) * {k}) >> 6).astype(np.int16)"
    text = f"(({text} ^ ({w.name} >> 2) ^ ({w.name} << 1)) & 1023) | (({w.name} >> 3) & 7) | {s.integer(1, 7)}"
    return s.let("code", f"({text}) - {s.integer(100, 500)}", w, low=-500, high=1023)


def window_sum(s: Sketch) -> Value:
    """The weighted sum of 25 to 49 neighbours; sums of whole numbers may wrap around."""
    v = s.some()
    n = s.one((5, 5, 7))
    p = padded(s, v, dict.fromkeys("hw", n // 2), dict.fromkeys("hw", n // 2), s.one(PADS))
    near = p.at(h="dy : dy + " + v.extent("h"), w="dx : dx + " + v.extent("w"))
    new = f"{{}} = np.zeros({v.name}.shape, np.{v.dtype})"
    loops = [f"for dy in range({n}):", f"    for dx in range({n}):"]
    if not v.is_float:
        low, high = limits(v.dtype)
        factor = "(dy + 1) * (dx + 1)" if v.dtype != "int8" else "dy"
        return s.filled("filtered", [new, *loops, f"        {{}} += {factor} * {near}"], v, low=low, high=high)
    total = (n * (n + 1) // 2) ** 2
    lines = [new, *loops, f"        {{}} += (dy + 1) * (dx + 1) * {near}", f"{{}} /= {total}"]
    return s.filled("filtered", lines, v, low=p.low, high=p.high)


def long_extreme(s: Sketch) -> Value:
    """The maximum or minimum of up to a hundred neighbours: one by one, or by runs that double."""
    v = s.some()
    axis, f = s.one("hw"), s.one(("maximum", "minimum"))
    other = "w" if axis == "h" else "h"
    n = s.weighted(((9, 3), (15, 2), (31, 2), (51, 1.5), (105, 1.5)))
    p = padded(s, v, {axis: n // 2}, {axis: n // 2}, s.one(("edge", "reflect") if n < 30 else ("edge",)))
    size = v.extent(axis)
    if s.chance(0.5):
        near = p.at(**{axis: f"k : k + {size}"})
        lines = [
            "{} = " + p.at(**{axis: f":{size}"}),
            f"for k in range(1, {n}):",
            f"    {{}} = np.{f}({{}}, {near})",
        ]
        return s.filled("grown", lines, v, low=p.low, high=p.high)
    once(s, "runs")
    runs = s.temporary("runs", f"[{p.name}]")
    levels = n.bit_length() - 1
    cut = p.at(**{axis: ": -(1 << k)"})[len(p.name) :], p.at(**{axis: "1 << k :"})[len(p.name) :]
    s.line(f"for k in range({levels}):")
    s.line(f"    {runs}.append(np.{f}({runs}[k]{cut[0]}, {runs}[k]{cut[1]}))")
    last = n - (1 << levels)
    first, second = (p.at(**{axis: f"{k} : {k} + {size}"})[len(p.name) :] for k in (0, last))
    along = s.let("along", f"np.{f}({runs}[{levels}]{first}, {runs}[{levels}]{second})", v, low=p.low, high=p.high)
    q = padded(s, along, {other: 26}, {other: 26}, "edge")
    steps = s.one((7, 14, 26))
    sides = [q.at(**{other: f"26 {sign} k : 26 {sign} k + {v.extent(other)}"}) for sign in "-+"]
    lines = [
        f"{{}} = {along.name}",
        f"for k in range(1, {steps + 1}):",
        f"    {{}} = np.{f}({{}}, np.{f}({sides[0]}, {sides[1]}))",
    ]
    return s.filled("grown", lines, along)


def chain(s: Sketch) -> Value:
    """Up to 110 steps of one stencil, each a stage that reads the one before."""
    once(s, "step")
    v = s.floating(s.some(lambda v: v.axes in ("hw", "wh", "chw")))
    name = s.let("start", f"{v.name} + 0", v)
    n = s.weighted(((6, 3), (12, 3), (24, 2), (40, 1), (75, 0.6), (110, 0.4)))
    text, gain = s.one(STEPS)
    q, cut = s.fresh("step"), partial_cut(name)
    around = [cut("1:-1", "2:"), cut("1:-1", ":-2"), cut("2:", "1:-1"), cut(":-2", "1:-1")]
    body = text.format(m=[q + x for x in around], c=q + cut("1:-1", "1:-1"))
    widths = ", ".join("(1, 1)" if axis in "hw" else "(0, 0)" for axis in v.axes)
    m = max(v.most * gain, 0.0) + (0.25 * n if "np.abs" in text else 0.0)
    lines = [
        f"{{}} = {name.name}",
        f"for _ in range({n}):",
        f'    {q} = np.pad({{}}, ({widths}), mode="edge")',
        f"    {{}} = {body}",
    ]
    return s.filled("evolved", lines, name, low=-m if m > v.most else v.low, high=m if m > v.most else v.high)


def partial_cut(v: Value) -> Callable[[str, str], str]:
    """Texts of a cut along both axes of an image, of any variable with its axes."""

    def cut(h: str, w: str) -> str:
        return v.at(h=h, w=w)[len(v.name) :]

    return cut


def patches(s: Sketch) -> Value:
    """Non-local means: windows compared with windows around, some 3 stages for each of 5 to 49 offsets."""
    once(s, "patch")
    v = s.floating(s.some(lambda v: v.axes in ("hw", "chw")))
    search, patch = s.weighted(((3, 5), (5, 1.5), (7, 0.6))), s.one((3, 5, 7))
    far, margin = search // 2, patch // 2
    edge = dict.fromkeys("hw", far + margin)
    p = padded(s, v, edge, edge, "edge")
    tall, wide = f"{v.extent('h')} + {2 * margin}", f"{v.extent('w')} + {2 * margin}"
    shifted, near, total = s.fresh("patch"), s.fresh("near"), s.fresh("norm")
    lead = "..., " if v.axes == "chw" else ""
    far_cut = f"{far} : {far} + {tall}, {far} : {far} + {wide}"
    distance = f"({p.name}[{lead}{far_cut}] - {shifted}) ** 2"
    distance = f"({distance}).sum(axis=0)" if lead else distance
    inner = f"{margin} : {margin} + {v.extent('h')}, {margin} : {margin} + {v.extent('w')}"
    lines = [
        f"{{}} = np.zeros({v.name}.shape, np.{v.dtype})",
        f"{total} = np.zeros({v.name}.shape[-2:], np.{v.dtype})",
        f"for dy in range({search}):",
        f"    for dx in range({search}):",
        f"        {shifted} = {p.name}[{lead}dy : dy + {tall}, dx : dx + {wide}]",
        f"        {near} = {distance}",
        f"        {near} = sum({near}[k : k + {v.extent('h')}] for k in range({patch}))",
        f"        {near} = sum({near}[:, k : k + {v.extent('w')}] for k in range({patch}))",
        f"        {near} = np.exp(-{near} * {nice(0.5 / (v.most * patch) ** 2):g})",
        f"        {{}} += {near} * {shifted}[{lead}{inner}]",
        f"        {total} += {near}",
        f"{{}} /= {total}",
    ]
    return s.filled("steady", lines, v, exact=False)


def deep_pyramid(s: Sketch) -> Value:
    """Four to eight levels down to a few pixels, and up again, each blended with the level before."""
    once(s, "levels")
    v = s.floating(s.some(lambda v: v.axes in ("hw", "wh", "chw", "hwc")))
    levels, q, fine = s.fresh("levels"), s.fresh("coarse"), s.fresh("fine")
    n = s.integer(4, 8)
    widths = ", ".join("(1, 1)" if axis in "hw" else "(0, 0)" for axis in v.axes)

    def cut(axis: str, key: str) -> str:
        return v.at(**{axis: key})[len(v.name) :]

    half = [
        f"    {q} = ({q}{cut(a, '0:-2:2')} + 2 * {q}{cut(a, '1:-1:2')} + {q}{cut(a, '2::2')}) / 4"
        for a in (v.axes if len(v.axes) == 2 else v.axes.replace("c", ""))
    ]
    spatial = [v.axes.index(a) for a in v.axes if a in "hw"]
    whole = ", ".join(f": {fine}.shape[{k}]" if v.axes[k] in "hw" else ":" for k in range(len(v.axes)))
    blend, gain = s.one(((f"0.5 * {q} + 0.5 * {fine}", 1.0), (f"0.3 * {q} + 0.7 * np.maximum({fine}, {q})", 1.0)))
    lines = [
        f"{levels} = [{v.name}]",
        f"for k in range({n}):",
        f'    {q} = np.pad({levels}[k], ({widths}), mode="edge")',
        *half,
        f"    {levels}.append({q})",
        f"{q} = {levels}[{n}]",
        f"for {fine} in {levels}[{n - 1}::-1]:",
        f"    {q} = np.repeat(np.repeat({q}, 2, axis={spatial[0]}), 2, axis={spatial[1]})[{whole}]",
        f"    {q} = {blend}",
        f"{{}} = {q}",
    ]
    return s.filled("merged", lines, v, low=min(v.low, 0), high=max(v.high, 0) * gain)


def recurrence(s: Sketch) -> Value:
    """A recursive filter of the first or second order, forwards and mostly backwards, one row after the other."""
    once(s, "passed")
    v = s.floating(s.some())
    axis = s.one("hw")
    a, second = s.number(0.2, 0.6), s.chance(0.4)
    b = nice((1 - a) * (0.7 if second else 1.0))
    c = nice(1 - a - b) if second else 0.0
    size = v.extent(axis)

    def row(name: str, key: str) -> str:
        return name + v.at(**{axis: key})[len(v.name) :]

    def step(new: str, source: str, back: str, sign: str) -> str:
        more = f" + {c:g} * {row(new, f'{back} {sign} 2')}" if c else ""
        return f"    {row(new, back)} = {a:g} * {row(source, back)} + {b:g} * {row(new, f'{back} {sign} 1')}{more}"

    first = 2 if c else 1
    passed = s.filled(
        "passed", [f"{{}} = {v.name}.copy()", f"for k in range({first}, {size}):", step("{}", v.name, "k", "-")], v
    )
    if s.chance(0.3):
        return passed
    lines = [
        f"{{}} = {passed.name}.copy()",
        f"for k in range({size} - {first + 1}, -1, -1):",
        step("{}", passed.name, "k", "+"),
    ]
    return s.filled("smooth", lines, passed)


WINDOWS = (
    ("polynomial", polynomial, 3.0),
    ("segments", segments, 3.0),
    ("transcendental", transcendental, 4.0),
    ("tuned", tuned, 4.0),
    ("ratios", ratios, 2.0),
    ("periodic", periodic, 4.0),
    ("fixed_point", fixed_point, 3.0),
    ("window_sum", window_sum, 4.0),
    ("long_extreme", long_extreme, 5.0),
    ("chain", chain, 8.0),
    ("patches", patches, 6.0),
    ("deep_pyramid", deep_pyramid, 6.0),
    ("recurrence", recurrence, 5.0),
)
"""Name, function and weight of each kind of stage here."""
