"""The applications in JAX, one file each: `jax.jit` on jnp code."""
