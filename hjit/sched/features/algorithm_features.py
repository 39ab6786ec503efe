"""The features of stages that do not depend on the schedule (Adams 2019, section 4.1).

Histograms of the operations of one point, the dtype, and access patterns by the Jacobians of indices: how fast each
index moves with each dimension.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from hjit.model.feature_names import PIPELINE
from hjit.sched.language.definitions import is_associative
from hjit.trace.ir.analysis.accumulations import accumulation_of
from hjit.trace.ir.borders import INSIDE
from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, ScalarRef, walk
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import Atom, Boundary, Dim, FloorDiv, Indirect, Poly, deep_atoms, poly, sizes_value

Slope = Fraction | int | None
Jacobian = tuple[tuple[Slope, ...], ...]  # [axes][dimensions]; None: unknown, or not the same everywhere
Known = dict[tuple[tuple[Poly, ...], int], Jacobian]  # of indices, with the number of dimensions

_NAMES = {
    "add": "add",
    "sub": "subtract negative",
    "mul": "multiply square radians degrees",
    "div": "true_divide floor_divide reciprocal",
    "mod": "remainder fmod",
    "shift": "left_shift right_shift",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "not": "invert",
    "min": "minimum fmin",
    "max": "maximum fmax",
    "abs": "absolute fabs",
    "compare_eq": "equal not_equal isnan isinf isfinite",
    "compare_lt": f"less less_equal greater greater_equal signbit sign {INSIDE}",
    "logic": "logical_and logical_or logical_xor logical_not",
    "select": "select",
    "sqrt": "sqrt hypot",
    "exp": "exp exp2 expm1",
    "log": "log log2 log10 log1p logaddexp logaddexp2",
    "pow": "power float_power cbrt",
    "trig": "sin cos tan arcsin arccos arctan arctan2",
    "hyperbolic": "sinh cosh tanh arcsinh arccosh arctanh",
    "round": "rint floor ceil trunc",
}
BUCKETS = {name: bucket for bucket, names in _NAMES.items() for name in names.split()}
"""Ufunc -> its bucket of `hjit.model.feature_names.OPERATIONS`; what is not here is "other"."""

SAME_TYPE = {"uint32": "int32", "uint64": "int64", "float16": "int16"}


_AT = {name: k for k, name in enumerate(PIPELINE)}


def pipeline_features(graph: Graph, sizes: Mapping[str, int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The features of the stages of a Graph that do not depend on its schedule.

    Operations and accesses are those of one evaluation of a definition: of several definitions the mean over their
    points.

    Args:
        sizes: the numbers of the run-time sizes by name.

    Returns:
        float32 [stages, len(PIPELINE)], in the orders of the Graph and of `hjit.model.feature_names`.
    """
    found = np.zeros((len(graph.stages), len(PIPELINE)), np.float32)
    known: Known = {}
    for k, s in enumerate(graph.stages):
        for name, x in _features(graph, s, sizes, known).items():
            found[k, _AT[name]] = x
    return found


def _features(graph: Graph, s: Stage, sizes: Mapping[str, int], known: Known) -> dict[str, float]:
    points = [_points(d.extents, sizes) for d in s.definitions]
    weights = [n / max(sum(points), 1.0) for n in points]
    found: dict[str, float] = {}
    for d, weight in zip(s.definitions, weights, strict=True):
        for name, n in (*_operations(graph, s, d).items(), *_accesses(s, d, known).items()):
            found[name] = found.get(name, 0.0) + weight * n
    stages = graph.by_name
    dtype = s.dtype.name
    return found | {
        f"type_{SAME_TYPE.get(dtype, dtype)}": 1.0,
        "is_output": float(s.name in graph.outputs),
        "is_input_only": float(not any(load.source in stages for load in s.loads if load.source != s.name)),
        "has_updates": float(bool(s.updates)),
        "reduction_points": max(_points(d.rdims, sizes) for d in s.definitions),
        "dimensions": float(len(s.shape)),
    }


def _points(extents: Sequence[Poly], sizes: Mapping[str, int]) -> float:
    return float(math.prod(max(sizes_value(n, sizes), 0) for n in extents))


# -- operations


def _operations(graph: Graph, s: Stage, d: Definition) -> Counter[str]:
    """The histogram of one evaluation; shared expressions count once."""
    found: Counter[str] = Counter()
    skip: set[Expr] = set()
    x = accumulation_of(s.name, d) if is_associative(d) else None
    if x is not None:
        is_product = (
            x.op == "add" and x.dtype.kind == "f" and isinstance(x.element, Op) and x.element.name == "multiply"
        )
        found["op_fma" if is_product else "op_accumulate"] += 1
        skip |= {d.value, x.own, *([x.element] if is_product else [])}
    for e in walk(*d.exprs()):
        if e in skip or (isinstance(e, Op) and e.name in ("reordered", "unordered")):
            continue
        inner = _saturates(e)
        if inner is not None:
            skip.add(inner)
        found[f"op_{'saturate' if inner is not None else _bucket(graph, s, e)}"] += 1
    return found


