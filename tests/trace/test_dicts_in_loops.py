"""Dicts and sets that loops fill or ask: counts, labels, colours, visited pixels, tables."""

from __future__ import annotations

from typing import Any

import numpy as np


def alike(ours: Any, theirs: Any) -> bool:
    """Are two results of the same types, in the same order, and bit for bit the same?"""
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, dict):
        is_same = getattr(ours, "default_factory", None) is getattr(theirs, "default_factory", None)
        return is_same and alike([*ours.items()], [*theirs.items()])
    if isinstance(theirs, (tuple, list, set)):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(theirs, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs) and ours.strides == theirs.strides
    return bool(ours == theirs) or (ours != ours and theirs != theirs)
