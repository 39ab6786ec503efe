"""NumPy's own formulas for complex numbers, on the parts: one row of `FORMULAS` is one ufunc.

Where a row has the bits of NumPy's loop, it computes in its order. `np.multiply` and `np.square` are rounded once per
product where the processor has such an instruction (`fuses`), scalars are not: `a[0] * b[0]` differs from
``a * b`` in the last bits. ufuncs without a row are called as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op, select
from hjit.trace.ops.complex_numbers.operands import Complex

_BOOL = np.dtype(bool)
# exp is computed in two factors above this, as it overflows although its product with a sine does not
_LARGE = {4: 88.0, 8: 709.0}
_OF_LARGE = {4: np.exp(np.float64(88.0)), 8: np.exp(np.float64(709.0))}


def _op(name: str, *args: Expr) -> Expr:
    return Op(name, args, args[0].dtype)


def _is(name: str, *args: Expr) -> Expr:
    return Op(name, args, _BOOL)


def _number(value: float, like: Expr) -> Expr:
    return Const(value, like.dtype)


@functools.lru_cache(maxsize=2)
def fuses(itemsize: int) -> bool:
    """Does NumPy round ``a.real * b.real - (a.imag * b.imag)`` once less?"""
    part = np.dtype(f"f{itemsize}")
    small = part.type(2.0 ** (-(np.finfo(part).nmant // 2) - 1))
    a, b = np.empty((2, 8), np.result_type(part, np.complex64))
    a.real, a.imag = 1 + small, 1
    b.real, b.imag = 1 + small, 1 + 2 * small
    return bool(np.all(np.multiply(a, b).real != 0))


def _product(a: Complex, b: Complex, is_plain: bool) -> Complex:
    first, second = _op("multiply", a.im, b.im), _op("multiply", a.im, b.re)
    if not is_plain and fuses(a.re.dtype.itemsize):
        return Complex(_op("fma", a.re, b.re, _op("negative", first)), _op("fma", a.re, b.im, second))
    return Complex(_op("subtract", _op("multiply", a.re, b.re), first), _op("add", _op("multiply", a.re, b.im), second))


def _each(name: str) -> Callable[..., Complex]:
    def formula(*args: Complex, is_plain: bool = False) -> Complex:
        return Complex(_op(name, *(x.re for x in args)), _op(name, *(x.im for x in args)))

    return formula


def _tested(name: str, joined: str) -> Callable[..., Expr]:
    """A test of both parts."""

    def formula(*args: Complex, is_plain: bool = False) -> Expr:
        return _is(joined, _is(name, *(x.re for x in args)), _is(name, *(x.im for x in args)))

    return formula


def truth(a: Complex) -> Expr:
    """Is a number not 0?"""
    zero = _number(0, a.re)
    return _is("logical_or", _is("not_equal", a.re, zero), _is("not_equal", a.im, zero))


def _divide(a: Complex, b: Complex, is_plain: bool = False) -> Complex:
    """R. Smith's division (1962), as NumPy has it: by the larger part of the divisor."""
    re, im = _op("absolute", b.re), _op("absolute", b.im)
    by_real = _is("greater_equal", re, im)
    large, small = select(by_real, b.re, b.im), select(by_real, b.im, b.re)
    first, second = select(by_real, a.re, a.im), select(by_real, a.im, a.re)
    ratio = _op("true_divide", small, large)
    scale = _op("true_divide", _number(1, large), _op("add", large, _op("multiply", small, ratio)))
    along, across = _op("multiply", second, ratio), _op("multiply", first, ratio)
    imaginary = select(by_real, _op("subtract", second, across), _op("subtract", across, second))
    zero = _number(0, re)
    is_zero = _is("logical_and", _is("equal", re, zero), _is("equal", im, zero))
    return Complex(
        select(is_zero, _op("true_divide", a.re, re), _op("multiply", _op("add", first, along), scale)),
        select(is_zero, _op("true_divide", a.im, re), _op("multiply", imaginary, scale)),
    )


def _reciprocal(a: Complex, is_plain: bool = False) -> Complex:
    by_real = _is("less_equal", _op("absolute", a.im), _op("absolute", a.re))
    large, small = select(by_real, a.re, a.im), select(by_real, a.im, a.re)
    ratio, one = _op("true_divide", small, large), _number(1, large)
    divisor = _op("add", large, _op("multiply", small, ratio))
    by_one, by_ratio = _op("true_divide", one, divisor), _op("true_divide", ratio, divisor)
    minus_ratio = _op("true_divide", _op("negative", ratio), divisor)
    minus_one = _op("true_divide", _number(-1, large), divisor)
    return Complex(select(by_real, by_one, by_ratio), select(by_real, minus_ratio, minus_one))


