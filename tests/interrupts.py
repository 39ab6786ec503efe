"""Interrupting code wherever Python calls signal handlers: one place after the other, in the thread of the test."""

from __future__ import annotations

import dis
import inspect
import itertools
import sys
from collections.abc import Callable, Container, Iterator
from types import CodeType
from typing import Any

# after these, handlers are called: where a function begins or goes on, after calls of C, and where a loop jumps back
HANDLING = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"} | {
    f"POP_JUMP_BACKWARD_IF_{x}" for x in ("TRUE", "FALSE", "NONE", "NOT_NONE")
}


def is_called_by_c(code: CodeType) -> bool:
    """Is it code of a generator, which goes on, or of a method that Python's own code calls?"""
    return bool(code.co_flags & inspect.CO_GENERATOR) or code.co_name.startswith("__")


class _Interrupting:
    """Traces a function and raises at one place.

    Attributes:
        is_done: has it raised?
    """

    def __init__(self, at: int, files: Container[str]) -> None:
        self.at, self.files, self.is_done = at, files, False
        self._count = itertools.count()
        self._before: dict[Any, str] = {}

    def trace(self, frame: Any, event: str, arg: object) -> Any:
        if event == "call" and not is_called_by_c(frame.f_code):
            self._before.pop(frame.f_back, None)  # after calls of functions in Python, none are
        if self.is_done or frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if self._before.get(frame) in HANDLING and next(self._count) == self.at:
                self.is_done = True
                self._before.clear()  # it holds the frames, which end with the exception
                raise KeyboardInterrupt
            self._before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        elif event == "return":
            self._before.pop(frame, None)
        return self.trace


def at_each_place(f: Callable[[], object], files: Container[str], step: int = 1) -> Iterator[int]:
    """Run a function again and again, interrupted at the next place in these files each time, until there is none.

    Args:
        step: take one place of so many.
    """
    for at in itertools.count(0, step):
        interrupting = _Interrupting(at, files)
        usual = sys.gettrace()
        sys.settrace(interrupting.trace)
        try:
            f()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(usual)
        if not interrupting.is_done:
            return
        yield at
