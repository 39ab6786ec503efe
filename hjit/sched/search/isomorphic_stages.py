"""Isomorphic stages: equal except for their constants and the stages that they read.

A Python loop over shifts creates many of them: non-local means over 49 shifts has 149 stages. A search would decide on
each of them separately, and try each at every site of a nest that grows with them. With `pruning.Rules.share_choices`,
a stage takes the choice of the isomorphic stage that was decided on before it, if that is possible there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from hjit.sched.language.build import at, own_nests
from hjit.sched.language.tree import Compute, Loop, Node, Root, Store, computes
from hjit.trace.ir.expressions import Expr, Load, Op, walk
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import Dim

INLINED = "inlined"


@dataclass(frozen=True, slots=True)
class IsomorphicStages:
    """The classes of isomorphic stages of a Graph.

    Attributes:
        kind: the number of the class of each stage.
        before: for a stage, the latest isomorphic one that is decided on before it, which comes later in the Graph.
    """

    kind: Mapping[str, int]
    before: Mapping[str, str]

    @staticmethod
    def of(graph: Graph) -> IsomorphicStages:
        numbers: dict[Hashable, int] = {}
        last: dict[int, str] = {}
        kind, before = dict[str, int](), dict[str, str]()
        for s in reversed(graph.stages):
            k = kind[s.name] = numbers.setdefault(_signature(s, graph), len(numbers))
            if k in last:
                before[s.name] = last[k]
            last[k] = s.name
        return IsomorphicStages(kind, before)

    def place(self, nests: Sequence[Node], inlined: frozenset[str], stage: str) -> Hashable:
        """Where a stage is computed and stored, up to isomorphism of the stages whose loops are around it."""
        if stage in inlined:
            return INLINED
        for nest in nests:
            around = _around(nest, stage)
            if around is not None:
                (store,) = (k for k, x in enumerate(around) if isinstance(x, Store) and x.stage == stage)
                loops = tuple((self.kind[x.stage], x.dim, x.kind, x.size) for x in around if isinstance(x, Loop))
                own = around[store]
                assert isinstance(own, Store)
                return loops, sum(isinstance(x, Loop) for x in around[:store]), own.order
        return None

    def nest(self, nests: Sequence[Node], stage: str, index: int) -> Node | None:
        """The loops of a nest of the stage `before`, renamed to those of a stage; None if that one is inlined."""
        other = self.before[stage]
        root = Root(tuple(nests))
        found = own_nests(root, other)
        return _renamed(at(root, found[index]), other, stage) if index < len(found) else None


def _around(node: Node, stage: str) -> tuple[Node, ...] | None:
    """The nodes around the first nest of a stage, outermost first; None if it is not computed there."""
    if isinstance(node, Compute):
        return () if node.stage == stage else None
    if isinstance(node, Loop) and node.stage == stage:
        return ()
    for c in node.children:
        inside = _around(c, stage)
        if inside is not None:
            return node, *inside
    return None


def _signature(s: Stage, graph: Graph) -> Hashable:
    """The signature that isomorphic stages share: everything but constants and the names of sources."""
    return s.name in graph.outputs, s.shape, s.dtype, tuple(_of_definition(d) for d in s.definitions)


def _of_definition(d: Definition) -> Hashable:
    return d.dims, d.rdims, d.order, d.target, tuple(_of_expression(e) for e in walk(d.value))


def _of_expression(e: Expr) -> Hashable:
    match e:
        case Load():
            return e.dtype, tuple(frozenset(a for a in p.atoms() if isinstance(a, Dim)) for p in e.index)
        case Op():
            return e.dtype, e.name
    return e.dtype, type(e)


def _renamed(node: Node, old: str, new: str) -> Node:
    """A nest of one stage as one of another, without what is computed and stored inside it."""
    match node:
        case Compute():
            return replace(node, stage=new)
        case Store():
            return _renamed(_own(node, old), old, new)
        case Loop():
            return replace(node, stage=new, children=(_renamed(_own(node, old), old, new),))
    raise AssertionError(node)


def _own(node: Loop | Store, stage: str) -> Node:
    """The child of the root in which a stage is computed."""
    return next(x for x in node.children if any(c.stage == stage for c in computes(x)))
