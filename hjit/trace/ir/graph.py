"""The Graph: what a traced function computes, as a DAG of stages.

    Graph      = inputs: Input*, scalars: Scalar*, stages: Stage*, outputs: name*
    Stage      = name, dtype, shape, definitions: Definition+      the first is pure, the others are updates
    Definition = dims, rdims, target: Poly*, value: Expr, order: pure | associative | sequential

with the expressions of `hjit.trace.ir.expressions`.

Dimension k of a definition is ``Dim(k)``; reduction dimensions follow the pure ones. Sizes are polynomials over
run-time parameters, so that one Graph serves many image sizes. Boundary handling is part of an index (`Boundary`).
All nodes are immutable, hashed once, and print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from hjit.errors import Origin
from hjit.trace.ir.expressions import Expr, Load, describe, loads, renumber
from hjit.trace.ir.poly import ONE, SMALL, Dim, Indirect, Poly, Sym, poly


def _hash_once(node: Any) -> int:
    """The hash that a frozen dataclass has, computed once: Graphs are keys of what is cached for their stages."""
    found: int | None = node.__dict__.get("_hash")
    if found is None:
        found = node.__dict__["_hash"] = hash(tuple(getattr(node, f.name) for f in fields(node) if f.compare))
    return found


@dataclass(frozen=True)  # without slots, as Stage and Graph: they cache their properties
class Definition:
    """``for dims, rdims: stage[target] = value``.

    Attributes:
        dims: extents of the pure dimensions.
        rdims: extents of the reduction dimensions.
        target: one index per axis of the stage.
        value: the new element; in an update it may load the stage itself.
        order: "pure", "sequential", or the associative operation ("add", "maximum", ...) of a reduction
            ``stage[target] = op(stage[target], x)`` that may run in any order.
        reorders: of a sequential sum of floats, does NumPy leave its order open, as that of `np.cumsum`? Any other has
            NumPy's bits.
        joined: does it run together with the update before it, of the same dimensions? In each iteration the values of
            both are evaluated before either is stored; both are sequential.
    """

    dims: tuple[Poly, ...]
    rdims: tuple[Poly, ...]
    target: tuple[Poly, ...]
    value: Expr
    order: str = "pure"
    reorders: bool = False
    joined: bool = False

    __hash__ = _hash_once

    @cached_property
    def extents(self) -> tuple[Poly, ...]:
        """The extents of all dimensions, the pure ones first."""
        return self.dims + self.rdims

    @cached_property
    def is_scatter(self) -> bool:
        """Does the target depend on values of arrays?"""
        return any(isinstance(a, Indirect) for p in self.target for a in p.atoms())

    def exprs(self) -> tuple[Expr, ...]:
        """The value, and the expressions inside the target's indices."""
        return (self.value, *(e for p in self.target for e in p.exprs))

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Every distinct load in them."""
        return loads(*self.exprs())

    @cached_property
    def sources(self) -> frozenset[str]:
        """The arrays that are read."""
        return frozenset(load.source for load in self.loads)

    def __str__(self) -> str:
        loops = [f"d{k} < {n}" for k, n in enumerate(self.dims)]
        loops += [f"d{k} <r {n}" for k, n in enumerate(self.rdims, len(self.dims))]
        how = f"{self.order}, in any grouping" if self.reorders else self.order
        how = f"{how}, together with the one before" if self.joined else how
        order = "" if self.order == "pure" else f"  ({how})"
        lets, (value,) = describe(self.value)
        where = "".join(f"\n      where {line}" for line in lets)
        return f"[{', '.join(map(str, self.target))}] = {value}   for {', '.join(loops) or 'once'}{order}{where}"


def pure(shape: tuple[Poly, ...], value: Expr) -> Definition:
    """The definition of every element of a stage of `shape`."""
    return Definition(shape, (), identity(len(shape)), value)


class _Identities(dict[int, tuple[Poly, ...]]):
    def __missing__(self, ndim: int) -> tuple[Poly, ...]:
        found = self[ndim] = tuple(poly(Dim(k)) for k in range(ndim))
        return found


# ``(Dim(0), ..., Dim(ndim - 1))`` as indices, of a number of dimensions: always the same tuple
identity: Callable[[int], tuple[Poly, ...]] = _Identities().__getitem__


def contiguous_layout(shape: tuple[Poly, ...]) -> tuple[int | None, ...]:
    """The `Input.layout` of an array in C order."""
    found: list[int | None] = []
    step = ONE
    for n in reversed(shape):
        found.insert(0, 0 if n == ONE else step.const if step.is_const and step.const <= SMALL else None)
        step = step * n
    return tuple(found)


@dataclass(frozen=True, init=False)
class Stage:
    """An array that the Graph computes.

    `initial` is the pure definition, or None where the updates define every element that is read.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Poly, ...]
    initial: Expr | None
    updates: tuple[Definition, ...] = ()
    origin: Origin | None = field(default=None, compare=False)

    __hash__ = _hash_once

    def __init__(
        self,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[Poly, ...],
        initial: Expr | None,
        updates: tuple[Definition, ...] = (),
        origin: Origin | None = None,
    ) -> None:
        """As that of a dataclass, which takes three times as long: a trace makes a stage for each operation."""
        self.__dict__.update(name=name, dtype=dtype, shape=shape, initial=initial, updates=updates, origin=origin)

    @cached_property
    def definitions(self) -> tuple[Definition, ...]:
        """The pure definition, if there is one, and the updates."""
        first = () if self.initial is None else (pure(self.shape, self.initial),)
        return first + self.updates

    @cached_property
    def steps(self) -> tuple[tuple[Definition, ...], ...]:
        """The definitions in order, with `joined` ones grouped."""
        found: list[tuple[Definition, ...]] = []
        for d in self.definitions:
            found[-1:] = [(*found[-1], d)] if d.joined else [*found[-1:], (d,)]
        return tuple(found)

    def exprs(self) -> tuple[Expr, ...]:
        """The expressions of all definitions."""
        return tuple(e for d in self.definitions for e in d.exprs())

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Every distinct load in any definition."""
        return tuple(dict.fromkeys(x for d in self.definitions for x in d.loads))

    @cached_property
    def sources(self) -> frozenset[str]:
        """The arrays that are read, including the stage itself if updates read it."""
        return frozenset(load.source for load in self.loads)

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        head = f"{self.name}: {self.dtype}[{shape}]" + (f"   # {self.origin}" if self.origin else "")
        return "\n".join([head, *(f"    {d}" for d in self.definitions)])


@dataclass(frozen=True, slots=True)
class Input:
    """An array argument of the kernel.

    Attributes:
        layout: per axis the stride in elements where it is a constant of the kernel, or None.
        data: the contents, where they are constants of the kernel.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Poly, ...]
    layout: tuple[int | None, ...]
    data: bytes | None = None

    def __str__(self) -> str:
        strides = ", ".join("?" if s is None else str(s) for s in self.layout)
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}] strides ({strides})" + (
            " constant" if self.data else ""
        )


