"""The thresholds of root nests. Properties of the machine are in `hjit.sched.language.target.Target`.

If an application of `benchmarks/apps` is named, the number is from timing it on x86-64 with AVX-512 and AVX2. The
others were set once, and no application has needed another value.
"""

from __future__ import annotations

# operations of the unrolled code of one body, at most; the search goes up to twice that, see
# `hjit.sched.search.thresholds.UNROLLED_OPERATIONS`
UNROLL_CODE = 600
UNROLL_REDUCTION = 64  # points of a constant reduction domain that are unrolled, at most: 8 x 8 taps
UNROLL_INNER = 16  # elements of a constant dimension inside the lanes that are unrolled, at most: channels
FEW_PLANES = 4  # elements of a constant dimension outside the lanes that are unrolled, at most: colours (nl_means)
MIN_LANES_EXTENT = 8  # elements of a constant dimension that lanes run along, at least: half a vector of float32
# additions that one element costs, at least, for lanes that are gathered element by element
GATHER_COST = 12
DENSE_STRIDE = 4  # elements between lanes, at most, of loads that are shuffled from whole vectors, not gathered
MIN_BLOCK_ROWS = 6  # elements of a constant dimension that makes a block of accumulators with the lanes, at least
MIN_PRODUCTS = 8  # of a sum, on one of its dimensions, for which a block of accumulators is worth it
# rows of a tile that is read across, and its lanes at most: what a line of memory brings is used before it is evicted
# (transposed copies of `benchmarks.idioms`)
TRANSPOSE_ROWS, TRANSPOSE_LANES = 32, 16
STRIP_VECTORS = 16  # vectors of a strip of columns that a scan runs down: whole lines, many of a page (iir_blur)
SCAN_ROWS = 4  # rows of a scan along its rows that run together, to hide the latency of its recurrence (iir_blur)
INTERLEAVED = 2  # parts of a histogram that one task counts at once, to hide the latency of its updates (hist)
