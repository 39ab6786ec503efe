"""The features by name: what `hjit.sched.features.featurise` measures and `hjit.model` reads.

Per stage, as in Adams 2019: those of its definition alone (section 4.1) are `PIPELINE`, those of a schedule
(appendix A) are `SCHEDULE`. Arrays have features along their last axis, in the order here.
"""

from __future__ import annotations

OPERATIONS = (
    "const", "scalar", "index", "input_load", "stage_load", "self_load", "gather", "cast_narrow", "cast_wide",
    "cast_float", "add", "sub", "mul", "fma", "div", "div_const", "mod", "mod_const", "shift", "and", "or", "xor",
    "not",
    "min", "max", "abs", "compare_eq", "compare_lt", "logic", "select", "sqrt", "exp", "log", "pow", "trig",
    "hyperbolic", "round", "saturate", "accumulate", "other",
)  # fmt: skip
"""Buckets of the histogram of the operations that compute one point."""

TYPES = ("bool", "uint8", "int8", "uint16", "int16", "int32", "int64", "float32", "float64")
"""One is 1, the others are 0: the dtype of the stage; unsigned 32 and 64 bits count as signed, float16 as int16."""

ACCESSES = ("pointwise", "transpose", "broadcast", "slice", "strided", "stencil", "unknown")
"""Classes of accesses by their Jacobians, counted."""

SHAPE = ("is_output", "is_input_only", "has_updates", "reduction_points", "dimensions")

PIPELINE = (
    *(f"op_{x}" for x in OPERATIONS),
    *(f"type_{x}" for x in TYPES),
    *(f"access_{x}" for x in ACCESSES),
    *SHAPE,
)

SCHEDULE = (
    "num_realizations",
    "num_productions",
    "points_computed_per_realization",
    "points_computed_per_production",
    "points_computed_total",
    "points_computed_minimum",
    "innermost_loop_extent",
    "innermost_pure_loop_extent",
    "unrolled_loop_extent",
    "inner_parallelism",
    "outer_parallelism",
    "bytes_at_realization",
    "bytes_at_production",
    "bytes_at_root",
    "innermost_bytes_at_realization",
    "innermost_bytes_at_production",
    "innermost_bytes_at_root",
    "inlined_calls",
    "unique_bytes_read_per_realization",
    "unique_lines_read_per_realization",
    "allocation_bytes_read_per_realization",
    "vector_size",
    "native_vector_size",
    "num_vectors",
    "num_scalars",
    "scalar_loads_per_vector",
    "vector_loads_per_vector",
    "scalar_loads_per_scalar",
    "unique_bytes_read_per_vector",
    "unique_lines_read_per_vector",
    "unique_bytes_read_per_task",
    "unique_lines_read_per_task",
    "bytes_at_task",
    "innermost_bytes_at_task",
    "working_set",
    "working_set_at_task",
    "working_set_at_production",
    "working_set_at_realization",
    "working_set_at_root",
)
"""Appendix A, its names."""

MACHINE = ("cores", "vector_bytes", "l1_bytes", "l2_bytes", "l3_bytes", "bandwidth")
"""Facts of the machine: counts, bytes, and bytes per second of a copy by all cores."""
