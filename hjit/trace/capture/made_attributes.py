"""Attributes that a module's own `__getattr__` makes, with a warning: deprecated names."""

from __future__ import annotations

import types
from typing import Any

from hjit.trace.capture.captured import AccessPath, guard, guard_absent
from hjit.trace.tracing import forward
from hjit.trace.tracing.recording.recorder import current


def made_attribute(module: types.ModuleType, name: str, names: dict[str, Any]) -> tuple[Any, AccessPath | None]:
    """A module's attribute, and where later calls find it, which is None if its look-up warns of nothing.

    The warnings are given at every call, where the function uses the attribute. Later look-ups would give more.

    Args:
        names: globals of the code that uses it, whose module filters ask for.

    Raises:
        AttributeError: there is none.
    """
    make = vars(module).get("__getattr__")
    if make is None or name in vars(module) or name.startswith("__"):
        return getattr(module, name), None
    look_up = types.FunctionType(_look_up.__code__, {"getattr": getattr, "__name__": names.get("__name__")})
    noted = forward.NotedWarnings()
    with noted:
        value = look_up(module, name)
    if not noted.noted:
        return value, None
    guard(current(), AccessPath(vars(module), "__getattr__"), make, "identity")
    guard_absent(AccessPath(vars(module), name))
    return value, AccessPath((value,), 0)


def _look_up(module: types.ModuleType, name: str) -> Any:
    return getattr(module, name)
