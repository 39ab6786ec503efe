"""Every ufunc and cast of `hjit.kernels.llvm.vecmath.apply` against NumPy, on vectors of several lengths."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from numba.core.codegen import JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock

from hjit.errors import CompileError
from hjit.kernels.llvm.builder.code import Code, Val, const, splat, type_name
from hjit.kernels.llvm.vecmath import apply as vecmath
from hjit.kernels.runtime import features
from hjit.sched.language.target import native_width
from hjit.trace.ops.elementwise.ufuncs import UFUNCS

DType = np.dtype[Any]
BOOL = np.dtype(bool)
FEATURES = features.host_features()
WIDTH = native_width(FEATURES)
INTS = "bBhHiIqQ"
ALL = tuple(map(np.dtype, "?" + INTS + "efd"))
TRANSCENDENTAL = frozenset(
    {
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "logaddexp",
        "logaddexp2",
        "sin",
        "cos",
        "tan",
        "arcsin",
        "arccos",
        "arctan",
        "arctan2",
        "hypot",
        "sinh",
        "cosh",
        "tanh",
        "arcsinh",
        "arccosh",
        "arctanh",
        "cbrt",
        "power",
        "float_power",
    }
)
_KEEP: list[Any] = []


@dataclass(frozen=True)
class Case:
    """One function to compile: a loop over arrays of `inputs`, `lanes` at a time."""

    inputs: tuple[DType, ...]
    output: DType
    lanes: int
    emit: Callable[[Code, tuple[Val, ...]], Val]
    width: int = WIDTH
    features: frozenset[str] = FEATURES


def _stored(dtype: DType, lanes: int) -> str:
    return type_name(np.dtype("u1") if dtype == BOOL else dtype, lanes)


def _function(name: str, case: Case) -> tuple[str, dict[str, None]]:
    code, n = Code(case.width, case.features), case.lanes
    before, args = [], []
    for k, t in enumerate(case.inputs):
        before += [
            f"%p{k} = getelementptr i8, ptr %a{k}, i64 %o{k}",
            f"%x{k} = load {_stored(t, n)}, ptr %p{k}, align 1",
        ]
        before.insert(0, f"%o{k} = mul i64 %i, {t.itemsize}")
        if t == BOOL:
            before.append(f"%y{k} = trunc {_stored(t, n)} %x{k} to {type_name(t, n)}")
        args.append(Val(f"%{'y' if t == BOOL else 'x'}{k}", t, n))
    result = case.emit(code, tuple(args))
    assert (result.dtype, result.lanes) == (case.output, n), name
    after, text = [], result.text
    if case.output == BOOL:
        after.append(f"%stored = zext {result} to {_stored(BOOL, n)}")
        text = "%stored"
    after += [
        f"%oo = mul i64 %i, {case.output.itemsize}",
        "%po = getelementptr i8, ptr %out, i64 %oo",
        f"store {_stored(case.output, n)} {text}, ptr %po, align 1",
    ]
    parameters = ", ".join(f"ptr %a{k}" for k in range(len(case.inputs)))
    return (
        f"""define void @{name}({parameters}, ptr noalias %out, i64 %n) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  {chr(10).join(before)}
{code.text()}
  {chr(10).join(after)}
  %next = add i64 %i, {n}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}""",
        code.declarations,
    )


def build(cases: list[Case]) -> list[Callable[..., np.ndarray]]:
    """The cases as functions of equally long arrays, whose length is a multiple of the lanes."""
    features.load_libraries()
    parts, declarations = [], dict[str, None]()
    for k, case in enumerate(cases):
        text, needed = _function(f"case{k}", case)
        parts.append(text)
        declarations.update(needed)
    attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }'
    with global_compiler_lock:
        codegen = JITCPUCodegen("test_vecmath")  # type: ignore[no-untyped-call]
        module = llvm.parse_assembly("\n".join([*declarations, *parts, attributes]))
        library = codegen.create_library("test_vecmath")  # type: ignore[no-untyped-call]
        library.add_llvm_module(module)
        library.finalize()
        addresses = [library.get_pointer_to_function(f"case{k}") for k in range(len(cases))]
    _KEEP.append((codegen, library))

    def bind(case: Case, address: int) -> Callable[..., np.ndarray]:
        c = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(case.inputs) + 1), ctypes.c_int64)(address)

        def run(*arrays: np.ndarray) -> np.ndarray:
            assert tuple(a.dtype for a in arrays) == case.inputs and arrays[0].size % case.lanes == 0
            out = np.empty(arrays[0].size, case.output)
            c(*(a.ctypes.data for a in arrays), out.ctypes.data, arrays[0].size)
            return out

        return run

    return [bind(case, a) for case, a in zip(cases, addresses, strict=True)]


# -- arguments


@lru_cache
def specials(dtype: DType) -> np.ndarray:
    if dtype == BOOL:
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = [
            0,
            1,
            2,
            3,
            7,
            8,
            15,
            31,
            32,
            63,
            64,
            100,
            info.max,
            info.max - 1,
            info.max // 2,
            info.min,
            info.min + 1,
            -1,
            -2,
            -3,
            -7,
            -8,
            -64,
            -100,
        ]
        return np.array([v for v in near if info.min <= v <= info.max], dtype)
    f = np.finfo(dtype)
    tiny = float(f.smallest_subnormal)
    values = [
        0.0,
        1.0,
        0.5,
        1.5,
        2.0,
        2.5,
        3.0,
        7.25,
        10.0,
        100.0,
        1000.0,
        f.max,
        f.tiny,
        tiny,
        3 * tiny,
        1 + f.eps,
        1 - f.epsneg,
        f.eps,
        float(f.max) / 3,
        float(f.tiny) / 3,
        0.1,
        np.pi / 2,
        np.pi,
        1e-3,
        np.inf,
        np.nan,
        1 / f.eps,
        11.0,
        88.5,
        709.5,
    ]
    with np.errstate(over="ignore"):
        a = np.array(values, dtype)
    return np.concatenate([a, -a])


def _random(dtype: DType, n: int, rng: np.random.Generator) -> np.ndarray:
    if dtype == BOOL:
        return rng.integers(0, 2, n).astype(bool)
    raw = rng.integers(0, 256, n * dtype.itemsize, np.uint8).view(dtype)
    if dtype.kind in "iu":
        small = rng.integers(0 if dtype.kind == "u" else -20, 20, n).astype(dtype)
        return np.where(rng.random(n) < 0.5, raw, small)
    scaled = (rng.normal(size=n) * 10 ** rng.uniform(-4, 4, n)).astype(dtype)
    return np.where(rng.random(n) < 0.3, raw, scaled)


@lru_cache(maxsize=64)
def arguments(dtypes: tuple[DType, ...], n: int = 4096) -> tuple[np.ndarray, ...]:
    """All special values crossed with each other, and random ones; the length is a multiple of 256."""
    rng = np.random.default_rng(0)
    crossed = [a.ravel() for a in np.meshgrid(*map(specials, dtypes), indexing="ij")]
    total = -(-(crossed[0].size + n) // 256) * 256
    with np.errstate(all="ignore"):
        return tuple(np.concatenate([c, _random(t, total - c.size, rng)]) for c, t in zip(crossed, dtypes, strict=True))


def lane_counts(dtype: DType) -> tuple[int, ...]:
    native = WIDTH // dtype.itemsize
    return tuple(sorted({1, max(native // 4, 2), native, 2 * native}))


# -- comparison


def _order(a: np.ndarray) -> np.ndarray:
    """Floats as integers, such that neighbours differ by 1."""
    word = a.view(f"i{a.dtype.itemsize}")
    low = np.array(np.iinfo(word.dtype).min, word.dtype)
    return np.where(word < 0, low - word, word)


def assert_same(got: np.ndarray, expected: np.ndarray, inputs: tuple[np.ndarray, ...], what: str) -> None:
    assert got.dtype == expected.dtype
    if got.dtype.kind == "f":
        bits = f"u{got.dtype.itemsize}"
        wrong = (got.view(bits) != expected.view(bits)) & ~(np.isnan(got) & np.isnan(expected))
    else:
        wrong = got != expected
    if wrong.any():
        i = np.nonzero(wrong)[0][:5]
        pytest.fail(
            f"{what}: {wrong.sum()} differ; of {[a[i].tolist() for a in inputs]} got {got[i].tolist()}, NumPy {expected[i].tolist()}"
        )


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance from the correctly rounded value, in units of the last place; NaN against a number is huge."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
    a, b = _order(got), _order(rounded)
    distance = np.where(a > b, a.astype(np.uint64) - b.astype(np.uint64), b.astype(np.uint64) - a.astype(np.uint64))
    distance = np.where(np.isnan(got) & np.isnan(rounded), 0, distance)
    distance = np.where(np.isnan(got) != np.isnan(rounded), 1 << 62, distance)
    zero_sign = (rounded == 0) & (exact == 0) & (got == 0) & (np.signbit(got) != np.signbit(rounded))
    return np.where(zero_sign, 1 << 61, distance)


def exactly(ufunc: np.ufunc, args: tuple[np.ndarray, ...]) -> np.ndarray:
    """The value in a format with at least 11 more bits."""
    wide = np.float64 if args[0].dtype.itemsize < 8 else np.longdouble
    with np.errstate(all="ignore"):
        return np.asarray(
            ufunc(*(a.astype(wide) * 1 for a in args))
        )  # times 1: NaN that signals need not be as other NaN are


# -- ufuncs


def _loops(name: str) -> list[tuple[tuple[DType, ...], DType]]:
    found: dict[tuple[tuple[DType, ...], DType], None] = {}
    for row in getattr(np, name).types:
        ins, out = row.split("->")
        if set(ins + out) <= set("?efd" + INTS):
            found[tuple(map(np.dtype, ins)), np.dtype(out)] = None
    return list(found)


def _arguments_of(name: str, inputs: tuple[DType, ...]) -> tuple[np.ndarray, ...]:
    args = arguments(inputs)
    if name in ("power", "float_power") and inputs[0].kind == "i":
        with np.errstate(all="ignore"):
            args = (args[0], np.where(args[1] < 0, ~args[1], args[1]))
    if name == "ldexp":  # half of the exponents where results are neither zero nor infinite
        near = np.random.default_rng(1).integers(-2200, 2200, args[1].size).astype(inputs[1])
        args = (args[0], np.where(np.arange(near.size) % 2 == 0, near, args[1]))
    return args


def _cases(name: str) -> list[Case]:
    return [
        Case(ins, out, lanes, lambda code, args, out=out: vecmath.apply(code, name, args, out))  # type: ignore[misc]
        for ins, out in _loops(name)
        for lanes in lane_counts(ins[0])
    ]


@pytest.mark.parametrize("name", sorted(UFUNCS))
def test_ufunc(name: str) -> None:
    cases = _cases(name)
    ufunc = getattr(np, name)
    for case, run in zip(cases, build(cases), strict=True):
        args = _arguments_of(name, case.inputs)
        what = f"{name} {[str(t) for t in case.inputs]} x{case.lanes}"
        _check(name, ufunc, run(*args), args, what)


def _check(name: str, ufunc: np.ufunc, got: np.ndarray, args: tuple[np.ndarray, ...], what: str) -> None:
    with np.errstate(all="ignore"):
        if name not in TRANSCENDENTAL or got.dtype.kind != "f":
            assert_same(got, ufunc(*args), args, what)
        elif name.startswith("logaddexp") and got.dtype.itemsize == 8:
            _check_log_of_sum(ufunc, got, args, what)
        else:
            _check_accuracy(ufunc, got, args, what)


def _check_log_of_sum(ufunc: np.ufunc, got: np.ndarray, args: tuple[np.ndarray, ...], what: str) -> None:
    """NumPy's own formula, which cancels near zero: as exact as the larger argument is."""
    expected = ufunc(*args)
    scale = np.maximum(np.maximum(abs(args[0]), abs(args[1])), 1)
    close = (
        (got == expected)
        | (abs(got - expected) <= 4 * np.finfo(got.dtype).eps * scale)
        | (np.isnan(got) & np.isnan(expected))
    )
    assert close.all(), f"{what}: {[a[~close][:5] for a in args]}"


