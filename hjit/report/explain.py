"""`f.explain`: in words, how calls run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hjit.call.parts import Parts
    from hjit.call.variant import Variant


PLAIN_NUMPY = " runs as plain NumPy: "


def reason(plain: str) -> str:
    """Of a warning that NumPy runs, why it does."""
    return plain.partition(PLAIN_NUMPY)[2] or plain or "a kernel that it has with others gave wrong results"


def explained(name: str, plain: str | None, variants: Sequence[Variant], is_timed: bool, is_host: bool) -> str:
    """How calls with some arguments run.

    Args:
        plain: why NumPy runs them; None: it does not.
        variants: what they run otherwise.
        is_timed: are calls being timed beside NumPy?
        is_host: are no arrays a GPU's?
    """
    if plain is not None:
        return f"{name} runs as plain NumPy with such arguments: {reason(plain)}"
    if not variants:
        return f"{name} has no kernel for such arguments yet: call it with them"
    text = "\n".join(
        f"{name} runs compiled: {', '.join((*_parts(v), *(_bands(v) if is_host else ())))}" for v in variants
    )
    return f"{text}\nThe first calls are timed beside NumPy, interleaved with it" if is_timed else text


def in_parts(name: str, parts: Parts, depth: int = 0) -> Iterator[str]:
    """The lines of a function that Python runs, but for parts of it: what each runs, and what is not compiled."""
    pad = "    " * depth
    yield f"{pad}{name} runs in Python, with compiled parts: {parts.why}"
    rows = [(first, last, tuple(_part(p, depth + 1))) for p, first, last in parts.parts]
    if parts.kept is not None:
        text, line = parts.kept
        rows.append((line, line, (f"Python: {text}",)))
    for first, last, (about, *more) in sorted(rows):
        yield f"{pad}    line{'' if first == last else 's'} {first if first == last else f'{first} to {last}'}: {about}"
        yield from more
    for function, p in parts.callees.made.values():
        if p is not function:
            about, *more = _part(p, depth + 1)
            yield f"{pad}    {function.__name__}, which is called there: {about}"
            yield from more


def _part(p: Any, depth: int) -> Iterable[str]:
    """What a part runs, over all its arguments; `p`: its pipeline."""
    if p.plain:
        return [f"plain NumPy: {p.plain}"]
    if p.parts is not None:
        first, *more = in_parts("", p.parts, depth)
        return [first.strip(), *more]
    found: dict[str, None] = {}
    for e in p.entries:
        if e.plain is not None:
            found[f"plain NumPy: {reason(e.plain)}"] = None
        found.update((f"compiled: {', '.join(_parts(v))}", None) for v in e.variants)
    return ["; ".join(found) or "not reached yet"]


def _parts(v: Variant) -> Iterator[str]:
    """What a call runs, in words."""
    kernels = len(v.bounds)
    graphs = sum(getattr(b, "is_graph", False) for b in v.bounds)
    said = f" ({'launched' if graphs == kernels else f'{graphs} of them launched'} as a CUDA graph)" if graphs else ""
    yield f"{kernels} kernel{'' if kernels == 1 else 's'}{said}"
    yield from (v.body.how(k) for k in range(len(v.rec.breaks)))


def _bands(v: Variant) -> Iterator[str]:
    """What NumPy's arrays are copied in, for a GPU."""
    for b in v.bounds:
        if count := getattr(b, "band_count", 0):
            yield f"NumPy's arrays are copied in {count} bands of rows, while kernels run over others"
