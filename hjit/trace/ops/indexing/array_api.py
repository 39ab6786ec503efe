"""``at(x, i).set(y)`` of array-api-extra, by which SciPy writes to arrays of any package: its own source, traced."""

from __future__ import annotations

from typing import Any

from scipy._lib.array_api_extra import at

from hjit.trace.tracing import forward


class At:
    """What stands for an object of the class `at`."""

    def __init__(self, *args: Any) -> None:
        inner = at(*args)
        self._x, self._idx = inner._x, inner._idx

    def __getitem__(self, idx: Any) -> At:
        inner = at(self._x, self._idx)[idx]  # which refuses a second index
        return At(inner._x, inner._idx)

    def __getattr__(self, name: str) -> Any:
        return forward.clone(getattr(at, name)).__get__(self)
