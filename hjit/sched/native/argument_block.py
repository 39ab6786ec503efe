"""Calls of the compiled featuriser: its arguments are packed into one block of 64-bit words.

The block holds the addresses and axis lengths of the arrays that the featuriser reads and writes. The machine code
takes the address of the block (`hjit.kernels.functions.translate.module`); the Python version takes the arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hjit.sched.native import records as at
from hjit.sched.native.measures import featurise
from hjit.sched.native.records import NestTables, Tables, Work

Featuriser = Callable[[bytes], int]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Arrays one after the other in one.

    Attributes:
        every: of 8 bytes an element.
        shapes: of each.
    """

    every: np.ndarray[Any, Any]
    shapes: tuple[Shape, ...]

    def words(self) -> Iterator[int]:
        """Of each array its address, and the lengths of its axes."""
        address = address_of(self.every)
        for shape in self.shapes:
            yield address
            yield from shape
            address += 8 * prod(shape)

    def arrays(self, dtypes: Iterator[Any]) -> Iterator[np.ndarray[Any, Any]]:
        """Those, as parts of `every`."""
        start = 0
        for shape, dtype in zip(self.shapes, dtypes, strict=True):
            yield self.every[start : start + prod(shape)].view(dtype).reshape(shape)
            start += prod(shape)


def address_of(x: np.ndarray[Any, Any]) -> int:
    """Where an array begins."""
    return int(x.__array_interface__["data"][0])


def work_for(envs: int, nest: Packed, dims: int, axes: int, deep: int) -> Packed:
    """Room for a `Work`: for a nest of so many environments, and a Graph of so many dimensions and axes at most."""
    (nodes, _), _, _, (stages, _), (keys, _), *_ = nest.shapes
    shapes: tuple[Shape, ...] = (
        (envs, dims, at.DIMS), (envs, keys, at.LEFT), (envs, keys), (envs, at.ENV), (envs,), (envs, stages), (nodes,),
        (nodes, at.OWN), (3, stages, axes, at.REQUIRED), (stages, axes, 2), (stages, axes), (stages,), (stages,),
        (stages, axes, 4), (dims, 4), (stages, axes, 2), (stages, at.SITE), (stages, axes, at.SITE_AXIS), (stages, 2),
        (axes, 2), (axes, 2), (dims, 2), (dims, 2), (max(dims, axes, nodes),), (deep + 2, 2), (1,),
    )  # fmt: skip
    return Packed(np.empty(sum(map(prod, shapes))), shapes)


def run_featuriser(
    featuriser: Featuriser | None,
    tables: Tables,
    nest: Packed,
    work: Packed,
    sizes: Any,
    tasks: int,
    features: Any,
    numbers: Any,
) -> bool:
    """Compute a nest's `features`, float64 [batch, rows, FEATURES], and `numbers`, [batch, numbers + 1], for `sizes`,
    float64 [batch, loops]. False if it gave up.

    Args:
        featuriser: the machine code; None runs the Python version, which takes a thousand times as long.
    """
    if featuriser is None:
        room, given = Work(*work.arrays(_dtypes(Work))), NestTables(*nest.arrays(_dtypes(NestTables)))
        return featurise(tables, given, room, sizes, tasks, features, numbers) == at.OK
    words = array("q", [n for x in tables for n in (address_of(x), len(x))])
    words.extend(nest.words())
    words.extend(work.words())
    words.extend((address_of(sizes), *sizes.shape, tasks))
    words.extend((address_of(features), *features.shape, address_of(numbers), *numbers.shape))
    return featuriser(words.tobytes()) == at.OK


def _dtypes(record: Any) -> Iterator[Any]:
    """Of the arrays of a record."""
    for text in record.__annotations__.values():
        yield np.int64 if str(getattr(text, "__forward_arg__", text)).startswith("Ints") else np.float64
