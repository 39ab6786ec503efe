"""Variables that a loop carries from one iteration to the next: each is an array that iterations update, without axes
where it holds numbers.

A variable may have a number of one kind in some iterations, and of another in others, as ``best = -1.0`` and then
``best = a[y, x]``: of these two kinds each has an array of its own, and a bool says which the variable has. Where all
iterations leave the second kind, it has the first one in the first iteration.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.trace.capture.loops.elements import UNBOUND, Elements, NotCarried
from hjit.trace.capture.loops.paths import Path
from hjit.trace.capture.loops.python_ints import CarriedInt, CarriedInts
from hjit.trace.ir.expressions import Const, Expr, Index, Op, cast, select
from hjit.trace.ir.graph import Stage
from hjit.trace.ir.poly import Atom, Dim, Poly, poly
from hjit.trace.tracing.arrays.buffers import serials
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.tracer import Tracer, from_stage, is_tracer
from hjit.trace.tracing.arrays.writing import update
from hjit.trace.tracing.complex_memory import part_dtype, supported_complex
from hjit.trace.tracing.recording.loops.rerolled import HALF, MOST
from hjit.trace.tracing.recording.recorder import Recorder, current, supported_dtype
from hjit.trace.tracing.scalars.host import as_array, is_host, number
from hjit.trace.tracing.scalars.induction import InductionVariable
from hjit.trace.tracing.scalars.size import Size

MAX_KINDS = 2  # of one variable
ALL = "*"  # is checked in place of a variable: the results of all operations on ints of Python


class LargeInts(NotCarried):
    """An int of Python may come to have more than 64 bits.

    Attributes:
        names: of the variables which iterations may check, or `ALL`; none where that does not help.
    """

    def __init__(self, names: frozenset[str] = frozenset()) -> None:
        super().__init__("an int of Python may come to have more than 64 bits")
        self.names = names


@dataclass(frozen=True, slots=True)
class Kind:
    """What a variable can hold: a number of a dtype of NumPy's, one of Python's (`weak`), or this one constant.

    Attributes:
        dtype: None of a constant that is no number.
        length: of a new array with one axis; None of a number.
        is_complex: is it a complex number? The dtype is that of its parts.
    """

    dtype: np.dtype[Any] | None
    weak: bool = False
    constant: Any = None
    is_constant: bool = False  # a dtype equals None where it is float64
    length: Poly | None = None
    is_complex: bool = False

    @classmethod
    def of(cls, x: Any) -> Kind | None:
        """The kind of a value; None where no array can hold it."""
        if is_tracer(x):
            if x.ndim == 1:
                return cls(x.dtype, length=current().poly(x.shape[0]))
            return cls(x.dtype, x.weak) if x.is_scalar and not x.ndim else None
        if type(x) is ComplexTracer:
            return cls(x.parts.dtype, x.weak, is_complex=True) if x.is_scalar and not x.ndim else None
        if is_host(x):
            x = x.value
            if isinstance(x, complex):
                return None
        if type(x) is complex:
            return cls(np.dtype(np.float64), True, is_complex=True)
        if isinstance(x, np.complexfloating) and supported_complex(x.dtype):
            return cls(part_dtype(x.dtype), is_complex=True)
        if type(x) in (Size, InductionVariable):
            return cls(np.dtype(np.int64), True)
        if type(x) in (bool, int, float):
            fits = type(x) is not int or -(2**63) <= x < 2**63
            return cls(np.dtype(type(x)), True) if fits else None
        if isinstance(x, np.generic) and supported_dtype(x.dtype):
            return cls(x.dtype)
        return cls(None, constant=x, is_constant=True) if x is None or type(x) is str else None

    @property
    def is_int(self) -> bool:
        """Is it an int of Python?"""
        return self.weak and self.dtype is not None and self.dtype.kind == "i"

    @property
    def is_number(self) -> bool:
        """Is it a real number?"""
        return self.dtype is not None and self.length is None and not self.is_complex

    def shape(self, rec: Recorder) -> tuple[int, ...]:
        """Of the array that holds it; of a complex number that of its parts."""
        return (2,) if self.is_complex else () if self.length is None else (rec.size(self.length),)


def element(rec: Recorder, x: Any, dtype: np.dtype[Any]) -> Expr:
    """The number that a value is, or the element of an array or of a complex number's parts, of its own dtype."""
    if type(x) is ComplexTracer:
        parts: Expr = x.parts.load()
        return parts
    if isinstance(x, complex | np.complexfloating):
        is_real = Op("equal", (Index(poly(Dim(0))), Const(0, np.int64)), np.bool_)
        return select(is_real, Const(x.real, dtype), Const(x.imag, dtype))
    if is_tracer(x):
        value: Expr = x.load()
        return value
    if is_host(x):
        return rec.scalar(number(x, dtype, as_array), dtype)
    if type(x) in (Size, InductionVariable):
        return Index(x.poly)
    return Const(x, dtype)


