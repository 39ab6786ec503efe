"""`pipeline`: the decorator and the way of a call.

A call looks its arguments' key up among those seen. A known key runs its variant: a bound kernel, without tracing and
without locks. A new key traces, canonicalises, finds or compiles the kernels, and compares the first result of new
ones with NumPy's own.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import pickle
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import numpy as np

from hjit.call import against_numpy
from hjit.call.against_numpy import InterleavedCalls
from hjit.call.arguments import CallKey, copied, is_dask_array, is_device_array, is_same_memory, key_of, leaves_of
from hjit.call.entry import FEW_TRACES, MAX_DEPTH, MAX_ITEMS, MAX_KEYS, MAX_TRACES, Call, Entry, Stats
from hjit.call.outcome import MISS, PARTS, PLAIN
from hjit.errors import BudgetError, CompileError, DeviceError, HjitWarning, LongLoop, TraceError
from hjit.graph_breaks import GraphBreaks
from hjit.inspection import Inspection
from hjit.options import Options, checked, context_state, resolve
from hjit.process import forks, state
from hjit.trace.capture.overlay import load_table
from hjit.trace.capture.trace import Tree, flatten, python_function
from hjit.trace.capture.tracing_errors import gap
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.build import Built
    from hjit.call.first_calls import FirstCalls
    from hjit.call.guards import GuardValues
    from hjit.call.on_dask import Way
    from hjit.call.parts import Parts
    from hjit.call.variant import Variant
    from hjit.sched.hand.schedule import Schedule
    from hjit.sched.language.tree import Root
    from hjit.tuning.choice import Scheduler

log = logging.getLogger("hjit")
load_table()

P = ParamSpec("P")  # the parameters of the plain function
R = TypeVar("R")  # what it returns
Own = TypeVar("Own")  # an instance, or a class, whose method it is
Q = ParamSpec("Q")  # the parameters after that
Out = TypeVar("Out")

MAX_CONTEXTS = 64  # sets of options around calls that a pipeline remembers; the oldest is forgotten


@uncounted
class Pipeline(Inspection, GraphBreaks, Generic[P, R]):
    """A NumPy function that runs compiled; call it as the function itself.

    Attributes:
        py_func: the undecorated function.
        stats: counters, for people and tests.
        parts: the function with compiled parts, where it was called with what cannot be traced as a whole.
    """

    __name__: str
    _is_part = False
    _interprets = True  # see `hjit.call.build.build`

    def __init__(self, function: Callable[P, R], given: dict[str, Any]) -> None:
        if isinstance(function, Pipeline):
            function = function.py_func
        functools.update_wrapper(self, function)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.py_func: Callable[P, R] = function
        self.stats = Stats()
        self._given = given
        self._entries: dict[CallKey, Entry] = {}
        self._options: dict[Any, Options] = {}  # by the context of calls
        self._schedule: Scheduler | None = None
        self._on: dict[str, Pipeline[P, R]] = {}
        self.parts: Parts | None = None
        self._spent = [0.0]  # seconds of the latest budget, for building it and its parts
        self._depth = 0  # of functions in parts that call each other
        self._warned = False
        self._warned_of_flips = False
        self._lock = threading.RLock()
        _pipelines.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self.stats.calls += 1
        key = key_of(args, kwargs)
        known = self._entries.get(key)
        if known is not None and (fast := known.fast) is not None:
            result = fast.run((*args, *kwargs.values()) if kwargs else args)
            if result is PLAIN:
                return self._numpy(args, kwargs)
            if result is not MISS:
                return result
        return self._call(key, args, kwargs)

    def forget_threads(self) -> None:
        """In a forked child: the locks may be those of the parent's other threads."""
        self._lock = threading.RLock()
        for entry in self._entries.values():
            entry.stop_timing()

    def on(self, target: str) -> Pipeline[P, R]:
        """The same function on another target: a pipeline with all other options, the same one at each call.

        Raises:
            OptionError: there is no such target.
        """
        found = self._on.get(target)
        if found is None:
            given = checked({**self._given, "target": target})
            found = self._on.setdefault(target, self if given == self._given else Pipeline(self.py_func, given))
        return found

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Pipeline[P, R]: ...
    @overload
    def __get__(self: Pipeline[Concatenate[Own, Q], R], instance: Own, owner: Any = None) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<hjit.pipeline {getattr(self.py_func, '__qualname__', self.py_func)}>"

    def __copy__(self) -> Pipeline[P, R]:
        return self

    def __deepcopy__(self, memo: Any) -> Pipeline[P, R]:
        return self

    def __reduce__(self) -> Any:
        """By name, as functions are pickled."""
        module, name = self.__module__, getattr(self, "__qualname__", self.__name__)
        try:
            found = _named(module, name)
        except (ImportError, AttributeError):
            found = None
        if getattr(found, "py_func", found) is not self.py_func:
            raise pickle.PicklingError(f"{self!r} is not found as {module}.{name}")
        return _unpickle, (module, name, self._given)

    @property
    def entries(self) -> list[Entry]:
        """What is known of all arguments."""
        return list(self._entries.values())

    def quiet(self) -> Pipeline[P, R]:
        """Give no warnings of what NumPy runs and of flipped decisions: `explain`, `stats` and the log say it, too."""
        self._warned = self._warned_of_flips = True
        return self

    def _part(self, function: Any, deeper: int = 0) -> Part:
        part = Part(self._given, self._spent, function, self._depth + deeper)
        part._warned_of_flips = self._warned_of_flips
        return part

    def _callee(self) -> Callable[[Any], Part] | None:
        return None if self._depth >= MAX_DEPTH else functools.partial(self._part, deeper=1)

    # -- the way of a call
    def _call(
        self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Any] | None = None
    ) -> Any:
        entry = self._entries.get(key)
        if (entry is not None and entry.plain is not None) or self._resolved(key[0]).disable:
            return self._numpy(args, kwargs)
        if entry is not None and entry.parts is not None:
            return self._by_parts(key, entry, args, kwargs)
        _load_compiler()
        leaves: list[Any] = []
        structure = Tree(tuple, (flatten(args, leaves), flatten(kwargs, leaves)))
        if any(map(is_dask_array, leaves)):
            return self._call_dask(key, args, kwargs, leaves, structure)
        if self._resolved(key[0]).target == "cuda":
            return self._call_device(key, args, kwargs, leaves, structure, targets)
        if any(map(is_device_array, leaves)):
            there = self.on("cuda")
            there.stats.calls += 1
            return there._call(key, args, kwargs, targets)
        return self._run(key, args, kwargs, leaves, structure, targets)

    def _call_device(
        self, key: CallKey, args: Any, kwargs: Any, leaves: list[Any], structure: Tree, targets: list[Any] | None
    ) -> Any:
        """A call whose kernels run on a GPU: where its arrays are."""
        from hjit.call.on_device import at, taken

        try:
            if taken(leaves):
                args, kwargs = structure.build(leaves.__getitem__)
        except DeviceError as error:
            if self._resolved(key[0]).on_unsupported != "numpy":
                raise
            self._give_up(key, f"{self.__name__} runs as plain NumPy: {error}")
            return self._numpy(args, kwargs)
        with at(leaves):
            return self._run(key, args, kwargs, leaves, structure, targets)

    def _call_dask(self, key: CallKey, args: Any, kwargs: Any, leaves: list[Any], structure: Tree) -> Any:
        """A call with arrays of Dask: lazy ones, or what the plain function makes of them."""
        from hjit.call.on_dask import traced_call

        self.stats.traces += 1
        try:
            return traced_call(self._way_on_dask(), structure, leaves).results()
        except (CompileError, TraceError) as error:
            if self._resolved(key[0]).on_unsupported == "raise":
                raise
            self._warn(f"{self.__name__} runs as the plain function does on arrays of Dask: {error}")
        return self._numpy(args, kwargs)

    def _way_on_dask(self) -> Way:
        from hjit.call.on_dask import Way

        return Way(self, self.__name__, self.py_func, self._resolved(context_state()), self._schedule)

    def _run(
        self, key: CallKey, args: Any, kwargs: Any, leaves: list[Any], structure: Tree, targets: list[Any] | None
    ) -> Any:
        """By a variant that is known, by a new one, or by the plain function."""
        entry = self._entries.get(key)
        call = Call(key, args, kwargs, leaves, structure, targets or [], () if entry is None else entry.variants)
        timing = None if entry is None or targets is not None else entry.timing
        result = self._try(call) if timing is None else self._timed(call, timing)
        if result is MISS:
            result = self._first(call)
        if result is PARTS:
            return self._in_parts(key, args, kwargs)
        return self._numpy(args, kwargs) if result is PLAIN else result

    def _try(self, call: Call) -> Any:
        """Run the variant whose guards and decisions hold; MISS where there is none, PLAIN where NumPy is to run."""
        from hjit.call.variant import Mispredict, OutOfBounds

        miss: Mispredict | None = None
        missed: Variant | None = None
        for v in call.known:
            if miss is not None and missed is not None and not _parts_at(v, miss, missed):
                continue
            guarded = v.guards.values(call.leaves)
            if guarded is None:
                continue
            if not v.guards.may_write(call.leaves, guarded[1]):
                return PLAIN
            ways = self._unverified(v, call.targets, self._resolved(call.key[0]))
            if ways:
                with forks.builds, self._lock:
                    return self._verify(call, v, guarded, ways)
            try:
                result = v.run(call.leaves, guarded, call.targets)
            except OutOfBounds:
                return self._refused(call)
            except Mispredict as error:
                miss, missed = error, v
                continue
            self._promote(call, v)
            return result
        return MISS

    # -- beside NumPy
    def _timed(self, call: Call, timing: InterleavedCalls) -> Any:
        """As `_try`, or by the plain function, and timed."""

        def compiled() -> Any:
            fast = None if timing.variant is None else timing.variant.fast
            result = MISS if fast is None else fast.run((*call.args, *call.kwargs.values()))
            return self._try(call) if result is MISS else result

        return self._interleaved(call.key, timing, compiled, lambda: self._numpy(call.args, call.kwargs))

    def _interleaved(
        self, key: CallKey, timing: InterleavedCalls, compiled: Callable[[], Any], plain: Callable[[], Any]
    ) -> Any:
        """One way or the other, timed; when that is over, it is decided which runs from now on."""
        result = timing.run(compiled, plain)
        if timing.is_over and self._lock.acquire(blocking=False):
            try:
                self._decide(key, timing)
            finally:
                self._lock.release()
        return result

    def _time(
        self, key: CallKey, variant: Variant, options: Options, seconds: tuple[float, float] | None = None
    ) -> None:
        """Time the next calls beside NumPy, if that may be the faster one.

        It was with another key, or may be by the `seconds` of the kernel and of NumPy.
        """
        is_wanted = options.numpy_if_faster and options.verify == "first" and self._schedule is None
        if is_wanted and not variant.impure and (self.stats.slower or against_numpy.is_suspect(seconds)):
            timed = [e for e in self._entries.values() if e.timing is not None]
            for entry in timed[: max(len(timed) + 1 - against_numpy.MAX_TIMED, 0)]:
                entry.stop_timing()
            self._entry(key).time(variant)

    def _decide(self, key: CallKey, timing: InterleavedCalls) -> None:
        """NumPy runs from now on, where it is faster."""
        entry = self._entries.get(key)
        if entry is None or entry.timing is not timing:
            return
        entry.stop_timing()
        found = timing.medians()
        if found is None or not found.is_slower:
            log.debug(
                "%s stays compiled: %s", self.__name__, found or "it is faster than NumPy, or too many threads call it"
            )
        else:
            log.info("%s runs as plain NumPy with such arguments: %s", self.__name__, found)
            self.stats.slower += 1
            entry.plain = f"{found}. {against_numpy.ADVICE}"
            entry.put(())

    def _promote(self, call: Call, v: Variant) -> None:
        """Look at this variant first from now on, where guards alone choose it; a decision costs a run to find out."""
        if v is call.known[0] or v.steps[0].graph_break is not None or not self._lock.acquire(blocking=False):
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
            found = resolve(self._given)
            if found.target == "cuda":  # which has one schedule, and no NumPy beside it to be faster
                found = replace(found, tune=False, numpy_if_faster=False)
            self._options[context] = found
            _limit(self._options, MAX_CONTEXTS)
        return found

    def _numpy(self, args: Any, kwargs: Any) -> Any:
        self.stats.fallbacks += 1
        return self.py_func(*args, **kwargs)

    def _first(self, call: Call) -> Any:
        """No variant for this call yet: trace, compile, verify."""
        from hjit.call.build import Unclear
        from hjit.call.variant import Mispredict, OutOfBounds
        from hjit.report.listing import progress

        options = self._resolved(call.key[0])
        if not self._is_part:
            self._spent[0] = 0.0  # each set of arguments has the whole budget
        with self._lock, forks.builds:
            entry = self._entries.get(call.key)
            known = () if entry is None else entry.variants
            if known is not call.known:  # another thread was here first
                call.known = known
                result = self._try(call)
                if result is not MISS:
                    return result
            if entry is not None and entry.plain is not None:
                return PLAIN
            if self._is_refused_again(options):
                return self._as_before(call.key, options)
            try:
                with progress(f"hjit: compiling {self.__name__}"):
                    built = self._built(call, options)
            except (TraceError, CompileError, DeviceError) as error:
                is_refused = isinstance(error, TraceError) and not isinstance(error, BudgetError)
                if is_refused and options.on_unsupported == "break" and self._split(error):
                    return PARTS
                if options.on_unsupported == "raise" and not isinstance(error, BudgetError):
                    raise
                self._give_up(call.key, f"{self.__name__} runs as plain NumPy: {error}", is_refused=True)
                return PLAIN
            except OutOfBounds:
                return self._refused(call)
            except Unclear as unclear:
                if options.on_unsupported == "break" and self._split(unclear.error):
                    return PARTS
                if options.on_unsupported == "raise":
                    raise self._own_error(unclear.error, call.structure, call.leaves) from None
                result = self._numpy(call.args, call.kwargs)  # once, as it may have effects; what it raises is its own
                why = f"{self.__name__} runs as plain NumPy: {self._not_traced(unclear.error)}"
                self._give_up(call.key, why, is_refused=True)
                return result
            self._refusals = 0
            variant = built.variant
            guarded = variant.guards.values(call.leaves)
            if guarded is None or not variant.guards.may_write(call.leaves, guarded[1]):
                if variant.fast is None:  # which would run without being compared
                    self._install(call.key, variant)
                return PLAIN
            ways = self._unverified(variant, call.targets, options)
            if ways:
                return self._verify(call, variant, guarded, ways)
            self._install(call.key, variant)
            self._time(call.key, variant, options)
        try:
            return variant.run(call.leaves, guarded, call.targets, built.results)
        except OutOfBounds:
            return self._refused(call)
        except Mispredict:  # while the function was traced, a decision fell the other way, by the last bits of a sum
            self._interprets = False
            return PLAIN

    def _built(self, call: Call, options: Options) -> Built:
        """As `_build`; where a loop fills the trace and cannot be left to Python, with all that is in it."""
        try:
            return self._build(call.structure, call.leaves, options, self._schedule)
        except LongLoop as error:
            if self._split(error):
                raise
        return self._build(call.structure, call.leaves, replace(options, on_unsupported="numpy"), self._schedule)

    def _entry(self, key: CallKey) -> Entry:
        """What is known of a key, from now on if nothing is."""
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = Entry()
            _limit(self._entries, MAX_KEYS)
        return found

    def _install(self, key: CallKey, variant: Variant) -> None:
        entry = self._entry(key)
        entry.timing = None
        entry.put((variant, *entry.variants))

    def _give_up(self, key: CallKey, why: str, is_refused: bool = False) -> None:
        """NumPy runs all calls with this key; `is_refused`: as it cannot be traced, or takes too long to compile."""
        self._entry(key).plain = why
        if is_refused:
            self._refusals += 1
            self._refusal = why
        self._say_why(why)

    def _say_why(self, why: str) -> None:
        self._warn(why)

    def _warn(self, why: str) -> None:
        """Once."""
        if why and not self._warned:
            self._warned = True
            warnings.warn(why, HjitWarning, stacklevel=_depth())

    def _build(self, structure: Tree, leaves: list[Any], options: Options, schedule: Scheduler | None) -> Built:
        """See `hjit.call.build`; and count what was done.

        Raises:
            BudgetError, TraceError, CompileError, OutOfBounds, Unclear: as `build` does.
        """
        from hjit.call.build import build

        start = time.process_time()
        try:
            made = build(self.py_func, self.__name__, structure, leaves, options, schedule, self._interprets)
        finally:
            self._spent[0] += time.process_time() - start
        self.stats.traces += 1
        self.stats.compilations += made.compiled
        self.stats.cache_hits += made.loaded
        self.stats.scratch_bytes = max((b.scratch_bytes for b in made.variant.bounds), default=0)
        return made

    def _own_error(self, error: Exception, structure: Tree, leaves: list[Any]) -> Exception:
        """What NumPy raises for these arguments; where it raises nothing, the trace is at fault."""
        copies: dict[int, Any] = {}  # by identity: what was passed twice is copied once
        copy, function = copied, self.py_func
        if any(map(is_device_array, leaves)):
            from hjit.call.on_device import mirror

            copy, function = mirror, self._by_numpy()
        args, kwargs = structure.build(lambda k: copies.setdefault(id(leaves[k]), copy(leaves[k])))
        try:
            with forks.builds.outside():
                function(*args, **kwargs)
        except Exception as own:
            return own
        return self._not_traced(error)

    def _not_traced(self, error: Exception) -> TraceError:
        return gap(self.__name__, error, python_function(self.py_func).__code__.co_filename)

    # -- verification
    def _unverified(self, variant: Variant, targets: Sequence[Any], options: Options) -> list[bool]:
        """The ways of storing results (past the caches: True) of this call that nothing vouches for yet."""
        if options.verify != "first":
            return []
        ways = [False, True] if targets and variant.may_stream else [False]
        return [] if variant.vouched.issuperset(ways) else self._first_calls.unverified(variant, ways)

    def _verify(self, call: Call, variant: Variant, guarded: GuardValues, ways: list[bool]) -> Any:
        """NumPy's own result; the kernels are installed only if they compute the same."""
        if variant.on_device and any(map(is_device_array, (*call.leaves, *guarded[1].values()))):
            return self._verify_copies(call, variant, guarded, ways)
        from hjit.call.build import with_room
        from hjit.call.first_calls import run_of

        if self._first_calls.is_wrong(variant, ways):
            self._give_up(call.key, "")
            return PLAIN
        arrays = guarded[1] | {n: call.leaves[k] for n, k in variant.guards.arguments.items()}
        before = {n: copied(arrays[n]) for n in sorted(variant.guards.written)}
        start = against_numpy.clock()
        runs = {way: run_of(variant, guarded, call.leaves, call.targets, before, way) for way in ways}
        done = {way: run for way, run in runs.items() if run is not None}
        if len(done) < len(runs):
            return PLAIN
        middle = against_numpy.clock()
        has_missed = self._interprets and any(run.has_missed for run in done.values())
        with forks.builds.outside():
            expected = (self._by_numpy() if variant.on_device else self.py_func)(*call.args, **call.kwargs)
        if has_missed:  # while the function was traced: the next call is traced with kernels
            self._interprets = False
            self.stats.fallbacks += 1
            return expected
        seconds = (middle - start) / len(ways), against_numpy.clock() - middle
        report = with_room(
            self._first_calls.compare, variant, guarded, done, arrays | before, expected, {n: arrays[n] for n in before}
        )
        self.stats.flipped += report.flipped
        if report.flipped and not self._warned_of_flips:
            self._warned_of_flips = True
            warnings.warn(report.what_has_flipped(self.__name__), HjitWarning, stacklevel=_depth())
        if report.verified:
            self.stats.verified = self.stats.verified is not False
            known = self._entries.get(call.key)
            if known is None or variant not in known.variants:
                self._install(call.key, variant)
                self._time(call.key, variant, self._resolved(call.key[0]), seconds)
            return expected
        self.stats.fallbacks += 1
        if report.verified is False:
            self.stats.verified = False
            self._give_up(call.key, report.what_is_wrong(self.__name__))
        return expected

    def _verify_copies(self, call: Call, variant: Variant, guarded: GuardValues, ways: list[bool]) -> Any:
        """As `_verify`, for arrays on a device: on copies of them."""
        from hjit.call.on_device import mirror, on_copies

        if not variant.guards.written.isdisjoint(guarded[1]):  # NumPy cannot change arrays there: nothing to compare
            variant.vouched.update(ways)
            self._install(call.key, variant)
            return variant.run(call.leaves, guarded)
        captured = {n: mirror(a) for n, a in guarded[1].items()}
        result = on_copies(call, lambda here: self._verify(here, variant, (guarded[0], captured), ways))
        is_refused = result is PLAIN and not self._first_calls.is_wrong(variant, ways)
        return self._refused(call) if is_refused else result

    def _refused(self, call: Call) -> Any:
        """NumPy is to say what it refuses; CuPy might not refuse it."""
        if not any(map(is_device_array, call.leaves)):
            return PLAIN
        from hjit.call.on_device import on_copies

        self.stats.fallbacks += 1
        return on_copies(call, lambda here: self._by_numpy()(*here.args, **here.kwargs))

    def _by_numpy(self) -> Callable[..., Any]:
        """The plain function for NumPy's arrays, although it may name CuPy."""
        from hjit.trace.capture.cupy_names import by_numpy

        return by_numpy(self.py_func)

    @functools.cached_property
    def _first_calls(self) -> FirstCalls:
        from hjit.call.first_calls import FirstCalls

        return FirstCalls(self.__name__)

    # -- into the caller's arrays
    def into(self, out: Out, *args: P.args, **kwargs: P.kwargs) -> Out:
        """Call the pipeline with its results in `out`: an array, or arrays put together as the function's results are.

        Arrays in C order that do not overlap the arguments are computed into directly, without allocation.

        Raises:
            ValueError: `out` has not the structure, or an array not the shape or dtype, of the result.
        """
        self.stats.calls += 1
        targets = leaves_of(out)
        results = leaves_of(self._call(key_of(args, kwargs), args, kwargs, targets))
        if len(results) != len(targets):
            raise ValueError(f"out has {len(targets)} arrays, the function returns {len(results)}")
        for t, r in zip(targets, results, strict=True):
            array = r if is_device_array(r) else np.asarray(r)
            if (
                (not isinstance(t, np.ndarray) and not is_device_array(t))
                or t.shape != array.shape
                or t.dtype != array.dtype
            ):
                given = f"{getattr(t, 'shape', ())} {getattr(t, 'dtype', type(t))}"
                raise ValueError(f"out: an array of shape {array.shape} and dtype {array.dtype} is needed, not {given}")
        for t, r in zip(targets, results, strict=True):
            if t is not r and not is_same_memory(t, r):
                t[...] = r
        return out

    # -- inspection, see `hjit.inspection`
    def variant_of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options, schedule: Scheduler | None = None
    ) -> Variant:
        """What a call with these arguments runs, or would run by these options and this schedule; for tools."""
        from hjit.call.build import Unclear
        from hjit.call.variant import OutOfBounds

        leaves: list[Any] = []
        structure = Tree(tuple, (flatten(args, leaves), flatten(kwargs, leaves)))
        if any(map(is_device_array, leaves)):
            if options.target != "cuda":
                return self.on("cuda").variant_of(args, kwargs, self.on("cuda")._resolved(context_state()), schedule)
            from hjit.call.on_device import taken

            taken(leaves)
        entry = self._entries.get(key_of(args, kwargs)) or Entry()
        usable = (v for v in entry.variants if options.blas is not False or not v.has_products)
        variant = next((v for v in usable if v.guards.values(leaves) is not None), None)
        if variant is None:
            with self._lock, forks.builds:
                try:
                    variant = self._build(structure, leaves, options, schedule).variant
                except OutOfBounds:
                    raise IndexError("index out of bounds") from None
                except Unclear as unclear:
                    raise self._own_error(unclear.error, structure, leaves) from None
        return variant

    def use(self, schedule: Schedule | Root | Sequence[Root] | None) -> Pipeline[P, R]:
        """Run by a schedule from now on, as it is now; None: by the default one. Returns the pipeline.

        Args:
            schedule: directives, or trees such as `tree` shows and `hjit.sched.language.transforms` make of them.

        Raises:
            ScheduleError: it is no schedule; at the first call, it is not legal for what the function computes.
        """
        from hjit.sched.hand.schedule import usable

        found = None if schedule is None else usable(schedule)
        with self._lock, forks.builds:
            self._schedule = found
            self._options = {}
            self._entries = {}
            self._refusals = 0
        return self


