"""Dask arrays: a Graph as subgraphs that are computed one chunk of the result at a time.

A pipeline called with Dask arrays is traced once, for the shape of the whole image. Its Graph is cut into subgraphs
(`subgraphs.py`). A subgraph computes stages of one shape; each chunk of them is computed from windows of the arrays
that it reads, found by bounds inference (`bounds.py`). Windows keep the coordinates of the whole image (`windows.py`):
the kernel of a subgraph is that of a Graph whose dimensions are shifted by run-time offsets. So borders and indices are
those of the whole array, and one kernel serves all chunks. `kernels.py` runs it, `tasks.py` builds the Dask tasks.
Extern calls have tasks of their own (`extern_calls.py`).
"""
