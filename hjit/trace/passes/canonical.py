"""The canonicaliser: one list of passes, Graph -> Graph, after which equal programs have equal keys.

`tests/trace/golden/` shows what each pass does in printed IR. `hjit.trace.ir.analysis.costs` says what an expression
costs, and `hjit.trace.passes.limits` how much is too much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from hjit.process import deadline, debug
from hjit.trace.ir.check import check_graph
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.cuda.block_reductions import reduce_in_blocks
from hjit.trace.passes.cuda.parallel_scatters import reorder_scattered_sums, scatter_in_parallel
from hjit.trace.passes.cuda.scans import scan_in_blocks, separate_scans
from hjit.trace.passes.delinearisation import delinearise, delinearise_stages
from hjit.trace.passes.dtypes.demotion import demote_integers
from hjit.trace.passes.dtypes.storage_narrowing import narrow_storage
from hjit.trace.passes.dtypes.tabulate import tabulate
from hjit.trace.passes.elimination.dead_stores import drop_dead_initial_values
from hjit.trace.passes.elimination.demanded_regions import crop_to_demanded
from hjit.trace.passes.elimination.forwarding import forward_stores, select_planes
from hjit.trace.passes.elimination.stage_elimination import (
    drop_dead_stages,
    drop_overwritten,
    merge_equal_stages,
    merge_versions,
)
from hjit.trace.passes.elimination.versions import read_earlier_versions
from hjit.trace.passes.fission import separate_boundary_terms, split_reductions
from hjit.trace.passes.fusion import fuse, inline_after
from hjit.trace.passes.interleaved_updates import equalise_interleaved
from hjit.trace.passes.padding import select_padding
from hjit.trace.passes.privatisation import privatise_histograms
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites, cache_reads, pack, rfactor

PASSES: tuple[Callable[..., Graph], ...] = (
    drop_dead_stages,  # nothing that no output needs
    merge_versions,  # one buffer for versions that only follow each other
    drop_overwritten,  # no initial value where updates write every element
    forward_stores,  # loads of concatenated arrays read what was stored there
    select_padding,  # constant padding as a pure definition
    merge_equal_stages,  # equal stages once
    fuse,  # point-wise chains
    drop_dead_stages,
    read_earlier_versions,  # what is written later, elsewhere, does not concern a reader
    merge_versions,  # again: in-place updates read what they write only now that they are fused
    select_planes,  # a few planes as a pure definition, once those share what they are computed from
    fuse,  # those
    narrow_storage,  # what is read through a narrowing cast only, in its dtype
    demote_integers,  # operations and stages in the narrowest dtypes that hold them
    crop_to_demanded,  # the region of a stage that is read, and no more
    drop_dead_initial_values,  # what a scan overwrites before it is read
    tabulate,  # expensive functions of one byte as look-up tables
    delinearise,  # rows and columns instead of flat indices
    delinearise_stages,  # and instead of flat axes
    privatise_histograms,  # partial histograms in parallel, then their sum
    equalise_interleaved,  # interleaved updates of equal length
    separate_boundary_terms,  # what a reduction reads across boundaries, before it
    split_reductions,  # rows in parallel, then the rest
    rfactor,  # reductions in parts, where a schedule requests it
    cache_reads,  # copies of what is read, where a schedule requests it
    pack,  # copies of the right matrices of products, unless a schedule inlines them
    inline_after,  # what a schedule that knows the Graph so far inlines of it
)
# where many blocks of threads run at once, rows are not enough: reductions and scans have parts of rows, and scatters
# are of whole numbers, in any order. Blocks copy what they need of matrices themselves, into shared memory.
_ON_CUDA: Mapping[Callable[..., Graph], tuple[Callable[..., Graph], ...]] = {
    privatise_histograms: (scatter_in_parallel, privatise_histograms),
    split_reductions: (reduce_in_blocks, separate_scans, scan_in_blocks),
    pack: (),
}
CUDA_PASSES = tuple(new for run in PASSES for new in _ON_CUDA.get(run, (run,)))
FAST_CUDA_PASSES = (reorder_scattered_sums, *CUDA_PASSES)  # floats are added to computed places in any order
# those that are given the rewrites that a schedule requests
REQUESTABLE = (
    fuse,
    rfactor,
    cache_reads,
    pack,
    inline_after,
)


def canonicalise(
    graph: Graph,
    requested: Rewrites = NO_REWRITES,
    target: Literal["cpu", "cuda"] = "cpu",
    fast_math: bool = False,
) -> Graph:
    """The canonical form of a Graph for a kind of target, with the rewrites that a schedule requests.

    Args:
        fast_math: see `FAST_CUDA_PASSES`; on a CPU it changes nothing here.
    """
    show = debug.passes("canonicalise")
    passes = PASSES if target == "cpu" else FAST_CUDA_PASSES if fast_math else CUDA_PASSES
    checked: Graph | None = None
    for run in deadline.within("canonicalising", passes):
        graph = run(graph, requested) if run in REQUESTABLE else run(graph)
        if debug.checks():
            check_graph(graph, run.__name__, checked)
            checked = graph
        if show is not None:
            show(run.__name__, graph)
    return graph
