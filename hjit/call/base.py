"""What the classes that make up a compiled function know of each other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey
from hjit.call.checks.against_numpy import InterleavedCalls
from hjit.call.entry import Call, Entries, Stats
from hjit.options import Options

if TYPE_CHECKING:
    from hjit.call.variant import Variant
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
    def _warn(self, why: str) -> None:
        """Give a warning, once."""

    @abstractmethod
    def _interleaved(
        self, key: CallKey, timing: InterleavedCalls, compiled: Callable[[], Any], plain: Callable[[], Any]
    ) -> Any:
        """One way or the other, timed; when that is over, it is decided which runs from now on."""

    @abstractmethod
    def _time(
        self, key: CallKey, variant: Variant, options: Options, seconds: tuple[float, float] | None = None
    ) -> None:
        """Time the next calls beside NumPy, if that may be the faster one.

        It was with another key, or may be by the `seconds` of the kernel and of NumPy.
        """
