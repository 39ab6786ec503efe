"""`f.explain`: in words, how calls run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hjit.variant import Variant


def explained(name: str, plain: str | None, variants: Sequence[Variant], is_timed: bool) -> str:
    """How calls with some arguments run.

    Args:
        plain: why NumPy runs them; None: it does not.
        variants: what they run otherwise.
        is_timed: are calls being timed beside NumPy?
    """
    if plain is not None:
        return f"{name} runs as plain NumPy with such arguments: {plain or 'a kernel that it has with others gave wrong results'}"
    if not variants:
        return f"{name} has no kernel for such arguments yet: call it with them"
    text = "\n".join(f"{name} runs compiled: {', '.join(_parts(v))}" for v in variants)
    return f"{text}\nThe first calls are timed beside NumPy, which runs by turns" if is_timed else text


def _parts(v: Variant) -> Iterator[str]:
    """What a call runs, in words."""
    kernels = len(v.bounds)
    yield f"{kernels} kernel{'' if kernels == 1 else 's'}"
    for event in v.rec.breaks:
        if event.product is not None:
            first, second = event.product.first, event.product.second
            yield f"{event.gives[0]} = {first.source} @ {second.source} by BLAS"
        else:
            yield event.operation if event.call is None else f"{event.operation} as it is"
