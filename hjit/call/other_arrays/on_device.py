"""Calls whose kernels run on a GPU: arrays of the device as arguments and results, and copies of those of the host.

The function is traced on stand-ins: NumPy arrays without memory of their own, of the same shapes, dtypes and strides.
Where all arrays are the device's, nothing is copied to the host but the values that the function decides on, what
extern calls need, and results that are Python numbers. Where they are NumPy's, they are copied to the device, and the
results back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from hjit.call.arguments import each_once, is_device_array
from hjit.call.entry import Call
from hjit.call.guards import GuardValues, look_up
from hjit.call.results import MISS, Outcome, Results, complex_argument, joined_rows, of_joined
from hjit.call.segments import TraceSegments
from hjit.call.variant import AS_CALLED, CompiledSegments, OneKernel, RunOptions, Variant
from hjit.kernels.cuda.runtime import library
from hjit.kernels.cuda.runtime.device import Device, current, found
from hjit.sched.language.target import Target
from hjit.trace.capture.captured import without_memory
from hjit.trace.capture.trace import PyTree, Result, flatten
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.rewrites import NO_REWRITES
from hjit.trace.tracing.complex_memory import complex_of, parts_of
from hjit.trace.tracing.recording.events import GraphBreak
from hjit.trace.tracing.recording.products import Product
from hjit.trace.tracing.recording.recorder import OutOfBounds, Recorder

log = logging.getLogger("hjit")

Array = np.ndarray[Any, Any]


def adopt(leaves: list[Any]) -> bool:
    """Replace arrays of other packages by views of them as arrays of the device; were there any?

    Raises:
        DeviceError: there is no device.
        TypeError: some arrays are the host's, and some the device's; CuPy does not mix them, either.
        ValueError: they are on several devices, of which one cannot read the memory of the other.
    """
    device = current()
    if device.shares_memory:
        for x in leaves:
            if is_device_array(x):
                device.own(x)  # says why not
        return False
    there = [x for x in leaves if is_device_array(x)]
    if not there:
        return False
    here = [x for x in leaves if isinstance(x, np.ndarray) and x.ndim]
    if here:
        raise TypeError(
            f"Unsupported type {type(here[0])}: the other arrays are on the GPU; copy it there, or them back"
        )
    changed = False
    for k, x in enumerate(leaves):
        if is_device_array(x) and not device.is_array(x):
            leaves[k], changed = device.own(x), True
    numbers = {x.data.device_id for x in leaves if device.is_array(x) and x.size}
    if len(numbers) > 1:
        raise ValueError(f"Array device must be same as the current device: arrays are on devices {sorted(numbers)}")
    return changed


def device_of(leaves: Sequence[Any]) -> AbstractContextManager[Any]:
    """The device of the arrays is the current one inside; without arrays on a device that is the current one anyway."""
    first = next(filter(is_device_array, leaves), None)
    return nullcontext() if first is None else current().where(first)


def stand_in(x: Any) -> Any:
    """What a traced function is given for an array of a device: one without memory; anything else is itself."""
    if not is_device_array(x):
        return x
    return without_memory(x)


def host_copy(x: Any) -> Any:
    """A copy of a device's array on the host, with the same strides; anything else is itself."""
    if not is_device_array(x):
        return x
    steps = [(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)]
    low, high = (0, 0) if 0 in x.shape else (sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps))
    memory = np.empty(high - low + x.dtype.itemsize, np.uint8)
    found: Array = np.ndarray(x.shape, x.dtype, memory.data, -low, x.strides)
    np.copyto(found, current().host(x))
    return found


def arrays_of(rec: Recorder, leaves: Sequence[Any]) -> dict[str, Any]:
    """The inputs of a trace by name: the arrays themselves, for which the trace has stand-ins."""
    paths = {expected: path for path, (kind, expected) in rec.captured.guards if kind == "array"}
    found: dict[str, Any] = {}
    for name, s in rec.inputs.items():
        found[name] = s.array
        real = leaves[s.where[1]] if s.where[0] == "arg" else look_up(paths[name], leaves) if name in paths else None
        if is_device_array(real):
            found[name] = _parts(real)
    return found


# -- NumPy in place of kernels


