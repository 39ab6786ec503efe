"""The thresholds of the LLVM emitter. Those of the machine are in `Machine` and in `hjit.sched.language.target`.

Most of them limit LLVM's time, as its passes are superlinear in the length of a block or function. "Timed" means: on
the applications of `benchmarks/apps`, on x86-64 with AVX-512; the others are estimates.
"""

from __future__ import annotations

# -- builder

# loads of one block between two effects; timed (interpolate: minutes without a bound), marks in shorter ones cost some
# of the few percent that folded loads bring
MAX_BLOCK_LOADS = 256
# as how many of them a load of a vector that is wider than a register counts; timed on AVX2: 320 loads of 64 bytes, 25
# s with one mark, 4 s with one after every 32
WIDE_LOAD = 8
MAX_MERGED_CONSTANTS = 16  # constants of one function that become its arguments: as many loads at its begin

# -- nest

MIN_CHAIN_STEPS = 8  # operations of a chain, from which on chains are interleaved; timed on AVX2 (nl_means)

# -- memory

# elements from one lane to the next, for which whole vectors are loaded and shuffled: in any case, and where there are
# twice as many lanes at least (a load and a shuffle for each vector, two operations for each element)
ALWAYS_SHUFFLED_STRIDE, MAX_SHUFFLED_STRIDE = 4, 16
MAX_PAIRS = 8  # pairs of loads in one branch: as many registers at its end, twice
MAX_SPREAD_STRIDE = 4  # elements from one lane to the next, of whole vectors that are stored by masks (AVX-512)

# -- driver

MAX_CALLS_IN_CODE = 24  # nests; more are called by a table, as LLVM takes longer for the calls than for the nests
MAX_SLOTS_IN_CODE = 32  # of the parameter block, whose addresses are resolved one by one; more are by a loop
MAX_OPTIMISED_LINES = 400  # of the driver; a longer one is compiled as it is (nl_means: LLVM takes half the time)
# operations that a task has at least, as `hjit.trace.ir.analysis.costs` counts them: several times what a launch costs,
# about 2 us on TBB's threads
TASK_OPERATIONS = 40_000
