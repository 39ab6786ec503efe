"""The results of first calls, on disk: what a process has compared with NumPy need not be compared in the next one.

A verdict is known by the kernels and what is made of their results, as in `hjit.call.checks.first_calls`, and by the
bytecode of all functions that were traced. It is one of code on disk: what this process has compiled, it compares. That
kernels are wrong is not kept: each process finds and says it anew.
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
    """What is kept of a comparison.

    Attributes:
        flipped: elements that a decision on a rounded value had made other ones.
    """

    seconds: Seconds
    flipped: int = 0


def load(variant: Variant, options: Options) -> Kept | None:
    """Note which stores of a variant an earlier process has verified; what is kept of that.

    None: none of them, or the kernels are not those that it has compared.
    """
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
    """Keep that these stores of a variant, streaming ones (True) or not, have been verified."""
    if options.cache != "rw" or variant.on_device:
        return
    text, about = json.dumps([*kept.seconds, kept.flipped]).encode(), {"versions": cache.versions()}
    for streamed in stores:
        cache.store(_name(variant, streamed), text, about, options.cache_dir, options.cache, KIND)


def _name(variant: Variant, streamed: bool) -> str:
    codes = sorted(map(code_digest, variant.rec.codes))
    return "verdict_" + cache.digest(repr(variant.signature), *codes, str(streamed), cache.versions())[:40]
