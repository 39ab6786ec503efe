"""The driver of a kernel with many nests: a table of calls, and a loop over it.

A driver that calls each nest by code of its own grows by some eighty lines per nest, and compiling it takes LLVM longer
than the nests. In the table, a call is a row of numbers: the function, and the slots of its arguments. The arguments
are computed first, each once, from a second table of sums of products of sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hjit.kernels.llvm.builder.function_merging import Uniform
from hjit.kernels.llvm.driver.launching import Call, launch, note_time, status
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.lower.params import Params
from hjit.trace.ir.poly import Atom, Poly, Sym, poly

SERIAL = -1  # in place of the slot of the number of parallel iterations


class Values:
    """The arguments of calls, in slots after those of the parameter block.

    Attributes:
        atoms: divisions, minima and the like, which are computed by code -> slot.
        sums: sums of products of what is in slots -> slot.
    """

    def __init__(self, params: Params, given: Iterable[Uniform]) -> None:
        self.params = params
        self.kernel = params.count  # where the address of the block itself is
        self.atoms: dict[Atom, int] = {}
        self.sums: dict[Uniform, int] = {}
        every = list(dict.fromkeys(given))
        for what in every:
            if isinstance(what, Poly):
                for a in what.atoms():
                    if not isinstance(a, Sym):
                        self.atoms.setdefault(a, self.kernel + 1 + len(self.atoms))
        self.first = self.kernel + 1 + len(self.atoms)
        for what in every:
            if self._known(what) is None:
                self.sums[what] = self.first + len(self.sums)
        self.count = self.first + len(self.sums)

    def slot(self, what: Uniform) -> int:
        """Where a number is."""
        known = self._known(what)
        return self.sums[what] if known is None else known

    def _known(self, what: Uniform) -> int | None:
        """The slot of what needs no sum."""
        if what is None:  # `KERNEL`
            return self.kernel
        if isinstance(what, tuple):
            return None if what[1] else what[0]
        if what.const == 0 and len(what.terms) == 1:
            ((factors, c),) = what.terms.items()
            if c == 1 and len(factors) == 1:
                return self._factor(factors[0])
        return None

    def _factor(self, a: Atom) -> int:
        return self.params.symbols[a.name] if isinstance(a, Sym) else self.atoms[a]

    def rows(self) -> list[int]:
        """For each sum the number of its terms and its constant; for each term its factor, and the number of slots and
        these."""
        found: list[int] = []
        for what in self.sums:
            if isinstance(what, tuple):
                found += [1, what[1], 1, 1, what[0]]
                continue
            assert isinstance(what, Poly)
            found += [len(what.terms), what.const]
            for factors, c in what.terms.items():
                found += [c, len(factors), *map(self._factor, factors)]
        return found


def given_to(calls: Sequence[Call]) -> Iterable[Uniform]:
    """The arguments that all calls need."""
    for c in calls:
        yield from (c.nest.points, c.nest.work, *c.uniforms)
        if c.nest.count is not None:
            yield c.nest.count


def globals_text(name: str, calls: Sequence[Call], values: Values) -> str:
    """The tables: of sums, of functions, of what threads run of them, and of calls."""
    functions = {f: k for k, f in enumerate(dict.fromkeys(c.function for c in calls))}
    shared = {c.function for c in calls if c.nest.count is not None}
    rows: list[int] = []
    for c in calls:
        count = SERIAL if c.nest.count is None else values.slot(c.nest.count)
        given = [values.slot(what) for what in c.uniforms]
        rows += [functions[c.function], values.slot(c.nest.points), count, values.slot(c.nest.work), len(given), *given]
    tasks = [f"ptr @{f}.task" if f in shared else "ptr null" for f in functions]
    return "\n".join(
        [
            _array(f"{name}.sums", "i64", [f"i64 {n}" for n in values.rows()]),
            _array(f"{name}.functions", "ptr", [f"ptr @{f}" for f in functions]),
            _array(f"{name}.tasks", "ptr", tasks),
            _array(f"{name}.calls", "i64", [f"i64 {n}" for n in rows]),
        ]
    )


def _array(name: str, kind: str, items: Sequence[str]) -> str:
    return f"@{name} = private unnamed_addr constant [{len(items)} x {kind}] [{', '.join(items)}], align 8"


def sums_text(name: str, values: Values) -> str:
    """The function that computes the sums."""
    return f"""define internal void @{name}.sum(ptr %ctx) #0 {{
entry:
  br label %sum
sum:
  %k = phi i64 [ 0, %entry ], [ %k.next, %done ]
  %at = phi ptr [ @{name}.sums, %entry ], [ %at.term, %done ]
  %k.inside = icmp slt i64 %k, {len(values.sums)}
  br i1 %k.inside, label %begin, label %end
begin:
  %terms = load i64, ptr %at
  %const.at = getelementptr i64, ptr %at, i64 1
  %const = load i64, ptr %const.at
  %at.first = getelementptr i64, ptr %at, i64 2
  br label %term
term:
  %t = phi i64 [ 0, %begin ], [ %t.next, %add ]
  %at.term = phi ptr [ %at.first, %begin ], [ %at.factor, %add ]
  %total = phi i64 [ %const, %begin ], [ %total.next, %add ]
  %t.inside = icmp slt i64 %t, %terms
  br i1 %t.inside, label %factors, label %done
