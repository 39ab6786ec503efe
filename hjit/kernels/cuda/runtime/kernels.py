"""The kernels of a Graph on a device: from this process, from the disk cache, or newly compiled.

A kernel serves every Graph with the same key: launches refer to arrays, sizes and scalars by their position in the
Graph. A disk entry has everything that a launch needs, so a process that finds it neither lowers nor compiles.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

import hjit.cache as cache
from hjit.errors import CompileError
from hjit.kernels.cuda.compilers.machine_code import Resources
from hjit.kernels.cuda.compilers.nvrtc import resources
from hjit.kernels.cuda.launches import Launch, Parameter
from hjit.kernels.cuda.runtime.bands import IntArray, RowTable
from hjit.kernels.cuda.runtime.device import Device
from hjit.kernels.lower.program import ITERATION, Rows
from hjit.kernels.runtime.kernel import count
from hjit.kernels.runtime.naming import schedule_text
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.kernels.runtime.scratch import live_ranges_of
from hjit.kernels.runtime.sizes import encode, evaluate, tabulated
from hjit.options import Options
from hjit.process import deadline
from hjit.sched.language.memory import C_ORDER
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Poly, poly

KEPT = 64  # latest unreferenced kernels that are kept, because the same function is often decorated again

_kernels: dict[Any, Kernels] = {}  # by name and device, the latest used at the end
_of_parents: list[dict[Any, Kernels]] = []  # of processes that this one was forked from
_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class Kernels:
    """Compiled kernels for all Graphs of one key.

    Attributes:
        name: what all of their names begin with, and the name in the disk cache.
        text: their source, without the prelude.
        launches: what is run, in order, encoded.
        scratch: stages that are neither results nor in memory of tasks: position in the Graph, number of elements
            (encoded), the first and the last nest that needs it.
        loaded: the kernels by name, as the device launches them.
        log: what the compiler reported.
        from_cache: were they found on disk?
    """

    name: str
    text: str
    launches: tuple[Mapping[str, Any], ...]
    scratch: tuple[tuple[int, Any, int, int], ...]
    loaded: Mapping[str, Any]
    log: str
    from_cache: bool

    def launches_of(self, graph: Graph, symbols: Sequence[str], numbers: Sequence[int]) -> list[Launch]:
        """The launches for a Graph at some sizes, without `rows`; `numbers`: of the symbols."""
        return [_launch(x, _names(graph, symbols), numbers) for x in self.launches]

    def rows_of(self, graph: Graph, symbols: Sequence[str], numbers: Sequence[int]) -> list[RowTable]:
        """For each of the launches the rows that its blocks touch."""
        arrays = _names(graph, symbols)["array"]
        return [_rows(x["rows"], arrays, numbers) for x in self.launches]

    @property
    def resources(self) -> dict[str, Resources]:
        """What each kernel needs, by name, as the compiler reported it."""
        return resources(self.log)


def kernels_for(scheduled: Scheduled, options: Options, bits: int, device: Device) -> Kernels:
    """The compiled kernels; `bits`: of indices, see `emit.emit_module`.

    Raises:
        ScheduleError: the schedule asks for what cannot be done.
        CompileError: the compiler refused them.
    """
    name = kernel_name(scheduled, options, bits, device.code_key)
    key = name, device.key
    with _lock:
        found = _kernels.pop(key, None) or _load(name, device, options)
        if found is None:
            found = _made(scheduled, name, options, bits, device)
        _kernels[key] = found
        while len(_kernels) > KEPT:
            del _kernels[next(iter(_kernels))]
        return found


def kernel_name(scheduled: Scheduled, options: Options, bits: int, code_key: str) -> str:
    """The name of kernels, of all that they depend on."""
    schedule = schedule_text(scheduled.graph, scheduled.tree)
    parts = (scheduled.key.text, schedule, "cuda", code_key, cache.versions(), str(options.fast_math), str(bits))
    return "hjit_" + cache.digest(*parts)[:40]


def _made(scheduled: Scheduled, name: str, options: Options, bits: int, device: Device) -> Kernels:
    from hjit.kernels.cuda.runtime.lowered import lowered  # a process that finds its kernels does not load it

    found = lowered(scheduled, options, name, bits)
    graph, program, symbols = found.graph, found.program, scheduled.key.symbols
    names, position = _names(graph, symbols), {s.name: k for k, s in enumerate(graph.stages)}
    live_ranges = live_ranges_of(graph, program)
    scratch = []
    for s in graph.stages:
        if s.name in live_ranges and s.name not in graph.outputs and s.name not in program.buffers:
            elements = poly(1)
            for n in program.layouts.get(s.name, C_ORDER).lengths(s.shape):
                elements = elements * n
            scratch.append((position[s.name], encode(elements, symbols), *live_ranges[s.name]))
    with deadline.paused():
        code, log = device.compile(found.module.text)
    head = {
        "text": found.module.text,
        "launches": [_encoded(x, names, symbols) for x in found.module.launches],
        "scratch": scratch,
        "log": log,
    }
    made = _kernels_of(name, head, code, device, from_cache=False)
    count(compiled=1)
    payload = json.dumps(head).encode() + b"\n" + code
    cache.store(name, payload, {"versions": cache.versions()}, options.cache_dir, options.cache)
    return made


def _load(name: str, device: Device, options: Options) -> Kernels | None:
    data = cache.load(name, options.cache_dir, options.cache)
    if data is None:
        return None
    line, _, code = data.partition(b"\n")
    try:
        found = _kernels_of(name, json.loads(line), code, device, from_cache=True)
    except (CompileError, ValueError, TypeError, KeyError):
        return None
    count(loaded=1)
    return found


def _kernels_of(name: str, head: Any, code: bytes, device: Device, from_cache: bool) -> Kernels:
    launches = tuple(dict(x) for x in head["launches"])
    scratch = tuple((int(k), n, int(first), int(last)) for k, n, first, last in head["scratch"])
    text, log = str(head["text"]), str(head["log"])
    return Kernels(name, text, launches, scratch, device.load(text, code), log, from_cache)


def after_fork() -> None:
    """The lock of another thread of the parent is open in a child, which cannot use its parent's devices.

    Nor can it unload what is loaded there: CUDA refuses that, and CuPy's destructors print that it does.
    """
    global _lock, _kernels
    _lock = threading.RLock()
    _of_parents.append(_kernels)
    _kernels = {}


# -- launches as JSON


def _names(graph: Graph, symbols: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """What parameters name, by kind."""
    return {
        "array": [*(i.name for i in graph.inputs), *(s.name for s in graph.stages)],
        "size": symbols,
        "scalar": [s.name for s in graph.scalars],
    }


_KINDS = {"array": "array", "offset": "array", "stride": "array", "size": "size", "scalar": "scalar"}


def _encoded(launch: Launch, names: Mapping[str, Sequence[str]], symbols: Sequence[str]) -> dict[str, Any]:
    def value(x: Any) -> Any:
        match x:
            case Poly():
                return {"poly": encode(x, symbols)}
            case Parameter():
                table = _KINDS.get(x.kind)
                name = x.name if table is None else names[table].index(x.name)
                return {"parameter": [x.kind, name, x.axis, None if x.dtype is None else x.dtype.str]}
            case tuple():
                return [value(y) for y in x]
            case Rows():
                return _encoded_rows(x, names, symbols)
        return x

    return {f.name: value(getattr(launch, f.name)) for f in fields(launch)}


def _encoded_rows(x: Rows, names: Mapping[str, Sequence[str]], symbols: Sequence[str]) -> list[Any]:
    place, known = names["array"].index, [*symbols, ITERATION.name]
    ends = [[place(name), encode(p, known)] for name, p in x.ends.items()]
    return [place(x.stage), encode(x.count, symbols), ends, encode(x.begin, known)]


def _rows(data: Sequence[Any], arrays: Sequence[str], numbers: Sequence[int]) -> RowTable:
    stage, count, ends, begin = data
    n = evaluate(count, numbers)
    values = [*numbers, np.arange(n)]

    def column(p: Any) -> IntArray:
        return np.broadcast_to(tabulated(p, values), (n,))

    return RowTable(arrays[stage], n, {arrays[k]: column(p) for k, p in ends}, column(begin))


def _launch(data: Mapping[str, Any], names: Mapping[str, Sequence[str]], numbers: Sequence[int]) -> Launch:
    def value(x: Any) -> Any:
        match x:
            case {"poly": p}:
                return poly(evaluate(p, numbers))
            case {"parameter": [kind, name, axis, dtype]}:
                table = _KINDS.get(kind)
                known = name if table is None else names[table][name]
                return Parameter(kind, known, axis, None if dtype is None else np.dtype(dtype))
            case list():
                return tuple(map(value, x))
        return x

    return Launch(**{name: value(x) for name, x in data.items() if name != "rows"})
