"""Tuning the kernels of a function: what `f.tune`, the option ``tune`` and tuning in the background share."""
