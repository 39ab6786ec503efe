"""Every ufunc and cast of `hjit.kernels.cuda.operations.ufuncs` against NumPy, compiled and run as `launching` says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hjit.errors import CompileError
from hjit.kernels.cuda import intrinsics, prelude
from hjit.kernels.cuda.ctext import Operand, constant, literal
from hjit.kernels.cuda.operations import libm, ufuncs
from hjit.kernels.llvm.vecmath import floats as llvm_floats
from hjit.kernels.llvm.vecmath import integers as llvm_integers
from hjit.kernels.llvm.vecmath.apply import ALIASES as LLVMALIASES
from hjit.trace.ops.elementwise.ufuncs import UFUNCS
from tests.kernels import test_vecmath as vectors
from tests.kernels.cuda.cases import Case, run
from tests.kernels.cuda.launching import needs_device

pytestmark = needs_device

ALL = vectors.ALL
BOOL = vectors.BOOL


def cases(name: str) -> list[Case]:
    """One for each of NumPy's loops."""
    return [
        Case(ins, out, lambda args, out=out: ufuncs.apply(name, args, out))  # type: ignore[misc]
        for ins, out in vectors._loops(name)
    ]


@pytest.mark.parametrize("name", sorted(UFUNCS))
def test_ufunc(name: str) -> None:
    mine = cases(name)
    arguments = [vectors._arguments_of(name, c.inputs) for c in mine]
    for case, args, got in zip(mine, arguments, run(mine, arguments), strict=True):
        vectors._check(name, getattr(np, name), got, args, f"{name} {[str(t) for t in case.inputs]}")


@pytest.mark.parametrize("name", sorted(vectors.TRANSCENDENTAL - {"float_power", "logaddexp", "logaddexp2"}))
def test_accuracy(name: str) -> None:
    ufunc = getattr(np, name)
    mine = [
        Case((t,) * ufunc.nin, t, lambda args, t=t: ufuncs.apply(name, args, t))  # type: ignore[misc]
        for t in map(np.dtype, "fd")
    ]
    arguments = [vectors._wide_arguments(c.inputs) for c in mine]
    for args, got in zip(arguments, run(mine, arguments), strict=True):
        with np.errstate(all="ignore"):
            error = vectors.ulps(got, vectors.exactly(ufunc, args))
        i = int(error.argmax())
        assert error[i] <= 4, f"{name} of {[a[i] for a in args]}: {error[i]} ulp"


def test_bounds_of_cuda_are_within_the_promise() -> None:
    assert all(bound <= 4 for f in libm.LIBM.values() for bound in (f.single, f.double))


def test_same_operations_as_for_the_cpu() -> None:
    """The tables name what the LLVM emitters name, for each kind of dtype that NumPy has a loop of."""
    integers = ufuncs.TABLES["i"].keys() | ufuncs.TABLES["u"].keys() | ufuncs.TABLES["b"].keys()
    assert integers == llvm_integers.EMITTERS.keys()
    assert ufuncs.FLOATS.keys() == llvm_floats.EMITTERS.keys()
    assert ufuncs.ALIASES == LLVMALIASES
    for name in sorted(UFUNCS):
        for ins, _ in vectors._loops(name):
            assert ufuncs.ALIASES.get(name, name) in ufuncs.TABLES[ins[0].kind], (name, ins)


def test_operands_are_written_once() -> None:
    """A text that stands twice in another makes texts that grow exponentially."""
    for name in sorted(UFUNCS):
        for ins, out in vectors._loops(name):
            args = [Operand(f"operand{k}", t) for k, t in enumerate(ins)]
            text = ufuncs.apply(name, args, out)
            assert all(text.count(a.text) <= 1 for a in args), text


@pytest.mark.parametrize(
    "name", ["floor_divide", "remainder", "fmod", "power", "left_shift", "right_shift", "maximum", "multiply"]
)
def test_constant_second_argument(name: str) -> None:
    mine, arguments, values = [], [], []
    for ins, out in vectors._loops(name):
        t = ins[1]
        if t.kind == "f":
            chosen: tuple[Any, ...] = (0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 4.0, 0.5, -0.5, 360.0, 1 / 3, float("inf"))
        elif t.kind == "b":
            chosen = (False, True)
        else:
            info = np.iinfo(t)
            near = (*vectors._INT_CONSTANTS, info.min, info.max)
            chosen = tuple(v for v in near if info.min <= v <= info.max and (name != "power" or v >= 0))
        for value in chosen:
            mine.append(
                Case(
                    ins[:1],
                    out,
                    lambda args, v=value, t=t, out=out: ufuncs.apply(name, (args[0], constant(v, t)), out),  # type: ignore[misc]
                )
            )
            (x,) = vectors.arguments(ins[:1])
            arguments.append((x[:1024],))
            values.append(value)
    for k in range(0, len(mine), 48):
        some = slice(k, k + 48)
        results = run(mine[some], arguments[some])
        for case, (x,), value, got in zip(mine[some], arguments[some], values[some], results, strict=True):
            what = f"{name} {case.inputs[0]} by {value}"
            vectors._check(name, getattr(np, name), got, (x, np.full_like(x, value)), what)


def test_select() -> None:
    mine = [Case((BOOL, t, t), t, lambda args, t=t: ufuncs.apply("select", args, t)) for t in ALL]  # type: ignore[misc]
    arguments = [vectors.arguments(c.inputs) for c in mine]
    for case, args, got in zip(mine, arguments, run(mine, arguments), strict=True):
        vectors.assert_same(got, np.where(*args), args, f"select {case.output}")


