"""`pipeline`: the decorator."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

import numpy as np

from hjit.call.arguments import is_device_array, is_same_memory, key_of, leaves_of
from hjit.call.compiled_function import CompiledFunction, P, R
from hjit.call.function_state import FunctionState
from hjit.errors import HjitWarning, TraceError
from hjit.graph_breaks import CompiledPart
from hjit.inspection import Inspectable
from hjit.options import GivenOptions, checked, resolve
from hjit.process import forks, state
from hjit.trace.capture.overlay import is_traced_call, load_table
from hjit.trace.splitting.decorated import python_original
from hjit.trace.tracing import forward
from hjit.trace.tracing.frames import stack_level, uncounted
from hjit.trace.tracing.objects import fields_of
from hjit.trace.tracing.recording.recorder import running

if TYPE_CHECKING:
    from hjit.sched.hand.schedule import Schedule
    from hjit.sched.language.tree import Root

load_table()

Own = TypeVar("Own")  # the first parameter of a method: an instance or a class
Q = ParamSpec("Q")  # its other parameters
Out = TypeVar("Out")


@uncounted
class Pipeline(Inspectable[P, R]):
    """A NumPy function that runs compiled; call it as the function itself."""

    def __init__(self, function: Callable[P, R], given: dict[str, Any]) -> None:
        if isinstance(function, CompiledFunction):
            function = function.py_func
        super().__init__(FunctionState(function, given), CompiledPart.of)

    def _with_options(self, given: dict[str, Any]) -> Pipeline[P, R]:
        return Pipeline(self.py_func, given)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Pipeline[P, R]: ...

    @overload
    def __get__(self: Pipeline[Concatenate[Own, Q], R], instance: Own, owner: Any = None) -> Callable[Q, R]: ...

    @overload
    def __get__(self, instance: object, owner: Any = None) -> Pipeline[P, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __copy__(self) -> Pipeline[P, R]:
        return self

    def __deepcopy__(self, memo: Any) -> Pipeline[P, R]:
        return self

    def __reduce__(self) -> Any:
        """Pickle by name, as functions are; cloudpickle gets the code where it would pickle a function's code."""
        module, name = self.__module__, getattr(self, "__qualname__", self.__name__)
        try:
            found = _named(module, name)
        except (ImportError, AttributeError):
            found = None
        is_found = getattr(found, "py_func", found) is self.py_func
        caller = sys._getframe(1).f_globals.get("__name__") or ""
        if "cloudpickle" in caller and (not is_found or module == "__main__"):
            return Pipeline, (self.py_func, self._state.options.given)
        if not is_found:
            raise pickle.PicklingError(f"{self!r} is not found as {module}.{name}")
        return _unpickle, (module, name, self._state.options.given)

    def into(self, out: Out, *args: P.args, **kwargs: P.kwargs) -> Out:
        """Call the pipeline and write its results to `out`: an array, or arrays nested like the function's results.

        Kernels write directly to arrays in C order that do not overlap the arguments, without allocation.

        Raises:
            ValueError: `out` does not have the structure of the result, or the shape or dtype of an array differs.
        """
        self.stats.calls += 1
        targets = leaves_of(out)
        pairs = _pairs(out, self._call(key_of(args, kwargs), args, kwargs, targets))
        for t, r in pairs:
            array = r if is_device_array(r) else np.asarray(r)
            if (
                (not isinstance(t, np.ndarray) and not is_device_array(t))
                or t.shape != array.shape
                or t.dtype != array.dtype
            ):
                is_array = isinstance(t, np.ndarray) or is_device_array(t)
                given = f"{t.shape} {t.dtype}" if is_array else f"a {type(t).__module__}.{type(t).__qualname__}"
                raise ValueError(f"out: an array of shape {array.shape} and dtype {array.dtype} is needed, not {given}")
        if any(t is not own for (t, _), own in zip(pairs, targets, strict=True)):  # a result may be in another's array
            pairs = [(t, r.copy() if hasattr(r, "copy") else r) for t, r in pairs]
        for t, r in pairs:
            if t is not r and not is_same_memory(t, r):
                t[...] = r
        return out

    def use(self, schedule: Schedule | Root | Sequence[Root] | None) -> Pipeline[P, R]:
        """Use this schedule from now on (later changes to it have no effect); None: the default one.

        Returns the pipeline.

        Args:
            schedule: directives, or trees as returned by `tree`, possibly changed by
                `hjit.sched.language.transforms`.

        Raises:
            ScheduleError: it is not a schedule. If it is not legal for the function, the first call raises this.
        """
        from hjit.sched.hand.schedule import usable

        found = None if schedule is None else usable(schedule)
        with self._state.lock, forks.builds.inside():
            self._state.schedule = found
            self._state.options.forget()
            self._forget_calls()
        return self


