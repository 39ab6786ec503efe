"""The applications in JAX, one file each: a function for `jax.jit`, of jnp code; its numbers are static."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.peers import Compiled


def build(app: str, arguments: tuple[Any, ...], threads: int) -> Compiled:
    """An application, compiled for the CPU."""
    os.environ["NPROC"] = str(threads)  # XLA reads it once, when its first client starts
    begin = time.perf_counter()
    import jax

    numbers = tuple(k for k, x in enumerate(arguments) if not isinstance(x, np.ndarray))
    given = [jax.device_put(x) if isinstance(x, np.ndarray) else x for x in arguments]
    lowered = jax.jit(peers.function("jax", app), static_argnums=numbers).lower(*given)
    compiled, arrays, made = lowered.compile(), [x for x in given if isinstance(x, jax.Array)], lowered.out_info

    def run(out: np.ndarray) -> None:
        np.copyto(out, np.asarray(compiled(*arrays)))

    return Compiled(run, made.shape, np.dtype(made.dtype), time.perf_counter() - begin)
