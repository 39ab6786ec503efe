"""Index polynomials as C text, in 32 and 64 bits, against their own values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hjit.errors import CompileError
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.ctext import Operand, c_type, storage_type
from hjit.kernels.cuda.indices import IndexPrinter, Signs
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.poly import Atom, Dim, Indirect, IntLike, Poly, Sym, Var, boundary, extremum, poly
from tests.kernels.cuda import launching
from tests.kernels.cuda.launching import needs_device

pytestmark = needs_device

I, J = Var("i"), Var("j")
N, M = Sym("n"), Sym("m")
NAMES = {I: "i", J: "j", N: "n", M: "m"}
ROWS = 200
MODES = ("clamp", "wrap", "reflect", "symmetric")


def no_values(e: Any) -> Operand:
    raise AssertionError(e)


def written(bits: int, **more: Any) -> IndexPrinter:
    return IndexPrinter(NAMES.__getitem__, more.pop("value", no_values), bits, **more)


def values(seed: int) -> np.ndarray:
    """Rows of i, j, n, m; sizes are positive, and small ones among them."""
    rng = np.random.default_rng(seed)
    found = rng.integers(-60, 60, (ROWS, 4))
    found[:, 2:] = rng.integers(1, 40, (ROWS, 2))
    found[: ROWS // 4, 2:] = rng.integers(1, 4, (ROWS // 4, 2))
    return found


def kernel(name: str, polys: list[Poly], indices: IndexPrinter) -> str:
    t = indices.type
    rows = "\n    ".join(f"out[row * {len(polys)} + {k}] = {indices.text(p)};" for k, p in enumerate(polys))
    return f"""HJ_KERNEL({name}, {ROWS}, 1, 1)(HJ_GLOBAL const {t} *in, HJ_GLOBAL {t} *out, HJ_GLOBAL u32 *status) {{
    const i32 row = HJ_THREAD_X;
    const {t} i = in[row * 4], j = in[row * 4 + 1], n = in[row * 4 + 2], m = in[row * 4 + 3];
    {rows}
}}"""


def check(polys: list[Poly], rows: np.ndarray, bits: int, **more: Any) -> None:
    given = rows.astype(f"i{bits // 8}")
    out = np.zeros((ROWS, len(polys)), given.dtype)
    program = launching.compiled(kernel("run", polys, written(bits, **more)))
    program.launch("run", (1, 1, 1), (ROWS, 1, 1), [given, out, np.zeros(1, np.uint32)])
    for row, got in zip(rows.tolist(), out.tolist(), strict=True):
        at = dict(zip(NAMES, row, strict=True))
        expected = [p.evaluate(at.__getitem__) for p in polys]
        assert got == expected, [(str(p), g, x) for p, g, x in zip(polys, got, expected, strict=True) if g != x]


def random_poly(rng: random.Random, depth: int) -> Poly:
    """A polynomial over loop variables and sizes, with all kinds of atoms; divisors and extents are at least 1."""

    def positive() -> Poly:
        choices: list[IntLike] = [1, 2, 3, 8, 7, N, M, poly(N) + 3, poly(N) * M]
        return poly(rng.choice(choices))

    def leaf() -> IntLike:
        return rng.choice([I, J, N, M, rng.randint(-9, 9)])

    if depth == 0:
        return poly(leaf())
    a, b = (random_poly(rng, depth - 1) for _ in range(2))
    makers: list[Callable[[], Poly]] = [
        lambda: a + b,
        lambda: a - b,
        lambda: a * rng.randint(-5, 5) + leaf(),
        lambda: a * poly(leaf()) if len(a.terms) < 3 else a,
        lambda: a // positive(),
        lambda: a % positive(),
        lambda: extremum(rng.choice(["min", "max"]), a, b),
        lambda: boundary(rng.choice(MODES), a, positive()),
    ]
    return rng.choice(makers)()


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("seed", range(4))
def test_random_polynomials(seed: int, bits: int) -> None:
    rng, rows = random.Random(seed), values(seed)
    polys = []
    while len(polys) < 40:
        p = random_poly(rng, rng.randint(1, 4))
        largest = max(abs(p.evaluate(dict(zip(NAMES, row, strict=True)).__getitem__)) for row in rows.tolist())
        if largest < 1 << 20 and len(str(p)) < 400:
            polys.append(p)
    check(polys, rows, bits)


@pytest.mark.parametrize("bits", [32, 64])
def test_boundary_modes_far_from_the_axis(bits: int) -> None:
    rows = values(7)
    rows[:, 0] = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, ROWS)
    rows[:8, 0], rows[:8, 2] = range(-4, 4), 1
    polys = [
        boundary(mode, p, n) for mode in MODES for p in (poly(I), poly(I) - 3 * poly(J)) for n in (poly(N), poly(5))
    ]
    check([*polys, *(p * M + J for p in polys)], rows, bits)


def test_not_negative() -> None:
    """Where the sign is known, division is C's of unsigned integers."""
    rows = abs(values(3))
    p = [(poly(I) + J) // 3, (poly(I) * J) % 7, poly(I) // N, poly(J) % (poly(M) + 1)]
    indices = written(32, not_negative=lambda p: True)
    assert [indices.text(x) for x in p] == [
        f"((i32)((u32){p} {op} (u32){q}))"
        for p, op, q in (("(i + j)", "/", "3"), ("(i * j)", "%", "7"), ("i", "/", "n"), ("j", "%", "(m + 1)"))
    ]
    check(p, rows, 32, not_negative=lambda p: True)


def test_signs() -> None:
    signs = Signs([I, N])
    natural = [
        poly(I) * 3 + N,
        poly(J) % 5,
        (poly(I) + 2) // N,
        extremum("max", poly(I), poly(J)),
        boundary("clamp", poly(J), poly(N)),
    ]
    unknown = [poly(I) - 1, poly(I) - N, poly(J), poly(I) * J, poly(J) // 3, extremum("min", poly(I), poly(J))]
    assert all(map(signs.is_natural, natural)) and not any(map(signs.is_natural, unknown))
    signs.bind(J, poly(I), poly(N))
    assert signs.is_natural(poly(J))
    signs.bind(J, poly(I), poly(N) - 1)
    assert not signs.is_natural(poly(J))


def test_texts() -> None:
    t = written(32).text
    assert t(poly(-7)) == "(-7)"
    assert t(poly(I)) == "i"
    assert t(-poly(I)) == "(-i)"
    assert t(-2 * poly(I) * N - poly(J) + 1) == "(-2 * i * n - j + 1)"
    assert t(poly(I) // 8) == "(i >> 3)"
    assert t(poly(I) % 8) == "(i & 7)"
    assert t(poly(I) // 3) == "hj_index_div_i32(i, 3)"
    assert written(64).text(3 * poly(I) + (1 << 40)) == "(3 * i + ((i64)(1099511627776)))"
    assert t(boundary("reflect", poly(I) - 1, N)) == "hj_index_reflect_i32((i - 1), n)"
    assert t(poly(I) * N) == "(i * n)"
    with pytest.raises(KeyError):
        t(poly(Dim(0)))
    with pytest.raises(CompileError, match="32 bits"):
        t(poly(I) + (1 << 31))


# -- values as indices


DTYPES = tuple(map(np.dtype, "?bBhHiIqQ"))


def gather(dtype: np.dtype[Any], bits: int) -> str:
    """Two indices of each element: one of an axis of 10, one that is known to be in range."""
    load = Load("t", (poly(I),), dtype)
    indices = written(bits, value=lambda e: Operand("x", dtype))
    checked, free = Indirect(load, poly(10)), Indirect(load, None)
    t, memory = c_type(dtype), storage_type(dtype)
    return f"""HJ_KERNEL(run_{t}, 1, 1, 1)(HJ_GLOBAL const {memory} *in, HJ_GLOBAL i{bits} *out, HJ_GLOBAL u32 *status) {{
    const {t} x = in[HJ_BLOCK_X];
    out[2 * HJ_BLOCK_X] = {indices.text(poly(checked) * 2 + 1)};
    out[2 * HJ_BLOCK_X + 1] = {indices.text(poly(free))};
}}"""


@pytest.mark.parametrize("bits", [32, 64])
def test_gather(bits: int) -> None:
    """Negative indices count from the end; those out of bounds are seen."""
    program = launching.compiled("\n".join(gather(t, bits) for t in DTYPES))

    def run(dtype: np.dtype[Any], given: list[int]) -> tuple[np.ndarray, int]:
        x = np.array(given, dtype)
        out, status = np.zeros((len(x), 2), f"i{bits // 8}"), np.zeros(1, np.uint32)
        program.launch(f"run_{c_type(dtype)}", (len(x), 1, 1), (1, 1, 1), [x, out, status])
        return out, int(status[0])

    for dtype in DTYPES:
        inside = [0, 1] if dtype.kind == "b" else [0, 9, 5] if dtype.kind == "u" else [0, 9, -1, -10]
        out, status = run(dtype, inside)
        assert out.tolist() == [[2 * (k % 10) + 1, k] for k in inside] and status == 0
        info = None if dtype.kind == "b" else np.iinfo(dtype)
        for bad in () if info is None else (10, info.max, info.min, -11) if info.min else (10, info.max):
            out, status = run(dtype, [3, bad])
            if bad == (1 << 64) - 1:  # is -1 to NumPy, too
                assert status == 0 and out[:, 0].tolist() == [7, 19]
            else:
                assert status == 1 and out[:, 0].tolist() == [7, 1], (dtype, bad)


def test_indices_are_integers() -> None:
    load = Load("t", (poly(I),), np.dtype("f4"))
    with pytest.raises(CompileError, match="float32"):
        written(32, value=lambda e: Operand("x", np.dtype("f4"))).text(poly(Indirect(load, None)))


@pytest.mark.skipif(not nvrtc.is_available(), reason="the package nvidia-cuda-nvrtc is not installed")
def test_the_same_text_is_cuda() -> None:
    atoms: list[Atom] = [a for mode in MODES for a in boundary(mode, poly(I), N).atoms()]
    polys = [poly(a) for a in atoms] + [poly(I) // 3, poly(I) % N, extremum("min", I, J), poly(I) // 4]
    for bits in (32, 64):
        assert "run" in nvrtc.compiled(kernel("run", polys, written(bits)), 90).resources
