"""State that lives between calls: all of it, with its bound, and what becomes of it in a forked child.

A test walks the package, and fails where something that may change is at a module's top and not in this table. Functions with an
`lru_cache` need not be in it where that has a bound: what they give never changes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

KEPT = "stays"  # what threads of the parent may be in the middle of changing is changed behind a lock that is reset, or by one operation
RESET = "reset by `after_fork` of its module"
GATES = "settled by the handlers of `hjit.forks`"


@dataclass(frozen=True, slots=True)
class State:
    """Something at a module's top that changes.

    Attributes:
        module: without the package's name.
        holds: what is in it.
        bound: of how much it holds.
        in_child: what becomes of it in a forked child.
    """

    module: str
    name: str
    holds: str
    bound: str
    in_child: str = KEPT


TABLE = (
    State("cache", "_stores", "how often this process has written an entry", "a number"),
    State("cache", "_refused", "folders that a warning was given of", "one of each name that is given as `cache_dir`"),
    State("collector", "_lock", "guards the two below", "a lock", RESET),
    State(
        "collector",
        "_inside",
        "threads, and calls in each other, during which garbage is collected less often",
        "a number",
        RESET,
    ),
    State("collector", "_usual", "the threshold outside these", "a number", RESET),
    State("deadline", "_current", "the budget of the first call that this thread makes", "one a context"),
    State("forks", "builds", "threads that build kernels", "one number a thread that is inside", GATES),
    State("forks", "kernels", "threads that run kernels", "one number a thread that is inside", GATES),
    State("forks", "at_rest", "what is told before a fork whether kernels rest", "filled when modules are imported"),
    State("forks", "_held", "numba's lock during a fork", "one", GATES),
    State("kernels.runtime.arena", "_free", "blocks of scratch memory that nobody uses", "KEEP_BYTES", RESET),
    State("kernels.runtime.arena", "_kept", "bytes of these", "a number", RESET),
    State("kernels.runtime.arena", "_lock", "guards the two above", "a lock", RESET),
    State("kernels.runtime.arena", "_nothing", "the block of no bytes", "constant"),
    State("kernels.runtime.backend", "_lock", "LLVM by one thread at a time", "a lock", RESET),
    State("kernels.runtime.backend", "_compilations", "names modules", "a number"),
    State(
        "kernels.runtime.backend",
        "_retired",
        "engines whose kernels are gone, to be freed by the next that compiles",
        "those since then",
    ),
    State(
        "kernels.runtime.kernel",
        "_kernels",
        "kernels by name, the latest that was asked for at the end",
        "KEPT kernels",
    ),
    State("kernels.runtime.kernel", "_others", "kernels by name that pipelines hold", "weak"),
    State("kernels.runtime.kernel", "_order", "guards the two above", "a lock", RESET),
    State("kernels.runtime.kernel", "_lock", "one thread makes a kernel", "a lock", RESET),
    State(
        "kernels.runtime.kernel", "_made", "how many kernels a thread has compiled and loaded", "two numbers a thread"
    ),
    State("kernels.runtime.launch", "_start_lock", "one thread starts the threads of kernels", "a lock", RESET),
    State("kernels.runtime.launch", "_finalize", "what ends those threads", "one", RESET),
    State(
        "kernels.runtime.launch",
        "_lost",
        "are there none any more, after a fork in the middle of a kernel?",
        "a bool",
        RESET,
    ),
    State("kernels.runtime.launch", "_ends", "is what ends them registered?", "a bool", RESET),
    State(
        "kernels.runtime.signals",
        "_pools",
        "threads for work that signals must not interrupt, by its kind",
        "one a kind",
        RESET,
    ),
    State("kernels.runtime.signals", "_room", "threads with deep stacks", "as many as are used at once", RESET),
    State("options", "_in_context", "options of ``with hjit.options(...)``", "one a context"),
    State("pipeline", "_pipelines", "all pipelines, whose locks a child resets", "weak", "reset by the pipeline"),
    State("trace.capture.audit", "_listening", "is the audit hook installed?", "a bool"),
    State(
        "trace.capture.overlay",
        "_REPLACED",
        "what traced code calls in place of functions",
        "filled when it is first asked for",
    ),
    State(
        "trace.capture.overlay",
        "_modules",
        "stand-ins for modules, by the module's name",
        "the libraries that are taken over",
    ),
    State(
        "trace.ir.graph",
        "_identities",
        "indices of whole arrays, by their number of dimensions",
        "numbers of dimensions",
    ),
    State("trace.tracing.dispatch", "_FUNCTIONS", "what traces NumPy's functions", "filled when modules are imported"),
    State(
        "trace.tracing.dispatch", "_HOOKS", "what is asked about functions first", "filled when modules are imported"
    ),
    State("trace.tracing.recorder", "_state", "the trace that this thread runs", "one a thread"),
    State("trace.tracing.recorder", "_running", "the traces of all threads, by their identity", "those that run"),
    State("trace.tracing.tracer", "serials", "numbers traced arrays", "a number"),
    State("tuning.plans", "_plans", "plans by name, for where there is no disk", "MOST_PLANS plans"),
)


def after_fork() -> None:
    """In a forked child: locks of the parent's other threads are open, and what belongs to these is forgotten."""
    for name in dict.fromkeys(x.module for x in TABLE if x.in_child == RESET):
        module = sys.modules.get(f"hjit.{name}")
        if module is not None:
            module.after_fork()
