"""`f.explain`: in words, how calls run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hjit.call.variant import Variant


def explained(name: str, plain: str | None, variants: Sequence[Variant], is_timed: bool) -> str:
    """How calls with some arguments run.

    Args:
        plain: why NumPy runs them; None: it does not.
        variants: what they run otherwise.
        is_timed: are calls being timed beside NumPy?
    """
    if plain is not None:
        why = plain or "a kernel that it has with others gave wrong results"
        return f"{name} runs as plain NumPy with such arguments: {why}"
    if not variants:
        return f"{name} has no kernel for such arguments yet: call it with them"
    text = "\n".join(f"{name} runs compiled: {', '.join(_parts(v))}" for v in variants)
    return f"{text}\nThe first calls are timed beside NumPy, interleaved with it" if is_timed else text


def _parts(v: Variant) -> Iterator[str]:
    """What a call runs, in words."""
    kernels = len(v.bounds)
    yield f"{kernels} kernel{'' if kernels == 1 else 's'}"
    for cut in v.rec.breaks:
        if cut.product is not None:
            first, second = cut.product.first, cut.product.second
            yield f"{cut.gives[0]} = {first.source} @ {second.source} by BLAS"
        else:
            where = ", on the host" if v.on_device else ""
            yield cut.operation if cut.call is None else f"{cut.operation} as it is{where}"
