"""The LLVM emitter: loop IR -> one module of LLVM IR as text.

Every nest is a function ``nest(ctx, begin, end)`` over a part of its parallel loop. The driver runs the nests in
order and splits those that have enough work into tasks. `NestEmitter` writes one nest; memory access is in
`hjit.kernels.memory`, reductions in `hjit.kernels.reduce`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.errors import CompileError
from hjit.kernels import memory, reduce, vecmath
from hjit.kernels.code import BOOL, I64, Code, Val, const, splat, type_name
from hjit.kernels.driver import driver_text
from hjit.kernels.loopir import For, Nest, Program, Put, Range, Slide, Stmt
from hjit.kernels.params import STATUS, Params
from hjit.sched.default import c_strides
from hjit.trace.graph import Cast, Const, Expr, Graph, Index, Input, Load, Op, ScalarRef
from hjit.trace.poly import ZERO, Atom, Bound, Extremum, FloorDiv, Mod, Poly, Sym, Value, Var, poly


@dataclass(frozen=True, slots=True)
class Machine:
    """What code is generated for."""

    width: int
    features: frozenset[str]
    fast_math: bool = False


def emit_module(graph: Graph, program: Program, params: Params, name: str, machine: Machine) -> str:
    """LLVM IR of a kernel whose entry is ``i32 name(ptr params)``; it returns 1 where an index is out of bounds."""
    declarations: dict[str, None] = {}
    constants: list[str] = []
    bodies: list[str] = []
    for i in graph.inputs:
        if i.data is not None:
            constants.append(constant_text(i))
    for number, nest in enumerate(program.nests):
        emitter = NestEmitter(graph, params, machine)
        bodies.append(emitter.function(nest, f"{name}.nest{number}"))
        declarations.update(emitter.code.declarations)
    driver = driver_text(graph, program, params, name, machine)
    declarations.update(driver.declarations)
    head = "\n".join([*constants, *sorted(declarations)])
    wide = 8 * machine.width
    attributes = (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{wide}" "min-legal-vector-width"="{wide}" "no-trapping-math"="true" '
        '"no-builtins" }'
    )
    return "\n\n".join([head, *bodies, driver.text, attributes]) + "\n"


def constant_text(i: Input) -> str:
    """A small constant array as a global."""
    data = np.frombuffer(i.data or b"", np.uint8)
    return f"@{global_name(i.name)} = private unnamed_addr constant [{len(data)} x i8] [{', '.join(f'i8 {b}' for b in data)}], align 64"


def global_name(name: str) -> str:
    """A name that LLVM takes without quotes."""
    return "const." + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)


class NestEmitter:
    """Writes the function of one nest.

    Attributes:
        vars: loop variables -> their values.
        vector: the variable whose lanes are computed together, or None.
        lanes: how many.
    """

    def __init__(self, graph: Graph, params: Params, machine: Machine) -> None:
        self.graph, self.params, self.machine = graph, params, machine
        self.code = Code(machine.width, machine.features, machine.fast_math)
        self.inputs = {i.name: i for i in graph.inputs}
        self.dtypes = {x.name: x.dtype for x in (*graph.inputs, *graph.stages)}
        self.shapes = {x.name: x.shape for x in (*graph.inputs, *graph.stages)}
        self.vars: dict[Var, Val] = {}
        self.vector: Var | None = None
        self.lanes = 1
        self.memos: list[dict[Any, Val]] = [{}]
        self.allocas: list[str] = []
        self.block = "entry"
        self.written: set[str] = set()
        self.lines_of: dict[str, int] = {}
        self.done: dict[str, str] = {}

    # -- functions and loops
    def function(self, nest: Nest, name: str) -> str:
        self.written = {nest.stage, *nest.lines}
        self.lines_of = nest.lines
        for stage in nest.lines:
            self.done[stage] = self.alloca("i64")
            self.allocas.append(f"  store i64 {-(1 << 62)}, ptr {self.done[stage]}")
        begin, end = Val("%begin", I64, 1, 0), Val("%end", I64, 1, 0)
        if nest.parallel is None:
            self.stmts(nest.body)
        else:
            self.loop(nest.parallel.var, [(begin, end)], 1, lambda: self.stmts(nest.body))
        body = self.code.text()
        entry = "\n".join(["entry:", *self.allocas])
        return f"define internal void @{name}(ptr noalias nocapture %ctx, i64 %begin, i64 %end, i64 %task) #0 {{\n{entry}\n{body}\n  ret void\n}}"

    def loop(self, var: Var, ranges: list[tuple[Val, Val]], step: int, body: Callable[[], None]) -> None:
        """``for var in ranges``; each range is [begin, end)."""
        code = self.code
        if len(ranges) == 2:
            (a, b), (c, d) = ranges
            first = code.emit(f"sub i64 {b.text}, {a.text}", I64, 1, a, b)
            second = code.emit(f"sub i64 {d.text}, {c.text}", I64, 1, c, d)
            begin, end = const(0, I64), code.emit(f"add i64 {first.text}, {second.text}", I64, 1, first, second)
        else:
            begin, end = ranges[0]
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
        code.effect(f"br i1 {inside.text}, label %{label}.body, label %{label}.exit")
        code.label(f"{label}.body")
        self.block = f"{label}.body"
        x = i
        if len(ranges) == 2:
            low = code.here(f"icmp slt i64 {i.text}, {first.text}", BOOL)
            near = code.here(f"add i64 {i.text}, {a.text}", I64)
            shift = code.emit(f"sub i64 {c.text}, {first.text}", I64, 1, c, first)
            far = code.here(f"add i64 {i.text}, {shift.text}", I64)
            x = code.here(f"select i1 {low.text}, i64 {near.text}, i64 {far.text}", I64)
        self.vars[var] = x
        self.memos.append({})
        body()
        self.memos.pop()
        del self.vars[var]
        code.effect(f"br label %{latch_mark}")
        code.label(latch_mark)
        code.effect(f"{following} = add nsw i64 {i.text}, {step}")
        code.effect(f"br label %{label}")
        code.label(f"{label}.exit")
        self.block = f"{label}.exit"
        code.close()

    def stmts(self, body: tuple[Stmt, ...]) -> None:
        puts: list[Put] = []
        for s in body:
            if isinstance(s, Put):
                puts.append(s)
                continue
            memory.store_all(self, puts)
            puts = []
            if isinstance(s, For):
                self.for_(s)
            elif isinstance(s, Slide):
                self.slide(s)
            else:
                reduce.emit(self, s)
        memory.store_all(self, puts)

    def for_(self, s: For) -> None:
        ranges = [self.range(r) for r in s.ranges]
        if s.kind != "vector":
            self.loop(s.var, ranges, s.step, lambda: self.stmts(s.body))
            return
        self.vector, self.lanes = s.var, s.step
        self.loop(s.var, ranges, s.step, lambda: self.stmts(s.body))
        self.vector, self.lanes = None, 1

    def slide(self, s: Slide) -> None:
        """Rows that are new in this step; see `loopir.Slide`."""
        low, high = self.int(s.low), self.int(s.high)
        at = self.done[s.stage]
        done = self.code.here(f"load i64, ptr {at}, align 8", I64)
        first = self.minmax("max", low, done)
        self.loop(s.var, [(first, high)], 1, lambda: self.stmts(s.body))
        after = self.minmax("max", first, high)
        self.code.effect(f"store i64 {after.text}, ptr {at}, align 8")

    def range(self, r: Range) -> tuple[Val, Val]:
        return self.int(r[0]), self.int(r[1])

    def alloca(self, type_: str) -> str:
        name = f"%{self.code.fresh('acc')}"
        self.allocas.append(f"  {name} = alloca {type_}, align 64")
        return name

    # -- integers
    def slot(self, k: int) -> Val:
        """The parameter in slot `k`."""
        at = self.code.emit(f"getelementptr i64, ptr %ctx, i64 {k}", I64, 1, pointer=True)
        return self.code.emit(f"load i64, ptr {at.text}, align 8", I64, 1, at)

    def varies(self, p: Poly) -> bool:
        """Does an index differ between lanes?"""
        return self.vector is not None and p.mentions(self.vector)

    def int(self, p: Poly, lanes: int = 1) -> Val:
        """An index as i64; with `lanes`, of each lane."""
        key = (p, lanes)
        for memo in self.memos:
            found = memo.get(key)
            if found is not None:
                return found
        terms = sorted((self.product(m, c, lanes) for m, c in p.terms.items()), key=lambda v: (v.depth, v.lanes))
        total = const(p.const, I64)
        for t in terms:
            total = t if total.text == "0" else self.arith("add", total, t)
        if lanes > 1:
            total = splat(self.code, total, lanes)
        self.memos[-1][key] = total
        return total

    def product(self, m: tuple[Atom, ...], c: int, lanes: int) -> Val:
        factors = sorted((self.atom(a, lanes) for a in m), key=lambda v: (v.depth, v.lanes))
        total = const(c, I64)
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
                x = self.vars[a]
                if lanes > 1 and a == self.vector:
                    steps = ", ".join(f"i64 {k}" for k in range(lanes))
                    wide = splat(self.code, x, lanes)
                    return self.code.emit(f"add {wide.type} {wide.text}, <{steps}>", I64, lanes, wide)
                return x
            case Sym():
                return self.slot(self.params.symbols[a.name])
            case FloorDiv():
                return self.divide(self.int(a.arg, self.spread(a.arg, lanes)), self.int(a.by), quotient=True)
            case Mod():
                return self.divide(self.int(a.arg, self.spread(a.arg, lanes)), self.int(a.by), quotient=False)
            case Extremum():
                return self.minmax(a.which, self.int(a.a, self.spread(a.a, lanes)), self.int(a.b, self.spread(a.b, lanes)))
            case Bound():
                return self.bounded(a, lanes)
            case Value():
                return self.gathered(a, lanes)
        raise CompileError(f"an index holds {a}, which is not bound to a loop")

    def spread(self, p: Poly, lanes: int) -> int:
        return lanes if self.varies(p) else 1

    def divide(self, a: Val, b: Val, quotient: bool) -> Val:
        """Floor division or remainder by a positive number."""
        if b.lanes == 1 and b.text.isdigit() and int(b.text) & (int(b.text) - 1) == 0:
            shift = int(b.text).bit_length() - 1
            return self.arith("ashr", a, const(shift, I64)) if quotient else self.arith("and", a, const(int(b.text) - 1, I64))
        b = splat(self.code, b, a.lanes)
        q = self.arith("sdiv", a, b)
        r = self.arith("sub", a, self.arith("mul", q, b))
        negative = self.code.emit(f"icmp slt {r.type} {r.text}, {const(0, I64, a.lanes).text}", BOOL, a.lanes, r)
        if quotient:
            return self.choose(negative, self.arith("sub", q, const(1, I64)), q)
        return self.choose(negative, self.arith("add", r, b), r)

    def choose(self, c: Val, a: Val, b: Val) -> Val:
        return self.code.emit(f"select {c}, {a}, {b}", a.dtype, a.lanes, c, a, b)

    def bounded(self, a: Bound, lanes: int) -> Val:
        lanes = self.spread(a.arg, lanes)
        i, n, one = self.int(a.arg, lanes), self.int(a.extent), const(1, I64)
        if a.mode == "clamp":
            return self.minmax("min", self.minmax("max", i, const(0, I64)), self.arith("sub", n, one))
        if a.mode == "wrap":
            return self.divide(i, n, quotient=False)
        if a.mode == "symmetric":
            period = self.arith("add", n, n)
            m = self.divide(i, period, quotient=False)
            return self.minmax("min", m, self.arith("sub", self.arith("sub", period, one), m))
        last = self.arith("sub", self.arith("add", n, n), const(2, I64))
        m = self.divide(i, self.minmax("max", last, one), quotient=False)
        return self.minmax("min", m, self.arith("sub", last, m))

    def gathered(self, a: Value, lanes: int) -> Val:
        """A value used as an index: checked against the axis, negative ones counted from its end."""
        i = self.value(a.expr)
        if a.extent is None:
            return i
        n = splat(self.code, self.int(a.extent), i.lanes)
        zero = const(0, I64, i.lanes)
        code = self.code
        below = code.emit(f"icmp slt {i.type} {i.text}, {zero.text}", BOOL, i.lanes, i)
        j = self.choose(below, self.arith("add", i, n), i)
        bad = code.emit(f"icmp uge {j.type} {j.text}, {n.text}", BOOL, i.lanes, j, n)
        self.report(bad)
        return self.choose(bad, zero, j)

    def report(self, bad: Val) -> None:
        """Set the kernel's status where any lane of `bad` holds."""
        code = self.code
        if bad.lanes > 1:
            bad = code.call(f"llvm.vector.reduce.or.v{bad.lanes}i1", BOOL, 1, bad)
        label = code.fresh("bad")
        at = code.emit(f"getelementptr i64, ptr %ctx, i64 {STATUS}", I64, 1, pointer=True)
        code.effect(f"br i1 {bad.text}, label %{label}, label %{label}.go")
        code.label(label)
        code.effect(f"store i64 1, ptr {at.text}, align 8")
        code.effect(f"br label %{label}.go")
        code.label(f"{label}.go")
        self.block = f"{label}.go"

    # -- values
    def value(self, e: Expr) -> Val:
        """An expression; a vector where it differs between lanes, else a scalar."""
        memo = self.memos[-1]
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
                return self.int(e.poly, self.spread(e.poly, self.lanes))
            case Load():
                return memory.load(self, e)
            case Cast():
                return vecmath.convert(self.code, self.value(e.arg), e.dtype)
            case Op(name="inside"):
                i, n = map(self.value, e.args)
                n = splat(self.code, n, i.lanes)
                return self.code.emit(f"icmp ult {i.type} {i.text}, {n.text}", BOOL, i.lanes, i, n)
            case Op():
                args = [self.value(a) for a in e.args]
                lanes = max(a.lanes for a in args)
                return vecmath.apply(self.code, e.name, tuple(splat(self.code, a, lanes) for a in args), e.dtype)
        raise CompileError(f"no code for {e}")

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
        """The position of an element in elements from the start of its array."""
        total = ZERO
        i = self.inputs.get(source)
        rows = self.lines_of.get(source)
        if rows is not None:
            index = (index[0] % rows, *index[1:])
        if i is None or i.data is not None:
            for p, stride in zip(index, c_strides(self.shapes[source]), strict=True):
                total = total + p * stride
            return total
        for k, (p, step) in enumerate(zip(index, i.layout, strict=True)):
            if step is None:
                var = Var(f"{source}.stride{k}")
                if var not in self.vars:
                    self.vars[var] = self.slot(self.params.strides[(source, k)])
                total = total + p * poly(var)
            else:
                total = total + p * step
        return total

    def base(self, source: str) -> Val:
        """The address of an array."""
        i = self.inputs.get(source)
        if i is not None and i.data is not None:
            return Val(f"@{global_name(source)}", I64, 1, 0, pointer=True)
        slot = self.params.arrays.get(source, self.params.scratch.get(source, -1))
        at = self.slot(slot)
        if source in self.params.tasks:
            task = Val("%task", I64, 1, 0)
            at = self.arith("add", at, self.arith("mul", task, self.slot(self.params.tasks[source])))
        return self.code.emit(f"inttoptr i64 {at.text} to ptr", I64, 1, at, pointer=True)

    def is_mutable(self, source: str) -> bool:
        """Does this nest write the array, so that its loads stay where they are?"""
        return source in self.written
