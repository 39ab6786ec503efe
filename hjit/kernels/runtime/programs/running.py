"""Running loop programs, bound to sizes: the loops of a trace that a Graph cannot express.

How a kernel is bound is on disk, too: a process that finds it there loads no compiler.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import hjit.cache as cache
from hjit.kernels.runtime import launch
from hjit.kernels.runtime.kernel import Bound, Parameters, kernel_named
from hjit.options import Options
from hjit.process import debug, machine
from hjit.trace.ir.expressions import walk
from hjit.trace.ir.poly import Poly, Sym, deep_atoms
from hjit.trace.ir.programs.steps import Loop, Program, definitions, every, exprs

log = logging.getLogger("hjit")
Array = np.ndarray[Any, Any]
KIND = "bound"


def run_loops(options: Options, program: Program, sizes: Mapping[str, int]) -> Callable[[Sequence[Array]], bool]:
    """What runs a program on arrays in C order: its inputs, and those that it changes, in place.

    It is False where an index is out of bounds, or NumPy refuses something: then these hold anything.

    Raises:
        CompileError: it cannot be lowered.
        OverBudget: there is no time to compile it.
    """
    bound = _bound(options, program, sizes)

    def run(arrays: Sequence[Array]) -> bool:
        refused = np.zeros((), np.bool_)
        return bound.run((), [*arrays, refused], ()) and not refused

    return run


def _bound(options: Options, program: Program, sizes: Mapping[str, int]) -> Bound:
    symbols = tuple(dict.fromkeys(_symbols(program)))
    text = _text(program)
    entry = _entry(options, text, [sizes[name] for name in symbols])
    found = None if entry is None else _loaded(entry, options)
    if found is None:
        from hjit.kernels.runtime.programs.compiling import compiled

        found = compiled(options, program, text, symbols, sizes)
        if entry is not None:
            _store(entry, found, options)
    return found


def _text(program: Program) -> str:
    """What a program is, the dtypes of all that it computes included."""
    dtypes = (x.dtype.str for s in every(program.body) for x in walk(*exprs(s)))
    return f"{program}\n{' '.join(dtypes)}"


# -- on disk


def _entry(options: Options, text: str, sizes: Sequence[int]) -> str | None:
    """The name of what is known of a program at some sizes; None where there is to be nothing on disk."""
    if options.cache == "off" or debug.is_on() or not machine.processor():
        return None
    threads = str(launch.threads(options.num_threads))
    about = machine.processor(), options.target, cache.versions(), threads, str(options.fast_math)
    return "bound_" + cache.digest("program", text, str(sizes), *about)[:40]


def _loaded(entry: str, options: Options) -> Bound | None:
    """The kernel as it was bound in an earlier process.

    Raises:
        OverBudget: LLVM is busy with another function for ever.
    """
    text = cache.load(entry, options.cache_dir, options.cache, KIND)
    if text is None:
        return None
    try:
        data = json.loads(text)
        outputs = tuple((str(n), tuple(map(int, shape)), np.dtype(dtype)) for n, shape, dtype in data["outputs"])
        kept, streamed = (bytes.fromhex(block) for block in data["blocks"])
        parameters = Parameters((), outputs, (), int(data["head"]), int(data["scratch"]), (kept, streamed))
        name = str(data["kernel"])
    except (ValueError, KeyError, TypeError) as error:
        log.debug("a stored program is not usable: %s", error)
        return None
    kernel = kernel_named(name, options)
    return None if kernel is None else Bound(kernel, parameters, options)


def _store(entry: str, bound: Bound, options: Options) -> None:
    p = bound.parameters
    data = {
        "kernel": bound.kernel.name,
        "outputs": [(n, shape, dtype.str) for n, shape, dtype in p.outputs],
        "head": p.head,
        "scratch": p.scratch_bytes,
        "blocks": [block.hex() for block in p.blocks],
    }
    about = {"versions": cache.versions()}
    cache.store(entry, json.dumps(data).encode(), about, options.cache_dir, options.cache, KIND)


# -- the sizes that it depends on


def _symbols(program: Program) -> Iterator[str]:
    """The run-time sizes that it depends on, in its order."""
    for p in _polys(program):
        for a in deep_atoms(p):
            if isinstance(a, Sym):
                yield a.name


def _polys(program: Program) -> Iterator[Poly]:
    """All polynomials in it."""
    for shape in (*(i.shape for i in program.inputs), *(s.shape for s in (*program.arrays, *program.local))):
        yield from shape
    for s in every(program.body):
        if isinstance(s, Loop):
            yield from (s.begin, s.end)
        for d in definitions(s):
            yield from (*d.extents, *d.target)
        for e in walk(*exprs(s)):
            yield from e.polys
