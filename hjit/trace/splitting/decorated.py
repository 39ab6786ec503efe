"""The original functions of pipelines, and of functions decorated by other compilers."""

from __future__ import annotations

import inspect
from typing import Any


def python_original(value: Any) -> Any:
    """The `py_func` of a pipeline, or of a function decorated by another compiler; else `value` itself.

    No other object is asked for it: a module that stands for a missing one raises in its `__getattr__`. What
    `functools.wraps` has made of a pipeline has a copy of that attribute, and computes in its own way.
    """
    cls = type(value)
    if inspect.getattr_static(cls, "py_func", None) is not None:  # a property
        return getattr(value, "py_func", value)
    found = inspect.getattr_static(value, "py_func", value)
    return found if inspect.getattr_static(value, "__wrapped__", None) is found else value
