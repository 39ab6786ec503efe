"""Settings of the process that outlive a function: a function that changes them must do so at every call.

A kernel would not. So they are put back after a trace, and a function that has not done so itself cannot be traced
as a whole: what changes them stays Python.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.process.restoring import surely
from hjit.trace.tracing.recording.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: the name of its setter for users, its getter, and its setter."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], Any]


def _collect_garbage(wanted: bool) -> None:
    gc.enable() if wanted else gc.disable()


SETTINGS = (
    Setting("numpy.seterr", np.geterr, lambda x: np.seterr(**x)),
    Setting("numpy.setbufsize", np.getbufsize, np.setbufsize),
    Setting("numpy.set_printoptions", np.get_printoptions, lambda x: np.set_printoptions(**x)),
    Setting("gc.enable or gc.disable", gc.isenabled, _collect_garbage),
)


@contextlib.contextmanager
def settings_kept(rec: Recorder) -> Iterator[None]:
    """A block after which all settings are restored.

    Raises:
        TraceError: it ends with one that it has changed.
    """
    before = [x.get() for x in SETTINGS]
    changed: list[str] = []

    def restore() -> None:
        for x, value in zip(SETTINGS, before, strict=True):
            if x.get() != value:
                changed.append(x.name)
                x.put(value)

    try:
        yield
    finally:
        surely(restore)
    if changed:
        raise rec.error(
            changed[0], "it changes a setting that outlives the function", "set it outside, or use np.errstate"
        )
