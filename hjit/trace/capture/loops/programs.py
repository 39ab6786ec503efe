"""Loops that are recorded as a `Program`: where no update of whole arrays says what their iterations do.

Each path through an iteration becomes a branch, at the condition where it leaves the others. What was recorded runs in
the order in which it was: a read finds what the last write before it has left, as in Python, and nothing has to be
proved of what iterations read of each other. The outermost loop is an extern call, as BLAS is: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hjit.trace.capture.loops.paths import BOOL, BufferChange, NotOneUpdate, Path
from hjit.trace.ir.analysis.gathers import checked_atoms
from hjit.trace.ir.expressions import Const, Expr, Load, ScalarRef, rewrite, walk
from hjit.trace.ir.graph import Definition, Input, Stage, contiguous_layout, identity
from hjit.trace.ir.identities import IDENTITIES
from hjit.trace.ir.poly import ZERO, Indirect, Poly, Var
from hjit.trace.ir.programs.rewriting import with_exprs, with_loop_exprs
from hjit.trace.ir.programs.steps import (
    Branch,
    Define,
    Loop,
    Program,
    Refuse,
    Step,
    Update,
    definitions,
    every,
    exprs,
    inner,
    with_bodies,
)
from hjit.trace.ir.rewriting import map_exprs
from hjit.trace.tracing.arrays.buffers import serials
from hjit.trace.tracing.arrays.writing import next_version
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.extern_calls import ExternCall, record_extern_call
from hjit.trace.tracing.recording.recorder import OutOfBounds, Recorder, current
from hjit.trace.tracing.recording.results import ExternResult
from hjit.trace.tracing.scalars.moving import is_natural, moves

Body = tuple[Step, ...]


@dataclass
class ProgramNotes:
    """What the loops of a program have recorded so far, by the names of stages.

    Attributes:
        loops: what a stage without axes stands for: a loop inside.
        before: for each version of an array the one before it, and
        after: the other way round; a version may have been followed by others since.
        recorded: all stages.
    """

    loops: dict[str, Loop | Branch] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)

    def follow(self, version: str, before: str) -> None:
        """Note that a version follows another one."""
        self.before[version] = before
        self.after.setdefault(before, []).append(version)

    def rename(self, old: str, new: str) -> None:
        """What follows a version follows the same one by another name."""
        for version in self.after.get(old, ()):
            if self.before.get(version) == old:
                self.follow(version, new)

    def root(self, name: str) -> str:
        """The first version of an array."""
        while name in self.before:
            name = self.before[name]
        return name


def notes_of(rec: Recorder) -> ProgramNotes:
    """Those of the loops that are traced now."""
    if rec.rerolled.program is None:
        rec.rerolled.program = ProgramNotes()
    found: ProgramNotes = rec.rerolled.program
    return found


def record_loop(
    rec: Recorder,
    var: Var,
    ends: tuple[Poly, Poly],
    serial: int,
    paths: Sequence[Path],
    left: str,
    condition: tuple[str, bool],
    spared: tuple[bool, bool],
) -> None:
    """Record one of a program's loops, which has ended; of the outermost one what it is to be called with.

    Args:
        ends: the values of its variable, the last one excluded.
        serial: the serial number of buffers when it began.
        left: the array that says whether it has been left; "" of a loop that never is.
        condition: the stage whose outcome says whether there is its one iteration, and which; "" of others.
        spared: is the outermost one no program where its iterations compute whole arrays, or have loops over these?

    Raises:
        NotOneUpdate: it cannot be a program.
    """
    notes = notes_of(rec)
    own = [_ProgramPath.of(p, notes, serial) for p in paths]
    bounds = rec.rerolled.slice_bounds
    if bounds and not bounds.isdisjoint(notes.before.values()):
        raise NotOneUpdate("it changes a number that bounds a slice")
    body = _tree(notes, rec, own, 0, 0)
    if condition[0]:
        load = Load(condition[0], (), BOOL)
        loop: Loop | Branch = Branch(load, body, ()) if condition[1] else Branch(load, (), body)
    else:
        loop = Loop(var, *ends, body, Load(left, (), BOOL) if left else None)
    changed: dict[int, BufferChange] = {}
    for p in paths:
        for c in p.lasting(serial):
            if not c[1] or not c[3]:
                raise NotOneUpdate("it writes known numbers")
            changed.setdefault(id(c[0]), c)
    if rec.loops:
        name = rec.stage(Const(False, BOOL), (), BOOL, name="loop").name
        notes.loops[name] = loop
        for buffer, old, *_ in changed.values():
            next_version(buffer, old)
    else:
        assert isinstance(loop, Loop)
        _call(rec, loop, changed.values(), spared)
        rec.rerolled.program = None
        rec.rerolled.slice_bounds.clear()


@provides
def repeated(until: Any, most: Poly, once: Callable[[], None]) -> None:
    """Have a program do something again and again, `most` times at most, until a bool array without axes holds.

    Args:
        until: the array, which `once` writes.
        once: records what is done.
    """
    rec, left = current(), until.buffer.source()
    at, serial, indices = (len(rec.stages), len(rec.changes)), next(serials), dict(rec.indices)
    once()
    path = Path.rolled_back(rec, at, ())
    rec.indices.clear()
    rec.indices.update(indices)
    var = Var(f"iteration{len(rec.loops)}")
    record_loop(rec, var, (ZERO, most), serial, [path], left, ("", False), (False, False))


def _check_spared(body: Body, has_no_arrays: bool, has_no_loops: bool) -> None:
    """Raise where iterations compute whole arrays, or run over them: kernels of their own may do that better."""
    for s in (s for b in body for part in inner(b) for s in every(part)):
        if has_no_loops and isinstance(s, Loop) and not s.end.has(Indirect) and not s.end.is_const:
            raise NotOneUpdate("it has loops over arrays inside")
        if has_no_arrays and any(not n.is_const for d in definitions(s) for n in d.extents):
            raise NotOneUpdate("its iterations compute whole arrays")


# -- the paths through an iteration as one body


@dataclass(frozen=True, slots=True)
class _ProgramPath:
    """One path through an iteration, as steps of the program.

    Attributes:
        names: of stages that another path has recorded first, and of this one's that are the same.
    """

    path: Path
    stages: tuple[Stage, ...]
    place: Mapping[str, int]
    names: dict[str, str]

    @classmethod
    def of(cls, path: Path, notes: ProgramNotes, serial: int) -> _ProgramPath:
        """Note which versions follow each other in it."""
        later: dict[int, str] = {}
        for buffer, before, _, last in reversed(path.changes):
            after = later.get(id(buffer), last)
            later[id(buffer)] = before
            if not before or not after:
                raise NotOneUpdate("it writes known numbers")
            is_own = buffer.serial > serial and not buffer.argument
            if is_own and before not in path.body and before not in notes.before:
                raise NotOneUpdate("it writes known numbers")
            notes.follow(after, before)
        stages = tuple(path.body.values())
        notes.recorded.update(path.body)
        return cls(path, stages, {s.name: k for k, s in enumerate(stages)}, {})

    def same(self, s: Stage) -> Stage:
        """A stage with the names of the path that was first."""
        return map_exprs(s, lambda e: _renamed(e, self.names)) if self.names else s

    def step(self, notes: ProgramNotes, k: int) -> Step:
        """What a stage does."""
        s = self.stages[k]
        if s.name in notes.loops:
            loop = notes.loops[s.name]
            return with_exprs(loop, lambda e: _renamed(e, self.names)) if self.names else loop
        return Define(self.same(s))


def _renamed(e: Expr, names: Mapping[str, str]) -> Expr:
    def change(x: Expr) -> Expr | None:
        return Load(names[x.source], x.index, x.dtype) if isinstance(x, Load) and x.source in names else None

    return rewrite(e, change)


def _tree(notes: ProgramNotes, rec: Recorder, paths: Sequence[_ProgramPath], met: int, start: int) -> Body:
    """What paths have in common from a stage on, and then a branch."""
    first, checks = paths[0], frozenset(rec.checks)
    decided = first.path.decided
    is_end = len(decided) == met
    if is_end and len(paths) > 1:
        raise NotOneUpdate("its paths through an iteration are not those of conditions")
    stop = len(first.stages) if is_end else first.place.get(decided[met][0], -1) + 1
    if stop < start or (not is_end and not stop):
        raise NotOneUpdate("its paths through an iteration are not those of conditions")
    found: list[Step] = []
    for k in range(start, stop):
        s = first.stages[k]
        found.append(first.step(notes, k))
        if s.name in checks:
            found.append(Refuse(Load(first.names.get(s.name, s.name), (), BOOL)))
            if s.shape:
                raise NotOneUpdate("NumPy refuses some elements of what it computes")
    if is_end:
        return tuple(found)
    for other in paths[1:]:
        _check_alike(notes, first, other, start, stop)
        if len(other.path.decided) <= met or other.place.get(other.path.decided[met][0], -1) != stop - 1:
            raise NotOneUpdate("its paths through an iteration are not those of conditions")
    yes, no = ([p for p in paths if p.path.decided[met][1] is outcome] for outcome in (True, False))
    name = decided[met][0]
    sides = [_tree(notes, rec, side, met + 1, stop) if side else () for side in (yes, no)]
    return (*found, Branch(Load(first.names.get(name, name), (), BOOL), *sides))


def _check_alike(notes: ProgramNotes, a: _ProgramPath, b: _ProgramPath, start: int, stop: int) -> None:
    """Have two paths recorded the same between two places? From then on the second one has the names of the first."""
    if len(b.stages) < stop:
        raise NotOneUpdate("its paths through an iteration are not those of conditions")
    for x, y in zip(a.stages[start:stop], b.stages[start:stop], strict=True):
        own = a.names.get(x.name, x.name)
        b.names[y.name] = own
        same, own_stage = b.same(y), a.same(x)
        is_loop = x.name in notes.loops, y.name in notes.loops
        if is_loop[0] is not is_loop[1]:
            raise NotOneUpdate("its paths through an iteration begin in different ways")
        if replace(same, name="", origin=None) != replace(own_stage, name="", origin=None):
            raise NotOneUpdate("its paths through an iteration begin in different ways")
        notes.before.pop(y.name, None)  # it is the other path's
    for y in b.stages[start:stop]:
        notes.rename(y.name, b.names[y.name])


# -- versions as arrays


@dataclass
class _Resolved:
    """Steps over arrays in place of their versions.

    Attributes:
        arrays: that are written, by their first versions.
        around: the loops around a step.
        stale: versions that are read when they have been written over, which are kept apart.
    """

    notes: ProgramNotes
    sizes: Mapping[str, int]
    arrays: set[str]
    around: list[Loop] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)
    local: dict[str, Stage] = field(default_factory=dict)
    dtypes: dict[str, np.dtype[Any]] = field(default_factory=dict)
    count: int = 0

    def body(self, body: Body, now: dict[str, str], kept: dict[str, str]) -> Body:
        """`now`: the version that each array holds; `kept`: where stale ones are."""
        return tuple(t for s in body for t in self.step(s, now, kept))

    def step(self, s: Step, now: dict[str, str], kept: dict[str, str]) -> Iterator[Step]:
        match s:
            case Define():
                yield from self.stage(s.stage, now, kept)
            case Refuse():
                yield Refuse(self.expr(s.condition, now, kept))
            case Branch() | Loop():
                written = sorted({self.notes.root(n) for n in _defined(inner(s))} & self.arrays)
                for array in written:
                    yield from self.keep(array, now, kept)
                if isinstance(s, Branch):
                    condition = self.expr(s.condition, now, kept)
                    sides = (self.body(side, dict(now), dict(kept)) for side in (s.yes, s.no))
                    yield Branch(condition, *sides)
                else:
                    s = with_loop_exprs(s, lambda e: self.expr(e, now, kept))
                    self.around.append(s)
                    changing = {now.get(array, array) for array in written}  # each iteration finds another one
                    body = self.body(s.body, dict(now), {v: n for v, n in kept.items() if v not in changing})
                    self.around.pop()
                    yield replace(s, body=body)

    def keep(self, array: str, now: Mapping[str, str], kept: dict[str, str]) -> Iterator[Step]:
        """Keep what an array holds before it is written, where that is read later."""
        version = now.get(array, array)
        if version in self.stale and version not in kept:
            self.count += 1
            kept[version] = name = f"{version}.kept{self.count}"
            dtype = self.dtypes[version]
            yield Define(Stage(name, dtype, (), Load(array, (), dtype)))

    def stage(self, s: Stage, now: dict[str, str], kept: dict[str, str]) -> Iterator[Step]:
        array = self.notes.root(s.name)
        if any(d.joined for d in s.updates):
            raise NotOneUpdate("it writes in a way of its own")
        _check_lengths(s, self.around, self.sizes)
        self.dtypes[s.name] = s.dtype
        if array not in self.arrays:
            yield Define(map_exprs(s, lambda e: self.expr(e, now, kept, s.name)))
            return
        here = identity(len(s.shape))
        before = self.notes.before.get(s.name)
        initial = s.initial
        if before is None:
            self.local[s.name] = replace(s, initial=None, updates=())
        else:
            yield from self.keep(array, now, kept)
            if isinstance(initial, Load) and initial.index == here and initial.source == now.get(array, array):
                initial = None  # it stays as it is
        own = replace(s, initial=initial)
        own = map_exprs(own, lambda e: self.expr(e, now, kept, s.name))
        if own.initial is not None:
            yield Update(array, Definition(s.shape, (), here, own.initial))
        for d in own.updates:
            yield Update(array, d)
        now[array] = s.name

    def expr(self, e: Expr, now: Mapping[str, str], kept: Mapping[str, str], own: str = "") -> Expr:
        """An expression over arrays; `own`: the version that it is part of."""

        def change(x: Expr) -> Expr | None:
            if not isinstance(x, Load):
                return None
            array = self.notes.root(x.source)
            if array not in self.arrays:
                return None
            if x.source == own or now.get(array, array) == x.source:
                return Load(array, x.index, x.dtype)
            if x.source in kept:
                return Load(kept[x.source], x.index, x.dtype)
            if x.index:
                raise NotOneUpdate("it reads what an array held before it was written")
            self.stale.add(x.source)
            self.dtypes[x.source] = x.dtype
            return x

        return rewrite(e, change)


def _check_lengths(s: Stage, around: Sequence[Loop], sizes: Mapping[str, int]) -> None:
    """Raise where something is reduced that may be empty, which NumPy refuses, or that BLAS is for."""
    ranges = [(x.var, x.begin, x.end) for x in around]
    for d in s.updates:
        if d.rdims and sum(not n.is_const for n in d.extents) > 2:
            raise NotOneUpdate("a product of matrices, or a sum over one for each of many elements")
        has_none = d.order in IDENTITIES and IDENTITIES[d.order] is None
        if has_none and not all(is_natural(n - 1, ranges, sizes) for n in d.extents if moves(n)):
            raise NotOneUpdate(f"the {d.order} of a slice that may be empty")


def _defined(bodies: Iterable[Body]) -> Iterator[str]:
    return (s.stage.name for body in bodies for s in every(body) if isinstance(s, Define))


# -- the outermost loop


def _call(rec: Recorder, loop: Loop, changed: Iterable[BufferChange], spared: tuple[bool, bool]) -> None:
    """Make an outermost loop an extern call, whose results are the next versions of what it changes."""
    notes = notes_of(rec)
    changed = tuple(changed)
    names = set(_defined([(loop,)]))
    arrays = {notes.root(n) for n in notes.before if n in names}
    first = _Resolved(notes, rec.sizes, arrays)
    first.body((loop,), {}, {})  # finds what is stale
    found = _Resolved(notes, rec.sizes, arrays, stale=set(first.stale), dtypes=first.dtypes)
    body = found.body((loop,), {}, {})
    if found.stale != first.stale:
        raise NotOneUpdate("it reads what an array held before it was written")
    _check_spared(body, *spared)
    scalars = dict.fromkeys(x for s in every(body) for e in exprs(s) for x in walk(e) if isinstance(x, ScalarRef))
    numbers: dict[Expr, Expr] = {x: Load(rec.stage(x, (), x.dtype, name="number").name, (), x.dtype) for x in scalars}

    def numbered(e: Expr) -> Expr:
        return rewrite(e, lambda x: numbers.get(x) if isinstance(x, ScalarRef) else None)

    body = without_dead(tuple(with_exprs(s, numbered) for s in body))
    outputs = {notes.root(old): buffer for buffer, old, *_ in changed}
    made = {*_defined([body]), *found.local}
    read = dict.fromkeys(x.source for s in every(body) for e in exprs(s) for x in e.loads)
    if any(a not in outputs and a not in found.local for a in arrays):
        raise NotOneUpdate("it writes to an array that is not known")
    inputs = tuple(_as_input(rec, n) for n in read if n not in made and n not in outputs)
    program = Program(
        inputs,
        tuple(Stage(n, b.dtype, rec.polys(b.shape), None) for n, b in outputs.items()),
        tuple(found.local.values()),
        body,
    )
    rec.checks[:] = [n for n in rec.checks if n not in notes.recorded]
    given = _run(rec, program, [*outputs])
    for (_, buffer), name in zip(outputs.items(), given, strict=True):
        next_version(buffer, name)


def _run(rec: Recorder, program: Program, arrays: Sequence[str]) -> tuple[str, ...]:
    """Run a program, now and at every call; the inputs that what it changes is after it.

    Args:
        arrays: what it changes, as it is before.

    Raises:
        OutOfBounds: NumPy refuses something.
    """
    assert rec.options.run_loops is not None
    run, count = rec.options.run_loops(program, dict(rec.sizes)), len(program.inputs)
    names = (*(i.name for i in program.inputs), *arrays)
    needs = tuple(dict.fromkeys(names))
    places = [needs.index(n) for n in names]

    def call(*realised: np.ndarray[Any, Any], unread: Collection[int] = ()) -> ExternResult:
        given = [realised[k] for k in places]
        changed = tuple(
            a if k in unread and a.flags.carray else np.array(a, order="C")
            for k, a in zip(places[count:], given[count:], strict=True)
        )
        if not run([*map(np.ascontiguousarray, given[:count]), *changed]):
            raise OutOfBounds
        return ExternResult(("loops",), changed)

    try:
        done = record_extern_call(rec, ExternCall("loops", call, needs))
    except OutOfBounds:
        rec.findings.out_of_bounds = True
        raise
    done.program, done.may_write = program, True
    return done.gives


def _as_input(rec: Recorder, name: str) -> Input:
    if name in rec.inputs:
        i = rec.inputs[name].input
        return Input(name, i.dtype, i.shape, contiguous_layout(i.shape))
    s = rec.stages[name]
    return Input(name, s.dtype, s.shape, contiguous_layout(s.shape))


def without_dead(body: Body) -> Body:
    """A body without temporaries that nothing reads, unless an index may be out of bounds in them."""
    while True:
        read = {x.source for s in every(body) for e in exprs(s) for x in e.loads if not _is_own(s, x)}
        found = _dropped(body, read)
        if found == body:
            return found
        body = found


def _is_own(s: Step, x: Load) -> bool:
    return isinstance(s, Define) and x.source == s.stage.name


def _dropped(body: Body, read: set[str]) -> Body:
    def is_dead(s: Step) -> bool:
        return isinstance(s, Define) and s.stage.name not in read and not any(map(_is_checked, exprs(s)))

    return tuple(with_bodies(s, lambda b: _dropped(b, read)) for s in body if not is_dead(s))


def _is_checked(e: Expr) -> bool:
    """Has an expression an index that may be out of bounds?"""
    return any(checked_atoms(p) for x in walk(e) for p in x.polys)
