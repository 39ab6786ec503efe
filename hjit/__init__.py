"""hjit: a JIT decorator for NumPy image code.

    import hjit

    @hjit.pipeline
    def blur(img):
        return (img[:-2] + img[1:-1] + img[2:]) / 3

The decorated function gives NumPy's own results, compiled, vectorised and in parallel.
"""

from hjit.errors import CompileError, HjitError, HjitWarning, OptionError, ScheduleError, TraceError
from hjit.options import options
from hjit.pipeline import Pipeline, pipeline

__version__ = "0.1.0"
__all__ = ["CompileError", "HjitError", "HjitWarning", "OptionError", "Pipeline", "ScheduleError", "TraceError", "options", "pipeline"]
