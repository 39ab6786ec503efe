"""Python frames: whether they are hjit's own, and which instruction comes next."""

from __future__ import annotations

import dis
import importlib
import linecache
import os
import sys
import tokenize
from bisect import bisect_right
from functools import lru_cache, partial
from types import CodeType, FrameType, FunctionType
from typing import NamedTuple, TypeVar

from hjit.errors import CompileError, HjitError, Origin

T = TypeVar("T")

MAX_CODES = 1024  # whose places are known; then all are forgotten
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_DEMO = os.path.join(_PACKAGE, "demo.py")  # its functions are traced as a user's are


def is_own(code: CodeType) -> bool:
    """Is this code of hjit itself?"""
    return is_own_file(code.co_filename)


def is_own_file(name: str) -> bool:
    """Is this a file of hjit's source?"""
    return name.startswith(_PACKAGE) and name != _DEMO


def is_loading() -> bool:
    """Is a module of hjit being imported by this thread, so that what is in it is not there yet?

    A signal handler, or `__del__` of an object, then calls a pipeline in the middle of another one's first call.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _FIND_AND_LOAD and str(frame.f_locals.get("name")).startswith("hjit."):
            return True
        frame = frame.f_back
    return False


_FIND_AND_LOAD = getattr(importlib._bootstrap, "_find_and_load").__code__  # noqa: B009
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def is_installed(code: CodeType) -> bool:
    """Is this code of an installed package, which nobody edits while it is used?"""
    return any(name in code.co_filename for name in _INSTALLED)


def is_users(frame: FrameType) -> bool:
    """Does the user's code ask here, or call what asks (`np.isscalar`, `isinstance` of an abstract class)?"""
    asks: FrameType | None = frame
    while asks is not None and (asks.f_globals.get("__name__") or "").partition(".")[0] in ("abc", "numpy", "scipy"):
        asks = asks.f_back
    return asks is not None and not is_own(asks.f_code)


def is_code_of(code: CodeType, other: CodeType) -> bool:
    """Are these the code of one function? Its loops may have been rewritten."""
    return code is other or (
        code.co_firstlineno == other.co_firstlineno
        and code.co_name == other.co_name
        and code.co_filename == other.co_filename
    )


def shorten(error: BaseException) -> None:
    """Leave hjit's frames out of the traceback of an exception, but for the first one: so it shows the call of the
    pipeline and the user's line, as a traceback of the plain function does.

    Faults of hjit keep theirs.
    """
    first = error.__traceback__
    if first is None:
        return
    frames = [first]
    while (inner := frames[-1].tb_next) is not None:
        frames.append(inner)
    is_hjits = isinstance(error, HjitError) and not isinstance(error, CompileError)
    if is_own(frames[-1].tb_frame.f_code) and not is_hjits:
        return
    last = first
    for frame in frames[1:]:
        if not is_own(frame.tb_frame.f_code):
            last.tb_next = frame
            last = frame
    last.tb_next = None