factors:
  %c = load i64, ptr %at.term
  %n.at = getelementptr i64, ptr %at.term, i64 1
  %n = load i64, ptr %n.at
  %at.second = getelementptr i64, ptr %at.term, i64 2
  br label %factor
factor:
  %f = phi i64 [ 0, %factors ], [ %f.next, %multiply ]
  %at.factor = phi ptr [ %at.second, %factors ], [ %at.next, %multiply ]
  %product = phi i64 [ %c, %factors ], [ %product.next, %multiply ]
  %f.inside = icmp slt i64 %f, %n
  br i1 %f.inside, label %multiply, label %add
multiply:
  %slot = load i64, ptr %at.factor
  %x.at = getelementptr i64, ptr %ctx, i64 %slot
  %x = load i64, ptr %x.at
  %product.next = mul i64 %product, %x
  %f.next = add i64 %f, 1
  %at.next = getelementptr i64, ptr %at.factor, i64 1
  br label %factor
add:
  %total.next = add i64 %total, %product
  %t.next = add i64 %t, 1
  br label %term
done:
  %to = add i64 %k, {values.first}
  %to.at = getelementptr i64, ptr %ctx, i64 %to
  store i64 %total, ptr %to.at
  %k.next = add i64 %k, 1
  br label %sum
end:
  ret void
}}"""


def emit(e: NestEmitter, name: str, calls: Sequence[Call], values: Values) -> None:
    """Compute the numbers, and run the calls; the kernel ends where one fails."""
    code = e.code
    _put(e, values.kernel, "ptr %ctx")
    for atom, slot in values.atoms.items():
        _put(e, slot, str(e.integer(poly(atom))))
    code.effect(f"call void @{name}.sum(ptr %ctx)")
    note_time(e, 0)
    code.effect("br label %table")
    code.label("table")
    code.effect("br label %call")
    code.label("call")
    _effects(
        e,
        "%k = phi i64 [ 0, %table ], [ %k.next, %after ]",
        f"%row = phi ptr [ @{name}.calls, %table ], [ %row.next, %after ]",
        f"%k.inside = icmp slt i64 %k, {len(calls)}",
        "br i1 %k.inside, label %look, label %finished",
    )
    code.label("look")
    code.effect("%k.next = add i64 %k, 1")
    for k, what in enumerate(("function", "points", "count", "work", "n")):
        _effects(e, f"%{what}.at = getelementptr i64, ptr %row, i64 {k}", f"%{what}.row = load i64, ptr %{what}.at")
    _effects(
        e,
        "%first = getelementptr i64, ptr %row, i64 5",
        "%row.next = getelementptr i64, ptr %first, i64 %n.row",
        *_read("points", "%points.row"),
        "%is.some = icmp sgt i64 %points, 0",  # see `driver_text`
        "br i1 %is.some, label %give, label %after",
    )
    code.label("give")
    _effects(
        e,
        "%g = phi i64 [ 0, %look ], [ %g.next, %copy ]",
        "%g.inside = icmp slt i64 %g, %n.row",
        "br i1 %g.inside, label %copy, label %run",
    )
    code.label("copy")
    _effects(
        e,
        "%from = getelementptr i64, ptr %first, i64 %g",
        "%slot = load i64, ptr %from",
        *_read("number", "%slot"),
        "%g.next = add i64 %g, 1",
        "%to = getelementptr i64, ptr %given, i64 %g.next",
        "store i64 %number, ptr %to",
        "br label %give",
    )
    _run(e, name)
    code.label("ran")
    note_time(e, "%k.next")
    status(e, "after")
    code.effect("br label %call")
    code.label("finished")


def _run(e: NestEmitter, name: str) -> None:
    """Run the function of a row with the numbers that it is given, in one task or in several."""
    code = e.code
    code.label("run")
    _effects(
        e,
        f"%nest.at = getelementptr ptr, ptr @{name}.functions, i64 %function.row",
        "%nest = load ptr, ptr %nest.at",
        f"%is.serial = icmp eq i64 %count.row, {SERIAL}",
        "br i1 %is.serial, label %serial, label %shared",
    )
    code.label("serial")
    _effects(e, "call void %nest(ptr %given, i64 0, i64 1, i64 0)", "br label %ran")
    code.label("shared")
    _effects(
        e,
        *_read("count", "%count.row"),
        *_read("work", "%work.row"),
        f"%task.at = getelementptr ptr, ptr @{name}.tasks, i64 %function.row",
        "%task = load ptr, ptr %task.at",
    )
    launch(e, "%nest", "%task", "%count", "%work")
    code.effect("br label %ran")


def _effects(e: NestEmitter, *lines: str) -> None:
    for line in lines:
        e.code.effect(line)


def _read(what: str, slot: str) -> tuple[str, str]:
    """Load a slot."""
    return f"%{what}.slot = getelementptr i64, ptr %ctx, i64 {slot}", f"%{what} = load i64, ptr %{what}.slot"


def _put(e: NestEmitter, slot: int, value: str) -> None:
    """Store to a slot."""
    _effects(e, f"%put{slot} = getelementptr i64, ptr %ctx, i64 {slot}", f"store {value}, ptr %put{slot}")
