"""The exceptions that hjit raises; every one is an `HjitError`."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import CO_OPTIMIZED, CO_VARARGS
from opcode import opname
from types import CodeType, FrameType, TracebackType


@dataclass(frozen=True, slots=True)
class Origin:
    """A location in the user's source."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"


class HjitError(Exception):
    """Base class of hjit's exceptions."""


class TraceError(HjitError):
    """A statement of the decorated function cannot be traced.

    Attributes:
        operation: what was called, e.g. ``"numpy.fft.fft2"``.
        reason: why it cannot be traced.
        advice: what the user can do instead.
        origin: the source line, or None if it is not known.
    """

    def __init__(self, operation: str, reason: str, advice: str = "", origin: Origin | None = None) -> None:
        self.operation, self.reason, self.advice, self.origin = operation, reason, advice, origin
        where = f"{origin}: " if origin else ""
        hint = advice or (
            "compute it before or after the decorated function, "
            'or pass on_unsupported="numpy" to run the function uncompiled'
        )
        super().__init__(f"{where}{operation}: {reason}. What to do: {hint}.")


class BudgetError(TraceError):
    """Tracing and compiling a function takes longer than the option `budget` allows.

    Calls run as plain NumPy; methods that show compiled code raise it.
    """


class InherentError(TraceError):
    """A statement that cannot be traced whatever the numbers in closures and defaults are."""


class LongLoop(TraceError):
    """The iterations of a Python loop would fill a trace: the loop is left to Python, and its body is compiled."""


class ScheduleError(HjitError):
    """A schedule is malformed or illegal, or a directive names a loop that does not exist."""


class StageError(ScheduleError):
    """A schedule that cannot be lowered because of one stage.

    Attributes:
        stage: its name.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class SlidingError(StageError):
    """The stage is stored outside a loop along which it cannot have a sliding window."""


class BlockError(StageError):
    """The nest of the stage, a child of the root, has a basic block that would take the back end too long."""


class CompileError(HjitError):
    """The back end rejected generated code: a bug in hjit, please report it."""


class MemoryShortage(CompileError):
    """There is too little memory to compile now: NumPy runs, and a later call tries again."""


class DeviceError(HjitError):
    """A package, driver or device that the target needs is missing on this machine."""


class ModelError(HjitError):
    """A file of weights is damaged, or was made for other features."""


class CacheError(HjitError):
    """A bundle of plans is damaged or from another machine; or there is no such plan."""


class OptionError(HjitError, ValueError):
    """An option has an unknown name or value."""


class HjitWarning(UserWarning):
    """hjit fell back to plain NumPy, or its results differ from NumPy's."""


def raise_if_signalled(error: BaseException) -> None:
    """Raise an exception again that a signal handler or another thread has raised, in the middle of what may handle
    those of its own.

    It is the caller's: a time limit, for one. A handler is a function that was given the frame that called it; that
    frame is not in the traceback where it is one of Python's import system.
    """
    at = error.__traceback__
    while at is not None and (inner := at.tb_next) is not None:
        if _is_given(inner.tb_frame, at.tb_frame) or _is_given(inner.tb_frame, inner.tb_frame.f_back):
            raise error
        at = inner
    if at is not None and _is_asynchronous(error, at):
        raise error


_BETWEEN = frozenset(("RESUME", "JUMP_BACKWARD"))  # instructions that raise nothing of their own
_CALLS = frozenset(("PRECALL", "CALL", "CALL_KW", "CALL_FUNCTION_EX"))
_MADE_AT_RUN_TIME = 1 << 9  # of a class: it is none of Python's own


def _is_asynchronous(error: BaseException, at: TracebackType) -> bool:
    """Did another thread raise it here (`PyThreadState_SetAsyncExc`), between two instructions, or after a call of C?

    Python makes the exception of its class alone; C code gives those that it raises a message.
    """
    code = at.tb_frame.f_code
    if _is_of_c(code):
        return False
    instruction = opname[code.co_code[at.tb_lasti]]
    is_made_here = not error.args and bool(type(error).__flags__ & _MADE_AT_RUN_TIME)
    return instruction in _BETWEEN or (instruction in _CALLS and is_made_here)


def _is_of_c(code: CodeType) -> bool:
    """Is this no code that Python runs, but stands for a function of Cython, say, in tracebacks (`PyCode_NewEmpty`)?

    It is all that an assertion amounts to, outside of a function.
    """
    text = code.co_code
    return not code.co_flags & CO_OPTIMIZED and len(text) == 6 and opname[text[4]] == "RAISE_VARARGS"


def _is_given(frame: FrameType, what: FrameType | None) -> bool:
    """Is a frame one of the arguments of another?"""
    if what is None or str(frame.f_globals.get("__name__")).startswith("hjit."):
        return False  # hjit has no handlers; and to ask for locals keeps them as long as the frame
    code = frame.f_code
    count, has_more = code.co_argcount, bool(code.co_flags & CO_VARARGS)
    if count < 2 and not has_more:
        return False
    values = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    if has_more:
        values += frame.f_locals.get(code.co_varnames[count + code.co_kwonlyargcount], ())
    return any(x is what for x in values)
