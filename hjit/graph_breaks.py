"""How a pipeline runs a function that cannot be traced as a whole: in Python, with compiled parts."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hjit.call.against_numpy import InterleavedCalls
from hjit.call.arguments import CallKey
from hjit.call.entry import FEW_REFUSALS, UNTIMED, Entry, Stats
from hjit.call.outcome import PARTS, PLAIN, Outcome
from hjit.options import Options
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.parts import Parts
    from hjit.tuning.choice import Scheduler

log = logging.getLogger("hjit")


@uncounted
class GraphBreaks:
    """Methods of `hjit.pipeline.Pipeline`.

    Attributes:
        parts: the function with compiled parts, where it was called with what cannot be traced as a whole.
    """

    __name__: str
    py_func: Any
    stats: Stats
    parts: Parts | None
    _schedule: Scheduler | None
    _refusals = 0  # keys in a row that could not be traced
    _refusal = ""  # of the latest one that runs as plain NumPy: why

    @abstractmethod
    def _part(self, function: Any) -> Any:
        """The pipeline of a part."""
        ...

    @abstractmethod
    def _callee(self) -> Any:
        """What gives the pipelines of functions that are called in parts; None: these run as they are."""
        ...

    @abstractmethod
    def _resolved(self, context: Any) -> Options: ...

    @abstractmethod
    def _entry(self, key: CallKey) -> Entry: ...

    @abstractmethod
    def _give_up(self, key: CallKey, why: str, is_refused: bool = False) -> None: ...

    @abstractmethod
    def _numpy(self, args: Any, kwargs: Any) -> Any: ...

    @abstractmethod
    def _interleaved(
        self, key: CallKey, timing: InterleavedCalls, compiled: Callable[[], Any], plain: Callable[[], Any]
    ) -> Any: ...

    def _by_parts(self, key: CallKey, entry: Entry, args: Any, kwargs: Any) -> Any:
        """A later call of a function with compiled parts; some are timed beside the plain function."""
        parts, timing = entry.parts, entry.timing
        assert parts is not None
        if timing is not None:
            return self._interleaved(key, timing, lambda: parts(*args, **kwargs), lambda: self._numpy(args, kwargs))
        if entry.untimed < UNTIMED and self._resolved(key[0]).numpy_if_faster:
            entry.untimed += 1
            if entry.untimed == UNTIMED:
                entry.time(None)
        return parts(*args, **kwargs)

    def _in_parts(self, key: CallKey, args: Any, kwargs: Any) -> Any:
        """The first call of a function that Python runs, but for parts of it."""
        entry = self._entry(key)
        assert self.parts is not None
        entry.parts = self.parts.run
        try:
            result = entry.parts(*args, **kwargs)
        except Exception:
            entry.parts = None  # it may be these arguments that are wrong, and not what was refused
            raise
        self._refusals += 1
        return result

    def _is_refused_again(self, options: Options) -> bool:
        """Is a new key taken to be refused, too, as those before it were? Each time that they have doubled, one is
        tried: a list that grows with every call makes each key a new one."""
        n = self._refusals
        is_again = n >= FEW_REFUSALS and n & (n - 1) != 0
        return is_again and options.on_unsupported != "raise" and self._schedule is None

    def _as_before(self, key: CallKey, options: Options) -> Outcome:
        """What the keys before have come to."""
        if self.parts is not None and options.on_unsupported == "break":
            return PARTS
        self._give_up(key, self._refusal, is_refused=True)
        return PLAIN

    def _split(self, error: Exception) -> bool:
        """Can the function, which cannot be traced, run in parts? A schedule is one of the whole function."""
        if self._schedule is not None:
            return False
        if self.parts is None:
            from hjit.call.parts import split

            self.parts = split(self.py_func, error, self._part, self._callee())
            if self.parts is not None:
                self.stats.parts = len(self.parts.parts)
                log.info("%s runs in parts: %s", self.__name__, error)
        return self.parts is not None
