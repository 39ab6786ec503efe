"""The thresholds of default schedules. Properties of the machine are in `hjit.sched.language.target`.

Where an application of `benchmarks/apps` is named, the number is from timing it on x86-64 with AVX-512 and AVX2.
"""

from __future__ import annotations

# -- line buffers

MAX_ROWS = 64  # rows of one buffer: longer windows are nearly whole images
# iterations that a task begins early, to fill its buffers: tasks have not many more rows than that
MAX_WARM_UP = 32
MAX_GROUP_ROWS = 512  # rows of all buffers of a group (nl_means)
MAX_SIDES = 64  # columns beside a strip of which rows are computed with it, twice in all: half of the shortest strip
# columns of a strip, at least and at most, that a group is computed in where whole rows of its buffers would not stay
# in the second cache: `Target.near_bytes` (nl_means, camera_pipe)
MIN_STRIP, MAX_STRIP = 128, 512

# -- rows of a stencil that run together ("unroll and jam")

JAM_ROWS = 4  # rows: what several of them read is loaded once (harris, local_laplacian, nl_means)
MIN_LOADS = 8  # loads of one element, at least, for which that is worth it
MAX_LOADS_LEFT = 0.6  # the part of its rows' loads that is left, at most

# -- CUDA: none of these has been timed on a GPU yet

BLOCK = 256  # threads: enough to hide latency, few enough for several blocks on one multiprocessor
TILE_COLUMNS = 32  # of a tile that a block computes: one warp reads and writes whole lines of 128 bytes of float32
# that a thread reads of an array, at least, in one access of 128 bits where it is aligned. An H100 has 15 kB on the way
# for each multiprocessor (Little: 3.35 TB/s, some 600 ns): 8 bytes for each of 2048 threads
THREAD_BYTES = 16
THREAD_COLUMNS = 8  # elements of narrow types, at most: rows of 640 pixels still have threads enough
SCAN_BLOCK = 64  # threads where each has long work: there are few of them, so they go to many multiprocessors
# bytes of the widest element in a strip of columns that threads walk along rows, through shared memory: a line
STRIP_BYTES = 128
TRANSPOSE_BLOCK = (
    512  # threads where what is read lies across: tiles of 16 rows and 32 columns, whole sectors both ways
)
LONG_REDUCTION = 64  # iterations from which on those of a reduction are long work, or work for several threads
# of a product of matrices, or the like: rows and columns of a block, 16 by 16 threads
PRODUCT_TILE = 64
REGISTER_TILE = 4  # rows and columns of a thread: 16 products for 8 numbers, which are two reads of shared memory
PRODUCT_STEP = 16  # terms of the sum for which operands are in shared memory: a sum in the dtype of the result
STEPS_OF_SUM = 4  # such sums that are added before they join the accumulator
PRODUCT_UNROLL = 4  # terms whose code is repeated
MAX_ACCUMULATOR_REGISTERS = 128  # half of those that a thread may have
UPDATES = 32  # that a thread does of a histogram: a block does 8192 before it joins the 256 bins of bytes to the result
FEW_ELEMENTS = 16  # of the last dimensions, channels for instance: a tile has all of them
FEW_RESULTS = 8  # of a reduction side by side, all of which a thread accumulates: it reads them side by side, too
FEW_PLANES = 4  # of the first dimensions: each thread computes all
TALLER = (2, 4, 8)  # times the rows of a tile, where blocks then compute more stages for themselves
MOST_ROWS = 8  # of a thread then
STENCIL_ROWS = 4  # rows that a thread computes of a stencil, as `JAM_ROWS`
MIN_STENCIL = 4  # loads of one element, at least, for which that is worth it
STENCIL_LOADS_LEFT = 0.75  # the part of its rows' loads that is left, at most
MAX_SHARED_BYTES = 24 << 10  # of a block: two of the smallest GPU's 64 KiB a multiprocessor
NOMINAL_SIZE = 1024  # of what only a call knows, where the bytes of schedules are compared
MAX_RECOMPUTED = 2.0  # elements of a stage that blocks compute, for each that there is
# operations computed again, for each element, rather than an element of 4 bytes written and read: in the time that
# memory takes for a byte a GPU computes some 20
MAX_EXTRA_WORK = 160
