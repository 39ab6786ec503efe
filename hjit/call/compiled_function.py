"""`CompiledFunction`: how a call of a pipeline is dispatched.

The arguments of a call are reduced to a key (dtypes, shapes, strides, types; `hjit.call.arguments`). If the key is
known, its variant runs: a bound kernel, without tracing and without locks. A new key is traced and compiled, and the
first result of a new kernel is compared with NumPy's. The class is made of these, each built on the ones above it:

    FunctionBase       call/base.py                  the shared state, and abstract methods that the others implement
    TimedCalls         call/checks/timed_calls.py    calls timed against NumPy, which runs from then on if it is faster
    VerifiedCalls      call/checks/verified_calls.py results of new kernels compared with NumPy's
    SplitCalls         call/breaks/split_calls.py    functions with graph breaks, run by Python with compiled parts
    NewCalls           call/new_calls.py             the first call of a key: trace, compile, verify
    OtherArrays        call/other_arrays/calls.py    arrays on a GPU, of Dask, and of another byte order
    CompiledFunction   this module                   keys, the hot path, the choice among the variants of a key
    Tunable            tunable.py                    `f.tune`, and tuning in the background
    Inspectable        inspection.py                 `f.explain`, `f.graph`, `f.loops` and so on
    Pipeline           pipeline.py                   what the decorator returns
    CompiledPart       graph_breaks.py               what runs the compiled parts of a function with graph breaks
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import threading
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from hjit.call.arguments import CallKey, is_dask_array, is_device_array, is_swapped, key_of, recogniser
from hjit.call.checks.against_numpy import InterleavedCalls, comparing
from hjit.call.checks.retracing import Retracing
from hjit.call.entry import MAX_CONTEXTS, MAX_RAISED, RECOGNISED_AFTER, Call, Entries, Entry, Stats, limit
from hjit.call.new_calls import NewCalls
from hjit.call.other_arrays.calls import OtherArrays
from hjit.call.results import MISS, PARTS, PLAIN
from hjit.errors import HjitError, HjitWarning, raise_if_signalled
from hjit.options import Options, checked, context_state, resolve
from hjit.process import deadline, float_errors, forks
from hjit.process.garbage_collection import few_collections
from hjit.trace.capture.overlay import is_traced_call
from hjit.trace.capture.trace import flatten_arguments
from hjit.trace.tracing.dispatch import hook
from hjit.trace.tracing.frames import stack_level, uncounted
from hjit.trace.tracing.recording.recorder import running

if TYPE_CHECKING:
    from hjit.call.breaks.parts import Parts
    from hjit.call.checks.first_calls import FirstCalls
    from hjit.call.variant import Variant
    from hjit.tuning.autotune import Tuned
    from hjit.tuning.choice import Scheduler

log = logging.getLogger("hjit")

P = ParamSpec("P")  # the parameters of the plain function
R = TypeVar("R")  # what it returns


@uncounted
class CompiledFunction(NewCalls, OtherArrays, Generic[P, R]):
    """A NumPy function with what has been compiled for its calls.

    Attributes:
        py_func: the undecorated function.
        stats: counters, for people and tests.
        tuned: the result of the latest tuning, or None.
    """

    __slots__ = (  # not in `__dict__`, which `functools.update_wrapper` copies to what wraps a pipeline
        "_by_target",
        "_compared",
        "_depth",
        "_entries",
        "_is_plain_again",
        "_lock",
        "_on_gpu",
        "_options",
        "_own_options",
        "_retracing",
        "_schedule",
        "_spent",
        "_uses_plans",
        "_warned",
        "_warned_of_flips",
        "parts",
        "py_func",
        "stats",
        "tuned",
    )

    __name__: str

    def __init__(self, function: Callable[P, R], given: dict[str, Any]) -> None:
        if isinstance(function, CompiledFunction):
            function = function.py_func
        functools.update_wrapper(self, function)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.py_func: Callable[P, R] = function
        self.stats = Stats()
        self._own_options = given
        self._entries = Entries(self.__name__, self.stats)
        self._options: dict[Any, Options] = {}  # resolved, by the context of the call
        self._schedule: Scheduler | None = None
        # number of arguments, and a predicate on them: recognises calls that NumPy runs, faster than by their key
        self._is_plain_again: tuple[int, Callable[..., bool]] | None = None
        self._by_target: dict[str, Self] = {}
        self.parts: Parts | None = None
        self._depth = 0
        self._compared: FirstCalls | None = None
        self._on_gpu: CompiledFunction[P, R] | None = None  # runs calls with arrays on a GPU; set by the first of them
        self.tuned: Tuned | None = None
        self._uses_plans = False  # use stored plans although `tune` is False: the user has called `tune`
        self._retracing = Retracing()
        self._spent = deadline.Spent()  # what building it and its parts has taken of the latest budget
        self._warned = False
        self._warned_of_flips = False
        self._lock = threading.RLock()
        _functions.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if running and is_traced_call(sys._getframe(1), args, kwargs):
            traced: R = hook("wrap_callable")(self.py_func)(*args, **kwargs)
            return traced
        if comparing and threading.get_ident() in comparing:
            return self.py_func(*args, **kwargs)
        stats = self.stats
        stats.calls += 1
        if float_errors.are_reported() and self._is_all_numpy(args, kwargs):
            return self._run_plain(args, kwargs)
        again = self._is_plain_again
        if again is not None and len(args) == again[0] and not kwargs and again[1](*args):
            stats.fallbacks += 1
            return self.py_func(*args)  # type: ignore[call-arg]
        key = key_of(args, kwargs)
        known = self._entries.get(key)
        if known is not None and (fast := known.fast) is not None:
            result = fast.run((*args, *kwargs.values()) if kwargs else args)
            if result is PLAIN:
                return self._run_plain(args, kwargs)
            if result is not MISS:
                return result
        elif known is not None and known.plain is not None:
            self._count_plain(known, args, kwargs)
            return self._run_plain(args, kwargs)
        elif known is None and self._on_gpu is not None:
            return self._call_on_device(self._on_gpu, key, args, kwargs)
        return self._call(key, args, kwargs)

    def _is_all_numpy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Would NumPy alone run the plain function on these arguments, so that NumPy's error settings apply?"""
        _, leaves = flatten_arguments(args, kwargs)
        is_on_cpu = self._resolved(context_state()).target != "cuda"
        return is_on_cpu and not any(is_device_array(x) or is_dask_array(x) for x in leaves)

    def _count_plain(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count a call that NumPy runs; after some of them such calls are recognised without making their key."""
        entry.plain_calls += 1
        if entry.plain_calls & (entry.plain_calls - 1) == 0 and entry.plain_calls >= RECOGNISED_AFTER and not kwargs:
            found = None if self._is_part else recogniser(args)
            self._is_plain_again = None if found is None else (len(args), found)

    def on(self, target: str) -> Self:
        """The same function for another target, with all other options as they are. The pipeline is made once.

        Raises:
            OptionError: there is no such target.
        """
        found = self._by_target.get(target)
        if found is None:
            given = checked({**self._own_options, "target": target})
            found = self._by_target.setdefault(
                target, self if given == self._own_options else self._with_options(given)
            )
        return found

    def forget_threads(self) -> None:
        """In a forked child: renew the locks, which other threads of the parent may have held."""
        self._lock = threading.RLock()
        for entry in self._entries.values():
            entry.stop_timing()

    def __repr__(self) -> str:
        return f"<hjit.pipeline {getattr(self.py_func, '__qualname__', self.py_func)}>"

    @property
    def entries(self) -> list[Entry]:
        """The entries of all keys."""
        return list(self._entries.values())

    def quiet(self) -> Self:
        """Issue no warnings about fallbacks and flipped decisions; `explain`, `stats` and the log still report them."""
        self._warned = self._warned_of_flips = True
        return self

    @abstractmethod
    def _with_options(self, given: dict[str, Any]) -> Self:
        """The same function with other options."""
        ...

    # -- dispatch
    def _call_on_device(
        self, there: CompiledFunction[P, R], key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call without an entry here, which may have arrays on a GPU: `there`, the pipeline for it, may have a hot
        path."""
        known = there._entries.get(key)
        if known is not None and (fast := known.fast) is not None:
            result = fast.run((*args, *kwargs.values()) if kwargs else args)
            if result is not MISS:
                there.stats.calls += 1
                return there._run_plain(args, kwargs) if result is PLAIN else result
        return self._call(key, args, kwargs)

    def _call(
        self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Any] | None = None
    ) -> Any:
        entry = self._entries.get(key)
        is_plain = entry is not None and (entry.plain is not None or entry.skips())
        if is_plain or self._resolved(key[0]).disable:
            return self._run_plain(args, kwargs)
        if entry is not None and entry.raised >= MAX_RAISED:
            result = self._run_plain(args, kwargs)  # may raise again: then tracing would have been in vain
            entry.raised = 0
            return result
        if self._retracing.bypass and not targets:
            self._retracing.bypass -= 1
            return self._run_plain(args, kwargs)
        if entry is not None and (entry.parts is not None or entry.converted is not None):
            return self._call_parts(key, entry, args, kwargs)
        try:
            _load_compiler()
        except OSError as error:  # for example, too many open files
            raise_if_signalled(error)
            self._warn(f"{self.__name__} runs as plain NumPy until hjit's compiler can be loaded: {error}")
            return self._run_plain(args, kwargs)
        structure, leaves = flatten_arguments(args, kwargs)
        call = Call(key, args, kwargs, leaves, structure, targets or [], ())
        if any(map(is_dask_array, leaves)):
            return self._call_dask(call)
        if any(map(is_swapped, leaves)):
            return self._convert(call)
        if self._resolved(key[0]).target == "cuda":
            return self._call_device(call, targets is not None)
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
        result = self._run_known(call) if timing is None else self._run_timed(call, timing)
        if result is MISS:
            return self._handle_miss(call, is_into)
        return self._run_plain(call.args, call.kwargs) if result is PLAIN else result

    def _handle_miss(self, call: Call, is_into: bool) -> Any:
        """A call that no variant serves is traced, unless nearly every call is and NumPy is faster than tracing."""
        retracing = self._retracing
        do = "trace" if is_into or not self._may_skip(call) else retracing.next(self.stats.calls)
        if do == "plain":
            return self._run_plain(call.args, call.kwargs)
        if do == "compare":
            was_slower = retracing.is_slower
            result = retracing.compared(lambda: self._run_plain(call.args, call.kwargs))
            if retracing.is_slower and not was_slower:
                log.info("%s: sizes or values differ at nearly every call, so NumPy runs most calls", self.__name__)
            return result
        try:
            result = retracing.traced(lambda: self._first_call(call))
            if result is PARTS:
                return self._first_call_in_parts(call.key, call.args, call.kwargs)
            return self._run_plain_instead(call) if result is PLAIN else result
        except HjitError:
            raise
        except Exception:  # raised by the function itself
            if not any(map(is_device_array, call.leaves)):
                self._entries.at(call.key).raised += 1
            raise

    def _run_plain_instead(self, call: Call) -> Any:
        """Run the plain function where it was traced in vain, as NumPy was expected to raise an exception.

        If it raises none (an int of Python has outgrown 64 bits), such calls are traced again after a while only.
        """
        result = self._run_plain(call.args, call.kwargs)
        entry = self._entries.at(call.key)
        if not entry.is_known and not entry.skipped:
            entry.postpone()
        return result

    def _may_skip(self, call: Call) -> bool:
        """Is NumPy allowed to run a call that could be traced?"""
        options = self._resolved(call.key[0])
        is_free = options.numpy_if_faster and options.on_unsupported != "raise" and options.verify == "first"
        return is_free and self._schedule is None and not self._is_part

    def _run_known(self, call: Call) -> Any:
        """Run the variant whose guards and decisions hold; MISS if there is none, PLAIN if NumPy must run."""
        from hjit.call.variant import Mispredict, OutOfBounds

        miss: Mispredict | None = None
        missed: Variant | None = None
        for v in call.known:
            if miss is not None and missed is not None and not v.branches_from(missed, miss):
                continue
            guarded = v.guards.values(call.leaves)
            if guarded is None:
                continue
            if not v.guards.may_write(call.leaves, guarded[1]):
                return PLAIN
            stores = self._unverified(v, call.targets, self._resolved(call.key[0]))
            if stores:
                with forks.builds, self._lock:
                    result = self._verify(call, v, guarded, stores, is_known=True)
                if result is not MISS:
                    return result
                continue
            try:
                result = v.run(call.leaves, guarded, call.targets, arguments=(call.args, call.kwargs))
            except OutOfBounds:
                return self._leave_to_numpy(call)
            except Mispredict as error:
                miss, missed = error, v
                continue
            self._move_to_front(call, v)
            return result
        return MISS

    # -- NumPy in place of kernels
    def _run_timed(self, call: Call, timing: InterleavedCalls) -> Any:
        """As `_run_known`, or the plain function, timed."""

        def compiled() -> Any:
            fast = None if timing.variant is None else timing.variant.fast
            result = MISS if fast is None else fast.run((*call.args, *call.kwargs.values()))
            return self._run_known(call) if result is MISS else result

        return self._run_interleaved(call.key, timing, compiled, lambda: self._run_plain(call.args, call.kwargs))

    def _move_to_front(self, call: Call, v: Variant) -> None:
        """Try this variant first from now on. Not if it begins with a decision: that costs a run to find out."""
        if v is call.known[0] or v.segments[0].graph_break is not None or not self._lock.acquire(blocking=False):
            return
        try:
            entry = self._entries.get(call.key)
            if entry is not None and entry.variants is call.known:
                entry.put((v, *(x for x in call.known if x is not v)))
        finally:
            self._lock.release()

    def _resolved(self, context: Any) -> Options:
        found = self._options.get(context)
        if found is None:
            found = resolve(self._own_options)
            if found.target == "cuda":  # has only the default schedule, and is never compared with NumPy's time
                found = replace(found, tune=False, numpy_if_faster=False)
            elif self._uses_plans and found.tune is False:
                found = replace(found, tune="stored")
            self._options[context] = found
            limit(self._options, MAX_CONTEXTS)
        return found

    def _run_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.stats.fallbacks += 1
        return self.py_func(*args, **kwargs)

    def _give_up(self, key: CallKey, why: str, is_refused: bool = False) -> None:
        """Leave all calls with this key to NumPy; see `Entries.give_up`."""
        self._entries.give_up(key, why, is_refused)
        self._report_fallback(why)

    def _report_fallback(self, why: str) -> None:
        self._warn(why)

    def _warn(self, why: str) -> None:
        """Issue a warning; the first one only."""
        if why and not self._warned:
            self._warned = True
            warnings.warn(why, HjitWarning, stacklevel=stack_level())

    def _leave_to_numpy(self, call: Call) -> Any:
        """A call that NumPy raises an exception for: the plain function raises it, on the host, as CuPy may not."""
        if not any(map(is_device_array, call.leaves)):
            return PLAIN
        from hjit.call.other_arrays.on_device import on_copies

        self.stats.fallbacks += 1
        return on_copies(call, lambda here: self._plain_for_numpy()(*here.args, **here.kwargs))

    def _plain_for_numpy(self) -> Callable[..., Any]:
        """The plain function, run on NumPy arrays even if its code names CuPy."""
        from hjit.trace.capture.cupy_names import by_numpy

        return by_numpy(self.py_func)


@functools.lru_cache(maxsize=1)
def _load_compiler() -> None:
    """Import what `import hjit` leaves out; a fork waits until it is done."""
    with forks.builds, few_collections():
        importlib.import_module("hjit.call.build")


_functions: weakref.WeakSet[CompiledFunction[..., Any]] = weakref.WeakSet()


def after_fork() -> None:
    """In a forked child."""
    for f in _functions:
        f.forget_threads()
