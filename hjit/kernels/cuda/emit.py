"""The CUDA emitter: loop IR -> kernels in the common subset of CUDA C and OpenCL C, one for each nest.

An iteration of a nest's parallel loops is a thread's, or of its loops over blocks a block's, whose threads share what
is inside `Threads`, and the shared buffers. A nest without such loops runs in one thread. What a kernel needs of
arrays, strides, sizes and scalars are its parameters (`Parameter`), in the order in which its text uses them. Values
that a block of statements uses more than once have names; the compiler finds what loops share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hjit.errors import CompileError, ScheduleError
from hjit.kernels.cuda.across_threads import MAX_SHARED_BYTES, AcrossThreads, truth
from hjit.kernels.cuda.ctext import Operand, c_type, constant, storage_type
from hjit.kernels.cuda.indices import IndexPrinter, Signs
from hjit.kernels.cuda.intrinsics import atomic, lanes_type
from hjit.kernels.cuda.launches import Launch, Module, Parameter
from hjit.kernels.cuda.operations.ufuncs import apply, convert_operand
from hjit.kernels.lower.loopir import (
    BEGIN,
    END,
    Barrier,
    Block,
    Choose,
    CombineThreads,
    CommitCopies,
    CopyAsync,
    Declare,
    For,
    If,
    Let,
    Name,
    Register,
    ResetWindow,
    Row,
    ScanThreads,
    Set,
    SlidingProduce,
    Stmt,
    Store,
    ThreadLoop,
    Threads,
    WaitForCopies,
)
from hjit.kernels.lower.nest_merging import Renaming
from hjit.kernels.lower.passes.distribute_threads import THREADS
from hjit.kernels.lower.program import Buffer, Nest, Program
from hjit.kernels.lower.traverse import every
from hjit.kernels.lower.uniform import waits
from hjit.sched.language.memory import C_ORDER, Layout, rejoined
from hjit.trace.ir.borders import fold_select
from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, ScalarRef, arguments_first
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import ZERO, Atom, Poly, Sym, Var, poly

MAX_LOCAL_BYTES = 1 << 14  # of one thread's buffer
MAX_NESTED = 12  # operations in one expression; C compilers recurse over it


def emit_module(graph: Graph, program: Program, name: str, bits: int = 32) -> Module:
    """The kernels of a program.

    Args:
        name: what the kernels' names begin with.
        bits: of indices, 32 or 64; with 32 no array has 2**31 elements or more.

    Raises:
        ScheduleError: a stage has memory of a task that no thread can hold.
        CompileError: an operation that there is no C for.
    """
    texts: dict[str, str] = {}  # a kernel without its name -> its name
    launches: list[Launch] = []
    for nest in program.nests:
        if nest.renaming is not None:
            renaming, first = nest.renaming, launches[nest.renaming.nest]
            parameters = tuple(_renamed(p, renaming) for p in first.parameters)
            first = replace(first, parameters=parameters, count=nest.count, points=nest.points, rows=nest.rows)
            launches.append(first)
            continue
        made = _Kernel(graph, nest, program.layouts, bits)
        text = made.text()
        kernel = texts.setdefault(text, f"{name}_{len(texts)}")
        parameters, threads = tuple(made.parameters), made.threads
        launches.append(Launch(kernel, parameters, nest.count, nest.points, threads, not nest.blocks, nest.rows))
    return Module("\n\n".join(t.replace("@", n, 1) for t, n in texts.items()) + "\n", tuple(launches))


def _keeps_registers(s: If) -> bool:
    """Are registers declared in a branch, and used across its barriers?"""
    return any(isinstance(x, Declare) for body in (s.body, s.otherwise) for x in body)


def _renamed(p: Parameter, renaming: Renaming) -> Parameter:
    """The parameter of a nest that shares the kernel of another one."""
    by_kind = {"size": renaming.sizes, "array": renaming.arrays, "offset": renaming.arrays, "stride": renaming.arrays}
    names = by_kind.get(p.kind, {})
    return Parameter(p.kind, names.get(p.name, p.name), p.axis, p.dtype)


class _Kernel(AcrossThreads):
    """Writes the kernel of one nest.

    Attributes:
        parameters: those that the text uses, with their names in it.
        names: loop variables and names of indices -> what they are in the text.
        registers, windows, buffers, firsts: -> the variable; of a window how far it has come, of an argument its
            first element.
        signs: of indices.
        known: values of the block of statements that is written.
    """

    def __init__(self, graph: Graph, nest: Nest, layouts: Mapping[str, Layout], bits: int) -> None:
        super().__init__()
        self.graph, self.nest, self.layouts = graph, nest, layouts
        self.dtypes, self.shapes, self.inputs = graph.dtypes, graph.shapes, graph.input_by_name
        self.parameters: dict[Parameter, str] = {}
        self.names: dict[Var, str] = {}
        self.registers: dict[str, str] = {}
        self.windows: dict[str, str] = {}
        self.buffers: dict[str, str] = {}
        self.firsts: dict[str, str] = {}
        self.known: dict[Expr, Operand] = {}
        sizes = (Sym(f"{i.name}.{k}") for i in graph.inputs for k in range(len(i.shape)))
        self.signs = Signs([BEGIN, *sizes])
        self.index = IndexPrinter(self.atom, self.value, bits, not_negative=self.signs.is_natural)
        self.threads = nest.threads if nest.blocks else 1 if nest.count is None else THREADS

    # -- the kernel
    def text(self) -> str:
        """The text, with ``@`` in place of its name."""
        nest = self.nest
        for stage, b in nest.buffers.items():
            if b.memory is not None:
                self.buffers[stage] = self.buffers[b.memory]
                continue
            self.buffers[stage] = self.fresh(stage)
            memory, aligned = ("HJ_SHARED ", " HJ_ALIGNED") if b.shared else ("", "")
            t = storage_type(self.dtypes[stage] if b.dtype is None else b.dtype)
            self.line(f"{memory}{t} {self.buffers[stage]}[{self._elements(b)}]{aligned};")
        if nest.count is None:
            self.line("if (HJ_BLOCK_X || HJ_THREAD) return;")
        elif nest.blocks:
            begin, first = self.fresh("begin"), self.parameter(Parameter("first"))
            self.line(f"const {self.index.type} {begin} = HJ_BLOCK_X + {first};")
            self.names |= {BEGIN: begin}
        else:
            count, i = self.parameter(Parameter("count")), self.index.type
            begin, end = self.fresh("begin"), self.fresh("end")
            self.line(f"const {i} {begin} = ({i})HJ_BLOCK_X * {THREADS} + HJ_THREAD_X;")
            self.line(f"if ({begin} >= {count}) return;")
            self.line(f"const {i} {end} = {begin} + 1;")
            self.names |= {BEGIN: begin, END: end}
        for s in every(nest.body):
            if isinstance(s, ResetWindow) and s.stage not in self.windows:
                self.windows[s.stage] = self.fresh("done")
                self.line(f"{self.index.type} {self.windows[s.stage]};")
        self.body(nest.body)
        if any("status" in x for x in self.lines):
            self.parameters.setdefault(Parameter("status"), "status")
        if self.uses_shuffles:
            self.head(f"HJ_SHUFFLES({self.threads})")
        parameters = ", ".join(f"{self._type(p)}{n}" for p, n in self.parameters.items())
        return f"HJ_KERNEL(@, {self.threads}, 1, 1)({parameters}) {{\n" + "\n".join([*self.heads, *self.lines]) + "\n}"

    def _type(self, p: Parameter) -> str:
        match p.kind:
            case "array":
                const = "" if p.name in self.nest.writes else "const "
                return f"HJ_GLOBAL {const}{storage_type(self.dtypes[p.name])} *HJ_RESTRICT "
            case "status":
                return "HJ_GLOBAL u32 *"
            case "scalar":
                assert p.dtype is not None
                return f"const {storage_type(p.dtype)} "
        return f"const {self.index.type} "

    def _elements(self, b: Buffer) -> int:
        """Of the memory that a thread or a block has for a stage, and for those that share it.

        Raises:
            ScheduleError: it is too much, or how much is known at a call only.
        """
        counts = []
        for x in (b, *(x for x in self.nest.buffers.values() if x.memory == b.stage)):
            lengths = x.layout.lengths(x.lengths)
            counts.append(math.prod(p.const for p in lengths) if all(p.is_const for p in lengths) else 0)
        n = max(counts) if min(counts) > 0 else 0
        size = n * (self.dtypes[b.stage] if b.dtype is None else b.dtype).itemsize
        self.shared_bytes += size if b.shared else 0
        used, most = (self.shared_bytes, MAX_SHARED_BYTES) if b.shared else (size, MAX_LOCAL_BYTES)
        if size <= 0 or used > most:
            self.refuse(b.stage, "block" if b.shared else "thread", most)
        return n

    def refuse(self, stage: str, who: str, most: int) -> None:
        """A block or a thread has no memory for a stage.

        Raises:
            ScheduleError: always.
        """
        why = f"a {who} has no more than {most} bytes for such stages, of sizes that are known"
        advice = "make the tiles smaller, or compute it at the root"
        raise ScheduleError(f"{stage} is kept by each {who}: {why}; {advice}")

    def parameter(self, p: Parameter) -> str:
        found = self.parameters.get(p)
        if found is None:
            word = {"stride": f"_stride{p.axis}", "offset": "_offset", "array": "_array"}.get(p.kind, "")
            found = self.parameters[p] = self.fresh(f"{p.name or p.kind}{word}") if p.kind != "status" else "status"
        return found

    # -- statements
    def body(self, body: Sequence[Stmt]) -> None:
        for s in body:
            self.known = {}
            STATEMENTS[type(s)](self, s)

    def inside(self, head: str, body: Sequence[Stmt], *first: str) -> None:
        """Statements in braces."""
        with self.braces(head):
            for text in first:
                self.line(text)
            self.body(body)

    def named(self, var: Var, text: str) -> None:
        """A name for an index from here on."""
        name = self.fresh(var.name)
        self.line(f"const {self.index.type} {name} = {text};")
        self.names[var] = name

    def let(self, s: Let) -> None:
        self.named(s.var, self.at(s.value))
        self.signs.bind(s.var, s.value)

    def choose(self, s: Choose) -> None:
        self.signs.bind(s.var, s.yes, s.no)
        self.named(s.var, f"{self.at(s.test)} >= 0 ? {self.at(s.yes)} : {self.at(s.no)}")

    def loop(self, s: For) -> None:
        begin, end, t = self.at(s.begin), self.at(s.end), self.index.type
        counter = self.fresh(s.var.name)
        self.names[s.var] = counter
        self.signs.bind(s.var, s.begin, *([s.limit - s.step] if s.limit is not None else []))
        first: list[str] = []
        if s.limit is not None or s.first is not None:
            x = counter
            if s.first is not None:
                x = f"hj_index_max_{t}({x}, {self.at(s.first)})"
            if s.limit is not None:
                x = f"hj_index_min_{t}({x}, {self.at(s.limit - s.step)})"
            self.names[s.var] = self.fresh(s.var.name)
            first.append(f"const {t} {self.names[s.var]} = {x};")
        self.loops += 1
        self.inside(f"for ({t} {counter} = {begin}; {counter} < {end}; {counter} += {s.step}) ", s.body, *first)
        self.loops -= 1

    def thread_loops(self, s: Threads) -> None:
        """Item after item, by `threads` of them at a time."""
        if not s.loops:
            self.inside("if (HJ_THREAD_X == 0) ", s.body)
            return
        t, item = self.index.type, self.fresh("item")
        counts = [self.trip_count(x) for x in s.loops]  # inner ones as they are at most, where that is known
        inner = [c if x.most is None else str(x.most) for c, x in zip(counts, s.loops, strict=True)][1:]
        most = [x.most for x in s.loops]
        total = " * ".join([counts[0], *inner])
        if math.prod(n or self.threads + 1 for n in most) <= self.threads:
            head = f"if ({item} < {total}) "
            self.line(f"const {t} {item} = HJ_THREAD_X;")
        else:
            head = f"for ({t} {item} = HJ_THREAD_X; {item} < {total}; {item} += {self.threads}) "
        lines: list[str] = []
        tests: list[str] = []
        rest = item
        for k in reversed(range(len(s.loops))):
            x = s.loops[k]
            place = self.index.unsigned(rest, "%", inner[k - 1]) if k else rest
            rest = self.index.unsigned(rest, "/", inner[k - 1]) if k else rest
            name = self.fresh(x.var.name)
            step = f" * {x.step}" if x.step != 1 else ""
            lines.append(f"const {t} {name} = {self.at(x.begin)} + {place}{step};")
            if k and inner[k - 1] != counts[k]:
                tests.append(f"{name} < {self.at(x.end)}")
            self.names[x.var] = name
            self.signs.bind(x.var, x.begin)
        if not tests:
            self.inside(head, s.body, *lines)
            return
        with self.braces(head):
            for text in lines:
                self.line(text)
            self.inside(f"if ({' && '.join(tests)}) ", s.body)

    def trip_count(self, x: ThreadLoop) -> str:
        """How many iterations a loop over threads has, as a name or a number."""
        n = (x.end - x.begin + (x.step - 1)) // x.step if x.step != 1 else x.end - x.begin
        if n.is_const:
            return str(max(n.const, 0))
        name = self.fresh(f"{x.var.name}_count")
        self.line(f"const {self.index.type} {name} = hj_index_max_{self.index.type}({self.at(n)}, 0);")
        return name

    def barrier(self, s: Barrier) -> None:
        self.line("HJ_BARRIER();")

    def copy_async(self, s: CopyAsync) -> None:
        to, source = self.access(s.buffer, s.index), self.access(s.load.source, s.load.index)
        self.line(f"hj_copy_async_{s.load.dtype.itemsize}(&{to}, &{source});")

    def commit_copies(self, s: CommitCopies) -> None:
        self.line("HJ_COPY_COMMIT();")

    def wait_for_copies(self, s: WaitForCopies) -> None:
        self.line(f"HJ_COPY_WAIT({s.groups});")

    def branch(self, s: If) -> None:
        test, words = f"{self.at(s.value)} >= 0", ("if ({}) ", "else ")
        if waits(s) and not _keeps_registers(s):
            name = self.fresh("test")
            self.line(f"const i32 {name} = {test};")
            test, words = name, ("HJ_UNIFORM_IF({}) ", "HJ_UNIFORM_ELSE({}) ")
        self.inside(words[0].format(test), s.body)
        if s.otherwise:
            self.inside(words[1].format(test), s.otherwise)

    def reset_window(self, s: ResetWindow) -> None:
        self.line(f"{self.windows[s.stage]} = {-(1 << (self.index.bits - 2))};")

    def sliding_produce(self, s: SlidingProduce) -> None:
        """What is new in this iteration."""
        done, t = self.windows[s.stage], self.index.type
        with self.braces():
            self.named(s.var, f"hj_index_max_{t}({self.at(s.first)}, {done})")
            self.signs.bind(s.var, s.first)
            begin = self.names[s.var]
            self.body(s.body)
            if s.last:
                self.line(f"{done} = hj_index_max_{t}({begin}, {self.at(s.end)});")

    def declare(self, s: Declare) -> None:
        name, t = self.fresh(s.register.name), c_type(s.register.dtype)
        self.line(f"{t} {name} = {self.value(s.initial).text};")
        self.registers[s.register.name] = name

    def named_value(self, s: Name) -> None:
        self.share([s.value])
        name = self.fresh(s.register.name)
        self.line(f"const {c_type(s.register.dtype)} {name} = {self.value(s.value).text};")
        self.registers[s.register.name] = name

    def block(self, s: Block) -> None:
        """All values first, and indices that depend on values, in names of their own, then stores and registers."""
        with self.braces():
            self._block(s)

    def _block(self, s: Block) -> None:
        rows = [row for row in s.rows if self.is_contiguous(row.array)]
        for row in rows:
            if row.array not in self.nest.writes:
                self.load_row(row)
        exprs = [*(x.value for x in s.stores), *(x.value for x in s.sets)]
        places = [x for put in s.stores for p in put.index for x in p.exprs] if len(s.stores) > 1 else []
        self.share([*exprs, *places])
        values = [self.kept(e) for e in exprs]
        for x in places:
            self.kept(x)
        stores = {(put.buffer, put.index): (put, v) for put, v in zip(s.stores, values, strict=False)} if rows else {}
        for row in rows:
            if row.array in self.nest.writes:
                self.store_row(row, [stores.pop((row.array, row.at(k)))[1] for k in range(row.count)])
        for put, v in stores.values() if rows else zip(s.stores, values, strict=False):
            self.store(put, v)
        for x, v in zip(s.sets, values[len(s.stores) :], strict=True):
            self.set(x, v)

    def is_contiguous(self, array: str) -> bool:
        """Do the elements of a row lie side by side?"""
        return not self.layouts.get(array, C_ORDER).order

    def load_row(self, row: Row) -> None:
        """Its elements, as known values."""
        b = self.nest.buffers.get(row.array)
        dtype = self.dtypes[row.array] if b is None or b.dtype is None else b.dtype
        lanes, name = lanes_type(dtype, row.count * dtype.itemsize), self.fresh("row")
        load = "row" if b is None else "shared"
        self.line(f"const {lanes} {name} = hj_load_{load}_{lanes}(&{self.access(row.array, row.index)});")
        for k in range(row.count):
            self.keep(Load(row.array, row.at(k), dtype), f"{name}.lane[{k}]{truth(dtype)}")

    def store_row(self, row: Row, values: Sequence[Operand]) -> None:
        dtype = self.dtypes[row.array]
        lanes, name = lanes_type(dtype, row.count * dtype.itemsize), self.fresh("row")
        self.line(f"{lanes} {name};")
        for k, v in enumerate(values):
            self.line(f"{name}.lane[{k}] = {v.text};")
        self.line(f"hj_store_row_{lanes}(&{self.access(row.array, row.index)}, {name});")

    def store(self, put: Store, v: Operand) -> None:
        to = self.access(put.buffer, put.index)
        if put.atomic is not None:
            b = self.nest.buffers.get(put.buffer)
            self.line(f"{atomic(put.atomic, v.dtype, b is not None)}(&{to}, {v.text});")
            return
        self.line(f"{to} = {v.text};")

    def set(self, x: Set, v: Operand) -> None:
        self.line(f"{self.registers[x.register.name]} = {v.text};")

    # -- values
    def share(self, exprs: Sequence[Expr]) -> None:
        """Names for what the expressions use more than once, for loads, and for parts of long ones."""
        readers: Counter[Expr] = Counter(exprs)
        height: dict[Expr, int] = {}
        for e in arguments_first(exprs):
            readers.update(e.args)
            height[e] = 1 + max((height[a] for a in e.args), default=0)
        for e in height:
            if isinstance(e, Const | ScalarRef) or (isinstance(e, Register) and readers[e] < 2):
                continue
            if readers[e] > 1 or isinstance(e, Load) or height[e] % MAX_NESTED == 0:
                self.kept(e)

    def kept(self, e: Expr) -> Operand:
        """A value with a name."""
        v = self.value(e)
        return v if v.value is not None or v.text.startswith("t_") else self.keep(e, v.text)

    def keep(self, e: Expr, text: str) -> Operand:
        """A name for a value, from here on."""
        name = self.numbered("t")
        self.line(f"const {c_type(e.dtype)} {name} = {text};")
        found = self.known[e] = Operand(name, e.dtype)
        return found

    def value(self, e: Expr) -> Operand:
        """An expression as C."""
        found = self.known.get(e)
        return self._value(e) if found is None else found

    def _value(self, e: Expr) -> Operand:
        match e:
            case Const():
                return constant(e.value, e.dtype)
            case ScalarRef():
                name = self.parameter(Parameter("scalar", e.name, dtype=e.dtype))
                return Operand(f"({name} != 0)" if e.dtype.kind == "b" else name, e.dtype)
            case Index():
                return Operand(f"((i64){self.at(e.poly)})", e.dtype)
            case Load():
                text = self.access(e.source, e.index)
                return Operand(f"({text} != 0)" if e.dtype.kind == "b" else text, e.dtype)
            case Register():
                return Operand(self.registers[e.name], e.dtype)
            case Cast():
                return convert_operand(self.value(e.arg), e.dtype)
            case Op() if (taken := fold_select(e)) is not e:
                return self.value(taken)
            case Op():
                args = [self.value(a) for a in e.args]
                if e.name == "fma":
                    return Operand(f"fma({', '.join(a.text for a in args)})", e.dtype)
                return Operand(apply(e.name, args, e.dtype), e.dtype)
        raise CompileError(f"no code for {e}")

    # -- indices and memory
    def at(self, p: Poly) -> str:
        return self.index.text(p)

    def atom(self, a: Atom) -> str:
        """A variable or a size."""
        if isinstance(a, Sym):
            return self.parameter(Parameter("size", a.name))
        if isinstance(a, Var) and a in self.names:
            return self.names[a]
        raise CompileError(f"an index holds {a}, which is not bound to a loop")

    def access(self, source: str, index: Sequence[Poly]) -> str:
        """An element in memory."""
        b = self.nest.buffers.get(source)
        base = self.base(source) if b is None else self.buffers[source]
        return f"{base}[{self.at(rejoined(sum(self.places(source, index, b), ZERO)))}]"

    def base(self, source: str) -> str:
        """The address of an array's first element; of an argument it may lie behind others."""
        i = self.inputs.get(source)
        memory = Parameter("array", source)
        if i is None or i.data is not None:
            return self.parameter(memory)
        if source not in self.firsts:
            self.firsts[source] = self.fresh(source)
            at, offset = self.parameter(memory), self.parameter(Parameter("offset", source))
            self.head(f"HJ_GLOBAL const {storage_type(i.dtype)} *{self.firsts[source]} = {at} + {offset};")
        return self.firsts[source]

    def places(self, source: str, index: Sequence[Poly], b: Buffer | None) -> Iterator[Poly]:
        """The position of an element in its array, axis by axis."""
        i = self.inputs.get(source)
        if b is not None:
            axes = enumerate(zip(index, b.origin, b.lengths, strict=True))
            index = [p % n if k == b.fold else p - o for k, (p, o, n) in axes]
            yield from (p * n for p, n in zip(index, b.layout.strides(b.lengths), strict=True))
        elif i is None or i.data is not None:
            strides = self.layouts.get(source, C_ORDER).strides(self.shapes[source])
            yield from (p * n for p, n in zip(index, strides, strict=True))
        else:
            for k, (p, step) in enumerate(zip(index, i.layout, strict=True)):
                yield p * (self.stride(source, k) if step is None else poly(step))

    def stride(self, source: str, axis: int) -> Poly:
        var = Var(f"{source}.stride{axis}")
        self.names[var] = self.parameter(Parameter("stride", source, axis))
        return poly(var)


STATEMENTS: dict[type, Callable[[_Kernel, Any], None]] = {
    Let: _Kernel.let,
    Choose: _Kernel.choose,
    For: _Kernel.loop,
    If: _Kernel.branch,
    Block: _Kernel.block,
    Declare: _Kernel.declare,
    Name: _Kernel.named_value,
    ResetWindow: _Kernel.reset_window,
    SlidingProduce: _Kernel.sliding_produce,
    Threads: _Kernel.thread_loops,
    CombineThreads: _Kernel.combine_threads,
    ScanThreads: _Kernel.scan_threads,
    CopyAsync: _Kernel.copy_async,
    CommitCopies: _Kernel.commit_copies,
    WaitForCopies: _Kernel.wait_for_copies,
    Barrier: _Kernel.barrier,
}
