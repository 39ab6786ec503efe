"""Storage of the cost model's corrections for this machine: one entry of the user's cache folder.

The entry is named after the processor and its caches, and records the weights that it corrects: weights of another
version are not corrected by it. `hjit.model.calibration` defines the corrections, `hjit calibrate` measures them.
"""

from __future__ import annotations

import functools
import json
import os
from typing import TYPE_CHECKING

import hjit.cache as cache
from hjit.errors import ModelError, OptionError
from hjit.options import resolve
from hjit.process import machine

if TYPE_CHECKING:
    from hjit.model.calibration import Calibration


def entry() -> str:
    """The name of the entry of this machine."""
    return "calibration_" + cache.digest(machine.kind())[:40]


@functools.lru_cache(maxsize=1)
def kept_text() -> str:
    """What is kept for this machine, as it is in the entry; "" where there is nothing, or no cache."""
    try:
        options = resolve({})
    except OptionError:  # it is said where a function is called
        return ""
    found = cache.load(entry(), options.cache_dir, options.cache, "facts")
    return "" if found is None else found.decode(errors="replace")


def kept(digest: str) -> Calibration | None:
    """The corrections of this machine for the weights of a digest; None where there are none.

    Args:
        digest: see `hjit.tuning.weights.file_digest`.
    """
    if not kept_text():
        return None
    from hjit.model.calibration import from_json  # not needed where nothing is calibrated

    try:
        data = json.loads(kept_text())
        return from_json(data["calibration"]) if data["weights"] == digest else None
    except (ModelError, ValueError, KeyError, TypeError, RecursionError):  # of another version, or damaged
        return None


def keep(calibration: Calibration, digest: str) -> bool:
    """Keep corrections for this machine; is that done?"""
    from hjit.model.calibration import to_json

    options = resolve({})
    text = json.dumps({"weights": digest, "calibration": to_json(calibration)})
    cache.store(entry(), text.encode(), {}, options.cache_dir, options.cache, "facts")
    kept_text.cache_clear()
    return kept_text() == text


def remove() -> bool:
    """Forget the corrections of this machine; were there any?"""
    options = resolve({})
    where = cache.folder(options.cache_dir, make=False)
    try:
        if where is None or options.cache != "rw":
            return False
        os.unlink(where / f"{entry()}.facts")
    except OSError:
        return False
    kept_text.cache_clear()
    return True
