"""Limits of split functions."""

from __future__ import annotations

WARMUP_CALLS = 6  # calls before timing against NumPy starts: in these, parts are still traced and split
MAX_ITEMS = 64  # items of a list that is passed to a part: each item is part of the key
MAX_CALLEES = 8  # functions called by one statement that are compiled; usually there is one
MAX_DEPTH = 6  # split functions that call each other: beyond it, a recursion runs in NumPy
FEW_TRACES = 3  # of a part that is traced anew for each value of an integer argument, as of a loop variable
LOOP_SECONDS = 1.2  # CPU time of these traces, after which the part is left to NumPy
MAX_TRACES = 8  # of a part; after that many, most of its calls must find a variant
PLAIN_CALLS = 64  # calls of a part that NumPy ran, all of them, after which its plain statements replace it
