"""Arrays in chunks: a Graph as parts that can be computed for one chunk of their result at a time, on Dask.

A pipeline that is called with arrays of Dask is traced once, for the shape of the whole image. Its Graph is cut into
parts (`parts.py`): a part computes stages of one shape, each chunk of them from windows of the arrays that it reads,
which bounds inference finds (`bounds.py`). Windows keep the coordinates of the whole image (`windows.py`): a part's
kernel is that of a Graph whose dimensions are moved by run-time offsets, so that borders and indices mean what they
mean for the whole array, and one kernel serves all chunks. `kernels.py` runs it, `tasks.py` makes tasks of Dask.
Functions that run as they are have tasks of their own (`extern_calls.py`).
"""
