"""Matching the arguments of a call to the kernels of a bundle's function."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter as Of
from typing import Any

import numpy as np

from hjit.export.description import Description, Parameter
from hjit.export.numbers import FUNCTIONS, kind_of
from hjit.kernels.lower.params import SMALL_ARRAY
from hjit.kernels.runtime.sizes import evaluate
from hjit.trace.capture.trace import PyTree
from hjit.trace.tracing.scalars.host import same

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_POSITIONAL = (Of.POSITIONAL_ONLY, Of.POSITIONAL_OR_KEYWORD)
_ANY = inspect.Signature([Of("args", Of.VAR_POSITIONAL), Of("kwargs", Of.VAR_KEYWORD)])
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


class _LeftOut:
    """Stands for a default that a file cannot hold: where it is used, the argument stays left out."""

    def __repr__(self) -> str:
        return "..."


LEFT_OUT = _LeftOut()


def signature_of(function: Any) -> inspect.Signature:
    """The parameters of a function as it is called, not of what it wraps; anything, where Python does not say."""
    found = function
    while isinstance(found, functools.partial):
        found = found.func
    if isinstance(found, np.ufunc):  # it refuses some of its defaults where they are given
        return _ANY
    for follow in (False, True):  # functions of NumPy have a signature by what they wrap only
        with contextlib.suppress(TypeError, ValueError):
            return inspect.signature(function, follow_wrapped=follow)
    return _ANY


def binder(name: str, signature: inspect.Signature) -> Callable[..., Arguments]:
    """What turns the arguments of a call into those that kernels are found by, or refuses them as Python does.

    These are positional where they may be, and defaults are among them; those that are `LEFT_OUT` are not, and what
    comes after them is given by keyword.
    """
    parameters = [*signature.parameters.values()]
    text = str(inspect.Signature([Of(p.name, p.kind) for p in parameters]))[1:-1]
    first = [p for p in parameters if p.kind in _POSITIONAL]
    args = [p.name for p in first] + [f"*{p.name}" for p in parameters if p.kind is Of.VAR_POSITIONAL]
    by_name = [p for p in parameters if p.kind is Of.KEYWORD_ONLY]
    kwargs = [f"{p.name!r}: {p.name}" for p in by_name] + [
        f"**{p.name}" for p in parameters if p.kind is Of.VAR_KEYWORD
    ]
    bind: Any = eval(f"lambda {text}: (({''.join(f'{x}, ' for x in args)}), {{{', '.join(kwargs)}}})")  # names alone
    bind.__name__ = bind.__qualname__ = name
    bind.__defaults__ = tuple(p.default for p in first if p.default is not Of.empty)
    bind.__kwdefaults__ = {p.name: p.default for p in by_name if p.default is not Of.empty}
    if all(p.default is not LEFT_OUT for p in parameters):
        return bind  # type: ignore[no-any-return]

    def without(*args: Any, **kwargs: Any) -> Arguments:
        args, kwargs = bind(*args, **kwargs)
        known = next((k for k, x in enumerate(args) if x is LEFT_OUT), len(args))
        named = {
            p.name: x for p, x in zip(first[known:], args[known:], strict=False) if p.kind is not Of.POSITIONAL_ONLY
        }
        return args[:known], {k: x for k, x in (named | kwargs).items() if x is not LEFT_OUT}

    return without


def sizes_of(d: Description, structure: PyTree, leaves: Sequence[Any]) -> list[int] | str:
    """The run-time sizes of these arguments; why it does not serve them.

    Args:
        d: with encoded sizes.
    """
    if structure != d.structure:
        return f"{len(leaves)} arguments, or others by keyword"
    found: dict[str, int] = {}
    for p, x in zip(d.parameters, leaves, strict=True):
        why = _mismatch(p, x, d.sizes, found)
        if why:
            return f"{p.name}: {why}"
    n = [found[name] for name in d.sizes]
    for f in d.size_guards:
        if not FUNCTIONS[f.op](evaluate(f.a, n), evaluate(f.b, n)):
            return f"sizes {n} of {', '.join(d.sizes)}: it needs {_text(f.a, d)} {_SIGNS[f.op]} {_text(f.b, d)}"
    reach = [
        sum(abs(s) // x.itemsize * k for s, k in zip(x.strides, x.shape, strict=True))
        for x in leaves
        if isinstance(x, np.ndarray)
    ]
    if max([*reach, *(evaluate(p, n) for p in d.small)], default=0) > SMALL_ARRAY:
        return f"an array of more than {SMALL_ARRAY} elements"
    return n


def text_of(d: Description) -> str:
    """What a kernel takes."""
    return ", ".join(f"{p.name}: {_kind(p)}" for p in d.parameters)


def _kind(p: Parameter) -> str:
    if p.kind == "array":
        lengths = (str(n[0]) if not n[1] else "any" for n in p.shape)
        return f"{np.dtype(p.type)}[{', '.join(lengths)}]"
    return p.type if p.kind == "number" else repr(p.value)


def _mismatch(p: Parameter, x: Any, names: Sequence[str], found: dict[str, int]) -> str:
    """Why an argument is not what a kernel takes; run-time sizes are added to `found`."""
    if p.kind == "static":
        return "" if same(p.value, x) else f"{x!r}, where it has {p.value!r}"
    if p.kind == "number":
        return "" if not isinstance(x, np.ndarray) and kind_of(x) == p.type else f"a {type(x).__name__}, not {p.type}"
    if type(x) not in (np.ndarray, np.memmap) or x.dtype.str != p.type or x.ndim != len(p.shape):
        return f"{_of(x)}, where it has {_kind(p)}"
    for (const, terms), n, layout, step in zip(p.shape, x.shape, p.layout, x.strides, strict=True):
        if not terms and n != const:
            return f"{_of(x)}, where it has {_kind(p)}"
        if terms:
            ((_, (name,)),) = terms
            if found.setdefault(names[name], n) != n:
                return f"{_of(x)}: lengths that differ"
        if n > 1 and (step % x.itemsize or (layout is not None and step != layout * x.itemsize)):
            return f"strides {x.strides}, where it has another memory layout"
    return ""


def _of(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__


def _text(encoded: Any, d: Description) -> str:
    """A size as a person reads it."""
    const, terms = encoded

    def atom(a: Any) -> str:
        return d.sizes[a] if isinstance(a, int) else f"({_text(a[1], d)} {a[0]} {_text(a[2], d)})"

    parts = ["*".join([*([str(c)] if c != 1 else []), *map(atom, atoms)]) for c, atoms in terms]
    return " + ".join(parts + ([str(const)] if const or not parts else []))
