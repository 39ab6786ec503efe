"""`hjit.bundle`: the kernels of some pipelines in a file, to be loaded without tracing, searching and compiling."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
        items: pipelines that have been called: the kernels of all their calls; or tuples of a pipeline and the
            arguments of a call, ``(f, img, 0.5)``. A kernel serves other sizes, and other numbers, where an exported
            function does; see `Pipeline.export`.

    Raises:
        HjitError: a function needs Python when it runs, or has not been called; or it is no pipeline.
        OptionError: the pipelines have several targets, or a GPU.
        OSError: the file cannot be written.
    """
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    targets = {_pipeline(i).in_force()[0].target for i in items}
    if len(targets) != 1 or "cuda" in targets:
        raise OptionError(f"a bundle is for one target, a CPU: {', '.join(sorted(targets)) or 'no pipeline is given'}")
    (target,) = targets
    by_name: dict[str, Any] = {}
    for f in map(_pipeline, items):
        if by_name.setdefault(f.__name__, f.py_func) is not f.py_func:
            raise HjitError(f"two functions are called {f.__name__}: a bundle has its functions by name")
    where = Platform(target, "", "", features.target_features(target))
    signatures = {name: signature_to_json(signature_of(f)) for name, f in by_name.items()}
    found: list[tuple[Description, bytes]] = []
    for item in items:
        f = _pipeline(item)
        bind = binder(f.__name__, signature_from_json(signatures[f.__name__]))  # as calls of the file will be
        for args, kwargs in _calls(item):
            structure, leaves = flatten_arguments(*bind(*args, **kwargs))
            if not _is_served(f.__name__, found, structure, leaves):
                found.append(_kernel(f, f"hjit_bundle{len(found)}", structure, leaves, where))
    write(Path(path), {**facts(target), "functions": signatures}, found)


def _pipeline(item: Any) -> Any:
    f = item[0] if isinstance(item, tuple) and item else item
    if not hasattr(f, "py_func"):
        raise HjitError(
            f"a bundle is made of pipelines, or of tuples of one and its arguments, not of a {type(f).__name__}"
        )
    return f


def _calls(item: Any) -> Iterator[Arguments]:
    """The arguments that kernels are made for."""
    if isinstance(item, tuple):
        yield item[1:], {}
        return
    is_called = False
    for entry in item.entries:
        if entry.plain is not None or entry.parts is not None:
            why = entry.plain or "it runs in parts, by Python"
            advice = f"What to do: say which calls it is to serve: ({item.__name__}, ...)"
            raise HjitError(f"{item.__name__} has calls without a kernel of all of it: {why}. {advice}")
        for v in entry.variants:
            is_called = True
            check(v.trace)  # its example has no values to decide on
            structure, leaves = v.example
            if any(x is GONE for x in leaves):
                raise HjitError(
                    f"{item.__name__} was called with objects that are neither arrays, numbers nor texts. What to do: "
                    "make them part of the function, or plain arguments"
                )
            yield structure.build(leaves.__getitem__)
    if not is_called:
        raise HjitError(
            f"{item.__name__} has not been called. What to do: call it, or give arguments: ({item.__name__}, ...)"
        )


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


def _kernel(f: Any, entry: str, structure: PyTree, leaves: list[Any], where: Platform) -> tuple[Description, bytes]:
    options, scheduler = f.in_force()
    found = compiled(f.py_func, f.__name__, entry, structure, leaves, options, scheduler, where)
    code = backend.compile_module(found.lowered.llvm, entry, where.name)
    return found.description, code
