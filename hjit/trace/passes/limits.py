"""The thresholds of the canonicaliser. Costs are in additions (`hjit.trace.ir.analysis.costs`).

They determine what a kernel computes, and so its key: a Graph has one canonical form, whatever the machine. Limits that
were measured say on what; the others are estimates.
"""

from __future__ import annotations

# -- fusion: the cost that a consumer may repeat, in place of a store and a load
# per element; measured on Harris: products that 3x3 sums read nine times each are cheaper to repeat than to store
REPEATED_COST = 8
# per element, where the index does not mention one of the consumer's loops
REPEATED_COST_PER_LOOP = REPEATED_COST // 3
REPEATED_COST_PER_ROW = 16  # what is hoisted out of the innermost loop
REPEATED_COST_PER_TASK = 64  # what is hoisted out of all loops
REPEATED_CODE_COST = 64  # of all copies in the code, where strided reads repeat little per element
SCATTERED_COST = 1  # per element of a scatter, which runs one element at a time
SHUFFLED_STRIDE = 4  # elements; with longer strides vectors are not made by shuffles of whole ones
FREE_READS = 64  # reads of a view or a cast, which has no cost to repeat
NESTED_OPERATIONS = 200  # of one expression; expressions are rewritten recursively, and Python's limit is 1000 frames
NESTED_DIVISIONS = 16  # of one index; their text may double with each view of a view, as of `np.roll(x, 3).T.copy()`
NESTED_GATHERS = 4  # reads at computed indices of what itself is read at computed indices: each repeats all of these

# -- dead stores: the cost of an initial value that a scan computes, perhaps one element at a time
INITIAL_COST = 2

# -- demanded regions: elements at the ends of an axis; so few are computed although nothing reads them
UNREAD_ELEMENTS = 16

# -- versions of a buffer: so many before one that is read are tried, so that time grows with their number only
EARLIER_VERSIONS = 64

# -- forwarding: planes that become one definition; loops over so many are unrolled, which folds the select
SELECTED_PLANES = 4

# -- privatisation: partial histograms; a constant, so that sums do not depend on the number of threads
HISTOGRAM_PARTS = 16

# -- reductions in blocks, for a GPU; none has been timed on one yet. Constants, so that roundings depend on sizes alone
BLOCK_ELEMENTS = 1 << 14  # that a block reduces of one long dimension: 64 for each of 256 threads
BLOCK_ROWS, BLOCK_COLUMNS = 64, 256  # as many of two; columns are those side by side in memory
COLUMN_ROWS = 128  # of a column that a thread reduces: partial results are a 64th of what is read, or less
SCAN_ELEMENTS = 1 << 14  # of a row that a block scans
SCAN_ROWS = 128  # of a column that a thread scans
SERIAL_SCATTER = 64  # iterations of a scatter that one thread runs: less than what other kernels cost
SHORT_AXIS = 16  # of a short axis, such as channels

# -- interleaved updates
INTERLEAVED_STEPS = range(2, 5)  # elements between those of one update, where several share a loop
RESIDUE_CLASSES = 64  # combinations of residues of all axes that are enumerated to see whether updates cover a stage

# -- look-up tables
TABULATED_COST = 24  # per element, that a look-up must save
TABLE_ROWS = 64  # of 256 entries: combinations of small dimensions in one table