def _saturates(e: Expr) -> Expr | None:
    """The inner operation where one and it bring a number between two constants."""
    if isinstance(e, Op) and e.name in ("minimum", "maximum"):
        inner = next((x for x in e.args if isinstance(x, Op) and {x.name, e.name} == {"minimum", "maximum"}), None)
        if inner is not None and all(any(isinstance(x, Const) for x in y.args) for y in (e, inner)):
            return inner
    return None


def _bucket(graph: Graph, s: Stage, e: Expr) -> str:
    match e:
        case Const():
            return "const"
        case ScalarRef():
            return "scalar"
        case Index():
            return "index"
        case Load():
            if any(isinstance(a, Indirect) for p in e.index for a in deep_atoms(p)):
                return "gather"
            return "self_load" if e.source == s.name else "stage_load" if e.source in graph.by_name else "input_load"
        case Cast():
            return _cast(e.arg.dtype, e.dtype)
        case Op():
            bucket = BUCKETS.get(e.name, "other")
            if bucket in ("div", "mod") and isinstance(e.args[-1], Const):
                return f"{bucket}_const"
            return "logic" if bucket in ("and", "or", "xor", "not") and e.dtype.kind == "b" else bucket
    return "other"


def _cast(old: np.dtype[Any], new: np.dtype[Any]) -> str:
    if (old.kind == "f") != (new.kind == "f"):
        return "cast_float"
    return "cast_narrow" if new.itemsize < old.itemsize else "cast_wide"


# -- accesses


def _accesses(s: Stage, d: Definition, known: Known) -> Counter[str]:
    """How many loads there are of each class; stages that are alike share the Jacobians that are `known`."""
    x = accumulation_of(s.name, d) if is_associative(d) else None
    loads = [e for e in walk(*d.exprs()) if isinstance(e, Load) and (x is None or e != x.own)]
    dims = len(d.extents)
    for load in loads:
        if (load.index, dims) not in known:
            known[load.index, dims] = jacobian(load.index, dims)
    taps = Counter((load.source, known[load.index, dims]) for load in loads)
    classes: Counter[str] = Counter()
    for (_, j), n in taps.items():
        classes[f"access_{access_class(j, n)}"] += n
    return classes


def jacobian(index: Sequence[Poly], dims: int) -> Jacobian:
    """How fast each index of an access moves with each of `dims` dimensions.

    Boundary modes count as what they are away from the boundary.
    """
    return tuple(tuple(_slope(p, k) for k in range(dims)) for p in index)


def _slope(p: Poly, k: int) -> Slope:
    total: Fraction | int = 0
    for m, c in p.terms.items():
        moving = [a for a in m if any(isinstance(b, (Dim, Indirect)) for b in deep_atoms(poly(a)))]
        slopes = [_atom_slope(a, k) for a in moving]
        if None in slopes or (len(m) > 1 and any(slopes)):
            return None
        total += c * sum(x for x in slopes if x is not None)
    return total


def _atom_slope(a: Atom, k: int) -> Slope:
    match a:
        case Dim():
            return int(a.k == k)
        case Boundary():
            return _slope(a.arg, k)
        case FloorDiv() if a.by.is_const:
            slope = _slope(a.arg, k)
            return None if slope is None else Fraction(slope) / a.by.const
    return None if poly(a).mentions(Dim(k)) else 0


def access_class(j: Jacobian, taps: int) -> str:
    """The class of an access, of `hjit.model.feature_names.ACCESSES`.

    "stencil": one of several `taps` of one array that differ by constants only, or an index that adds dimensions up, as
    that of a window does. "slice": some index is fixed. "broadcast": some dimension does not matter.
    """
    if any(x is None for row in j for x in row):
        return "unknown"
    if taps > 1 or any(sum(x != 0 for x in row) > 1 for row in j):
        return "stencil"
    if any(x not in (0, 1) for row in j for x in row):
        return "strided"
    at = [next((k for k, x in enumerate(row) if x == 1), None) for row in j]
    if None in at:
        return "slice"
    dims = len(j[0]) if j else 0
    if sorted(at, key=str) != list(range(dims)) or not j:
        return "broadcast"
    return "pointwise" if at == list(range(dims)) else "transpose"
