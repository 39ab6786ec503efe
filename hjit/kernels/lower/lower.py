"""Lowering: Graph + schedule tree -> loop IR, a list of passes.

    place_loops        turns the schedule tree into loops: bounds inference, sliding windows
    fold_storage       storage folding: line buffers instead of whole images
    unroll_and_jam     replaces unrolled loops by copies of their body; independent iterations share loads
    split_at_wraps     splits loops where an index wraps around at a run-time position (CPU)
    partition_loops    loop partitioning: the interior gets loops without clamps, wraps and masks
    drop_unused_lets   removes unused names of indices
    prefetch_windows   copies that slide along a loop run one iteration ahead (CUDA)
    partition_blocks   blocks in the interior get code without boundary handling (CUDA)
    outline            repeated loops become functions (CPU)
    stream_stores      marks results that nothing reads again for non-temporal stores (CPU)
    vectorize          vector loops: prologue, steady state, epilogue, tail strategy (CPU)
    distribute_threads distributes iterations of cooperative loops over the threads of a block (CUDA)
    coalesce_accesses  transposes accesses that are a row apart through shared memory (CUDA)
    privatise_scatters each block updates a copy in shared memory, and adds it to the result (CUDA)
    stage_operands     tiled reductions read operands that threads share from shared memory (CUDA)
    block_reductions   accumulators in registers, and how they are combined
    block_scans        prefix scans by the threads of a block, a few tiles at a time (CUDA)
    replace_scalars    loop-carried scalar replacement
    hoist_invariants   loop-invariant code motion
    widen_accesses     adjacent elements in one access (CUDA)
    copy_async         asynchronous copies to shared memory (CUDA)
    share_memory       buffers that are not live at the same time share memory (CUDA)
    insert_barriers    barriers where threads read what others have written (CUDA)

Each but the first is a function from nest to nest; `show` sees the Program after each. The back ends print the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hjit.kernels.lower.check import check_loop_ir
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.block_reductions import block_reductions, block_scans
from hjit.kernels.lower.passes.distribute_threads import distribute_threads
from hjit.kernels.lower.passes.fold_storage import fold_storage
from hjit.kernels.lower.passes.hoist_invariants import hoist_invariants
from hjit.kernels.lower.passes.insert_barriers import insert_barriers
from hjit.kernels.lower.passes.loop_partitioning import partition_blocks, partition_loops, split_at_wraps
from hjit.kernels.lower.passes.outlining import outline
from hjit.kernels.lower.passes.privatise_scatters import privatise_scatters
from hjit.kernels.lower.passes.scalar_replacement import replace_scalars
from hjit.kernels.lower.passes.staging.coalesce_accesses import coalesce_accesses
from hjit.kernels.lower.passes.staging.copies import copy_async, prefetch_windows
from hjit.kernels.lower.passes.staging.share_memory import share_memory
from hjit.kernels.lower.passes.staging.stage_operands import stage_operands
from hjit.kernels.lower.passes.stream_stores import stream_stores
from hjit.kernels.lower.passes.unroll_and_jam import unroll_and_jam
from hjit.kernels.lower.passes.unused_lets import drop_unused_lets
from hjit.kernels.lower.passes.vectorize import vectorize
from hjit.kernels.lower.passes.widen_accesses import widen_accesses
from hjit.kernels.lower.place_loops import place_loops
from hjit.kernels.lower.program import Nest, Program
from hjit.process import deadline, debug
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph

Pass = Callable[[Nest, Graph, Machine], Nest]
Show = Callable[[str, Program], None]

ANY_MACHINE = Machine()
COMMON: tuple[Pass, ...] = (fold_storage, unroll_and_jam)
BORDERS: tuple[Pass, ...] = (partition_loops, drop_unused_lets)
CPU: tuple[Pass, ...] = (
    *COMMON,
    split_at_wraps,
    *BORDERS,
    outline,
    stream_stores,
    vectorize,
    block_reductions,
    replace_scalars,
    hoist_invariants,
)
CUDA: tuple[Pass, ...] = (
    *COMMON,
    *BORDERS,
    prefetch_windows,
    partition_blocks,
    distribute_threads,
    coalesce_accesses,
    privatise_scatters,
    stage_operands,
    block_reductions,
    block_scans,
    replace_scalars,
    hoist_invariants,
    widen_accesses,
    copy_async,
    share_memory,
    insert_barriers,
)


def lower(
    graph: Graph,
    schedule: Root,
    machine: Machine = ANY_MACHINE,
    show: Show | None = None,
    passes: Sequence[Pass] = CPU,
) -> Program:
    """The loop nests of a Graph under a schedule.

    Args:
        show: called with the name and the result of each pass.
        passes: the passes of the target, after the first one.

    Raises:
        ScheduleError: a stage cannot slide along the loop at which the schedule stores it.
    """
    program = place_loops(graph, schedule, machine.fast_math)
    done = [place_loops.__name__]
    checked: Program | None = None

    def finished() -> None:
        nonlocal checked
        if debug.checks():
            check_loop_ir(program, graph, tuple(done), checked)
            checked = program
        if show is not None:
            show(done[-1], program)

    finished()
    for run in passes:
        nests = deadline.within("lowering", program.nests)
        program = replace(program, nests=tuple(n if n.renaming is not None else run(n, graph, machine) for n in nests))
        done.append(run.__name__)
        finished()
    return program
