"""Accumulations: updates that combine each element with another value, as reductions and ``a[i] += x`` do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hjit.trace.ir.expressions import Cast, Expr, Load, Op, cast
from hjit.trace.ir.graph import Definition


@dataclass(frozen=True, slots=True)
class Accumulation:
    """An update ``stage[target] = op(stage[target], element)``.

    Attributes:
        own: the load of the element that is updated.
        element: what it is combined with; it reads nothing of the stage.
        dtype: in which the operation computes: that of the stage, or a wider one (float16 as float32), to which `own`
            is cast, and from which the result is cast back.
        is_reversed: is it ``op(element, stage[target])``? Never where the order of the update is associative.
    """

    op: str
    own: Load
    element: Expr
    dtype: np.dtype[np.generic]
    is_reversed: bool = False


def accumulation_of(stage: str, d: Definition) -> Accumulation | None:
    """An update of `stage` as an accumulation; None if it is not one.

    Whether operations may run in another order is said by the order of the update, and not asked here; nor whether its
    target reads the stage.
    """
    value = d.value
    if isinstance(value, Cast) and value.dtype.kind == value.arg.dtype.kind == "f":
        value = value.arg
    if not isinstance(value, Op) or len(value.args) != 2:
        return None
    own = Load(stage, d.target, d.value.dtype)
    widened = cast(own, value.dtype)
    for is_reversed in (False, True):
        first, element = value.args[:: -1 if is_reversed else 1]
        if first == widened and all(x.source != stage for x in element.loads):
            return Accumulation(value.name, own, element, value.dtype, is_reversed)
    return None
