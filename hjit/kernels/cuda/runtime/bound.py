"""Kernels of a Graph bound to the sizes and strides of one call's arrays."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.kernels.cuda.launches import Launch, Parameter
from hjit.kernels.cuda.runtime import bands
from hjit.kernels.cuda.runtime.device import Device, current, found
from hjit.kernels.cuda.runtime.graphs import LEAST, MOST_BYTES, Graphs
from hjit.kernels.cuda.runtime.kernels import Kernels, kernels_for
from hjit.kernels.cuda.runtime.transfers import MAX_SPAN
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.kernels.runtime.scratch import offsets
from hjit.kernels.runtime.sizes import are_small, evaluate
from hjit.options import Options
from hjit.trace.ir.poly import Poly, sizes_value

ALIGN = 256  # bytes, as CUDA aligns what it allocates
STATUS, BYTE = np.dtype(np.uint32), np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class _Call:
    """One launch with what is known of its arguments.

    Attributes:
        start: launches the kernel with arguments.
        args: those that are the same at every run, None in place of others.
        holes: the positions of those, and which of a run's values they are.
    """

    start: Callable[[Sequence[Any]], object]
    args: tuple[Any, ...]
    holes: tuple[tuple[int, int], ...]

    def run(self, values: Sequence[Any]) -> None:
        """Launch it with the values of a run."""
        args = [*self.args]
        for at, k in self.holes:
            args[at] = values[k]
        self.start(args)


@dataclass(frozen=True, slots=True)
class _Memory:
    """Scratch memory of stages.

    Attributes:
        parts: for each stage the byte where it begins, its elements, and their dtype.
    """

    bytes: int
    parts: tuple[tuple[int, int, np.dtype[Any]], ...]


@dataclass(frozen=True, slots=True)
class _Copies:
    """Rows ``begin .. end`` of an argument or a result, by its position."""

    number: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Band:
    """As `hjit.kernels.cuda.runtime.bands.Band`, with what is launched."""

    arriving: tuple[_Copies, ...]
    calls: tuple[_Call, ...]
    leaving: tuple[_Copies, ...]


@dataclass(frozen=True, slots=True)
class _Banded:
    """The launches over bands of rows.

    Attributes:
        arriving: the positions of arguments that come in bands; the others are uploaded before.
        memory: in which no two stages share memory: their kernels run one after another.
    """

    bands: tuple[_Band, ...]
    arriving: frozenset[int]
    memory: _Memory


@dataclass(frozen=True, slots=True)
class _Ready:
    """What runs on a device.

    Attributes:
        graphs: of all launches; None: they are few, or their arrays large.
        banded: for arrays of the host; None: they are not large, or kernels read all of them before they write.
    """

    device: Device
    kernels: Kernels
    calls: tuple[_Call, ...]
    graphs: Graphs | None
    banded: _Banded | None


class Bound:
    """As `hjit.kernels.runtime.kernel.Bound`, on the device that is current when it is made.

    Attributes:
        inputs: names of the arrays to pass, in order.
        outputs: (name, shape, dtype) of the results, in order.
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
        self.bits = 32 if are_small(graph, sizes, strides) else 64
        self._memory = _Memory(0, ())
        self._convert = tuple(converter(dtype) for _, dtype in self.scalars)
        self._ready: _Ready | None = None
        device = found()
        if device is not None:
            self._prepare(device)

    @property
    def kernel(self) -> Kernels:
        """The compiled kernels.

        Raises:
            DeviceError: there was no device when this was made, and there is none now.
        """
        return self._prepared().kernels

    @property
    def scratch_bytes(self) -> int:
        """What a run borrows."""
        return self._memory.bytes

    @property
    def device(self) -> Device:
        """What they run on; raises as `kernel` does."""
        return self._prepared().device

    @property
    def is_graph(self) -> bool:
        """Are the kernels launched as a CUDA graph?"""
        return self._ready is not None and self._ready.graphs is not None and self._ready.graphs.is_faster is True

    @property
    def band_count(self) -> int:
        """In how many bands of rows NumPy's arrays are copied while kernels run over others; 0: as a whole."""
        banded = None if self._ready is None else self._ready.banded
        return 0 if banded is None else len(banded.bands)

    def number(self, p: Poly) -> int:
        """A size at those of this call."""
        return sizes_value(p, self.sizes)

    def _prepared(self) -> _Ready:
        return self._ready or self._prepare(current())

    def new_outputs(self) -> list[Any]:
        """Arrays for the results, on the device."""
        empty = (self._ready or self._prepare(current())).device.empty
        return [empty(shape, dtype) for _, shape, dtype in self.outputs]

    def computed(self, arrays: Sequence[Any], scalars: Sequence[Any]) -> list[Any] | None:
        """New arrays for the results, computed; None where `run` gives False.

        They are the host's where all large arguments are: rows of them are on their way as soon as they are known.
        """
        is_banded = self._are_banded(self._prepared(), arrays)
        outputs = [np.empty(n, dtype) for _, n, dtype in self.outputs] if is_banded else self.new_outputs()
        return outputs if self.run(arrays, outputs, scalars) else None

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
            outputs: as `computed` makes them.
        """
        ready = self._ready or self._prepare(current())
        device = ready.device
        try:
            numbers = [convert(x) for convert, x in zip(self._convert, scalars, strict=True)] if scalars else ()
        except OverflowError:
            return False  # NumPy itself knows where that is an error: a comparison is none
        status = device.zeros((1,), STATUS) if self._checks else None
        if ready.banded is not None and self._are_banded(ready, [*arrays, *outputs]):
            self._run_in_bands(device, ready.banded, arrays, outputs, status, numbers)
        else:
            values = self._values(device, [device.own(a) for a in arrays], outputs, self._memory, status)
            if ready.graphs is None or ready.graphs.is_faster is False:
                _run_all(ready.calls, [*values, *numbers] if numbers else values)
            else:
                key = (*map(device.address, values), *[x.tobytes() for x in numbers])
                ready.graphs.run(key, functools.partial(_run_all, ready.calls, [*values, *numbers]))
        return status is None or not int(device.host(status)[0])

    def _values(
        self, device: Device, arrays: Sequence[Any], outputs: Sequence[Any], memory: _Memory, status: Any
    ) -> list[Any]:
        """What kernels are given of arrays of the device."""
        values = list(arrays)
        if device.shares_memory:
            places = [device.argument(a) for a in values]
            values = [*(memory for memory, _ in places), *(self._index(offset) for _, offset in places)]
        values += outputs
        if memory.bytes:
            block = device.empty((memory.bytes,), BYTE)
            values += [device.part(block, *where) for where in memory.parts]
        if status is not None:
            values.append(status)
        return values

    # -- in bands
    def _are_banded(self, ready: _Ready, arrays: Sequence[Any]) -> bool:
        """Do kernels run over bands of these arrays: are the arguments that come in bands, and results, the host's?"""
        if ready.banded is None:
            return False
        results = range(len(self.inputs), len(arrays))
        return all(isinstance(arrays[k], np.ndarray) for k in (*ready.banded.arriving, *results))

    def _run_in_bands(
        self,
        device: Device,
        banded: _Banded,
        arrays: Sequence[Any],
        outputs: Sequence[Any],
        status: Any,
        numbers: Sequence[Any],
    ) -> None:
        own = [None if k in banded.arriving else device.own(a) for k, a in enumerate(arrays)]
        with device.moves() as moves:
            there = [moves.place(a) if mine is None else mine for a, mine in zip(arrays, own, strict=True)]
            results = [moves.place(a) for a in outputs]
            values = [*self._values(device, there, results, banded.memory, status), *numbers]
            for band in banded.bands:
                for x in band.arriving:
                    moves.send(arrays[x.number], there[x.number], x.begin, x.end)
                _run_all(band.calls, values)
                for x in band.leaving:
                    moves.fetch(results[x.number], outputs[x.number], x.begin, x.end)

    # -- binding
    def _prepare(self, device: Device) -> _Ready:
        graph, key, sizes = self.scheduled.graph, self.scheduled.key, self.sizes
        kernels = kernels_for(self.scheduled, self.options, self.bits, device)
        numbers = [sizes[name] for name in key.symbols]
        self._memory = self._scratch(kernels, numbers)
        self._index = np.dtype(f"i{self.bits // 8}").type
        known = kernels.launches_of(graph, key.symbols, numbers)
        runs = [x.points.const > 0 and (x.count is None or x.count.const > 0) for x in known]
        launches = list(itertools.compress(known, runs))
        self._checks = any(p.kind == "status" for x in launches for p in x.parameters)
        find = self._finder(device, [graph.stages[k].name for k, *_ in kernels.scratch])

        def call(x: Launch, begin: int = 0, end: int | None = None) -> _Call:
            return self._call(x, device, kernels.loaded[x.kernel], find, begin, end)

        calls = tuple(map(call, launches))
        capturing = device.capturing if len(calls) >= LEAST and self._bytes() <= MOST_BYTES else None
        banded = None
        if self._moved_bytes() >= 2 * bands.BAND_BYTES:
            tables = itertools.compress(kernels.rows_of(graph, key.symbols, numbers), runs)
            banded = self._banded(launches, list(tables), call, self._scratch(kernels, numbers, apart=True))
        self._ready = _Ready(device, kernels, calls, None if capturing is None else Graphs(capturing), banded)
        return self._ready

    def _scratch(self, kernels: Kernels, numbers: Sequence[int], apart: bool = False) -> _Memory:
        """Memory for the stages that are neither results nor in memory of tasks; `apart`: none shares another's."""
        graph = self.scheduled.graph
        places, live_ranges, counts = {}, {}, {}
        for k, elements, first, last in kernels.scratch:
            s = graph.stages[k]
            counts[s.name], live_ranges[s.name] = (
                max(evaluate(elements, numbers), 1),
                (0, 0) if apart else (first, last),
            )
            places[s.name] = -(-counts[s.name] * s.dtype.itemsize // ALIGN) * ALIGN
        at, size = offsets(places, live_ranges)
        return _Memory(size, tuple((at[name], n, graph.dtypes[name]) for name, n in counts.items()))

    def _moved_bytes(self) -> int:
        """Of arguments or results, whichever are more: of arrays of the host what is copied in one direction."""
        graph = self.scheduled.graph
        given = (math.prod(map(self.number, i.shape)) * i.dtype.itemsize for i in graph.inputs if i.data is None)
        made = (math.prod(shape) * dtype.itemsize for _, shape, dtype in self.outputs)
        return max(sum(given), sum(made))

    def _banded(
        self,
        launches: Sequence[Launch],
        tables: Sequence[bands.RowTable],
        call: Callable[[Launch, int, int], _Call],
        memory: _Memory,
    ) -> _Banded | None:
        """The launches over bands of rows, where that is of use."""
        graph = self.scheduled.graph
        rows = {name: self.number(shape[0]) if shape else 1 for name, shape in graph.shapes.items()}
        arriving = {n: k for k, n in enumerate(self.inputs) if self._comes_in_bands(n)}
        results = {n: k for k, (n, _, _) in enumerate(self.outputs)}
        read = [{p.name for p in x.parameters if p.kind == "array"} for x in launches]
        readers = [bands.Reader(frozenset(names - {t.stage}), t) for names, t in zip(read, tables, strict=True)]
        count = min(-(-self._moved_bytes() // bands.BAND_BYTES), bands.MAX_BANDS)
        planned = bands.plan(readers, rows, list(arriving), list(results), count) if arriving else ()
        if not planned:
            return None

        def part(p: bands.BlockRange) -> _Call:
            x, table = launches[p.launch], readers[p.launch].table
            each = (1 if x.count is None else x.count.const) // table.count  # blocks of an iteration
            return call(x, p.begin * each, p.end * each)

        def copies(spans: Sequence[bands.RowRange], numbers: Mapping[str, int]) -> tuple[_Copies, ...]:
            return tuple(_Copies(numbers[x.array], x.begin, x.end) for x in spans)

        made = tuple(
            _Band(copies(b.arriving, arriving), tuple(map(part, b.parts)), copies(b.leaving, results)) for b in planned
        )
        return _Banded(made, frozenset(arriving.values()), memory)

    def _comes_in_bands(self, array: str) -> bool:
        """Is an argument large, and do its rows follow each other in memory, with few gaps between their elements?"""
        i = self.scheduled.graph.input_by_name[array]
        shape = [self.number(n) for n in i.shape]
        steps = self.strides[array]
        if math.prod(shape) * i.dtype.itemsize < bands.BAND_BYTES or any(step < 0 for step in steps):
            return False
        row = 1 + sum((n - 1) * step for n, step in zip(shape[1:], steps[1:], strict=True))
        return row <= steps[0] <= MAX_SPAN * math.prod(shape[1:])

    def _bytes(self) -> int:
        """Of arguments, results and scratch memory, each once."""
        graph = self.scheduled.graph
        given = [(i.shape, i.dtype) for i in graph.inputs]
        made = [(graph.by_name[n].shape, graph.by_name[n].dtype) for n in graph.outputs]
        sizes = (math.prod(self.number(p) for p in shape) * dtype.itemsize for shape, dtype in (*given, *made))
        return self.scratch_bytes + sum(sizes)

    def _finder(self, device: Device, scratch: Sequence[str]) -> Callable[[Parameter, int], tuple[bool, Any]]:
        """What a parameter is given: a fixed value (True), or one of the values of a run."""
        graph, n = self.scheduled.graph, len(self.inputs)
        order = {name: k for k, name in enumerate(self.inputs)}
        first = 2 * n if device.shares_memory else n  # where there are pointers, arrays begin there
        memory = {**order, **{name: first + k for k, (name, _, _) in enumerate(self.outputs)}}
        first += len(self.outputs)
        memory |= {name: first + k for k, name in enumerate(scratch)}
        status = first + len(scratch)
        first = status + self._checks
        scalars = {name: first + k for k, (name, _) in enumerate(self.scalars)}
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
                case "offset" if device.shares_memory:
                    return False, n + order[p.name]
                case "offset":
                    return True, index(0)
                case "size":
                    return True, index(self.sizes[p.name])
                case "stride":
                    return True, index(self.strides[p.name][p.axis])
                case "count":
                    return True, index(count)
            raise AssertionError(p)

        return find

    def _call(
        self,
        x: Launch,
        device: Device,
        kernel: Any,
        find: Callable[[Parameter, int], tuple[bool, Any]],
        begin: int,
        end: int | None,
    ) -> _Call:
        """The launch of the blocks ``begin .. end``; None: all from there on. Threads of a nest without blocks are not
        told apart."""
        count = 1 if x.count is None else x.count.const
        blocks = x.blocks(count) if x.per_thread or end is None else end - begin
        found = [(True, self._index(begin)) if p.kind == "first" else find(p, count) for p in x.parameters]
        args = tuple(value if fixed else None for fixed, value in found)
        holes = tuple((k, value) for k, (fixed, value) in enumerate(found) if not fixed)
        return _Call(device.launcher(kernel, blocks, x.threads), args, holes)


def _run_all(calls: Sequence[_Call], values: Sequence[Any]) -> None:
    for call in calls:
        call.run(values)


def converter(dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """What makes a number of a dtype, as kernels are given it: as NumPy converts numbers together with arrays.

    It raises an OverflowError for a Python int that the dtype cannot hold, as NumPy does.
    """
    own, largest = dtype.type, float(np.finfo(dtype).max) if dtype.char in "fd" else 0.0

    def slowly(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return _stored(np.array(x, dtype))

    def from_float(x: Any) -> Any:
        return own(x) if type(x) is float and -largest <= x <= largest else slowly(x)

    def from_int(x: Any) -> Any:
        return own(x) if type(x) is int else slowly(x)

    return from_float if dtype.char in "fd" else from_int if dtype.kind in "iu" else slowly


def _stored(x: np.ndarray[Any, Any]) -> Any:
    """A NumPy scalar as kernels are given it: a bool is a byte, a half its 16 bits."""
    return (x.view(np.uint8) if x.dtype == np.bool_ else x.view(np.uint16) if x.dtype == np.float16 else x)[()]
