"""The constants of the search: which schedules are tried, what is pruned, and what is kept in memory.

Constants from a paper are named by its section. The others were chosen so that searches of `benchmarks/apps` find
schedules as cheap as larger searches do, within their time limits.
"""

from __future__ import annotations

from hjit.sched.language.target import BLOCK_ROWS, BLOCKS

# -- pruning, see `hjit.sched.search.pruning.Rules`

MAX_RECOMPUTE = 10.0  # how often a value is computed, in the mean over a stage: Adams 2019, section 3.2
MAX_TILE = 64  # elements of a level of tiles along one dimension, of what is inside it
TILES_PER_OCTAVE = 4  # sizes that are tried between a tile and one twice as large
MAX_NEST_STAGES = 16  # stages that one child of the root computes
MANY_STAGES = 256  # the same, where only the first one of isomorphic stages is searched
TILE_LEVELS = 2  # loops of a size over one dimension of a stage, unrolled ones and vectors not counted
TASKS_PER_CORE = 1.0  # iterations of a parallel loop, at least: Adams 2019, section 3.2
# operations of the copies of one unrolled body: twice what default nests unroll (`hjit.sched.nests.thresholds`)
UNROLLED_OPERATIONS = 1200.0
INLINED_OPERATIONS = 2400.0  # operations of one evaluation, those of inlined stages included: twice as many again

# -- templates of nests

LANE_DIMS = 2  # dimensions that are tried for the lanes
VECTORS = (1, 2, 4)  # of one iteration
ROWS = (1, 2, 4)  # of one iteration
# rows and vectors of accumulators, the default ones of all targets among them
BLOCK_SIZES = (
    *((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 1), (BLOCK_ROWS, 1), (12, 2)),
    *sorted(BLOCKS.values()),
)
REDUCTION_UNROLL = (1, 2, 4, 8)  # iterations of a long reduction that become one
MIN_TILED = 32  # elements of a dimension that is worth tiles, or unrolling: more than this
TILES = (4, 256), (32, 1024)  # rows and columns of a tile, at least and at most
MAX_STRIP_VECTORS = 64  # vectors of a strip of columns
MAX_TRANSPOSE_ROWS = 128  # rows of a tile that is read across
MIN_ITERATIONS = 4  # a loop with fewer iterations than this for each core has the next loop parallel, too
SMALL_TASK = 1 << 16  # evaluations; a nest with fewer may as well run on one core
TILED_DIMS = 2  # dimensions of a level of tiles that is made for a producer
# for each core: the launcher splits a parallel loop into so many, see `hjit.kernels.runtime.launch`
LAUNCHED_TASKS = 4

# -- the search loop

# cost, relative to the best, of a complete state whose buckets are searched again, at most: from the code of Adams 2019
FINALIST_COST = 1.2
REFINE_TILES = tuple(2**k for k in range(1, 10))  # sizes of the tiles that local search makes
MIN_GAIN = 0.999  # cost of a schedule, relative to the one before it, that counts as cheaper

# -- costs that are kept

# bits of a cost that count: others depend on what was computed with it, as matrices are then multiplied otherwise
COST_BITS = 18
MAX_BATCH = 2048  # choices whose features are computed together, where they are not of one batch: fits the caches
COSTED_ROWS = 1 << 13  # stages of schedules that are costed together, of several nests: some 2.5 MB of features
MAX_PLANS = 1 << 13  # nests of which it is kept how their features are worked out: half a gigabyte
MAX_OTHERS = 1 << 14  # sets of nests of which it is kept what they cost together
