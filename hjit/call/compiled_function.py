"""`CompiledFunction`: how a call of a pipeline is dispatched.

The arguments of a call are reduced to a key (dtypes, shapes, strides, types; `hjit.call.arguments`). If the key is
known, its variant runs: a bound kernel, without tracing and without locks. A new key is traced and compiled, and the
first result of a new kernel is compared with NumPy's.

`CompiledFunction` is what is called. It keeps its state in one object, and has others that each run one kind of calls:

    FunctionState      call/function_state.py        the plain function, its options, and what is known about its calls
    KnownCalls         call/known_calls.py           run a variant of the key
    NewCalls           call/new_calls.py             trace, compile, verify, run
    VerifiedCalls      call/checks/verified_calls.py compare the first results of kernels with NumPy's
    TimedCalls         call/checks/timed_calls.py    time calls against NumPy, which runs from then on if it is faster
    SplitCalls         call/breaks/split_calls.py    functions with graph breaks: Python runs them, with compiled parts
    OtherArrays        call/other_arrays/calls.py    arrays on a GPU, of Dask, and of another byte order

Its subclasses add methods: `Tunable` (tunable.py) `f.tune`; `Inspectable` (inspection.py) `f.explain`, `f.graph`,
`f.loops` and so on; `Pipeline` (pipeline.py) is what the decorator returns, and `CompiledPart` (graph_breaks.py) a part
of a function with graph breaks.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from hjit.call.arguments import CallKey, is_dask_array, is_device_array, is_swapped, key_of, recogniser
from hjit.call.breaks.split_calls import MakePart, SplitCalls
from hjit.call.checks.against_numpy import comparing
from hjit.call.checks.retracing import Retracing
from hjit.call.checks.timed_calls import TimedCalls
from hjit.call.checks.verified_calls import VerifiedCalls
from hjit.call.entry import MAX_RAISED, RECOGNISED_AFTER, Call, Entry
from hjit.call.function_state import FunctionState
from hjit.call.known_calls import KnownCalls
from hjit.call.new_calls import NewCalls
from hjit.call.other_arrays.calls import OtherArrays
from hjit.call.results import MISS, PLAIN
from hjit.errors import raise_if_signalled
from hjit.options import checked
from hjit.process import debug, forks
from hjit.process.garbage_collection import References, few_collections
from hjit.process.shown_warnings import float_errors_are_reported
from hjit.trace.capture.overlay import is_traced_call
from hjit.trace.capture.trace import flatten_arguments
from hjit.trace.tracing import forward
from hjit.trace.tracing.frames import is_loading, shorten, uncounted
from hjit.trace.tracing.recording.recorder import running

if TYPE_CHECKING:
    from hjit.call.breaks.parts import Parts
    from hjit.call.variant import Variant
    from hjit.tuning.autotune import Tuned

P = ParamSpec("P")  # the parameters of the plain function
R = TypeVar("R")  # what it returns


@uncounted
class CompiledFunction(Generic[P, R]):
    """A NumPy function with what has been compiled for its calls.

    Attributes:
        stats: counters, for people and tests.
    """

    __slots__ = (  # not in `__dict__`, which `functools.update_wrapper` copies to what wraps a pipeline
        "__dict__",
        "__weakref__",
        "_by_target",
        "_entries",
        "_is_plain_again",
        "_known",
        "_new",
        "_on_gpu",
        "_others",
        "_retracing",
        "_split",
        "_state",
        "stats",
    )

    __name__: str

    def __init__(self, state: FunctionState, make_part: MakePart) -> None:
        functools.update_wrapper(self, state.py_func)
        self.__name__ = state.name
        # what the hot path reads
        self._state = state
        self._entries, self.stats = state.entries, state.stats
        # number of arguments, and a predicate on them: recognises calls that NumPy runs, faster than by their key
        self._is_plain_again: tuple[int, Callable[..., bool]] | None = None
        self._on_gpu: CompiledFunction[P, R] | None = None  # runs calls with arrays on a GPU; set by the first of them
        # what runs the other calls
        timed = TimedCalls(state)
        self._split = SplitCalls(state, timed, make_part)
        verified = VerifiedCalls(state, timed, self._split)
        self._known = KnownCalls(state, timed, verified)
        self._retracing = Retracing()
        self._new = NewCalls(state, self._known, timed, verified, self._split, self._retracing)
        self._others = OtherArrays(state)
        self._by_target: dict[str, Self] = {}
        _functions.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The hot path: a kernel that is known to fit, or NumPy where that is known to run."""
        if running and is_traced_call(sys._getframe(1), args, kwargs):
            traced: R = forward.wrap_callable(self.py_func)(*args, **kwargs)
            return traced
        stats = self.stats
        again = self._is_plain_again
        if again is not None and len(args) == again[0] and not kwargs and again[1](*args):
            stats.calls += 1
            stats.fallbacks += 1
            return self._state.py_func(*args)
        if comparing and threading.get_ident() in comparing:
            return self.py_func(*args, **kwargs)
        stats.calls += 1
        if float_errors_are_reported() and self._is_all_numpy(args, kwargs):
            return self._state.run_plain(args, kwargs)
        key = key_of(args, kwargs)
        known = self._entries.get(key)
        if known is not None and (fast := known.fast) is not None:
            result = fast.run((*args, *kwargs.values()) if kwargs else args)
            if result is PLAIN:
                return self._call(key, args, kwargs, refused=known.variants[0])
            if result is not MISS:
                return result
        elif known is not None and known.plain is not None:
            self._count_plain(known, args, kwargs)
            return self._state.run_plain(args, kwargs)
        elif known is None and self._on_gpu is not None:
            return self._call_on_gpu(self._on_gpu, key, args, kwargs)
        return self._call(key, args, kwargs)

    def _is_all_numpy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Would NumPy alone run the plain function on these arguments, so that NumPy's error settings apply?"""
        _, leaves = flatten_arguments(args, kwargs)
        is_on_cpu = self._state.options.here().target != "cuda"
        return is_on_cpu and not any(is_device_array(x) or is_dask_array(x) for x in leaves)

    def _count_plain(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count a call that NumPy runs; after some of them such calls are recognised without making their key."""
        entry.plain_calls += 1
        if entry.plain_calls & (entry.plain_calls - 1) == 0 and entry.plain_calls >= RECOGNISED_AFTER and not kwargs:
            found = None if self._state.is_part else recogniser(args)
            self._is_plain_again = None if found is None else (len(args), found)

    def _call_on_gpu(
        self, there: CompiledFunction[P, R], key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call without an entry here, which may have arrays on a GPU: `there`, the pipeline for it, may have a hot
        path."""
        known = there._entries.get(key)
        if known is not None and (fast := known.fast) is not None:
            result = fast.run((*args, *kwargs.values()) if kwargs else args)
            if result is not MISS:
                there.stats.calls += 1
                return there._state.run_plain(args, kwargs) if result is PLAIN else result
        return self._call(key, args, kwargs)

    # -- off the hot path
    def _call(
        self,
        key: CallKey,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        targets: list[Any] | None = None,
        refused: Variant | None = None,
    ) -> Any:
        """Run a call off the hot path; exceptions have a short traceback, but with `HJIT_CHECK=1`.

        Args:
            targets: the caller's arrays for the results (`Pipeline.into`).
            refused: the variant that has refused the call on the hot path.
        """
        try:
            if refused is not None and not refused.speculates:
                return self._run_refused(key, args, kwargs, refused)
            return self._dispatch(key, args, kwargs, targets, refused)
        except BaseException as error:
            if not debug.checks():
                shorten(error)
            raise

    def _dispatch(
        self,
        key: CallKey,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        targets: list[Any] | None,
        refused: Variant | None = None,
    ) -> Any:
        """Run a call: by NumPy, by the split function, or by kernels for the kind of its arrays."""
        state = self._state
        entry = state.entries.get(key)
        is_plain = entry is not None and (entry.plain is not None or entry.skips())
        if is_plain or state.options.of(key[0]).disable or sys.is_finalizing():  # then nothing can be imported
            return state.run_plain(args, kwargs)
        if entry is not None and entry.raised >= MAX_RAISED:
            result = state.run_plain(args, kwargs)  # may raise again: then tracing would have been in vain
            entry.raised = 0
            return result
        if self._retracing.bypass and not targets:
            self._retracing.bypass -= 1
            return state.run_plain(args, kwargs)
        if entry is not None and entry.parts is not None and not self._split.is_current():
            self._forget_calls()
            state.parts = entry = None
        if entry is not None and (entry.parts is not None or entry.converted is not None):
            return self._split.call(key, entry, args, kwargs)
        if not _load_compiler.cache_info().currsize and is_loading():
            return state.run_plain(args, kwargs)
        try:
            _load_compiler()
        except OSError as error:  # for example, too many open files
            raise_if_signalled(error)
            state.warnings.of_fallback(f"{state.name} runs as plain NumPy until hjit's compiler can be loaded: {error}")
            return state.run_plain(args, kwargs)
        structure, leaves = flatten_arguments(args, kwargs)
        call = Call(key, args, kwargs, leaves, structure, targets or [], (), refused)
        if any(map(is_dask_array, leaves)):
            return self._others.on_dask(self, call)
        if any(map(is_swapped, leaves)):
            return self._others.convert(self, call)
        if state.options.of(key[0]).target == "cuda":
            return self._others.on_gpu(call, lambda here: self._run(here, targets is not None))
        if any(map(is_device_array, leaves)):
            there = self.on("cuda")
            there.stats.calls += 1
            result = there._call(key, args, kwargs, targets)
            self._on_gpu = there
            return result
        return self._run(call, targets is not None)

    def _run(self, call: Call, is_into: bool) -> Any:
        """Run a known variant, a new one, or the plain function; `is_into`: called by `Pipeline.into`."""
        entry = self._entries.get(call.key)
        call.known = () if entry is None else entry.variants
        timing = None if entry is None or is_into else entry.timing
        result = self._known.run(call) if timing is None else self._known.run_timed(call, timing)
        if result is MISS and not is_loading():
            return self._new.run(call, is_into)
        if result is PLAIN:
            return self._run_refused(call.key, call.args, call.kwargs, call.refused)
        if result is MISS:
            return self._state.run_plain(call.args, call.kwargs)
        if entry is not None and entry.refused:
            entry.accept()
        return result

    def _run_refused(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any], refused: Variant | None) -> Any:
        """A call that NumPy must run; if it raises no exception, note that a variant has `refused` it."""
        result = self._state.run_plain(args, kwargs)
        entry = self._entries.get(key)
        if entry is not None and refused is not None:
            entry.refuse(refused, self._state.options.of(key[0]).numpy_if_faster)
        return result

    # -- for people and tools
    @property
    def py_func(self) -> Callable[P, R]:
        """The undecorated function."""
        return self._state.py_func

    @py_func.setter
    def py_func(self, function: Callable[P, R]) -> None:
        self._state.py_func = function

    @property
    def parts(self) -> Parts | None:
        """The split function, made when a call cannot be traced as a whole."""
        return self._state.parts

    @property
    def tuned(self) -> Tuned | None:
        """The result of the latest tuning, or None."""
        return self._state.tuned

    @property
    def entries(self) -> list[Entry]:
        """The entries of all keys."""
        return list(self._entries.values())

    def __repr__(self) -> str:
        return f"<hjit.pipeline {getattr(self.py_func, '__qualname__', self.py_func)}>"

    def on(self, target: str) -> Self:
        """The same function for another target, with all other options as they are. The pipeline is made once.

        Raises:
            OptionError: there is no such target.
        """
        found = self._by_target.get(target)
        if found is None:
            own = self._state.options.given
            given = checked({**own, "target": target})
            found = self._by_target.setdefault(target, self if given == own else self._with_options(given))
        return found

    def quiet(self) -> Self:
        """Issue no warnings about fallbacks and flipped decisions; `explain`, `stats` and the log still report them."""
        self._state.warnings.silence()
        return self

    @abstractmethod
    def _with_options(self, given: dict[str, Any]) -> Self:
        """The same function with other options."""
        ...

    def _forget_calls(self) -> None:
        """Treat all calls as new ones."""
        self._entries.forget()
        self._is_plain_again = None

    def forget_threads(self) -> None:
        """In a forked child: renew the locks, which other threads of the parent may have held."""
        self._state.lock = threading.RLock()
        for entry in self._entries.values():
            entry.stop_timing()


@functools.lru_cache(maxsize=1)
def _load_compiler() -> None:
    """Import what `import hjit` leaves out; a fork waits until it is done."""
    with forks.builds.inside(), few_collections():
        importlib.import_module("hjit.call.build")


_functions: References[CompiledFunction[..., Any]] = References()


def after_fork() -> None:
    """In a forked child."""
    for f in _functions:
        f.forget_threads()
