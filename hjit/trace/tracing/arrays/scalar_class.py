"""What stands for a scalar type of NumPy that reaches its call in a variable, and for a dtype of which it is one."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from hjit.trace.tracing.frames import instruction
from hjit.trace.tracing.recording.recorder import current


class ClassCalled(BaseException):
    """A class may have been called with a traced array: the function is traced again, with a `ScalarClass` for each.

    It is no `Exception`, so that the traced code does not handle it.
    """


class MethodConverts(BaseException):
    """A method that runs as it is may ask for the number of a traced array: the function is traced again, with its
    methods. It is no `Exception`, for the same reason.
    """


class ScalarClass:
    """A scalar type that converts traced arrays, too; else it is as good as the type.

    Attributes:
        cls: the type itself.
    """

    __slots__ = ("_construct", "cls")

    def __init__(self, cls: type[np.generic], construct: Callable[..., Any]) -> None:
        self.cls, self._construct = cls, construct

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type

    @property
    def __bases__(self) -> tuple[type, ...]:  # for issubclass(t, np.floating)
        return (self.cls,)

    @property
    def dtype(self) -> np.dtype[Any]:
        """For NumPy, which takes what has a dtype for one."""
        return np.dtype(self.cls)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._construct(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cls, name)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, self.cls)

    def __subclasscheck__(self, cls: type) -> bool:
        return issubclass(plain_class(cls), self.cls)

    def __eq__(self, other: object) -> bool:
        return bool(self.cls == plain_class(other))

    def __hash__(self) -> int:
        return hash(self.cls)

    def __repr__(self) -> str:
        return repr(self.cls)


class ArrayDtype:
    """The dtype of a traced array, whose ``type`` converts traced arrays, too. NumPy takes what has a dtype for one.

    Attributes:
        dtype: the dtype itself.
    """

    __slots__ = ("dtype", "type")

    def __init__(self, dtype: np.dtype[Any], cls: ScalarClass) -> None:
        self.dtype, self.type = dtype, cls

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.dtype.__class__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dtype, name)

    def __eq__(self, other: object) -> bool:
        return bool(self.dtype == plain_class(other))

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __str__(self) -> str:
        return str(self.dtype)

    def __repr__(self) -> str:
        return repr(self.dtype)


def plain_class(x: Any) -> Any:
    """What a `ScalarClass` or an `ArrayDtype` stands for; anything else as it is."""
    return x.cls if type(x) is ScalarClass else x.dtype if type(x) is ArrayDtype else x


def notice_call(frame: FrameType) -> None:
    """Called where NumPy asks for the value of a traced number or array; `frame`: the code that makes it ask.

    Raises:
        ClassCalled: traced code calls something that is not traced, perhaps a class that it has in a variable.
        MethodConverts: what asks is not traced, perhaps a method.
    """
    rec = current()
    if rec.findings.runs_methods and type(frame.f_globals) is dict:
        raise MethodConverts
    is_possible = rec.findings.reads_scalar_types and rec.attempt.classes is None
    if is_possible and type(frame.f_globals) is not dict and instruction(frame).startswith("CALL"):
        rec.findings.calls_scalar_types = True
        raise ClassCalled
