"""Fusion of point-wise chains: a stage is inlined into its consumers if that adds little or no arithmetic."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ir.analysis.gathers import checked_atoms
from hjit.trace.ir.expressions import Cast, Expr, Load, mentioned_dims, renumber, rewrite, substitute, walk
from hjit.trace.ir.graph import Definition, Graph, Stage, compose, identity
from hjit.trace.ir.poly import ONE, Dim, Indirect, Poly, deep_atoms
from hjit.trace.ir.rewriting import map_exprs
from hjit.trace.passes.limits import (
    FREE_READS,
    NESTED_DIVISIONS,
    NESTED_GATHERS,
    NESTED_OPERATIONS,
    REPEATED_CODE_COST,
    REPEATED_COST,
    REPEATED_COST_PER_LOOP,
    REPEATED_COST_PER_ROW,
    REPEATED_COST_PER_TASK,
    SCATTERED_COST,
    SHUFFLED_STRIDE,
)
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites

# the stage that ends up with the code, the number of its definition, and the index in that
Use = tuple[str, int, tuple[Poly, ...]]


def fuse(graph: Graph, requested: Rewrites = NO_REWRITES) -> Graph:
    """Inline cheap pure stages, and those with one use."""
    uses: dict[str, dict[Use, None]] = {s.name: {} for s in graph.stages}
    inlined: set[str] = set()
    by_name = graph.by_name
    chains = _chain_costs(graph)
    for s in reversed(graph.stages):
        is_free = s.name not in graph.outputs and s.name not in requested.kept
        is_requested = s.name in requested.inlined and s.initial is not None and not s.updates
        if is_free and (is_requested or _may_inline(s, chains.get(s.name, 0), uses[s.name], by_name)):
            inlined.add(s.name)
        for number, d in enumerate(s.definitions):
            for load in d.loads:
                if load.source != s.name and load.source in uses:
                    new = _through(load, uses[s.name]) if s.name in inlined else [(s.name, number, load.index)]
                    uses[load.source].update(dict.fromkeys(new))
    return inline(graph, inlined)


def _through(load: Load, uses: Iterable[Use]) -> Iterator[Use]:
    """The uses of what a stage loads that is inlined where it is used."""
    for root, number, index in uses:
        is_whole = index == identity(len(index))
        yield root, number, load.index if is_whole else compose(load.index, index)


def _chain_costs(graph: Graph) -> dict[str, int]:
    """The cost of each pure stage with that of the chain of stages that it alone reads, which are fused with it."""
    uses: dict[str, set[tuple[str, tuple[Poly, ...]]]] = {}
    for s in graph.stages:
        for load in s.loads:
            uses.setdefault(load.source, set()).add((s.name, load.index))
    costs: dict[str, int] = {}
    for s in graph.stages:
        if s.initial is None or s.updates:
            continue
        chain = {load.source for load in s.initial.loads if load.source in costs and len(uses[load.source]) == 1}
        costs[s.name] = cost(s.initial) + sum(costs[p] for p in chain if p not in graph.outputs)
    return costs


def _may_inline(s: Stage, chain: int, uses: dict[Use, None], by_name: dict[str, Stage]) -> bool:
    """Is computing a stage, at the cost of its `chain`, wherever it is used no more work than storing it?"""
    if s.updates or s.initial is None or not uses or _nests_indices(s.initial, uses) or _nests_gathers(s.initial, uses):
        return False
    if _drops_checks(s.initial, uses):
        return False
    if len(uses) <= FREE_READS and cost(s.initial) == 0 and not _narrows(s.initial):
        return True  # a view or a cast: what it shows is decided on separately
    code = chain * (len(uses) - 1)
    if code > REPEATED_COST and (
        code > REPEATED_CODE_COST or chain * (sum(_fraction(index) for _, _, index in uses) - 1) > REPEATED_COST
    ):
        return False
    return all(_may_inline_at(index, chain, by_name[root].definitions[n]) for root, n, index in uses)


def _may_inline_at(index: tuple[Poly, ...], chain: int, d: Definition) -> bool:
    """May a stage of that cost be computed where a definition reads it at `index`?"""
    if chain > 0 and any(isinstance(a, Indirect) for p in index for a in p.atoms()):
        return False  # a look-up table is smaller than its reader, or read out of order
    if chain > SCATTERED_COST and d.rdims and d.is_scatter:
        return False  # a scatter runs one element at a time: what it reads is better computed in vectors
    mentioned = {k for p in index for k in mentioned_dims(p)}
    if all(k in mentioned or n == ONE for k, n in enumerate(d.extents)):
        return True
    if not mentioned:
        return chain <= REPEATED_COST_PER_TASK
    return chain <= (REPEATED_COST_PER_ROW if _is_of_a_row(mentioned, d) else REPEATED_COST_PER_LOOP)


def _nests_indices(e: Expr, uses: Iterable[Use]) -> bool:
    """Would indices, of an expression that is read at some, be nested too deeply? Each level may double their text."""
    own = max((_divisions(x.index) for x in e.loads), default=0)
    return own > 0 and own + max(_divisions(index) for _, _, index in uses) > NESTED_DIVISIONS


def _nests_gathers(e: Expr, uses: Iterable[Use]) -> bool:
    """Would an expression that is read out of order be repeated in many indices, as at each step of a bisection?"""
    gathers = (1 for _, _, index in uses if _is_gather(index))
    return any(_is_gather(x.index) for x in e.loads) and sum(gathers) > NESTED_GATHERS


def _drops_checks(e: Expr, uses: Iterable[Use]) -> bool:
    """Is an expression the same along an axis, where it is read at a place that may be out of bounds?"""
    checked = {k for _, _, index in uses for k, p in enumerate(index) if checked_atoms(p)}
    return bool(checked) and not checked <= {k for x in walk(e) for p in x.polys for k in mentioned_dims(p)}


def _is_gather(index: tuple[Poly, ...]) -> bool:
    return any(p.has(Indirect) for p in index)


def _divisions(index: tuple[Poly, ...]) -> int:
    """The quotients, remainders and boundary conditions in an index, equal ones once."""
    return len({a for p in index for a in deep_atoms(p) if a.parts and not isinstance(a, Indirect)})


def _fraction(index: tuple[Poly, ...]) -> float:
    """The fraction of a stage that an index reads: a strided one reads every n-th element of an axis."""
    inner = (p.unbounded for p in index)
    strides = [
        abs(c) for p in inner if len(p.terms) == 1 for m, c in p.terms.items() if len(m) == 1 and isinstance(m[0], Dim)
    ]
    return 1 / math.prod(min(n, SHUFFLED_STRIDE) for n in strides)


def _narrows(e: Expr) -> bool:
    """Does a cast leave fewer bytes to store than its operand?"""
    inner = e
    while isinstance(inner, Cast):
        inner = inner.arg
    return inner.dtype.itemsize > e.dtype.itemsize


def _is_of_a_row(mentioned: set[int], d: Definition) -> bool:
    """Does an index vary in outer dimensions only, so that its value is hoisted out of the innermost loop?"""
    long = [k for k, n in enumerate(d.extents) if not n.is_const]
    return not d.rdims and bool(long) and max(long) not in mentioned


def _depth(e: Expr, known: dict[Expr, int]) -> int:
    """How deeply operations are nested."""
    found = known.get(e)
    if found is None:
        found = known[e] = 1 + max((_depth(a, known) for a in e.args), default=0)
    return found


def inline(graph: Graph, names: Collection[str]) -> Graph:
    """Replace every load of the named pure stages by their definition, unless it is nested too deeply."""
    values: dict[str, Expr] = {}
    memo: dict[Expr, Expr] = {}
    depths: dict[Expr, int] = {}
    stages = []

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.source not in values:
            return None
        value = values[e.source]
        return value if e.index == identity(len(e.index)) else substitute(value, renumber(e.index))

    for s in graph.stages:
        s = map_exprs(s, lambda e: rewrite(e, change, memo))
        if s.name in names and s.initial is not None and _depth(s.initial, depths) <= NESTED_OPERATIONS:
            values[s.name] = s.initial
        else:
            stages.append(s)
    return replace(graph, stages=tuple(stages))


def inline_after(graph: Graph, requested: Rewrites = NO_REWRITES) -> Graph:
    """Inline stages of the canonical Graph, including stages that were not pure when chains were fused."""
    pure = {s.name for s in graph.stages if s.name not in graph.outputs and s.initial is not None and not s.updates}
    names = {n for n in pure if n in requested.inlined_after or n in requested.inlined}
    return inline(graph, names) if names else graph
