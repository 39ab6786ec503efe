"""A table of all state that outlives a call: its bound, and what happens to it in a forked child.

A test walks the package, and fails where something that may change is at a module's top and not in this table.
Functions with an `lru_cache` need not be in it where that has a bound: what they give never changes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

KEPT = "stays"  # it is changed by one operation, or behind a lock that is reset
RESET = "reset by `after_fork` of its module"
GATES = "reset by the handlers of `hjit.process.forks`"


@dataclass(frozen=True, slots=True)
class State:
    """A module-level variable that changes.

    Attributes:
        holds: what is in it.
        bound: of how much it holds.
        in_child: what becomes of it in a forked child.
    """

    name: str
    holds: str
    bound: str
    in_child: str = KEPT


TABLE: dict[str, tuple[State, ...]] = {  # by module, without the package's name
    "call.compiled_function": (
        State("_functions", "all pipelines and parts, whose locks a child resets", "weak", RESET),
    ),
    "call.checks.against_numpy": (
        State("comparing", "threads that run a plain function for a comparison", "those that do"),
    ),
    "cache": (
        State("_stores", "how often this process has written an entry", "a number"),
        State("_refused", "folders that a warning was given of", "one of each name that is given as `cache_dir`"),
    ),
    "chunks.kernels": (
        State("_scheduled", "schedules of the kernels of Dask's chunks, the latest used at the end", "KEPT_KERNELS"),
        State("_order", "guards it", "a lock", RESET),
    ),
    "process.garbage_collection": (
        State("_lock", "guards the two below", "a lock", RESET),
        State("_inside", "calls during which garbage is collected less often", "a number", RESET),
        State("_usual", "the threshold outside these", "a number", RESET),
    ),
    "process.deadline": (
        State("_current", "the budget of the first call that this thread makes", "one a context"),
        State("_spent", "the time that has gone into the function it builds", "one a context"),
    ),
    "process.background": (
        State("_worker", "the thread for background work, and its work", "MAX_WAITING pieces of work", RESET),
    ),
    "process.threads": (State("_starting", "one thread starts others", "a lock", RESET),),
    "process.progress": (State("_current", "what is shown of the work that this thread does", "one a context"),),
    "process.forks": (
        State("builds", "threads that build kernels", "a lock a thread", GATES),
        State("kernels", "threads that run kernels", "a lock a thread", GATES),
        State("before_fork", "what is told before a fork whether kernels rest", "filled when modules are imported"),
        State("_held", "numba's lock during a fork", "one", GATES),
        State("unfinished", "says whether an abandoned compilation holds that lock", "one"),
    ),
    "tuning.featuriser": (
        State("_known", "the compiled featuriser", "one"),
        State("_recorded", "seconds of searches without it", "a number"),
    ),
    "sched.native.regions": (
        State("FUNCTIONS", "the functions of the compiled featuriser", "filled when modules are imported"),
    ),
    "kernels.cuda.compilers.opencl": (State("_building", "one thread builds a program", "a lock", RESET),),
    "kernels.cuda.runtime.kernels": (
        State("_kernels", "kernels by name and device, the latest used at the end", "KEPT kernels", RESET),
        State("_of_parents", "those of processes that this one was forked from", "KEPT kernels a fork"),
        State("_lock", "one thread makes kernels", "a lock", RESET),
    ),
    "kernels.runtime.arena": (
        State("_free", "free blocks of scratch memory", "KEEP_BYTES", RESET),
        State("_order", "numbers them", "a number"),
        State("_nothing", "the block of no bytes", "constant"),
    ),
    "kernels.runtime.backend": (
        State("_lock", "LLVM by one thread at a time", "a lock", RESET),
        State("_retired", "engines whose kernels are gone, for the next compilation to free", "those since then"),
    ),
    "kernels.runtime.machine_code": (State("_given_up", "an abandoned compilation; in a child it never ends", "one"),),
    "kernels.runtime.kernel": (
        State("_kernels", "kernels by name, the latest used at the end", "KEPT kernels"),
        State("_others", "kernels by name that pipelines hold", "weak"),
        State("_order", "guards the two above", "a lock", RESET),
        State("_lock", "one thread makes a kernel", "a lock", RESET),
        State("_made", "how many kernels a thread has compiled and loaded", "two numbers a thread"),
    ),
    "kernels.runtime.launch": (
        State("_start_lock", "one thread starts the threads of kernels", "a lock", RESET),
        State("_python_for", "the loop of Python threads as compiled code may call it", "constant"),
        State("_finalize", "what ends those threads", "one", RESET),
        State("_lost", "is this a child whose tbb waits for threads of its parent?", "a bool", RESET),
        State("_ends", "did those threads end before the latest fork?", "a bool", RESET),
    ),
    "process.shown_warnings": (
        State("_shown", "what shows warnings, and what one thread has put in its place", "one", RESET),
        State("_settings", "NumPy's settings of errors", "one a context"),
        State("_latest", "these when they were last asked for, and the answer", "one"),
    ),
    "process.signals": (
        State("_pools", "threads for work that signals must not interrupt, by its kind", "one a kind", RESET),
    ),
    "process.deep_stack": (State("_deep", "threads with deep stacks", "as many as are used at once", RESET),),
    "trace.capture.side_effects.finalisation": (
        State("_printed", "what prints exceptions of finalised objects, and who takes them", "one", RESET),
    ),
    "options": (State("_in_context", "options of ``with hjit.options(...)``", "one a context"),),
    "report.performance.style": (State("_numbers", "numbers reports", "a number"),),
    "trace.capture.side_effects.audit_hook": (State("_installed", "is the audit hook installed?", "a bool"),),
    "trace.capture.overlay": (
        State("_REPLACED", "what traced code calls in place of functions", "filled when it is first asked for"),
        State("_modules", "stand-ins for modules, by the module's name", "the libraries that are taken over"),
    ),
    "trace.capture.loops.rewriting.exits": (State("_known", "functions with loops that are left", "MAX_KNOWN codes"),),
    "trace.ops.complex_numbers.table": (
        State("_VERSIONS", "what traces NumPy's functions of complex arrays", "filled when modules are imported"),
    ),
    "trace.tracing.dispatch": (
        State("_FUNCTIONS", "what traces NumPy's functions", "filled when modules are imported"),
    ),
    "trace.tracing.frames": (State("_places", "lines and names of instructions, by code", "MAX_CODES codes"),),
    "trace.tracing.recording.recorder": (
        State("_state", "the trace that this thread runs", "one a thread"),
        State("running", "the traces of all threads, by their identity", "those that run"),
    ),
    "trace.tracing.arrays.buffers": (State("serials", "numbers traced arrays", "a number"),),
    "trace.tracing.scalars.size": (
        State("_watching", "size guards of the trace that this thread runs", "one a thread"),
        State("_watchers", "traces that note this", "a number"),
        State("_lock", "guards that number", "a lock", RESET),
    ),
    "tuning.plans": (State("_plans", "plans by name, for where there is no disk", "MAX_PLANS plans"),),
}


def after_fork() -> None:
    """In a forked child: locks of the parent's other threads are open, and what belongs to these is forgotten."""
    for name, rows in TABLE.items():
        module: Any = sys.modules.get(f"hjit.{name}")
        if any(x.in_child == RESET for x in rows) and hasattr(module, "after_fork"):  # else it is half imported
            module.after_fork()