def test_inside() -> None:
    i8 = np.dtype("i8")
    args = vectors.arguments((i8, i8))
    args = (args[0], abs(args[1] >> 1))
    (got,) = run([Case((i8, i8), BOOL, lambda a: ufuncs.apply("inside", a, BOOL))], [args])
    assert (got == ((args[0] >= 0) & (args[0] < args[1]))).all()


def test_bitcast_both_ways() -> None:
    pairs = [(np.dtype(f"f{n}"), np.dtype(f"{kind}{n}")) for n in (2, 4, 8) for kind in "iu"]
    pairs += [(b, a) for a, b in pairs]
    mine = [Case((a,), b, lambda args, b=b: ufuncs.apply("bitcast", args, b)) for a, b in pairs]  # type: ignore[misc]
    arguments = [vectors.arguments((a,)) for a, _ in pairs]
    for (a, b), (x,), got in zip(pairs, arguments, run(mine, arguments), strict=True):
        assert got.tobytes() == x.view(b).tobytes(), (a, b)


def test_half_keeps_its_not_a_numbers() -> None:
    """The sign and the upper bits of a NaN come through a conversion, as they do on the CPU."""
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    single = np.array([0x7FC01234, 0xFFC02000, 0x7F802000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    f2, f4 = np.dtype("f2"), np.dtype("f4")
    mine = [Case((a,), b, lambda args, b=b: ufuncs.convert(args[0], b)) for a, b in ((f2, f4), (f4, f2))]  # type: ignore[misc]
    wide, narrow = run(mine, [(half,), (single,)])
    assert wide.tobytes() == half.astype(np.float32).tobytes()
    assert narrow.tobytes() == single.astype(np.float16).tobytes()


@pytest.mark.parametrize("name", ["reordered", "unordered"])
def test_sums_in_another_order_are_what_they_were(name: str) -> None:
    assert ufuncs.apply(name, [Operand("x", np.dtype("f8"))], np.dtype("f8")) == "x"


def test_no_contraction() -> None:
    """A product and a sum are rounded each alone."""
    mine, arguments, expected = [], [], []
    for t in map(np.dtype, "fd"):

        def text(args: Any, t: Any = t) -> str:
            product = Operand(ufuncs.apply("multiply", args[:2], t), t)
            return ufuncs.apply("add", (product, args[2]), t)

        rng = np.random.default_rng(0)
        a, b = (rng.normal(size=4096).astype(t) for _ in range(2))
        args = (a, b, -(a * b))
        mine.append(Case((t, t, t), t, text))
        arguments.append(args)
        expected.append(args[0] * args[1] + args[2])
    for got, value in zip(run(mine, arguments), expected, strict=True):
        assert (got == value).all()


def test_unknown_operations() -> None:
    f4 = np.dtype("f4")
    with pytest.raises(CompileError, match="frexp"):
        ufuncs.apply("frexp", (Operand("x", f4),), f4)
    with pytest.raises(CompileError, match="bitcast"):
        ufuncs.apply("bitcast", (Operand("x", f4),), np.dtype("i8"))


# -- casts and constants


@pytest.mark.parametrize("source", ALL, ids=str)
def test_convert(source: Any) -> None:
    mine = [Case((source,), t, lambda args, t=t: ufuncs.convert(args[0], t)) for t in ALL]  # type: ignore[misc]
    x = vectors._cast_arguments(source)
    for case, got in zip(mine, run(mine, [(x,)] * len(mine)), strict=True):
        with np.errstate(all="ignore"):
            vectors.assert_same(got, x.astype(case.output), (x,), f"{source} to {case.output}")


def test_literals() -> None:
    """Every special value as a constant, bit by bit."""
    mine, expected = [], []
    for t in ALL:
        values = vectors.specials(t)
        rows = "".join(f"i == {k} ? {literal(v, t)} : " for k, v in enumerate(values))
        mine.append(Case((t,), t, lambda args, rows=rows: f"({rows}{args[0].text})"))  # type: ignore[misc]
        expected.append(values)
    for got, values in zip(run(mine, [(np.zeros_like(v),) for v in expected]), expected, strict=True):
        assert got.tobytes() == values.tobytes(), values.dtype


def test_constants_are_converted_now() -> None:
    half = ufuncs.convert_operand(constant(300, np.dtype("i4")), np.dtype("u1"))
    assert (half.text, half.value) == ("((u8)(44u))", 44)


# -- the prelude


def test_definitions_come_in_order_and_when_used() -> None:
    names = prelude.needed("x = hj_lcm_i16(a, b);", "cuda")
    assert set(names) == {"hj_lcm_i16", "hj_lcm_u16", "hj_gcd_u16", "hj_absolute_i16"}
    assert names.index("hj_gcd_u16") < names.index("hj_lcm_u16") < names.index("hj_lcm_i16")
    assert prelude.needed("x = a + b;", "opencl") == ()


def test_both_languages_define_the_same_names() -> None:
    assert prelude.DEFINITIONS["cuda"].keys() == prelude.DEFINITIONS["opencl"].keys()
    macros = {
        language: {line.split()[1].partition("(")[0] for line in text.splitlines() if line.startswith("#define")}
        for language, text in prelude.HEADERS.items()
    }
    assert macros["cuda"] == macros["opencl"]
    assert intrinsics.lanes_type(BOOL, 16) == "u8x16"
