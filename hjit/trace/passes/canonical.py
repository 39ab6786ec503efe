"""The canonicaliser: one visible list of rewrites, Graph -> Graph, after which equal programs have equal keys.

`fuse` merges point-wise chains: a stage becomes part of its consumers when that costs no or little extra
arithmetic. What a stage costs says `hjit.trace.ir.costs`, and when it is too much, the limits below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from hjit import deadline, debug
from hjit.trace.ir.borders import borders
from hjit.trace.ir.check import check_graph
from hjit.trace.ir.costs import REPEAT_LIMIT, cost
from hjit.trace.ir.graph import (
    Cast,
    Const,
    Definition,
    Expr,
    Graph,
    Load,
    Op,
    Stage,
    cast,
    compose,
    identity,
    map_exprs,
    rewrite,
    substitute,
    walk,
)
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import ONE, Dim, Indirect, Poly, poly
from hjit.trace.passes.dead_stores import start_scans
from hjit.trace.passes.demanded_regions import crop
from hjit.trace.passes.demotion import narrow_integers
from hjit.trace.passes.fission import bordered_terms
from hjit.trace.passes.forwarding import forward_slabs, merge_slabs, slabs
from hjit.trace.passes.partition import even_pieces, is_tiled, part_histograms, unflatten, write_apart
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites, cache_reads, pack, rfactor
from hjit.trace.passes.storage_narrowing import narrow
from hjit.trace.passes.tabulate import tabulate

ROW_LIMIT = 16  # additions repeated for each row, hoisted out of the inner loop
STEPS_LIMIT = (
    64  # additions repeated where several elements are computed of what is read in steps, each of them once or twice
)
MAX_STEP = 4
MAX_DEPTH = 200  # nested operations of one expression
SCATTER_LIMIT = 1  # additions that are computed element by element inside a scatter
ONCE_LIMIT = 64  # additions repeated for each task, hoisted out of all loops


def drop_dead(graph: Graph) -> Graph:
    """Stages and inputs that no output needs."""
    stages = graph.by_name
    alive: set[str] = set()
    work = list(graph.outputs)
    while work:
        name = work.pop()
        if name in alive:
            continue
        alive.add(name)
        if name in stages:
            work += stages[name].sources
    return replace(
        graph,
        inputs=tuple(i for i in graph.inputs if i.name in alive),
        stages=tuple(s for s in graph.stages if s.name in alive),
    )


def merge_versions(graph: Graph) -> Graph:
    """A version of a buffer that nobody reads but the next version needs no memory of its own."""
    uses: dict[str, int] = dict.fromkeys(graph.outputs, 1)
    for s in graph.stages:
        for name in s.sources - {s.name}:
            uses[name] = uses.get(name, 0) + 1
    chains: dict[str, list[Stage]] = {}  # by their last versions
    for s in graph.stages:
        chain = (
            chains.get(s.initial.source)
            if isinstance(s.initial, Load) and s.initial.index == identity(len(s.shape))
            else None
        )
        old = chain[-1] if chain else None
        if chain and old is not None and uses[old.name] == 1 and _continues(old, s):
            del chains[old.name]
            chain.append(s)
        else:
            chain = [s]
        chains[s.name] = chain
    return replace(graph, stages=tuple(map(_joined, chains.values())))


def _joined(chain: list[Stage]) -> Stage:
    """The last of some versions, with the updates of all: each is renamed once, however many follow."""
    *before, last = chain
    if not before:
        return last
    rename = _renamer({s.name for s in before}, last.name)
    updates = tuple(replace(d, value=rename(d.value)) for s in chain for d in s.updates)
    return replace(last, initial=before[0].initial, updates=updates)


def _continues(old: Stage, s: Stage) -> bool:
    """May a stage that starts as another is have its memory?"""
    return bool(s.updates) and old.shape == s.shape and old.dtype == s.dtype and _in_place(old.name, s)


def _in_place(old: str, s: Stage) -> bool:
    """Do the updates read the old version only where they write, and none before them?"""
    for k, d in enumerate(s.updates):
        reading = [x for x in d.loads if x.source == old]
        if reading and (
            d.rdims or any(x.index != d.target for x in reading) or not all(write_apart(b, d) for b in s.updates[:k])
        ):
            return False
    return True


def _renamer(old: Collection[str], new: str) -> Callable[[Expr], Expr]:
    memo: dict[Expr, Expr] = {}

    def change(e: Expr) -> Expr | None:
        return Load(new, e.index, e.dtype) if isinstance(e, Load) and e.source in old else None

    return lambda e: rewrite(e, change, memo)


def drop_covered(graph: Graph) -> Graph:
    """An initial value that updates overwrite everywhere is not computed."""
    return replace(graph, stages=tuple(replace(s, initial=None) if _is_covered(s) else s for s in graph.stages))


def _is_covered(s: Stage) -> bool:
    return s.initial is not None and (slabs(s) is not None or is_tiled(s))


def share(graph: Graph) -> Graph:
    """Stages with equal definitions are one stage."""
    seen: dict[Any, str] = {}
    renamed: dict[str, str] = {}
    stages = []

    def change(e: Expr) -> Expr | None:
        return Load(renamed[e.source], e.index, e.dtype) if isinstance(e, Load) and e.source in renamed else None

    for s in graph.stages:
        if renamed:
            s = map_exprs(s, lambda e: rewrite(e, change))
        key = None if s.name in graph.outputs else _definition_key(s)
        if key is not None and key in seen:
            renamed[s.name] = seen[key]
            continue
        if key is not None:
            seen[key] = s.name
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _definition_key(s: Stage) -> Any:
    """What a stage is, whatever its name."""
    anonymous = _renamer((s.name,), "")
    updates = tuple(replace(d, value=anonymous(d.value)) for d in s.updates)
    return (s.dtype.str, s.shape, s.initial, updates)


# -- fusion of point-wise chains


Use = tuple[str, int, tuple[Poly, ...]]  # the stage and definition that end up with the code, and the index in them


def fuse(graph: Graph, said: Rewrites = NO_REWRITES) -> Graph:
    """Put the definition of cheap or once-used pure stages in place of their loads."""
    uses: dict[str, dict[Use, None]] = {s.name: {} for s in graph.stages}
    inlined: set[str] = set()
    by_name = graph.by_name
    prices = _prices(graph)
    for s in reversed(graph.stages):
        if s.name in graph.outputs or s.name in said.kept:
            pass
        elif s.name in said.inlined and s.initial is not None and not s.updates:
            inlined.add(s.name)
        elif _may_inline(s, prices.get(s.name, 0), uses[s.name], by_name):
            inlined.add(s.name)
        for number, d in enumerate(s.definitions):
            for load in d.loads:
                found = uses.get(load.source)
                if found is None or load.source == s.name:
                    continue
                if s.name in inlined:
                    for root, n, index in uses[s.name]:
                        found[
                            (root, n, load.index if index == identity(len(index)) else compose(load.index, index))
                        ] = None
                else:
                    found[(s.name, number, load.index)] = None
    return inline(graph, inlined)


def _prices(graph: Graph) -> dict[str, int]:
    """Arithmetic of each pure stage with the chain of stages that only it uses, which goes where it goes."""
    uses: dict[str, set[tuple[str, tuple[Poly, ...]]]] = {}
    for s in graph.stages:
        for load in s.loads:
            uses.setdefault(load.source, set()).add((s.name, load.index))
    prices: dict[str, int] = {}
    for s in graph.stages:
        if s.initial is None or s.updates:
            continue
        chain = {load.source for load in s.initial.loads if load.source in prices and len(uses[load.source]) == 1}
        prices[s.name] = cost(s.initial) + sum(prices[p] for p in chain if p not in graph.outputs)
    return prices


def _may_inline(s: Stage, price: int, uses: dict[Use, None], by_name: dict[str, Stage]) -> bool:
    if s.updates or s.initial is None or not uses:
        return False
    if len(uses) <= 64 and cost(s.initial) == 0 and not _narrows(s.initial):
        return True  # a view or a cast: what it shows is decided on by itself
    again = price * (len(uses) - 1)
    if again > REPEAT_LIMIT and (
        again > STEPS_LIMIT or price * (sum(_share(index) for _, _, index in uses) - 1) > REPEAT_LIMIT
    ):
        return False
    for root, number, index in uses:
        d = by_name[root].definitions[number]
        mentioned = {a.k for p in index for a in _dims(p)}
        missing = [k for k, n in enumerate(d.extents) if k not in mentioned and n != ONE]
        if price > 0 and any(isinstance(a, Indirect) for p in index for a in p.atoms()):
            return False  # a table: it is smaller than what looks it up, or read out of order
        if price > SCATTER_LIMIT and d.rdims and d.is_scatter:
            return False  # a scatter runs element by element: what it reads is better computed in vectors
        if missing and price > (
            ONCE_LIMIT if not mentioned else ROW_LIMIT if _rowwise(mentioned, d) else REPEAT_LIMIT // 3
        ):
            return False
    return True


def _share(index: tuple[Poly, ...]) -> float:
    """Which part of a stage is read by an index: every n-th element of an axis, where it is a multiple of n and a constant.

    Steps that are too long for vectors to be shuffled from whole ones count as the longest that are not.
    """
    inner = (p.unbounded for p in index)
    steps = [
        abs(c) for p in inner if len(p.terms) == 1 for m, c in p.terms.items() if len(m) == 1 and isinstance(m[0], Dim)
    ]
    return 1 / math.prod(min(n, MAX_STEP) for n in steps)


def _narrows(e: Expr) -> bool:
    """Does a cast leave less to store than what it casts?"""
    inner = e
    while isinstance(inner, Cast):
        inner = inner.arg
    return inner.dtype.itemsize > e.dtype.itemsize


def _rowwise(mentioned: set[int], d: Definition) -> bool:
    """Does an index vary in outer dimensions only, so that its value is hoisted out of the inner loop?"""
    big = [k for k, n in enumerate(d.extents) if not n.is_const]
    return not d.rdims and bool(big) and max(big) not in mentioned


def _dims(p: Poly) -> set[Dim]:
    found: set[Dim] = set()
    for a in p.atoms():
        if isinstance(a, Dim):
            found.add(a)
        for part in a.parts:
            if isinstance(part, Poly):
                found |= _dims(part)
            else:
                for e in walk(part):
                    for q in e.polys:
                        found |= _dims(q)
    return found


def depth(e: Expr, known: dict[Expr, int]) -> int:
    """How deeply operations are nested."""
    found = known.get(e)
    if found is None:
        found = known[e] = 1 + max((depth(a, known) for a in e.args), default=0)
    return found


def inline(graph: Graph, names: set[str]) -> Graph:
    """Replace every load of the named pure stages by their definition, unless that is nested too deeply."""
    values: dict[str, Expr] = {}
    memo: dict[Expr, Expr] = {}
    depths: dict[Expr, int] = {}
    stages = []

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.source not in values:
            return None
        value = values[e.source]
        if e.index == identity(len(e.index)):
            return value
        return substitute(value, lambda a: e.index[a.k] if isinstance(a, Dim) else None)

    for s in graph.stages:
        s = map_exprs(s, lambda e: rewrite(e, change, memo))
        if s.name in names and s.initial is not None and depth(s.initial, depths) <= MAX_DEPTH:
            values[s.name] = s.initial
        else:
            stages.append(s)
    return replace(graph, stages=tuple(stages))


def inline_after(graph: Graph, said: Rewrites = NO_REWRITES) -> Graph:
    """Stages of the canonical Graph in place of their loads; among them those that were not pure when chains were fused."""
    pure = {s.name for s in graph.stages if s.name not in graph.outputs and s.initial is not None and not s.updates}
    names = {n for n in pure if n in said.inlined_after or n in said.inlined}
    return inline(graph, names) if names else graph


# -- reductions


def split_reductions(graph: Graph) -> Graph:
    """A reduction of everything to little is done in two steps, rows then results, so that rows run in parallel."""
    stages: list[Stage] = []
    names = {s.name for s in graph.stages}
    for s in graph.stages:
        if len(s.updates) == 1 and s.updates[0].order not in ("pure", "sequential") and _wants_split(s.updates[0]):
            partial, s = _split(s, names)
            stages.append(partial)
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _wants_split(d: Definition) -> bool:
    """Nothing to run in parallel but the reduction itself, and a target that does not depend on it."""
    big = [n for n in d.rdims if not n.is_const]
    direct = all(p == poly(Dim(k)) for k, p in enumerate(d.target)) and len(d.target) == len(d.dims)
    return direct and all(n.is_const for n in d.dims) and len(big) >= 2


def _split(s: Stage, names: set[str]) -> tuple[Stage, Stage]:
    d = s.updates[0]
    assert isinstance(d.value, Op)
    name = f"{s.name}_rows"
    while name in names:
        name += "_"
    names.add(name)
    outer = next(k for k, n in enumerate(d.rdims) if not n.is_const)
    p = len(d.dims)
    # partial[r, dims] over the other reduction dimensions
    order = [p + outer, *range(p), *(p + k for k in range(len(d.rdims)) if k != outer)]
    place = {old: poly(Dim(new)) for new, old in enumerate(order)}
    element = substitute(d.value.args[1], lambda a: place[a.k] if isinstance(a, Dim) else None)
    shape = (d.rdims[outer], *d.dims)
    rest = tuple(n for k, n in enumerate(d.rdims) if k != outer)
    dtype = d.value.dtype
    # sums of floats keep their rows in double precision; the last cast rounds once
    wide = np.dtype(np.float64) if d.order == "add" and dtype.kind == "f" else dtype
    element = cast(element, wide)
    target = identity(len(shape))
    start = Const(start_value(d.order, wide), wide)
    partial = Stage(
        name,
        wide,
        shape,
        start,
        (Definition(shape, rest, target, Op(d.order, (Load(name, target, wide), element), wide), d.order),),
        s.origin,
    )
    again = Load(name, (poly(Dim(p)), *identity(p)), wide)
    update = Definition(
        d.dims, (d.rdims[outer],), d.target, Op(d.order, (d.value.args[0], cast(again, dtype)), dtype), d.order
    )
    return partial, replace(s, updates=(update,))


PASSES: tuple[Callable[..., Graph], ...] = (
    drop_dead,  # nothing that no output needs
    merge_versions,  # one buffer for versions that only follow each other
    drop_covered,  # no initial value where all is overwritten
    forward_slabs,  # known slices of assembled arrays
    borders,  # constant padding as a pure definition
    share,  # equal stages once
    fuse,  # point-wise chains
    drop_dead,
    merge_versions,  # again: in-place updates read what they write only now that they are fused
    merge_slabs,  # a few planes as a pure definition, once those share what they are computed from
    fuse,  # those
    narrow,  # what is read through a cast only, of its dtype
    narrow_integers,  # operations and stages in the narrowest dtypes that hold them
    crop,  # what somebody reads of stages, and no more
    start_scans,  # no more of an array before a scan than the scan leaves
    tabulate,  # long formulas of one byte
    unflatten,  # rows and columns instead of flat indices
    part_histograms,  # parts in parallel, then their sum
    even_pieces,  # pieces of a stage that are written side by side
    bordered_terms,  # what a reduction reads across borders, before it
    split_reductions,  # rows in parallel, then the rest
    rfactor,  # reductions in parts, where a schedule says so
    cache_reads,  # copies of what is read, where a schedule says so
    pack,  # copies of the right matrices of products, where none does
    inline_after,  # what a schedule that knows the Graph so far inlines of it
)
SAID = (fuse, rfactor, cache_reads, pack, inline_after)  # those that a schedule has a say in


def canonicalise(graph: Graph, said: Rewrites = NO_REWRITES, show: Callable[[str, Graph], None] | None = None) -> Graph:
    """The canonical form of a Graph; `said`: what a schedule changes; `show` is given each pass's name and result."""
    show = debug.passes("canonicalise") if show is None else show
    for run in deadline.within("canonicalising", PASSES):
        graph = run(graph, said) if run in SAID else run(graph)
        if debug.checks():
            check_graph(graph, run.__name__)
        if show is not None:
            show(run.__name__, graph)
    return graph
