"""The driver of a kernel: resolves parameters, then runs the nests in order, in parallel if there is enough work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hjit.kernels.llvm import thresholds
from hjit.kernels.llvm.builder.code import BOOL, I64
from hjit.kernels.llvm.driver import call_table
from hjit.kernels.llvm.driver.arrays import data_offset
from hjit.kernels.llvm.driver.launching import Call, launch, note_time, status
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.params import SCRATCH, STATUS, Params
from hjit.trace.ir.graph import Graph

# attributes of a long driver; it has no vectors and calls nothing of the C library, unlike nests
NOT_OPTIMISED = "nounwind noinline optnone"


@dataclass(frozen=True, slots=True)
class Driver:
    """The text of the driver and its tasks, and their declarations."""

    text: str
    declarations: dict[str, None]


def driver_text(graph: Graph, calls: Sequence[Call], params: Params, name: str, machine: Machine) -> Driver:
    """``i32 name(ptr params)``, and for every function of parallel nests the task that the threads run."""
    e = NestEmitter(graph, params, machine, {})
    e.uniforms = None
    code = e.code
    size = params.count
    is_table = len(calls) > thresholds.MAX_CALLS_IN_CODE
    values = call_table.Values(params, call_table.given_to(calls)) if is_table else None
    slots = size if values is None else values.count
    e.allocas += [
        f"  %ctx = alloca [{slots} x i64], align 64",
        "  %data = alloca [3 x i64]",
        "  %args = alloca [1 x i64]",
    ]
    most = 1 + max((len(c.uniforms) for c in calls), default=0)
    e.allocas += [
        "  %dims = alloca [1 x i64]",
        "  %steps = alloca [1 x i64]",
        f"  %given = alloca [{most} x i64], align 64",
    ]
    e.allocas.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr %ctx, ptr %params, i64 {8 * size}, i1 false)")
    code.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    e.allocas += _resolve(params)
    e.block = next((line.removesuffix(":") for line in reversed(e.allocas) if line.endswith(":")), e.block)
    tasks: dict[str, str] = {}
    code.effect("store ptr %ctx, ptr %given")
    for call in calls:
        if call.nest.count is not None:
            tasks.setdefault(call.function, _task(call.function))
    parts = [*tasks.values()]
    if values is not None:
        parts += [call_table.globals_text(name, calls, values), call_table.sums_text(name, values)]
        call_table.emit(e, name, calls, values)
    else:
        note_time(e, 0)
    for k, call in enumerate(calls if values is None else ()):
        points = e.integer(call.nest.points)
        # loads are hoisted out of loops, also out of those that never run: a nest without elements is not entered
        e.branch(code.emit(f"icmp sgt i64 {points.text}, 0", BOOL, 1, points), partial(_run, e, call, k))
    code.effect("ret i32 0")
    code.label("failed")
    code.effect("ret i32 1")
    entry = "\n".join(["entry:", *e.allocas])
    body = code.text()
    kind = NOT_OPTIMISED if len(e.allocas) + body.count("\n") > thresholds.MAX_OPTIMISED_LINES else "#0"
    main = f"define i32 @{name}(ptr %params) {kind} {{\n{entry}\n{body}\n}}"
    return Driver("\n\n".join([*parts, main]), code.declarations)


def _run(e: NestEmitter, call: Call, number: int) -> None:
    """Run a nest, and end the kernel where it fails."""
    code = e.code
    _give(e, call)
    if call.nest.count is None:
        code.effect(f"call void @{call.function}(ptr %given, i64 0, i64 1, i64 0)")
    else:
        count, work = e.integer(call.nest.count).text, e.integer(call.nest.work).text
        launch(e, f"@{call.function}", f"@{call.function}.task", count, work)
    note_time(e, number + 1)
    status(e, code.fresh("ok"))


def _give(e: NestEmitter, call: Call) -> None:
    """Store the arguments of a nest."""
    for k, what in enumerate(call.uniforms, 1):
        # None: `KERNEL`
        value = "ptr %ctx" if what is None else e.slot(*what) if isinstance(what, tuple) else e.integer(what)
        at = e.code.emit(f"getelementptr i64, ptr %given, i64 {k}", I64, 1, pointer=True)
        e.code.effect(f"store {value}, ptr {at.text}, align 8")


def _resolve(params: Params) -> list[str]:
    """Replace array objects and scratch offsets by addresses."""
    lines = [f"  %status.at = getelementptr i64, ptr %ctx, i64 {STATUS}", "  store i64 0, ptr %status.at"]
    offset = data_offset()
    lines += _in_slots(
        "array",
        [*params.arrays.values()],
        "%X.object = load ptr, ptr %X.at",
        f"%X.field = getelementptr i8, ptr %X.object, i64 {offset}",
        "%X.data = load ptr, ptr %X.field",
        "store ptr %X.data, ptr %X.at",
    )
    lines += [f"  %scratch.at = getelementptr i64, ptr %ctx, i64 {SCRATCH}", "  %scratch = load i64, ptr %scratch.at"]
    lines += _in_slots(
        "part",
        [*params.scratch.values()],
        "%X.offset = load i64, ptr %X.at",
        "%X.address = add i64 %X.offset, %scratch",
        "store i64 %X.address, ptr %X.at",
    )
    return lines


def _in_slots(what: str, slots: Sequence[int], *lines: str) -> list[str]:
    """Do something with each of some consecutive slots: code for each, or a loop over many. `X` stands for a name."""
    if len(slots) <= thresholds.MAX_SLOTS_IN_CODE:
        parts = ((f"{what}{k}", [f"%X.at = getelementptr i64, ptr %ctx, i64 {k}", *lines]) for k in slots)
        return [f"  {line}".replace("%X", f"%{name}") for name, part in parts for line in part]
    assert list(slots) == list(range(slots[0], slots[0] + len(slots)))
    loop = [
        f"  br label %{what}s",
        f"{what}s:",
        f"  br label %{what}",
        f"{what}:",
        f"  %X.k = phi i64 [ {slots[0]}, %{what}s ], [ %X.next, %{what} ]",
        "  %X.at = getelementptr i64, ptr %ctx, i64 %X.k",
        *(f"  {line}" for line in lines),
        "  %X.next = add i64 %X.k, 1",
        f"  %X.more = icmp slt i64 %X.next, {slots[0] + len(slots)}",
        f"  br i1 %X.more, label %{what}, label %{what}s.done",
        f"{what}s.done:",
    ]
    return [line.replace("%X", f"%{what}") for line in loop]


def _task(function: str) -> str:
    """The function that a thread runs: tasks [first, first + n) of a nest, each a part of its range."""
    return f"""define internal void @{function}.task(ptr %args, ptr %dims, ptr %steps, ptr %data) #0 {{
  %first = load i64, ptr %args
  %n = load i64, ptr %dims
  %given = load ptr, ptr %data
  %tasks.at = getelementptr i64, ptr %data, i64 1
  %tasks = load i64, ptr %tasks.at
  %count.at = getelementptr i64, ptr %data, i64 2
  %count = load i64, ptr %count.at
  %last = add i64 %first, %n
  %b = mul i64 %first, %count
  %begin = udiv i64 %b, %tasks
  %e = mul i64 %last, %count
  %end = udiv i64 %e, %tasks
  call void @{function}(ptr %given, i64 %begin, i64 %end, i64 %first)
  ret void
}}"""
