"""Verdicts on disk: kernels that one process has compared with NumPy need not be compared in the next one.

The key is made of the kernels and how results are made of them, as in `hjit.call.checks.first_calls`, and of the
bytecode of all functions that were traced. Verdicts apply to kernels loaded from disk only: a process verifies kernels
that it has compiled itself. That a kernel is wrong is not stored; each process finds and reports it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass

import hjit.cache as cache
from hjit.call.stored.names import code_digest
from hjit.call.variant import Variant
from hjit.options import Options

log = logging.getLogger("hjit")

KIND = "verdict"
Seconds = tuple[float, float]  # that the kernels took, and NumPy, when they were compared


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored verdict.

    Attributes:
        seconds: that the kernels and NumPy took.
        flipped: elements that differed because a decision on a rounded value went the other way.
    """

    seconds: Seconds
    flipped: int = 0


def load(variant: Variant, options: Options) -> Kept | None:
    """Mark the kinds of stores of a variant that an earlier process has verified; the verdict, or None if there is
    none."""
    if options.cache == "off" or variant.on_device or not all(b.kernel.from_cache for b in variant.bounds):
        return None
    found: Kept | None = None
    for streamed in (False, True) if variant.may_stream else (False,):
        text = cache.load(_name(variant, streamed), options.cache_dir, options.cache, KIND)
        if text is None:
            continue
        try:
            kernels, numpy, flipped = json.loads(text)
            kept = Kept((float(kernels), float(numpy)), int(flipped))
        except (ValueError, TypeError, RecursionError) as error:
            log.debug("a verdict is not usable: %s", error)
            continue
        variant.verified_stores.add(streamed)
        found = kept if found is None or kept.flipped > found.flipped else found
    return found


def store(variant: Variant, stores: Iterable[bool], options: Options, kept: Kept) -> None:
    """Store that these kinds of stores of a variant (True: streaming) have been verified."""
    if options.cache != "rw" or variant.on_device:
        return
    text, about = json.dumps([*kept.seconds, kept.flipped]).encode(), {"versions": cache.versions()}
    for streamed in stores:
        cache.store(_name(variant, streamed), text, about, options.cache_dir, options.cache, KIND)


def _name(variant: Variant, streamed: bool) -> str:
    codes = sorted(map(code_digest, variant.rec.codes))
    return "verdict_" + cache.digest(repr(variant.signature), *codes, str(streamed), cache.versions())[:40]