def on_copies(call: Call, function: Callable[[Call], Any]) -> Any:
    """What a function gives for copies on the host of the arrays of a call, on the device; these are changed alike.

    Args:
        function: gives a result, or an `Outcome`, which is handed on.
    """
    leaves = each_once(host_copy, call.leaves)
    args, kwargs = call.structure.build(leaves.__getitem__)
    try:
        result = function(replace(call, leaves=leaves, args=args, kwargs=kwargs, targets=[]))
        if isinstance(result, Outcome) or not has_device_arrays(call.leaves):
            return result
        return _moved(result, leaves, call.leaves)
    finally:
        for x, copy in zip(call.leaves, leaves, strict=True):
            if x is not copy and host_copy(x).tobytes() != copy.tobytes():
                current().copy(copy, x)


def has_copies(rec: Recorder) -> bool:
    """Can NumPy run the function on copies of all captured arrays? They are globals and in closures then, see
    `hjit.trace.capture.cupy_names.by_numpy`; not attributes of objects, nor in containers."""
    paths = (path for path, (kind, _) in rec.captured.guards if kind == "array")
    return all(type(p.base) is not type(p) and p.kind in ("item", "cell") for p in paths)


def _moved(result: Any, here: Sequence[Any], there: Sequence[Any]) -> Any:
    """A result on the host as one on the device: arguments and views of them are those that are there."""
    device, found = current(), list[Any]()

    def leaf(k: int) -> Any:
        x = found[k]
        if not isinstance(x, (np.ndarray, np.generic)):
            return x
        for a, b in zip(here, there, strict=True):
            if x is a:
                return b
            if isinstance(x, np.ndarray) and a is not b and np.may_share_memory(x, a):
                offset = x.__array_interface__["data"][0] - a.__array_interface__["data"][0]
                return device.view(b, offset, x)
        return device.own(np.asarray(x))

    structure = flatten(result, found)
    return structure.build(leaf) if isinstance(structure, PyTree) else leaf(structure)


# -- kernels


@dataclass(frozen=True, slots=True)
class DeviceSegments(CompiledSegments):
    """Kernels on a device, with FFTs and products of matrices by its libraries; other extern calls are the host's.

    Attributes:
        libraries: what makes an extern call, by its number; those that are not in it NumPy makes.
    """

    libraries: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if getattr(found(), "shares_memory", False):
            return
        for number, segment in enumerate(self.segments):
            graph_break = segment.graph_break
            call = None if graph_break is None else _library_call(graph_break, _like)
            if graph_break is not None and call is not None:
                self.libraries[number] = call.library
                graph_break.is_reordered = True

    @property
    def blas(self) -> str:
        return "BLAS" if getattr(found(), "shares_memory", False) else library.CUBLAS

    def describe_call(self, number: int) -> str:
        return f"by {self.libraries[number]}" if number in self.libraries else "as it is, on the host"

    def call_extern(self, number: int, graph_break: GraphBreak, state: Mapping[str, Any]) -> tuple[Any, Sequence[Any]]:
        if number in self.libraries:
            made = self._by_library(graph_break, state)
            if made is not None:
                return graph_break.value, (made,)
            self.libraries.pop(number, None)
        return CompiledSegments.call_extern(self, number, graph_break, state)

    def _by_library(self, graph_break: GraphBreak, state: Mapping[str, Any]) -> Any:
        """The result of an extern call by a library of the device, which nothing waits for; None: it has none."""
        device = current()
        arrays = [device.own(state[n]) for n in graph_break.needs]

        def array(number: int, shape: tuple[int, ...], is_complex: bool) -> Any:
            found = arrays[number] if arrays[number].shape == shape else arrays[number].reshape(shape)
            return _complex(found) if is_complex else found

        call = _library_call(graph_break, array)
        _, _, dtype, shape, strides = graph_break.value
        try:
            made = None if call is None else call.result()
        except Exception as error:  # CuPy's own exceptions have no common class
            log.debug("%s runs on the host: %s", graph_break.operation, error)
            return None
        if made is None or (made.dtype, made.shape) != (dtype, shape):
            return None
        if any(n > 1 and a != b for n, a, b in zip(shape, made.strides, strides, strict=True)):
            arranged = device.arranged(shape, dtype, strides)
            device.copy(made, arranged)
            made = arranged
        return _parts(made)

    def on_host(self, state: Mapping[str, Any], names: Sequence[str]) -> list[Array]:
        host = current().host
        return [host(state[n]) for n in names]

    def multiply(self, product: Product, arrays: Sequence[Any], destination: Any) -> Any:
        """The product by cuBLAS: `numpy.matmul` of CuPy's arrays is CuPy's. By NumPy where CuPy does not find it."""
        device = current()
        try:
            return product.compute([device.own(a) for a in arrays], device.empty(product.shape, product.dtype))
        except ImportError as error:
            log.debug("a product runs on the host: %s", error)
            return device.own(product.compute([device.host(a) for a in arrays]))

    def run_kernel(
        self, bound: Any, state: dict[str, Any], values: Sequence[Any], destinations: Mapping[str, Any], streamed: bool
    ) -> None:
        made = bound.computed(*self.arguments(bound, state, values))
        if made is None:
            raise OutOfBounds
        state.update(zip((name for name, _, _ in bound.outputs), made, strict=True))


