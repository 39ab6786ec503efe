"""Facts about the traced code that later steps depend on."""

from __future__ import annotations

from dataclasses import dataclass

from hjit.errors import Origin


@dataclass(eq=False, slots=True)
class Findings:
    """What the traced code does. If a trace fails, these say what the next attempt may change (`Attempt`).

    Attributes:
        reads_scalar_types: does a variable of traced code hold a NumPy scalar type?
        calls_scalar_types: may that have been called?
        runs_methods: have methods of the user's classes run untraced that could be traced?
        computes_ints: are there Python ints, outside of loops, that are computed at every call?
        reads_uninitialised: may there be uninitialised elements?
        out_of_bounds: was an index out of bounds? This is found later than by NumPy: the function must not handle it.
        checked_int: the line of a Python int that each call checks to stay within 64 bits; None: there is none.
        speculates: is an outcome assumed that each call checks, which a decision would follow either way?
        repeated_decision: the line that iterations of a loop decide at too often; None: there is none.
        taps: of filters that became one expression.
    """

    reads_scalar_types: bool = False
    calls_scalar_types: bool = False
    runs_methods: bool = False
    computes_ints: bool = False
    reads_uninitialised: bool = False
    out_of_bounds: bool = False
    checked_int: Origin | None = None
    speculates: bool = False
    repeated_decision: Origin | None = None
    taps: int = 0