def _exp(a: Complex, is_plain: bool = False) -> Complex:
    """``exp(re) * (cos(im) + i sin(im))``, with the special values of C99."""
    large = _number(_LARGE[a.re.dtype.itemsize], a.re)
    is_large = _is("greater", a.re, large)
    size = _op("exp", select(is_large, _op("subtract", a.re, large), a.re))
    factor = select(is_large, _number(float(_OF_LARGE[a.re.dtype.itemsize]), a.re), _number(1, a.re))
    re = _op("multiply", size, _op("multiply", factor, _op("cos", a.im)))
    im = _op("multiply", size, _op("multiply", factor, _op("sin", a.im)))
    zero = _number(0, a.re)
    odd = _is("logical_not", _is("isfinite", a.im))
    lost = _is("logical_and", odd, _is("equal", a.re, _number(-np.inf, a.re)))  # a zero, whatever its angle
    endless = _is("logical_and", odd, _is("equal", a.re, _number(np.inf, a.re)))
    re = select(endless, _number(np.inf, a.re), select(lost, zero, re))
    im = select(_is("equal", a.im, zero), a.im, select(lost, _op("copysign", zero, a.im), im))
    return Complex(re, im)


MAX_MULTIPLIED_POWER = 99  # the largest exponent that NumPy multiplies out


def whole_power(a: Complex, n: int) -> Complex:
    """``np.power(a, n)``, in the order of NumPy's products, for an exponent from 1 to `MAX_MULTIPLIED_POWER`."""
    zero = _number(0, a.re)
    if n < 4:
        found = (a, a, _product(a, a, True), _product(a, _product(a, a, True), True))[n]
    else:
        found, square, left = Complex(_number(1, a.re), zero), a, n
        while left:
            found = _product(found, square, True) if left & 1 else found
            left >>= 1
            square = _product(square, square, True) if left else square
    is_zero = _is("logical_and", _is("equal", a.re, zero), _is("equal", a.im, zero))
    return Complex(select(is_zero, zero, found.re), select(is_zero, zero, found.im)) if n > 1 else a


def _multiply(a: Complex, b: Complex, is_plain: bool = False) -> Complex:
    return _product(a, b, is_plain)


def _square(a: Complex, is_plain: bool = False) -> Complex:
    return _product(a, a, is_plain)


def _absolute(a: Complex, is_plain: bool = False) -> Expr:
    return _op("hypot", a.re, a.im)


def _conjugate(a: Complex, is_plain: bool = False) -> Complex:
    return Complex(a.re, _op("negative", a.im))


def _positive(a: Complex, is_plain: bool = False) -> Complex:
    return a


def _not(a: Complex, is_plain: bool = False) -> Expr:
    return _is("logical_not", truth(a))


def _of_truths(name: str) -> Callable[..., Expr]:
    def formula(a: Complex, b: Complex, is_plain: bool = False) -> Expr:
        return _is(name, truth(a), truth(b))

    return formula


Formula = Callable[..., Any]  # of the operands, and whether they are scalars: a `Complex`, or an expression
FORMULAS: dict[str, Formula] = {
    "add": _each("add"),
    "subtract": _each("subtract"),
    "negative": _each("negative"),
    "multiply": _multiply,
    "square": _square,
    "true_divide": _divide,
    "reciprocal": _reciprocal,
    "positive": _positive,
    "conjugate": _conjugate,
    "absolute": _absolute,
    "exp": _exp,
    "equal": _tested("equal", "logical_and"),
    "not_equal": _tested("not_equal", "logical_or"),
    "isnan": _tested("isnan", "logical_or"),
    "isinf": _tested("isinf", "logical_or"),
    "isfinite": _tested("isfinite", "logical_and"),
    "logical_not": _not,
    **{name: _of_truths(name) for name in ("logical_and", "logical_or", "logical_xor")},
}


def computed(name: str, operands: Sequence[Complex], is_plain: bool) -> Any:
    """The result of a ufunc that has a row: a `Complex`, or an expression."""
    return FORMULAS[name](*operands, is_plain=is_plain)
