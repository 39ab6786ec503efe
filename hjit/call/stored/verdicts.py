"""The results of first calls, on disk: what a process has compared with NumPy need not be compared in the next one.

A verdict is known by the kernels and what is made of their results, as in `hjit.call.checks.first_calls`, and by the
bytecode of all functions that were traced. It is one of code on disk: what this process has compiled, it compares. Only
that a comparison has found nothing is kept: neither a wrong kernel nor a decision that flipped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

import hjit.cache as cache
from hjit.call.stored.names import code_digest
from hjit.call.variant import Variant
from hjit.options import Options

log = logging.getLogger("hjit")

KIND = "verdict"
Seconds = tuple[float, float]  # that the kernels took, and NumPy, when they were compared


def load(variant: Variant, options: Options) -> Seconds | None:
    """Note which stores of a variant an earlier process has verified; the seconds of its kernels and of NumPy then.

    None: none of them, or the kernels are not those that it has compared.
    """
    if options.cache == "off" or variant.on_device or not all(b.kernel.from_cache for b in variant.bounds):
        return None
    found = None
    for streamed in (False, True) if variant.may_stream else (False,):
        text = cache.load(_name(variant, streamed), options.cache_dir, options.cache, KIND)
        if text is None:
            continue
        try:
            kernels, numpy = json.loads(text)
            seconds = float(kernels), float(numpy)
        except (ValueError, TypeError, RecursionError) as error:
            log.debug("a verdict is not usable: %s", error)
            continue
        variant.verified_stores.add(streamed)
        found = found or seconds
    return found


def store(variant: Variant, stores: Iterable[bool], options: Options, seconds: Seconds) -> None:
    """Keep that these stores of a variant, streaming ones (True) or not, have been verified."""
    if options.cache != "rw" or variant.on_device:
        return
    text, about = json.dumps(seconds).encode(), {"versions": cache.versions()}
    for streamed in stores:
        cache.store(_name(variant, streamed), text, about, options.cache_dir, options.cache, KIND)


def _name(variant: Variant, streamed: bool) -> str:
    codes = sorted(map(code_digest, variant.rec.codes))
    return "verdict_" + cache.digest(repr(variant.signature), *codes, str(streamed), cache.versions())[:40]
