"""Which sizes of a function's arguments may differ from call to call, and which conditions on them must hold.

A pipeline is traced with actual numbers, and again for each new size; exported code cannot do that. So tracing records
the comparisons of sizes (`size_guards_noted`), and the exported code checks them at every call. Where Python code turns
a size into a plain number, as in ``int(0.5 * h)``, that number becomes a constant of the code. To find these, the
function is traced again with other sizes, one at a time: a size is fixed if another value of it changes the Graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.call.build import Request, TracingFailed, traced_call
from hjit.call.segments import graphs_of, recorded
from hjit.export.numbers import FUNCTIONS, sizes_for_python
from hjit.trace.capture.trace import Trace
from hjit.trace.ir.expressions import ScalarRef, walk
from hjit.trace.ir.key import graph_key
from hjit.trace.ir.poly import SMALL, Atom, IntLike, Poly, Sym, deep_atoms, is_never_negative, poly, sizes_value
from hjit.trace.passes.rewrites import NO_REWRITES
from hjit.trace.tracing.recording.recorder import OutOfBounds, Recorder
from hjit.trace.tracing.scalars.host import TapeEntry
from hjit.trace.tracing.scalars.size import Size, SizeGuard, size_guards_noted
from hjit.trace.tracing.writeable import is_writeable

TRIALS = 5  # other values of a size that are traced
MAX_SIZE_SUM = 1 << 62  # more than sums of lengths, and products of two, ever are
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


@dataclass(frozen=True, slots=True)
class PolymorphicTrace:
    """A trace that holds for other sizes of its arguments, too (JAX's shape polymorphism).

    Attributes:
        names: run-time sizes of the arguments, as "img.0", in order.
        constants: numbers of all others.
        size_guards: what must hold of them.
        fixed: those of `names` for which only the example's number is accepted.
    """

    trace: Trace
    names: tuple[str, ...]
    constants: Mapping[str, int]
    size_guards: tuple[SizeGuard, ...]
    fixed: frozenset[str]

    def of_arguments(self, p: Poly) -> Poly:
        """A polynomial over run-time sizes of the arguments alone."""

        def change(a: Atom) -> IntLike | None:
            return self.constants.get(a.name) if isinstance(a, Sym) else None

        return p.substitute(change)

    def is_fixed(self, p: Poly) -> bool:
        """Is a polynomial the same for all sizes that arguments may have?"""
        return _symbols(self.of_arguments(p)) <= self.fixed


def polymorphic_trace(request: Request) -> PolymorphicTrace:
    """Trace a function, and find out which sizes may differ.

    Raises:
        HjitError: the function cannot be traced.
    """
    trace, size_guards = _traced(request)
    names = _argument_sizes(trace)
    sizes = dict(trace.recorder.sizes)
    found = PolymorphicTrace(trace, names, {n: v for n, v in sizes.items() if n not in names}, (), frozenset())
    if trace.recorder.breaks:  # it cannot be exported
        return found
    about = [*_about_arguments(size_guards, found), *(SizeGuard("gt", poly(Sym(n)), poly(SMALL), True) for n in names)]
    only_python = sizes_for_python(trace.recorder.tape)
    fixed = {n for p in only_python for n in _symbols(found.of_arguments(p))}
    expected = _computed(trace, size_guards, names)
    for group in _equal(names, about):
        if not _may_differ(group, sizes, about, expected, request):
            fixed |= group
    about += [SizeGuard("eq", poly(Sym(n)), poly(sizes[n]), True) for n in names if n in fixed]
    return PolymorphicTrace(trace, names, found.constants, tuple(_needed(about, fixed)), frozenset(fixed))


def holds(guard: SizeGuard, sizes: Mapping[str, int]) -> bool:
    """Does a guard hold of these sizes?"""
    return bool(FUNCTIONS[guard.op](sizes_value(guard.a, sizes), sizes_value(guard.b, sizes)))


def _traced(request: Request) -> tuple[Trace, list[SizeGuard]]:
    with size_guards_noted() as size_guards:
        try:
            trace = traced_call(request)
        except OutOfBounds:
            raise IndexError("index out of bounds") from None
        except TracingFailed as unclear:
            raise unclear.error from None
    if all(e.call is None and is_constant(trace.recorder, e.needs) for e in trace.recorder.breaks):
        trace.recorder.breaks.clear()  # they fall the same way at every call
    return trace, list(size_guards)


def is_constant(rec: Recorder, names: Iterable[str]) -> bool:
    """Are stages computed of no argument: of numbers and arrays in the code, such as the footprint of a filter?"""
    seen: set[str] = set()
    todo = [*names]
    while todo:
        n = todo.pop()
        if n in seen:
            continue
        seen.add(n)
        stage = rec.stages.get(n)
        if stage is None:
            if rec.inputs[n].where[0] != "constant":
                return False
            continue
        polys = [*stage.shape, *(p for d in stage.definitions for p in (*d.extents, *d.target))]
        exprs = [e for d in stage.definitions for e in walk(d.value)]
        polys += [p for e in exprs for p in e.polys]
        if any(isinstance(e, ScalarRef) for e in exprs) or any(_symbols(p) for p in polys):
            return False
        todo += stage.sources
    return True


def _argument_sizes(trace: Trace) -> tuple[str, ...]:
    """The run-time sizes that the arguments have."""
    inputs = (s.input for s in trace.recorder.inputs.values() if s.where[0] == "arg")
    return tuple(dict.fromkeys(a.name for i in inputs for p in i.shape for a in p.atoms() if isinstance(a, Sym)))


def _about_arguments(size_guards: Iterable[SizeGuard], sizes: PolymorphicTrace) -> Iterator[SizeGuard]:
    """What is not always so, over the sizes of arguments."""
    for f in size_guards:
        a, b = sizes.of_arguments(f.a), sizes.of_arguments(f.b)
        if not (a - b).is_const:
            op = "eq" if f.op == "is" else f.op
            yield SizeGuard(op if f.holds else _OPPOSITE[op], a, b, True)


def _equal(names: Sequence[str], size_guards: Iterable[SizeGuard]) -> list[frozenset[str]]:
    """Sizes that must be equal to each other."""
    group = {n: frozenset({n}) for n in names}
    for f in size_guards:
        d = f.a - f.b
        if f.op == "eq" and not d.const and sorted(d.terms.values()) == [-1, 1]:
            atoms = [m[0] for m in d.terms if len(m) == 1 and isinstance(m[0], Sym)]
            if len(atoms) == len(d.terms):
                joined = group[atoms[0].name] | group[atoms[1].name]
                group |= dict.fromkeys(joined, joined)
    return [*dict.fromkeys(group.values())]


def _may_differ(
    group: Set[str],
    sizes: Mapping[str, int],
    size_guards: Sequence[SizeGuard],
    expected: Any,
    request: Request,
) -> bool:
    """Is the same computed for other values of a size?"""
    tried = 0
    for n in _others(sizes[next(iter(group))]):
        there = {**sizes, **dict.fromkeys(group, n)}
        if tried == TRIALS or not all(holds(f, there) for f in size_guards):
            continue
        try:
            resized = _resized(request.leaves, group, n, expected.arrays)
            trace, noted = _traced(replace(request, leaves=resized))
        except MemoryError:
            continue
        except Exception:
            return False  # a size that the function itself refuses, or that it is not traced with
        found = _computed(trace, noted, expected.names)
        if found.small - expected.small:
            continue  # numbers that are small here, and run-time sizes there: computed alike, but written otherwise
        if found != expected:
            return False
        tried += 1
    return tried > 0


def _others(n: int) -> Iterator[int]:
    """Other values of a size: of the other parity, small and large; then such as share divisors with it."""
    tried = [n + 1, 2 * n + 1, SMALL + 2, 8 * n + 3, 3 * SMALL + n % 2]
    tried += [3 * n, 2 * n, *(n + k for k in (2, 3, 4, 6, 8, 16, 32, 64))]
    yield from (k for k in dict.fromkeys(tried) if k != n)


@dataclass(frozen=True, slots=True)
class _Computed:
    """What a trace computes, in a form that is equal for equal programs.

    Attributes:
        arrays: of the arguments: their leaves, and the names of their sizes.
        small: sizes that are small, and so constants.
    """

    names: tuple[str, ...]
    arrays: Mapping[str, tuple[int, tuple[str, ...]]]
    small: frozenset[Poly]
    form: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Computed) and self.form == other.form and self.arrays == other.arrays


def _computed(trace: Trace, size_guards: Iterable[SizeGuard], names: tuple[str, ...]) -> _Computed:
    rec = trace.recorder
    arrays = {
        n: (s.where[1], tuple(str(p) for p in s.input.shape)) for n, s in rec.inputs.items() if s.where[0] == "arg"
    }
    graphs = graphs_of(recorded(rec, by_chance=False), trace.goals, NO_REWRITES)
    keys = [graph_key(g) for g in graphs]
    place = {n: (k, j) for k, g in enumerate(graphs) for j, n in enumerate(g.outputs)}

    def sizes(p: Poly) -> str:
        return str(p.substitute(lambda a: rec.sizes[a.name] if isinstance(a, Sym) and a.name not in names else None))

    form = (
        [(k.text, [s if s in names else rec.sizes[s] for s in k.symbols]) for k in keys],
        [[sizes(p) for p in g.stage(n).shape] for g in graphs for n in g.outputs],
        [
            (
                r.kind,
                place.get(r.name, r.name),
                _contents(r.value),
                r.is_scalar,
                r.weak,
                r.order,
                [*map(sizes, (*r.shape, *r.index))],
            )
            for r in trace.results
        ],
        [(name, place.get(stage)) for name, stage in trace.writes],
        [place.get(n) for n in rec.checks],
        [(f, [*map(_tape_argument, args)]) for f, args in rec.tape.ops],
        [_contents(s.array) for s in rec.inputs.values() if s.where[0] == "constant"],
        [(k, repr(value)) for k, value in rec.tape.guards],
        [(e.operation, e.needs) for e in rec.breaks],
    )
    return _Computed(names, arrays, frozenset(f.a for f in size_guards if f.op == "is"), form)


def _contents(x: Any) -> Any:
    """What a constant is, in little memory."""
    if not isinstance(x, np.ndarray):
        return repr(x)
    return x.dtype.str, x.shape, hashlib.sha256(x.tobytes()).digest()


def _tape_argument(x: Any) -> Any:
    return str(x.poly) if type(x) is Size else (type(x), x) if isinstance(x, (int, float, TapeEntry)) else type(x)


def _resized(
    leaves: Sequence[Any], group: Set[str], n: int, arrays: Mapping[str, tuple[int, tuple[str, ...]]]
) -> list[Any]:
    """The arguments, arrays with other lengths along the axes of these sizes."""
    found = list(leaves)
    for leaf, shape in arrays.values():
        a = leaves[leaf]
        lengths = tuple(n if s in group else old for s, old in zip(shape, a.shape, strict=True))
        if lengths != a.shape:
            found[leaf] = like(a, lengths)
    return found


def like(a: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array of another shape, in the memory layout of `a` as kernels know it; its pages are never touched."""
    item = a.itemsize
    steps, reach = [0] * a.ndim, 1
    for k in sorted(range(a.ndim), key=lambda k: (abs(a.strides[k]), -k)):
        if a.shape[k] == 1:
            continue
        step = abs(a.strides[k]) // item
        steps[k] = step if step <= SMALL else max(reach, SMALL + 1)
        reach = max(reach, steps[k] * shape[k])
    base = np.zeros(reach, a.dtype)
    found = np.lib.stride_tricks.as_strided(base, shape, [s * item for s in steps])
    flips = tuple(slice(None, None, -1 if s < 0 else 1) for s in a.strides)
    found = found[flips]
    found.flags.writeable = is_writeable(a)
    return found


def _needed(size_guards: Iterable[SizeGuard], fixed: set[str]) -> Iterator[SizeGuard]:
    """Each guard once, without those that are clear as some sizes are fixed, and all are above `SMALL`."""
    seen: set[SizeGuard] = set()
    for f in size_guards:
        is_base = (f.op == "eq" and f.b.is_const) or (f.op == "gt" and f.b == SMALL)
        is_free = not _symbols(f.a) | _symbols(f.b) <= fixed
        if f not in seen and (is_base or (is_free and not _is_clear(f))):
            seen.add(f)
            yield f


def _is_clear(f: SizeGuard) -> bool:
    """Does a guard hold of all sizes above `SMALL`?"""
    match f.op:
        case "le":
            return _is_above(f.b - f.a, -1)
        case "ge":
            return _is_above(f.a - f.b, -1)
        case "lt":
            return _is_above(f.b - f.a, 0)
        case "gt":
            return _is_above(f.a - f.b, 0)
        case "ne":
            return _is_above(f.b - f.a, 0) or _is_above(f.a - f.b, 0)
    return False


def _is_above(p: Poly, n: int) -> bool:
    """Is a polynomial of sizes provably more than a small number?"""
    if abs(p.const) >= MAX_SIZE_SUM and all(len(m) <= 1 for m in p.terms):
        return p.const > 0
    return is_never_negative(p - (n + 1))


def _symbols(p: Poly) -> set[str]:
    return {a.name for a in deep_atoms(p) if isinstance(a, Sym)}


__all__ = ["PolymorphicTrace", "holds", "is_constant", "like", "polymorphic_trace"]
