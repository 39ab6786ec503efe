"""`pipeline`: the decorator, the keys of arguments, and the way of a call.

A call looks its arguments' key up among those seen. A known key runs its variant: a bound kernel, without tracing and
without locks. A new key traces, canonicalises, finds or compiles the kernels, and, the first time, compares the
result with NumPy's own.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np


from hjit.errors import HjitWarning, TraceError
from hjit.options import Options, checked, context_state, resolve

if TYPE_CHECKING:
    from hjit.variant import Variant

log = logging.getLogger("hjit")

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
        fallbacks: calls that ran the plain function.
        verified: None before the first comparison with NumPy, then its outcome.
        scratch_bytes: scratch memory of the latest new key.
    """

    calls: int = 0
    traces: int = 0
    compilations: int = 0
    cache_hits: int = 0
    fallbacks: int = 0
    verified: bool | None = None
    scratch_bytes: int = 0


_NUMBERS = frozenset({int, float})


def _signature(x: Any) -> Any:
    """What of an argument a kernel depends on."""
    t = type(x)
    if t is np.ndarray:
        return (x.dtype, x.shape, x.strides)
    if t in _NUMBERS:
        return t
    if t in (list, tuple):
        return (t, *map(_signature, x))
    if t is dict:
        return (dict, *((k, _signature(v)) for k, v in x.items()))
    if isinstance(x, np.generic) and x.dtype.kind in "biuf":
        return t
    if t in (bool, str, bytes, type(None)):
        return (t, x)
    if isinstance(x, tuple):
        return (t, *map(_signature, x))
    try:
        hash(x)
    except TypeError:
        return (t, _Identity(x))
    return (t, x) if isinstance(x, (np.dtype, type, types.FunctionType)) else (t, _Identity(x))


class _Identity:
    """An object as itself in a key; the key does not keep it alive."""

    __slots__ = ("number", "ref")

    def __init__(self, x: Any) -> None:
        self.number = id(x)
        try:
            self.ref: Any = weakref.ref(x)
        except TypeError:
            self.ref = lambda: x

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.ref() is not None and self.ref() is other.ref()


