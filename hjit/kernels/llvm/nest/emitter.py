"""`NestEmitter`: the state of the function that is being emitted, its integers, loops and branches.

The tables of this module say how statements, boundary conditions, gathers and loads are emitted;
`hjit.kernels.llvm.statements` fills them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.errors import CompileError
from hjit.kernels.llvm.builder.code import BOOL, I64, Code, Val, const, splat, type_name
from hjit.kernels.llvm.builder.function_merging import Inner, Uniform
from hjit.kernels.llvm.nest.state import PairedLoads, RegisterState, StoreState
from hjit.kernels.llvm.nest.value_table import ValueTable
from hjit.kernels.llvm.vecmath import apply as vecmath
from hjit.kernels.lower.loopir import For, Register, Stmt
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.params import Params
from hjit.kernels.lower.program import Buffer
from hjit.kernels.lower.traverse import every, stored
from hjit.sched.language.memory import C_ORDER, Layout, rejoined
from hjit.trace.ir.analysis.ranges import Ranges
from hjit.trace.ir.borders import fold_select
from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, ScalarRef, loads
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import ZERO, Atom, Boundary, Extremum, FloorDiv, Indirect, Mod, Poly, Sym, Var, deep_atoms, poly

# by kind: statements; boundary conditions and gathers, with a number of lanes; expressions that read memory
STATEMENTS: dict[type, Callable[[NestEmitter, Any], None]] = {}
ATOMS: dict[type, Callable[[NestEmitter, Any, int], Val]] = {}
VALUES: dict[type, Callable[[NestEmitter, Any], Val]] = {}

NAME = "@nest"  # stands for the name of a function


def global_name(name: str) -> str:
    """A name that LLVM accepts without quotes."""
    return "const." + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)


@dataclass(frozen=True, slots=True)
class VectorLoop:
    """A loop whose iterations are vector lanes; the default stands for no such loop.

    Attributes:
        var: its variable, or None outside.
        lanes: the lanes of a vector.
        align: what the variable is a multiple of.
        count: vectors that an iteration computes.
        mask: where some lanes do nothing: which do something, and the last index that one of them has.
    """

    var: Var | None = None
    lanes: int = 1
    align: int = 1
    count: int = 1
    mask: tuple[Val, Val] | None = None


class NestEmitter:
    """Emits the function of one nest.

    Attributes:
        uniforms: the numbers that it takes as arguments -> their slots. None: it reads the parameter block itself.
        ranges: what the indices of look-ups can be.
        first: the constant part of the first address in each array.
        patterns: distances between lanes of an index; see `hjit.kernels.llvm.memory.loads`.
        vars: loop variables -> their values.
        iterations: of each loop: where its iteration begins if it is not shifted inwards, and the step.
        lets: names of indices -> what they stand for; evaluated at their first use.
        within: the enclosing vector loop.
        guard: loads stay at least this deep, because their index may be out of bounds further out.
        known: values that were emitted already.
        stores: which arrays are stored to.
        paired: loads of the current statement that are done in pairs.
        registers: the registers of the loop IR.
        done: of stages with sliding windows: up to where they are computed.
        functions: the outlined functions that it calls.
        around: in an outlined function, the emitter of the caller.
        arguments: in an outlined function, the caller's variables that are passed to it.
    """

    def __init__(self, graph: Graph, params: Params, machine: Machine, layouts: dict[str, Layout]) -> None:
        self.graph, self.params, self.machine, self.layouts = graph, params, machine, layouts
        self.code = Code(machine.width, machine.features, machine.fast_math)
        self.uniforms: dict[Uniform, int] | None = {}
        self.ranges = Ranges(graph.by_name)
        self.inputs, self.dtypes, self.shapes = graph.input_by_name, graph.dtypes, graph.shapes
        self.vars: dict[Var, Val] = {}
        self.within = VectorLoop()
        self.iterations: dict[Var, tuple[Val, int]] = {}
        self.known = ValueTable()
        self._strides: dict[str, tuple[Poly, ...]] = {}
        self.allocas: list[str] = []
        self.block = "entry"
        self.guard = Val("", I64, 1, 0)
        self.lets: dict[Var, Poly] = {}
        self.stores = StoreState()
        self.buffers: dict[str, Buffer] = {}
        self.done: dict[str, str] = {}
        self.sizes: dict[Atom, bool] = {}
        self.first: dict[str, int] = {}
        self.patterns: dict[tuple[Poly, Var | None, int, int], list[int] | None] = {}
        self.paired = PairedLoads()
        self.registers = RegisterState()
        self.functions: list[Inner] = []
        self.around: NestEmitter | None = None
        self.arguments: list[Val] = []

    # -- the vector loop around
    @property
    def vector(self) -> Var | None:
        return self.within.var

    @property
    def lanes(self) -> int:
        return self.within.lanes

    @property
    def mask(self) -> tuple[Val, Val] | None:
        return self.within.mask

    @contextmanager
    def vectorized(self, loop: VectorLoop) -> Iterator[None]:
        """A block inside a vector loop; if lanes are masked, loads stay inside it."""
        before = self.within, self.guard
        self.within = loop
        if loop.mask is not None:
            self.guard = Val("", I64, 1, len(self.code.scopes) - 1)
        yield
        self.within, self.guard = before

    # -- names, functions and loops
    def name(self, var: Var, value: Poly) -> None:
        """Define a name for an index, which is evaluated at its first use."""
        self._forget(var)
        self.lets[var] = value

    def define(self, var: Var, value: Val) -> None:
        """Define a name for a value."""
        self._forget(var)
        self.vars[var] = value

    def _forget(self, var: Var) -> None:
        if self.lets.pop(var, None) is not None or self.vars.pop(var, None) is not None:
            self.known.rename()

    def defined(self, *parameters: str) -> str:
        """The text of the emitted function."""
        entry = "\n".join(["entry:", *self.allocas])
        head = ", ".join(["ptr noalias nocapture %ctx", *parameters])
        return f"define internal void {NAME}({head}) #0 {{\n{entry}\n{self.code.text()}\n  ret void\n}}"

    def inside(self) -> NestEmitter:
        """The emitter of a function that this one calls."""
        found = NestEmitter(self.graph, self.params, self.machine, self.layouts)
        found.around, found.buffers = self, self.buffers
        found.stores.written, found.stores.changing = self.stores.written, self.stores.changing
        return found

    def outlined(self, body: tuple[Stmt, ...]) -> str:
        """The text of an outlined function."""
        self.stmts(body)
        return self.defined("i64 %task", *(f"i64 %arg{k}" for k in range(1, len(self.arguments) + 1)))

    def argument(self, a: Var) -> Val:
        """A variable of the caller as an argument."""
        assert self.around is not None
        self.arguments.append(self.around.integer(poly(a)))
        self.vars[a] = Val(f"%arg{len(self.arguments)}", I64, 1, 0)
        return self.vars[a]

    def knows(self, a: Var) -> bool:
        """Is it a variable here?"""
        return a in self.vars or a in self.lets or (self.around is not None and self.around.knows(a))

    def loop(self, s: For) -> None:
        """A serial loop.

        How the index of a `rare` one moves is hidden from LLVM, which would spend most of its time on strength
        reduction.
        """
        code, var, step = self.code, s.var, s.step
        limit, first = (None if p is None else self.integer(p) for p in (s.limit, s.first))
        begin, end = self.integer(s.begin), self.integer(s.end)
        label = code.fresh("loop")
        before = self.block
        code.open()
        depth = len(code.scopes) - 1
        code.effect(f"br label %{label}")
        code.label(label)
        i = Val(f"%{code.fresh('i')}", I64, 1, depth)
        following = f"%{code.fresh('next')}"
        latch_mark = code.fresh("latch")
        code.effect(f"{i.text} = phi i64 [ {begin.text}, %{before} ], [ {following}, %{latch_mark} ]")
        inside = code.here(f"icmp slt i64 {i.text}, {end.text}", BOOL)
        if s.until is not None:
            ended = VALUES[Register](self, s.until)
            inside = code.here(f"select i1 {ended.text}, i1 false, i1 {inside.text}", BOOL)
        code.effect(f"br i1 {inside.text}, label %{label}.body, label %{label}.exit")
        code.label(f"{label}.body")
        self.block = f"{label}.body"
        x = i
        if first is not None:
            x = self.minmax("max", x, first)
        if limit is not None:
            last = self.arith("sub", limit, const(step, I64))
            x = self.minmax("min", x, last)
        if s.rare:
            x = code.opaque(x)
        outer = self.vars.get(var)
        self.vars[var], self.iterations[var] = x, (i, step)
        self.known.open()
        self.stmts(s.body)
        self.known.close()
        del self.vars[var]
        self.iterations.pop(var, None)
        if outer is not None:
            self.vars[var] = outer
        code.effect(f"br label %{latch_mark}")
        code.label(latch_mark)
        code.effect(f"{following} = add nsw i64 {i.text}, {step}")
        code.effect(f"br label %{label}")
        code.label(f"{label}.exit")
        self.block = f"{label}.exit"
        code.close()

    def branch(self, condition: Val, body: Callable[[], None], otherwise: Callable[[], None] | None = None) -> None:
        """`body` if the condition holds, else `otherwise`; each has its own scope."""
        code = self.code
        label = code.fresh("when")
        after = f"{label}.after"
        no = after if otherwise is None else f"{label}.else"
        code.open()
        code.effect(f"br i1 {condition.text}, label %{label}, label %{no}")
        guard = self.guard
        for name, part in ((label, body), (f"{label}.else", otherwise)):
            if part is None:
                continue
            if part is otherwise:
                code.sibling()
            self.guard = Val("", I64, 1, len(code.scopes) - 1)
            code.label(name)
            self.block = name
            self.known.open()
            part()
            self.known.close()
            code.effect(f"br label %{after}")
        self.guard = guard
        code.close()
        code.label(after)
        self.block = after

    def stmts(self, body: tuple[Stmt, ...]) -> None:
        self.stores.bodies.append((len(self.code.scopes) - 1, body))
        for s in body:
            self.stores.storing = own = stored(s)
            self.stmt(s)
            self.stores.versions.update(own)
            if self.stores.changing:
                self.known.forget()
        self.stores.bodies.pop()

    def stmt(self, s: Stmt) -> None:
        STATEMENTS[type(s)](self, s)

    def alloca(self, type_: str) -> str:
        name = f"%{self.code.fresh('acc')}"
        self.allocas.append(f"  {name} = alloca {type_}, align 64")
        return name

    # -- integers
    def slot(self, k: int, plus: int = 0) -> Val:
        """The parameter in slot `k`, and some more."""
        if self.uniforms is not None:
            return self.uniform((k, plus))
        return self.arith("add", self.read(k), const(plus, I64)) if plus else self.read(k)

    def read(self, k: int) -> Val:
        """The contents of slot `k` of the parameter block."""
        at = self.code.emit(f"getelementptr i64, ptr %ctx, i64 {k}", I64, 1, pointer=True)
        return self.code.emit(f"load i64, ptr {at.text}, align 8", I64, 1, at)

    def uniform(self, what: Uniform) -> Val:
        """A number that is an argument of the nest."""
        assert self.uniforms is not None
        return self.read(self.uniforms.setdefault(what, len(self.uniforms) + 1))

    def is_size(self, a: Atom) -> bool:
        """Does an atom depend on run-time sizes alone, so that the nest can be given what it is?"""
        found = self.sizes.get(a)
        if found is None:
            found = self.sizes[a] = self.uniforms is not None and all(
                isinstance(x, (Sym, FloorDiv, Mod, Extremum, Boundary)) for x in deep_atoms(poly(a))
            )
        return found

    def varies(self, p: Poly) -> bool:
        """Does an index differ between lanes?"""
        return self.vector is not None and p.mentions(self.vector)

    def integer(self, p: Poly, lanes: int = 1) -> Val:
        """An index as i64; with `lanes`, of each lane."""
        key = p if lanes == 1 else (p, lanes)
        found = self.known.integers.get(key)
        if found is not None:
            return found
        fixed = {m: c for m, c in p.terms.items() if all(map(self.is_size, m))}
        values = [self.product(m, c, lanes) for m, c in p.terms.items() if m not in fixed]
        offset = p.const
        if fixed:
            values.append(self.uniform(p if not values else Poly(fixed, 0)))
            offset = offset if len(values) > 1 else 0
        terms = sorted(values, key=lambda v: (v.depth, v.lanes))
        total = const(offset, I64)
        for t in terms:
            total = t if total.text == "0" else self.arith("add", total, t)
        if lanes > 1:
            total = splat(self.code, total, lanes)
        if not self.is_changing(p):
            self.known.remember(key, total, everywhere=len(fixed) == len(p.terms))
        return total

    def is_changing(self, p: Poly) -> bool:
        """Is an index read from memory that the nest writes?"""
        exprs = p.exprs if self.stores.changing else ()
        return bool(exprs) and any(x.source in self.stores.changing for x in loads(*exprs))

    def by_depth(self, p: Poly) -> list[Poly]:
        """The loop-invariant part of an index that changes, and the rest: a row's address is computed before its
        elements'."""
        if len(p.terms) < 2:
            return [p] if p.terms else []
        depths = {m: 0 if all(map(self.is_size, m)) else self.product(m, c, 1).depth for m, c in p.terms.items()}
        deepest = max(depths.values())
        inner = {m: c for m, c in p.terms.items() if depths[m] == deepest}
        outer = {m: c for m, c in p.terms.items() if m not in inner}
        return [Poly(outer, 0), Poly(inner, p.const)] if outer and deepest else [p]

    def product(self, m: tuple[Atom, ...], c: int, lanes: int) -> Val:
        """One term of an index."""
        key = m, c, lanes
        found = self.known.integers.get(key)
        if found is None:
            found = self._product(m, c, lanes)
            if not (self.stores.changing and any(a.parts for a in m) and self.is_changing(Poly({m: 1}, 0))):
                self.known.remember(key, found, everywhere=False)
        return found

    def _product(self, m: tuple[Atom, ...], c: int, lanes: int) -> Val:
        fixed = tuple(a for a in m if self.is_size(a))
        factors = sorted((self.atom(a, lanes) for a in m if a not in fixed), key=lambda v: (v.depth, v.lanes))
        total = self.uniform(Poly({fixed: c}, 0)) if fixed else const(c, I64)
        for f in factors:
            total = f if total.text == "1" else self.arith("mul", total, f)
        return total

    def arith(self, op: str, a: Val, b: Val) -> Val:
        lanes = max(a.lanes, b.lanes)
        a, b = splat(self.code, a, lanes), splat(self.code, b, lanes)
        return self.code.emit(f"{op} {a.type} {a.text}, {b.text}", I64, lanes, a, b)

    def minmax(self, which: str, a: Val, b: Val) -> Val:
        lanes = max(a.lanes, b.lanes)
        a, b = splat(self.code, a, lanes), splat(self.code, b, lanes)
        suffix = "i64" if lanes == 1 else f"v{lanes}i64"
        return self.code.call(f"llvm.s{which}.{suffix}", I64, lanes, a, b)

    def atom(self, a: Atom, lanes: int) -> Val:
        match a:
            case Var():
                if a not in self.vars and (a in self.lets or self.around is None):
                    return self.integer(self.lets[a])
                x = self.vars[a] if a in self.vars else self.argument(a)
                if lanes > 1 and a == self.vector:
                    steps = ", ".join(f"i64 {k}" for k in range(lanes))
                    wide = splat(self.code, x, lanes)
                    wide = self.code.emit(f"add {wide.type} {wide.text}, <{steps}>", I64, lanes, wide)
                    return wide if self.mask is None else self.minmax("min", wide, self.mask[1])
                return x
            case Sym():
                return self.slot(self.params.symbols[a.name])
            case FloorDiv():
                return self.divide(self.integer(a.arg, self.spread(a.arg, lanes)), self.integer(a.by), quotient=True)
            case Mod():
                return self.divide(self.integer(a.arg, self.spread(a.arg, lanes)), self.integer(a.by), quotient=False)
            case Extremum():
                return self.minmax(
                    a.which, self.integer(a.a, self.spread(a.a, lanes)), self.integer(a.b, self.spread(a.b, lanes))
                )
            case Boundary() | Indirect():
                return ATOMS[type(a)](self, a, lanes)
        raise CompileError(f"an index holds {a}, which is not bound to a loop")

    def spread(self, p: Poly, lanes: int) -> int:
        return lanes if self.varies(p) else 1

    def divide(self, a: Val, b: Val, quotient: bool) -> Val:
        """Floor division or remainder by a positive number."""
        if b.lanes == 1 and b.text.isdigit() and int(b.text) & (int(b.text) - 1) == 0:
            shift = int(b.text).bit_length() - 1
            return (
                self.arith("ashr", a, const(shift, I64))
                if quotient
                else self.arith("and", a, const(int(b.text) - 1, I64))
            )
        b = splat(self.code, b, a.lanes)
        q = self.arith("sdiv", a, b)
        r = self.arith("sub", a, self.arith("mul", q, b))
        negative = self.code.emit(f"icmp slt {r.type} {r.text}, {const(0, I64, a.lanes).text}", BOOL, a.lanes, r)
        if quotient:
            return self.choose(negative, self.arith("sub", q, const(1, I64)), q)
        return self.choose(negative, self.arith("add", r, b), r)

    def choose(self, c: Val, a: Val, b: Val) -> Val:
        return self.code.emit(f"select {c}, {a}, {b}", a.dtype, a.lanes, c, a, b)

    # -- values
    def value(self, e: Expr) -> Val:
        """An expression; a vector where it differs between lanes, else a scalar."""
        memo = self.known.values[-1]
        found = memo.get(e)
        if found is None:
            found = memo[e] = self._value(e)
        return found

    def _value(self, e: Expr) -> Val:
        match e:
            case Const():
                return const(e.value, e.dtype)
            case ScalarRef():
                return self.scalar(e)
            case Index():
                return self.integer(e.poly, self.spread(e.poly, self.lanes))
            case Load() | Register():
                return VALUES[type(e)](self, e)
            case Cast():
                return vecmath.convert(self.code, self.value(e.arg), e.dtype)
            case Op() if (taken := fold_select(e)) is not e:
                return self.value(taken)
            case Op(name="inside"):
                i, n = map(self.value, e.args)
                n = splat(self.code, n, i.lanes)
                return self.code.emit(f"icmp ult {i.type} {i.text}, {n.text}", BOOL, i.lanes, i, n)
            case Op():
                return self.applied(e, [self.value(a) for a in e.args])
        raise CompileError(f"no code for {e}")

    def applied(self, e: Op, args: Sequence[Val]) -> Val:
        """The operation of an expression on the values of its arguments."""
        lanes = max(a.lanes for a in args)
        return vecmath.apply(self.code, e.name, tuple(splat(self.code, a, lanes) for a in args), e.dtype)

    def scalar(self, e: ScalarRef) -> Val:
        bits = self.slot(self.params.scalars[e.name])
        code, dtype = self.code, e.dtype
        if dtype.itemsize < 8:
            bits = code.emit(f"trunc i64 {bits.text} to i{8 * dtype.itemsize}", np.dtype(f"u{dtype.itemsize}"), 1, bits)
        if dtype.kind == "f":
            return code.emit(f"bitcast {bits} to {type_name(dtype)}", dtype, 1, bits)
        if dtype.kind == "b":
            return code.emit(f"icmp ne {bits}, 0", BOOL, 1, bits)
        return Val(bits.text, dtype, 1, bits.depth)

    # -- memory layout
    def flat(self, source: str, index: tuple[Poly, ...]) -> Poly:
        """The index of an element from the start of its array."""
        total = ZERO
        i = self.inputs.get(source)
        buffer = self.buffers.get(source)
        if buffer is not None:
            index = tuple(
                p % n if k == buffer.fold else p - o
                for k, (p, o, n) in enumerate(zip(index, buffer.origin, buffer.lengths, strict=True))
            )
        if buffer is not None or i is None or i.data is not None:
            for p, stride in zip(index, self.strides(source), strict=True):
                total = total + p * stride
        else:
            for k, (p, step) in enumerate(zip(index, i.layout, strict=True)):
                if step is None:
                    var = Var(f"{source}.stride{k}")
                    if var not in self.vars:
                        self.vars[var] = self.slot(self.params.strides[(source, k)])
                    total = total + p * poly(var)
                else:
                    total = total + p * step
        return rejoined(total)

    def strides(self, source: str) -> tuple[Poly, ...]:
        """Of what the kernel has made, in elements."""
        found = self._strides.get(source)
        if found is None:
            buffer = self.buffers.get(source)
            lengths, layout = (
                (self.shapes[source], self.layouts.get(source, C_ORDER))
                if buffer is None
                else (buffer.lengths, buffer.layout)
            )
            found = self._strides[source] = layout.strides(lengths)
        return found

    def base(self, source: str, plus: int = 0) -> Val:
        """The address of an array, plus some bytes."""
        i = self.inputs.get(source)
        if i is not None and i.data is not None:
            at = Val(f"@{global_name(source)}", I64, 1, 0, pointer=True)
            return (
                self.code.emit(f"getelementptr i8, ptr {at.text}, i64 {plus}", I64, 1, at, pointer=True) if plus else at
            )
        slot = self.params.arrays.get(source, self.params.scratch.get(source, -1))
        at = self.slot(slot, plus)
        if source in self.buffers:
            task = Val("%task", I64, 1, 0)
            at = self.arith("add", at, self.arith("mul", task, self.slot(self.params.tasks[source])))
        return self.code.emit(f"inttoptr i64 {at.text} to ptr", I64, 1, at, pointer=True)

    def unchanged(self, source: str) -> Val:
        """A guard: no loop deeper than it stores to an array."""
        if not self.is_mutable(source):
            return Val("", I64, 1, 0)
        bodies = reversed(self.stores.bodies)
        inside = (depth for depth, body in bodies if any(source in stored(s) for s in every(body)))
        return Val("", I64, 1, next(inside, 0))

    def is_mutable(self, source: str) -> bool:
        """Does this nest write the array, so that its loads stay where they are?"""
        return source in self.stores.written
