"""hjit: a JIT decorator for NumPy image code.

    import hjit

    @hjit.pipeline
    def blur(img):
        return (img[:-2] + img[1:-1] + img[2:]) / 3

The decorated function gives NumPy's own results, compiled, vectorised and in parallel.
"""

import importlib
from typing import TYPE_CHECKING, Any

from hjit.errors import (
    CacheError,
    CompileError,
    DeviceError,
    HjitError,
    HjitWarning,
    ModelError,
    OptionError,
    ScheduleError,
    TraceError,
)
from hjit.options import options
from hjit.pipeline import Pipeline, pipeline
from hjit.version import __version__

if TYPE_CHECKING:
    from hjit.export.bundle import bundle
    from hjit.export.loading import Bundle, load
    from hjit.modules import Accelerated, accelerate
    from hjit.sched.hand.schedule import Schedule

__all__ = [
    "Accelerated",
    "Bundle",
    "CacheError",
    "CompileError",
    "DeviceError",
    "HjitError",
    "HjitWarning",
    "ModelError",
    "OptionError",
    "Pipeline",
    "Schedule",
    "ScheduleError",
    "TraceError",
    "__version__",
    "accelerate",
    "bundle",
    "load",
    "options",
    "pipeline",
]


_LATE = {  # loaded when they are asked for: most programs never do
    "Accelerated": "hjit.modules",
    "Bundle": "hjit.export.loading",
    "Schedule": "hjit.sched.hand.schedule",
    "accelerate": "hjit.modules",
    "bundle": "hjit.export.bundle",
    "load": "hjit.export.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'hjit' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATE[name]), name)
