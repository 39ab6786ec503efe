"""Limits and thresholds of tuning, with their units, and where they come from.

What is the machine's own (cores, caches, vector width) is taken from `hjit.machine` and the target, not written down here.
"""

from __future__ import annotations

# -- plans
SIZE_RATIO = 4  # points computed that differ by less than about this factor share a plan
MOST_PLANS = 500  # plans that a process holds, some kilobytes each

# -- reductions in parts (Halide's `rfactor`)
PARTS = 4  # parts for each core: what one has more than another is evened out
FEW_TASKS = 2  # tasks for each core: where there are fewer, cores may wait for each other
LONG_REDUCTION = 1 << 18  # evaluations that are worth parts: less takes a core about a tenth of a millisecond

# -- candidates
LONGEST_BLOCK = 5000  # instructions without a branch in a searched schedule: LLVM's time grows faster than they do, and nobody waits for a guess
COMPILING_SECONDS = {
    "greedy": 0.5,
    "refined": 10.0,
    "beam": 10.0,
}  # after which what else was found is not compiled any more
MEASURED_SECONDS = 0.1  # for each schedule beside the default one
ROUNDS = (3, 40)  # of interleaved runs of all candidates: least, and most
LONG, VERY_LONG = (
    1.0,
    10.0,
)  # seconds of measuring, after which two rounds are enough, and the winner need not win again; and one is
MUCH_SLOWER = (
    4.0,
    1.5,
)  # times the fastest: not run again after the first round, when all is cold, and after later ones
SURELY = 0.97  # of the default schedule's time that another one must stay below: less is noise

# -- the search
NOT_MUCH_COSTLIER = (
    3.0  # times the predicted cost of the best schedule known, up to which an alternative is worth measuring
)
FEW_STAGES = 12  # up to which all stages are searched
DEFINITIONS_A_SECOND = 800  # at most: of more not even the default schedule is costed in time
COMPLETED = 2.5  # times the seconds that all nests of a tree cost: what it takes to put all stages at the root that a search left
