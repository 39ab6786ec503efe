"""The properties of the machine that the CPU passes and emitters depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """What code is generated for.

    Attributes:
        width: bytes of a vector register.
        features: what the processor has, as in "avx512"; `hjit.kernels.runtime.features`.
        fast_math: may sums of floats be accumulated in their own dtype, and products be contracted?
        small: is no array longer than `params.SMALL_ARRAY`, so that 32 bits hold every index of a gather?
    """

    width: int = 64
    features: frozenset[str] = frozenset()
    fast_math: bool = False
    small: bool = True
