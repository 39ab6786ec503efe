"""The cost model's weights: those that come with hjit, or the file that `HJIT_WEIGHTS` names.

If this machine was calibrated for them (`hjit calibrate`), they are corrected.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import hjit.cache as cache
from hjit.errors import ModelError, OptionError
from hjit.tuning.calibrated import kept, kept_text
from hjit.tuning.limits import WEIGHTS

if TYPE_CHECKING:
    from hjit.model.costs import Cost
    from hjit.model.network import Network


def weights_file() -> Path:
    """Where they are."""
    return Path(os.environ.get("HJIT_WEIGHTS") or WEIGHTS)


@functools.lru_cache(maxsize=1)
def weights() -> Cost:
    """The cost model of this process, corrected for this machine.

    Raises:
        OptionError: ``HJIT_WEIGHTS`` names no file of weights, or one for another version of hjit.
    """
    found = uncorrected()
    calibration = kept(file_digest())
    if calibration is None:
        return found
    from hjit.model.calibration import corrected

    return corrected(found, calibration.factors)


def uncorrected() -> Network:
    """The weights as they are in the file.

    Raises:
        OptionError: as `weights`.
    """
    from hjit.model.network import load  # not needed where nothing is searched

    file = weights_file()
    try:
        return load(file)
    except (OSError, ModelError) as error:
        if file == WEIGHTS:
            raise
        raise OptionError(f"HJIT_WEIGHTS={str(file)!r}: {error}") from None


def file_digest() -> str:
    """Of the file's contents.

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


@functools.lru_cache(maxsize=1)
def weights_digest() -> str:
    """Of all that predictions follow from: what they predicted is not what others do.

    Raises:
        OptionError: ``HJIT_WEIGHTS`` names no file.
    """
    digest = file_digest()
    return digest if kept(digest) is None else cache.digest(digest, kept_text())
