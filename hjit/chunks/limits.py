"""The limits of `hjit.chunks`, each with its unit."""

from __future__ import annotations

from hjit.process.machine import memory

# -- what each chunk may compute and read
RECOMPUTED = 3.0  # a stage is computed so often at most, all chunks together; and an array read
USES = 4.0  # of each element that tasks of a product read: then they may read arrays more often
RECOMPUTED_SCAN = 1.5  # the same of a scan, which chunks can go on with
SMALL_WORK = 1 << 16  # iterations, and elements, that may be computed and read by every chunk
READS = 4  # chunks of one small array that tasks read on average; of one that they read more of, the chunks are put
FEW_READS = 1 << 10  # together first, unless all tasks together read so few: Dask's costs are those of chunks and tasks
READ_AGAIN = 1.5  # a source is read so often at most by tasks that read their windows of it, all together
LARGE = 1 << 22  # elements of a partial result

# -- stages that several subgraphs need: kept, or computed again by each
KEPT_SHARE = 16  # of the machine's memory, the part that chunks kept for a later subgraph may take, all together
MAX_KEPT_BYTES = 1 << 30  # and no more: workers may have less memory than the machine that makes their tasks
KEPT_COST = 16  # additions an element that it costs to keep it, in memory; half of that is what it costs in caches
# (`REPEATED_COST` of hjit.trace.passes.limits)
TASK_COST = 1 << 20  # additions that a task of Dask costs: 100 to 200 us

# -- what is known to later calls
MAX_CUTS = 16  # Graphs that were cut, for some chunks: a megabyte each for some thousand chunks
MAX_LAYOUTS = 1024  # intervals and windows among chunks: most windows of an image lie alike
KEPT_KERNELS = 64  # schedules of kernels of chunks


def kept_bytes() -> int:
    """Bytes of all chunks that one call may keep from subgraph to subgraph."""
    return min(memory() // KEPT_SHARE, MAX_KEPT_BYTES)
