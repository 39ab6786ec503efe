"""The kernels of a trace on disk, bound to sizes, under a key made of what the trace recorded; also kernels that
evaluated decisions while tracing.

A later process that records the same trace at the same sizes loads the kernels from here: it neither canonicalises nor
looks up schedules, and does not import the modules for that. An entry has the names of the kernels and their parameter
blocks, with inputs and stages by position, and digests of the plans that it was made from. It is not used if a kernel
is gone, or a plan is gone or has changed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hjit.cache as cache
from hjit.kernels.runtime import kernel, launch
from hjit.kernels.runtime.kernel import Bound, Parameters
from hjit.options import Options
from hjit.process import debug, machine
from hjit.trace.ir.key import write_graph
from hjit.trace.tracing.recording.recorder import Recorder
from hjit.tuning.calibrated import kept_text
from hjit.tuning.weights import weights_file

log = logging.getLogger("hjit")

KIND = "bound"


@dataclass(frozen=True, slots=True)
class StoredKernels:
    """The entry of a trace; it may not exist on disk yet.

    Attributes:
        positions: for each recorded name its position: i0, i1 are inputs, s0 a stage, c0 a scalar.
    """

    name: str
    positions: Mapping[str, str]
    options: Options

    def load(self) -> tuple[Bound | None, ...] | None:
        """The kernels of the segments, bound to the sizes; None if there is no valid entry.

        Raises:
            OverBudget: LLVM hangs on another function.
        """
        text = cache.load(self.name, self.options.cache_dir, self.options.cache, KIND)
        if text is None:
            return None
        names = {position: name for name, position in self.positions.items()}
        try:
            data = json.loads(text)
            if any(self._plan_digest(plan) != digest for plan, digest in data["plans"]):
                return None
            if any(self._plan_digest(plan) is not None for plan in data["absent"]):
                return None
            segments = [None if x is None else (str(x["kernel"]), _parameters(x, names)) for x in data["segments"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            log.debug("stored kernels are not usable: %s", error)
            return None
        found: list[Bound | None] = []
        for segment in segments:
            loaded = None if segment is None else kernel.kernel_named(segment[0], self.options)
            if segment is not None and loaded is None:
                return None
            found.append(None if segment is None or loaded is None else Bound(loaded, segment[1], self.options))
        return tuple(found)

    def store(self, kernels: Sequence[Bound | None], plans: Sequence[str] = (), absent: Sequence[str] = ()) -> None:
        """Store kernels for later processes; not if a plan that they were made from was not stored, which happens if
        not all candidates could be timed.

        Args:
            plans: the cache entries of the plans that they were made from.
            absent: cache entries of plans that would have been used, had they existed.
        """
        digests = [(plan, self._plan_digest(plan)) for plan in plans]
        used = {n for b in kernels if b is not None for n in (*b.inputs, *(x for x, *_ in (*b.outputs, *b.scalars)))}
        if self.options.cache != "rw" or any(d is None for _, d in digests) or not used <= self.positions.keys():
            return
        segments = [None if b is None else self._description(b) for b in kernels]
        text = json.dumps({"plans": digests, "absent": [*absent], "segments": segments}).encode()
        about = {"versions": cache.versions()}
        cache.store(self.name, text, about, self.options.cache_dir, self.options.cache, KIND)

    def _description(self, bound: Bound) -> dict[str, Any]:
        """See `_parameters`."""
        at, p = self.positions, bound.parameters
        return {
            "kernel": bound.kernel.name,
            "inputs": [at[n] for n in p.inputs],
            "outputs": [(at[n], shape, dtype.str) for n, shape, dtype in p.outputs],
            "scalars": [(at[n], dtype.str) for n, dtype in p.scalars],
            "head": p.head,
            "scratch": p.scratch_bytes,
            "blocks": [block.hex() for block in p.blocks],
        }

    def _plan_digest(self, plan: str) -> str | None:
        """Of a plan as it is on disk now."""
        found = cache.load(plan, self.options.cache_dir, self.options.cache, "plan")
        return None if found is None else hashlib.sha256(found).hexdigest()


def _parameters(data: Mapping[str, Any], names: Mapping[str, str]) -> Parameters:
    """The parameters that `StoredKernels.store` has written.

    Raises:
        ValueError, KeyError, TypeError: it has not.
    """
    kept, streamed = (bytes.fromhex(block) for block in data["blocks"])
    return Parameters(
        tuple(names[at] for at in data["inputs"]),
        tuple((names[at], tuple(map(int, shape)), np.dtype(dtype)) for at, shape, dtype in data["outputs"]),
        tuple((names[at], np.dtype(dtype)) for at, dtype in data["scalars"]),
        int(data["head"]),
        int(data["scratch"]),
        (kept, streamed),
    )


def entry_of(
    rec: Recorder, goals: Sequence[Sequence[str]], options: Options, kind: str = "trace"
) -> StoredKernels | None:
    """The entry of a trace; None if it must not have one: the cache is off, it runs on a GPU, passes are printed, or
    the processor is unknown.

    Args:
        goals: the stages that each of its kernels computes.
        kind: "trace", or "decision" for a decision of an unfinished trace.
    """
    if options.cache == "off" or options.target == "cuda" or debug.is_on() or not machine.processor():
        return None
    text, positions = _recorded(rec, goals)
    parts = (
        kind,
        text,
        machine.processor(),
        options.target,
        cache.versions(),
        str(launch.threads(options.num_threads)),
        str(options.tune),
        str(options.fast_math),
        _weights(),
    )
    return StoredKernels("bound_" + cache.digest(*parts)[:40], positions, options)


@functools.lru_cache(maxsize=1)
def _weights() -> str:
    """What searches: the names of plans follow from its contents, which take longer to read."""
    with contextlib.suppress(OSError):
        s = weights_file().stat()
        return f"{weights_file()} {s.st_size} {s.st_mtime_ns} {kept_text()}"
    return ""


def _recorded(rec: Recorder, goals: Sequence[Sequence[str]]) -> tuple[str, dict[str, str]]:
    """All that kernels follow from: what was recorded, the stages that are wanted, sizes and strides; and where each
    name is in that text."""
    w = write_graph(rec.graph(()))
    lines = ["goal " + ",".join(w.names[n] for n in goal) for goal in goals]
    lines += [f"equal {w.poly(a)} {w.poly(b)}" for a, b in rec.equations]
    lines += [f"strides {s.array.strides}" for s in rec.inputs.values()]
    lines.append(f"sizes {[rec.sizes[name] for name in w.symbols]}")
    return "\n".join([*w.lines, *lines]), w.names
