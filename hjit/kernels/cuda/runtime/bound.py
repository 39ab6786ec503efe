"""Kernels of a Graph bound to the sizes and strides of one call's arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.kernels.cuda.launches import Launch, Parameter
from hjit.kernels.cuda.runtime.device import Device, current, found
from hjit.kernels.cuda.runtime.kernels import Kernels, kernels_for
from hjit.kernels.lower.params import SMALL_ARRAY
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.kernels.runtime.scratch import offsets
from hjit.kernels.runtime.sizes import evaluate
from hjit.options import Options
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Poly, sizes_value

ALIGN = 256  # bytes, as CUDA aligns what it allocates
STATUS = np.dtype(np.uint32)


@dataclass(frozen=True, slots=True)
class _Call:
    """One launch with what is known of its arguments.

    Attributes:
        args: those that are the same at every run, None in place of others.
        holes: the positions of those, and which of a run's values they are.
    """

    kernel: Any
    blocks: int
    threads: int
    args: tuple[Any, ...]
    holes: tuple[tuple[int, int], ...]


class Bound:
    """As `hjit.kernels.runtime.kernel.Bound`, on the device that is current when it is made.

    Attributes:
        inputs: names of the arrays to pass, in order.
        outputs: (name, shape, dtype) of the results, in order.
        scratch_bytes: what a run borrows.
    """

    may_stream = False

    def __init__(
        self, scheduled: Scheduled, options: Options, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]]
    ) -> None:
        graph = scheduled.graph
        self.scheduled, self.options, self.sizes, self.strides = scheduled, options, sizes, strides
        self.inputs = tuple(i.name for i in graph.inputs if i.data is None)
        self.outputs = tuple(
            (n, tuple(sizes_value(p, sizes) for p in graph.by_name[n].shape), graph.by_name[n].dtype)
            for n in graph.outputs
        )
        self.scalars = tuple((s.name, s.dtype) for s in graph.scalars)
        self.bits = index_bits(graph, sizes, strides)
        self.scratch_bytes = 0
        self._ready: tuple[Device, Kernels, list[_Call]] | None = None
        device = found()
        if device is not None:
            self._prepare(device)

    @property
    def kernel(self) -> Kernels:
        """The compiled kernels.

        Raises:
            DeviceError: there was no device when this was made, and there is none now.
        """
        return self._prepared()[1]

    @property
    def device(self) -> Device:
        """What they run on; raises as `kernel` does."""
        return self._prepared()[0]

    def number(self, p: Poly) -> int:
        """A size at those of this call."""
        return sizes_value(p, self.sizes)

    def _prepared(self) -> tuple[Device, Kernels, list[_Call]]:
        return self._ready or self._prepare(current())

    def new_outputs(self) -> list[Any]:
        """Arrays for the results, on the device."""
        empty = self.device.empty
        return [empty(shape, dtype) for _, shape, dtype in self.outputs]

    def run(
        self,
        arrays: Sequence[Any],
        outputs: Sequence[Any],
        scalars: Sequence[Any],
        given: bool = False,
        streamed: bool = False,
    ) -> bool:
        """Compute `outputs`, which are C-contiguous; False where an index, or a Python int, was out of bounds.

        Args:
            arrays: of the device, or of the host.
        """
        device, _, calls = self._prepared()
        try:
            numbers = self._numbers(scalars) if scalars else ()
        except OverflowError:
            return False  # NumPy itself knows where that is an error: a comparison is none
        own = [device.argument(device.own(a)) for a in arrays]
        block = device.empty((self.scratch_bytes,), np.dtype(np.uint8)) if self.scratch_bytes else None
        status = device.zeros((1,), STATUS) if self._checks else None
        values = [
            *(memory for memory, _ in own),
            *(self._index(offset) for _, offset in own),
            *outputs,
            *(device.part(block, *where) for where in self._scratch),
            *numbers,
            status,
        ]
        for call in calls:
            args = list(call.args)
            for at, k in call.holes:
                args[at] = values[k]
            device.launch(call.kernel, call.blocks, call.threads, args)
        return status is None or not int(device.host(status)[0])

    def _numbers(self, scalars: Sequence[Any]) -> list[Any]:
        """The scalars, converted as NumPy converts numbers that it is given together with arrays.

        Raises:
            OverflowError: a Python int that the dtype cannot hold, as NumPy has it.
        """
        with np.errstate(all="ignore"):
            return [_stored(np.array(x, dtype)) for (_, dtype), x in zip(self.scalars, scalars, strict=True)]

    # -- binding
    def _prepare(self, device: Device) -> tuple[Device, Kernels, list[_Call]]:
        graph, key, sizes = self.scheduled.graph, self.scheduled.key, self.sizes
        kernels = kernels_for(self.scheduled, self.options, self.bits, device)
        numbers = [sizes[name] for name in key.symbols]
        places, lives, counts = {}, {}, {}
        for k, elements, first, last in kernels.scratch:
            s = graph.stages[k]
            counts[s.name], lives[s.name] = max(evaluate(elements, numbers), 1), (first, last)
            places[s.name] = -(-counts[s.name] * s.dtype.itemsize // ALIGN) * ALIGN
        at, self.scratch_bytes = offsets(places, lives)
        self._scratch = [(at[name], counts[name], graph.dtypes[name]) for name in at]
        self._index = np.dtype(f"i{self.bits // 8}").type
        launches = [
            x
            for x in kernels.launches_of(graph, key.symbols, numbers)
            if x.points.const > 0 and (x.count is None or x.count.const > 0)
        ]
        self._checks = any(p.kind == "status" for x in launches for p in x.parameters)
        find = self._finder(device, list(at))
        ready = device, kernels, [self._call(x, kernels.loaded[x.kernel], find) for x in launches]
        self._ready = ready
        return ready

    def _finder(self, device: Device, scratch: Sequence[str]) -> Callable[[Parameter, int], tuple[bool, Any]]:
        """What a parameter is given: a fixed value (True), or one of the values of a run."""
        graph, n = self.scheduled.graph, len(self.inputs)
        order = {name: k for k, name in enumerate(self.inputs)}
        memory = {**order, **{name: 2 * n + k for k, (name, _, _) in enumerate(self.outputs)}}
        first = 2 * n + len(self.outputs)
        memory |= {name: first + k for k, name in enumerate(scratch)}
        scalars = {name: first + len(scratch) + k for k, (name, _) in enumerate(self.scalars)}
        status = first + len(scratch) + len(scalars)
        constants = {
            i.name: device.own(np.frombuffer(i.data, i.dtype)) for i in graph.inputs if i.data is not None and i.data
        }
        index = np.dtype(f"i{self.bits // 8}").type

        def find(p: Parameter, count: int) -> tuple[bool, Any]:
            match p.kind:
                case "array" if p.name in memory:
                    return False, memory[p.name]
                case "array":
                    return True, constants[p.name] if p.name in constants else device.empty((1,), graph.dtypes[p.name])
                case "status":
                    return False, status
                case "scalar":
                    return False, scalars[p.name]
                case "offset":
                    return False, n + order[p.name]
                case "size":
                    return True, index(self.sizes[p.name])
                case "stride":
                    return True, index(self.strides[p.name][p.axis])
                case "count":
                    return True, index(count)
            raise AssertionError(p)

        return find

    def _call(self, x: Launch, kernel: Any, find: Callable[[Parameter, int], tuple[bool, Any]]) -> _Call:
        count = 1 if x.count is None else x.count.const
        found = [find(p, count) for p in x.parameters]
        args = tuple(value if fixed else None for fixed, value in found)
        holes = tuple((k, value) for k, (fixed, value) in enumerate(found) if not fixed)
        return _Call(kernel, x.blocks(count), x.threads, args, holes)


def _stored(x: np.ndarray[Any, Any]) -> Any:
    """A NumPy scalar as kernels are given it: a bool is a byte, a half its 16 bits."""
    return (x.view(np.uint8) if x.dtype == np.bool_ else x.view(np.uint16) if x.dtype == np.float16 else x)[()]


def index_bits(graph: Graph, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]]) -> int:
    """Of kernels' indices: 32 where all arrays are short enough, from the first element in memory to the last."""
    stages = (math.prod(sizes_value(p, sizes) for p in s.shape) for s in graph.stages)
    given = [i for i in graph.inputs if i.data is None]
    inputs = (
        sum(abs(step) * sizes_value(n, sizes) for n, step in zip(i.shape, strides[i.name], strict=True)) for i in given
    )
    return 32 if all(n <= SMALL_ARRAY for n in (*stages, *inputs)) else 64
