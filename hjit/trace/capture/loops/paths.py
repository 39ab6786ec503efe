"""The ways through an iteration of a loop that is traced as one, and the stages that they record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hjit.trace.ir.graph import Definition, Stage, substitute
from hjit.trace.ir.poly import Atom, Dim, IntLike, Poly, Var, poly
from hjit.trace.tracing.recording.recorder import Recorder


Change = tuple[Any, str, Any, str]  # a buffer, its version before, the contents where they were known, and its version


class NotOneUpdate(Exception):
    """What an iteration recorded is not one update, of one array or of several."""


class ReadsWhatItWrites(NotOneUpdate):
    """An iteration has used what the array holds before the first one, which it does not hold before the others."""


@dataclass(frozen=True, slots=True)
class Path:
    """What one way through an iteration recorded.

    Attributes:
        body: its stages by name.
        changes: of buffers, see `Recorder.changes`, with the versions that the buffers had in the end.
        decided: the stages of the conditions that it met, and the outcomes.
    """

    body: dict[str, Stage]
    changes: tuple[tuple[Any, str, Any, str], ...]
    decided: tuple[tuple[str, bool], ...]

    @classmethod
    def rolled_back(cls, rec: Recorder, at: tuple[int, int], decided: Sequence[tuple[str, bool]]) -> Path:
        """What was recorded since `at`, so many stages and changes; the recorder and the buffers are as before."""
        stages, changes = at
        body = {name: rec.stages.pop(name) for name in list(rec.stages)[stages:]}
        made = tuple((*c, c[0].version) for c in rec.changes[changes:])
        del rec.changes[changes:]
        for buffer, version, contents, _ in reversed(made):
            buffer.version, buffer.contents = version, contents
        return cls(body, made, tuple(decided))

    def is_checked(self, rec: Recorder) -> bool:
        """May NumPy refuse something that it computes?"""
        return not self.body.keys().isdisjoint((*rec.checks, *(noted.stage for noted in rec.indices.values())))

    def lasting(self, serial: int) -> list[Change]:
        """Changes of buffers that were there when the loop began, each with the version that it made."""
        found = [c for c in self.changes if c[0].serial < serial or c[0].argument]
        later: dict[int, str] = {}
        steps: list[Change] = []
        for buffer, before, contents, last in reversed(found):
            steps.append((buffer, before, contents, later.get(id(buffer), last)))
            later[id(buffer)] = before
        return steps[::-1]


def varies(s: Stage, var: Var, lifted: Collection[str]) -> bool:
    """Is a stage another one in each iteration?"""
    exprs = s.exprs()
    targets = [p for d in s.updates for p in d.target]
    return (
        any(e.mentions(var) for e in exprs)
        or any(p.mentions(var) for p in targets)
        or any(x.source in lifted for x in s.loads)
    )


def lift(s: Stage, var: Var, count: Poly) -> Stage:
    """The stage for all iterations: the iteration is its first axis."""

    def change(a: Atom) -> IntLike | None:
        return Dim(a.k + 1) if isinstance(a, Dim) else Dim(0) if a == var else None

    def lifted(d: Definition) -> Definition:
        target = (poly(Dim(0)), *(p.substitute(change) for p in d.target))
        return replace(d, dims=(count, *d.dims), target=target, value=substitute(d.value, change))

    initial = None if s.initial is None else substitute(s.initial, change)
    return replace(s, shape=(count, *s.shape), initial=initial, updates=tuple(map(lifted, s.updates)))