def _parts_at(v: Variant, miss: Any, missed: Variant) -> bool:
    """Did this variant make the same decisions as the missed one, and then the one that was missed?"""
    from hjit.trace.tracing.host import same

    at = miss.number
    breaks, others = v.rec.breaks, missed.rec.breaks
    if len(breaks) <= at or not same(breaks[at].value, miss.value):
        return False
    return all(same(a.value, b.value) for a, b in zip(breaks[:at], others[:at], strict=True))


@functools.lru_cache(maxsize=1)
def _load_compiler() -> None:
    """Import what `import hjit` does not; a fork waits for that."""
    with forks.builds:
        importlib.import_module("hjit.call.build")


@uncounted
class Part(Pipeline[..., Any]):
    """Statements of a function that cannot be traced as a whole; what cannot be traced of them runs without a word."""

    _is_part = True

    def __init__(self, given: dict[str, Any], spent: list[float], function: Callable[..., Any], depth: int) -> None:
        super().__init__(function, {**given, "on_unsupported": "break"})
        self.plain = ""  # why NumPy runs all calls
        self._spent, self._depth = spent, depth
        self._numbers: set[tuple[int, ...]] = set()  # for which it was traced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.plain or any(type(x) in (list, tuple, dict) and len(x) > MAX_ITEMS for x in args):
            return self.py_func(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def _first(self, call: Call) -> Any:
        """As that of a pipeline, if most calls find what they run: where sizes or numbers are others at every call,
        tracing takes longer than NumPy."""
        self.plain = self._not_worth(call)
        if self.plain:
            return PLAIN
        self._numbers.add(tuple(x for x in call.leaves if type(x) is int))
        return super()._first(call)

    def _not_worth(self, call: Call) -> str:
        """Why nothing more is to be traced; empty where it may be."""
        traces = self.stats.traces
        if traces >= MAX_TRACES and 2 * traces > self.stats.calls:
            return "its arrays have other sizes, or its numbers other values, at nearly every call"
        if FEW_TRACES <= traces == len(self._numbers) and traces + 1 >= self.stats.calls:
            return "it is traced anew for each whole number, as of a loop, and they are others at every call"
        return ""

    def _build(self, structure: Tree, leaves: list[Any], options: Options, schedule: Scheduler | None) -> Built:
        """As that of a pipeline, within what the function has left of its budget."""
        if options.budget is None:
            return super()._build(structure, leaves, options, schedule)
        left = options.budget - self._spent[0]
        if left <= 0:
            why = f"the budget of {options.budget:g} s is spent on other parts of the function"
            raise BudgetError(self.__name__, why, "allow more time (budget=60, or None for any)")
        return super()._build(structure, leaves, replace(options, budget=left), schedule)

    def _say_why(self, why: str) -> None:
        log.info("%s", why)


def _limit(entries: dict[Any, Any], most: int) -> None:
    """Forget the oldest entries of too many."""
    while len(entries) > most:
        del entries[next(iter(entries))]


def _depth() -> int:
    """The stack level of the first frame outside hjit, for `warnings.warn` in the caller."""
    here, level = os.path.join(os.path.dirname(__file__), ""), 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    return level


def _named(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _unpickle(module: str, name: str, given: dict[str, Any]) -> Any:
    found = _named(module, name)
    if not isinstance(found, Pipeline):
        return Pipeline(found, given)
    return found.on(given["target"]) if "target" in given else found


_pipelines: weakref.WeakSet[Pipeline[..., Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for p in _pipelines:
        p.forget_threads()
    state.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Decorator(Protocol):
    """`pipeline` with its options, for type checkers."""

    @overload
    def __call__(self, function: staticmethod[P, R], /) -> staticmethod[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: classmethod[Own, P, R], /) -> classmethod[Own, P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Pipeline[P, R]: ...


@overload
def pipeline(function: staticmethod[P, R], **given: Any) -> staticmethod[P, R]: ...
@overload
def pipeline(function: classmethod[Own, P, R], **given: Any) -> classmethod[Own, P, R]: ...
@overload
def pipeline(function: Callable[P, R], **given: Any) -> Pipeline[P, R]: ...
@overload
def pipeline(function: None = None, **given: Any) -> Decorator: ...
def pipeline(function: Any = None, **given: Any) -> Any:
    """Compile a NumPy image function: ``@hjit.pipeline``, ``@hjit.pipeline(verify="off")`` or ``hjit.pipeline(f)``.

    The decorated function takes and returns what the plain one does. Options are described in `hjit.options`.

    Raises:
        OptionError: an unknown option.
        TypeError: `function` cannot be called.
    """
    checked(given)
    if function is None:
        return lambda f: pipeline(f, **given)
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(Pipeline(function.__func__, given))
    if not callable(function):
        raise TypeError(f"pipeline decorates a function, not {function!r}")
    return Pipeline(function, given)
