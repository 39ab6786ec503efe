"""The paths through an iteration that writes several places: what each leaves in terms of what it finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hjit.trace.capture.loops.nests import (
    AFTER,
    BEFORE,
    BOOL,
    INSIDE,
    InvariantStages,
    RerolledNest,
    Write,
    as_nest,
    both,
    choose,
    negated,
)
from hjit.trace.capture.loops.paths import NotOneUpdate
from hjit.trace.ir.borders import piecewise
from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op, rewrite, select, substitute
from hjit.trace.ir.graph import Stage, identity
from hjit.trace.ir.poly import ZERO, Atom, Dim, Indirect, Poly, Var, deep_atoms, poly
from hjit.trace.tracing.recording.recorder import Recorder


def _at(e: Expr, index: tuple[Poly, ...]) -> Expr:
    """The value of a stage's expression at an index."""
    return substitute(e, lambda a: index[a.k] if isinstance(a, Dim) else None)


def _moves_with(p: Poly, v: Var) -> bool:
    """Is an index another one in each iteration of a loop, whatever those of others are?"""
    factor = p.coefficient(v)
    return (
        factor is not None
        and factor.is_const
        and factor != ZERO
        and sum(isinstance(a, Var) for a in deep_atoms(p)) == 1
    )


@dataclass
class Slots:
    """Numbers that are kept from one iteration of an inner loop to the next, by dtype and order."""

    rec: Recorder
    names: dict[tuple[str, int], str] = field(default_factory=dict)

    def name(self, dtype: np.dtype[Any], k: int) -> str:
        """The array without axes that holds the k-th number of a dtype."""
        key = dtype.str, k
        if key not in self.names:
            self.names[key] = self.rec.unique("kept")
        return self.names[key]

    def of_condition(self) -> str:
        """A new one, that holds a condition."""
        return self.name(BOOL, -1 - len(self.names))

    def stages(self) -> dict[str, Stage]:
        """All of them."""
        return {name: Stage(name, np.dtype(dtype), (), Const(0, dtype)) for (dtype, _), name in self.names.items()}


class NotShared(Exception):
    """A number of the loop inside has to be kept apart from the one that it begins with."""


