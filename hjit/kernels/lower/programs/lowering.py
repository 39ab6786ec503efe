"""Lowering of a `Program`: its steps, in their order, as statements of one nest.

Numbers are registers. The innermost loop of a step is vectorised if its elements are contiguous. A step that reads
elements that it stores at other points stores to a temporary first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hjit.errors import CompileError
from hjit.kernels.lower.check import check_loop_ir
from hjit.kernels.lower.loopir import (
    BEGIN,
    END,
    Block,
    Declare,
    For,
    If,
    Item,
    Name,
    Reduce,
    ReductionLoop,
    Register,
    Set,
    Stmt,
    Store,
    VectorLoop,
)
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.block_reductions import block_reductions
from hjit.kernels.lower.passes.hoist_invariants import hoist_invariants
from hjit.kernels.lower.passes.vectorize import vectorize
from hjit.kernels.lower.placing.reductions import accumulation
from hjit.kernels.lower.program import Buffer, Nest
from hjit.kernels.lower.program import Program as Loops
from hjit.kernels.lower.programs.fusion import fused
from hjit.kernels.lower.programs.independence import with_independent_iterations, work_of
from hjit.process import debug
from hjit.sched.language.memory import C_ORDER
from hjit.trace.ir.expressions import Const, Expr, Load, Op, cast, renumber, rewrite, substitute, walk
from hjit.trace.ir.graph import Definition, Graph, Stage, identity, pure
from hjit.trace.ir.poly import ONE, ZERO, Dim, Extremum, Indirect, Poly, Var, deep_atoms, extremum, poly
from hjit.trace.ir.programs.steps import Branch, Define, Loop, Program, Refuse, Step, Update, definitions, every, exprs

Body = tuple[Stmt, ...]
Point = tuple[Poly, ...]
BOOL = np.dtype(bool)
REFUSED = "refused"  # the array that says whether NumPy is to run
MAX_UNROLLED = 4  # points along a dimension that are statements of their own (chosen)
ACCUMULATORS = 4  # vectors of a sum: more cost more to combine than they gain where sums are short (chosen)


def lower_program(program: Program, machine: Machine) -> tuple[Graph, Loops]:
    """The arrays of a program, as a Graph without definitions whose outputs are all that is given, and its loops."""
    program = replace(program, body=fused(program.body))
    independent = with_independent_iterations(program)
    work = _Lowering(program if independent is None else independent, machine)
    body = work.whole() if independent is None else work.part()
    given = [Stage(i.name, i.dtype, i.shape, None) for i in program.inputs]
    outputs = [*given, *program.arrays, Stage(REFUSED, BOOL, (), None)]
    graph = Graph((), (), (*outputs, *work.memory.values()), tuple(s.name for s in outputs))
    writes = (*(s.name for s in program.arrays), *work.memory, REFUSED)
    nest = Nest("loops", body, None, ONE, writes)
    if independent is not None:
        (loop,) = independent.body
        assert isinstance(loop, Loop)
        count = loop.end - loop.begin
        nest = replace(nest, count=count, work=work_of(loop.body, (loop,)), points=count, buffers=work.buffers())
    for run in (vectorize, block_reductions, hoist_invariants):
        nest = run(nest, graph, machine)
    loops = Loops((nest,))
    if debug.checks():
        check_loop_ir(loops, graph)
    return graph, loops


@dataclass
class _Lowering:
    """Numbers the variables and registers of a program.

    Attributes:
        memory: temporaries and local arrays that are in memory, at their largest.
        numbers: registers of arrays and temporaries without axes.
        small: those of each element of arrays of few elements, as the parts of a complex number.
        around: the loops around a step, outermost first.
    """

    program: Program
    machine: Machine
    memory: dict[str, Stage] = field(default_factory=dict)
    numbers: dict[str, Register] = field(default_factory=dict)
    small: dict[str, list[Register]] = field(default_factory=dict)
    around: list[Loop] = field(default_factory=list)
    count: int = 0

    def whole(self) -> Body:
        """All statements: numbers are registers between the first and the last ones."""
        arrays = [s for s in self.program.arrays if not s.shape]
        refused = self.numbers[REFUSED] = Register(REFUSED, BOOL)
        begin: list[Stmt] = [Declare(refused, Const(False, BOOL))]
        for s in arrays:
            self.numbers[s.name] = Register(f"number.{s.name}", s.dtype)
            begin.append(Declare(self.numbers[s.name], Load(s.name, (), s.dtype)))
        begin += self.own_numbers()
        body = self.body(self.program.body)
        end = [Block((Store(name, (), self.numbers[name]),)) for name in (*(s.name for s in arrays), REFUSED)]
        return (*begin, *body, *end)

    def part(self) -> Body:
        """The statements of a task, which runs some iterations of the outermost loop; numbers are its own registers."""
        (loop,) = self.program.body
        assert isinstance(loop, Loop)
        refused = self.numbers[REFUSED] = Register(REFUSED, BOOL)
        begin = [Declare(refused, Const(False, BOOL)), *self.own_numbers()]
        self.around.append(loop)
        body = self.body(loop.body)
        self.around.pop()
        first = self.index(loop.begin)
        holds = poly(Indirect(cast(refused, np.int64), None))
        end = If(holds - 1, (Block((Store(REFUSED, (), Const(True, BOOL)),)),))
        return (*begin, For(loop.var, first + BEGIN, first + END, 1, body), end)

    def own_numbers(self) -> Iterator[Stmt]:
        """Registers of local numbers, and of the elements of small arrays."""
        for s in self.program.local:
            if not s.shape:
                self.numbers[s.name] = Register(f"number.{s.name}", s.dtype)
                yield Declare(self.numbers[s.name], Const(0, s.dtype))
        for s in small_arrays(self.program):
            self.small[s.name] = [Register(f"element{k}.{s.name}", s.dtype) for k in range(s.shape[0].const)]
            for r in self.small[s.name]:
                yield Declare(r, Const(0, s.dtype))

    def buffers(self) -> dict[str, Buffer]:
        """Memory that each task has for itself."""
        return {n: Buffer(n, (ZERO,) * len(s.shape), s.shape, C_ORDER) for n, s in self.memory.items()}

    def body(self, steps: Sequence[Step]) -> Body:
        return tuple(t for s in steps for t in self.step(s))

    def step(self, s: Step) -> Iterator[Stmt]:
        match s:
            case Define():
                yield from self.define(s.stage)
            case Update():
                yield from self.update(s.array, s.definition)
            case Branch():
                yield from self.branch(s)
            case Loop():
                self.around.append(s)
                body = self.body(s.body)
                self.around.pop()
                until = None if s.until is None else self.value(s.until)
                assert until is None or isinstance(until, Register)
                begin, end = self.index(s.begin), self.index(s.end)
                yield from _where([end - begin], (For(s.var, begin, end, 1, body, until=until),))
            case Refuse():
                refused = self.numbers[REFUSED]
                yield Block((), (), (Set(refused, Op("logical_or", (refused, self.value(s.condition)), BOOL)),))

    def branch(self, s: Branch) -> Iterator[Stmt]:
        condition = Register(self.name("condition"), BOOL)
        yield Name(condition, self.value(s.condition))
        holds = poly(Indirect(cast(condition, np.int64), None))
        if s.yes:
            yield If(holds - 1, self.body(s.yes))
        if s.no:
            yield If(-holds, self.body(s.no))

    def name(self, word: str) -> str:
        self.count += 1
        return f"{word}.{self.count}"

    def value(self, e: Expr) -> Expr:
        """An expression with registers for numbers, and for elements of small arrays at known places."""

        def change(x: Expr) -> Expr | None:
            if not isinstance(x, Load):
                return None
            if x.source in self.small and x.index[0].is_const:
                return self.small[x.source][x.index[0].const]
            return None if x.index else self.numbers.get(x.source)

        return rewrite(e, change)

    def most(self, n: Poly) -> Poly:
        """The largest value that a length has in the loops around.

        Raises:
            CompileError: it is not known.
        """
        for a in (a for a in n.atoms() if isinstance(a, Extremum)):
            factor = n.coefficient(a)
            if factor is not None and factor.is_const:
                sides = [self.most(n.substitute(lambda x, a=a, p=p: p if x == a else None)) for p in (a.a, a.b)]  # type: ignore[misc]
                # the difference of a minimum is at most that of either side, and that of a maximum one of both
                return extremum("min" if (a.which == "min") is (factor.const > 0) else "max", *sides)
        for loop in reversed(self.around):
            factor = n.coefficient(loop.var)
            if factor is None or not factor.is_const:
                raise CompileError(f"a length of {n} in a loop of {loop.var}")
            last = loop.end - 1 if factor.const > 0 else loop.begin
            n = n.substitute(lambda a, v=loop.var, last=last: last if a == v else None)  # type: ignore[misc]
        return n if n.is_const else extremum("max", n, ZERO)

    def in_memory(self, name: str, dtype: np.dtype[np.generic], shape: Point) -> None:
        """Have memory for a temporary or a local array."""
        largest = tuple(map(self.most, shape))
        known = self.memory.get(name)
        if known is not None:
            largest = tuple(a if a == b else extremum("max", a, b) for a, b in zip(known.shape, largest, strict=True))
        self.memory[name] = Stage(name, dtype, largest, None)

    # -- steps

    def define(self, s: Stage) -> Iterator[Stmt]:
        """A temporary."""
        if not s.shape and not s.updates:
            assert s.initial is not None
            value = self.value(s.initial)
            self.numbers[s.name] = Register(s.name, s.dtype)
            yield Name(self.numbers[s.name], value)
            return
        self.numbers.pop(s.name, None)
        if s.name not in self.small:
            self.in_memory(s.name, s.dtype, s.shape)
        updates = s.updates
        if updates and s.initial is not None and _is_reduction(s, updates[0]):
            yield from self.reduction(s.name, updates[0], s.initial)
            updates = updates[1:]
        elif s.initial is not None:
            yield from self.pure(s.name, pure(s.shape, s.initial))
        for d in updates:
            yield from self.update(s.name, d)
        if not s.shape:
            self.numbers[s.name] = Register(s.name, s.dtype)
            yield Name(self.numbers[s.name], Load(s.name, (), s.dtype))

    def update(self, array: str, d: Definition) -> Iterator[Stmt]:
        """A step that writes an array, or a number in a register."""
        local = next((s for s in self.program.local if s.name == array and s.shape), None)
        if local is not None and array not in self.small:
            self.in_memory(array, local.dtype, local.shape)
        if d.order == "pure" and not d.rdims:
            yield from self.pure(array, d)
        elif d.order not in ("pure", "sequential") and (array in self.numbers or d.value.dtype.kind == "f"):
            raise CompileError(f"a reduction of {array} in a loop")
        else:
            yield from self.points(d.extents, lambda at: self.store(array, d, [at]))

    def store(self, array: str, d: Definition, points: Sequence[Point]) -> Body:
        """Some points of a step at once."""
        stores: list[Store] = []
        sets: list[Set] = []
        for at in points:
            change = renumber(at)
            value = self.value(substitute(d.value, change))
            target = tuple(self.index(p.substitute(change)) for p in d.target)
            if array in self.small:
                sets.append(Set(self.small[array][target[0].const], value))
            elif array in self.numbers:
                sets.append(Set(self.numbers[array], value))
            else:
                stores.append(Store(array, target, value))
        return (Block(tuple(stores), (), tuple(sets)),)

    def index(self, p: Poly) -> Poly:
        """An index with registers for numbers."""
        if not p.exprs:
            return p
        return p.substitute(lambda a: poly(Indirect(self.value(a.expr), a.extent)) if isinstance(a, Indirect) else None)

    def points(self, extents: Point, make: Callable[[Point], Body]) -> Body:
        """Loops over all points, one after the other."""
        names = [Var(self.name("at")) for _ in extents]
        body = make(tuple(map(poly, names)))
        for var, n in zip(reversed(names), reversed(extents), strict=True):
            body = (For(var, ZERO, n, 1, body),)
        return _where(extents, body)

    def pure(self, array: str, d: Definition) -> Iterator[Stmt]:
        """All values are evaluated before any is stored."""
        if array in self.numbers or array in self.small or _is_apart(array, d):
            yield from self.apart(array, d)
            return
        kept = self.name(f"{array}.values")
        dtype = d.value.dtype
        self.in_memory(kept, dtype, d.dims)
        yield from self.apart(kept, pure(d.dims, d.value))
        yield from self.apart(array, replace(d, value=Load(kept, identity(len(d.dims)), dtype)))

    def apart(self, array: str, d: Definition) -> Body:
        """A step none of whose points reads what another one stores: vectors along the last axis of the array."""
        short = _short_dims(d)
        long = [k for k in range(len(d.dims)) if k not in short]
        along = next((k for k in reversed(long) if _lies_side_by_side(d, k, short)), None)
        long = [k for k in long if k != along] + ([] if along is None else [along])
        names = {k: Var(self.name("at")) for k in long}
        points = []
        for some in itertools.product(*(range(d.dims[k].const) for k in short)):
            at = {k: poly(n) for k, n in zip(short, some, strict=True)} | {k: poly(v) for k, v in names.items()}
            points.append(tuple(at[k] for k in range(len(d.dims))))
        body = self.store(array, d, points) if points else ()
        lanes = self.lanes(d.value)
        for k in reversed(long):
            if k == along and lanes > 1:
                body = _in_vectors(names[k], d.dims[k], lanes, body)
            else:
                body = (For(names[k], ZERO, d.dims[k], 1, body),)
        return _where([d.dims[k] for k in long], body)

    def lanes(self, e: Expr) -> int:
        """Of vectors that hold the widest numbers of an expression."""
        widest = max(x.dtype.itemsize for x in walk(e))
        return self.machine.width // widest

    def reduction(self, name: str, d: Definition, initial: Expr) -> Iterator[Stmt]:
        """A temporary that holds reductions: accumulators in registers, for each element."""
        assert isinstance(d.value, Op)
        element = self.value(d.value.args[1])
        lanes, start, fast = self.lanes(element), self.value(initial), self.machine.fast_math
        if d.value.dtype.kind == "f":
            lanes = min(lanes, self.machine.width // 8)  # sums are of doubles

        def of_point(at: Point) -> Body:
            loops = [ReductionLoop(Var(self.name("at")), ZERO, n) for n in d.rdims]
            if lanes > 1 and not (loops[-1].end.is_const and loops[-1].end.const < lanes):
                loops[-1] = replace(loops[-1], lanes=lanes, unroll=ACCUMULATORS)
            change = renumber((*at, *(poly(x.var) for x in loops)))
            how = accumulation(d, element, tuple(loops), fast)
            first = substitute(start, change)
            item = Item(at, first, substitute(how.element, change))
            whole = Reduce(
                name, d.order, (item,), tuple(loops), how.dtype, d.value.dtype, how.is_compensated, how.is_products
            )
            return (Block((Store(name, at, first),)), *_where([x.end for x in loops], (whole,)))

        if d.dims and lanes > 1 and _lies_across(d):
            yield from self.across(name, d, initial, of_point, lanes)
        else:
            yield from self.points(d.dims, of_point)

    def across(
        self, name: str, d: Definition, initial: Expr, of_point: Callable[[Point], Body], lanes: int
    ) -> Iterator[Stmt]:
        """Reductions of neighbouring elements at once, where what these read lies side by side."""
        yield from self.pure(name, pure(d.dims, initial))
        names = [Var(self.name("at")) for _ in d.dims]
        body: Body = tuple(t for t in of_point(tuple(map(poly, names))) if not isinstance(t, Block))
        while len(body) == 1 and isinstance(body[0], If):
            body = body[0].body
        (whole,) = body
        assert isinstance(whole, Reduce)
        one = replace(whole, loops=tuple(replace(x, lanes=1, unroll=1) for x in whole.loops))
        vectors = VectorLoop(
            names[-1], ZERO, d.dims[-1], ZERO, d.dims[-1], lanes, ACCUMULATORS, 1, "guard_with_if", (one,), (one,)
        )
        found: Body = (vectors,)
        for var, n in zip(reversed(names[:-1]), reversed(d.dims[:-1]), strict=True):
            found = (For(var, ZERO, n, 1, found),)
        yield from _where([*d.dims, *d.rdims], found)


def small_arrays(program: Program) -> list[Stage]:
    """Local arrays and temporaries of few elements, of which each step that has to do with them knows the places."""
    found = {s.name: s for s in program.local if _is_small(s)}
    found |= {s.stage.name: s.stage for s in every(program.body) if isinstance(s, Define) and _is_small(s.stage)}
    for s in every(program.body):
        own = s.stage.name if isinstance(s, Define) else s.array if isinstance(s, Update) else ""
        for d in definitions(s):
            known = frozenset(Dim(k) for k in _short_dims(d)) if d.order == "pure" and not d.rdims else frozenset()
            places = [(x.source, x.index) for x in d.loads] + [(own, d.target)]
            for name in [n for n, index in places if n in found and not _is_known(index, known)]:
                del found[name]
            if own in found and (d.order != "pure" or len(known) < len(d.dims)):
                del found[own]
        for x in () if definitions(s) else (x for e in exprs(s) for x in e.loads):
            if x.source in found and not _is_known(x.index, frozenset()):
                del found[x.source]
    return [*found.values()]


def _is_small(s: Stage) -> bool:
    return len(s.shape) == 1 and s.shape[0].is_const and s.shape[0].const <= MAX_UNROLLED


def _is_known(index: Point, known: Collection[Dim]) -> bool:
    """Is an index known where some dimensions are?"""
    return all(a in known for p in index for a in deep_atoms(p))


def _short_dims(d: Definition) -> list[int]:
    """The dimensions of a step whose points are statements of their own."""
    short = [k for k, n in enumerate(d.dims) if n.is_const and n.const <= MAX_UNROLLED]
    return short if math.prod(d.dims[k].const for k in short) <= 2 * MAX_UNROLLED else []


def _where(lengths: Sequence[Poly], body: Body) -> Body:
    """A body where all loops of these lengths have iterations: what it reads may not be there otherwise."""
    for n in lengths:
        if not (n.is_const and n.const > 0):
            body = (If(n - 1, body),)
    return body


def _in_vectors(var: Var, n: Poly, lanes: int, body: Body) -> Body:
    if n.is_const and n.const < lanes:
        return (For(var, ZERO, n, 1, body),)
    return (VectorLoop(var, ZERO, n, ZERO, n, lanes, 1, 1, "guard_with_if", body, body),)


def _lies_side_by_side(d: Definition, k: int, short: Sequence[int]) -> bool:
    """Do elements along a dimension lie side by side, but for those of short dimensions that are written with them?"""
    for p in reversed(d.target):
        dims = {a.k for a in deep_atoms(p) if isinstance(a, Dim)}
        if k in dims:
            return dims == {k} and _goes_by_one(p, k)
        if not dims or not dims <= set(short):
            return False
    return False


def _goes_by_one(p: Poly, k: int) -> bool:
    """Does an index go up or down by one with a dimension?"""
    factor = p.coefficient(Dim(k))
    return factor is not None and factor.is_const and abs(factor.const) == 1


def _is_apart(array: str, d: Definition) -> bool:
    """Does no point read what another one stores? Points differ along the axes that dimensions move along."""

    def is_apart(x: Load) -> bool:
        return all(p == q or not (p.has(Dim) or q.has(Dim)) for p, q in zip(x.index, d.target, strict=True))

    return all(is_apart(x) for x in d.loads if x.source == array)


def _lies_across(d: Definition) -> bool:
    """Does what a reduction reads lie side by side along the last dimension of its elements, and not its own?"""
    first, last = len(d.dims) - 1, len(d.extents) - 1
    reads = [x.index[-1] for x in d.loads if len(x.index) > 1]
    return any(_goes_by_one(p, first) for p in reads) and not any(_goes_by_one(p, last) for p in reads)


def _is_reduction(s: Stage, d: Definition) -> bool:
    """Is an update a reduction of each element by itself?"""
    here = identity(len(s.shape))
    if d.order in ("pure", "sequential") or d.target != here or not d.rdims or not isinstance(d.value, Op):
        return False
    old, element = d.value.args[0], d.value.args[1:]
    is_plain = old == Load(s.name, here, s.dtype) and len(element) == 1 and d.value.name == d.order
    return is_plain and all(x.source != s.name for x in element[0].loads)
