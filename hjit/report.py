"""What a person looks at: progress, differences from NumPy, and listings of Graphs, schedules and loops."""

from __future__ import annotations

import contextlib
import html
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

PROGRESS_AFTER = 1.0  # seconds


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a spinner on a terminal when the work inside takes longer than a second."""
    if not (hasattr(sys.stderr, "isatty") and sys.stderr.isatty()):
        yield
        return
    shown: list[Any] = []
    lock = threading.Lock()
    done = False

    def show() -> None:
        from rich.console import Console

        with lock:
            if not done:
                status = Console(stderr=True).status(text)
                status.start()
                shown.append(status)

    timer = threading.Timer(PROGRESS_AFTER, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            done = True
            timer.cancel()
            for status in shown:
                status.stop()


def difference(ours: Any, expected: Any, exact: bool) -> str | None:
    """Why two results are not the same, or None.

    Exact results have the same bits but for NaN's. Others may differ by the rounding of a few operations.
    """
    if isinstance(expected, (tuple, list)) or isinstance(expected, dict):
        if type(ours) is not type(expected) or len(ours) != len(expected):
            return f"a {type(ours).__name__} instead of a {type(expected).__name__}"
        keys = expected if isinstance(expected, dict) else range(len(expected))
        for k in keys:
            if isinstance(expected, dict) and k not in ours:
                return f"no item {k!r}"
            why = difference(ours[k], expected[k], exact)
            if why is not None:
                return why
        return None
    if isinstance(expected, (np.ndarray, np.generic)):
        return _array_difference(ours, expected, exact)
    if type(ours) is not type(expected):
        return f"a {type(ours).__name__} instead of a {type(expected).__name__}"
    return None if ours == expected or (ours != ours and expected != expected) else f"{ours!r} instead of {expected!r}"


def _array_difference(ours: Any, expected: Any, exact: bool) -> str | None:
    if type(ours) is not type(expected):
        return f"a {type(ours).__name__} instead of a {type(expected).__name__}"
    if ours.dtype != expected.dtype or ours.shape != expected.shape:
        return f"{ours.dtype} of shape {ours.shape} instead of {expected.dtype} of shape {expected.shape}"
    a, b = np.asarray(ours), np.asarray(expected)
    same = (a == b) | ((a != a) & (b != b))
    if np.all(same):
        return None
    if not exact:
        with np.errstate(all="ignore"):
            if b.dtype.kind == "f":
                finite = np.abs(b[np.isfinite(b)])
                scale = float(finite.max()) if finite.size else 0.0
                near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= 256 * np.finfo(b.dtype).eps * np.maximum(np.abs(b), scale))
            elif b.dtype.kind in "iu":
                near = np.abs(a.astype(np.float64) - b.astype(np.float64)) <= 1
            else:
                near = np.zeros(b.shape, bool)
        off = ~(same | near)
        # a decision on a rounded value may fall the other way in a few places
        if np.count_nonzero(off) <= 1e-4 * off.size and (b.dtype.kind != "f" or np.count_nonzero(off) == 0):
            return None
        same = same | near
    at = tuple(int(k) for k in np.argwhere(~same)[0])
    where = f"[{', '.join(map(str, at))}]" if at else ""
    return f"{np.count_nonzero(~same)} of {same.size} elements, the first at {where}: {a[at]} instead of {b[at]}"


class Listing:
    """Printable objects, one for each segment of a pipeline; a notebook shows them as HTML."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.parts))

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, k: int) -> Any:
        return self.parts[k]

    def _repr_html_(self) -> str:
        return "".join(map(_html, self.parts))


def _html(part: Any) -> str:
    from hjit.picture import graph_svg
    from hjit.sched.picture import schedule_html
    from hjit.sched.tree import Root
    from hjit.trace.graph import Graph

    text = f"<pre style='line-height:1.3'>{html.escape(str(part))}</pre>"
    if isinstance(part, Graph):
        return f"{graph_svg(part)}<details><summary>as text</summary>{text}</details>"
    return f"{schedule_html(part)}<details><summary>as text</summary>{text}</details>" if isinstance(part, Root) else text
