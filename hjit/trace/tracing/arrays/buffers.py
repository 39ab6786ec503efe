"""`TracedBuffer`: memory that traced arrays are views of. Writing to it makes a new version, which all of them see."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Load
from hjit.trace.ir.graph import identity
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.recording.recorder import current

serials = itertools.count()
COPY_IT = "copy it where it is taken: `a[k].copy()`"


class TracedBuffer:
    """Memory that tracers view.

    Attributes:
        version: the input or stage that holds the present contents; "" for known contents not yet needed by a stage.
        contents: what it holds, where that is known, else None.
        of_sizes: does what it holds follow from sizes? Then it is known to the trace, but no part of the kernel.
        argument: the name of the input whose memory this is, or "".
        strides: in bytes; None where the memory is in C order without gaps.
        serial: buffers made later have a larger one.
        last_read: when the contents were last used in a re-rolled loop, counted as `serial` is.
        octets: of a bool array to which bytes other than 0 and 1 were written: its version, and the bytes as uint8.
        viewed: of the copy of a part at a computed place, as ``a[k[0]]``, which is a view in NumPy: the memory that it
            is a copy of, and the version. It may not be written, nor read when the memory has another version.
    """

    __slots__ = (
        "_element",
        "argument",
        "contents",
        "dtype",
        "last_read",
        "octets",
        "of_sizes",
        "serial",
        "shape",
        "strides",
        "version",
        "viewed",
        "writeable",
    )

    def __init__(
        self,
        shape: Shape,
        dtype: np.dtype[Any],
        version: str,
        contents: np.ndarray[Any, Any] | None = None,
        argument: str = "",
        strides: tuple[int, ...] | None = None,
        writeable: bool = True,
    ) -> None:
        self.shape, self.dtype, self.version, self.contents = shape, dtype, version, contents
        self.argument, self.strides, self.writeable = argument, strides, writeable
        self.serial, self.last_read = next(serials), -1
        self.octets: tuple[str, Any] | None = None
        self.viewed: tuple[TracedBuffer, str] | None = None
        self._element: Load | None = None
        self.of_sizes = False

    def source(self) -> str:
        """The present version, made now where the contents are only known."""
        if not self.version:
            assert self.contents is not None
            self.version = current().constant(self.contents, self.of_sizes).input.name
        if self.viewed is not None and self.viewed[0].version != self.viewed[1]:
            raise current().error("indexing", "a view at a computed place is read after its array has changed", COPY_IT)
        return self.version

    def element(self) -> Load:
        """The element at the iteration dimensions: one expression while the version lasts."""
        source, found = self.source(), self._element
        if found is None or found.source != source:
            found = self._element = Load(source, identity(len(self.shape)), self.dtype)
        return found

    @property
    def root(self) -> TracedBuffer:
        """The memory itself, where this is another dtype's view of it."""
        return self

    def set_version(self, stage: str) -> None:
        """All views of the buffer see `stage` from now on; an argument is written back when the function ends.

        Raises:
            TraceError: it is a copy where NumPy has a view.
        """
        if self.viewed is not None:
            raise current().error("indexing", "a view at a computed place is written to", "write `a[k, 1:] += x`")
        current().changes.append((self, self.version, self.contents))
        self.version, self.contents = stage, None
        if self.argument:
            current().caller.written[self.argument] = stage
