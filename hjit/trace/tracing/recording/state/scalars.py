"""Host scalars that are parameters of the kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import ScalarRef
from hjit.trace.ir.graph import Scalar
from hjit.trace.tracing.scalars.host import HostScalar, TapeEntry


@dataclass(eq=False, slots=True)
class ScalarParameters:
    """Scalar parameters: entries of the tape as values of a dtype.

    Attributes:
        hosts: the host scalars, by name.
    """

    hosts: dict[str, HostScalar] = field(default_factory=dict)
    _names: dict[tuple[int, str], str] = field(default_factory=dict)  # by entry of the tape and dtype

    def parameter(self, host: HostScalar, dtype: Any) -> ScalarRef:
        """A host scalar as a parameter of `dtype`."""
        dtype = np.dtype(dtype)
        key = (host.k, dtype.str)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"s{len(self._names)}"
            self.hosts[name] = host
        return ScalarRef(name, dtype)

    def declared(self) -> tuple[Scalar, ...]:
        """The parameters, as a Graph declares them."""
        return tuple(Scalar(name, np.dtype(dtype)) for (_, dtype), name in self._names.items())

    def slots(self) -> dict[str, tuple[TapeEntry, np.dtype[Any]]]:
        """For each parameter, its entry of the tape and its dtype."""
        return {name: (TapeEntry(k), np.dtype(dtype)) for (k, dtype), name in self._names.items()}