def stack_level() -> int:
    """The stack level of the first frame outside hjit, for `warnings.warn` in the caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


# -- frames that warnings and log records do not count


def uncounted(cls: type[T]) -> type[T]:
    """The class, whose functions have frames that ``stacklevel=`` of `warnings.warn` and of `logging` does not count.

    So a warning of the plain function points to its caller, not to hjit. Both leave frames of Python's import system
    out, which CPython knows by what their file names contain. Tracebacks show the source all the same: `linecache` is
    told where it is, as not every loader knows (pytest's does not).
    """
    for f in vars(cls).values():
        if isinstance(f, FunctionType):
            source = f.__code__.co_filename
            f.__code__ = _renamed(f.__code__)
            linecache.cache.setdefault(f.__code__.co_filename, (partial(_text, source),))  # read when it is shown
    return cls


def _text(path: str) -> str | None:
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (OSError, SyntaxError):  # a package in an archive
        return None


def _renamed(code: CodeType) -> CodeType:
    inner = (_renamed(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=f"{code.co_filename} as importlib._bootstrap", co_consts=tuple(inner))


def is_counted(code: CodeType) -> bool:
    """Does ``stacklevel=`` count frames of this code of the user's?"""
    return "importlib" not in code.co_filename or "_bootstrap" not in code.co_filename


# -- what a frame is about to do


@lru_cache(maxsize=4096)
def callees(code: CodeType) -> frozenset[int]:
    """The offsets at which a frame of `code` may stand while it loads a global or an attribute that it then calls."""
    steps = instructions(code)
    return _standing(steps, [k for k in range(len(steps)) if _loads_callee(steps, k)])


@lru_cache(maxsize=4096)
def reads(code: CodeType, name: str, then: str = "", called: bool = False) -> frozenset[int]:
    """The offsets at which a frame of `code` may stand while it reads the attribute `name`.

    With `then`: only where the attribute `then` of the result is read next; with `called`: and called.
    """
    steps = instructions(code)
    found = [k for k, s in enumerate(steps) if s.opname in _ATTRIBUTE and s.name == name]
    if then:
        found = [k for k in found if steps[k + 1].opname in _ATTRIBUTE and steps[k + 1].name == then]
    return _standing(steps, [k for k in found if not called or _loads_callee(steps, k + 1)])


_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


@lru_cache(maxsize=4096)
def holders(code: CodeType) -> frozenset[int]:
    """The offsets at which a frame of `code` may stand while it loads what it then reads an attribute of, but for those
    that say something of a class, such as `__subclasses__`."""
    steps = instructions(code)
    after = ((k, steps[k + 1]) for k in range(len(steps) - 1))
    return _standing(steps, [k for k, s in after if s.opname in _ATTRIBUTE and _is_of_methods(s.name)])


def _is_of_methods(name: str) -> bool:
    return not name.startswith("__") or name in ("__init__", "__call__", "__new__")


@lru_cache(maxsize=4096)
def asks_class(code: CodeType) -> frozenset[int]:
    """The offsets at which a frame of `code` may stand while it reads `__class__`, or matches a class (`case C():`)."""
    steps = instructions(code)
    return reads(code, "__class__") | _standing(steps, [k for k, s in enumerate(steps) if s.opname == "MATCH_CLASS"])


_STORES = ("STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL")


class Instruction(NamedTuple):
    """One of a code object.

    Attributes:
        name: of the attribute or global that it reads, or of the variable that it sets; of any other instruction "".
    """

    offset: int
    opname: str
    arg: int
    name: str


@lru_cache(maxsize=1024)
def instructions(code: CodeType) -> list[Instruction]:
    """The instructions of a code object, without prefixes and inline caches.

    A first call reads some dozens of functions. `dis` takes ten times longer, as it says more of each instruction.
    """
    found = []
    data, extended = code.co_code, 0
    for offset in range(0, len(data), 2):
        opname, arg = dis.opname[data[offset]], data[offset + 1] | extended
        if opname == "EXTENDED_ARG":
            extended = arg << 8
            continue
        extended = 0
        if opname != "CACHE":
            found.append(Instruction(offset, opname, arg, _name(code, opname, arg)))
    return found


def _name(code: CodeType, opname: str, arg: int) -> str:
    """See `Instruction`. From 3.12 on a bit of LOAD_ATTR says whether it is a method's."""
    if opname == "LOAD_ATTR":
        return code.co_names[arg >> 1 if sys.version_info >= (3, 12) else arg]
    if opname == "LOAD_GLOBAL":  # whose bit says whether it is called
        return code.co_names[arg >> 1]
    if opname in ("LOAD_METHOD", "STORE_NAME", "STORE_GLOBAL"):
        return code.co_names[arg]
    if opname in ("STORE_FAST", "STORE_DEREF"):
        return str(code._varname_from_oparg(arg))  # type: ignore[attr-defined]  # as `dis` does
    return ""


def _loads_callee(steps: list[Instruction], k: int) -> bool:
    """Is what an instruction loads called?

    A method is: CPython 3.11 has an instruction for it, 3.12 a bit. So is what a NULL marks, before it or, from 3.13
    on, after it.
    """
    step, after = steps[k], steps[k + 1] if k + 1 < len(steps) else steps[k]
    if step.opname == "LOAD_METHOD" or after.opname == "PUSH_NULL":
        return True
    if step.opname == "LOAD_ATTR":
        is_method = sys.version_info >= (3, 12) and is_marked(step)
        return is_method or (after.opname != "LOAD_ATTR" and _is_chain_marked(steps, k))
    return step.opname == "LOAD_GLOBAL" and is_marked(step) and after.opname != "LOAD_ATTR"


def is_marked(step: Instruction) -> bool:
    """Does it load a NULL, too: is what it loads called?"""
    return bool(step.arg & 1)


def _is_chain_marked(steps: list[Instruction], k: int) -> bool:
    """Does ``a.b.c`` begin with a NULL?"""
    while steps[k].opname == "LOAD_ATTR":
        k -= 1
    return (steps[k].opname == "LOAD_GLOBAL" and is_marked(steps[k])) or (k > 0 and steps[k - 1].opname == "PUSH_NULL")


def _standing(steps: list[Instruction], places: list[int]) -> frozenset[int]:
    return frozenset(
        offset for k in places if k + 1 < len(steps) for offset in range(steps[k].offset, steps[k + 1].offset, 2)
    )


@lru_cache(maxsize=4096)
def identities(code: CodeType) -> frozenset[int]:
    """The offsets at which a frame of `code` may stand while it loads what ``is`` then compares."""
    steps = instructions(code)
    return _standing(steps, [k for k in range(len(steps) - 1) if steps[k + 1].opname == "IS_OP"])


@lru_cache(maxsize=4096)
def compared(code: CodeType) -> frozenset[int]:
    """The offsets at which a frame of `code` may stand while it loads what is compared at once, alone, in a tuple,
    a list or a union: by ``is``, ``==`` or ``in``, or as a class of `isinstance` or `issubclass`."""
    steps = instructions(code)
    places = dict(enumerate(code.co_positions()))  # of code that has been changed, there may be none
    spans = [_span(*places.get(s.offset // 2, _NOWHERE)) for s in steps]
    loads = [k for k, s in enumerate(steps) if s.opname == "LOAD_GLOBAL"]
    return _standing(steps, [k for k in loads if _compares(steps, spans, k)])


_Span = tuple[tuple[int, int], tuple[int, int]]
_NOWHERE = (None, None, None, None)
_COMPARES = ("IS_OP", "COMPARE_OP", "CONTAINS_OP")
_GATHERS = ("BUILD_TUPLE", "BUILD_LIST", "BINARY_OP", "PRECALL")  # (a, b), [a, b], a | b


def _span(line: int | None, end_line: int | None, column: int | None, end_column: int | None) -> _Span | None:
    """Where an instruction's source begins and ends; None: it is not known."""
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return (line, column), (end_line, end_column)


def _compares(steps: list[Instruction], spans: list[_Span | None], k: int) -> bool:
    """Is the first instruction whose source is around that of instruction `k`, and comes after it, a comparison?"""
    own = spans[k]
    if own is None:
        return False
    for step, span in zip(steps[k + 1 :], spans[k + 1 :], strict=True):
        if span is None or span[0] > own[0] or span[1] < own[1] or step.opname in _GATHERS:
            continue
        callee = next((s.name for s, other in zip(steps, spans, strict=True) if other and other[0] == span[0]), "")
        return step.opname in _COMPARES or (step.opname == "CALL" and callee in ("isinstance", "issubclass"))
    return False


@lru_cache(maxsize=4096)
def mapped(code: CodeType) -> frozenset[int]:
    """The offsets at which a frame of `code` may stand while it loads what `map` then calls."""
    steps = instructions(code)
    loads = [
        k for k, s in enumerate(steps) if s.opname == "LOAD_GLOBAL" and s.name == "map" and _loads_callee(steps, k)
    ]
    return _standing(steps, [k + 2 if steps[k + 1].opname == "PUSH_NULL" else k + 1 for k in loads])


def instruction(frame: FrameType) -> str:
    """The name of the present instruction; 3.11 may stand at the PRECALL before a CALL."""
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return "CALL" if name == "PRECALL" else name


# -- where in the user's source


def traced_frame() -> tuple[FrameType | None, FrameType]:
    """The innermost frame of traced code, which may be hjit's own, and that of the function which it has called."""
    called = sys._getframe(1)
    while (frame := called.f_back) is not None:
        if type(frame.f_globals) is not dict:
            return frame, called
        called = frame
    return None, called


def site() -> tuple[Origin | None, str]:
    """The source line that is being traced, and the variable that its result is assigned to."""
    return site_of(traced_frame()[0])


class _Places(dict[int, tuple[Origin, str]]):
    """Where the instructions of a code object are in the source, by their offsets, and what their results are assigned
    to.

    Attributes:
        code: so that it stays what it is known by.
        is_own: is it hjit's?
    """

    __slots__ = ("_assigned", "_lines", "_starts", "code", "is_own")

    def __init__(self, code: CodeType) -> None:
        self.code, self.is_own, self._assigned = code, is_own(code), _assigned(code)
        ranges = [(start, line) for start, _, line in code.co_lines() if line is not None]
        self._starts, self._lines = [start for start, _ in ranges], [line for _, line in ranges]

    def __missing__(self, offset: int) -> tuple[Origin, str]:
        origin = Origin(self.code.co_filename, self._line(offset), self.code.co_name)
        found = self[offset] = origin, self._assigned.get(offset, "t")
        return found

    def _line(self, offset: int) -> int:
        """As `f_lineno`, for which CPython goes through all instructions before."""
        at = bisect_right(self._starts, offset) - 1
        return self._lines[at] if at >= 0 else self.code.co_firstlineno


_places: dict[int, _Places] = {}  # by identity: to hash a code object, or to compare two, takes longer


def _places_of(code: CodeType) -> _Places:
    found = _places.get(id(code))
    if found is None:
        if len(_places) >= MAX_CODES:
            _places.clear()
        found = _places[id(code)] = _Places(code)
    return found


def site_of(frame: FrameType | None) -> tuple[Origin | None, str]:
    """As `site`, for what `traced_frame` gives."""
    while frame is not None:
        if type(frame.f_globals) is not dict:
            places = _places_of(frame.f_code)
            if not places.is_own:
                return places[frame.f_lasti]
        frame = frame.f_back
    return None, "t"


def line_in(filename: str) -> Origin | None:
    """The innermost line of a file that is being traced."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if type(frame.f_globals) is not dict and frame.f_code.co_filename == filename:
            return Origin(filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


@lru_cache(maxsize=1024)
def _assigned(code: CodeType) -> dict[int, str]:
    """For each instruction whose result goes straight into a variable, that variable.

    CPython 3.11 stands at the PRECALL before a CALL once it has specialised the call, and behind the CALL's own inline
    cache where it runs a Python function in the same interpreter loop.
    """
    found: dict[int, str] = {}
    before: list[Instruction] = []
    for step in instructions(code):
        if step.opname in _STORES:
            for offset in range(before[0].offset, step.offset, 2) if before else ():
                found[offset] = step.name if step.name.isidentifier() else "t"
        before = [*before, step] if before and before[-1].opname == "PRECALL" else [step]
    return found
