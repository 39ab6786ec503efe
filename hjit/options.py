"""Options: decorator argument, then ``with hjit.options(...)``, then environment, then default.

| option               | values                              | meaning                                             |
|----------------------|-------------------------------------|-----------------------------------------------------|
| `verify`             | "first", "off"                      | compare first calls with NumPy's                    |
| `on_unsupported`     | "break", "raise", "numpy"           | if a function cannot be traced                      |
| `budget`             | 10.0, 2.5, ..., None                | seconds for tracing and compiling                   |
| `fast_math`          | False, True                         | floats may use FMA and reciprocals                  |
| `target`             | "cpu", "x86-64-v2" to "-v4", "cuda" | this CPU, or a level of x86-64; a GPU               |
| `num_threads`        | 0 (all cores), 1, 2, ...            | threads of one call                                 |
| `cache`              | "rw", "ro", "off"                   | use of the disk cache                               |
| `cache_dir`          | a folder, "" for the user's own     | where the disk cache is                             |
| `tune`               | see below                           | how to search for a schedule                        |
| `tune_budget`        | 60.0, 600, ...                      | seconds that `tune="autotune"` takes                |
| `tune_in_background` | False, True                         | tune in a thread, while calls run                   |
| `blas`               | "auto", True, False                 | matrix products by NumPy's BLAS, where it is faster |
| `numpy_if_faster`    | True, False                         | run NumPy where the first calls find it faster      |
| `disable`            | False, True                         | run the plain function                              |

What `tune` means; all but the first look first for what tuning has found, on disk, too:

| `tune`         | schedule                                                                                    |
|----------------|---------------------------------------------------------------------------------------------|
| False          | the default one                                                                             |
| "stored"       | what any earlier search or tuning has found, else the default one: nothing is searched      |
| "greedy"       | a greedy search of a second; the best few are timed against the default one                 |
| "refined"      | then three seconds of local search                                                          |
| "beam"         | a beam search of half a minute, local search, and six schedules timed                       |
| "one_shot"     | a beam search: the cost model's choice as it is, nothing is timed                           |
| "top_five"     | the five best of that search, and the default one, timed                                    |
| "autotune"     | batches of samples for `tune_budget` seconds, timed; the cost model learns between them     |

In the environment an option is `HJIT_` and its name in capitals, such as `HJIT_FAST_MATH`; it is read at the first call
of a pipeline. Three more variables apply to the whole process: `HJIT_THREADING_LAYER` is "tbb", or "python" for threads
without TBB; `HJIT_WEIGHTS` is a file of weights of the cost model, of `hjit train`, instead of those that come with
hjit; `HJIT_CUDA_DEVICE` is "cupy", or "opencl" to run kernels of the target "cuda" on PoCL, that is on the CPU: for
tests and notebooks on machines without a GPU.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypedDict, Unpack

from hjit.errors import OptionError


@dataclass(frozen=True, slots=True)
class Options:
    """A complete set of options; this module's docstring has the table."""

    verify: str = "first"
    on_unsupported: str = "break"
    budget: float | None = 10.0
    fast_math: bool = False
    target: str = "cpu"
    num_threads: int = 0
    cache: str = "rw"
    cache_dir: str | os.PathLike[str] = ""
    tune: bool | str = "greedy"
    tune_budget: float = 60.0
    tune_in_background: bool = False
    blas: bool | str = "auto"
    numpy_if_faster: bool = True
    disable: bool = False

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if not any(type(getattr(self, name)) is type(x) and getattr(self, name) == x for x in allowed):
                raise OptionError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(map(repr, allowed))}")
        if type(self.num_threads) is not int or self.num_threads < 0:
            raise OptionError(f"num_threads={self.num_threads!r}: a whole number from 0 (all cores)")
        if self.budget is not None and (
            type(self.budget) not in (int, float) or math.isnan(self.budget) or self.budget < 0
        ):
            raise OptionError(f"budget={self.budget!r}: seconds, or None for any time")
        seconds = self.tune_budget
        if type(seconds) not in (int, float) or not 0 < seconds < math.inf:
            raise OptionError(f"tune_budget={seconds!r}: seconds, more than 0")
        if not isinstance(self.cache_dir, (str, os.PathLike)):
            raise OptionError(f"cache_dir={self.cache_dir!r}: a folder")


