"""`FunctionBase`: the interface through which the base classes of `CompiledFunction` use each other."""

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

    The table in that module says which class does what.

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
        """The options in force in the context of a call."""

    @abstractmethod
    def _run(self, call: Call, is_into: bool) -> Any:
        """Run a known variant, a new one, or the plain function; `is_into`: called by `Pipeline.into`."""

    @abstractmethod
    def _run_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the plain function."""

    @abstractmethod
    def _plain_for_numpy(self) -> Callable[..., Any]:
        """The plain function, run on NumPy arrays even if its code names CuPy."""

    @abstractmethod
    def _leave_to_numpy(self, call: Call) -> Any:
        """A call that NumPy raises an exception for: the plain function raises it, on the host, as CuPy may not."""

    @abstractmethod
    def _give_up(self, key: CallKey, why: str, is_refused: bool = False) -> None:
        """Leave all calls with this key to NumPy; see `Entries.give_up`."""

    @abstractmethod
    def _not_compiled_later(self, call: Call, error: TraceError) -> None:
        """Note that calls like this one, which has its result already, cannot be compiled as a whole."""

    @abstractmethod
    def _warn(self, why: str) -> None:
        """Issue a warning; the first one only."""
