"""Guards: whether a trace serves the arguments of a call.

Captured values (globals, closures, attributes) must be what they were while tracing, and an array that the function
writes must not overlap others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.call.arguments import device_overlap, is_device_array
from hjit.errors import raise_if_signalled
from hjit.trace.capture.captured import container_shape
from hjit.trace.capture.trace import Trace
from hjit.trace.tracing.complex_memory import complex_of, parts_of
from hjit.trace.tracing.recording.recorder import Recorder
from hjit.trace.tracing.recording.strides import packed
from hjit.trace.tracing.scalars.host import same

MAX_TESTED = 64  # captured values that a hot path compares
MAX_WORK = 1000  # for `numpy.shares_memory`: candidate solutions that it tries, some microseconds
Array = np.ndarray[Any, Any]
GuardValues = tuple[list[Any], dict[str, Array]]  # values of the tape, captured arrays by input


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of a trace.

    Attributes:
        arguments: for inputs that are arguments, the number of the leaf.
        packed: inputs that are read through a packed copy; see `recording.strides.packed`.
        complex_inputs: complex inputs; kernels read them as real arrays of real and imaginary parts.
        written: inputs that the function changes.
        overlapping: may two elements of a written array be the same memory?
        identities: checks that arguments are the same object exactly where they were; None if no two could be.
        apart: groups of inputs, not all of them arguments, that were different arrays and must be again.
        disjoint: pairs of inputs that share no memory, which the function has asked about.
    """

    recorder: Recorder
    arguments: Mapping[str, int]
    packed: frozenset[str]
    written: frozenset[str]
    overlapping: bool
    complex_inputs: frozenset[str] = frozenset()
    identities: Callable[[Sequence[Any]], bool] | None = None
    apart: tuple[tuple[str, ...], ...] = ()
    disjoint: tuple[tuple[str, str], ...] = ()

    def values(self, leaves: Sequence[Any]) -> GuardValues | None:
        """The values of the tape and the captured arrays; None if a guard does not hold."""
        if self.identities is not None and not self.identities(leaves):
            return None
        rec = self.recorder
        values = rec.tape.replay(leaves) if rec.tape.ops else []
        if values is None:
            return None
        arrays: dict[str, Array] = {}
        for path, (kind, expected) in rec.captured.guards:
            try:
                value = look_up(path, leaves)
            except Exception as error:  # it is gone, or a descriptor raises
                raise_if_signalled(error)
                if kind == "absent":
                    continue
                return None
            if kind == "array":
                if not self._accepts(expected, value) or self._known(expected, value, leaves, arrays) is not value:
                    return None
            elif not _holds(kind, expected, value):
                return None
        if (self.apart or self.disjoint) and not self._are_apart(leaves, arrays):
            return None
        return values, arrays

    @property
    def are_tests(self) -> bool:
        """Can `test` say by itself whether all of them hold: is no array captured or asked about?"""
        captures = self.recorder.captured.guards
        return not self.disjoint and len(captures) <= MAX_TESTED and all(kind != "array" for _, (kind, _) in captures)

    def test(self) -> Callable[[Sequence[Any]], bool] | None:
        """Says of the arguments of a call, fast, whether all guards hold; None if there are none.

        It may say no of guards that hold, as of a name that is still absent: `values` knows better.
        """
        tests, known = _Tests(), self.identities
        if not self.recorder.captured.guards:
            return known
        if known is not None:
            tests.add(f"{tests.named(known)}(x)")
        for path, (kind, expected) in self.recorder.captured.guards:
            value = tests.look_up(path)
            if kind == "identity" and not hasattr(expected, "__func__"):
                tests.add(f"{value} is {tests.named(expected)}")
            elif kind == "value" and type(expected) in (bool, int, str, type(None)):
                tests.add(f"type(v := {value}) is {tests.named(type(expected))} and v == {tests.named(expected)}")
            elif kind == "absent" and path.kind == "item" and isinstance(path.base, dict):
                tests.add(f"{tests.named(path.name)} not in {tests.named(path.base)}")
            else:
                tests.add(f"{tests.named(_holds)}({kind!r}, {tests.named(expected)}, {value})")
        return tests.compiled()

    def _known(self, name: str, value: Any, leaves: Sequence[Any], captured: dict[str, Array]) -> Any:
        """The array that an input is in this call: the argument, or the captured `value`."""
        return leaves[self.arguments[name]] if name in self.arguments else captured.setdefault(name, value)

    def _are_apart(self, leaves: Sequence[Any], captured: Mapping[str, Array]) -> bool:
        """Are the arrays in `apart` different objects, and do those in `disjoint` share no memory?"""
        arrays = captured if not self.arguments else {n: leaves[k] for n, k in self.arguments.items()} | dict(captured)
        return all(len({id(arrays[n]) for n in group}) == len(group) for group in self.apart) and not any(
            np.may_share_memory(arrays[one], arrays[other]) for one, other in self.disjoint
        )

    def with_arrays(self, leaves: Sequence[Any], arrays: Mapping[str, Array]) -> list[Any]:
        """The arguments, with some arrays replaced."""
        others = {id(leaves[k]): arrays[n] for n, k in self.arguments.items() if n in arrays}
        return [others.get(id(x), x) for x in leaves]

    def _accepts(self, name: str, value: Any) -> bool:
        """Is a captured array like the one that was traced?"""
        if type(value) not in (np.ndarray, np.memmap) and not is_device_array(value):
            return False
        if (value.dtype.kind == "c") != (name in self.complex_inputs):
            return False
        traced = self.recorder.inputs[name].array
        if name in self.complex_inputs and name not in self.packed:
            return _alike(value, complex_of(traced))
        value = parts_of(value) if name in self.complex_inputs else value
        return _alike(packed(value) if name in self.packed else value, traced)

    def may_write(self, leaves: Sequence[Any], captured: Mapping[str, Array]) -> bool:
        """Are the arrays that the function changes writeable, and without overlap with others?"""
        if not self.written:
            return True
        if self.overlapping:
            return False
        arrays = {n: leaves[k] for n, k in self.arguments.items()} | dict(captured)
        for name in self.written:
            a = arrays[name]
            if not getattr(a.flags, "writeable", True) or any(n != name and overlap(a, b) for n, b in arrays.items()):
                return False
        return True