@dataclass
class Carried:
    """A variable that iterations change.

    Attributes:
        name: of the variable.
        initial: what it holds before the loop; `UNBOUND` where it has no value then.
        kinds: what it was seen to hold, the kind of `initial` first.
        switches: may an iteration leave it the kind that it had? Else it has the second one after the first iteration.
        slots: for each kind the array that holds it.
        second: does it hold the second kind? An array, made where it `switches`.
    """

    name: str
    initial: Any
    kinds: list[Kind]
    switches: bool = False
    slots: list[Tracer | None] = field(default_factory=list)
    second: Tracer | None = None

    @property
    def has_first_iteration(self) -> bool:
        """Does it hold something else in the first iteration than in the others?"""
        return len(self.kinds) > 1 and not self.switches

    def begin(self, rec: Recorder) -> None:
        """Make the arrays, which hold what the variable holds before the loop."""
        self.slots = []
        for kind in self.kinds:
            dtype = kind.dtype
            if dtype is None:
                self.slots.append(None)
                continue
            known = self.initial is not UNBOUND and self.kinds[0].dtype is not None
            initial = cast(element(rec, self.initial, dtype), dtype) if known else Const(0, dtype)
            self.slots.append(from_stage(initial, kind.shape(rec), dtype, name=self.name))
        self.second = (
            from_stage(Const(False, np.bool_), (), np.bool_, name=f"{self.name}_changed") if self.switches else None
        )

    def value(self, k: int) -> Any:
        """What the variable holds at present, where it is of kind `k`."""
        slot, kind = self.slots[k], self.kinds[k]
        if slot is None:
            return kind.constant
        if k == 0 and self.has_first_iteration:
            return self.initial
        if kind.is_complex:
            number = ComplexTracer(Tracer(slot.buffer, slot.shape, slot.index), is_scalar=True)
            number.weak = kind.weak
            return number
        if kind.length is not None:
            return Tracer(slot.buffer, slot.shape, slot.index)
        found = Tracer(slot.buffer, (), (), is_scalar=True)
        found.weak = kind.weak
        return found

    def changed(self, rec: Recorder, had: int, value: Any, k: int) -> list[tuple[Tracer, Expr]]:
        """What an iteration that has left `value`, of kind `k`, writes where."""
        slot, kind = self.slots[k], self.kinds[k]
        found: list[tuple[Tracer, Expr]] = []
        if slot is not None and kind.dtype is not None and not (k == 0 and self.has_first_iteration):
            found.append((slot, cast(element(rec, value, kind.dtype), kind.dtype)))
        if self.second is not None and had != k:
            found.append((self.second, Const(k == 1, np.bool_)))
        return found


