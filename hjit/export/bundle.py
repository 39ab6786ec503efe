"""`hjit.bundle`: the kernels of some pipelines in one file, loaded later without tracing, search or compilation."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hjit.call.build import Request
from hjit.call.variant import GONE
from hjit.errors import HjitError, OptionError
from hjit.export.compiling import compiled
from hjit.export.describing import check
from hjit.export.description import Description
from hjit.export.matching import Arguments, binder, signature_of, sizes_of
from hjit.export.stored import (
    description_from_json,
    description_to_json,
    signature_from_json,
    signature_to_json,
    write,
)
from hjit.export.targets import Platform
from hjit.export.this_machine import facts
from hjit.kernels.runtime import backend, features
from hjit.kernels.runtime.sizes import evaluate
from hjit.trace.capture.trace import PyTree, flatten_arguments


def bundle(path: str | os.PathLike[str], *items: Any) -> None:
    """Write the kernels of pipelines to a file for `hjit.load`.

    Args:
        items: pipelines that have been called: the kernels of all their calls; or tuples of a pipeline, a method that
            is one or a partial of one, and the arguments of a call, ``(f, img, 0.5)``. A kernel serves other sizes, and
            other numbers, where an exported function does; see `Pipeline.export`.

    Raises:
        HjitError: a function needs Python when it runs, or has not been called; or it is no pipeline.
        OptionError: the pipelines have several targets, or a GPU.
        OSError: the file cannot be written.
    """
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    given = [_item(i) for i in items]
    targets = {i.pipeline.in_force()[0].target for i in given}
    if len(targets) != 1 or "cuda" in targets:
        raise OptionError(f"a bundle is for one target, a CPU: {', '.join(sorted(targets)) or 'no pipeline is given'}")
    (target,) = targets
    by_name: dict[str, _Item] = {}
    for i in given:
        if by_name.setdefault(i.name, i).identity != i.identity:
            raise HjitError(f"two functions are called {i.name}: a bundle has its functions by name")
    where = Platform(target, "", "", features.target_features(target))
    signatures = {name: signature_to_json(signature_of(i.function)) for name, i in by_name.items()}
    found: list[tuple[Description, bytes]] = []
    for i in given:
        bind = binder(i.name, signature_from_json(signatures[i.name]))  # as calls of the file will be
        for args, kwargs in i.calls():
            structure, leaves = flatten_arguments(*bind(*args, **kwargs))
            if not _is_served(i.name, found, structure, leaves):
                found.append(_kernel(i, f"hjit_bundle{len(found)}", structure, leaves, where))
    write(Path(path), {**facts(target), "functions": signatures}, found)


@dataclass(frozen=True, slots=True)
class _Item:
    """What a bundle is to have.

    Attributes:
        function: in Python, as it is called.
        pipeline: of it, or of what it binds arguments of.
        args: of the call that it is to serve; None where it serves those that there were.
    """

    function: Any
    pipeline: Any
    args: tuple[Any, ...] | None

    @property
    def name(self) -> str:
        return str(self.pipeline.__name__)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What tells its function from others: methods and partials are made anew wherever they are named."""
        match self.function:
            case types.MethodType() as method:
                return id(method.__func__), id(method.__self__)
            case functools.partial() as partial:
                bound = *partial.args, *partial.keywords.values()
                return id(partial.func), *partial.keywords, *map(id, bound)
        return (id(self.function),)

    def calls(self) -> Iterator[Arguments]:
        """The arguments that kernels are made for."""
        if self.args is not None:
            return iter([(self.args, {})])
        if self.function is not self.pipeline.py_func:
            raise HjitError(
                f"{self.name} has arguments bound. What to do: say which calls it is to serve: ({self.name}, ...)"
            )
        return _calls(self.pipeline)


def _item(given: Any) -> _Item:
    pipeline: Any
    f, args = (given[0], given[1:]) if isinstance(given, tuple) and given else (given, None)
    match f:
        case types.MethodType() if _is_pipeline(pipeline := f.__func__):
            return _Item(types.MethodType(pipeline.py_func, f.__self__), pipeline, args)
        case functools.partial() if _is_pipeline(pipeline := f.func):
            return _Item(functools.partial(pipeline.py_func, *f.args, **f.keywords), pipeline, args)
    if _is_pipeline(f):
        return _Item(f.method if hasattr(type(f), "method") else f.py_func, f, args)
    advice = ""
    if callable(f) and not isinstance(f, type):
        advice = ". What to do: give hjit.pipeline of it, with the arguments of a call"
        if _is_pipeline(inspect.unwrap(f, stop=_is_pipeline)):
            advice += ", or the pipeline that it wraps"
    raise HjitError(
        f"a bundle is made of pipelines, or of tuples of one and its arguments, not of a {type(f).__name__}{advice}"
    )


def _is_pipeline(f: Any) -> bool:
    """Is it one, and not what `functools.wraps` has given the attributes of one?"""
    return hasattr(type(f), "in_force")


def _calls(pipeline: Any) -> Iterator[Arguments]:
    """The arguments of the calls that a pipeline has had."""
    is_called = False
    name = pipeline.__name__
    for entry in pipeline.entries:
        if entry.plain is not None or entry.parts is not None:
            why = entry.plain or "it runs in parts, by Python"
            advice = f"What to do: say which calls it is to serve: ({name}, ...)"
            raise HjitError(f"{name} has calls without a kernel of all of it: {why}. {advice}")
        for v in entry.variants:
            is_called = True
            check(v.trace)  # its example has no values to decide on
            structure, leaves = v.example
            if any(x is GONE for x in leaves):
                raise HjitError(
                    f"{name} was called with objects that are neither arrays, numbers nor texts. What to do: "
                    f"make them part of the function, or plain arguments; of a method give (object.{name}, ...)"
                )
            yield structure.build(leaves.__getitem__)
    if not is_called:
        raise HjitError(f"{name} has not been called. What to do: call it, or give arguments: ({name}, ...)")


def _is_served(
    name: str, kernels: Sequence[tuple[Description, bytes]], structure: PyTree, leaves: Sequence[Any]
) -> bool:
    """Has one of the kernels been made for such arguments?"""
    for d, _ in kernels:
        there = description_from_json(description_to_json(d), d.data)
        n = sizes_of(there, structure, leaves) if d.name == name else ""
        if not isinstance(n, str) and there.numbers.values(leaves, functools.partial(_size, n)) is not None:
            return True
    return False


def _size(n: Sequence[int], encoded: Any) -> int:
    return evaluate(encoded, n)


def _kernel(i: _Item, entry: str, structure: PyTree, leaves: list[Any], where: Platform) -> tuple[Description, bytes]:
    options, scheduler = i.pipeline.in_force()
    request = Request(i.function, structure, leaves, options, scheduler)
    found = compiled(request, i.name, entry, where)
    code = backend.compile_module(found.lowered.llvm, entry, where.name)
    return found.description, code
