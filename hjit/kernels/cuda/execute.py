"""Runs the kernels of a module on a device, one after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from hjit.kernels.cuda import opencl
from hjit.kernels.cuda.emit import Module, Parameter
from hjit.kernels.lower.loopir import Program
from hjit.sched.language.memory import C_ORDER
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Poly, sizes_value


class Device(Protocol):
    """What runs kernels: arrays in its memory, and launches, in order."""

    def empty(self, elements: int, dtype: np.dtype[Any]) -> Any:
        """An array of at least one element."""
        ...

    def constant(self, data: bytes, dtype: np.dtype[Any]) -> Any:
        """An array with these elements."""
        ...

    def zeros(self, elements: int, dtype: np.dtype[Any]) -> Any:
        """An array of zeros."""
        ...

    def launch(self, text: str, kernel: str, blocks: int, threads: int, args: Sequence[Any]) -> None:
        """Run a kernel of a text; arguments are arrays and NumPy scalars."""
        ...

    def read(self, array: Any) -> np.ndarray[Any, Any]:
        """The elements of an array, when everything is done that was launched before."""
        ...


class OpenCL:
    """PoCL: arrays are NumPy's."""

    def empty(self, elements: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return np.empty(elements, dtype)

    def constant(self, data: bytes, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return np.frombuffer(data, dtype)

    def zeros(self, elements: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return np.zeros(elements, dtype)

    def launch(self, text: str, kernel: str, blocks: int, threads: int, args: Sequence[Any]) -> None:
        opencl.compiled(text).launch(kernel, (blocks, 1, 1), (threads, 1, 1), args)

    def read(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return array


class Executable:
    """The kernels of a Graph for some sizes and strides.

    Args:
        bits: of the kernels' indices.
        strides: of the inputs, in elements.
    """

    def __init__(
        self,
        graph: Graph,
        program: Program,
        module: Module,
        bits: int,
        sizes: Mapping[str, int],
        strides: Mapping[str, Sequence[int]],
        device: Device,
    ) -> None:
        self.module, self.sizes, self.device, self.strides = module, sizes, device, strides
        self.index = np.dtype(f"i{bits // 8}").type
        self.constants = {i.name: device.constant(i.data, i.dtype) for i in graph.inputs if i.data is not None}
        self.scratch = {
            s.name: (self._elements(program.layouts.get(s.name, C_ORDER).lengths(s.shape)), s.dtype)
            for s in graph.stages
            if s.name not in graph.outputs and s.name not in program.buffers
        }

    def _elements(self, shape: Sequence[Poly]) -> int:
        return max(math.prod(sizes_value(p, self.sizes) for p in shape), 1)

    def run(
        self, arrays: Mapping[str, tuple[Any, int]], outputs: Mapping[str, Any], scalars: Mapping[str, Any]
    ) -> bool:
        """Compute `outputs`, contiguous arrays of the device; False where an index was out of bounds.

        Args:
            arrays: the inputs by name: memory, and where in it the first element is.
            scalars: as NumPy has them, by name.
        """
        device = self.device
        at = {**self.constants, **{name: memory for name, (memory, _) in arrays.items()}, **outputs}
        at |= {name: device.empty(n, dtype) for name, (n, dtype) in self.scratch.items()}
        status = device.zeros(1, np.dtype(np.uint32))

        def argument(p: Parameter, count: int) -> Any:
            match p.kind:
                case "array":
                    return at[p.name]
                case "status":
                    return status
                case "scalar":
                    return _stored(scalars[p.name])
                case "offset":
                    return self.index(arrays[p.name][1])
                case "size":
                    return self.index(self.sizes[p.name])
                case "stride":
                    return self.index(self.strides[p.name][p.axis])
            return self.index(count)

        for launch in self.module.launches:
            if sizes_value(launch.points, self.sizes) <= 0:
                continue
            count = 1 if launch.count is None else sizes_value(launch.count, self.sizes)
            if count > 0:
                args = [argument(p, count) for p in launch.parameters]
                device.launch(self.module.text, launch.kernel, launch.blocks(count), launch.threads, args)
        return not int(device.read(status)[0])


def _stored(x: Any) -> Any:
    """A NumPy scalar as kernels are given it: a bool is a byte, a half its 16 bits."""
    x = np.asarray(x)
    return (x.view(np.uint8) if x.dtype == np.bool_ else x.view(np.uint16) if x.dtype == np.float16 else x)[()]
