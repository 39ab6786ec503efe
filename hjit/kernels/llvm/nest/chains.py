"""Interleaved dependence chains: several long unrolled sums are evaluated in alternation.

Each step of ``total = total + w[k] * x[k]`` waits some cycles for the previous one, while the processor could begin
other work. If a block has several such chains, such as the channels of a pixel or jammed rows, their first steps are
emitted first, then the second ones, and so on: a value that the chains share is loaded once and used at once, instead
of being spilled until the next chain begins. Every sum keeps its own order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.thresholds import MIN_CHAIN_STEPS
from hjit.sched.language.target import Target
from hjit.trace.ir.borders import fold_select
from hjit.trace.ir.expressions import Cast, Expr, Op


def evaluate(e: NestEmitter, values: Sequence[Expr]) -> None:
    """Emit the chains of some values, interleaved if there are several."""
    links = _Links()
    tops = list(dict.fromkeys(top for x in values for top in links.tops(x)))
    if len(tops) < 2:
        return
    most = Target(e.machine.width).vector_registers // 2  # the others are for what is added
    while tops:
        some: list[list[Expr]] = []
        needed = 0
        while tops and (not some or needed + _registers(e, tops[0]) <= most):
            needed += _registers(e, tops[0])
            some.append(links.of(tops.pop(0)))
        for k in range(max(map(len, some)), 0, -1):
            for chain in some:
                if k <= len(chain):
                    e.value(chain[k - 1])


def _registers(e: NestEmitter, x: Expr) -> int:
    """The number of registers that a value takes."""
    return max(e.lanes * x.dtype.itemsize // e.machine.width, 1)


class _Links:
    """The chains in some expressions."""

    def __init__(self) -> None:
        self.lengths: dict[Expr, int] = {}
        self.seen: set[Expr] = set()

    def tops(self, x: Expr) -> Iterator[Expr]:
        """The ends of the long chains that a value is computed from, those further in left out."""
        x = fold_select(x)
        if x in self.seen or not isinstance(x, (Op, Cast)):
            return
        self.seen.add(x)
        if self.length(x) >= MIN_CHAIN_STEPS:
            yield x
            return
        for a in x.args:
            yield from self.tops(a)

    def of(self, top: Expr) -> list[Expr]:
        """The steps of a chain, the last one first."""
        found, x = [top], self.before(top)
        while x is not None:
            found.append(x)
            x = self.before(x)
        return found

    def before(self, x: Expr) -> Expr | None:
        """The step before."""
        if not isinstance(x, Op):
            return None
        alike = [a for a in map(fold_select, x.args) if isinstance(a, Op) and (a.name, a.dtype) == (x.name, x.dtype)]
        return max(alike, key=self.length, default=None)

    def length(self, x: Expr) -> int:
        """The steps of a chain that ends here."""
        found = self.lengths.get(x)
        if found is None:
            before = self.before(x)
            found = self.lengths[x] = 1 if before is None else 1 + self.length(before)
        return found
