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
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hjit import against_numpy
from hjit.against_numpy import Turns
from hjit.arguments import copied, is_same_memory, key_of, leaves_of
from hjit.errors import BudgetError, CompileError, HjitWarning, ScheduleError, TraceError
from hjit.options import Options, Scheduler, checked, context_state, resolve
from hjit.outcome import MISS, PLAIN
from hjit.process import forks
from hjit.trace.capture.overlay import load_table
from hjit.trace.capture.tracing_errors import gap
from hjit.trace.capture.trace import Tree, flatten

if TYPE_CHECKING:
    from hjit.build import Built
    from hjit.first_calls import FirstCalls
    from hjit.sched.hand.schedule import Schedule
    from hjit.sched.language.tree import Root
    from hjit.variant import Held, Variant

log = logging.getLogger("hjit")
load_table()

MAX_KEYS = 512  # keys that a pipeline remembers; the oldest is forgotten
MAX_VARIANTS = 16  # outcomes of decisions and guards that one key remembers


@dataclass(slots=True)
class Stats:
    """Counters of a pipeline.

    Attributes:
        calls: calls of the pipeline.
        traces: how often the function was traced.
        compilations: kernels compiled.
        cache_hits: kernels loaded from the disk cache.
        fallbacks: calls whose result is the plain function's, since no kernel gave one, the first one's was wrong, or NumPy was
            timed, or found to be faster.
        slower: keys of arguments with which the plain function runs, as the kernel was slower.
        verified: None before the first comparison with NumPy, then its outcome: False where one of them failed.
        flipped: elements of compared results that differ since a decision on a rounded value (a threshold, a rounding to a whole
            number, an index) fell the other way.
        scratch_bytes: scratch memory of the latest new key.
    """

    calls: int = 0
    traces: int = 0
    compilations: int = 0
    cache_hits: int = 0
    fallbacks: int = 0
    slower: int = 0
    verified: bool | None = None
    flipped: int = 0
    scratch_bytes: int = 0


@dataclass(slots=True)
class _Call:
    """One call off the hot path.

    Attributes:
        leaves: the arguments, containers opened.
        structure: how they were put together.
        targets: arrays for the results, of `Pipeline.into`.
        known: the variants that the key had when the call began.
    """

    key: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    structure: Any
    targets: list[Any]
    known: tuple[Variant, ...]