def _check_accuracy(ufunc: np.ufunc, got: np.ndarray, args: tuple[np.ndarray, ...], what: str) -> None:
    exact = exactly(ufunc, args)
    error = ulps(got, exact)
    if error.max() > 4:
        i = np.argsort(error)[-4:]
        pytest.fail(
            f"{what}: {(error > 4).sum()} beyond 4 ulp, {error.max()}; of {[a[i].tolist() for a in args]} got {got[i].tolist()},"
            f" exact {exact[i].tolist()}"
        )


def _wide_arguments(inputs: tuple[DType, ...]) -> tuple[np.ndarray, ...]:
    """1e5 arguments over the ranges in which the functions of the C library change their ways."""
    rng, t, n = np.random.default_rng(7), inputs[0], 16384
    overflow = 89.0 if t.itemsize == 4 else 710.0
    draws: list[Callable[[np.random.Generator], np.ndarray]] = [
        lambda r: r.normal(size=n) * 10 ** r.uniform(-9, 9, n),
        lambda r: r.uniform(-1, 1, n),
        lambda r: r.uniform(-30, 30, n),
        lambda r: 1 + r.normal(size=n) * 10 ** r.uniform(-16, 0, n),
        lambda r: r.uniform(-1.2 * overflow, overflow, n),
        lambda r: np.pi / 4 * r.integers(-4000, 4000, n),
    ]
    parts = [tuple(draw(rng).astype(t) for _ in inputs) for draw in draws]
    if len(inputs) == 2:
        base = np.exp(rng.uniform(-0.9, 0.9, n) * overflow)
        parts.append((base.astype(t), (overflow * rng.uniform(-1.2, 1.1, n) / np.log(base)).astype(t)))
    columns = [np.concatenate(p) for p in zip(*parts, strict=True)]
    return tuple(np.concatenate([a, c]) for a, c in zip(arguments(inputs, 16384), columns, strict=True))