class CarriedVariables:
    """The variables of a function that iterations of a loop change.

    Attributes:
        kept: what may be carried, and its value before the loop; `UNBOUND` where it has none.
        left: the one that says whether the loop has been left; "" of a loop that cannot be.
        by_name: what is.
        at_last: those that are the loop's own variable at the end of each iteration; None: that is not known yet.
        set_inside: those that loops inside set, which have iterations.
        had: the kind of each on the path that is traced.
        checked: those of which each iteration checks that they are no large ints.
        ints: what iterations leave in those that are ints of Python, by the arrays that hold them before.
        guarded: the arrays of those that are `checked`.
        left_kinds: which kinds iterations leave in each.
    """

    def __init__(
        self,
        rec: Recorder,
        frame: types.FrameType,
        kept: Mapping[str, Any],
        left: str = "",
        may_be_empty: bool = False,
        checked: Collection[str] = (),
        known: dict[str, tuple[tuple[Kind, ...], bool]] | None = None,
    ) -> None:
        """
        Args:
            may_be_empty: may there be no iterations, or none of the first ones?
            known: of a loop of one iteration at most, what was carried when it was traced before, and how; with what
                is found now.
        """
        self.rec, self.frame, self.left, self.may_be_empty = rec, frame, left, may_be_empty
        self.checked = checked
        self.elements = Elements(frame)
        self.kept = dict(kept)
        self.by_name: dict[str, Carried] = {}
        self.at_last: set[str] | None = set() if left or may_be_empty else None
        self.set_inside: set[str] = set()
        self.had: dict[str, int] = {}
        self.given: dict[str, Any] = {}
        self.ints: dict[str, tuple[Expr, Tracer, list[Expr]]] = {}
        self.guarded: set[str] = set()
        self.left_kinds: dict[str, set[int]] = {}
        self.finals: dict[str, Tracer] = {}
        self.versions: dict[str, str] = {}
        self.serial = next(serials)
        self.known = known
        for name, (kinds, switches) in (known or {}).items():
            initial = self.kept.get(name)
            if name in self.kept and (kinds[0] if initial is UNBOUND else Kind.of(initial)) == kinds[0]:
                self.by_name[name] = Carried(name, initial, list(kinds), switches)

    def begin(self) -> None:
        """Make the arrays that hold them."""
        self.ints, self.guarded, self.left_kinds = {}, set(), {}
        for x in self.by_name.values():
            x.begin(self.rec)
            if x.slots[0] is not None:
                self.versions[x.name] = x.slots[0].buffer.version
            for k, (slot, kind) in enumerate(zip(x.slots, x.kinds, strict=True)):
                if slot is not None and kind.is_int:
                    version = slot.buffer.version
                    initial = self.rec.stages[version].initial
                    assert initial is not None
                    if k and not isinstance(initial, Const):  # of another kind, it is not read as an int
                        initial = Const(0, initial.dtype)
                    self.ints[version] = (initial, slot, [])
                    if x.name in self.checked:
                        self.guarded.add(version)
                        self._guard(initial)
                    self.rec.rerolled.carried_ints[version] = CarriedInt(Const(0, initial.dtype))

    def version_of_left(self) -> str:
        """The array that says whether the loop has been left before an iteration; "" of a loop that never is."""
        return self.versions[self.left] if self.left in self.by_name else ""

    @property
    def has_first_iteration(self) -> bool:
        """Is there one that holds something else in the first iteration than in the others?"""
        return any(x.has_first_iteration for x in self.by_name.values())

    def begins(self) -> dict[str, Expr]:
        """What the arrays hold before the loop, by their versions, where these numbers are known."""
        found: dict[str, Expr] = {}
        for slot in (slot for x in self.by_name.values() for slot in x.slots if slot is not None):
            stage = self.rec.stages[slot.buffer.version]
            if isinstance(stage.initial, Const) and not stage.updates:
                found[stage.name] = stage.initial
        return found

    def begin_path(self, is_first: Callable[[], bool], branch: Callable[[Any], bool]) -> None:
        """Give the variables what they hold at the start of an iteration, each of one kind."""
        self.given = dict(self.kept)
        if self.known is not None:  # the iteration finds what there is before the loop
            self.had = dict.fromkeys(self.by_name, 0)
            self.elements.give(self.given)
            return
        first = self.has_first_iteration and is_first()
        for name, x in self.by_name.items():
            if x.second is not None:
                self.had[name] = int(branch(x.second))
            else:
                self.had[name] = int(x.has_first_iteration and not first)
            self.given[name] = x.value(self.had[name])
        if self.left in self.by_name:
            self.given[self.left] = False  # where it holds, no path is taken
        self.elements.give(self.given)

    def keep_lists(self, changed: Sequence[tuple[Any, list[Any]]]) -> bool:
        """Carry what lists hold that an iteration has changed; False where it was not known that one is.

        Raises:
            NotCarried: it is no list, or its length changes.
        """
        new = [(c, before) for c, before in changed if not self.elements.has(c)]
        for c, before in new:
            if type(c) is not list:
                raise NotCarried("a list or a dict is changed")
            if self.elements.has(c):  # it can be reached in two ways
                continue
            self.elements.add(c, before, self.kept)
        return not new

    def end_path(self, variable: InductionVariable, read: Collection[str]) -> bool:
        """Write what the variables hold at the end of an iteration; False where more is to be known before.

        Args:
            variable: of the loop.
            read: those that an iteration may read before it sets them.

        Raises:
            NotCarried: one of them cannot be carried.
        """
        is_known = not self.elements.find(self.kept)
        now = self.elements.now()
        is_known &= not self._find(variable, now, self.elements.read(read))
        writes: list[tuple[Tracer, Expr]] = []
        for x in self.by_name.values():
            value = now.get(x.name, UNBOUND)
            k, is_new = self._kind_of(x, value)
            is_known &= not is_new
            if is_known:
                writes += x.changed(self.rec, self.had[x.name], value, k)
                self.left_kinds.setdefault(x.name, set()).add(k)
        if is_known:
            for slot, e in writes:
                if slot.buffer.version in self.ints:
                    self.ints[slot.buffer.version][2].append(e)
                    if slot.buffer.version in self.guarded:
                        self._guard(e)
            for slot, e in writes:
                update(slot, e)
        return is_known

    def _guard(self, e: Expr) -> None:
        """Have Python run where an int is far from 0."""
        found = self.rec.range_of(e)
        if found is None or max(-found[0], found[1]) > HALF:
            ends = (("less", -HALF), ("greater", HALF))
            below, above = (Op(name, (e, Const(end, e.dtype)), np.bool_) for name, end in ends)
            large = Op("logical_or", (below, above), np.bool_)
            self.rec.findings.checked_int = self.rec.findings.checked_int or self.rec.line()
            self.rec.checks.append(self.rec.stage(large, (), np.bool_, name="large").name)

    def _find(self, variable: InductionVariable, now: Mapping[str, Any], read: Collection[str]) -> bool:
        """Add the variables that this iteration has changed; are there new ones?"""
        if self.at_last is None:
            self.at_last = {name for name in self.kept if now.get(name) is variable and name not in read}
        others = {name for name in self.at_last if now.get(name) is not variable}
        self.at_last -= others
        is_new = False
        for name, initial in self.kept.items():
            is_left = now.get(name, UNBOUND) is initial and name not in others
            if name in self.by_name or name in self.at_last or is_left:
                continue
            kind = Kind.of(now.get(name, UNBOUND))
            if initial is UNBOUND and name in read and name not in self.set_inside and not is_added(name):
                raise NotCarried(f"{name} may be read before it is set")
            if initial is UNBOUND and self.may_be_empty and not is_added(name):
                raise NotCarried(f"{name} may be left without a value")
            begin = kind if initial is UNBOUND else Kind.of(initial)
            if begin is None or kind is None:
                raise NotCarried(f"{name}, which iterations change, is no number")
            self.by_name[name] = Carried(name, initial, [begin])
            is_new = True
        return is_new

    def _kind_of(self, x: Carried, value: Any) -> tuple[int, bool]:
        """Which of its kinds a variable holds; and is it one that it was not known to hold there?"""
        kind = Kind.of(value)
        if kind is None:
            raise NotCarried(f"{x.name}, which iterations change, is no number")
        if x.initial is UNBOUND and value is self.given.get(x.name) and not is_added(x.name):
            raise NotCarried(f"{x.name} may be left without a value")
        if kind.length is not None or x.kinds[0].length is not None:
            self._check_array(x, value, kind)
        is_new = False
        if kind not in x.kinds:
            x.kinds.append(kind)
            x.switches |= self.may_be_empty
            is_new = True
        elif x.has_first_iteration and kind == x.kinds[0]:
            x.switches = is_new = True
        if len(x.kinds) > MAX_KINDS:
            raise NotCarried(f"{x.name} has numbers of more than {MAX_KINDS} types")
        return x.kinds.index(kind), is_new

    def _check_array(self, x: Carried, value: Any, kind: Kind) -> None:
        """Raise where an array is not a new one at the end of each iteration, or is changed in place."""
        begin, slot = self.kept[x.name], x.slots[0] if x.slots else None
        if kind != x.kinds[0] or not is_tracer(begin):
            raise NotCarried(f"{x.name} is an array in some iterations only, or one of another type")
        buffer = value.buffer
        given = {id(y.buffer) for z in self.by_name.values() for y in z.slots if y is not None}
        others = [y for name, y in self.frame.f_locals.items() if name != x.name and is_tracer(y)]
        is_new = value.is_whole and buffer.serial > self.serial and not buffer.argument and buffer.root is buffer
        if not is_new or id(buffer) in given or any(y.buffer is buffer for y in others):
            raise NotCarried(f"{x.name} is not a new array in each iteration")
        if slot is not None and slot.buffer.version != self.versions[x.name]:
            raise NotCarried(f"{x.name} is changed in place")

    def arrays(self) -> set[str]:
        """What holds them, as the versions that iterations find."""
        slots = (slot for x in self.by_name.values() for slot in (*x.slots, x.second))
        return {slot.buffer.version for slot in slots if slot is not None}

    def check_ints(self, paths: Sequence[Path], stages: Mapping[str, Stage]) -> None:
        """Raise where an int of Python may leave what arrays hold.

        Args:
            paths: the paths through an iteration.
            stages: what does not change while the loop runs.
        """
        rec = self.rec
        if not rec.rerolled.carried_ints and not rec.rerolled.python_ints:
            return
        iterations = rec.loops[-1].trip_count  # each time, it begins with what the loop around has left
        temporaries = {name: s for p in paths for name, s in p.body.items()}
        changed = {version for p in paths for c in p.changes for version in (c[1], c[3])}
        fixed = {name: s for name, s in {**stages, **temporaries}.items() if name not in changed}
        for version in self.ints:
            del rec.rerolled.carried_ints[version]
        ints = self.ranges(fixed)
        waiting = dict(self.ints)
        while waiting:
            done = ints.settle({v: x[0] for v, x in waiting.items()}, {v: x[2] for v, x in waiting.items()})
            done = done or {
                v: found for v, x in waiting.items() if (found := self._bounded(ints, v, *x, iterations)) is not None
            }
            if not done:
                raise self._large_ints(waiting)
            rec.rerolled.carried_ints.update(done)
            for v in done:
                self.finals[v] = waiting.pop(v)[1]
        for p in paths:
            if ints.overflow(s for s in p.body.values() if s.name in rec.rerolled.python_ints):
                raise LargeInts(frozenset({ALL}))

    def ranges(self, stages: Mapping[str, Stage]) -> CarriedInts:
        """The integers that expressions can be while the loop runs; `stages` do not change then."""
        most: dict[Atom, int] = {loop.var: loop.trip_count - 1 for loop in self.rec.loops}
        rerolled = self.rec.rerolled
        return CarriedInts(stages, rerolled.carried_ints, most, self.rec.sizes, rerolled.small_ints)

    def _bounded(
        self,
        ints: CarriedInts,
        version: str,
        initial: Expr,
        slot: Tracer,
        values: Sequence[Expr],
        iterations: int,
    ) -> CarriedInt | None:
        """An int that stays within 2**53, and how far it moves; None where it may not."""
        begin = ints.moves(initial)
        ways = [ints.moves(e, version) for e in values]
        if begin is not None and None not in ways:
            growth = max((w for w in ways if w is not None), default=0) * iterations
            if growth <= HALF:
                first = ints.of(initial)
                within = (-MOST, MOST) if first is None else (first[0] - growth, first[1] + growth)
                return CarriedInt(initial, growth, within if max(-within[0], within[1]) <= MOST else (-MOST, MOST))
        return CarriedInt(initial, None, (-HALF, HALF)) if version in self.guarded else None

    def _large_ints(self, versions: Collection[str]) -> NotCarried:
        """Iterations are to check some ints, or cannot do so."""
        names = frozenset(
            x.name for x in self.by_name.values() for y in x.slots if y is not None and y.buffer.version in versions
        )
        return LargeInts(names.difference(self.checked))

    def note_ints(self) -> None:
        """Note the arrays that hold ints of Python after the loop."""
        for version, slot in self.finals.items():
            self.rec.rerolled.carried_ints[slot.buffer.version] = self.rec.rerolled.carried_ints[version]

    def check_bound(self) -> None:
        """Raise where a variable has no value before the loop, and none after it."""
        known = (*self.by_name, *(self.at_last or ()))
        others = [name for name in self.kept if name not in known and not is_added(name)]
        if any(self.kept[name] is UNBOUND for name in others):
            raise NotCarried("a variable may be left without a value")

    def end(self, last: Any, was_run: Callable[[], bool]) -> None:
        """Give the variables what they hold after the loop; `was_run`: has one of one iteration at most had that?"""
        if self.known is not None:
            own = self.elements.names
            plain = {name: x for name, x in self.by_name.items() if name not in own and None not in x.slots}
            self.known.update({name: (tuple(x.kinds), x.switches) for name, x in plain.items()})
        values: dict[str, Any] = dict.fromkeys(self.at_last or (), last)
        for name, x in self.by_name.items():
            if self.known is not None and x.switches and self.left_kinds.get(name) == {1}:
                values[name] = x.value(1) if was_run() else self.kept[name]
                continue
            k = int(bool(x.second)) if x.switches else len(x.kinds) - 1
            values[name] = x.value(k)
        self.elements.give({**{n: x for n, x in self.kept.items() if n in self.elements.names}, **values})


def is_added(name: str) -> bool:
    """Is it a variable of `exits`? These are read only where the loop has been left so that they have a value."""
    return name.startswith((".value", ".return"))
