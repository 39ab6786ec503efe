"""Limits and thresholds of tuning, with their units, and where they come from.

What is the machine's own (cores, caches, vector width) is taken from `hjit.process.machine` and the target. A number
without a source was chosen by hand.
"""

from __future__ import annotations

from pathlib import Path

WEIGHTS = Path(__file__).parents[1] / "model" / "weights.npz"

# -- plans
SIZE_RATIO = 4  # points computed that differ by less than about this factor share a plan
MOST_PLANS = 500  # plans that a process holds, some kilobytes each

# -- reductions in parts (Halide's `rfactor`)
PARTS = 4  # parts for each core: what one takes longer than another is evened out
FEW_TASKS = 2  # tasks for each core, below which cores may wait for each other
LONG_REDUCTION = 1 << 18  # evaluations from which parts are worth their joining

# -- candidates
LONGEST_BLOCK = 5000  # instructions without a branch in a searched schedule: LLVM's time grows faster than they do
COMPILING_SECONDS = {"greedy": 0.5, "refined": 10.0, "beam": 10.0}  # then what else was found is not compiled
MEASURED_SECONDS = 0.1  # of measuring, for each schedule in addition to the default one
ROUNDS = (3, 40)  # runs of each candidate, interleaved: the least, and the most
LONG = 1.0  # seconds of measuring after which two rounds are enough, and the winner need not win again
VERY_LONG = 10.0  # seconds of measuring after which one round is enough
MUCH_SLOWER = (4.0, 1.5)  # times the fastest: not run again after the first round, when all is cold, and after others
SURELY = 0.97  # of the default schedule's time, which another one must stay below: less is noise

# -- the search
LITTLE_WORK = (
    1 << 19
)  # operations of all stages, some 0.2 ms at most: a greedy search saves less than 0.1 ms of that, and
# takes with what is compiled for it as long as thousands of calls
NOT_MUCH_COSTLIER = 3.0  # times the best predicted cost, up to which an alternative is worth measuring
FEW_STAGES = 12  # stages up to which all are searched
DEFINITIONS_A_SECOND = 800  # at most: of more not even the default schedule is costed in time
COMPLETED = 2.5  # times the seconds that costing a tree takes: to put all stages at the root that a search left
