"""`benchmarks.apps.blur_large` in JAX."""

from benchmarks.peers.jax.blur import blur as blur_large

__all__ = ["blur_large"]
