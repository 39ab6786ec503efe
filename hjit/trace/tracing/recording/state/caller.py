"""What the traced function gets from its caller: arguments, captured values, and the containers that hold them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class CallerObjects:
    """The caller's arrays and containers.

    Attributes:
        tracers: of arguments and captured arrays.
        containers: lists, tuples and dicts by identity, with their access paths; see `PyTree.caller_path`.
        stand_ins: arguments and captured arrays by identity, with what the function sees in their place: one array has
            one tracer.
        leaves: for leaves of the arguments that are arrays, the names of the inputs.
        disjoint: pairs of inputs that share no memory; the function has tested that.
        written: inputs that the function has written to, with the stages that hold their present contents.
    """

    tracers: list[Any] = field(default_factory=list)
    containers: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    stand_ins: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    leaves: dict[int, str] = field(default_factory=dict)
    disjoint: set[tuple[str, str]] = field(default_factory=set)
    written: dict[str, str] = field(default_factory=dict)

    def path_of(self, x: Any) -> Any:
        """The access path of a list, tuple or dict; None if the function made it."""
        known = self.containers.get(id(x))
        return None if known is None else known[1]

    def forget_objects(self) -> None:
        """Drop the objects; names stay."""
        self.tracers.clear()
        self.containers.clear()
        self.stand_ins.clear()


@dataclass(eq=False, slots=True)
class CapturedValues:
    """Globals, closure variables, defaults and attributes that the function has read.

    Attributes:
        guards: what later calls compare: pairs of an access path, and a kind with the expected value.
        seen: what the function sees in place of each, by access path.
    """

    guards: list[tuple[Any, Any]] = field(default_factory=list)
    seen: dict[Any, Any] = field(default_factory=dict)