class Pipeline:
    """A NumPy function that runs compiled; call it as the function itself.

    Attributes:
        py_func: the undecorated function.
        stats: counters, for people and tests.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any], given: dict[str, Any]) -> None:
        if isinstance(function, Pipeline):
            function = function.py_func
        functools.update_wrapper(self, function)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.py_func: Any = function
        self.stats = Stats()
        self._given = given
        self._variants: dict[Any, tuple[Variant, ...]] = {}
        self._plain: dict[Any, str] = {}  # why, by key
        self._turns: dict[Any, Turns] = {}  # keys of which calls are timed beside NumPy
        self._options: dict[Any, Options] = {}
        self._schedule: Scheduler | None = None
        self._warned = False
        self._warned_of_flips = False
        self._lock = threading.RLock()
        _pipelines.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.stats.calls += 1
        key = key_of(args, kwargs)
        known = self._variants.get(key)
        if known is not None and known[0].flat:
            result = known[0].run_flat((*args, *kwargs.values()) if kwargs else args)
            if result is PLAIN:
                return self._numpy(args, kwargs)
            if result is not MISS:
                return result
        return self._call(key, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<hjit.pipeline {getattr(self.py_func, '__qualname__', self.py_func)}>"

    def __copy__(self) -> Pipeline:
        return self

    def __deepcopy__(self, memo: Any) -> Pipeline:
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

    # -- the way of a call
    def _call(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Any] | None = None) -> Any:
        if key in self._plain or self._resolved(key[0]).disable:
            return self._numpy(args, kwargs)
        _load_compiler()
        leaves: list[Any] = []
        structure = Tree(tuple, (flatten(args, leaves), flatten(kwargs, leaves)))
        call = _Call(key, args, kwargs, leaves, structure, targets or [], self._variants.get(key, ()))
        turns = self._turns.get(key) if targets is None else None
        result = self._try(call) if turns is None else self._by_turns(call, turns)
        if result is MISS:
            result = self._first(call)
        return self._numpy(args, kwargs) if result is PLAIN else result

    def _try(self, call: _Call) -> Any:
        """Run the variant whose guards and decisions hold; MISS where there is none, PLAIN where NumPy is to run."""
        from hjit.variant import Mispredict, OutOfBounds

        miss: Mispredict | None = None
        missed: Variant | None = None
        for v in call.known:
            if miss is not None and missed is not None and not _parts_at(v, miss, missed):
                continue
            held = v.guards(call.leaves)
            if held is None:
                continue
            if not v.may_write(call.leaves, held[1]):
                return PLAIN
            ways = self._unverified(v, call.targets, self._resolved(call.key[0]))
            if ways:
                with forks.builds, self._lock:
                    return self._verify(call, v, held, ways)
            try:
                result = v.run(call.leaves, held, call.targets)
            except OutOfBounds:
                return PLAIN
            except Mispredict as error:
                miss, missed = error, v
                continue
            self._promote(call, v)
            return result
        return MISS

    # -- beside NumPy
    def _by_turns(self, call: _Call, turns: Turns) -> Any:
        """As `_try`, or by the plain function, and timed."""

        def compiled() -> Any:
            result = turns.variant.run_flat((*call.args, *call.kwargs.values())) if turns.flat else MISS
            return self._try(call) if result is MISS else result

        result = turns.run(compiled, lambda: self._numpy(call.args, call.kwargs))
        if turns.is_over and self._lock.acquire(blocking=False):
            try:
                self._decide(call.key, turns)
            finally:
                self._lock.release()
        return result

    def _take_turns(
        self, key: Any, variant: Variant, options: Options, seconds: tuple[float, float] | None = None
    ) -> None:
        """Time the next calls beside NumPy, if that may be the faster one: as with another key, or by the seconds of the kernel and of NumPy."""
        asked = (
            options.numpy_if_faster and options.verify == "first" and options.schedule is None and not variant.impure
        )
        if asked and (self.stats.slower or against_numpy.is_suspect(seconds)):
            while len(self._turns) >= against_numpy.MAX_KEYS:
                self._stop_turns(next(iter(self._turns)))
            self._turns[key] = Turns(variant)

    def _decide(self, key: Any, turns: Turns) -> None:
        """NumPy runs from now on, where it is faster."""
        if self._turns.get(key) is not turns:
            return
        self._stop_turns(key)
        found = turns.verdict()
        if found is None or not found.is_slower:
            log.debug(
                "%s stays compiled: %s", self.__name__, found or "it is faster than NumPy, or too many threads call it"
            )
        else:
            log.info("%s runs as plain NumPy with such arguments: %s", self.__name__, found)
            self.stats.slower += 1
            self._plain[key] = f"{found}. {against_numpy.ADVICE}"
            self._variants.pop(key, None)

    def _stop_turns(self, key: Any) -> None:
        turns = self._turns.pop(key, None)
        if turns is not None:
            turns.stop()

    def _promote(self, call: _Call, v: Variant) -> None:
        """Look at this variant first from now on, where guards alone choose it; a decision costs a run to find out."""
        if v is call.known[0] or v.steps[0].event is not None or not self._lock.acquire(blocking=False):
            return
        try:
            if self._variants.get(call.key) is call.known:
                self._variants[call.key] = (v, *(x for x in call.known if x is not v))
        finally:
            self._lock.release()

    def _resolved(self, context: Any) -> Options:
        found = self._options.get(context)
        if found is None:
            found = self._options[context] = replace(resolve(self._given), schedule=self._schedule)
        return found

    def _numpy(self, args: Any, kwargs: Any) -> Any:
        self.stats.fallbacks += 1
        return self.py_func(*args, **kwargs)

    def _first(self, call: _Call) -> Any:
        """No variant for this call yet: trace, compile, verify."""
        from hjit.build import Unclear
        from hjit.report.listing import progress
        from hjit.variant import OutOfBounds

        options = self._resolved(call.key[0])
        with self._lock, forks.builds:
            known = self._variants.get(call.key, ())
            if known is not call.known:  # another thread was here first
                call.known = known
                result = self._try(call)
                if result is not MISS:
                    return result
            if call.key in self._plain:
                return PLAIN
            try:
                with progress(f"hjit: compiling {self.__name__}"):
                    built = self._build(call.structure, call.leaves, options)
            except (TraceError, CompileError) as error:
                if options.on_unsupported == "raise" and not isinstance(error, BudgetError):
                    raise
                self._give_up(call.key, f"{self.__name__} runs as plain NumPy: {error}")
                return PLAIN
            except OutOfBounds:
                return PLAIN
            except Unclear as unclear:
                if options.on_unsupported == "raise":
                    raise self._own_error(unclear.error, call.structure, call.leaves) from None
                result = self._numpy(call.args, call.kwargs)  # once, as it may have effects; what it raises is its own
                self._give_up(call.key, f"{self.__name__} runs as plain NumPy: {self._not_traced(unclear.error)}")
                return result
            variant = built.variant
            held = variant.guards(call.leaves)
            if held is None or not variant.may_write(call.leaves, held[1]):
                if not variant.flat:  # which would run without being compared
                    self._install(call.key, variant)
                return PLAIN
            ways = self._unverified(variant, call.targets, options)
            if ways:
                return self._verify(call, variant, held, ways)
            self._install(call.key, variant)
            self._take_turns(call.key, variant, options)
        try:
            return variant.run(call.leaves, held, call.targets, built.results)
        except OutOfBounds:
            return PLAIN

    def _install(self, key: Any, variant: Variant) -> None:
        self._stop_turns(key)
        self._variants[key] = (variant, *self._variants.get(key, ()))[:MAX_VARIANTS]
        _limit(self._variants)

    def _give_up(self, key: Any, why: str) -> None:
        """NumPy runs all calls with this key."""
        self._plain[key] = why
        _limit(self._plain)
        if why and not self._warned:
            self._warned = True
            warnings.warn(why, HjitWarning, stacklevel=_depth())

    def _build(self, structure: Any, leaves: list[Any], options: Options) -> Built:
        """See `hjit.build`; and count what was done.

        Raises:
            BudgetError, TraceError, CompileError, OutOfBounds, Unclear: as `build` does.
        """
        from hjit.build import build

        made = build(self.py_func, self.__name__, structure, leaves, options)
        self.stats.traces += 1
        self.stats.compilations += made.compiled
        self.stats.cache_hits += made.loaded
        self.stats.scratch_bytes = max((b.scratch_bytes for b in made.variant.bounds), default=0)
        return made

    def _own_error(self, error: Exception, structure: Any, leaves: list[Any]) -> Exception:
        """What NumPy raises for these arguments; where it raises nothing, the trace is at fault."""
        copies: dict[int, Any] = {}
        args, kwargs = structure.build(lambda k: copies.setdefault(id(leaves[k]), copied(leaves[k])))
        try:
            with forks.builds.outside():
                self.py_func(*args, **kwargs)
        except Exception as own:
            return own
        return self._not_traced(error)

    def _not_traced(self, error: Exception) -> TraceError:
        return gap(self.__name__, error, self.py_func.__code__.co_filename)

    # -- verification
    def _unverified(self, variant: Variant, targets: Sequence[Any], options: Options) -> list[bool]:
        """The ways of storing results that this call may go and that nothing vouches for yet: into the caches, past them (True)."""
        if options.verify != "first":
            return []
        ways = [False, True] if targets and variant.may_stream else [False]
        return [] if variant.vouched.issuperset(ways) else self._first_calls.unverified(variant, ways)

    def _verify(self, call: _Call, variant: Variant, held: Held, ways: list[bool]) -> Any:
        """NumPy's own result; the kernels are installed only if they compute the same."""
        from hjit.build import with_room
        from hjit.first_calls import run_of

        if self._first_calls.is_wrong(variant, ways):
            self._give_up(call.key, "")
            return PLAIN
        arrays = held[1] | {n: call.leaves[k] for n, k in variant.arguments.items()}
        before = {n: copied(arrays[n]) for n in sorted(variant.written)}
        start = against_numpy.clock()
        runs = {way: run_of(variant, held, call.leaves, call.targets, before, way) for way in ways}
        done = {way: run for way, run in runs.items() if run is not None}
        if len(done) < len(runs):
            return PLAIN
        middle = against_numpy.clock()
        with forks.builds.outside():
            expected = self.py_func(*call.args, **call.kwargs)
        seconds = (middle - start) / len(ways), against_numpy.clock() - middle
        report = with_room(
            self._first_calls.compare, variant, held, done, arrays | before, expected, {n: arrays[n] for n in before}
        )
        self.stats.flipped += report.flipped
        if report.flipped and not self._warned_of_flips:
            self._warned_of_flips = True
            warnings.warn(report.what_has_flipped(self.__name__), HjitWarning, stacklevel=_depth())
        if report.verified:
            self.stats.verified = self.stats.verified is not False
            if variant not in self._variants.get(call.key, ()):
                self._install(call.key, variant)
                self._take_turns(call.key, variant, self._resolved(call.key[0]), seconds)
            return expected
        self.stats.fallbacks += 1
        if report.verified is False:
            self.stats.verified = False
            self._give_up(call.key, report.what_is_wrong(self.__name__))
        return expected

    @functools.cached_property
    def _first_calls(self) -> FirstCalls:
        from hjit.first_calls import FirstCalls

        return FirstCalls(self.__name__)

    # -- into the caller's arrays
    def into(self, out: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the pipeline and put its results into `out`: an array, or what the function returns with arrays as leaves.

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
            array = np.asarray(r)
            if not isinstance(t, np.ndarray) or t.shape != array.shape or t.dtype != array.dtype:
                given = f"{np.shape(t)} {getattr(t, 'dtype', type(t))}"
                raise ValueError(f"out: an array of shape {array.shape} and dtype {array.dtype} is needed, not {given}")
        for t, r in zip(targets, results, strict=True):
            if t is not r and not is_same_memory(t, r):
                np.copyto(t, r)
        return out

    # -- inspection
    def explain(self, *args: Any, **kwargs: Any) -> str:
        """How calls with such arguments run, and where NumPy runs them: why, and what to do."""
        from hjit.report.explain import explained

        key = key_of(args, kwargs)
        return explained(self.__name__, self._plain.get(key), self._variants.get(key, ()), key in self._turns)

    def _inspect(self, args: Any, kwargs: Any) -> list[Any]:
        from hjit.build import with_room
        from hjit.kernels.runtime.kernel import scheduled
        from hjit.kernels.runtime.listing import plan

        variant = self._variant(args, kwargs, self._resolved(context_state()))
        options = variant.options  # with what a search decided on
        return [with_room(lambda g: plan(g, options, scheduled(g, options)), g) for g in variant.graphs if g.outputs]

    def _variant(self, args: Any, kwargs: Any, options: Options) -> Variant:
        """What a call with these arguments runs."""
        from hjit.build import Unclear
        from hjit.variant import OutOfBounds

        leaves: list[Any] = []
        structure = Tree(tuple, (flatten(args, leaves), flatten(kwargs, leaves)))
        known = self._variants.get(key_of(args, kwargs), ())
        usable = (v for v in known if options.blas is not False or not v.has_products)
        variant = next((v for v in usable if v.guards(leaves) is not None), None)
        if variant is None:
            with self._lock, forks.builds:
                try:
                    variant = self._build(structure, leaves, options).variant
                except OutOfBounds:
                    raise IndexError("index out of bounds") from None
                except Unclear as unclear:
                    raise self._own_error(unclear.error, structure, leaves) from None
        return variant

    def graph(self, *args: Any, **kwargs: Any) -> Any:
        """The canonical Graph that these arguments lead to; printable, and a picture in a notebook."""
        from hjit.report.listing import Listing

        return Listing([p.graph for p in self._inspect(args, kwargs)])

    def tree(self, *args: Any, **kwargs: Any) -> Any:
        """The schedule tree that these arguments run by, found by a search, given to `use`, or the default one; a picture in a notebook."""
        from hjit.report.listing import Listing

        return Listing([p.schedule for p in self._inspect(args, kwargs)])

    def schedule(self, *args: Any, **kwargs: Any) -> Schedule:
        """The default schedule, or the one given to `use`: printable, a picture in a notebook, and to be edited for `use`."""
        from hjit.kernels.runtime import features
        from hjit.sched.hand.schedule import Schedule
        from hjit.variant import segments

        options = replace(self._resolved(context_state()), blas=False)  # all stages are there to be scheduled
        try:
            variant = self._variant(args, kwargs, options)
        except ScheduleError:  # the one in use is not legal here: it is what is to be edited
            variant = self._variant(args, kwargs, replace(options, schedule=None))
        goals = variant.goals

        def graphs(said: Any) -> list[Any]:
            return [g for g in segments(variant.rec, goals, said) if g.outputs]

        directives = getattr(options.schedule, "directives", ())
        return Schedule(graphs, directives, features.schedule_target(options.target))

    def use(self, schedule: Schedule | Root | Sequence[Root] | None) -> Pipeline:
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
            self._variants = {}
            self._plain = {}
            self._turns = {}
        return self

    def loops(self, *args: Any, **kwargs: Any) -> Any:
        """The loop IR after lowering."""
        from hjit.report.listing import Listing

        return Listing([p.program for p in self._inspect(args, kwargs)])

    def inspect_llvm(self, *args: Any, **kwargs: Any) -> str:
        """The LLVM IR as it is handed to LLVM."""
        return "\n".join(p.llvm for p in self._inspect(args, kwargs))

    def inspect_asm(self, *args: Any, **kwargs: Any) -> str:
        """The machine's assembly after optimisation."""
        from hjit.kernels.runtime.backend import assembly

        options = self._resolved(context_state())
        return "\n".join(assembly(p.llvm, p.name, options.target) for p in self._inspect(args, kwargs))


def _parts_at(v: Variant, miss: Any, missed: Variant) -> bool:
    """Did this variant make the same decisions as the missed one, and then the one that was missed?"""
    from hjit.trace.tracing.host import same

    at = miss.number
    events, others = v.rec.breaks, missed.rec.breaks
    if len(events) <= at or not same(events[at].value, miss.value):
        return False
    return all(same(a.value, b.value) for a, b in zip(events[:at], others[:at], strict=True))


@functools.lru_cache(maxsize=1)
def _load_compiler() -> None:
    """Import what `import hjit` does not; a fork waits for that."""
    with forks.builds:
        importlib.import_module("hjit.build")


def _limit(entries: dict[Any, Any]) -> None:
    """Forget the oldest entries of too many."""
    while len(entries) > MAX_KEYS:
        del entries[next(iter(entries))]


def _depth() -> int:
    """The stack level of the first frame outside hjit, for `warnings.warn` in the caller."""
    here, level = os.path.dirname(__file__), 1
    frame = sys._getframe(1)
    while frame.f_back is not None and os.path.dirname(frame.f_code.co_filename) == here:
        frame, level = frame.f_back, level + 1
    return level


def _named(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _unpickle(module: str, name: str, given: dict[str, Any]) -> Any:
    found = _named(module, name)
    return found if isinstance(found, Pipeline) else Pipeline(found, given)


_pipelines: weakref.WeakSet[Pipeline] = weakref.WeakSet()
WITH_LOCKS = (
    *(f"hjit.kernels.runtime.{name}" for name in ("arena", "kernel", "backend", "launch")),
    *(f"hjit.process.{name}" for name in ("signals", "deep_stack", "garbage_collection")),
)


def _after_fork() -> None:
    for p in _pipelines:
        p._lock = threading.RLock()
        for key in [*p._turns]:
            p._stop_turns(key)  # its lock may be another thread's
    for name in WITH_LOCKS:
        module = sys.modules.get(name)
        if module is not None:
            module.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def pipeline(function: Callable[..., Any] | None = None, **given: Any) -> Any:
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
