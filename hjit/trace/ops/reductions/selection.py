"""Elements at some ranks of many numbers, by the digits of their bits (radix selection).

Numbers are mapped to unsigned integers in the same order. One pass counts the leading digits of all, from which follows
that of the element of a rank; each further pass counts the next digits of the elements that begin so. Nothing is moved.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.trace.ops.arguments import count
from hjit.trace.ops.indexing.histograms import tally
from hjit.trace.ops.limits import LONG_DIGITS
from hjit.trace.tracing.arrays.tracer import Tracer, call

_OTHERS = 16  # counts of the elements that begin otherwise: several, as additions to one wait for each other


def keys_of(a: Tracer) -> Any:
    """Unsigned integers in the order of the elements; NaN of any sign is the largest."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    if a.dtype.kind == "u":
        return a
    bits: Any = a.view(unsigned)
    sign = unsigned.type(1 << (8 * a.dtype.itemsize - 1))
    if a.dtype.kind == "i":
        return bits ^ sign
    keys = call(np.where, bits >= sign, ~bits, bits | sign)
    return call(np.where, call(np.isnan, a), np.iinfo(unsigned).max, keys)


def elements_of(keys: Any, dtype: np.dtype[Any]) -> Any:
    """The elements that `keys_of` maps to these."""
    sign = keys.dtype.type(1 << (8 * dtype.itemsize - 1))
    if dtype.kind == "u":
        return keys
    bits = keys ^ sign if dtype.kind == "i" else call(np.where, keys >= sign, keys ^ sign, ~keys)
    return bits.view(dtype)


def selected(keys: Any, ranks: Any) -> tuple[Tracer, Tracer]:
    """The keys at some ranks when all are sorted, and the next ones; the next to the last is the largest number.

    Args:
        ranks: intp of shape (n,), n known, all within range.
    """
    digits = _digits(8 * keys.dtype.itemsize, 13 if count(keys.shape) >= LONG_DIGITS else 11)
    leading = _counts(keys, digits[0], None)
    found = [_selected(keys, ranks[k], digits, leading) for k in range(ranks.shape[0])]
    following = [
        call(np.where, repeats, x, call(np.min, call(np.where, keys > x, keys, np.iinfo(keys.dtype).max)))
        for x, repeats in found
    ]
    return call(np.stack, [x for x, _ in found]), call(np.stack, following)


def _digits(bits: int, width: int) -> list[tuple[int, int]]:
    """The digits of a number, the leading one first: the bits behind each, and its own."""
    ends = [*range(bits, 0, -width), 0]
    return [(low, high - low) for high, low in itertools.pairwise(ends)]


def _selected(keys: Any, rank: Any, digits: Sequence[tuple[int, int]], counts: Any) -> tuple[Any, Any]:
    """The key at a rank, and whether the next one equals it; `counts`: of the leading digits."""
    number = keys.dtype.type
    prefix: Any = None
    for digit in digits:
        if prefix is not None:
            counts = _counts(keys, digit, prefix)
        up_to = call(np.cumsum, counts)
        found = call(np.sum, up_to <= rank, dtype=np.intp)
        here = counts[found]
        rank = rank - (up_to[found] - here)
        found = found.astype(number)
        prefix = found if prefix is None else prefix << number(digit[1]) | found
    return prefix, rank + 1 < here


def _counts(keys: Any, digit: tuple[int, int], prefix: Any) -> Any:
    """How often each value of a digit occurs in the keys that begin with `prefix`; None: in all."""
    low, width = digit
    index = (keys >> keys.dtype.type(low)).astype(np.intp) & ((1 << width) - 1)
    if prefix is None:
        return tally(index, 1 << width)
    begins_so = keys >> keys.dtype.type(low + width) == prefix
    index = call(np.where, begins_so, index, (1 << width) + (index & (_OTHERS - 1)))
    return tally(index, (1 << width) + _OTHERS)[: 1 << width]
