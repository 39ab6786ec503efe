"""Limits of functions in parts."""

from __future__ import annotations

WARMUP_CALLS = 6  # calls before those that are timed against NumPy: they trace parts, and split them
MAX_ITEMS = 64  # of a list that a part is given: each is part of its key
MAX_CALLEES = 8  # functions that one statement calls, and that run compiled; usually it is one
MAX_DEPTH = 6  # of functions that call each other, and run in parts: a recursion ends as plain NumPy
# of a part, each for other whole numbers, at all its calls: it is in a loop, and they are its iterations
FEW_TRACES = 3
LOOP_SECONDS = 1.2  # of the processor's time for these, after which there are no more of them
MAX_TRACES = 8  # of a part, from which on most of its calls must find what they run
PLAIN_CALLS = 64  # of a part, all of which Python ran: from then on it is no part
