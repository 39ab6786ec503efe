"""What a re-rolled loop can reach and must leave unchanged: only arrays carry anything to the next iteration."""

from __future__ import annotations

import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.trace.capture.captured import ObjectProxy
from hjit.trace.capture.loops.bytecode import Loop, has_no_side_effects
from hjit.trace.capture.loops.elements import UNBOUND
from hjit.trace.capture.made_classes import is_made
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.lookup_tables import LookupTable
from hjit.trace.tracing.arrays.number_dicts import NumberDict
from hjit.trace.tracing.arrays.number_lists import NumberList
from hjit.trace.tracing.arrays.stacks import NumberStack
from hjit.trace.tracing.arrays.tracer import is_tracer
from hjit.trace.tracing.scalars.host import is_host
from hjit.trace.tracing.scalars.induction import InductionVariable
from hjit.trace.tracing.scalars.size import Size


@dataclass
class LoopState:
    """Variables that an iteration may change, and containers that it can reach and must not, with their contents."""

    kept: dict[str, Any]  # `UNBOUND` for those that have no value yet
    containers: list[tuple[Any, list[Any]]] = field(default_factory=list)

    def changed(self) -> list[tuple[Any, list[Any]]]:
        """The containers that do not hold what they held, and that."""
        return [(c, before) for c, before in self.containers if not _identical(_contents(c), before)]


def found_by(loop: Loop, frame: types.FrameType) -> LoopState | None:
    """What the loop finds; None where it can reach things that might remember an iteration."""
    known = frame.f_locals
    found = LoopState({name: known.get(name, UNBOUND) for name in sorted(loop.kept)})
    values = [known.get(name) for name in loop.read]
    under: dict[str, Any] = frame.f_globals.under  # type: ignore[attr-defined]
    named = [under.get(name, _BUILTINS.get(name, sys)) for name in loop.names]
    named = [v for v in named if type(v) is not np.ndarray]  # these are read as tracers
    return found if all(_keeps_no_state(v, found.containers) for v in (*values, *named)) else None


_HARMLESS = (
    min,
    max,
    abs,
    len,
    float,
    int,
    bool,
    complex,
    range,
    slice,
    tuple,
    list,
    round,
    sum,
    zip,
    enumerate,
    reversed,
    sorted,
    divmod,
    any,
    all,
    pow,
    isinstance,
    deque,
    set,
    dict,
    Counter,
    OrderedDict,
    defaultdict,
)
_BUILTINS = {f.__name__: f for f in _HARMLESS}
_PLAIN = (type(None), bool, int, float, str, bytes, complex, slice, range, np.generic, np.dtype, np.ufunc, type(...))
_MODULES = ("numpy", "math", "scipy")
_CALLABLE = (type, types.FunctionType, types.BuiltinFunctionType, type(np.sum))


def _keeps_no_state(value: Any, containers: list[tuple[Any, list[Any]]]) -> bool:
    """Can an iteration leave nothing behind in this object, but in arrays and the containers noted here?"""
    if (
        value is UNBOUND
        or is_tracer(value)
        or type(value) is ComplexTracer
        or is_host(value)
        or type(value) in (Size, InductionVariable, ObjectProxy)
        or isinstance(value, _PLAIN)
    ):
        return True
    if type(value) in (NumberStack, NumberDict):
        return True
    if type(value) is LookupTable:
        containers += [(x, _contents(x)) for x in value.objects()]
        return True
    if type(value) is NumberList:
        containers += [(x, _contents(x)) for x in value.lists()]
        return _keeps_no_state(value.array, containers)
    if is_made(value):
        return hasattr(value, "__dict__") and _keeps_no_state(vars(value), containers)
    if type(value) in (tuple, list, dict):
        if type(value) is not tuple:
            containers.append((value, _contents(value)))
        return all(_keeps_no_state(v, containers) for v in (value.values() if type(value) is dict else value))
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in _MODULES
    if any(value is f for f in _HARMLESS) or (
        isinstance(value, _CALLABLE) and (value.__module__ or "").partition(".")[0] in _MODULES
    ):
        return True
    if not isinstance(value, types.FunctionType):
        return False
    held = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *_cells(value))
    return has_no_side_effects(value.__code__) and all(_keeps_no_state(v, containers) for v in held)


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name not yet bound
            pass


def _contents(container: Any) -> list[Any]:
    return [*container, *container.values()] if type(container) is dict else list(container)


def _identical(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
