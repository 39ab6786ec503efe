"""The tuning limits of `hjit.trace.ops`, each with its unit.

Those of unrolling bound the length of an expression, and so the time to compile it: they were chosen for code that
users write, not measured. Those of BLAS were measured, see "Matrix products" in benchmarks/README.md.
"""

from __future__ import annotations

# -- unrolling: beyond these a definition is a reduction, a gather, an extern call or an error
MAX_LINE_TAPS = 129  # taps of a filter along one axis, of scipy.ndimage: a Gaussian of sigma 16
MAX_TRACE_TAPS = 256  # taps along one axis of all filters of a trace; those after them are loops. Measured: 5 ms of
# compiling for each tap, and 1.3 to 1.9 times the time of a run without
SHORT_LINE_TAPS = (
    17  # taps of a filter that is one expression all the same: there a loop takes 1.6 to 2.9 times as long
)
MIN_BLOCKED_WINDOW = (
    16  # elements of a window that is combined from blocks, which neighbours share; blocks of a shorter
)
# one are cheaper to compute again than to store. Measured, means of floats: 21 elements take 0.45 of the time, 31 0.28
MAX_FILTER_TAPS = 49  # taps of a filter over several axes, of scipy.ndimage and scipy.signal: 7 x 7
MAX_CONVOLVE_TAPS = 64  # taps of np.convolve and np.correlate
MAX_SORTED = 32  # elements that a sorting network orders; its steps grow as n log(n)^2. NumPy orders more
MAX_SELECTED = (
    128  # elements that a network finds a median or a percentile of, at MIN_PLACES places at least. Measured: 1 to
)
# 2.4 s for a first call; NumPy takes 10 to 100 times as long as the kernel
MAX_OF_NUMBERS = 512  # quantiles that ignore NaN, each of as many numbers as there may be
MIN_PLACES = 1 << 10  # with fewer NumPy is done in a millisecond
MAX_ARGSORTED = 16  # as many, with their indices: the network of 31 takes LLVM some 10 s
MAX_PLANES = 4  # planes of an image that scipy.ndimage.rotate rotates one by one
MAX_RANKED = 32  # elements of the window of a rank filter
MAX_CHOICES = 32  # arrays that np.choose selects from; elements that np.isin compares with
MAX_LINEAR_SEARCH = 8  # elements of a table that np.searchsorted compares one by one, instead of by bisection
MAX_JOINED = 256  # arrays that are put together by a kernel: each is an update, which is compared with all before it
MAX_REGIONS = 64  # regions that np.insert, np.delete and np.tile make before they gather instead
MAX_INDEX_STAGES = 8  # stages through which the elements of an index array are looked up

# -- order statistics by counting
MIN_COUNTED = 1 << 14  # elements of 16 bits from which their 65536 values are counted: below, NumPy is faster
MIN_DIGITS_COUNTED = 1 << 16  # elements of more bits from which the digits of these are (measured)
MANY_VALUES = 1 << 16  # whole numbers of an interval so long are counted, of MIN_DIGITS_COUNTED elements (measured)
FEW_VALUES = 1 << 12  # the same, of fewer elements
LONG_DIGITS = 1 << 18  # elements from which digits have 13 bits, in place of 11 (measured)
MAX_IMAGES = 4  # channels of which statistics are found by counting
MAX_RANKS = 4  # for which digits are counted: each is more passes over the image

# -- the number of blocks of a scatter
MAX_BLOCK_RUNS = 3  # runs of equal blocks along a dimension: part of a block, whole ones, part of one

# -- guards
MAX_DECIDED = 16  # elements of a computed argument whose values become conditions of the trace

# -- scipy.signal
MAX_DIRECT = 1024  # elements of a kernel up to which `method="auto"` sums whole numbers directly

# -- products of matrices: which ones BLAS computes
MAX_PRODUCTS = 32  # products of one trace, each of which ends a kernel (chosen)
MIN_LENGTH = 16  # products that are summed up for an element
MIN_SIDE = 64  # rows and columns: fused products of narrow matrices are faster
NARROW_ROW = 32  # bytes: rows of results up to this fill no vector, and are slow if fused. Half a vector of AVX-512, on
# which it was measured; narrower targets keep it, so that a trace does not depend on the target
MIN_NARROW_LENGTH = 64  # products that are summed up, from which NARROW_ROW matters
MIN_WORK = 1 << 20  # multiplications: a call between kernels costs as much as some of them
MIN_STACKED_WORK = 1 << 18  # multiplications of each of several matrices
MIN_MATRIX = 1 << 16  # elements of a matrix that is multiplied with a vector
