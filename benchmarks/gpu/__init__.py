"""The applications on a GPU beside their peers: ``python -m benchmarks gpu [--json FILE] [--minutes 9] [--only A,B]``.

On CuPy arrays: hjit, by its default schedule and by that of `apps/schedules/cuda/` where there is one; the same NumPy
source run by CuPy; jax.jit and torch.compile of `peers/`; Halide's libraries where they were built
(`benchmarks.peers.halide_cuda`). All run once a round, A B A B; a time is that between two events on the stream around
some calls, divided by how many (JAX has streams of its own: it is timed by the clock, from idle to idle). Each
application has a process of its own, and its entry of the file is written when that ends; entries of the same GPU that
are there are kept. All are measured without PyTorch, whose compiler takes longest, and with it then, as far as there is
time. A candidate that ends the process, spoils the device for it, or takes too long to compile, is left out, and the
others are measured without it.
"""