def guards_of(trace: Trace) -> Guards:
    """The guards of a trace that still has the arrays of the call."""
    rec = trace.recorder
    arguments = {n: s.where[1] for n, s in rec.inputs.items() if s.where[0] == "arg"}
    alike = _alike_inputs(rec)
    packed_inputs = frozenset(n for n, s in rec.inputs.items() if s.packed)
    written = frozenset(name for name, _ in trace.writes)
    return Guards(
        rec,
        arguments,
        packed_inputs,
        written,
        any(n in packed_inputs or _overlaps_itself(rec.inputs[n].array) for n in written),
        frozenset(n for n, s in rec.inputs.items() if s.is_complex),
        _identities(
            [(arguments[n], k) for k, n in rec.caller.leaves.items() if k != arguments[n]],
            [ks for names in alike if len(ks := [arguments[n] for n in names if n in arguments]) > 1],
        ),
        tuple(names for names in alike if not all(n in arguments for n in names)),
        tuple(sorted(rec.caller.disjoint)),
    )


def _alike_inputs(rec: Recorder) -> list[tuple[str, ...]]:
    """Groups of inputs with equal dtypes and shapes: in another call they may be the same array."""
    groups: dict[Any, list[str]] = {}
    for n, s in rec.inputs.items():
        if s.where[0] in ("arg", "captured"):
            groups.setdefault((s.array.dtype, s.array.shape, s.is_complex), []).append(n)
    return [tuple(names) for names in groups.values() if len(names) > 1]