@uncounted
class BoundPipeline:
    """The pipeline of a bound method, of a class method, or of a callable object.

    It has the methods of a pipeline, which take no `self`. Attributes of the object are read again at every call.

    Attributes:
        py_func: the bound method or callable object that was decorated.
    """

    __name__: str

    def __init__(self, given: Callable[..., Any], whole: Pipeline[..., Any], owner: Any) -> None:
        self.py_func, self._whole, self._owner = given, whole, owner
        self.__wrapped__, self.__doc__ = given, given.__doc__
        self.__name__ = getattr(given, "__name__", type(given).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if running and is_traced_call(sys._getframe(1), args, kwargs):
            return forward.wrap_callable(self)(*args, **kwargs)
        return self._whole(self._owner, *args, **kwargs)

    @property
    def method(self) -> types.MethodType:
        """The plain function, bound to its first argument."""
        return types.MethodType(self._whole.py_func, self._owner)

    def in_force(self) -> Any:
        """As `Pipeline.in_force`."""
        return self._whole.in_force()

    def on(self, target: str) -> BoundPipeline:
        """As `Pipeline.on`."""
        return BoundPipeline(self.py_func, self._whole.on(target), self._owner)

    def use(self, schedule: Any) -> BoundPipeline:
        """As `Pipeline.use`."""
        self._whole.use(schedule)
        return self

    def quiet(self) -> BoundPipeline:
        """As `Pipeline.quiet`."""
        self._whole.quiet()
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_whole":
            raise AttributeError(name)
        found = getattr(self._whole, name)
        return functools.partial(self._bound, found, _OF_CALLS[name]) if name in _OF_CALLS else found

    def _bound(self, function: Any, count: int, /, *args: Any, **kwargs: Any) -> Any:
        return function(*args[:count], self._owner, *args[count:], **kwargs)

    def __repr__(self) -> str:
        return f"<hjit.pipeline {getattr(self.py_func, '__qualname__', self.py_func)}>"

    def __copy__(self) -> BoundPipeline:
        return self

    def __deepcopy__(self, memo: Any) -> BoundPipeline:
        return self

    def __reduce__(self) -> Any:
        """Pickle the method or object that was decorated."""
        return _unpickle_bound, (self.py_func, self._whole._state.options.given)


# methods that take the arguments of a call, and how many parameters of their own come before these
_OF_CALLS = dict.fromkeys(
    """explain report graph tree schedule loops inspect_llvm inspect_asm inspect_cuda inspect_ptx inspect_sass kernels
    tune""".split(),
    0,
) | {"into": 1, "export": 1}


def _pairs(out: Any, result: Any, where: str = "out") -> list[tuple[Any, Any]]:
    """Pairs of an array of `out` and the result that belongs there, in the order of the results.

    Raises:
        ValueError: `out` and the result have different structures.
    """
    if isinstance(result, dict):
        if not isinstance(out, dict) or out.keys() != result.keys():
            given = f"one with {list(out)}" if isinstance(out, dict) else f"a {type(out).__name__}"
            raise ValueError(f"{where}: a dict with the keys {list(result)} is needed, not {given}")
        return [pair for k, r in result.items() for pair in _pairs(out[k], r, f"{where}[{k!r}]")]
    if not is_device_array(result) and fields_of(result) is not None:
        raise ValueError(f"{where}: nothing is written to the fields of a {type(result).__name__}")
    if isinstance(result, (list, tuple)):
        if not isinstance(out, (list, tuple)) or len(out) != len(result):
            given = f"{len(out)}" if isinstance(out, (list, tuple)) else f"a {type(out).__name__}"
            raise ValueError(f"{where}: a {type(result).__name__} of {len(result)} is needed, not {given}")
        return [p for k, (t, r) in enumerate(zip(out, result, strict=True)) for p in _pairs(t, r, f"{where}[{k}]")]
    if isinstance(out, (list, tuple, dict)):
        raise ValueError(f"{where}: an array is needed, not a {type(out).__name__}")
    return [(out, result)]


def _bound_method(given: Any) -> tuple[Any, Any] | None:
    """The function and the first argument of a bound method or callable object; None for anything else."""
    if isinstance(given, (types.FunctionType, functools.partial, CompiledFunction, BoundPipeline, type)):
        return None
    if isinstance(given, types.MethodType):
        function, owner = given.__func__, given.__self__
    else:
        function, owner = inspect.getattr_static(type(given), "__call__", None), given
    function = python_original(function)
    is_python = isinstance(function, types.FunctionType) and (function.__module__ or "").partition(".")[0] != "numpy"
    return (function, owner) if is_python else None


def _lazy_kind(function: Any) -> str | None:
    """ "a generator" or "a coroutine" if that is all that a call of the function returns; else None."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "a generator"
    return "a coroutine" if inspect.iscoroutinefunction(function) else None


def _undecorated(function: Any, kind: str, given: dict[str, Any]) -> Any:
    """Return a generator or coroutine function undecorated, so that `inspect` still recognises it.

    Raises:
        TraceError: ``on_unsupported="raise"``.
    """
    name, options = getattr(function, "__name__", repr(function)), resolve(given)
    reason, advice = f"each call makes {kind}", "decorate the functions that it calls"
    if options.on_unsupported == "raise" and not options.disable:
        raise TraceError(name, reason, advice)
    if not options.disable:
        warnings.warn(f"{name} stays as it is: {reason}. What to do: {advice}", HjitWarning, stacklevel=stack_level())
    return function


def _unpickle_bound(given: Any, options: dict[str, Any]) -> Any:
    return pipeline(given, **options)


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


class Decorator(Protocol):
    """`pipeline` with its options, for type checkers."""

    @overload
    def __call__(self, function: staticmethod[P, R], /) -> staticmethod[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: classmethod[Own, P, R], /) -> classmethod[Own, P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Pipeline[P, R]: ...


@overload
def pipeline(  # type: ignore[overload-overlap]
    function: staticmethod[P, R], **given: Unpack[GivenOptions]
) -> staticmethod[P, R]: ...


@overload
def pipeline(function: classmethod[Own, P, R], **given: Unpack[GivenOptions]) -> classmethod[Own, P, R]: ...


@overload
def pipeline(function: Callable[P, R], **given: Unpack[GivenOptions]) -> Pipeline[P, R]: ...


@overload
def pipeline(function: None = None, **given: Unpack[GivenOptions]) -> Decorator: ...


def pipeline(function: Any = None, **given: Any) -> Any:
    """Compile a NumPy image function: ``@hjit.pipeline``, ``@hjit.pipeline(verify="off")`` or ``hjit.pipeline(f)``.

    The decorated function takes and returns what the plain one does: arrays of any shape, strides and dtype, numbers,
    and any other objects. Coroutine and generator functions, whose calls compute nothing, are returned undecorated,
    with an `HjitWarning`.

    Args:
        given: options of `hjit.options`; they take precedence over those of a ``with`` block and of the environment.

    Raises:
        OptionError: an unknown option or value.
        TypeError: `function` is not callable.
        TraceError: ``on_unsupported="raise"``, and it is a coroutine or a generator function.
    """
    checked(given)
    if function is None:
        return lambda f: pipeline(f, **given)
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(pipeline(function.__func__, **given))
    if not callable(function):
        raise TypeError(f"pipeline decorates a function, not {function!r}")
    if (kind := _lazy_kind(function)) is not None:
        return _undecorated(function, kind, given)
    whole = function.py_func if isinstance(function, BoundPipeline) else function
    bound = _bound_method(whole)
    if bound is not None:
        is_decorated = isinstance(whole, types.MethodType) and whole.__func__ is not bound[0]
        return BoundPipeline(types.MethodType(*bound) if is_decorated else whole, Pipeline(bound[0], given), bound[1])
    return Pipeline(function, given)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=state.after_fork)