@pytest.mark.parametrize("name", sorted(TRANSCENDENTAL - {"float_power", "logaddexp", "logaddexp2"}))
def test_accuracy_at_every_vector_width(name: str) -> None:
    ufunc = getattr(np, name)
    for t in map(np.dtype, "fd"):
        kinds = [(w, w // t.itemsize, FEATURES) for w in (16, 32, 64) if w <= WIDTH] + [
            (WIDTH, 2, FEATURES - {"libmvec"})
        ]
        inputs = (t,) * ufunc.nin
        cases = [
            Case(inputs, t, n, lambda code, args, t=t: vecmath.apply(code, name, args, t), w, f) for w, n, f in kinds
        ]  # type: ignore[misc]
        args = _wide_arguments(inputs)
        with np.errstate(all="ignore"):
            exact = exactly(ufunc, args)
        for (width, lanes, _), run in zip(kinds, build(cases), strict=True):
            error = ulps(run(*args), exact)
            i = int(error.argmax())
            assert error[i] <= 4, f"{name} of {[a[i] for a in args]}, {lanes} lanes of {width} bytes: {error[i]} ulp"


def test_hypot_has_the_bits_of_glibc() -> None:
    """Those of its formula since 2.35, which other C libraries need not have."""
    t = np.dtype("d")
    cases = [Case((t, t), t, n, lambda code, args: vecmath.apply(code, "hypot", args, t)) for n in (1, 2)]  # type: ignore[misc]
    rng = np.random.default_rng(0)
    x, y = [a.ravel().astype(t) for a in np.mgrid[1:200, :200]]
    x, y = np.concatenate([x, rng.random(9800)]), np.concatenate([y, rng.random(9800) * np.exp(-rng.random(9800) * 40)])
    a, b = np.maximum(x, y), np.minimum(x, y)
    h = np.sqrt(a * a + b * b)
    near, far = h - b, h - a
    excess = np.where(
        h <= 2 * b,
        a * (2 * near - a) + (near - 2 * (a - b)) * near,
        2 * far * (a - 2 * b) + ((4 * far - b) * b + far * far),
    )
    expected = np.where(b <= a * 2.0**-54, a + b, h - excess / (2 * h))
    for run in build(cases):
        np.testing.assert_array_equal(run(x, y), expected)


FEWER = (
    (32, FEATURES - {"avx512"}),
    (16, frozenset({"x86"})),
)


@pytest.mark.parametrize(("width", "features"), FEWER, ids=["avx2", "sse"])
def test_lesser_processors(width: int, features: frozenset[str]) -> None:
    names = (
        "add",
        "maximum",
        "fmin",
        "remainder",
        "floor_divide",
        "fmod",
        "exp",
        "power",
        "sign",
        "nextafter",
        "spacing",
        "ldexp",
        "rint",
        "reciprocal",
        "isnan",
    )
    cases, of = [], []
    for name in names:
        for ins, out in _loops(name):
            for lanes in (1, width // ins[0].itemsize):
                cases.append(
                    Case(
                        ins,
                        out,
                        lanes,
                        lambda code, args, name=name, out=out: vecmath.apply(code, name, args, out),  # type: ignore[misc]
                        width,
                        features,
                    )
                )
                of.append(name)
    for name, case, run in zip(of, cases, build(cases), strict=True):
        args = _arguments_of(name, case.inputs)
        _check(name, getattr(np, name), run(*args), args, f"{name} {[str(t) for t in case.inputs]} x{case.lanes}")


_INT_CONSTANTS = (0, 1, 2, 3, 5, 7, 8, 10, 100, 127, -1, -2, -3, -8, -128)


@pytest.mark.parametrize(
    "name", ["floor_divide", "remainder", "fmod", "power", "left_shift", "right_shift", "maximum", "multiply"]
)
def test_constant_second_argument(name: str) -> None:
    cases, values = [], []
    for ins, out in _loops(name):
        t = ins[1]
        if t.kind == "f":
            chosen: tuple[Any, ...] = (0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 4.0, 0.5, -0.5, 0.25, 360.0, 1 / 3, float("inf"))
        elif t.kind == "b":
            chosen = (False, True)
        else:
            info = np.iinfo(t)
            chosen = tuple(
                v
                for v in (*_INT_CONSTANTS, info.min, info.max)
                if info.min <= v <= info.max and (name != "power" or v >= 0)
            )
        for value in chosen:
            for lanes in (1, WIDTH // ins[0].itemsize):
                cases.append(
                    Case(
                        ins[:1],
                        out,
                        lanes,
                        lambda code, args, v=value, t=t, out=out: (  # type: ignore[misc]
                            vecmath.apply(code, name, (args[0], const(v, t, args[0].lanes)), out)
                        ),
                    )
                )
                values.append(value)
    for case, value, run in zip(cases, values, build(cases), strict=True):
        (x,) = arguments(case.inputs)
        args = (x, np.full_like(x, value))
        _check(name, getattr(np, name), run(x), args, f"{name} {case.inputs[0]} by {value} x{case.lanes}")


@pytest.mark.parametrize("name", ["exp", "log", "power", "remainder"])
def test_odd_lane_counts(name: str) -> None:
    ufunc = getattr(np, name)
    cases = [
        Case((t,) * ufunc.nin, t, n, lambda code, args, t=t: vecmath.apply(code, name, args, t))  # type: ignore[misc]
        for t in map(np.dtype, "efd")
        for n in (2, 3, 5, 24)
    ]
    for case, run in zip(cases, build(cases), strict=True):
        args = tuple(a[: a.size // 120 * 120] for a in arguments(case.inputs))
        _check(name, ufunc, run(*args), args, f"{name} {case.output} x{case.lanes}")


def test_select() -> None:
    cases = [
        Case((BOOL, t, t), t, lanes, lambda code, args, t=t: vecmath.apply(code, "select", args, t))  # type: ignore[misc]
        for t in ALL
        for lanes in lane_counts(t)
    ]
    for case, run in zip(cases, build(cases), strict=True):
        args = arguments(case.inputs)
        assert_same(run(*args), np.where(*args), args, f"select {case.output} x{case.lanes}")


def test_scalar_argument_in_all_lanes() -> None:
    t = np.dtype("f4")
    case = Case(
        (t,), t, 16, lambda code, args: vecmath.apply(code, "power", (args[0], splat(code, const(2.5, t), 16)), t)
    )
    (x,) = arguments((t,))
    _check_accuracy(np.power, build([case])[0](x), (x, np.full_like(x, 2.5)), "power by 2.5")


def test_unknown_ufunc() -> None:
    with pytest.raises(CompileError, match="frexp"):
        vecmath.apply(Code(), "frexp", (Val("%x", np.dtype("f4")),), np.dtype("f4"))


# -- casts


def _cast_arguments(source: DType) -> np.ndarray:
    """Special values and, for floats, the edges of the integers and the middles between halves; the length is a multiple of 768."""
    (x,) = arguments((source,), 8192)
    if source.kind == "f":
        rng = np.random.default_rng(1)
        with np.errstate(all="ignore"):
            edges = (
                rng.choice([-1.0, 1.0], 2048) * 2.0 ** rng.integers(5, 66, 2048) + rng.integers(-3, 3, 2048) / 2
            ).astype(source)
            halves = (
                rng.integers(0, 1 << 16, 8192).astype(np.uint16).view(np.float16).astype(np.float64)
                * (1 + 2.0**-11)
                * (1 + rng.integers(-1, 2, 8192) * 2.0 ** -rng.integers(20, 53, 8192))
            ).astype(source)
        x = np.concatenate([x, edges, halves])
    return np.concatenate([x, x[: -x.size % 768]])


@pytest.mark.parametrize("source", ALL, ids=str)
@pytest.mark.parametrize(("width", "features"), ((WIDTH, FEATURES), *FEWER), ids=["native", "avx2", "sse"])
def test_convert(source: DType, width: int, features: frozenset[str]) -> None:
    native = width // source.itemsize
    cases = [
        Case((source,), t, lanes, lambda code, args, t=t: vecmath.convert(code, args[0], t), width, features)  # type: ignore[misc]
        for t in ALL
        for lanes in sorted({1, 3, max(native // 4, 2), native, 2 * native})
    ]
    x = _cast_arguments(source)
    for case, run in zip(cases, build(cases), strict=True):
        with np.errstate(all="ignore"):
            assert_same(run(x), x.astype(case.output), (x,), f"{source} to {case.output} x{case.lanes}")


@pytest.mark.parametrize("source", [t for t in ALL if t.kind == "f"], ids=str)
def test_convert_saturates_on_other_processors(source: DType) -> None:
    targets = [t for t in ALL if t.kind in "iu"]
    cases = [
        Case((source,), t, 4, lambda code, args, t=t: vecmath.convert(code, args[0], t), 16, frozenset())  # type: ignore[misc]
        for t in targets
    ]
    x = _cast_arguments(source)
    for case, run in zip(cases, build(cases), strict=True):
        info = np.iinfo(case.output)
        with np.errstate(invalid="ignore"):
            wide = x.astype(np.float64)
        inside = (wide > float(info.min) - 1) & (wide < float(info.max)) | (wide == float(info.min))
        got = run(x)
        with np.errstate(all="ignore"):
            assert_same(got[inside], x[inside].astype(case.output), (x[inside],), f"{source} to {case.output}")
        assert (got[np.isnan(x)] == 0).all()
        assert (got[x == np.inf] == info.max).all()
