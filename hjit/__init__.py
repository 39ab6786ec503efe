"""hjit: a JIT decorator for NumPy image code.

    import hjit

    @hjit.pipeline
    def blur(img):
        return (img[:-2] + img[1:-1] + img[2:]) / 3

The decorated function gives NumPy's own results, compiled, vectorised and in parallel.
"""

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


def __getattr__(name: str) -> Any:
    if name == "Schedule":  # loaded when it is asked for: most programs never do
        from hjit.sched.hand.schedule import Schedule

        return Schedule
    if name in ("Accelerated", "accelerate"):
        from hjit import modules

        return getattr(modules, name)
    if name == "bundle":
        from hjit.export.bundle import bundle

        return bundle
    if name in ("Bundle", "load"):
        from hjit.export import loading

        return getattr(loading, name)
    raise AttributeError(f"module 'hjit' has no attribute {name!r}")