class GivenOptions(TypedDict, total=False):
    """Some of them, as they are given, for type checkers and editors: `Options` has the same with their defaults."""

    verify: Literal["first", "off"]
    on_unsupported: Literal["break", "raise", "numpy"]
    budget: float | None
    fast_math: bool
    target: Literal["cpu", "x86-64-v2", "x86-64-v3", "x86-64-v4", "cuda"]
    num_threads: int
    cache: Literal["rw", "ro", "off"]
    cache_dir: str | os.PathLike[str]
    tune: Literal[False, "stored", "greedy", "refined", "beam", "one_shot", "top_five", "autotune"]
    tune_budget: float
    tune_in_background: bool
    blas: Literal["auto"] | bool
    numpy_if_faster: bool
    disable: bool


TUNE_MODES = ("stored", "greedy", "refined", "beam", "one_shot", "top_five", "autotune")
_CHOICES: dict[str, tuple[Any, ...]] = {
    "verify": ("first", "off"),
    "on_unsupported": ("break", "raise", "numpy"),
    "cache": ("rw", "ro", "off"),
    "fast_math": (False, True),
    "disable": (False, True),
    "tune": (False, *TUNE_MODES),
    "tune_in_background": (False, True),
    "blas": ("auto", True, False),
    "numpy_if_faster": (True, False),
    "target": ("cpu", "x86-64-v2", "x86-64-v3", "x86-64-v4", "cuda"),
}
_NAMES = frozenset(f.name for f in fields(Options))
_in_context: contextvars.ContextVar[tuple[tuple[str, Any], ...]] = contextvars.ContextVar("hjit_options", default=())


def _flag(text: str) -> bool:
    if text.strip().lower() in ("1", "true", "yes", "on"):
        return True
    if text.strip().lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(text)


def _tune(text: str) -> bool | str:
    return text if text in TUNE_MODES else _flag(text)


def _blas(text: str) -> bool | str:
    return text if text == "auto" else _flag(text)


def _seconds(text: str) -> float | None:
    return None if text.strip().lower() in ("none", "") else float(text)


# how the text of a variable is read, and what it may be
_FROM_TEXT: dict[str, tuple[Callable[[str], Any], str]] = {
    "budget": (_seconds, "seconds, or none for any time"),
    "tune": (_tune, f"choose one of 0, {', '.join(TUNE_MODES)}"),
    "blas": (_blas, "choose one of auto, 0, 1"),
    "num_threads": (int, "a whole number from 0 (all cores)"),
    "tune_budget": (float, "seconds, more than 0"),
}
_FROM_TEXT |= dict.fromkeys(
    ("fast_math", "numpy_if_faster", "tune_in_background", "disable"), (_flag, "choose one of 0, 1")
)


def from_environment() -> dict[str, Any]:
    """The options that `HJIT_*` environment variables set."""
    found: dict[str, Any] = {}
    for name in _NAMES:
        text = os.environ.get(f"HJIT_{name.upper()}")
        if text is not None:
            read, allowed = _FROM_TEXT.get(name, (str, ""))
            try:
                found[name] = read(text)
            except ValueError:
                raise OptionError(f"HJIT_{name.upper()}={text!r}: {allowed}") from None
    return found


def checked(given: dict[str, Any]) -> dict[str, Any]:
    """The same options, after a check of names and values.

    Raises:
        OptionError: an unknown name or value.
    """
    unknown = sorted(set(given) - _NAMES)
    if unknown:
        raise OptionError(f"unknown option {', '.join(unknown)}; known are {', '.join(sorted(_NAMES))}")
    Options(**given)
    return given


def resolve(given: dict[str, Any]) -> Options:
    """The options in force, `given` being the decorator's arguments."""
    return replace(Options(), **{**from_environment(), **dict(_in_context.get()), **given})


def context_state() -> tuple[tuple[str, Any], ...]:
    """The options of the enclosing ``with hjit.options(...)`` blocks, cheap to read and to compare."""
    return _in_context.get()


@contextlib.contextmanager
def options(**given: Unpack[GivenOptions]) -> Iterator[None]:
    """Set options for the calls made inside a ``with`` block, in this thread or task.

    Raises:
        OptionError: an unknown name or value.
    """
    before = _in_context.get()
    token = None
    try:
        token = _in_context.set(tuple(sorted({**dict(before), **checked({**given})}.items())))
        yield
    finally:
        if token is None:  # interrupted between the two
            _in_context.set(before)
        else:
            _in_context.reset(token)
