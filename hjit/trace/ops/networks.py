"""Selection networks: the element of a given rank among a few, by minima and maxima alone."""

from __future__ import annotations

from collections.abc import Iterator

from hjit.trace.ir.graph import Expr, Op

# the shortest known network for the middle of nine
_MIDDLE_OF_NINE = ((1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3), (5, 8), (4, 7), (3, 6), (1, 4), (2, 5),
                   (4, 7), (4, 2), (6, 4), (4, 2))


def exchanges(n: int) -> Iterator[tuple[int, int]]:
    """The compare-exchanges of Batcher's merge-exchange sort of `n` wires."""
    if n < 2:
        return
    top = 1 << ((n - 1).bit_length() - 1)
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            for i in range(n - d):
                if i & p == r:
                    yield i, i + d
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1


def ranked(wires: list[Expr], rank: int) -> Expr:
    """The element that stands at `rank` when `wires` are sorted; exchanges that it does not need are never made."""
    wires = list(wires)
    network = _MIDDLE_OF_NINE if (len(wires), rank) == (9, 4) else tuple(exchanges(len(wires)))
    needed, used = {rank}, []
    for i, j in reversed(network):
        if i in needed or j in needed:
            used.append((i, j, i in needed, j in needed))
            needed |= {i, j}
    for i, j, low, high in reversed(used):
        a, b = wires[i], wires[j]
        if low:
            wires[i] = Op("minimum", (a, b), a.dtype)
        if high:
            wires[j] = Op("maximum", (a, b), a.dtype)
    return wires[rank]
