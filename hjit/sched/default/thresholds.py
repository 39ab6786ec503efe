"""The numbers by which default schedules are chosen. What is the machine's own is in `hjit.sched.language.target`.

Where an application of `benchmarks/apps` is named, the number is from timing it on x86-64 with AVX-512 and AVX2.
"""

from __future__ import annotations

# -- line buffers

MAX_ROWS = 64  # rows of one buffer: longer windows are nearly whole images
# iterations that a task begins early, to fill its buffers: tasks have not many more rows than that
MAX_WARM_UP = 32
MAX_GROUP_ROWS = 512  # rows of all buffers of a group (nl_means)
MAX_SIDES = 64  # columns beside a strip of which rows are computed with it, twice in all: half of the shortest strip
# columns of a strip, at least and at most, that a group is computed in where whole rows of its buffers would not stay
# in the second cache: `Target.near_bytes` (nl_means, camera_pipe)
MIN_STRIP, MAX_STRIP = 128, 512

# -- rows of a stencil that run together ("unroll and jam")

JAM_ROWS = 4  # rows: what several of them read is loaded once (harris, local_laplacian, nl_means)
MIN_LOADS = 8  # loads of one element, at least, for which that is worth it
MAX_LOADS_LEFT = 0.6  # the part of its rows' loads that is left, at most
MIN_JAM_BYTES = 4  # bytes of the widest type at work, at least: rows of narrower types are few vectors
