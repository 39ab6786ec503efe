"""`hjit.load`: the functions of a bundle, which run without tracing, search or compilation."""

from __future__ import annotations

import inspect
import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hjit.call.arguments import CallKey, key_of
from hjit.call.entry import MAX_KEYS, limit
from hjit.call.guards import overlap
from hjit.errors import HjitError
from hjit.export.description import Description, View
from hjit.export.matching import binder, sizes_of, text_of
from hjit.export.stored import Stored, kernel_of, read, signature_from_json
from hjit.export.this_machine import reason_against
from hjit.kernels.lower.params import FIRST, KEEP, TASKS_PER_THREAD
from hjit.kernels.runtime import arena, backend, launch
from hjit.kernels.runtime.kernel import slot_bits, slot_format
from hjit.kernels.runtime.scratch import offsets, staggered
from hjit.kernels.runtime.sizes import evaluate
from hjit.options import resolve
from hjit.process.signals import signal_safe
from hjit.trace.capture.trace import PyTree, flatten_arguments
from hjit.trace.tracing.writeable import is_writeable

Array = np.ndarray[Any, Any]


class Kernel:
    """A kernel of a bundle.

    Attributes:
        description: with encoded sizes.
    """

    def __init__(self, stored: Stored) -> None:
        self.description = stored.description
        self.compiled = signal_safe(backend.load_object, stored.code, stored.description.entry)