class Pipeline:
    """A NumPy function that runs compiled; call it as the function itself.

    Attributes:
        py_func: the undecorated function.
        stats: counters, for people and tests.
    """

    def __init__(self, function: Callable[..., Any], given: dict[str, Any]) -> None:
        if isinstance(function, Pipeline):
            function = function.py_func
        self.py_func: Any = function
        self.stats = Stats()
        self._given = given
        self._variants: dict[Any, list[Variant]] = {}
        self._plain: set[Any] = set()
        self._options: dict[Any, Options] = {}
        self._warned = False
        self._lock = threading.RLock()
        functools.update_wrapper(self, function)
        _pipelines.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        stats = self.stats
        stats.calls += 1
        context = context_state()
        key = (context, *map(_signature, args)) if not kwargs else (context, *map(_signature, args), None, *((k, _signature(v)) for k, v in kwargs.items()))
        variants = self._variants.get(key)
        if variants is not None:
            first = variants[0]
            if first.simple and not kwargs and first.flat:  # type: ignore[attr-defined]
                try:
                    return first.run_simple(args)
                except _out_of_bounds():
                    return self._numpy(args, kwargs)
        return self._call(key, variants, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<hjit.pipeline {getattr(self.py_func, '__qualname__', self.py_func)}>"

    def __reduce__(self) -> Any:
        return _unpickle, (self.__module__, self.__qualname__)

    # -- the way of a call
    def _call(self, key: Any, variants: list[Variant] | None, args: Any, kwargs: Any, outputs: Any = None) -> Any:
        from hjit.trace.trace import Tree, flatten

        if key in self._plain or self._resolved(key[0]).disable:
            return self._numpy(args, kwargs)
        leaves: list[Any] = []
        structure = Tree(tuple, (flatten(args, leaves), flatten(kwargs, leaves)))
        if variants:
            done, result = self._try(variants, leaves, args, kwargs, outputs)
            if done:
                return result
        return self._first(key, structure, leaves, args, kwargs, outputs)

    def _try(self, variants: list[Variant], leaves: list[Any], args: Any, kwargs: Any, outputs: Any) -> tuple[bool, Any]:
        """Run the variant whose guards and decisions hold; (False, None) where there is none."""
        from hjit.variant import Mispredict, OutOfBounds

        for number, v in enumerate(variants):
            held = v.guards(leaves)
            if held is None:
                continue
            if v.written and not _may_write(v, leaves, held[1]):
                return True, self._numpy(args, kwargs)
            try:
                result = v.run(leaves, *held, outputs)
            except OutOfBounds:
                return True, self._numpy(args, kwargs)
            except Mispredict as miss:
                return self._follow(variants[number + 1 :], v, miss, leaves, outputs)
            if number and not v.steps[0].event:
                variants.insert(0, variants.pop(number))
            return True, result
        return False, None

    def _follow(self, others: list[Variant], v: Variant, miss: Any, leaves: list[Any], outputs: Any) -> tuple[bool, Any]:
        """Go on in the variant that took the other branch, from where the decisions part."""
        from hjit.trace.host import same
        from hjit.variant import Mispredict

        for other in others:
            events = other.rec.events
            if len(events) <= miss.number or events[miss.number].call is not None or not same(events[miss.number].value, miss.value):
                continue
            if not all(same(a.value, b.value) for a, b in zip(events[: miss.number], v.rec.events[: miss.number], strict=True)):
                continue
            held = other.guards(leaves)
            if held is None:
                continue
            try:
                return True, other.run(leaves, *held, outputs)
            except Mispredict as again:
                miss = again
        return False, None

    def _resolved(self, context: Any) -> Options:
        found = self._options.get(context)
        if found is None:
            found = self._options[context] = resolve(self._given)
        return found

    def _numpy(self, args: Any, kwargs: Any) -> Any:
        self.stats.fallbacks += 1
        return self.py_func(*args, **kwargs)

    def _first(self, key: Any, structure: Any, leaves: list[Any], args: Any, kwargs: Any, outputs: Any) -> Any:
        """A key not seen before: trace, compile, verify."""
        options = self._resolved(key[0])
        with self._lock:
            from hjit.report import progress

            try:
                with progress(f"hjit: compiling {self.__name__}"):  # type: ignore[attr-defined]
                    variant, made = self._build(structure, leaves, options)
            except TraceError as error:
                if options.on_unsupported == "raise":
                    raise
                self._plain.add(key)
                self._warn(f"{self.__name__} runs as plain NumPy: {error}")  # type: ignore[attr-defined]
                return self._numpy(args, kwargs)
            held = variant.guards(leaves)
            if held is None or (variant.written and not _may_write(variant, leaves, held[1])):
                return self._numpy(args, kwargs)
            if options.verify == "first" and self.stats.verified is None and not variant.impure:
                return self._verify(key, variant, leaves, held, args, kwargs)
            self._install(key, variant)
        from hjit.variant import OutOfBounds

        try:
            return variant.run(leaves, *held, outputs, events=made)
        except OutOfBounds:
            return self._numpy(args, kwargs)

    def _install(self, key: Any, variant: Variant) -> None:
        from hjit.trace.trace import Tree

        args = variant.structure.items[0]  # type: ignore[attr-defined]
        variant.flat = not any(isinstance(x, Tree) for x in args.items)  # type: ignore[attr-defined]
        known = self._variants.setdefault(key, [])
        known.insert(0, variant)
        del known[MAX_VARIANTS:]
        while len(self._variants) > MAX_KEYS:
            del self._variants[next(iter(self._variants))]

    def _build(self, structure: Any, leaves: list[Any], options: Options) -> tuple[Variant, dict[int, tuple[Any, ...]]]:
        """Trace and bind; also the results of opaque calls that the trace made."""
        from hjit.kernels import backend
        from hjit.trace.trace import trace
        from hjit.variant import Variant

        start, compiled = time.perf_counter(), backend.compilations()
        function = self.py_func
        if not isinstance(function, types.FunctionType):
            raise TraceError(repr(function), "not a Python function", "decorate a function written in Python")
        copies = [x.copy() if type(x) is np.ndarray and _unusual(x) else x for x in leaves]
        try:
            traced = trace(function, structure, copies, leaf_names(function, structure, len(leaves)), lambda rec, names: evaluate(rec, names, copies, options))
        except TraceError:
            raise
        except RecursionError as error:
            raise TraceError(self.__name__, "the trace is nested too deeply", "") from error  # type: ignore[attr-defined]
        except Exception as error:
            self._replay_error(error, structure, leaves)
            raise AssertionError from None  # not reached: the line above raises
        self.stats.traces += 1
        made = {k: tuple(traced.recorder.inputs[n].array for n in e.gives) for k, e in enumerate(traced.recorder.events) if e.call is not None}
        if any(e.impure for e in traced.recorder.events) and any(e.call is None for e in traced.recorder.events):
            raise TraceError("numpy.random", "random numbers together with a decision on values", "draw the random numbers outside the function")
        variant = Variant(traced, options)
        variant.structure = structure  # type: ignore[attr-defined]
        self.stats.compilations += backend.compilations() - compiled
        self.stats.cache_hits += sum(b.kernel.from_cache for b in variant.bounds)
        self.stats.scratch_bytes = max((b.scratch_bytes for b in variant.bounds), default=0)
        log.debug("%s: built in %.4f s, %d kernels compiled", self.__name__, time.perf_counter() - start, backend.compilations() - compiled)  # type: ignore[attr-defined]
        return variant, made

    def _replay_error(self, error: Exception, structure: Any, leaves: list[Any]) -> None:
        """Raise what NumPy raises for these arguments; where it raises nothing, the trace is at fault."""
        copies = [x.copy() if isinstance(x, np.ndarray) else x for x in leaves]
        args, kwargs = structure.build(lambda leaf: copies[leaf])
        self.py_func(*args, **kwargs)
        raise TraceError(self.__name__, f"tracing raised {type(error).__name__}: {error}", "") from error  # type: ignore[attr-defined]

    # -- verification
    def _verify(self, key: Any, variant: Variant, leaves: list[Any], held: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's own result; the kernel is installed only if it computes the same."""
        from hjit.report import difference
        from hjit.variant import Mispredict, OutOfBounds

        written = {variant.arguments[n] for n in variant.written if n in variant.arguments}
        copies = [np.array(x, copy=True, order="K") if k in written else x for k, x in enumerate(leaves)]
        try:
            ours = variant.run(copies, *held)
        except OutOfBounds:
            return self._numpy(args, kwargs)
        except Mispredict:
            ours = None
        expected = self.py_func(*args, **kwargs)
        why = difference((ours, [copies[k] for k in sorted(written)]), (expected, [leaves[k] for k in sorted(written)]), variant.exact)
        self.stats.verified = why is None
        if why is None:
            self._install(key, variant)
        else:
            self._plain.add(key)
            self._warn(
                f"{self.__name__}: the compiled result differs from NumPy's ({why}), so NumPy runs instead. "  # type: ignore[attr-defined]
                "Please report this with the function and the dtypes and shapes of its arguments"
            )
        return expected

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(text, HjitWarning, stacklevel=4)

    # -- into the caller's arrays
    def into(self, out: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the pipeline and put its results into `out`: an array, or what the function returns with arrays as leaves.

        Arrays in C order that do not overlap the arguments are computed into directly, without allocation.

        Raises:
            ValueError: `out` has not the structure, or an array not the shape or dtype, of the result.
        """
        targets = _leaves_of(out)
        key = (context_state(), *map(_signature, args), None, *((k, _signature(v)) for k, v in kwargs.items()))
        plain_key = key if kwargs else key[: len(args) + 1]
        variants = self._variants.get(plain_key)
        direct = {} if variants is None else self._direct(variants[0], targets, args)
        result = self._call(plain_key, variants, args, kwargs, direct)
        results = _leaves_of(result)
        if len(results) != len(targets):
            raise ValueError(f"out has {len(targets)} arrays, the function returns {len(results)}")
        for t, r in zip(targets, results, strict=True):
            if not isinstance(t, np.ndarray) or t.shape != np.shape(r) or t.dtype != np.result_type(r):
                raise ValueError(f"out: an array of shape {np.shape(r)} and dtype {np.result_type(r)} is needed, not {np.shape(t)} {getattr(t, 'dtype', type(t))}")
            if t is not r:
                np.copyto(t, r)
        return out

    def _direct(self, variant: Variant, targets: list[Any], args: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        shapes = {n: (shape, dtype) for b in variant.bounds for n, shape, dtype in b.outputs}
        for r, t in zip(variant.results, targets, strict=False):
            fits = r.kind == "array" and not r.is_scalar and isinstance(t, np.ndarray) and shapes.get(r.name) == (t.shape, t.dtype)
            if fits and t.flags.c_contiguous and t.flags.writeable and not any(isinstance(a, np.ndarray) and np.may_share_memory(a, t) for a in args):
                found[r.name] = t
        return found

    # -- inspection
    def _inspect(self, args: Any, kwargs: Any) -> list[Any]:
        from hjit.kernels.kernel import plan
        from hjit.trace.trace import Tree, flatten

        leaves: list[Any] = []
        structure = Tree(tuple, (flatten(args, leaves), flatten(kwargs, leaves)))
        options = self._resolved(context_state())
        variant, _ = self._build(structure, leaves, options)
        return [plan(g, options) for g in variant.graphs if g.outputs]

    def graph(self, *args: Any, **kwargs: Any) -> Any:
        """The canonical Graph that these arguments lead to; printable, and a picture in a notebook."""
        from hjit.report import Listing

        return Listing([p.graph for p in self._inspect(args, kwargs)])

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """The schedule tree."""
        from hjit.report import Listing

        return Listing([p.schedule for p in self._inspect(args, kwargs)])

    def loops(self, *args: Any, **kwargs: Any) -> Any:
        """The loop IR after lowering."""
        from hjit.report import Listing

        return Listing([p.program for p in self._inspect(args, kwargs)])

    def inspect_llvm(self, *args: Any, **kwargs: Any) -> str:
        """The LLVM IR as it is handed to LLVM."""
        return "\n".join(p.llvm for p in self._inspect(args, kwargs))

    def inspect_asm(self, *args: Any, **kwargs: Any) -> str:
        """The machine's assembly after optimisation."""
        from hjit.kernels.backend import assembly

        options = self._resolved(context_state())
        return "\n".join(assembly(p.llvm, p.name, options.target) for p in self._inspect(args, kwargs))


def evaluate(rec: Any, names: tuple[str, ...], leaves: list[Any], options: Options) -> list[Any]:
    """Stages of an unfinished trace, computed by compiled kernels on the arrays at hand."""
    from hjit.kernels.kernel import Bound
    from hjit.trace.canonical import canonicalise
    from hjit.variant import _element_strides

    found = {n: rec.inputs[n].array for n in names if n in rec.inputs}
    wanted = tuple(dict.fromkeys(n for n in names if n not in found))
    if wanted:
        graph = canonicalise(rec.graph(wanted))
        bound = Bound(graph, options, rec.sizes, {n: _element_strides(s.array) for n, s in rec.inputs.items()})
        values = rec.tape.replay(leaves)
        slots = rec.scalar_slots()
        outputs = bound.new_outputs()
        if not bound.run([rec.inputs[n].array for n in bound.inputs], outputs, [values[slots[n][0].k] for n, _ in bound.scalars]):
            raise IndexError("index out of bounds")
        found.update(zip(wanted, outputs, strict=True))
    return [found[n] for n in names]


def leaf_names(function: types.FunctionType, structure: Any, count: int) -> list[str]:
    """A name for each leaf of the arguments: its parameter's."""
    from hjit.trace.trace import Tree

    names = ["arg"] * count
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = []

    def mark(x: Any, name: str) -> None:
        if isinstance(x, Tree):
            for y in x.items:
                mark(y, name)
        else:
            names[x] = name

    args, kwargs = structure.items
    for k, x in enumerate(args.items):
        mark(x, parameters[k] if k < len(parameters) else "arg")
    for name, x in zip(kwargs.keys or (), kwargs.items, strict=True):
        mark(x, name)
    return names


def _unusual(x: np.ndarray[Any, Any]) -> bool:
    """Must this array be copied before a kernel can read it?"""
    return not x.flags.aligned or any(s % x.itemsize for s in x.strides)


def _may_write(variant: Variant, leaves: list[Any], captured: dict[str, Any]) -> bool:
    """Are the arrays that the function changes writeable, and apart from all others?"""
    arrays = {n: leaves[k] for n, k in variant.arguments.items()} | captured
    for name in variant.written:
        a = arrays[name]
        if not a.flags.writeable or any(n != name and np.may_share_memory(a, b) for n, b in arrays.items()):
            return False
    return True


def _leaves_of(x: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [leaf for y in x for leaf in _leaves_of(y)]
    if isinstance(x, dict):
        return [leaf for y in x.values() for leaf in _leaves_of(y)]
    return [x]


def _out_of_bounds() -> type[Exception]:
    from hjit.variant import OutOfBounds

    return OutOfBounds


def _unpickle(module: str, name: str) -> Any:
    found: Any = __import__(module, fromlist=["_"])
    for part in name.split("."):
        found = getattr(found, part)
    return found


_pipelines: weakref.WeakSet[Pipeline] = weakref.WeakSet()


def _after_fork() -> None:
    import sys

    for p in _pipelines:
        p._lock = threading.RLock()
    for name in ("hjit.kernels.arena", "hjit.kernels.kernel", "hjit.kernels.backend"):
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
    """
    checked(given)
    if function is None:
        return lambda f: Pipeline(f, given)
    return Pipeline(function, given)
