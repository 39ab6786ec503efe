"""How pipelines ran: compiled whole, in Python with compiled parts, or as plain NumPy; a row for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hjit.report.explain import reason

WHOLE, BREAKS, PLAIN, NOT_CALLED = "whole", "with breaks", "plain", "not called"
KINDS = (WHOLE, BREAKS, PLAIN)  # of what was called


@dataclass(frozen=True, slots=True)
class Row:
    """How the calls of a function ran.

    Attributes:
        kind: BREAKS: with some arguments Python runs it, and compiled parts of it; WHOLE: with some all of it runs
            compiled, and with none in parts; PLAIN: nothing of it is compiled; NOT_CALLED.
        by_numpy: calls whose result is the plain function's.
        parts: in how many parts it runs, if not as a whole.
        verified: None: nothing was compared; False: a comparison with NumPy failed, and NumPy runs since then.
        flipped: elements of compared results that a decision on a rounded value made others.
        why: what keeps it from running compiled, with some arguments at least; empty where nothing does.
    """

    name: str
    kind: str
    calls: int
    by_numpy: int
    parts: int
    verified: bool | None
    flipped: int
    why: str

    def __str__(self) -> str:
        how = {WHOLE: "compiled", BREAKS: f"in Python, with {self.parts} compiled parts", PLAIN: "as plain NumPy"}
        text = f"{self.name}: {self.calls} calls, {how.get(self.kind, self.kind)}"
        return text + (f"; NumPy ran {self.by_numpy} of them" if self.by_numpy and self.kind != PLAIN else "")


def row_of(name: str, p: Any) -> Row:
    """The row of a pipeline."""
    s = p.stats
    verified = [q.stats.verified for q in _all(p) if q.stats.verified is not None]
    return Row(
        name,
        kind_of(p),
        s.calls,
        s.fallbacks,
        s.parts,
        all(verified) if verified else None,
        sum(q.stats.flipped for q in _all(p)),
        next(_why(p), ""),
    )


def rows_of(pipelines: Mapping[str, Any]) -> list[Row]:
    """The rows of pipelines by name; one that has several names has one row."""
    first: dict[Any, str] = {}
    for name, p in pipelines.items():
        first.setdefault(p, name)
    return sorted((row_of(name, p) for p, name in first.items()), key=lambda row: row.name)


def merged(rows: Iterable[Row]) -> list[Row]:
    """Rows of several processes: one for each name."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return [_merged(same) for _, same in sorted(by_name.items())]


def _merged(rows: list[Row]) -> Row:
    """Of one function: as one process that had all calls would say it."""
    if len(rows) == 1:
        return rows[0]
    kinds = {row.kind for row in rows}
    verified = [row.verified for row in rows if row.verified is not None]
    return Row(
        rows[0].name,
        next(k for k in (BREAKS, WHOLE, PLAIN, NOT_CALLED) if k in kinds),
        sum(row.calls for row in rows),
        sum(row.by_numpy for row in rows),
        max(row.parts for row in rows),
        all(verified) if verified else None,
        sum(row.flipped for row in rows),
        next((row.why for row in rows if row.why), ""),
    )


def kind_of(p: Any) -> str:
    """What has become of the calls of a pipeline so far."""
    if not p.stats.calls:
        return NOT_CALLED
    if _in_parts(p) and any(map(_compiled, _inner(p))):
        return BREAKS
    return WHOLE if any(e.variants for e in p.entries) else PLAIN


def counted(rows: Iterable[Row]) -> dict[str, int]:
    """How many rows there are of each kind, those of functions that were not called included."""
    found = dict.fromkeys((*KINDS, NOT_CALLED), 0)
    for row in rows:
        found[row.kind] += 1
    return found


def _in_parts(p: Any) -> bool:
    """Does it run in parts with some arguments? It is also split for calls that raise an exception."""
    return p.parts is not None and any(e.parts is not None for e in p.entries)


def _compiled(p: Any) -> bool:
    """Has it, or a part of it, anything that runs compiled?"""
    if any(e.variants for e in p.entries):
        return True
    return _in_parts(p) and any(map(_compiled, _inner(p)))


def _inner(p: Any) -> list[Any]:
    """The pipelines of its parts, and of what these call."""
    if p.parts is None:
        return []
    called = [q for f, q in p.parts.callees.made.values() if q is not f]
    return [*(part for part, _, _ in p.parts.parts), *called]


def _all(p: Any) -> Iterator[Any]:
    """A pipeline, its parts, their parts."""
    yield p
    for q in _inner(p):
        yield from _all(q)


def _why(p: Any) -> Iterator[str]:
    if _in_parts(p):
        kept = p.parts.kept
        yield p.parts.why if kept is None else f"line {kept[1]}: {p.parts.why}"
    for e in p.entries:
        if e.plain is not None:
            yield reason(e.plain)
