"""Names of kernels: their keys in the process and on disk."""

from __future__ import annotations

import hjit.cache as cache
from hjit.kernels.runtime import backend
from hjit.options import Options
from hjit.sched.language.tree import Root, renamed
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.key import Key


def kernel_name(
    graph: Graph,
    key: Key,
    options: Options,
    schedule: Root | None = None,
    small: bool = True,
    timed: bool = False,
    quick: bool = False,
) -> str:
    """The symbol and cache key of the kernel of a Graph and its schedule; None is the default schedule.

    Args:
        small: are all arrays short enough for 32-bit indices?
        timed, quick: see `Scheduled`.
    """
    target = backend.machine_text(options.target)
    parts = (
        key.text,
        schedule_text(graph, schedule),
        target,
        cache.versions(),
        str(options.fast_math),
        "small" if small else "large",
        *(["timed"] if timed else []),
        *(["quick"] if quick else []),
    )
    return "hjit_" + cache.digest(*parts)[:40]


def schedule_text(graph: Graph, schedule: Root | None) -> str:
    """A schedule as a text in which the names of stages do not matter; None is the default schedule."""
    if schedule is None:
        return "default schedule"
    named = renamed(schedule, {s.name: f"s{k}" for k, s in enumerate(graph.stages)})
    assert isinstance(named, Root)
    return str(named.to_json())