@dataclass
class PathWrites:
    """What one path through an iteration leaves in the arrays, in terms of what it finds in them.

    Attributes:
        keys: for each version of an array that the loop changes the array's name.
        before: for each version that the path makes the one before it.
        decided: the stages of the conditions that it met, and the outcomes.
        is_sharing: may a number of the loop inside be kept where the one is that it begins with?
        shared: for each such array of the loop inside the one where it is.
        always: numbers that are kept whichever path is taken.
        inner: the dimensions of the loop inside, as variables, and their extents.
        kept: stages that do not depend on these arrays.
        seen: how many of the writes came before each version.
        writes: in their order.
    """

    kept: InvariantStages
    slots: Slots
    keys: dict[str, str]
    before: Mapping[str, str]
    decided: tuple[tuple[str, bool], ...]
    is_sharing: bool = True
    shared: dict[str, str] = field(default_factory=dict)
    phase: int = BEFORE
    inner: tuple[tuple[Var, Poly], ...] = ()
    seen: dict[str, int] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    _values: dict[str, tuple[int, Expr]] = field(default_factory=dict)
    _sources: dict[str, Expr] = field(default_factory=dict)
    _made: dict[str, int] = field(default_factory=dict)  # where each version is made
    _inside: dict[str, set[tuple[Poly, ...]]] = field(default_factory=dict)  # what the loop inside writes, and where
    _latched: dict[str, Expr] = field(default_factory=dict)
    _begins: dict[str, Expr] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)
    always: dict[str, Expr] = field(default_factory=dict)

    def take(self, stages: Iterable[Stage]) -> None:
        """Take up what the path has recorded."""
        for s in stages:
            self._add(s)

    def end(self, inner: tuple[tuple[Var, Poly], ...], refusals: Iterable[str], refused: str) -> None:
        """All is taken up.

        Args:
            inner: the loop inside, which other paths may have.
            refusals: stages that say whether NumPy refuses something.
            refused: the array that says whether it has done so.
        """
        for name in refusals:
            if self._depends((name,)):
                self._refuse(self.rewritten(Load(name, (), BOOL)), refused)
        self.inner, self.phase = inner, AFTER if inner else BEFORE
        if any(not any(w.array == key and w.phase == AFTER for w in self.writes) for key in self.shared.values()):
            raise NotShared

    def _refuse(self, is_refused: Expr, refused: str) -> None:
        before = next((w.value for w in reversed(self.writes) if w.array == refused), Load(refused, (), BOOL))
        self._write(Write(refused, (), Op("logical_or", (before, is_refused), BOOL), None, self.phase))

    def condition(self, stage: str) -> Expr:
        """What a stage without axes decides, in all iterations of the loop inside."""
        phase, value = self._values.get(stage, (AFTER, None))
        if value is None or phase != BEFORE or not self.inner or not any(x.source in self._arrays for x in value.loads):
            return self.rewritten(Load(stage, (), BOOL))
        key = self.slots.of_condition()
        self.always[key] = select(self.first, value, Load(key, (), BOOL))
        return self.always[key]

    # -- stages

    def _add(self, s: Stage) -> None:
        nest = self.kept.rec.rerolled.nests.get(s.name)
        if nest is not None and self._is_changed(nest):
            if id(nest) not in self._taken:
                self._taken.add(id(nest))
                self._take_nest(nest)
        elif s.name in self.before:
            self._written(s)
        elif self._depends({x.source for x in s.loads}):
            value = piecewise(s)
            if value is None:
                self._take_nest(as_nest(s))
            else:
                self._values[s.name] = self.phase, self.rewritten(value)
                self._sources[s.name] = value
        else:
            self.kept.add(s, self.rewritten)

    def _is_changed(self, nest: RerolledNest) -> bool:
        """Is a loop inside to be part of this one?"""
        return any(name in self.before for name in nest.arrays) or self._depends(nest.sources())

    def depends(self, stage: str) -> bool:
        """Is a stage part of what is written?"""
        return self._depends((stage,))

    def _depends(self, sources: Iterable[str]) -> bool:
        return any(name in self.keys or name in self._values for name in sources)

    def _written(self, s: Stage) -> None:
        initial = s.initial
        keeps = isinstance(initial, Load) and initial.index == identity(len(s.shape)) and initial.source in self.keys
        if (s.updates and not keeps) or len(s.updates) > 1:
            raise NotOneUpdate("it writes in a way of its own")
        d = s.updates[0] if s.updates else None
        if (d is None and s.shape) or (d is not None and d.extents):
            self._take_nest(as_nest(s, self.before[s.name]))
            return
        target, value = ((), initial) if d is None else (d.target, d.value)
        assert value is not None
        self._write(Write(self.keys[s.name], target, self.rewritten(value), None, self.phase))
        self.seen[s.name], self._made[s.name] = len(self.writes), self.phase

    def _write(self, w: Write) -> None:
        if any(p.has(Indirect) for p in w.target):
            raise NotOneUpdate("it writes where an array says")
        self.writes.append(w)

    def _take_nest(self, nest: RerolledNest) -> None:
        if self.phase == AFTER and [n for _, n in self.inner] != list(nest.rdims):
            raise NotOneUpdate("it has several loops inside that depend on each other")
        if nest.dims or (self.phase == AFTER and self._reads_inner(nest)):
            raise NotOneUpdate("it has several loops inside that depend on each other")
        if self.phase == BEFORE:
            self.inner = tuple((Var(f"{self.kept.var}.{k}"), n) for k, n in enumerate(nest.rdims))
        for name, s in nest.arrays.items():
            self._begin(name, s)
        self.phase = INSIDE
        for name in nest.arrays:
            self.seen[name], self._made[name] = len([w for w in self.writes if w.phase == BEFORE]), INSIDE
        change: dict[Atom, Poly] = {Dim(k): poly(v) for k, (v, _) in enumerate(self.inner)}
        before = [w for w in self.writes if w.phase == INSIDE]
        for w in nest.writes:
            place = tuple(p.substitute(change.get) for p in w.target)
            self._inside.setdefault(self.keys[w.array], set()).add(place)
        self._check_unwritten(before, {self.keys[w.array] for w in nest.writes})
        new = [
            w.map(lambda e: self.rewritten(substitute(e, change.get)), lambda p: p.substitute(change.get))
            for w in nest.writes
        ]
        for w in new:
            self._write(replace(w, array=self.keys[w.array], phase=INSIDE))
        written = {w.array for w in self.writes if w.phase == INSIDE}
        for key, begin in self._begins.items():
            if key not in written:  # its iterations leave it
                self._write(Write(key, (), select(self.first, begin, Load(key, (), begin.dtype)), None, INSIDE))
        self.phase = AFTER
        for name in nest.arrays:
            self.seen[name] = len(self.writes)

    def _check_unwritten(self, writes: Sequence[Write], keys: set[str]) -> None:
        """Raise where a loop inside reads what a later one, which runs together with it, has written by then."""
        for x in (x for w in writes for e in w.exprs() for x in e.loads):
            if x.source in keys and not self._is_unwritten(x.source, x.index):
                raise NotOneUpdate("it has several loops inside that depend on each other")

    def _is_unwritten(self, key: str, index: tuple[Poly, ...]) -> bool:
        """Is an element written in this iteration of the loop inside, and in no other one?"""
        alone = {v for v, _ in self.inner for p in index if _moves_with(p, v)}
        return self._inside[key] == {index} and len(alone) == len(self.inner)

    def _reads_inner(self, nest: RerolledNest) -> bool:
        """Does a second loop inside depend on what the first one writes, but for elements of one iteration of both?"""
        keys, names = self.keys, nest.sources() | set(nest.arrays)
        elsewhere = {w.array for w in self.writes if w.phase != INSIDE}
        change: dict[Atom, Poly] = {Dim(k): poly(v) for k, (v, _) in enumerate(self.inner)}
        reads = [x for w in nest.writes for e in w.exprs() for x in self._reached(substitute(e, change.get))]
        if any(keys.get(n) in elsewhere for n in (*names, *(x.source for x in reads))):
            return True
        for x in reads:
            places = self._inside.get(keys.get(x.source, ""), set())
            is_apart = all(self._is_apart(place, x.index) for place in places)
            if places and not is_apart and not self._is_unwritten(keys[x.source], x.index):
                return True
        for w in nest.writes:
            index = tuple(p.substitute(change.get) for p in w.target)
            if not all(self._is_apart(place, index) for place in self._inside.get(keys.get(w.array, ""), ())):
                return True
        begins = [s.initial for n, s in nest.arrays.items() if n not in self.before and s.initial is not None]
        return any(keys.get(x.source) in self._inside for e in begins for x in self._reached(e))

    def _reached(self, e: Expr) -> Iterator[Load]:
        """What an expression reads of arrays, also by temporaries that are made after the loop inside."""
        for x in e.loads:
            if self._values.get(x.source, (BEFORE,))[0] == AFTER:
                yield from self._reached(_at(self._sources[x.source], x.index))
            else:
                yield x

    def _begin(self, name: str, s: Stage) -> None:
        """An array that the loop inside changes: one of this loop, or a number that it begins with."""
        if name in self.before:
            if not (isinstance(s.initial, Load) and self.keys.get(s.initial.source) == self.keys[name]):
                raise NotOneUpdate("it writes in a way of its own")
            return
        if s.shape or s.initial is None:
            raise NotOneUpdate("it writes to, or reduces, a temporary that depends on what the loop writes")
        begin = self.rewritten(s.initial)
        if self.is_sharing and isinstance(begin, Load) and begin.source in self.keys.values() and not begin.index:
            if begin.source not in self.shared.values() and all(w.array != begin.source for w in self.writes):
                self.keys[name] = self.shared[name] = begin.source
                return
        self.keys[name] = key = self._slot(s.dtype)
        self._begins[key] = begin

    def _slot(self, dtype: np.dtype[Any]) -> str:
        k = self._numbers.get(dtype.str, 0)
        self._numbers[dtype.str] = k + 1
        return self.slots.name(dtype, k)

    # -- expressions

    def rewritten(self, e: Expr) -> Expr:
        """An expression at the present place, over what the iteration finds."""

        def change(e: Expr) -> Expr | None:
            if not isinstance(e, Load):
                return None
            if e.source in self.kept.lifted:
                return Load(e.source, (poly(self.kept.var), *e.index), e.dtype)
            if e.source in self._values:
                return self._value(e)
            if e.source in self.keys:
                return self._forwarded(e)
            return None

        return rewrite(e, change)

    def _value(self, e: Load) -> Expr:
        phase, value = self._values[e.source]
        if phase == AFTER and self.phase == INSIDE:  # of a second loop inside, which runs together with the first
            return self.rewritten(_at(self._sources[e.source], e.index))
        if phase != BEFORE or self.phase == BEFORE or not any(x.source in self._arrays for x in value.loads):
            return _at(value, e.index)
        return self.rewritten(_at(self._sources[e.source], e.index)) if e.index else self._latch(e.source, value)

    def _latch(self, name: str, value: Expr) -> Expr:
        """A number as it is before the loop inside, kept for its iterations."""
        if name not in self._latched:
            key = self._slot(value.dtype)
            self._latched[name] = kept = select(self.first, value, Load(key, (), value.dtype))
            self._write(Write(key, (), kept, None, INSIDE))
        return self._latched[name]

    def _is_stale(self, version: str, index: tuple[Poly, ...]) -> bool:
        """Has an element, which a version from before the loop inside holds, perhaps another number now?"""
        if self.phase == BEFORE or self._made.get(version, BEFORE) != BEFORE:
            return False
        key, later = self.keys[version], self.writes[self.seen.get(version, 0) :]
        is_changed = any(not self._is_apart(place, index) for place in self._inside.get(key, ()))
        is_changed = is_changed and not (self.phase == INSIDE and self._is_unwritten(key, index))
        return is_changed or any(w.array == key and w.phase == BEFORE for w in later)

    def _is_apart(self, place: tuple[Poly, ...], index: tuple[Poly, ...]) -> bool:
        """Is an element none of those that are written in a place, whatever the iteration of the loop inside?"""
        inner = [v for v, _ in self.inner]
        return any(
            (p - q).is_const and p != q and not any(p.mentions(v) for v in inner)
            for p, q in zip(place, index, strict=True)
        )

    def _as_before(self, e: Load) -> Expr:
        """What an element held before the loop inside."""
        if e.index:
            raise NotOneUpdate("it reads what a loop inside has written, as it was before that")
        phase, self.phase = self.phase, BEFORE
        value = self._forwarded(e)
        self.phase = phase
        return self._latch(e.source, value)

    @property
    def _arrays(self) -> set[str]:
        return set(self.keys.values())

    def _forwarded(self, e: Load) -> Expr:
        """What an element holds at the present place."""
        key = self.keys[e.source]
        if self.phase != BEFORE and key in self.shared.values() and e.source not in self.shared:
            if not any(w.array == key and w.phase == AFTER for w in self.writes[: self.seen.get(e.source, 0)]):
                raise NotShared
        if self._is_stale(e.source, e.index):
            return self._as_before(e)
        found: Expr = Load(key, e.index, e.dtype)
        if key in self._begins and self.phase != BEFORE:
            found = select(self.first, self._begins[key], found)
        for w in self.writes[: self.seen.get(e.source, 0)]:
            same = self._is_same(w, e.index, self.phase) if w.array == key else False
            if same is False:
                continue
            where = both(w.where, None if same is True else same)
            value = w.value if where is None else select(where, w.value, found)
            found = choose(self.first, value, found) if w.phase == BEFORE != self.phase else value
        return found

    def _is_same(self, w: Write, index: tuple[Poly, ...], phase: int) -> bool | Expr:
        """Is that the element of a write, where both are in the same iteration of the loop inside?

        Returns:
            Where the iteration decides that, the condition.

        Raises:
            NotOneUpdate: an array says which element it is.
        """
        at_first, at_last = self._ends_of_inner()
        place = at_first if w.phase == BEFORE != phase else at_last if w.phase == INSIDE and phase == AFTER else {}
        plain = [(self._plain(p, place), self._plain(q, place)) for p, q in zip(w.target, index, strict=True)]
        if any((p - q).is_const and p != q for p, q in plain):
            return False
        unlike = [(p, q) for p, q in plain if p != q]
        if any(isinstance(a, Indirect) for p, q in unlike for a in (*deep_atoms(p), *deep_atoms(q))):
            raise NotOneUpdate("it may read, or write, elsewhere in what it has just written")
        found: Expr | None = None
        for p, q in unlike:
            found = both(found, Op("equal", (Index(p), Index(q)), BOOL))
        return True if found is None else found

    def _ends_of_inner(self) -> tuple[dict[Atom, Poly], dict[Atom, Poly]]:
        return {v: ZERO for v, _ in self.inner}, {v: n - 1 for v, n in self.inner}

    def _plain(self, p: Poly, place: Mapping[Atom, Poly]) -> Poly:
        """An index in the iterations in which the path comes there."""
        return p.substitute(self.kept.rec.rerolled.clamped.get).substitute(place.get)

    @property
    def first(self) -> Expr:
        """Is it the first iteration of the loop inside?"""
        return self._at({v: ZERO for v, _ in self.inner})

    @property
    def last(self) -> Expr:
        """Is it the last one?"""
        return self._at({v: n - 1 for v, n in self.inner})

    def _at(self, place: Mapping[Var, Poly]) -> Expr:
        found: Expr | None = None
        for v, p in place.items():
            found = both(found, Op("equal", (Index(poly(v)), Index(p)), BOOL))
        assert found is not None
        return found

    # -- what it leaves

    def numbers(self) -> dict[str, Expr]:
        """What it leaves in arrays without axes."""
        found: dict[str, Expr] = {}
        for w in self.writes:
            if w.target:
                continue
            before = found.get(w.array, Load(w.array, (), w.value.dtype))
            value = w.value if w.where is None else select(w.where, w.value, before)
            found[w.array] = choose(place, value, before) if (place := self._place(w)) is not None else value
        return found

    def elements(self) -> list[Write]:
        """What it writes to arrays with axes, each element once."""
        found: list[Write] = []
        for w in self.writes:
            if not w.target:
                continue
            w = replace(w, where=both(self._place(w), w.where))
            others = []
            for x in found:
                is_apart = x.array != w.array or x.phase == w.phase == INSIDE  # where the loop inside has seen to it
                same = False if is_apart else self._is_same(x, w.target, w.phase)
                if same is False:
                    others.append(x)
                elif (hit := both(w.where, None if same is True else same)) is not None:
                    others.append(replace(x, where=both(x.where, negated(hit))))
            found = [*others, w]
        return found

    def _place(self, w: Write) -> Expr | None:
        if not self.inner or w.phase == INSIDE:
            return None
        return self.first if w.phase == BEFORE else self.last


