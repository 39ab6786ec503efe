"""Statements as people write them, a few lines each: what `tests.fuzz` does not make.

Each idiom draws one block of lines. `v` is its new variable: exact, so that it must be NumPy's to the last bit. What
may differ in its last bits (sums of floats, transcendental functions) goes into a variable whose name begins with
``s``, of which nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.campaign.source import Author

Idiom = Callable[["Author", str], str]
IDIOMS: list[Idiom] = []


def idiom(f: Idiom) -> Idiom:
    """Put an idiom on the list."""
    IDIOMS.append(f)
    return f


def lines(*text: str) -> str:
    """A block."""
    return "\n".join(text)


def soft(v: str) -> str:
    """The name of a variable that may differ in its last bits."""
    return "s" + v[1:]


def flat(a: Any) -> bool:
    return bool(a.ndim == 2 and min(a.shape) >= 4)


def some(a: Any) -> bool:
    return bool(a.ndim > 0 and a.size > 0)


def whole(a: Any) -> bool:
    return bool(a.dtype.kind in "iu" and some(a))


# -- arithmetic of mixed types and run-time scalars


@idiom
def mixed(w: Author, v: str) -> str:
    a = w.pick()
    b, c = w.other(a), w.other(a)
    return f"{v} = ({a} {w.one_of('+', '-', '*')} {b}) {w.one_of('+', '-', '*', '<', '>=', '==', '&', '|', '^')} {c}"


@idiom
def scalars(w: Author, v: str) -> str:
    a, k = w.pick(), w.scalar()
    return f"{v} = " + w.one_of(
        f"{a} + {k}",
        f"{k} - {a}",
        f"{a} * {k}",
        f"{a} < {k}",
        f"{k} >= {a}",
        f"{a} == {k}",
        f"np.maximum({a}, {k})",
        f"np.minimum({k}, {a})",
        f"np.where({a} > {k}, {a}, {k})",
        f"np.where({a} != {k}, {k}, 0)",
        f"np.clip({a}, {k}, {k} + 20)",
        f"np.add({a}, {k}, dtype=np.float64)",
        f"{a} // ({k} + 1)",
        f"{a} % ({k} + 2)",
        f"{a} / ({k} or 1)",
        f"{a} & n",
        f"{a} << (n & 3)",
        f"{a} >> abs(n)",
        f"np.full({a}.shape, {k})",
        f"np.full_like({a}, n)",
        f"np.array([{k}, {k}]) + {a}.ravel()[:2]",
        f"{a} * flag",
        f"{a} + np.asarray({k})",
        f"{a} ** 2",
        f"{a} ** (n & 1)",
        f"np.select([{a} > {k}, {a} < 3], [{a}, {k}], 0)",
        f"np.copysign({a}, {k})",
        f"np.fmax({a}, {k})",
        f"np.isclose({a}, {k})",
    )


@idiom
def scalars_of_scalars(w: Author, v: str) -> str:
    a, k = w.pick(), w.scalar()
    return lines(
        f"k{v[1:]} = "
        + w.one_of(
            f"{k} * 2 + 1",
            f"max({k}, 1)",
            f"-{k}",
            f"abs({k})",
            "n // 2 + t",
            "(n + 3) % 5",
            "divmod(n, 3)[1]",
            "n if flag else t",
            "int(t * 4)",
            "float(n)",
            "round(t)",
            "np.float32(t)",
            "np.int16(n)",
            "q + n",
            "q * q",
            "len(lut) - n",
            "bool(n)",
        ),
        f"{v} = {a} " + w.one_of("+", "*", "-", "<") + f" k{v[1:]}",
    )


@idiom
def with_out(w: Author, v: str) -> str:
    a = w.pick(some)
    b = w.other(a)
    return lines(
        f"{v} = np.{w.one_of('empty', 'zeros')}({a}.shape, {w.one_of(f'{a}.dtype', 'np.float64', 'np.result_type(' + a + ', np.int32)')})",
        w.one_of(
            f"np.add({a}, {b}, out={v})",
            f"np.multiply({a}, {b}, out={v}, casting='unsafe')",
            f"np.maximum({a}, {b}, {v})",
            f"np.copyto({v}, {a}, 'unsafe')",
        ),
    )


# -- in place, through views


@idiom
def view_of_a_copy(w: Author, v: str) -> str:
    a = w.pick(flat)
    c, x = w.number(w.env[a]), f"x{v[1:]}"
    view, then = w.one_of(
        ("[1:-1, ::2]", f"{x} += {c}"),
        ("[::-1]", f"{x}[1:] += {x}[:-1]"),
        (".T", f"{x}[0] = {x}[-1]"),
        ("[:, 1]", f"{x}[...] = {x}[::-1].copy()"),
        (".reshape(-1)", f"{x}[::3] = {c}"),
        (".ravel()", f"{x} *= 2"),
        ("[1:]", f"{x} -= {v}[:-1]"),
        ("[..., None]", f"{x}[2:, :, 0] = {v}[:-2]"),
        ("[None]", f"{x}[0, 1] = {c}"),
        ("[::2, 1:][:, ::-1]", f"{x}[:, 1:] = {x}[:, :-1]"),
        (".swapaxes(0, 1)[1:-1]", f"{x}[..., 0] = {x}[..., -1]"),
        ("[n % 3:]", f"{x}[0] = {c}"),
        ("[:, -3:]", f"{x}.sort(axis=1)"),
        ("[0]", f"{x} += {v}[1]"),
        (".view()", f"{x}[{x} > {c}] = {c}"),
        ("[1:-1]", f"np.multiply({x}, 2, out={x})"),
        ("[:]", f"np.clip({x}, 0, 9, out={x})"),
        ("[:2, :2]", f"{x}.fill({c})"),
    )
    return lines(f"{v} = {a}.copy()", f"{x} = {v}{view}", then)


@idiom
def argument_in_place(w: Author, v: str) -> str:
    a = w.pick(lambda x: some(x) and x.flags.writeable)
    c = w.number(w.env[a])
    return w.one_of(
        f"{a}[0] = {c}",
        f"{a}[...] = {a}[::-1]",
        f"{a} += {c}",
        f"{a}[1:] += {a}[:-1]",
        f"{a}[{a} > {c}] = {c}",
        f"{a}[-1] *= 2",
        f"{a}.fill({c})",
        f"{a}[..., 0] = {w.scalar()}",
        f"{a}[:2] = {w.scalar()}",
        f"np.putmask({a}, {a} == {c}, {w.scalar()})",
        f"np.put({a}, [0, -1], {w.scalar()})",
        f"np.place({a}, {a} != {c}, [{c}])",
        f"{a}.flat[::5] = {c}",
        f"np.copyto({a}, {c}, where={a} < {c})",
    )


@idiom
def swap(w: Author, v: str) -> str:
    a = w.pick(lambda x: some(x) and x.shape[-1] > 1)
    return lines(f"{v} = {a}.copy()", f"{v}[..., 0], {v}[..., -1] = {v}[..., -1].copy(), {v}[..., 0].copy()")


@idiom
def two_views(w: Author, v: str) -> str:
    a = w.pick(lambda x: x.ndim == 2 and x.shape[1] > 3)
    return lines(
        f"{v} = {a}.copy()",
        f"left, right = {v}[:, :2], {v}[:, -2:]",
        w.one_of("left += right", "right[...] = left", "left[1:] = right[:-1]"),
        f"{v}[0] = right[-1, 0]",
    )


# -- fancy indices


@idiom
def fancy_rows(w: Author, v: str) -> str:
    a = w.pick(flat)
    i = w.one_of(
        "[0, 2, 1]",
        "[-1, 0]",
        "np.arange(0, {0}.shape[0], 3)",
        "np.array([[0, 1], [2, 3]])",
        "np.array([2, 2, 0], np.uint8)",
        "np.nonzero([True, False, True])[0]",
        "[n % 4, abs(n) % 3]",
        "np.arange({0}.shape[0])[::-1]",
        "(np.arange({0}.shape[0]) * 7 + n) % {0}.shape[0]",
    ).replace("{0}", a)
    return w.one_of(
        f"{v} = {a}[{i}]",
        f"{v} = np.take({a}, {i}, axis=0)",
        f"{v} = {a}.copy(); {v}[{i}] = {w.number(w.env[a])}",
        f"{v} = {a}.copy(); {v}[{i}] += 1",
    )


@idiom
def fancy_columns(w: Author, v: str) -> str:
    a = w.pick(flat)
    return f"{v} = " + w.one_of(
        f"{a}[:, [1, 0, 3]]",
        f"{a}[1:, np.array([0, -1])]",
        f"{a}[[0, 1, 2], [1, 2, 3]]",
        f"{a}[np.ix_([0, 2], [1, 3, 0])]",
        f"{a}[[[0], [1]], [1, 2, 3]]",
        f"{a}[np.arange(3), :3]",
        f"{a}[..., [0, 2]]",
        f"{a}[None, [0, 1]]",
        f"np.take_along_axis({a}, np.argsort({a}, axis=1)[:, :2], 1)",
        f"{a}[np.arange({a}.shape[0]), np.argmax({a}, axis=1)]",
        f"{a}[np.arange({a}.shape[0])[:, None], np.arange(3)]",
        f"np.compress([True, False, True], {a}, axis=0)",
    )


@idiom
def masks(w: Author, v: str) -> str:
    a = w.pick(some)
    m = f"{a} {w.one_of('<', '>', '==')} {w.number(w.env[a])}"
    return lines(
        f"m{v[1:]} = {m}",
        f"{v} = {a}.copy()",
        w.one_of(
            f"{v}[m{v[1:]}] = {w.number(w.env[a])}",
            f"{v}[m{v[1:]}] = {a}[m{v[1:]}] // 2",
            f"{v}[~m{v[1:]}] += 1",
            f"{v}[m{v[1:]}] *= 2",
            f"{v} = np.where(m{v[1:]}, {v}, {w.scalar()})",
            f"{v} = {v}[m{v[1:]}].size",
            f"{v} = np.count_nonzero(m{v[1:]}, axis=-1)",
            f"{v}[0][m{v[1:]}[0]] = 1",
            f"{v} = m{v[1:]}.any(axis=0) | m{v[1:]}.all()",
            f"{v} = np.logical_and(m{v[1:]}, {v} != 0)",
            f"{v} = {v}[m{v[1:]}].sum() if {v}.dtype.kind in 'iu' else {v}",
        ),
    )


@idiom
def tables(w: Author, v: str) -> str:
    a = w.pick(whole)
    size = len(w.env["lut"])
    return w.one_of(
        f"{v} = lut[{a} % {size}] + {w.scalar()}",
        lines(f"table = np.arange({size}) ** 2 % 251", f"{v} = table[{a} % {size}].astype(np.uint8)"),
        f"{v} = np.take(lut, ({a} % 1000).astype(int) - 400, mode={w.one_of('wrap', 'clip')!r})",
        lines(f"h = np.bincount(({a} % 16).ravel(), minlength=16)", f"{v} = np.cumsum(h)[{a} % 16]"),
        lines(f"{v} = np.zeros(16, {w.one_of('np.int64', 'np.uint32', 'np.float32')})", f"np.add.at({v}, {a} % 16, 1)"),
        f"{v} = np.histogram({a}, bins=8, range=(0, 64))[0]",
        lines(f"{v} = lut.copy()", f"{v}[{a} % {size}] = 1"),
        f"{v} = np.choose({a} % 2, [{a}, {w.scalar()}])",
        f"{v} = np.isin({a}, [1, 3, 5])",
        f"{v} = np.searchsorted(np.array([0, 10, 100]), {a})",
        f"{v} = np.digitize({a}, [1, 5, 50])",
        f"{v} = np.unique({a} % 7)",
    )


# -- loops


@idiom
def rows_from_rows(w: Author, v: str) -> str:
    a = w.pick(flat)
    return lines(
        f"{v} = {a}.copy()",
        *w.one_of(
            (f"for y in range(1, {a}.shape[0]):", f"    {v}[y] = {v}[y] + {v}[y - 1]"),
            (f"for y in range({a}.shape[0] - 2, -1, -1):", f"    {v}[y] = np.maximum({v}[y], {v}[y + 1])"),
            (f"for x in range(1, {a}.shape[1]):", f"    {v}[:, x] = {v}[:, x] * 2 - {v}[:, x - 1]"),
            (f"for y in range(2, {a}.shape[0]):", f"    {v}[y, 1:] = np.minimum({v}[y - 1, 1:], {v}[y - 2, :-1])"),
            (f"for y in range(1, len({a}) - 1):", f"    {v}[y] = {a}[y - 1] + {a}[y + 1]"),
            (f"for y in range(len({a})):", "    if y % 2:", f"        {v}[y] = {v}[y][::-1].copy()"),
            (
                f"for y in range(1, len({a})):",
                f"    r = {v}[y - 1]",
                f"    {v}[y, 1:-1] += np.minimum(np.minimum(r[:-2], r[1:-1]), r[2:])",
            ),
            (f"for row in {v}:", f"    row += {w.number(w.env[a])}"),
            (f"for y, row in enumerate({a}):", f"    {v}[y] = row[::-1] * (y % 3)"),
            (f"for y in range(0, len({a}) - 1, 2):", f"    {v}[y], {v}[y + 1] = {a}[y + 1], {a}[y]"),
            (f"for r, s_ in zip({v}, {a}[::-1]):", "    r[...] = np.maximum(r, s_)"),
            (
                f"for y in range(len({a})):",
                f"    for x in range(min(3, {a}.shape[1])):",
                f"        {v}[y, x] = {a}[y, x] * (x + 1)",
            ),
        ),
    )


@idiom
def numbers_of_loops(w: Author, v: str) -> str:
    a = w.pick(flat)
    return lines(
        f"{v} = {a}.copy()",
        *w.one_of(
            ("s_ = 0", f"for y in range(len({v})):", f"    s_ = s_ + {v}[y, 0]", f"    {v}[y, 0] = s_"),
            (
                "m = 0",
                f"for y in range(len({v})):",
                f"    if {a}[y, 0] > n:",
                "        m += 1",
                f"    {v}[y, 0] = m % 7",
            ),
            (
                f"m = {a}[0, 0]",
                f"for y in range({a}.shape[0]):",
                f"    for x in range({a}.shape[1]):",
                f"        m = max(m, {a}[y, x])",
                f"{v}[0, 0] = m",
            ),
            (
                f"for y in range({v}.shape[0]):",
                f"    for x in range({v}.shape[1]):",
                f"        e = {v}[y, x] // 2",
                f"        {v}[y, x] = e",
                f"        if x + 1 < {v}.shape[1]:",
                f"            {v}[y, x + 1] += e // 2",
                f"        if y + 1 < {v}.shape[0] and x > 0:",
                f"            {v}[y + 1, x - 1] -= e",
            ),
            (
                "at = 0",
                f"for x in range(1, {a}.shape[1]):",
                f"    if {a}[0, x] > {a}[0, at]:",
                "        at = x",
                f"{v}[0, at] = {a}[0, at - 1]",
            ),
        ),
    )


@idiom
def windows_in_loops(w: Author, v: str) -> str:
    a = w.pick(flat)
    start, step, end = w.one_of(
        (f"np.zeros({a}.shape, np.int64)", "+= p[1 + dy:1 + dy + {0}.shape[0], 1 + dx:1 + dx + {0}.shape[1]] > n", ""),
        (f"{a}.copy()", "[...] = np.maximum({v}, p[1 + dy:1 + dy + {0}.shape[0], 1 + dx:1 + dx + {0}.shape[1]])", ""),
        (
            f"np.zeros({a}.shape, np.float64)",
            "+= p[1 + dy:1 + dy + {0}.shape[0], 1 + dx:1 + dx + {0}.shape[1]] * (dy + 2 * dx)",
            f"{v} = {v} / 4",
        ),
        (
            f"np.zeros({a}.shape, np.uint8)",
            "|= (p[1 + dy:1 + dy + {0}.shape[0], 1 + dx:1 + dx + {0}.shape[1]] >= {0}).astype(np.uint8) << np.uint8(3 * dy + dx + 4 & 7)",
            "",
        ),
    )
    return lines(
        f"p = np.pad({a}, 1, mode={w.one_of('edge', 'reflect', 'constant', 'wrap', 'symmetric')!r})",
        f"{v} = {start}",
        "for dy in (-1, 0, 1):",
        "    for dx in range(-1, 2):",
        f"        {v} {step}".replace("{0}", a).replace("{v}", v).replace(f"{v} [", f"{v}["),
        *filter(None, [end]),
    )


@idiom
def repeated(w: Author, v: str) -> str:
    a = w.pick(flat)
    return lines(
        f"{v} = {a}.copy()",
        f"for _ in range({w.one_of('2', '3', 'min(n, 4)', 'abs(n) % 4', 'n & 3')}):",
        "    "
        + w.one_of(
            f"{v}[1:-1, 1:-1] = np.maximum({v}[:-2, 1:-1], {v}[1:-1, 2:])",
            f"{v} = np.roll({v}, 1, axis=0) - {v}",
            f"{v} = np.minimum({v}, {v}[::-1])",
            f"{v} += 1",
            f"{v} = np.pad({v}, 1, mode='edge')[:-2, 1:-1] + {v}",
            f"{v}[1:] = {v}[:-1]",
            f"{v} = {v}.T.copy() if {v}.shape[0] == {v}.shape[1] else {v} * 2",
        ),
    )


@idiom
def channels(w: Author, v: str) -> str:
    a = w.pick(lambda x: x.ndim == 3 and x.shape[-1] == 3 and x.size > 0)
    return w.one_of(
        lines(
            f"r, g, b_ = {a}[..., 0], {a}[..., 1], {a}[..., 2]",
            f"{v} = np.maximum(np.maximum(r, g), b_) - np.minimum(r, b_)",
        ),
        f"{v} = np.stack([{a}[..., c] * (c + 1) for c in range({a}.shape[2])], axis=-1)",
        lines(f"{v} = np.zeros_like({a})", "for c in range(3):", f"    {v}[..., c] = {a}[..., 2 - c]"),
        f"{v} = {a}[..., ::-1] + {a}",
        f"{v} = {a}.max(-1, keepdims=True) - {a}",
        f"{v} = np.moveaxis({a}, -1, 0)[1]",
        f"{v} = {a}.reshape(-1, 3)[::2]",
        lines(
            f"{v} = {a}[..., 0].copy()",
            "for c in range(1, 3):",
            f"    {v} = np.where({a}[..., c] > {v}, {a}[..., c], {v})",
        ),
        f"{v} = np.argmax({a}, axis=2)",
        f"{v} = sum(({a}[..., c] > n).astype(int) for c in range(3))",
        f"{soft(v)} = {a} @ np.array([0.3, 0.6, 0.1])",
        f"{soft(v)} = np.dot({a}, np.eye(3) * 2)",
    )


# -- decisions, helpers, exceptions


@idiom
def branches(w: Author, v: str) -> str:
    a = w.pick(some)
    test = w.one_of(
        "n > 2",
        "flag",
        "t < 1",
        f"{a}.ndim == 2",
        f"{a}.dtype == np.uint8",
        f"{a}.shape[0] > 16",
        f"{a}.max() > n",
        f"({a} > {w.number(w.env[a])}).any()",
        "n",
        f"{a}.dtype.kind in 'iu'",
        "not flag",
        "n == 3 or flag",
        f"np.all({a} == {a})",
        f"{a}.size % 2",
        f"int({a}.ravel()[0] > 0) > 0",
        "n > 0 and t > 0",
    )
    one, two = (
        f"{v} = {a} {w.one_of('+', '*', '-')} {w.number(w.env[a])}",
        w.one_of(f"{v} = {a}.copy()", f"{v} = {a}[::-1]", f"{v} = np.where({a} > n, {a}, 0)"),
    )
    return w.one_of(
        lines(f"if {test}:", f"    {one}", "else:", f"    {two}"),
        f"{v} = {a} * 2 if {test} else {a} + 1",
        lines(f"{v} = {a}", f"if {test}:", f"    {two}"),
    )


@idiom
def helpers(w: Author, v: str) -> str:
    a = w.pick()
    c = w.one_of("3", "n", "q", "t")
    g = f"g{v[1:]}"
    return w.one_of(
        lines(f"def {g}(x, k={c}):", "    y = x * 2", "    return np.maximum(x, k) - y", f"{v} = {g}({a})"),
        lines(f"{g} = lambda x: x + {c}", f"{v} = {g}({g}({a}))"),
        lines(f"def {g}(*xs, **more):", "    return xs[0] - more.get('k', 1)", f"{v} = {g}({a}, k={c})"),
        f"{v} = (lambda x, y: np.where(x > y, x, y))({a}, {c})",
        lines(
            f"def {g}(x, depth):", f"    return x if depth == 0 else {g}(x + depth, depth - 1)", f"{v} = {g}({a}, 3)"
        ),
        lines("def pairs(x):", "    for k in range(3):", "        yield x * k", f"{v} = sum(pairs({a}))"),
        f"{v} = list(map(lambda x: x * 2, [{a}, {a}]))[1]",
    )


@idiom
def exceptions(w: Author, v: str) -> str:
    a = w.pick(some)
    return lines(
        "try:",
        "    "
        + w.one_of(
            f"{v} = {a}.reshape(7, -1)",
            f"{v} = {a} + np.zeros(5)",
            f"{v} = {a}[10]",
            f"{v} = {a}[:, :, 0]",
            f"{v} = {a}[n]",
        ),
        f"except {w.one_of('ValueError', 'IndexError', '(ValueError, IndexError)', 'Exception')}:",
        f"    {v} = {a} * 2",
    )


@idiom
def computed_scalars(w: Author, v: str) -> str:
    a = w.pick(lambda x: whole(x) or (some(x) and x.dtype.kind == "b"))
    return w.one_of(
        lines(f"top = {a}.max()", f"{v} = {a} == top"),
        lines(f"low, high = {a}.min(), {a}.max()", f"{v} = ({a} - low) / max(int(high) - int(low), 1)"),
        f"{v} = {a} - {a}.ravel()[0]",
        lines(f"count = int(np.sum({a} > 0))", f"{v} = {a} * (count % 5)"),
        f"{v} = {a} + len({a})",
        lines(
            "y, x = np.unravel_index(np.argmax({0}), {0}.shape)[:2] if {0}.ndim > 1 else (0, 0)".replace("{0}", a),
            f"{v} = {a} * (y > x)",
        ),
        lines(f"best = {a}.argmax()", f"{v} = {a}.ravel()[best] + {a}"),
        f"{v} = {a} > np.median({a})",
        f"{v} = {a}.astype(float) / ({a}.size or 1)",
        f"{v} = float({a}.max()) * t",
    )


# -- shapes, types, grids


@idiom
def conversions(w: Author, v: str) -> str:
    a = w.pick(whole)
    d = w.one_of(
        "np.uint8",
        "np.int16",
        "np.float32",
        "np.int64",
        "np.uint32",
        "float",
        "int",
        "bool",
        "'u2'",
        "np.int8",
        "np.float16",
        f"{a}.dtype",
    )
    return f"{v} = " + w.one_of(
        f"{a}.astype({d})",
        f"np.asarray({a}, {d})",
        f"np.array({a}, dtype={d})",
        f"{a}.astype({d}).astype(np.int32) + 1",
        f"np.zeros({a}.shape, {d}) + {a}",
        f"np.ones_like({a}, dtype={d}) * {a}",
        f"np.clip({a}, 0, 255).astype(np.uint8)",
        f"({a} / 7).astype(np.float32)",
        f"({a} % 100 * 0.5 + 0.5).astype(np.uint8)",
        f"np.rint({a} * 0.25).astype(np.int64)",
        f"{a}.view({a}.dtype)",
        f"np.round({a} / 4, 1)",
        f"np.ceil({a} * 0.1)",
        f"{a}.copy(order='F')",
        f"np.ascontiguousarray({a}.T)",
        f"np.iinfo({a}.dtype).max - {a}",
        f"np.invert({a})",
        f"{a}.real + {a}.imag",
    )


@idiom
def shapes(w: Author, v: str) -> str:
    a = w.pick(flat)
    return f"{v} = " + w.one_of(
        f"{a}[:{a}.shape[0] // 2 * 2, :{a}.shape[1] // 2 * 2].reshape({a}.shape[0] // 2, 2, {a}.shape[1] // 2, 2).max(axis=(1, 3))",
        f"np.concatenate([{a}, {a}[::-1]], axis=0)[1:-1]",
        f"np.block([[{a}, {a} * 2], [{a}, {a}]])",
        f"{a}.repeat(2, 0).repeat(2, 1)",
        f"np.kron({a}, np.ones((2, 1), {a}.dtype))",
        f"np.array_split({a}, 3)[1]",
        f"np.hsplit({a}[:, :4], 2)[0]",
        f"np.vstack([{a}[:1], {a}, {a}[-1:]])",
        f"np.lib.stride_tricks.sliding_window_view({a}, (3, 3)).max((2, 3))",
        f"np.tril({a})",
        f"np.triu({a}, n % 3)",
        f"np.diagonal({a}) * 2",
        f"np.diff({a}, axis=0)",
        f"np.insert({a}, 1, 0, axis=0)",
        f"np.delete({a}, 0, axis=1)",
        f"np.outer({a}[0], {a}[:, 0])",
        f"np.append({a}, {a})",
        f"np.resize({a}, (3, 5))",
        f"{a}.flatten('F')",
        f"np.trim_zeros({a}[0])",
    )


@idiom
def grids(w: Author, v: str) -> str:
    a = w.pick(flat)
    return lines(
        f"h, w_ = {a}.shape",
        *w.one_of(
            ("yy, xx = np.mgrid[:h, :w_]", f"{v} = np.where((yy + xx) % 2 == 0, {a}, 0)"),
            ("yy, xx = np.ogrid[:h, :w_]", f"{v} = {a} * ((yy - h // 2) ** 2 + (xx - w_ // 2) ** 2 < n * n + 9)"),
            ("xx = np.arange(w_)", f"{v} = {a} * (xx > n)"),
            ("yy, xx = np.indices((h, w_))", f"{v} = {a}[h - 1 - yy, (xx + 1) % w_]"),
            ("yy = np.arange(h)[:, None] // 2", f"{v} = {a} + yy"),
            ("xx, yy = np.meshgrid(np.arange(w_), np.arange(h))", f"{v} = {a}[yy // 2, xx // 2]"),
            (
                f"{v} = np.zeros((h, w_), {a}.dtype)",
                f"{v}[::2, ::2] = {a}[::2, ::2]",
                f"{v}[1::2, 1::2] = {a}[:-1:2, :-1:2][:{v}[1::2].shape[0], :{v}[:, 1::2].shape[1]]",
            ),
            (f"{v} = np.arange(h * w_).reshape(h, w_) * {w.scalar()}",),
            ("y0, x0 = h // 4, w_ // 4", f"{v} = {a}[y0:y0 + h // 2, x0:x0 + w_ // 2]"),
            (f"{v} = np.linspace(0, 1, 5)[np.arange(w_) % 5] + {a}",),
        ),
    )


# -- what may differ in its last bits


@idiom
def float_sums(w: Author, v: str) -> str:
    a, s = w.pick(some), soft(v)
    axis = w.one_of("None", "0", "-1")
    return f"{s} = " + w.one_of(
        f"{a}.mean(axis={axis})",
        f"{a}.astype(float).sum(axis={axis}, keepdims=True)",
        f"np.mean({a}, axis={axis}, dtype=np.float64)",
        f"np.sum({a} * 0.5, axis={axis})",
        f"{a}.std()",
        f"np.var({a}, axis={axis})",
        f"np.cumsum({a} * 0.25, axis=-1)",
        f"np.average({a}, axis={axis})",
        f"np.sum({a} / 3, where={a} > n)",
        f"np.trapezoid({a} * 1.0)",
        f"np.einsum('...->', {a} * 1.0)",
    )


@idiom
def transcendental(w: Author, v: str) -> str:
    a, s = w.pick(some), soft(v)
    return f"{s} = " + w.one_of(
        f"np.exp(-abs({a} * 0.001))",
        f"np.log1p(abs({a} * 1.0))",
        f"np.sin({a} % 7)",
        f"np.hypot({a} * 1.0, {a} + 1)",
        f"np.arctan2({a} * 1.0, 3)",
        f"np.tanh({a} * 0.01)",
        f"(abs({a}) % 50) ** 0.45",
        f"np.cbrt({a} * 1.0)",
    )


@idiom
def images_of_scipy(w: Author, v: str) -> str:
    """Integers, of which SciPy's order is known: where a NaN stands among ranks is nobody's promise."""
    a, s = w.pick(lambda x: flat(x) and x.dtype.kind in "iu"), soft(v)
    return w.one_of(
        f"{v} = ndi.maximum_filter({a}, 3)",
        f"{v} = ndi.minimum_filter({a}, size=(1, 3))",
        f"{v} = ndi.median_filter({a}, 3)",
        f"{s} = ndi.gaussian_filter({a} * 1.0, 1.5)",
        f"{v} = ndi.grey_dilation({a}, size=3)",
        f"{v} = ndi.binary_erosion({a} > 3)",
        f"{s} = ndi.sobel({a} * 1.0, axis=0)",
        f"{s} = ndi.convolve({a} * 1.0, np.ones((3, 3)))",
        f"{s} = ndi.uniform_filter({a} * 1.0, 3)",
        f"{v} = ndi.label({a} > 3)[1] + {a}",
    )


@idiom
def of_soft(w: Author, v: str) -> str:
    names = [n for n in w.env if n[0] == "s" and n[1:].isdigit()]
    s = w.one_of(*names)
    return f"{soft(v)} = " + w.one_of(
        f"{s} * 0.5 + 1",
        f"np.maximum({s}, 0.25)",
        f"{s}[..., None]",
        f"np.float32(2) * {s}",
        f"{s} - {w.pick()} * 0.125" if hasattr(w.env[s], "shape") else f"{s} + t",
    )
