"""Does NumPy raise or report divisions by zero, overflows and invalid values? Compiled code does neither."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy._core import umath

_settings: Any = getattr(umath, "_extobj_contextvar", None)  # holds another object after each change
_latest: tuple[Any, bool] = (None, False)  # such an object, and the answer


def are_reported() -> bool:
    """Does `numpy.errstate` or `numpy.seterr` ask for anything but "ignore" and "warn"?"""
    global _latest
    now = object() if _settings is None else _settings.get(None)
    known, answer = _latest
    if now is not known:
        answer = not {"ignore", "warn"}.issuperset(np.geterr().values())
        _latest = now, answer
    return answer
