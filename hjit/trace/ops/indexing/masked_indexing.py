"""Indices into arrays read under a boolean mask, and by them: ``places[:, 0]``, ``image[rows + 1, columns]``.

What is read or written by such indices is computed at every element of the mask; those that it leaves out read the
first element, and write back what is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.trace.ir.expressions import cast
from hjit.trace.ops.indexing.getitem import AdvancedIndex, basic_view, getitem, parse_key, scatter
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.masked import MaskedRead, same_values
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, is_tracer, stored
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host, static_value

# -- items of an array read under a mask


@provides
def masked_item(a: MaskedRead, key: Any) -> Any:
    """Elements at known places, counted from either end; what a mask keeps of them; columns. None: anything else."""
    if type(key) is MaskedRead and key.dtype == bool and key.ndim == 1:
        mask: Any = a.mask & key.full if same_values(a.mask, key.mask) else None
        return None if mask is None else MaskedRead(a.full, mask, a.read)
    first, *rest = key if type(key) is tuple else (key,)
    if type(first) in (list, tuple) and first and all(map(_is_place, first)):
        found: Any = call(np.stack, [_element(a, int(static_value(k))) for k in first])
        return found[(slice(None), *rest)] if rest else found
    if _is_place(first):
        found = _element(a, int(static_value(first)))
        return found[tuple(rest)] if rest else found
    if is_tracer(key) and key.dtype.kind in "iu" and a.mask.ndim == 1:
        return _elements(a, key)
    if (
        (first is ... or (type(first) is slice and first == slice(None)))
        and all(map(_is_basic, rest))
        and len(rest) < a.ndim
    ):
        every = (slice(None),) * (a.ndim - 1 - len(rest)) if first is ... else ()
        found = MaskedRead(a.full[((slice(None),) * a.mask.ndim + every + tuple(rest))].copy(), a.mask, a.read)
        found.is_view = a.is_view = True
        return found
    return None


def _is_place(x: Any) -> bool:
    value = x.value if is_host(x) else x
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_basic(x: Any) -> bool:
    return _is_place(x) or type(x) is slice


def _element(a: MaskedRead, k: int) -> Any:
    """The element that `k` others come before or, of a negative one, ``-1 - k`` after."""
    mask: Any = a.mask.reshape(-1)
    before = k if k >= 0 else -1 - k
    if not mask.size:
        raise IndexError(f"index {k} is out of bounds for axis 0 with size 0")
    current().check(call(np.count_nonzero, mask) <= before)
    ahead = mask if k >= 0 else mask[::-1]
    place = call(np.argmax, ahead if not before else call(np.cumsum, ahead) > before)
    found = a.full.reshape((-1, *a.full.shape[a.mask.ndim :]))
    return found[place if k >= 0 else mask.size - 1 - place]


def _elements(a: MaskedRead, index: Any) -> Any:
    """Elements at computed places, counted among those that the mask keeps."""
    number: Any = call(np.count_nonzero, a.mask)
    current().check(call(np.any, (index >= number) | (index < -number)))
    places = forward.places_of(a.mask)
    counted = call(np.where, index < 0, index + number, index)
    return a.full[places[call(np.clip, counted, 0, a.mask.shape[0] - 1)]]


# -- indices that are read under a mask


@provides
def item_by_reads(a: Tracer, key: Any) -> MaskedRead | None:
    """``a[reads]``, perhaps with slices behind; None where its elements would not be in the order of the mask."""
    known = _whole_indices(a, key)
    return None if known is None else MaskedRead(getitem(a, known[0]), known[1])


@provides
def assign_by_reads(a: Tracer, key: Any, value: Any) -> bool:
    """``a[reads] = value``, in NumPy's order: where an element is hit twice, the last value stays. Is it done?"""
    known = _whole_indices(a, key)
    if known is None:
        return False
    key, mask = known
    parsed = parse_key(a, key)
    view = basic_view(a, parsed.basic)
    plan = AdvancedIndex.of(view, parsed)
    if type(value) is MaskedRead:
        if not same_values(value.mask, mask):
            return False
        value = value.full
    elif not is_host(value) and np.ndim(value):
        return False
    kept = mask.reshape((*mask.shape, *(1,) * (len(plan.shape) - mask.ndim))).load(plan.shape)
    element = cast(stored(value, view.dtype).load(plan.shape), view.dtype)
    scatter(view, plan, element, "sequential", kept=kept)
    return True


@provides
def whole_operands(a: Tracer, key: Any, value: Any) -> tuple[Any, Any, Tracer] | None:
    """Indices and values at every element of the mask that they are read under, and the mask; None: of several masks,
    or with other arrays. Elements that it leaves out have the index 0."""
    parts = key if type(key) is tuple else (key,)
    known = _whole_indices(a, key) if any(type(x) is MaskedRead for x in parts) else None
    if known is None:
        return None
    if type(value) is MaskedRead:
        return None if not same_values(value.mask, known[1]) else (known[0], value.full, known[1])
    return (known[0], value, known[1]) if is_host(value) or not np.ndim(value) else None


def _whole_indices(a: Tracer, key: Any) -> tuple[Any, Tracer] | None:
    """The key with indices at every element of the mask, and the mask; None: not of reads under one mask, then slices.

    Elements that the mask leaves out have the index 0.
    """
    parts = key if type(key) is tuple else (key,)
    reads = [x for x in parts if type(x) is MaskedRead]
    mask = reads[0].mask
    is_alike = all(x.ndim == 1 and x.dtype.kind in "iu" and same_values(x.mask, mask) for x in reads)
    is_leading = all(type(x) is MaskedRead for x in parts[: len(reads)])
    if not is_alike or not is_leading or not all(type(x) is slice or x is ... for x in parts[len(reads) :]):
        return None
    if 0 in a.shape[: len(reads)] or 0 in mask.shape:
        return None
    indices = (call(np.where, mask, x.full, x.dtype.type(0)) for x in reads)
    return (*indices, *parts[len(reads) :]), as_tracer(mask)
