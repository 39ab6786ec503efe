"""Associative reductions: accumulators in registers, across all reduction loops."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.kernels.lower.loopir import Item, Reduce, ReductionLoop
from hjit.kernels.lower.placing.context import NestContext, definition_of
from hjit.kernels.lower.placing.environment import Env
from hjit.kernels.lower.placing.inner_loops import inner_loops, step_of, vectors_below
from hjit.kernels.lower.placing.innermost import point
from hjit.kernels.lower.thresholds import EXACT_SUM_TERMS
from hjit.sched.language.tree import Compute, DimKey, Loop, dims_of
from hjit.trace.ir.expressions import Cast, Const, Expr, Op, renumber, substitute
from hjit.trace.ir.graph import Definition
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import poly


def next_pure_loop(chain: list[Loop], d: Definition, env: Env) -> Loop | None:
    """The first loop over a dimension that is not reduced and of which more is left than one iteration."""
    for x in chain:
        key = (x.stage, x.dim)
        is_iteration = key in env.remaining and env.remaining[key].size == step_of(x)
        if dims_of(x.dim)[0] < len(d.dims) and key not in env.absorbed and not is_iteration:
            return x
    return None


def headers(n: NestContext, chain: list[Loop], d: Definition, env: Env) -> tuple[Env, tuple[ReductionLoop, ...]]:
    """The headers of the reduction loops of a chain, and the environment inside them."""
    found: list[ReductionLoop] = []
    done: set[DimKey] = set()
    for x in chain:
        if dims_of(x.dim)[0] < len(d.dims) or x.dim in done:
            continue
        left = env.remains(x)
        var = n.var(f"r{x.dim}")
        below, vectors = inner_loops(x), vectors_below(x)
        header = ReductionLoop(var, left.low, left.end)
        if vectors is not None and below:
            header = replace(header, lanes=vectors[0], unroll=vectors[1])
            done.add(x.dim)
        elif x.kind == "unroll" or (below and below[0].kind == "unroll"):
            header = replace(header, unroll=(left.known if x.kind == "unroll" else below[0].size) or 1)
            done.add(x.dim)
        elif below:
            header = replace(header, step=below[0].size or 1)
            env = env.within(x, Interval.tile(poly(var), header.step, left.interval.high))
            found.append(header)
            continue
        else:
            by_lanes = x.size or 0 if x.kind == "gpu_lane" else 0
            header = replace(header, threads=x.kind == "gpu_thread", warp_lanes=by_lanes)
        env = env.at(x, poly(var))
        found.append(header)
    return env, tuple(found)


def reduce_over(n: NestContext, compute: Compute, env: Env, loops: tuple[ReductionLoop, ...]) -> Reduce:
    """The reduction of one element over some loops."""
    s, d = n.reads.stages[compute.stage], definition_of(n.reads, compute)
    assert isinstance(d.value, Op)
    change = renumber(point(env.intervals[s.name], len(d.extents)))
    old, element = d.value.args
    how = accumulation(d, element, loops, n.fast)
    index = tuple(p.substitute(change) for p in d.target)
    if len(compute.definitions) == 2:
        initial = substitute(s.definitions[compute.definitions[0]].value, renumber(index))
    else:
        initial = substitute(old, change)
    item = Item(index, initial, substitute(how.element, change))
    return Reduce(s.name, d.value.name, (item,), loops, how.dtype, d.value.dtype, how.is_compensated, how.is_products)


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How elements are accumulated: see `Reduce`."""

    element: Expr
    dtype: np.dtype[Any]
    is_compensated: bool = False
    is_products: bool = False


def accumulation(d: Definition, element: Expr, loops: tuple[ReductionLoop, ...], fast: bool) -> Accumulation:
    """Sums of floats in float64, longer than a few terms: not less accurate than NumPy's pairwise sum."""
    out = d.value.dtype
    assert isinstance(d.value, Op)
    terms = math.prod(p.const for p in d.rdims) if all(p.is_const for p in d.rdims) else None
    if d.value.name != "add" or out.kind != "f" or (fast and out.itemsize > 2):
        return Accumulation(element, out)
    if terms is not None and 0 < terms <= EXACT_SUM_TERMS[out.itemsize]:
        return Accumulation(element, out)
    dtype = np.dtype(np.float64)
    is_product = isinstance(element, Op) and element.name == "multiply" and element.dtype == out
    is_products = is_product and loops[-1].lanes == 1 and out.itemsize > 2
    return Accumulation(element, dtype, element.dtype == dtype and not fast and not _is_short(element), is_products)


def _is_short(e: Expr) -> bool:
    """Are the values of a float64 those of a narrower type, so that sums of them lose little?"""
    match e:
        case Cast():
            return e.arg.dtype.itemsize <= 4
        case Const():
            return bool(e.value == 0)
        case Op(name="select"):
            return all(map(_is_short, e.args[1:]))
    return False