@dataclass(frozen=True, slots=True)
class _Like:
    """What stands for an array while a call of a library is looked up."""

    ndim: int

    def transpose(self, axes: Sequence[int]) -> _Like:
        """With its axes in another order."""
        return self


def _like(number: int, shape: tuple[int, ...], is_complex: bool) -> _Like:
    return _Like(len(shape) - is_complex)


def _library_call(
    graph_break: GraphBreak, array: Callable[[int, tuple[int, ...], bool], Any]
) -> library.LibraryCall | None:
    """An extern call by a library of the GPU; None where none has it, or it gives other than one new array.

    Args:
        array: gives the arrays, see `FilledArguments`.
    """
    fill, value = graph_break.arguments, graph_break.value
    if fill is None or not isinstance(value, tuple) or value[0] not in ("array", "complex"):
        return None
    return library.call_of(graph_break.operation, *fill(array))


def on_host(array: Any) -> Array:
    """An array of the current device, or of the host, on the host."""
    return current().host(array) if is_device_array(array) else array


@dataclass(eq=False, slots=True)
class OnDevice(Variant):
    """A variant whose kernels run on a device. Its results are there if any array of its arguments is.

    Attributes:
        uploaded: its constants on each device, by the device's key.
    """

    uploaded: dict[Any, dict[str, Any]] = field(default_factory=dict)
    _reference: list[Graph] = field(default_factory=list)

    @property
    def on_device(self) -> bool:
        return True

    @property
    def reference_graphs(self) -> list[Graph]:
        """Without what is rewritten for many threads."""
        if not self._reference:
            self._reference = [x.graph for x in TraceSegments(self.trace, Target())(NO_REWRITES)]
        return self._reference

    def run(
        self,
        leaves: Sequence[Any],
        guarded: GuardValues,
        targets: Sequence[Any] = (),
        arguments: Any = None,
        options: RunOptions = AS_CALLED,
    ) -> Any:
        """As `Variant.run`; `targets` are not used."""
        if options.streamed:
            options = replace(options, streamed=False)
        with self.place():
            return Variant.run(self, leaves, guarded, (), arguments, options)

    def place(self) -> AbstractContextManager[Any]:
        """Inside, the device for which kernels were loaded is the current one."""
        return self.bounds[0].device.active() if self.bounds else nullcontext()  # type: ignore[attr-defined]

    def arrays(self, leaves: Sequence[Any], captured: Mapping[str, Any]) -> dict[str, Any]:
        device, arrays = current(), Variant.arrays(self, leaves, captured)
        if device.key not in self.uploaded:
            self.uploaded[device.key] = {n: device.own(a) for n, a in self.constants.items()}
        arrays |= self.uploaded[device.key]
        if len(self.segments) == 1:
            return arrays  # kernels take them from the host, a part at a time where they are large
        given = set(map(complex_argument, self.guards.complex_inputs))
        return {n: a if n in self.body.packed or n in given else device.own(a) for n, a in arrays.items()}

    def parts(self, array: Any) -> Any:
        return _parts(array)

    def finished(self, state: Mapping[str, Any], leaves: Sequence[Any], guarded: GuardValues, arguments: Any) -> Any:
        values, captured = guarded
        device, inputs = current(), Variant.arrays(self, leaves, captured)
        for argument, stage in self.results.writes:
            device.copy(state[stage], inputs[argument])
        results = DeviceResults(self.results, device, has_device_arrays(leaves), {**state, **inputs})
        return self.results.put_together(lambda r: results.leaf(r, values), leaves, arguments)


def has_device_arrays(leaves: Sequence[Any]) -> bool:
    """Are there arrays on a GPU among the arguments?"""
    return any(map(is_device_array, leaves))