def merged(paths: Sequence[PathWrites]) -> tuple[dict[str, Expr], list[Write]]:
    """What the path that is taken leaves in arrays without axes, and writes to others."""
    kept: dict[str, Expr] = {}

    def go(some: Sequence[PathWrites], met: int) -> tuple[dict[str, Expr], list[Write]]:
        first = some[0]
        if len(first.decided) == met:
            return first.numbers(), first.elements()
        yes, no = (go([p for p in some if p.decided[met][1] is outcome], met + 1) for outcome in (True, False))
        if yes == no:
            return yes
        condition = first.condition(first.decided[met][0])
        kept.update(first.always)
        return _numbers(condition, yes[0], no[0]), list(_elements(condition, yes[1], no[1]))

    numbers, elements = go(paths, 0)
    return numbers | kept, elements


def _numbers(condition: Expr, yes: dict[str, Expr], no: dict[str, Expr]) -> dict[str, Expr]:
    found: dict[str, Expr] = {}
    for name in dict.fromkeys((*yes, *no)):
        dtype = (yes.get(name) or no[name]).dtype
        a, b = (side.get(name, Load(name, (), dtype)) for side in (yes, no))
        found[name] = choose(condition, a, b)
    return found


def _numbered(writes: Iterable[Write]) -> dict[tuple[str, tuple[Poly, ...], int], Write]:
    """Writes by their elements, and how many of these came before."""
    found: dict[tuple[str, tuple[Poly, ...], int], Write] = {}
    seen: Counter[tuple[str, tuple[Poly, ...]]] = Counter()
    for w in writes:
        place = w.array, w.target
        found[(*place, seen[place])] = w
        seen[place] += 1
    return found


def _elements(condition: Expr, yes: list[Write], no: list[Write]) -> Iterator[Write]:
    """Writes to one element on both sides are one. A side may have several of one, of which one is done."""
    others = _numbered(no)
    for key, w in _numbered(yes).items():
        x = others.pop(key, None)
        if x is None:
            yield replace(w, where=both(condition, w.where))
            continue
        value = choose(condition, w.value, x.value)
        if w.where == x.where:
            yield replace(w, value=value)
        else:
            true = Const(True, BOOL)
            yield replace(w, value=value, where=choose(condition, w.where or true, x.where or true))
    for w in others.values():
        yield replace(w, where=both(negated(condition), w.where))