def _identities(
    same: Iterable[tuple[int, int]], apart: Iterable[Sequence[int]]
) -> Callable[[Sequence[Any]], bool] | None:
    """`Guards.identities`, compiled from one expression, since every call evaluates it.

    Args:
        same: pairs of leaves that are one object.
        apart: groups of leaves that are different objects.
    """
    tests = [f"x[{j}] is x[{k}]" for j, k in same]
    for leaves in apart:
        if len(leaves) == 2:
            tests.append(f"x[{leaves[0]}] is not x[{leaves[1]}]")
        else:
            tests.append(f"len({{{', '.join(f'id(x[{k}])' for k in leaves)}}}) == {len(leaves)}")
    if not tests:
        return None
    found: Callable[[Sequence[Any]], bool] = eval(f"lambda x: {' and '.join(tests)}")
    return found


class _Tests:
    """Comparisons with captured values, compiled to one function of the arguments."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._values: dict[str, Any] = {"raise_if_signalled": raise_if_signalled}

    def add(self, text: str) -> None:
        self._texts.append(text)

    def named(self, value: Any) -> str:
        """A name for a value."""
        name = f"c{len(self._values)}"
        self._values[name] = value
        return name

    def look_up(self, path: Any) -> str:
        """An expression that does what the function `look_up` does."""
        if path.kind == "leaf":
            return f"x[{path.name}]"
        base = self.look_up(path.base) if type(path.base) is type(path) else self.named(path.base)
        if path.kind == "item":
            return f"{base}[{self.named(path.name)}]"
        if path.kind == "flag":
            return f"getattr({base}.flags, {path.name!r}, True)"
        return f"{base}.cell_contents" if path.kind == "cell" else f"getattr({base}, {path.name!r})"

    def compiled(self) -> Callable[[Sequence[Any]], bool]:
        text = f"""
def test(x):
    try:
        return {" and ".join(self._texts)}
    except Exception as error:  # it is gone, or a descriptor raises
        raise_if_signalled(error)
        return False
"""
        exec(text, self._values)
        found: Callable[[Sequence[Any]], bool] = self._values["test"]
        return found


def look_up(path: Any, leaves: Sequence[Any]) -> Any:
    """The present value of an access path, which starts at a module, an object or an argument of this call."""
    if path.kind == "leaf":
        return leaves[path.name]
    base = look_up(path.base, leaves) if type(path.base) is type(path) else path.base
    if path.kind == "item":
        return base[path.name]
    if path.kind == "flag":  # of an array; device arrays lack some flags
        return getattr(base.flags, path.name, True)
    return base.cell_contents if path.kind == "cell" else getattr(base, path.name)


def _holds(kind: str, expected: Any, value: Any) -> bool:
    """Does the guard of this kind hold for a captured value? One of kind "absent" does not: there is a value now."""
    if kind in ("absent", "present"):
        return kind == "present"
    if kind == "shape":
        return bool(container_shape(value) == expected)
    if kind == "method":
        return getattr(value, "__func__", None) is expected
    if kind == "identity":
        return value is expected or _same_method(value, expected)
    return same(value, expected)


def _same_method(a: Any, b: Any) -> bool:
    """Are these equal bound methods? Each look-up makes a new object."""
    return hasattr(a, "__func__") and hasattr(b, "__func__") and a.__func__ is b.__func__ and a.__self__ is b.__self__


def overlap(a: Array, b: Array) -> bool:
    """May two arrays share an element? True if it is too hard to say."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return device_overlap(a, b)
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=MAX_WORK))  # type: ignore[arg-type]  # its stub is too narrow
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(a: Array) -> bool:
    """May two elements of an array be the same memory?"""
    if not a.size:
        return False
    reach = a.itemsize
    for s, n in sorted((abs(s), n) for s, n in zip(a.strides, a.shape, strict=True) if n > 1):
        if s < reach:
            return True
        reach += s * (n - 1)
    return False


def _alike(a: Array, b: Array) -> bool:
    """Have two arrays the same dtype, shape and strides?"""
    return a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides
