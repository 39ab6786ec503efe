"""Where each kind of loop is legal: a rule for each row of `hjit.sched.language.kinds.LOOP_KINDS`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from hjit.sched.language.definitions import free_from, is_associative, is_atomic, is_direct
from hjit.sched.language.kinds import LoopKind
from hjit.sched.language.limits import MAX_THREADS, MAX_UNROLL, WARP
from hjit.sched.language.tree import Compute, Loop, Node, Store, dim_name, dims_of, loop_name
from hjit.trace.ir.analysis.scans import Scan, scan_of
from hjit.trace.ir.graph import Definition, Stage
from hjit.trace.ir.poly import Poly

OVER_THREADS = ("gpu_thread", "gpu_lane")


@dataclass(frozen=True)
class Leaf:
    """A computation and the nodes above it, outermost first."""

    path: tuple[Node, ...]
    compute: Compute

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """The stage's own loops."""
        return tuple(x for x in self.path if isinstance(x, Loop) and x.stage == self.compute.stage)

    @cached_property
    def site(self) -> int:
        """How many nodes of the path lie outside the stage's own loops and the stores directly around them."""
        own = next(
            (k for k, x in enumerate(self.path) if isinstance(x, Loop) and x.stage == self.compute.stage),
            len(self.path),
        )
        while own and isinstance(self.path[own - 1], Store):
            own -= 1
        return own


@dataclass(frozen=True, slots=True)
class LoopAt:
    """A loop of the stage that a leaf computes, and what its rule looks at.

    Attributes:
        around: all loops outside of it, of whatever stages.
        inner: the next loop over the same dimension inside it.
    """

    loop: Loop
    leaf: Leaf
    around: tuple[Loop, ...]
    inner: Loop | None
    stage: Stage
    definition: Definition

    @property
    def is_reduction(self) -> bool:
        """Does it run over a reduction dimension?"""
        return dims_of(self.loop.dim)[0] >= len(self.definition.dims)


def _serial(at: LoopAt) -> Iterator[str]:
    """Legal everywhere."""
    yield from ()


def _parallel(at: LoopAt) -> Iterator[str]:
    x = at.loop
    if any(y.kind != x.kind for y in at.around) or (*at.around, x)[0].stage != at.stage.name:
        yield f"{loop_name(x)}: only the outermost loops of a root are {x.kind}"
    if at.is_reduction and not is_atomic(at.stage, at.definition) and not _restarts(at):
        yield (
            f"{loop_name(x)}: iterations of a reduction write the same elements; only histograms and the like of whole "
            f"numbers are updated atomically, `rfactor` splits others into parts"
        )
    if x.size is not None:
        yield f"{loop_name(x)}: only the loop over all of a dimension is {x.kind}"


def _restarts(at: LoopAt) -> bool:
    """Does a scan begin anew in each iteration of a loop over blocks?"""
    found = scan_of(at.stage, at.definition)
    inner = None if at.inner is None else at.inner.size
    return found is not None and at.loop.kind == "gpu_block" and found.restart != 0 and found.restart == inner


def _vector(at: LoopAt) -> Iterator[str]:
    x, d = at.loop, at.definition
    if x.size is None:
        yield f"{loop_name(x)}: a vector loop has a size"
    if at.inner is not None:
        yield f"{loop_name(x)}: there is another loop over {dim_name(x.dim)} inside it"
    if sum(y.kind == "vector" for y in at.leaf.loops) > 1:
        yield f"{loop_name(x)}: only one dimension runs along the lanes"
    if at.is_reduction and not (is_associative(d) and is_direct(d)) and dims_of(x.dim)[0] < free_from(at.stage, d):
        yield f"{loop_name(x)}: lanes of this reduction may write the same element"
    if not at.is_reduction and d.is_scatter:
        yield f"{loop_name(x)}: lanes that write wherever an array says may write the same element"


def _unroll(at: LoopAt) -> Iterator[str]:
    x, d = at.loop, at.definition
    if x.size is None and constant_length(d, x) is None:
        yield f"{loop_name(x)}: only a loop of a known length is unrolled; split it first"
        return
    loops, copies = at.leaf.loops, 1
    for k, y in enumerate(loops[: loops.index(x) + 1]):
        n = (y.size if y.size is not None else constant_length(d, y)) if y.kind == "unroll" else None
        if n is not None:
            inner = next((z.size for z in loops[k + 1 :] if z.dim == y.dim), None)
            copies *= max(n // (inner or 1), 1)
    if copies > MAX_UNROLL:
        yield f"{loop_name(x)}: {copies} copies of the body, more than {MAX_UNROLL}"


def _inside_threads(at: LoopAt) -> Iterator[str]:
    """A loop over threads or lanes is in none that has threads of its own."""
    x = at.loop
    if any(y.kind == "parallel" for y in at.around):
        yield f"{loop_name(x)}: it is inside a parallel loop, of which each iteration is a thread"
    if any(y.kind in OVER_THREADS and y.stage != x.stage for y in at.around):
        yield f"{loop_name(x)}: it lies inside loops over threads of another stage, where each thread runs alone"


def _gpu_thread(at: LoopAt) -> Iterator[str]:
    """Loops over threads of a stage are directly inside each other, so that their iterations are shared out among the
    threads as those of one loop."""
    x, d = at.loop, at.definition
    first = next(y for y in at.leaf.loops if y.kind == "gpu_thread")
    above = at.leaf.path[at.leaf.path.index(x) - 1]
    yield from _inside_threads(at)
    if x is not first and not (isinstance(above, Loop) and above.kind == "gpu_thread" and len(above.children) == 1):
        yield f"{loop_name(x)}: loops over threads are directly inside each other, with nothing else between them"
    scan = scan_of(at.stage, d) if at.is_reduction else None
    if scan is not None:
        yield from _scanned(at, scan)
    elif at.is_reduction and not (is_associative(d) and is_direct(d)) and not is_atomic(at.stage, d):
        yield f"{loop_name(x)}: iterations of a reduction write the same elements, one after the other"
    if at.is_reduction != (dims_of(first.dim)[0] >= len(d.dims)):
        yield f"{loop_name(x)}: threads run over a reduction, or over what is reduced, not both"


def _gpu_lane(at: LoopAt) -> Iterator[str]:
    """The iterations of a loop over lanes are those of one warp: consecutive threads, so many of them as divide it.

    Over what is not reduced it is the last of the loops over threads. Over a reduction each result has so many lanes;
    they combine what they have by shuffles, without a barrier.
    """
    x, d = at.loop, at.definition
    threads = [y for y in at.around if y.kind == "gpu_thread" and y.stage == x.stage]
    above = at.leaf.path[at.leaf.path.index(x) - 1]
    inside = at.leaf.loops[at.leaf.loops.index(x) + 1 :]
    if x.size is None or x.size > WARP or x.size & (x.size - 1):
        yield f"{loop_name(x)}: a loop over lanes has a power of two of iterations, at most {WARP}; split it first"
        return
    yield from _inside_threads(at)
    if sum(y.kind == "gpu_lane" for y in at.leaf.loops) > 1:
        yield f"{loop_name(x)}: only one loop runs along the lanes"
    if any(y.kind == "gpu_thread" for y in inside):
        yield f"{loop_name(x)}: lanes are the last of the loops over threads, inside the others"
    if at.is_reduction:
        yield from _reduced_by_lanes(at, threads)
    elif at.inner is not None:
        yield f"{loop_name(x)}: there is another loop over {dim_name(x.dim)} inside it, so lanes are no neighbours"
    elif threads and not (isinstance(above, Loop) and above.kind == "gpu_thread" and len(above.children) == 1):
        yield f"{loop_name(x)}: lanes are the last of the loops over threads, directly inside the others"
    elif any(dims_of(y.dim)[0] >= len(d.dims) for y in threads):
        yield f"{loop_name(x)}: threads run over a reduction, or over what is reduced, not both"


def _reduced_by_lanes(at: LoopAt, threads: list[Loop]) -> Iterator[str]:
    """Lanes share the iterations of a reduction; the results of a block have a thread for each of their lanes."""
    x, d = at.loop, at.definition
    outer = [y for y in at.leaf.loops[: at.leaf.loops.index(x)] if y.dim == x.dim]
    if not (is_associative(d) and is_direct(d)):
        yield f"{loop_name(x)}: iterations of a reduction write the same elements, one after the other"
    if at.inner is not None or any(y.kind != "serial" for y in outer):
        yield f"{loop_name(x)}: lanes interleave along a reduction: its other loops over {dim_name(x.dim)} are serial"
    if any(dims_of(y.dim)[0] >= len(d.dims) for y in threads):
        yield f"{loop_name(x)}: threads or lanes share a reduction, not both"
    counts = [_iterations_of(at, y) for y in threads]
    if None in counts or math.prod(n or 1 for n in counts) * (x.size or 1) > MAX_THREADS:
        yield f"{loop_name(x)}: loops over threads around it have sizes, of {MAX_THREADS} threads together at most"


def _iterations_of(at: LoopAt, loop: Loop) -> int | None:
    """How many iterations a loop has at most; None where only the run knows."""
    total = loop.size if loop.size is not None else constant_length(at.definition, loop)
    later = at.leaf.loops[at.leaf.loops.index(loop) + 1 :]
    step = next((y.size or 1 for y in later if y.dim == loop.dim), 1)
    return None if total is None else -(-total // step)


def _scanned(at: LoopAt, scan: Scan) -> Iterator[str]:
    """Threads share all iterations of a scan, or those between two of which it begins anew."""
    x = at.loop
    if (x.size or 0) != scan.restart:
        yield f"{loop_name(x)}: threads scan {scan.restart or 'all'} iterations together"
    if not isinstance(x.children[0], Compute):
        yield f"{loop_name(x)}: threads scan elements, not what loops inside it compute"
    if (*at.around, x)[0].stage != at.stage.name:
        yield f"{loop_name(x)}: threads scan only what is computed at the root"


def constant_length(d: Definition, x: Loop) -> int | None:
    """The elements of the dimensions of a loop, where they are known."""
    total = 1
    for k in dims_of(x.dim):
        n: Poly = d.extents[k]
        if not n.is_const:
            return None
        total *= n.const
    return total


LOOP_KIND_RULES: Mapping[LoopKind, Callable[[LoopAt], Iterator[str]]] = {
    "serial": _serial,
    "parallel": _parallel,
    "vector": _vector,
    "unroll": _unroll,
    "gpu_block": _parallel,
    "gpu_thread": _gpu_thread,
    "gpu_lane": _gpu_lane,
}
