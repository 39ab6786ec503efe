"""`f.explain`: how calls run, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hjit.call.breaks.parts import Parts
    from hjit.call.entry import Entry
    from hjit.call.stored.refusals import Refusal
    from hjit.call.variant import Variant


PLAIN_NUMPY = " runs as plain NumPy: "


def reason(plain: str) -> str:
    """Of a warning that NumPy runs, why it does."""
    return plain.partition(PLAIN_NUMPY)[2] or plain or "a kernel that it has with others gave wrong results"


def of_reported_errors(name: str) -> str:
    """Where `shown_warnings.float_errors_are_reported`."""
    return f"{name}{PLAIN_NUMPY}np.errstate or np.seterr asks for errors of floats, which compiled code does not report"


def explained(name: str, entry: Entry, is_host: bool) -> str:
    """How calls with some arguments run.

    Args:
        entry: what is known of them: NumPy runs them, or variants do.
        is_host: are no arrays a GPU's?
    """
    if entry.plain is not None:
        return f"{name} runs as plain NumPy with such arguments: {reason(entry.plain)}"
    lines = [
        f"{name} runs compiled: {', '.join((*_parts(v), *(_bands(v) if is_host else ())))}" for v in entry.variants
    ]
    if entry.seconds is not None:
        lines.append(f"A call takes {cost(entry.seconds)}")
    if entry.timing is not None:
        lines.append("The first calls are timed against NumPy, interleaved with it")
    return "\n".join(lines)


def cost(seconds: tuple[float, float]) -> str:
    """The seconds of a call, and of one by NumPy."""
    return f"{1e3 * seconds[0]:.3g} ms, by NumPy {1e3 * seconds[1]:.3g} ms"


def foreseen(name: str, broken: Refusal | str | None) -> str:
    """Of a function that has not been called with such arguments.

    Args:
        broken: why it cannot be traced, or only that; None: it can.
    """
    first = f"{name} has no kernel for such arguments yet: call it with them"
    if broken is None:
        return f"{first}. It can be traced as a whole, and would run compiled"
    if isinstance(broken, str):
        return f"{first}. {broken}"
    line = "" if broken.line is None else f"line {broken.line}: "
    return f"{first}. It would run in Python, with compiled parts: {line}{broken.why}{_advised(broken.advice)}"


def _advised(advice: str) -> str:
    return f". What to do: {advice}" if advice else ""


def in_parts(name: str, parts: Parts, seconds: tuple[float, float] | None = None, depth: int = 0) -> Iterator[str]:
    """The lines of a function that Python runs, but for parts of it: what each runs, and what is not compiled.

    Args:
        seconds: of a call, and of one by NumPy, where they are known.
    """
    pad = "    " * depth
    yield f"{pad}{name} runs in Python, with compiled parts: {parts.why}{_advised(parts.advice)}"
    if seconds is not None:
        yield f"{pad}    A call takes {cost(seconds)}"
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
        first, *more = in_parts("", p.parts, depth=depth)
        return [first.strip(), *more]
    found: dict[str, None] = {}
    for e in p.entries:
        if e.plain is not None:
            found[f"plain NumPy: {reason(e.plain)}"] = None
        told = "" if e.seconds is None else f" ({cost(e.seconds)})"
        found.update((f"compiled: {', '.join(_parts(v))}{told}", None) for v in e.variants)
    return ["; ".join(found) or "not reached yet"]


def _parts(v: Variant) -> Iterator[str]:
    """What a call runs, in words."""
    kernels = len(v.bounds)
    graphs = sum(getattr(b, "is_graph", False) for b in v.bounds)
    said = f" ({'launched' if graphs == kernels else f'{graphs} of them launched'} as a CUDA graph)" if graphs else ""
    yield f"{kernels} kernel{'' if kernels == 1 else 's'}{said}"
    yield from (v.body.describe_break(k) for k in range(len(v.rec.breaks)))


def _bands(v: Variant) -> Iterator[str]:
    """What NumPy's arrays are copied in, for a GPU."""
    for b in v.bounds:
        if count := getattr(b, "band_count", 0):
            yield f"NumPy's arrays are copied in {count} bands of rows, while kernels run over others"