@dataclass(frozen=True, slots=True)
class DeviceResults:
    """The results of one call.

    Attributes:
        stay: on the device?
        arrays: by name: arguments as they were given, and computed stages on the device.
        joined: compacted arrays, by the stage of their rows.
    """

    results: Results
    device: Device
    stay: bool
    arrays: dict[str, Any]
    joined: dict[str, Any] = field(default_factory=dict)

    def leaf(self, r: Result, values: Sequence[Any]) -> Any:
        match r.kind:
            case "array":
                return self.returned(r, self.placed(r.name))
            case "constant":
                made = r.value.copy("K")
                return self.returned(r, self.device.own(made) if self.stay else made)
            case "argument":
                return r.of_argument(self.arrays[complex_argument(r.name) if r.is_complex else r.name])
            case "view":
                seen = self.results.view(self.placed(r.name), r, self.device.strided if self.stay else None)
                return _complex(seen) if r.is_complex else seen
            case "compacted":
                if r.name not in self.joined:  # its columns are results of their own
                    self.joined[r.name] = joined_rows(*(self.device.host(self.arrays[n]) for n in r.stages))
                found = of_joined(self.joined[r.name], r)
                return self.device.own(found) if self.stay else found
            case "list":
                host = self.device.host
                columns = [(host(self.arrays[c.rows]), host(self.arrays[c.lengths])) for c in r.value.columns]
                return r.value.made([joined_rows(*x) for x in columns])
            case "host":
                return values[r.value]
        return r.value

    def placed(self, name: str) -> Any:
        """An array where the results are to be; the same one for all views of it."""
        move = self.device.own if self.stay else self.device.host
        self.arrays[name] = move(self.arrays[name])
        return self.arrays[name]

    def returned(self, r: Result, array: Any) -> Any:
        """A computed array as what the function returns."""
        return _on_device(r, array) if self.stay else r.returned(array)


@dataclass(frozen=True, slots=True)
class OneKernelOnDevice(OneKernel):
    """The hot path of one segment whose arguments are arrays of the device, and numbers.

    Attributes:
        on_gpu: its kernels.
        is_alone: is there one device only?
    """

    on_gpu: Any
    is_alone: bool

    def run(self, leaves: Sequence[Any]) -> Any:
        """As `OneKernel.run`; MISS, too, where NumPy is to refuse something.

        Guards and arguments are written out in both: these are the shortest calls that there are.
        """
        if self.holds is not None and not self.holds(leaves):
            return MISS
        values: Sequence[Any] | None = self.values
        if self.tape is not None:
            values = self.tape.replay(leaves)
            if values is None:
                return MISS
        fixed, bound = self.constants, self.on_gpu
        arrays = (
            [fixed[k] if n < 0 else leaves[n] for k, n in enumerate(self.leaves)]
            if fixed
            else [leaves[n] for n in self.leaves]
        )
        scalars = [values[k] for k in self.scalars] if values else ()
        if self.is_alone:
            outputs = bound.computed(arrays, scalars)
        else:
            with bound.device.active():
                outputs = bound.computed(arrays, scalars)
        if outputs is None:
            return MISS
        tree = self.result
        if type(tree) is Result:
            return _on_device(tree, outputs[0])
        parts = iter(outputs)
        return tree.build(lambda r: _on_device(r, next(parts)))


def hot_path(kernel: Any, leaves: Sequence[Any]) -> OneKernel | None:
    """How calls like this one run, given that it is one kernel and nothing else; None: arrays are copied."""
    device = found()
    if device is None or not isinstance(kernel, OneKernel):
        return None
    if device.shares_memory:
        return kernel
    if not has_device_arrays(leaves) or kernel.may_refuse:
        return None
    parts: dict[str, Any] = {f.name: getattr(kernel, f.name) for f in fields(kernel)}
    parts["constants"] = {k: device.own(a) for k, a in kernel.constants.items()}
    return OneKernelOnDevice(**parts, on_gpu=kernel.bound, is_alone=getattr(device, "is_alone", False))


def _on_device(r: Result, array: Any) -> Any:
    """As `Result.returned`; a scalar stays an array without axes, as CuPy has it."""
    if r.is_plain:
        return array
    if r.is_complex:
        whole = _complex(array)
        return whole.transpose(r.order[:-1]) if r.order else whole
    return array if r.is_scalar and not r.weak else r.returned(array)


# -- complex arrays, see `hjit.trace.tracing.complex_memory`


def _parts(array: Any) -> Any:
    """A complex array, of the device or of the host, as its parts; any other array is itself."""
    if not is_device_array(array) or array.dtype.kind != "c":
        return parts_of(array) if isinstance(array, np.ndarray) else array
    return current().view(array, 0, parts_of(without_memory(array)))


def _complex(parts: Any) -> Any:
    """The complex array that has these parts."""
    if not is_device_array(parts):
        return complex_of(parts)
    return current().view(parts, 0, complex_of(without_memory(parts)))
