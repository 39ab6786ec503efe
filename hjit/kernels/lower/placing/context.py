"""`NestContext` and what else the walk down one nest shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hjit.kernels.lower.loopir import Let, Stmt, Store
from hjit.kernels.lower.program import Buffer
from hjit.sched.analysis.bounds import Namer, Reads, Region
from hjit.sched.language.memory import Layout
from hjit.sched.language.tree import Compute, Loop, dims_of
from hjit.trace.ir.graph import Definition
from hjit.trace.ir.poly import Poly, Sym, Var, poly

Stmts = tuple[Stmt, ...]


def definition_of(reads: Reads, compute: Compute) -> Definition:
    """The definition whose dimensions the loops of a computation run over."""
    return reads.stages[compute.stage].definitions[compute.definitions[-1]]


@dataclass(slots=True)
class NestContext:
    """What the steps share: what is known of the nest, and what they find.

    Attributes:
        head: the stage at the root.
        layouts: of stages that are not in plain C order in memory.
        round_up: stage -> axis -> what its part of the axis is made a multiple of.
        vectors: the axes of each stage along which vectors run; see `hjit.sched.analysis.bounds.vector_axes`.
        is_doubled: is there code twice for the same place, for ranges of one iteration and more?
        in_blocks: is the nest for a GPU, its iterations shared out among blocks of threads?
        atomics: stages, and the numbers of definitions, whose iterations update the same elements at once.
        fast: may sums of floats be accumulated in their own dtype?
        names: of loop variables, and how many have each.
        buffers: of the stages computed inside.
        stores: by stage, number of a definition, and point: each is in vectors and in the code beside them.
    """

    reads: Reads
    head: str
    layouts: Mapping[str, Layout]
    round_up: Mapping[str, Mapping[int, int]]
    vectors: Mapping[str, frozenset[int]]
    is_doubled: bool
    in_blocks: bool
    atomics: frozenset[tuple[str, int]]
    fast: bool
    names: dict[str, int] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    stores: dict[tuple[str, int, tuple[Poly, ...]], Store] = field(default_factory=dict)

    def var(self, name: str) -> Var:
        """A new variable."""
        n = self.names[name] = self.names.get(name, 0) + 1
        return Var(name if n == 1 else f"{name}.{n}")

    def loop_var(self, loop: Loop, kind: str = "") -> Var:
        """A new variable for a loop of the tree."""
        prefix = "" if loop.stage == self.head else f"{loop.stage}."
        return self.var(prefix + ".".join(f"d{k}" for k in dims_of(loop.dim)) + kind)

    def namer(self, lets: list[Stmt], kind: str = "") -> Namer:
        """Gives the bounds of regions names where they are long, and adds these to `lets`."""

        def bound(name: str, p: Poly) -> Poly:
            if len(p.terms) <= 2 and all(isinstance(a, (Var, Sym)) for a in p.atoms()):
                return p
            var = self.var(name)
            lets.append(Let(var, p))
            return poly(var)

        def named(stage: str, region: Region) -> Region:
            return tuple(
                replace(s, low=bound(f"{stage}.low{k}{kind}", s.low), high=bound(f"{stage}.high{k}{kind}", s.high))
                for k, s in enumerate(region)
            )

        return named
