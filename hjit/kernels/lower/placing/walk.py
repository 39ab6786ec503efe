"""The walk down the schedule tree of one nest, which turns it into loops around definitions.

A place is the inside of a loop, or the top of the nest. There, bounds inference (`hjit.sched.analysis.bounds`) finds
the regions of the stages that begin at the place, `sliding_windows` the part of them that earlier iterations have not
computed, and `buffers` their memory; then follows a nest for each. A loop becomes vectors, copies or iterations, with a
strategy for the last one (`tails`). A computation becomes stores (`innermost`), or one reduction over the loops around
it (`reductions`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hjit.errors import SlidingError
from hjit.kernels.lower.loopir import For, If, ResetWindow, SlidingProduce, Stmt, VectorLoop
from hjit.kernels.lower.placing import buffers, innermost, reductions, scans, sliding_windows, tails
from hjit.kernels.lower.placing.context import NestContext, Stmts, definition_of
from hjit.kernels.lower.placing.environment import Env, Remaining, not_negative
from hjit.kernels.lower.placing.inner_loops import chain_of, step_of, vectors_below
from hjit.kernels.lower.placing.sliding_windows import SlidingSite, Window
from hjit.sched.analysis.bounds import Region
from hjit.sched.language.build import flattened
from hjit.sched.language.definitions import is_associative, is_direct
from hjit.sched.language.tree import Compute, Loop, Node, computes, dims_of, own
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import Poly, Var, poly

Body = Callable[[Env], Stmts]


def visit(n: NestContext, node: Node, env: Env) -> Stmts:
    """Lower a loop or a computation to statements."""
    match node:
        case Compute():
            return (innermost.block_of(n, node, env.intervals[node.stage]),)
        case Loop():
            return _loop(n, node, env)
    raise AssertionError(node)


# -- places


def place(n: NestContext, children: tuple[Node, ...], env: Env) -> tuple[Stmts, int]:
    """The statements inside a loop, and the number of its warm-up iterations."""
    items, stores = flattened(children)
    new = list(dict.fromkeys(x.stage for x in items if x.stage not in env.intervals))
    if not new and not stores:
        return tuple(s for x in items for s in visit(n, x, env)), 0
    lets: list[Stmt] = []
    site = _site(n, [c for x in items for c in computes(x)], new, env)
    found = sliding_windows.infer(site, n.namer(lets), n.namer(lets, ".first"))
    held = {s.stage: (env.depth, found.regions[s.stage]) for s in stores if s.stage in found.regions}
    env = replace(env, stores=env.stores | held, regions={**env.regions, **found.regions})
    always, body = lets, list[Stmt]()  # statements of all iterations, and of those after the warm-up
    for k, x in enumerate(items):
        if x.stage not in new:
            body += visit(n, x, env)
            continue
        always += buffers.allocate(n, x.stage, env.stores[x.stage][1], env.in_thread)
        region, window = found.regions[x.stage], found.windows.get(x.stage)
        if window is None:
            computed = _realise(n, x, region, env)
        else:
            is_last = all(y.stage != x.stage for y in items[k + 1 :])
            computed = (_slide(n, x, window, region, env, is_last),)
        if x.stage in found.early:
            always += (*_when_begun(site, body), *computed)
            body = []
        else:
            body += computed
    return (*always, *(_when_begun(site, body) if found.warm_up else body)), found.warm_up


def _site(n: NestContext, computed: list[Compute], new: list[str], env: Env) -> SlidingSite:
    """The place, for bounds inference."""
    sliding = {s: env.regions[s] for s in new if s in env.stores and env.stores[s][0] < env.depth}
    return SlidingSite(
        n.reads, computed, env.intervals, n.round_up, env.regions, new, env.iteration, sliding, n.vectors
    )


def _realise(n: NestContext, node: Loop | Compute, region: Region, env: Env) -> Stmts:
    """One nest of a stage, over the required part of a region."""
    group = n.reads.group(node.stage, own(node, node.stage).definitions[-1])
    return visit(n, node, env.opened(node.stage, group.dims(region)))


def _slide(n: NestContext, x: Loop | Compute, w: Window, region: Region, env: Env, is_last: bool) -> SlidingProduce:
    """Compute the new part of a stage in an iteration."""
    var = n.var(f"{x.stage}.new")
    stmts = _realise(n, x, w.part(region, poly(var)), env)
    if not w.new:  # computed whole in the first iteration; updates must not be repeated in later ones
        stmts = (If(w.end - poly(var) - 1, stmts),)
    return SlidingProduce(x.stage, var, w.first, w.end, stmts, is_last, w.axis, w.window, w.new)


def _when_begun(site: SlidingSite, body: list[Stmt]) -> Stmts:
    """`body`, skipped in warm-up iterations."""
    var, _, begin = site.loop
    return (If(poly(var) - begin, tuple(body)),) if body else ()


# -- loops


def _loop(n: NestContext, node: Loop, env: Env) -> Stmts:
    if node.size is not None and (node.stage, node.dim) in env.absorbed:
        return place(n, node.children, env)[0]
    compute = own(node, node.stage)
    d = definition_of(n.reads, compute)
    if dims_of(node.dim)[0] >= len(d.dims) and is_associative(d) and is_direct(d):
        return _reduction(n, node, compute, env)
    scan = scans.scan_over(n, node, compute, env)
    if scan is not None:
        return (scan,)
    return scans.from_start(n, node, compute, _run(n, node, env, _inside(n, node)))


def _inside(n: NestContext, node: Loop) -> Body:
    return lambda env: place(n, node.children, env)[0]


def _reduction(n: NestContext, node: Loop, compute: Compute, env: Env) -> Stmts:
    """Accumulators in registers, inside the loops over other dimensions."""
    chain, d = chain_of(node), definition_of(n.reads, compute)
    pure = reductions.next_pure_loop(chain, d, env)
    if pure is not None:
        return _run(n, pure, env, lambda e: _reduction(n, node, compute, e))
    env, loops = reductions.headers(n, chain, d, env)
    return (reductions.reduce_over(n, compute, env, loops),)


def _run(n: NestContext, node: Loop, env: Env, body: Body) -> Stmts:
    """A loop around `body`; loops that are neither unrolled nor vectors have the children of the node instead."""
    env = env.fused(node)
    left = env.remains(node)
    if node.kind in ("gpu_thread", "gpu_lane"):
        return (_threads(n, node, env, left),)
    vectors = vectors_below(node)
    if vectors is not None:
        return (_vectors(n, node, env, left, *vectors, body),)
    if node.kind == "unroll":
        return _unrolled(n, node, env, left, body)
    return iterations(n, node, env, left.low, left.end)


def _threads(n: NestContext, node: Loop, env: Env, left: Remaining) -> Stmt:
    """A loop whose iterations are distributed to the threads of a block."""
    step, var = step_of(node), n.loop_var(node)
    inside = replace(env.tile(node, poly(var), step).deeper(var, step, left.low), in_thread=True)
    body, _ = place(n, node.children, inside)
    for stage in _sliding(body):
        advice = "store it inside that loop"
        raise SlidingError(stage, f"{stage} cannot slide along {var}, whose iterations threads share; {advice}")
    length = left.interval.length
    most = -(-length.const // step) if length.is_const else None
    return For(var, left.low, left.end, step, body, kind="gpu_thread", most=most)


def _vectors(n: NestContext, node: Loop, env: Env, left: Remaining, lanes: int, copies: int, body: Body) -> Stmt:
    """Vectors over the remaining range, and single elements where there is no room for a vector."""
    var = n.loop_var(node)
    inside = env.at(node, poly(var)).absorb(node).deeper(var, 1, left.low)
    single = replace(inside, scalar=True)
    low, end = left.low, left.end
    if lanes == 1:
        return For(var, low, end, 1, body(single))
    tail = tails.vector_tail(n.reads, node)
    return VectorLoop(var, low, end, low, end, lanes, copies, 1, tail, body(inside), body(single))


def _unrolled(n: NestContext, node: Loop, env: Env, left: Remaining, body: Body) -> Stmts:
    """A copy of the body for each iteration, or a loop if their number is unknown or too large."""
    step, size = step_of(node), left.known
    d = definition_of(n.reads, own(node, node.stage))
    is_pure = dims_of(node.dim)[-1] < len(d.dims)
    if size is None and node.size is not None:
        s = left.interval
        full = Remaining(Interval(s.low, s.low + (node.size - 1), s.base, s.first, s.last), node.size)
        rest = _not_unrolled(n, node, env, left, body)
        many = _unrolled(n, node, env.within(node, full.interval, node.size), full, body)
        return (If(left.end - left.low - node.size, many, (rest,)),)
    is_sequential = d.order == "sequential" and not is_pure
    if size is None or size % step or (env.scalar and is_pure) or is_sequential:
        return (_not_unrolled(n, node, env, left, body),)
    var = n.loop_var(node, ".unrolled")
    inside = env.at(node, poly(var)) if step == 1 else env.within(node, Interval.tile(poly(var), step), step)
    return (For(var, left.low, left.end, step, body(inside), kind="unroll_and_jam" if is_pure else "unroll"),)


def _not_unrolled(n: NestContext, node: Loop, env: Env, left: Remaining, body: Body) -> Stmt:
    """A loop in place of copies of code. No stage begins inside an unrolled loop, so none slides along it."""
    var = n.loop_var(node)
    inside = env.at(node, poly(var)).absorb(node).deeper(var, 1, left.low)
    return For(var, left.low, left.end, 1, body(inside))


def iterations(n: NestContext, node: Loop, env: Env, begin: Poly, end: Poly) -> Stmts:
    """A serial loop over part of the remaining range, with the size of the next inner loop as its step."""
    vectors = vectors_below(node)
    if vectors is not None and node.kind != "vector":
        part = Remaining(replace(env.remains(node).interval, low=begin, high=end - 1))
        return (_vectors(n, node, env.fused(node), part, *vectors, _inside(n, node)),)
    env = env.fused(node)
    left = env.remains(node)
    step = _step_within(node, left.interval)
    var = n.loop_var(node)
    v = poly(var)
    if step == 1:
        return _counted(n, node, For(var, begin, end, 1, ()), env.at(node, v))
    full = env.within(node, Interval.tile(v, step), step)
    known = left.known if begin == left.low and end == left.end else None
    match tails.serial_tail(n.reads, node, step, known):
        case "exact":
            return _counted(n, node, For(var, begin, end, step, ()), full)
        case "clip":
            return _clipped(n, node, var, env, begin, end)
        case "peel":
            stop = begin + not_negative(end - begin, left.interval.partial) // step * step
            whole = _counted(n, node, For(var, begin, stop, step, ()), full)
            return (*whole, *_one_by_one(n, node, env, stop, end))
        case "shift_inwards":
            if tails.is_unrolled(node):
                few = _one_by_one(n, node, env, begin, end)
            else:
                few = _clipped(n, node, var, env, begin, end)
            many = _counted(n, node, For(var, begin, end, step, (), left.end), full)
            return (If(left.end - left.low - step, many, few),)


def _step_within(node: Loop, interval: Interval) -> int:
    """The step of a loop: not more than its whole range, as unrolled code for more would never run."""
    step, most = step_of(node), interval.length
    is_less = most.is_const and 0 < most.const < step
    return most.const if is_less and tails.is_unrolled(node) else step


def _clipped(n: NestContext, node: Loop, var: Var, env: Env, begin: Poly, end: Poly) -> Stmts:
    """The loop with a last iteration that may be shorter."""
    step = step_of(node)
    left = env.remains(node).interval
    shorter = Interval.tile(poly(var), step, left.high)
    most = -(-left.length.const // step) if left.length.is_const else None
    return _counted(n, node, For(var, begin, end, step, (), most=most), env.within(node, shorter))


def _one_by_one(n: NestContext, node: Loop, env: Env, begin: Poly, end: Poly) -> Stmts:
    """The loop in steps of one, those over the same dimension inside it gone."""
    var = n.loop_var(node)
    return _counted(n, node, For(var, begin, end, 1, ()), env.at(node, poly(var)).absorb(node))


def _counted(n: NestContext, node: Loop, loop: For, env: Env) -> Stmts:
    """A loop without a body, around the children of a node, with warm-up iterations before its first one for these."""
    body, warm_up = place(n, node.children, env.deeper(loop.var, loop.step, loop.begin))
    sliding = _sliding(body)
    if loop.limit is not None and sliding:
        why = "its last iteration is shifted inwards; store it inside that loop"
        raise SlidingError(sliding[0], f"{sliding[0]} cannot slide along {loop.var}: {why}")
    resets = tuple(map(ResetWindow, sliding))
    most = None if loop.most is None else loop.most + warm_up
    return (*resets, replace(loop, begin=loop.begin - warm_up * loop.step, body=body, most=most))


def _sliding(body: Stmts) -> list[str]:
    """The stages that slide along the loop with this body."""
    return list(dict.fromkeys(s.stage for s in body if isinstance(s, SlidingProduce)))
