"""Opaque objects: hjit does not know which operations change them, so any use is refused and left to Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hjit.errors import InherentError
from hjit.trace.tracing import forward
from hjit.trace.tracing.recording.recorder import current

_CALLED = ("scipy.interpolate.",)  # modules of classes whose objects do not change when they are called


class Opaque:
    """Stands for an object of a library's class or of one written in C: it can be passed on, and few can be called."""

    __slots__ = ("_hjit_name", "_hjit_object")

    def __init__(self, value: Any, name: str) -> None:
        object.__setattr__(self, "_hjit_object", value)
        object.__setattr__(self, "_hjit_name", name)

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return type(object.__getattribute__(self, "_hjit_object"))
        raise refusal(self, f".{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = object.__getattribute__(self, "_hjit_object")
        if not type(value).__module__.startswith(_CALLED):
            raise refusal(self, ".__call__")
        return forward.object_call(self, value, args, kwargs)


def refusal(x: Opaque, use: str = "") -> Exception:
    """The error for the use of such an object."""
    value, name = (object.__getattribute__(x, n) for n in ("_hjit_object", "_hjit_name"))
    return current().error(
        f"{name}{use}",
        f"hjit does not know whether this changes the {type(value).__name__}, which outlives it",
        "do it outside the function",
        InherentError,
    )


def _refused(name: str) -> Callable[..., Any]:
    def method(self: Opaque, *args: Any, **kwargs: Any) -> Any:
        raise refusal(self, f".{name}")

    return method


_BINARY = "add sub mul truediv floordiv mod divmod pow matmul and or xor lshift rshift".split()
_OTHER = """len iter next reversed contains getitem setitem delitem setattr delattr bool str repr format bytes hash
    eq ne lt le gt ge neg pos abs invert int float complex index round trunc floor ceil enter exit length_hint
    array array_ufunc array_function buffer await aiter anext aenter aexit copy deepcopy reduce reduce_ex""".split()
_NAMES = [
    *_OTHER,
    *(f"{prefix}{name}" for name in _BINARY for prefix in ("", "r", "i") if f"{prefix}{name}" != "idivmod"),
]


for _name in _NAMES:
    setattr(Opaque, f"__{_name}__", _refused(f"__{_name}__"))
