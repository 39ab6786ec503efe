"""Launching a nest from the driver: on the calling thread, or as tasks on the thread pool."""

from __future__ import annotations

from dataclasses import dataclass

from hjit.kernels.llvm.builder.function_merging import Uniform
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.thresholds import TASK_OPERATIONS
from hjit.kernels.lower.params import PARALLEL_FOR, STATUS, TASKS_PER_THREAD, THREADS
from hjit.kernels.lower.program import Nest


@dataclass(frozen=True, slots=True)
class Call:
    """A nest, the function that runs it, and the numbers that this one is given, from slot 1 of its block on."""

    nest: Nest
    function: str
    uniforms: tuple[Uniform, ...]


def status(e: NestEmitter, label: str) -> None:
    """Return from the kernel if a nest has failed; otherwise continue at `label`."""
    code = e.code
    code.effect(f"%{label}.at = getelementptr i64, ptr %ctx, i64 {STATUS}")
    code.effect(f"%{label}.status = load i64, ptr %{label}.at")
    code.effect(f"%{label}.good = icmp eq i64 %{label}.status, 0")
    code.effect(f"br i1 %{label}.good, label %{label}, label %failed")
    code.label(label)


def note_time(e: NestEmitter, place: int | str) -> None:
    """Record the processor's time stamp counter at a position of the kernel's times, if the kernel records times."""
    slot = e.params.times
    if slot is None:
        return
    code = e.code
    clock = "llvm.readsteadycounter" if "neon" in code.features else "llvm.readcyclecounter"
    t = code.fresh("time")
    for line in (
        f"%{t}.now = call i64 @{clock}()",
        f"%{t}.slot = getelementptr i64, ptr %ctx, i64 {slot}",
        f"%{t}.all = load ptr, ptr %{t}.slot",
        f"%{t}.at = getelementptr i64, ptr %{t}.all, i64 {place}",
        f"store i64 %{t}.now, ptr %{t}.at",
    ):
        code.effect(line)
    code.declare(f"declare i64 @{clock}()")


def launch(e: NestEmitter, function: str, task: str, count: str, work: str) -> None:
    """Run a nest on this thread, or as tasks on the thread pool if there is enough work."""
    code = e.code
    p = code.fresh("p")
    for line in (
        f"%{p}.for.at = getelementptr i64, ptr %ctx, i64 {PARALLEL_FOR}",
        f"%{p}.for = load ptr, ptr %{p}.for.at",
        f"%{p}.threads.at = getelementptr i64, ptr %ctx, i64 {THREADS}",
        f"%{p}.threads = load i64, ptr %{p}.threads.at",
        f"%{p}.grains = udiv i64 {work}, {TASK_OPERATIONS}",
        f"%{p}.most = mul i64 %{p}.threads, {TASKS_PER_THREAD}",
        f"%{p}.t1 = call i64 @llvm.umin.i64(i64 %{p}.grains, i64 %{p}.most)",
        f"%{p}.tasks = call i64 @llvm.umin.i64(i64 %{p}.t1, i64 {count})",
        f"%{p}.alone = icmp ule i64 %{p}.tasks, 1",
        f"%{p}.single = icmp ule i64 %{p}.threads, 1",
        f"%{p}.serial = or i1 %{p}.alone, %{p}.single",
        f"br i1 %{p}.serial, label %{p}.here, label %{p}.spread",
    ):
        code.effect(line)
    code.label(f"{p}.here")
    code.effect(f"call void {function}(ptr %given, i64 0, i64 {count}, i64 0)")
    code.effect(f"br label %{p}.done")
    code.label(f"{p}.spread")
    for line in (
        "store ptr %given, ptr %data",
        f"%{p}.d1 = getelementptr i64, ptr %data, i64 1",
        f"store i64 %{p}.tasks, ptr %{p}.d1",
        f"%{p}.d2 = getelementptr i64, ptr %data, i64 2",
        f"store i64 {count}, ptr %{p}.d2",
        "store i64 0, ptr %args",
        f"store i64 %{p}.tasks, ptr %dims",
        "store i64 1, ptr %steps",
        f"%{p}.threads32 = trunc i64 %{p}.threads to i32",
        f"call void %{p}.for(ptr {task}, ptr %args, ptr %dims, ptr %steps, ptr %data, "
        f"i64 0, i64 1, i32 %{p}.threads32)",
        f"br label %{p}.done",
    ):
        code.effect(line)
    code.label(f"{p}.done")
    code.declare("declare i64 @llvm.umin.i64(i64, i64)")
