"""Tracing without compiling: functions run through the Graph interpreter and compared with NumPy itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.trace.capture.trace import PyTree, Result, Trace, flatten, trace
from hjit.trace.ir.interpret import interpret
from hjit.trace.ir.poly import sizes_value
from hjit.trace.tracing.recording.recorder import TracingOptions
from hjit.trace.tracing.scalars.host import TapeEntry


def scalars_of(recorder: Any, leaves: list[Any]) -> dict[str, Any]:
    values = recorder.tape.replay(leaves)
    assert values is not None
    return {name: values[slot.k] for name, (slot, _) in recorder.scalars.slots().items()}


def trace_of(function: Any, *args: Any, **kwargs: Any) -> tuple[Trace, list[Any]]:
    """The trace of ``function(*args, **kwargs)``, decisions computed by the interpreter."""
    leaves: list[Any] = []
    structure = PyTree(tuple, (flatten(args, leaves), flatten(kwargs, leaves)))

    def evaluate(recorder: Any, names: tuple[str, ...]) -> list[Any]:
        arrays = {n: s.array for n, s in recorder.inputs.items()}
        return interpret(recorder.graph(names), arrays, recorder.sizes, scalars_of(recorder, leaves))

    names = [f"a{k}" for k in range(len(leaves))]
    return trace(function, structure, leaves, names, TracingOptions(evaluate)), leaves


def interpreted(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What the traced function returns, computed by the Graph interpreter; written arguments are written."""
    traced, leaves = trace_of(function, *args, **kwargs)
    rec = traced.recorder
    values = rec.tape.replay(leaves)
    wanted = dict.fromkeys(stage for _, stage in traced.writes)

    def collect(r: Any) -> None:
        if r.kind in ("array", "view") and r.name in rec.stages:
            wanted[r.name] = None

    traced.result.build(collect) if isinstance(traced.result, PyTree) else collect(traced.result)
    arrays = {n: s.array for n, s in rec.inputs.items()}
    computed = dict(
        zip(wanted, interpret(rec.graph(tuple(wanted)), arrays, rec.sizes, scalars_of(rec, leaves)), strict=True)
    )
    for argument, stage in traced.writes:
        arrays[argument][...] = computed[stage]

    def leaf(r: Result) -> Any:
        if r.kind == "static":
            return r.value
        if r.kind == "host":
            return values[r.value]
        if r.kind == "argument":
            return arrays[r.name]
        if r.kind == "constant":
            array = r.value
        elif r.kind == "array":
            array = computed[r.name].transpose(r.order) if r.order else computed[r.name]
        else:
            base = computed.get(r.name, arrays.get(r.name))
            shape = [sizes_value(p, rec.sizes) for p in r.shape]
            grids = np.indices(shape, sparse=True)
            index = [
                p.evaluate_grid(grids, rec.sizes) if hasattr(p, "evaluate_grid") else _grid(p, grids, rec.sizes)
                for p in r.index
            ]
            array = base[tuple(np.broadcast_arrays(*index))] if index else base
            array = np.broadcast_to(array, shape)
        return array[()] if r.is_scalar else array

    return traced.result.build(leaf) if isinstance(traced.result, PyTree) else leaf(traced.result)


def _grid(p: Any, grids: Any, sizes: Any) -> Any:
    total = np.asarray(p.const)
    for m, c in p.terms.items():
        term = c
        for a in m:
            term = term * (grids[a.k] if hasattr(a, "k") else sizes[a.name])
        total = total + term
    return total


def check(function: Any, *args: Any, exact: bool = True, **kwargs: Any) -> Any:
    """Assert that the traced function gives NumPy's result: shape, dtype and numbers."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with np.errstate(all="ignore"):
        expected = function(*copies, **kwargs)
    got = interpreted(function, *args, **kwargs)
    assert_same(got, expected, exact)
    for a, c in zip(args, copies, strict=True):
        if isinstance(a, np.ndarray):
            assert_same(a, c, exact)
    return got


def assert_same(got: Any, expected: Any, exact: bool = True) -> None:
    if isinstance(expected, (tuple, list)):
        assert type(got) is type(expected) and len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            assert_same(g, e, exact)
        return
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        for k in expected:
            assert_same(got[k], expected[k], exact)
        return
    assert type(got) is type(expected), (type(got), type(expected))
    if isinstance(expected, (np.ndarray, np.generic)):
        assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
        assert got.shape == expected.shape, (got.shape, expected.shape)
        if exact:
            np.testing.assert_array_equal(got, expected)
        else:
            eps = np.finfo(expected.dtype).eps if expected.dtype.kind == "f" else 0
            np.testing.assert_allclose(got, expected, rtol=64 * eps, atol=64 * eps)
    else:
        assert got == expected or (got != got and expected != expected)


__all__ = ["TapeEntry", "assert_same", "check", "interpreted", "trace_of"]