class Binding:
    """A kernel with the sizes and strides of some arguments; see `hjit.kernels.runtime.kernel.Bound`."""

    def __init__(self, kernel: Kernel, n: Sequence[int], leaves: Sequence[Any], threads: int) -> None:
        d = self.description = kernel.description
        self._n, self._threads = n, threads
        tasks = 1 if threads == 1 else threads * TASKS_PER_THREAD
        taken, steps, live_ranges = {}, {}, {}
        for k, s in enumerate(d.scratch):
            if s.live_range is None:
                continue
            elements = math.prod(evaluate(p, n) for p in s.lengths)
            size = -(-elements * s.itemsize // arena.ALIGN) * arena.ALIGN
            steps[k], live_ranges[str(k)] = size, s.live_range
            taken[str(k)] = staggered(size * tasks if s.is_of_task else size)
        places, self.scratch_bytes = offsets(taken, live_ranges)
        constants = [places.get(str(k), 0) for k in range(len(d.scratch))]
        constants += [steps[k] for k in d.tasks]
        for k, axis in d.strides:
            kind, j = d.inputs[k]
            a = leaves[j] if kind == "leaf" else d.data[j]
            constants.append(a.strides[axis] // a.itemsize)
        constants += [evaluate(p, n) for p in d.symbols] + [KEEP] * d.keep
        self._constants = struct.pack(f"={len(constants)}q", *constants)
        self._head = struct.Struct(f"={FIRST + len(d.inputs) + len(d.outputs)}q")
        self._shapes = [(tuple(evaluate(p, n) for p in o.shape), np.dtype(o.type)) for o in d.outputs]
        self._numbers = struct.Struct("=" + "".join(slot_format(np.dtype(dtype)) for dtype, _ in d.scalars))
        self._plain = _arguments_alone(d)
        self._writes = any(p.is_written for p in d.parameters)
        self._checks = [k for k, o in enumerate(d.outputs) if o.role == "check"]
        self.is_flat = not any(type(x) is PyTree for part in d.structure.items for x in part.items)
        self._entry = launch.entered(kernel.compiled.entry, threads)

    def values(self, leaves: Sequence[Any]) -> list[Any] | None:
        """The kernel's scalars; None where the kernel is not for the numbers among the arguments."""
        if self._plain is not None:
            return [leaves[k] for k in self._plain]
        found = self.description.numbers.values(leaves, lambda p: evaluate(p, self._n))
        return None if found is None else [found[k] for _, k in self.description.scalars]

    def may_write(self, leaves: Sequence[Any]) -> bool:
        """Are arrays that are changed writeable, and apart from all others?"""
        if not self._writes:
            return True
        for k, p in enumerate(self.description.parameters):
            if p.is_written:
                others = (x for j, x in enumerate(leaves) if j != k and isinstance(x, np.ndarray))
                if not is_writeable(leaves[k]) or any(overlap(leaves[k], x) for x in others):
                    return False
        return True

    def run(self, leaves: Sequence[Any], values: Sequence[Any]) -> list[Array] | None:
        """What the kernel computes; None where NumPy raises an exception."""
        d = self.description
        arrays = [leaves[k] if kind == "leaf" else d.data[k] for kind, k in d.inputs]
        outputs = [np.empty(shape, dtype) for shape, dtype in self._shapes]
        try:
            bits = self._numbers.pack(*values)
        except (struct.error, OverflowError, TypeError):  # a number that `struct` does not convert as NumPy does
            try:
                bits = b"".join(slot_bits(x, np.dtype(dtype)) for x, (dtype, _) in zip(values, d.scalars, strict=True))
            except OverflowError:
                return None
        block = arena.borrow(self.scratch_bytes)
        try:
            head = self._head.pack(
                launch.parallel_for()[0], self._threads, block[1], 0, *map(id, arrays), *map(id, outputs)
            )
            if self._entry(head + self._constants + bits):
                return None
        finally:
            if self.scratch_bytes:
                arena.give_back(block)
        return None if any(outputs[k] for k in self._checks) else outputs

    def finished(self, leaves: Sequence[Any], outputs: Sequence[Array]) -> Any:
        """Write what is to be written; what the function returns."""
        d = self.description
        for o, a in zip(d.outputs, outputs, strict=True):
            if o.role == "written":
                np.copyto(leaves[o.leaf], a)

        def leaf(r: tuple[str, Any]) -> Any:
            kind, k = r
            if kind == "view":
                return self._view(d.views[k], leaves, outputs)
            if kind != "output":
                return leaves[k] if kind == "argument" else k
            if k in d.scalar_results:
                return outputs[k].item() if d.scalar_results[k] else outputs[k][()]
            order = d.outputs[k].order
            return outputs[k].transpose(order) if order != tuple(range(len(order))) else outputs[k]

        return d.result.build(leaf) if type(d.result) is PyTree else leaf(d.result)

    def _view(self, v: View, leaves: Sequence[Any], outputs: Sequence[Array]) -> Any:
        """A view of an argument, or of what the kernel has computed."""
        kind, k = v.base
        base = (leaves[k] if kind == "argument" else outputs[k]).view(v.dtype)
        shape = tuple(evaluate(p, self._n) for p in v.shape)
        if base.size == 0 or 0 in shape:
            return np.empty(shape, base.dtype)
        corner: Any = (*(slice(i, i + 1) for i in (evaluate(p, self._n) for p in v.start)), ...)
        steps = [sum(evaluate(p, self._n) * s for p, s in zip(x, base.strides, strict=True)) for x in v.steps]
        may_write = is_writeable(base) and not v.is_read_only
        return np.lib.stride_tricks.as_strided(base[corner], shape, steps, writeable=may_write)


def _arguments_alone(d: Description) -> tuple[int, ...] | None:
    """The arguments that the scalars are, where nothing is worked out of them."""
    entries = [d.numbers.entries[k] for _, k in d.scalars]
    if d.numbers.guards or any(e.function != "leaf" for e in entries):
        return None
    return tuple(e.args[0][1] for e in entries)


class Loaded:
    """A function of a bundle, called like the pipeline that it was made from.

    A call without a kernel in the bundle (other dtypes, or numbers of dimensions) raises an `HjitError` that lists the
    available ones, unless `hjit.load` was given the function.

    Attributes:
        function: runs calls that the bundle has no kernel for; None: they are errors.
    """

    def __init__(
        self,
        name: str,
        signature: inspect.Signature,
        kernels: Sequence[Kernel],
        where: str,
        threads: int,
        num_threads: int | None,
    ) -> None:
        """`num_threads`: as given to `load`; `threads`: those of a call here."""
        self.__name__, self.__signature__ = name, signature
        self.kernels = tuple(kernels)
        self.function: Callable[..., Any] | None = None
        self._where, self._threads, self._num_threads = where, threads, num_threads
        self._bind = binder(name, signature)
        self._entries: dict[CallKey, tuple[Binding, ...]] = {}

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        as_called = args, kwargs
        args, kwargs = self._bind(*args, **kwargs)
        key = key_of(args, kwargs)
        known = self._entries.get(key)
        if known is None:
            known = self._entries[key] = self._bindings(*flatten_arguments(args, kwargs))
            limit(self._entries, MAX_KEYS)
        leaves = (*args, *kwargs.values()) if known and known[0].is_flat else flatten_arguments(args, kwargs)[1]
        for binding in known:
            values = binding.values(leaves)
            if values is None or not binding.may_write(leaves):
                continue
            outputs = binding.run(leaves, values)
            if outputs is not None:
                return binding.finished(leaves, outputs)
            if self.function is None:
                raise IndexError(
                    f"{self.__name__}: an index is out of bounds, or NumPy refuses a value. The plain function says "
                    "which: give it to hjit.load"
                )
            break
        if self.function is None:
            raise HjitError(self._no_kernel(*flatten_arguments(args, kwargs)))
        args, kwargs = as_called
        return self.function(*args, **kwargs)

    def _bindings(self, structure: PyTree, leaves: Sequence[Any]) -> tuple[Binding, ...]:
        found = ((k, sizes_of(k.description, structure, leaves)) for k in self.kernels)
        return tuple(Binding(k, n, leaves, self._threads) for k, n in found if not isinstance(n, str))

    def _no_kernel(self, structure: PyTree, leaves: Sequence[Any]) -> str:
        lines = [f"{self.__name__}: {self._where} has no kernel for these arguments. It has kernels for"]
        for k in self.kernels:
            n = sizes_of(k.description, structure, leaves)
            why = n if isinstance(n, str) else "other numbers, or arrays that do not share memory with one it changes"
            lines.append(f"  {text_of(k.description)} -- {why}")
        return "\n".join([*lines, "What to do: add an example to hjit.bundle, or give the function to hjit.load"])

    def __repr__(self) -> str:
        return f"<{self.__name__} of {self._where}, {len(self.kernels)} kernels>"

    def __reduce__(self) -> Any:
        """By the file, which another process loads."""
        return _loaded, (self._where, self.__name__, self.function, self._num_threads)


class Bundle:
    """The functions of a file, as attributes and as items."""

    def __init__(self, path: str, functions: dict[str, Loaded]) -> None:
        self.path, self.functions = path, functions

    def __getattr__(self, name: str) -> Loaded:
        try:
            return self.functions[name]
        except KeyError:
            raise AttributeError(f"{self.path} has no function {name!r}: {', '.join(self.functions)}") from None

    def __getitem__(self, name: str) -> Loaded:
        return self.functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __repr__(self) -> str:
        return f"<hjit.Bundle {self.path}: {', '.join(self.functions)}>"

    def __reduce__(self) -> Any:
        """By the file, and the functions of `load`."""
        return Bundle, (self.path, self.functions)


def _loaded(path: str, name: str, function: Callable[..., Any] | None, num_threads: int | None) -> Loaded:
    found = load(path, num_threads=num_threads)[name]
    found.function = function
    return found


def load(path: str | os.PathLike[str], *functions: Callable[..., Any], num_threads: int | None = None) -> Bundle:
    """Load the functions of a file written by `hjit.bundle`. It contains machine code: do not load untrusted files.

    Args:
        functions: plain functions or pipelines, matched by name, which run calls that the file has no kernel for.
        num_threads: the number of threads of a call; None: the option of that name.

    Raises:
        HjitError: the file is damaged, is not a bundle, or was made for another processor or by another version; or it
            does not contain one of `functions`.
        OSError: it cannot be read.
    """
    where = os.path.abspath(path)  # also when the process changes its folder, and for another one
    header, rows, payload = read(Path(where))
    why = reason_against(header)
    if why:
        raise HjitError(f"{where}: {why}")
    options = resolve({}) if num_threads is None else resolve({"num_threads": num_threads})
    threads = launch.threads(options.num_threads)
    kernels: dict[str, list[Kernel]] = {}
    for row in rows:
        stored = kernel_of(row, payload)
        kernels.setdefault(stored.description.name, []).append(Kernel(stored))
    signatures = header["functions"]
    found = {
        n: Loaded(n, signature_from_json(signatures[n]), ks, where, threads, num_threads) for n, ks in kernels.items()
    }
    for f in functions:
        name = getattr(f, "__name__", "")
        if name not in found:
            raise HjitError(f"{where} has no function {name!r}: {', '.join(found)}")
        found[name].function = f
    return Bundle(where, found)
