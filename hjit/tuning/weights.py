"""The cost model's weights: those that come with hjit, or one's own, of `hjit train`, which `HJIT_WEIGHTS` names."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hjit import cache
from hjit.errors import ModelError, OptionError
from hjit.tuning.limits import WEIGHTS

if TYPE_CHECKING:
    from hjit.model.costs import Cost


def weights_file() -> Path:
    """Where they are."""
    return Path(os.environ.get("HJIT_WEIGHTS") or WEIGHTS)


@functools.lru_cache(maxsize=1)
def weights() -> Cost:
    """The cost model of this process.

    Raises:
        OptionError: ``HJIT_WEIGHTS`` names no file of weights, or one for another version of hjit.
    """
    from hjit.model.network import load  # not needed where nothing is searched

    file = weights_file()
    try:
        return load(file)
    except (OSError, ModelError) as error:
        if file == WEIGHTS:
            raise
        raise OptionError(f"HJIT_WEIGHTS={str(file)!r}: {error}") from None


@functools.lru_cache(maxsize=1)
def weights_digest() -> str:
    """Of their contents: what they predicted is not what others do.

    Raises:
        OptionError: ``HJIT_WEIGHTS`` names no file.
    """
    file = weights_file()
    try:
        return cache.digest(file.read_bytes().hex())
    except OSError as error:
        if file == WEIGHTS:
            raise
        raise OptionError(f"HJIT_WEIGHTS={str(file)!r}: {error}") from None
