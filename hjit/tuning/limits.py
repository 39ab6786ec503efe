"""Limits and thresholds of tuning, with their units, and where they come from.

Properties of the machine (cores, caches, vector width) come from `hjit.process.machine` and the target. Numbers without
a source were chosen by hand.
"""

from __future__ import annotations

import math
from pathlib import Path

WEIGHTS = Path(__file__).parents[1] / "model" / "weights.npz"

# -- plans
SIZE_RATIO = 4  # points computed that differ by less than about this factor share a plan
MAX_PLANS = 500  # plans that a process holds, some kilobytes each

# -- reductions in parts (Halide's `rfactor`)
PARTS = 4  # parts for each core: what one takes longer than another is evened out
FEW_TASKS = 2  # tasks for each core, below which cores may wait for each other
LONG_REDUCTION = 1 << 18  # evaluations from which parts are worth their joining

# -- candidates
LONGEST_BLOCK = 5000  # instructions without a branch in a searched schedule: LLVM's time grows faster than they do
COMPILING_SECONDS = {  # then what else was found is not compiled
    "greedy": 0.5,
    "refined": 10.0,
    "beam": 10.0,
    "one_shot": 0.0,
    "top_five": 10.0,
    "autotune": 0.5,
    "stored": 0.5,
}
# Seconds of compiling what is compared with default schedules in all parts of a function. Then only what is predicted
# to save more seconds of a call is: less is as long as compiling it after a thousand calls
COMPARED_TOGETHER = {**dict.fromkeys(COMPILING_SECONDS, math.inf), "greedy": 1.0, "autotune": 1.0}
LITTLE_GAIN = 1e-4
LONG_COMPILATION = 1.5  # seconds for one schedule, from which a first call waits for no second one (chosen)
MEASURED_SECONDS = 0.1  # of measuring, for each schedule in addition to the default one
ROUNDS = (3, 40)  # runs of each candidate, interleaved: the least, and the most
LONG = 1.0  # seconds of measuring after which two rounds are enough, and the winner need not win again
VERY_LONG = 10.0  # seconds of measuring after which one round is enough
MUCH_SLOWER = (4.0, 1.5)  # times the fastest: not run again after the first round, when all is cold, and after others
CLEARLY_FASTER = 0.97  # of the default schedule's time, which another one must stay below: less is noise

# Of the default schedule's predicted cost: what costs less is worth compiling and timing in a function of several
# kernels, and is believed to be faster where they cannot be timed. A search finds what the model errs for, see
# benchmarks/LOG.md
BELIEVED = 0.8

# -- the search
# operations of all stages, some 0.2 ms at most: a greedy search saves less than 0.1 ms of that, and takes with what is
# compiled for it as long as thousands of calls
LITTLE_WORK = 1 << 19
NOT_MUCH_COSTLIER = 3.0  # times the best predicted cost, up to which an alternative is worth measuring
# times the size of a tile, up to which another size is not measured beside it; predicted seconds from which it is, as
# what a few per cent of a run are is then as long as compiling after some thousand calls
NEAR, LONG_RUN = 2.0, 2e-3
# stages up to which all are searched; isomorphic ones (`hjit.sched.search.isomorphic_stages`) may count as one
FEW_STAGES = 12
DEFINITIONS_A_SECOND = 800  # at most: of more not even the default schedule is costed in time
# times the seconds that costing the default schedule of a large Graph takes: left for completing what a search found
# when it ended, with all other stages at the root
COMPLETED = 0.25

# -- autotuning
BATCH = 16  # schedules that are compiled and timed between two fits of the cost model; the paper has 32
UNTOUCHED = 1 / 20  # how probable it is that a sample drops nothing
BEAM_WIDTH, BEAM_PICKS = 8, 2  # of the plain beam in each batch: its width, and how many of its schedules are timed
NEIGHBOURS, MAX_MOVES = 2, 3  # schedules near to the fastest in each batch, and how many moves away at most
SAMPLE_SECONDS, SEARCH_SHARE = 5.0, 0.1  # of one search, at most: seconds, and the part of all the time
PLATEAU = 3  # batches without a gain, after which tuning ends
GAIN = 0.01  # of the time, below which it is none
BATCH_SECONDS = 0.05  # of measuring, for each schedule of a batch
CONFIRMED_SECONDS = 0.5  # of measuring, in the end: the fastest against the default schedule
LITTLE_TIME = 0.02  # of all kernels' time, below which one of them is not tuned
KEPT_TIMED = 20  # schedules that a plan says the times of
FIT_PASSES, FIT_RATE = 60, 1e-3  # of the cost model over what was timed: some 0.2 s
MIN_SAMPLES = 8  # below which it is not fitted
FIT_SECONDS = 20.0  # of the budget, below which it is not fitted either: to load and compile what fits takes some 5 s

# CPU seconds that a search by recorded features may take before it goes on with the compiled featuriser, and that
# compiling the featuriser takes. Of 35 searches of chan_vese, blob_dog, frangi and a network in NumPy, 34 took at most
# 0.2 s
RECORDED_SECONDS = 0.4
RECORDED_DEFINITIONS = 30  # of a Graph, above which its search would take longer
FEATURISER_SECONDS = 0.5
