"""What a call may come to besides a result."""

from __future__ import annotations

import enum
from typing import Final


class Outcome(enum.Enum):
    """MISS: no variant serves the values of this call. PLAIN: NumPy is to run it. PARTS: Python is, with compiled
    parts."""

    MISS = enum.auto()
    PLAIN = enum.auto()
    PARTS = enum.auto()


MISS: Final = Outcome.MISS
PLAIN: Final = Outcome.PLAIN
PARTS: Final = Outcome.PARTS
