"""Collecting the facts about a call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.call.arguments import is_dask_array, leaf_names
from hjit.call.variant import Variant
from hjit.errors import HjitError, Origin, TraceError
from hjit.kernels.runtime import features, launch
from hjit.model.feature_names import MACHINE
from hjit.options import Options
from hjit.process import machine
from hjit.report.performance.facts import BreakFacts, Facts, KernelFacts
from hjit.report.performance.kernels import Reading
from hjit.report.performance.source import source_of
from hjit.report.performance.timing import Times, timed
from hjit.trace.capture.trace import PyTree


@dataclass(frozen=True, slots=True)
class Call:
    """What is reported on.

    Attributes:
        pipeline: a `hjit.inspection.Inspectable`.
        entry: what it knows of such arguments; None: nothing.
        schedule: what is given to `use`.
    """

    pipeline: Any
    options: Options
    schedule: Any
    entry: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    structure: PyTree
    leaves: list[Any]


def facts_of(call: Call) -> Facts:
    """Gather what there is to say of a call."""
    p, leaves = call.pipeline, call.leaves
    names = leaf_names(p.py_func, call.structure, len(leaves))
    kernels, breaks, why = _kernels(call)
    lines: dict[Origin, float] = {}
    for k in kernels:
        for origin, seconds in k.lines.items():
            lines[origin] = lines.get(origin, 0.0) + seconds
    return Facts(
        p.__name__,
        tuple((n, _about(x)) for n, x in zip(names, leaves, strict=True)),
        {n: getattr(call.options, n) for n in ("tune", "num_threads", "target", "fast_math")},
        p.explain(*call.args, **call.kwargs),
        repr(p.stats),
        _machine(call.options),
        kernels,
        why,
        breaks,
        source_of(p.py_func, lines, breaks),
    )


def _about(x: Any) -> str:
    """An argument in words."""
    if isinstance(x, np.ndarray) or hasattr(x, "dtype"):
        return f"{x.dtype}[{', '.join(map(str, x.shape))}]"
    text = repr(x)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _machine(options: Options) -> dict[str, float]:
    """Facts of the machine by name; those of `hjit.process.machine`."""
    if options.target == "cuda":
        return {}
    threads, vector = launch.threads(options.num_threads), features.schedule_target("cpu").vector_bytes
    return dict(zip(MACHINE, machine.facts(threads, vector, options.cache_dir, options.cache), strict=True))


def _kernels(call: Call) -> tuple[tuple[KernelFacts, ...], tuple[BreakFacts, ...], str]:
    """The kernels of a call, its breaks, and why there is no kernel."""
    p, entry = call.pipeline, call.entry
    if any(map(is_dask_array, call.leaves)):
        return (
            (),
            (),
            "chunks of Dask's arrays have kernels of their own: report on an array of NumPy that is like a chunk",
        )
    if entry is not None and entry.plain is not None:
        return (), (BreakFacts(None, "plain NumPy", entry.plain or "a kernel gave wrong results"),), entry.plain
    if entry is not None and entry.parts is not None and p.parts is not None:
        found, breaks = _of_parts(p, call.options, "")
        why = "" if found else "no part of it has been reached by a call yet"
        return tuple(found), tuple(dict.fromkeys(breaks)), why
    try:
        variant = p.variant_of(call.args, call.kwargs, call.options, call.schedule)
    except HjitError as error:
        why = f"{error}\nCall the function, and report again: what it is taken apart into is known then"
        return (), (_broken(error),), why
    times: Times | None = None
    on_cpu = () if variant.on_device else (variant, *(() if entry is None else entry.variants))
    for v in dict.fromkeys(on_cpu):
        times = timed(v, call.leaves, call.options)
        if times is not None:
            variant = v
            break
    untimed = "" if times is not None else "the arguments lead another way through the function than this one"
    reading = Reading(variant, call.options, call.schedule is not None, "", times or Times(), untimed)
    kernels = tuple(reading.kernels())
    why = "" if kernels else "it computes nothing that needs a kernel"
    return kernels, tuple(_breaks(variant, times or Times())), why


def _broken(error: HjitError) -> BreakFacts:
    if isinstance(error, TraceError):
        line = None if error.origin is None else error.origin.line
        return BreakFacts(line, error.operation, f"{error.reason}. {error.advice}".strip())
    return BreakFacts(None, type(error).__name__, str(error))


def _breaks(variant: Variant, times: Times) -> Iterator[BreakFacts]:
    """What cuts a trace: between two kernels of it Python, NumPy or BLAS computes something."""
    for number, b in enumerate(variant.breaks):
        if b is None:
            continue
        needs, seconds = ", ".join(b.needs) or "nothing computed", times.breaks.get(number)
        if b.product is not None:
            what = f"{b.gives[0]} = {b.product.first.source} @ {b.product.second.source}"
            yield BreakFacts(None, what, "BLAS computes it", seconds)
        elif b.call is None:
            yield BreakFacts(None, "a value", f"the code needs the value of {needs}: {b.value} when it was traced")
        else:
            yield BreakFacts(None, b.operation, f"it is called as it is, on {needs}", seconds)


def _of_parts(p: Any, options: Options, where: str) -> tuple[list[KernelFacts], list[BreakFacts]]:
    """The kernels of a function that Python runs, but for parts of it, and why it does."""
    kernels: list[KernelFacts] = []
    breaks: list[BreakFacts] = []
    text, line = (None, None) if p.parts.kept is None else p.parts.kept
    breaks.append(BreakFacts(line, text or f"{p.__name__} is not traced as a whole", p.parts.why))
    for part, first, last in p.parts.parts:
        here = f"{where}line{f' {first}' if first == last else f's {first} to {last}'}"
        if part.plain:
            breaks.append(BreakFacts(first, "plain NumPy", part.plain))
        elif part.parts is not None:
            more, others = _of_parts(part, options, f"{here}, ")
            kernels += more
            breaks += others
        for e in part.entries:
            for v in e.variants:
                kernels += Reading(
                    v, options, False, here, Times(), "the part's own arguments are not available"
                ).kernels()
                breaks += _breaks(v, Times())
    return kernels, breaks
