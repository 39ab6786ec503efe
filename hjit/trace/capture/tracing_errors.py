"""Errors that no traced operation raises: code that needs the numbers of a traced array, or an attribute that tracers
lack.

The message quotes the call from the source, says why it cannot be traced, and what to use.
"""

from __future__ import annotations

import ast
import linecache
import types
from typing import Any

import numpy as np

from hjit.errors import Origin, TraceError
from hjit.trace.capture.constructors import STAND_INS
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.frames import instruction, is_own
from hjit.trace.tracing.recording.recorder import current

_SHOWN = 60  # characters of a call that a message quotes

# What asks for the numbers of a traced array: why it gets none, and what to do. {name} is what is called.
TEXTS = {
    "type": (
        "{name} reached the call in a variable, so it is NumPy's own class, which converts real arrays only",
        "use x.astype({short})",
    ),
    "dtype": (
        "hjit handles bool, integers, floats up to 64 bits and complex numbers of these",
        "use a dtype of up to 64 bits, complex ones up to 128",
    ),
    "vectorize": (
        "{name} calls a Python function with one number after another",
        "compute with whole arrays, and np.where for conditions",
    ),
    "class": (
        "objects of the class {name} are made as they are, of real arrays only",
        "make the object before, and pass arrays on",
    ),
    "method": (
        "{name} is a method of an object, which is called as it is",
        "call it before or after the decorated function",
    ),
    "call": ("{name} is called as it is, and takes real arrays only", "call it before or after the decorated function"),
    "store": (
        "what is assigned to is a real array, unknown to the trace",
        "make it in the function by np.empty, of a dtype of up to 64 bits",
    ),
    "index": (
        "what is indexed is a real array or an object, unknown to the trace",
        "pass the array as an argument, and index it by x or by np.take",
    ),
    "operator": (
        "the other operand is an object that converts arrays by itself",
        "convert it to an array, by np.asarray, before",
    ),
    "code": (
        "{name} runs as it is, as it is code that is not traced, and converts its arguments",
        "write it as a function of arrays",
    ),
    "key": (
        "a computed number is looked up in a dict or a set, which needs its value",
        "look it up in an array, by table[x] or np.take",
    ),
    "unknown": (
        "code that is not traced asks for the array's numbers",
        "compute this line before or after the decorated function",
    ),
}
_UNHASHABLE = ("unhashable type: 'Tracer'", "unhashable type: 'InductionVariable'")
_BY_INSTRUCTION = {
    "STORE_SUBSCR": "store",
    "STORE_SLICE": "store",
    "BINARY_SUBSCR": "index",
    "BINARY_OP": "operator",
    "COMPARE_OP": "operator",
}


@provides
def asks_for_numbers(frame: types.FrameType | None) -> TraceError:
    """The error for code that needs the values of a traced array; `frame`: the caller of `__array__`."""
    outside: types.FrameType | None = None  # the code that is not traced, as the traced code has called it
    while frame is not None and (type(frame.f_globals) is dict or is_own(frame.f_code)):
        outside = frame if not is_own(frame.f_code) else outside
        frame = frame.f_back
    if frame is None:
        return _error("unknown", "conversion to a real array")
    source = source_of(frame)
    text = shortened(source) or "conversion to a real array"
    at = instruction(frame)
    if not at.startswith("CALL") and outside is None:
        return _error(_BY_INSTRUCTION.get(at, "unknown"), text)
    name, callee = _callee(frame, source)
    if callee is None and outside is not None:
        code = outside.f_code
        kind = "vectorize" if code is np.vectorize.__call__.__code__ else "code"
        return _error(kind, text, f"{outside.f_globals.get('__name__', '?')}.{code.co_qualname}")
    return _error(_kind(callee), text, _named(callee, name), name or "t")


def _error(kind: str, operation: str, name: str = "it", short: str = "") -> TraceError:
    reason, advice = (text.format(name=name, short=short) for text in TEXTS[kind])
    return current().error(operation, reason, f'{advice}; or pass on_unsupported="numpy"')


def _kind(callee: Any) -> str:
    if isinstance(callee, type):
        return (
            "type"
            if callee in STAND_INS or callee is np.ndarray
            else "dtype"
            if issubclass(callee, np.generic)
            else "class"
        )
    if isinstance(callee, np.vectorize):
        return "vectorize"
    owner = getattr(callee, "__self__", None)
    return "method" if owner is not None and not isinstance(owner, types.ModuleType) else "call"


def _named(callee: Any, name: str) -> str:
    if callee is None or isinstance(callee, np.vectorize):
        return name or "it"
    module, own = getattr(callee, "__module__", None), getattr(callee, "__qualname__", name)
    return f"{module}.{own}" if module and module != "builtins" else own


# -- the source that a frame runs


def source_of(frame: types.FrameType) -> str:
    """The source text of the expression that the frame evaluates, on one line; "" if it is not known."""
    places = list(frame.f_code.co_positions())
    line, last, begin, end = places[frame.f_lasti // 2]
    if line is None or last is None or begin is None or end is None:
        return ""
    lines = [linecache.getline(frame.f_code.co_filename, n, frame.f_globals).encode() for n in range(line, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return " ".join(b" ".join(lines).decode(errors="replace").split())


def _callee(frame: types.FrameType, text: str) -> tuple[str, Any]:
    """The name of a call's function, and the object; None if finding it takes more than looking up names."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return "", None
    if not isinstance(node, ast.Call):
        return "", None
    path: list[str] = []
    found: ast.expr = node.func
    while isinstance(found, ast.Attribute):
        path, found = [found.attr, *path], found.value
    if not isinstance(found, ast.Name):
        return ast.unparse(node.func), None
    under = getattr(frame.f_globals, "under", frame.f_globals)
    value = frame.f_locals.get(found.id, under.get(found.id))
    for name in path:
        value = getattr(value, name, None)
    return ast.unparse(node.func), value


def shortened(text: str) -> str:
    """A quotation that fits into a message."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


# -- exceptions of the trace that NumPy does not raise


def as_trace_error(name: str, error: BaseException, home: str) -> TraceError:
    """The `TraceError` for an exception that only occurs while tracing; `home`: the file of the decorated function."""
    if isinstance(error.__cause__, TraceError):
        return error.__cause__
    traced: list[Origin] = []
    tb = error.__traceback__
    while tb is not None:
        if type(tb.tb_frame.f_globals) is not dict and not is_own(tb.tb_frame.f_code):
            traced.append(Origin(tb.tb_frame.f_code.co_filename, tb.tb_lineno, tb.tb_frame.f_code.co_qualname))
        tb = tb.tb_next
    own = [o for o in traced if o.filename == home] or traced
    inside = f" at {traced[-1]}" if traced and traced[-1] != own[-1] else ""
    reason = (
        f"tracing raised {type(error).__name__}: {error}{inside}. "
        "NumPy runs this line, so it is a limitation of hjit, not a fault of the code"
    )
    advice = (
        "report the line, please; until then compute it before or after the decorated function, "
        'or pass on_unsupported="numpy"'
    )
    if isinstance(error, TypeError) and str(error) in _UNHASHABLE:
        reason, advice = TEXTS["key"]
        advice += '; or pass on_unsupported="numpy"'
    line = linecache.getline(own[-1].filename, own[-1].line).strip() if own else ""
    return TraceError(shortened(line) or name, reason, advice, own[-1] if own else None)
