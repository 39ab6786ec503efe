"""``ndarray.view(dtype)``: the same memory as numbers of another dtype of the same size."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, Load, Op, cast
from hjit.trace.ir.graph import identity
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.tracer import Tracer
from hjit.trace.tracing.recording.recorder import current


def bitcast(e: Expr, dtype: np.dtype[Any]) -> Expr:
    """The bits of `e` as a number of `dtype`, which is as large; a byte that is not 0 is True."""
    return Op("bitcast", (e,), dtype) if "f" in (e.dtype.kind, dtype.kind) and e.dtype != dtype else cast(e, dtype)


class Reinterpreted(TracedBuffer):
    """A buffer's memory, seen as another dtype: what is written to either is seen by both."""

    __slots__ = ("_seen", "_version", "base")

    def __init__(self, base: TracedBuffer, dtype: np.dtype[Any]) -> None:
        self.base = base
        self._seen = self._version = ""
        super().__init__(base.shape, dtype, base.version, strides=base.strides, writeable=base.writeable)

    @property
    def root(self) -> TracedBuffer:
        return self.base

    @property
    def contents(self) -> np.ndarray[Any, Any] | None:
        return None if self.base.contents is None else self.base.contents.view(self.dtype)

    @contents.setter
    def contents(self, contents: np.ndarray[Any, Any] | None) -> None:
        """The base's contents are the only ones."""

    @property
    def version(self) -> str:
        return self.source() if self.base.version else ""

    @version.setter
    def version(self, stage: str) -> None:
        """Versions are the base's."""

    def source(self) -> str:
        rec, old = current(), self.base.source()
        if rec.loops or self._seen != old:  # a stage made in a loop belongs to its iterations
            octets = self.base.octets
            whole = identity(len(self.shape))
            load = octets[1].at(whole) if octets is not None and octets[0] == old else Load(old, whole, self.base.dtype)
            self._seen, self._version = old, rec.stage(bitcast(load, self.dtype), self.shape, self.dtype).name
        return self._version

    def set_version(self, stage: str) -> None:
        rec, base, whole = current(), self.base, identity(len(self.shape))
        load = Load(stage, whole, self.dtype)
        base.set_version(rec.stage(bitcast(load, base.dtype), self.shape, base.dtype).name)
        if base.dtype == bool and not rec.loops:
            octets = rec.stage(cast(load, np.dtype(np.uint8)), self.shape, np.uint8).name
            base.octets = base.version, Tracer(TracedBuffer(self.shape, np.dtype(np.uint8), octets), self.shape, whole)