def element_strides(array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """The strides of an array in elements, as in layouts of inputs."""
    return tuple(s // array.itemsize for s in array.strides)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar argument of the kernel."""

    name: str
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Graph:
    """A DAG of stages, in an order in which they can be computed."""

    inputs: tuple[Input, ...]
    scalars: tuple[Scalar, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]

    __hash__ = _hash_once

    def stage(self, name: str) -> Stage:
        """The stage of that name."""
        return self.by_name[name]

    @cached_property
    def arrays(self) -> dict[str, Input | Stage]:
        """Inputs and stages, by name."""
        arrays: tuple[Input | Stage, ...] = (*self.inputs, *self.stages)
        return {x.name: x for x in arrays}

    @cached_property
    def by_name(self) -> dict[str, Stage]:
        """The stages, in their order."""
        return {s.name: s for s in self.stages}

    @cached_property
    def input_by_name(self) -> dict[str, Input]:
        """The inputs, in their order."""
        return {i.name: i for i in self.inputs}

    @cached_property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        """The dtypes of inputs and stages."""
        return {n: x.dtype for n, x in self.arrays.items()}

    @cached_property
    def shapes(self) -> dict[str, tuple[Poly, ...]]:
        """The shapes of inputs and stages."""
        return {n: x.shape for n, x in self.arrays.items()}

    def consumers(self) -> dict[str, list[str]]:
        """For each input and stage, the other stages that load it."""
        found: dict[str, list[str]] = {n: [] for n in self.arrays}
        for s in self.stages:
            for name in s.sources:
                if name != s.name and name in found:
                    found[name].append(s.name)
        return found

    def __str__(self) -> str:
        rows = [f"input {i}" for i in self.inputs]
        rows += [f"scalar {s.name}: {s.dtype}" for s in self.scalars]
        rows += [str(s) for s in self.stages]
        return "\n".join([*rows, f"return {', '.join(self.outputs)}"])


def compose(outer: Sequence[Poly], inner: Sequence[Poly]) -> tuple[Poly, ...]:
    """`outer` with its dimension k replaced by ``inner[k]``."""
    change = renumber(inner)
    return tuple(p.substitute(change) for p in outer)


def single_dim(p: Poly, ndims: int) -> int | None:
    """k if an index is ``c * Dim(k) + offset`` with c > 0 and a fixed `offset`."""
    found = None
    for m, c in p.terms.items():
        for a in m:
            if isinstance(a, Dim):
                if len(m) > 1 or c <= 0 or found is not None or a.k >= ndims:
                    return None
                found = a.k
            elif not isinstance(a, Sym):
                return None
    return found
