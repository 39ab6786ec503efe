"""What the classes that make up a compiled function know of each other."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey
from hjit.call.entry import Call, Entries, Stats
from hjit.errors import TraceError
from hjit.options import Options

if TYPE_CHECKING:
    from hjit.tuning.choice import Scheduler


class FunctionBase:
    """The state of `hjit.call.compiled_function.CompiledFunction`, and the methods that its base classes call.

    Attributes:
        py_func: the undecorated function.
        stats: counters, for people and tests.
    """

    __name__: str
    py_func: Callable[..., Any]
    stats: Stats
    _entries: Entries
    _lock: threading.RLock
    _schedule: Scheduler | None
    _warned_of_flips: bool

    @abstractmethod
    def _resolved(self, context: Any) -> Options:
        """The options of calls in a context."""

    @abstractmethod
    def _run(self, call: Call, is_into: bool) -> Any:
        """Run a known variant, a new one, or the plain function; `is_into`: the caller gave arrays for the results."""

    @abstractmethod
    def _numpy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the plain function."""

    @abstractmethod
    def _by_numpy(self) -> Callable[..., Any]:
        """The plain function for NumPy's arrays, although it may name CuPy."""

    @abstractmethod
    def _refused(self, call: Call) -> Any:
        """NumPy is to say what it refuses; CuPy might not refuse it."""

    @abstractmethod
    def _give_up(self, key: CallKey, why: str, is_refused: bool = False) -> None:
        """NumPy runs all calls with this key; see `Entries.give_up`."""

    @abstractmethod
    def _not_compiled_later(self, call: Call, error: TraceError) -> None:
        """Later calls as this one do not run compiled as a whole; this one has its result."""

    @abstractmethod
    def _warn(self, why: str) -> None:
        """Give a warning, once."""
