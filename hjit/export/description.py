"""A kernel with everything that a caller needs to know to run it, as data: C code is generated from it, and a bundle
stores it.

Sizes are polynomials over the run-time sizes of the arguments, each a `Sym` named in ``description.sizes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.errors import HjitError, Origin
from hjit.export.numbers import Numbers
from hjit.trace.ir.poly import Sym
from hjit.trace.tracing.scalars.size import SizeGuard

Size = Any  # a polynomial; of a bundle an encoded one, see `hjit.kernels.runtime.sizes`


@dataclass(frozen=True, slots=True)
class Parameter:
    """One leaf of the arguments.

    Attributes:
        kind: "array", "number" or "static": of the latter only the example's value is accepted.
        type: dtype of an array, as "<f4"; see `numbers.kind_of` of a number.
        shape: an array's.
        layout: an array's strides in elements where these are constants of the kernel.
        is_written: does the function change it?
        value: a static one.
    """

    name: str
    kind: str
    type: str = ""
    shape: tuple[Size, ...] = ()
    layout: tuple[int | None, ...] = ()
    is_written: bool = False
    value: Any = None


@dataclass(frozen=True, slots=True)
class Output:
    """A stage that the kernel computes, in C order.

    Attributes:
        order: of a result, for each of its axes that of the stage.
        role: "result", "written" (to argument `leaf`), "base" (results are views of it) or "check": NumPy refuses the
            call where it is true.
    """

    type: str
    shape: tuple[Size, ...]
    order: tuple[int, ...]
    role: str
    leaf: int = -1


@dataclass(frozen=True, slots=True)
class View:
    """A result that is a view.

    Attributes:
        base: ("argument", leaf) or ("output", k).
        start: the index of its first element.
        steps: for each of its axes, how the index of an element moves along it.
    """

    base: tuple[str, int]
    dtype: str
    shape: tuple[Size, ...]
    start: tuple[Size, ...]
    steps: tuple[tuple[Size, ...], ...]
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class Scratch:
    """A stage in scratch memory.

    Attributes:
        lengths: of its axes.
        live_range: see `scratch.live_ranges_of`; None: it is never in memory.
        is_of_task: has each task its own?
    """

    itemsize: int
    lengths: tuple[Size, ...]
    live_range: tuple[int, int] | None
    is_of_task: bool


@dataclass(frozen=True, slots=True)
class Description:
    """An exported function.

    Attributes:
        name: of the function, and of the kernel's entry.
        origin: where it is written.
        structure: how the arguments are put together, of numbers of parameters; see `PyTree`.
        result: the structure of what is returned: ("output", k), ("argument", k), ("view", k) or ("static",
            value) for each leaf.
        sizes: names of the run-time sizes, each an extent of an argument.
        size_guards: what must hold of them.
        inputs: of the kernel, in order: ("leaf", k) or ("data", k).
        data: arrays that are part of the code.
        strides: of inputs, in the order of the kernel's slots: (input, axis).
        tasks: buffers of tasks, as positions in `scratch`.
        symbols: the kernel's run-time sizes.
        keep: outputs that may be streamed.
        scalars: dtypes of the kernel's scalars, and the entries that they are.
        small: lengths that 32 bits must hold; none where the kernel has wider indices.
        scalar_results: which outputs are scalars, and which of these Python floats.
    """

    name: str
    entry: str
    origin: str
    parameters: tuple[Parameter, ...]
    structure: Any
    result: Any
    sizes: tuple[str, ...]
    size_guards: tuple[SizeGuard, ...]
    inputs: tuple[tuple[str, int], ...]
    data: tuple[np.ndarray[Any, Any], ...]
    outputs: tuple[Output, ...]
    scratch: tuple[Scratch, ...]
    tasks: tuple[int, ...]
    strides: tuple[tuple[int, int], ...]
    symbols: tuple[Size, ...]
    keep: int
    scalars: tuple[tuple[str, int], ...]
    numbers: Numbers
    small: tuple[Size, ...]
    scalar_results: Mapping[int, bool]
    views: tuple[View, ...] = ()

    def extents(self) -> dict[str, tuple[int, int]]:
        """For each run-time size the parameter and the axis that it is read from."""
        found: dict[str, tuple[int, int]] = {}
        for k, p in enumerate(self.parameters):
            for axis, n in enumerate(p.shape):
                if not n.is_const:
                    ((m, _),) = n.terms.items()
                    assert isinstance(m[0], Sym)
                    found.setdefault(m[0].name, (k, axis))
        return found


class CannotExport(HjitError):
    """A function does what only Python can do."""

    def __init__(self, what: str, advice: str, origin: Origin | None = None) -> None:
        self.what, self.advice, self.origin = what, advice, origin
        where = f"{origin}: " if origin else ""
        super().__init__(f"{where}export: {what}. What to do: {advice}")
