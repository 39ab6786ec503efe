"""The thresholds of placing loops, of sliding windows and of reductions; other passes have theirs at their heads."""

from __future__ import annotations

# -- placing loops

# iterations that a loop begins early to fill the windows of its stages: a bound on the search for the number, so that
# a schedule is refused and does not hang. Default schedules stay far below (`hjit.sched.default.thresholds`).
MAX_WARM_UP = (1 << 14) - 1

# -- reductions

# terms of a sum of floats; up to so many are added one by one in their own dtype, as NumPy does with fewer than 8 (8 it
# adds in pairs). NumPy adds those of float16 in float32 where they lie side by side.
EXACT_SUM_TERMS = {2: 2, 4: 7, 8: 7}  # by the size of a float in bytes
# products that are summed in the dtype of the result before they join other such sums: of short reductions, and of
# longer ones; and how many of those sums are summed before they join the accumulator. A product of matrices then has
# about as many roundings as NumPy's pairwise sum: 18 + 4 in blocks of 72, where NumPy has 16 + 3 in blocks of 128.
FEW_PRODUCTS, PRODUCTS = 9, 18
SUMS_OF_PRODUCTS = 4
ACCUMULATORS = 4  # vectors accumulated independently: an addition takes about four cycles (Intel, AMD: 3 to 5)
