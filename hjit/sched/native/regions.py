"""Required regions: `hjit.sched.analysis.bounds`, `footprint` and `sites._regions` in the compiled subset of Python.

It is written in the subset of Python that `hjit.kernels.functions` compiles (no objects, no allocation), and also runs
as plain Python. Functions marked `compiled` may call each other; `hjit.tuning.featuriser` compiles them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.sched.native import records as rec
from hjit.sched.native.records import Floats1, Floats2, NestTables, Tables, Work

FUNCTIONS: list[Callable[..., Any]] = []  # in the order in which they are compiled


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    """Note a function that is to be compiled."""
    FUNCTIONS.append(f)
    return f


# -- numbers


@compiled
def floor_div(a: float, b: float) -> float:
    """Quotients of whole numbers below 2**53, so that rounding them is exact."""
    return np.floor(a / b)


@compiled
def ceil_div(a: float, b: float) -> float:
    return np.ceil(a / b)


@compiled
def ratio(a: float, b: float) -> float:
    return a / max(b, 1.0)


@compiled
def power_of_two(n: float) -> float:
    return 2.0 ** np.ceil(np.log2(n))


@compiled
def clip(x: float, n: float) -> float:
    return min(max(x, 0.0), n - 1.0)


@compiled
def gcd(a: int, b: int) -> int:
    while b != 0:
        a, b = b, a % b
    return a


@compiled
def reduced(w: Work, numerator: int, denominator: int) -> tuple[int, int]:
    """A fraction in lowest terms."""
    if numerator == 0:
        return 0, 1
    by = gcd(abs(numerator), denominator)
    numerator, denominator = numerator // by, denominator // by
    if abs(numerator) >= 1 << 31 or denominator >= 1 << 31:
        w.status[0] = rec.TOO_LARGE
        return 0, 1
    return numerator, denominator


@compiled
def multiplied(w: Work, a: int, b: int, c: int, d: int) -> tuple[int, int]:
    """a/b * c/d; the denominators are positive, but perhaps d."""
    if d < 0:
        c, d = -c, -d
    return reduced(w, a * c, b * d)


@compiled
def added(w: Work, a: int, b: int, c: int, d: int) -> tuple[int, int]:
    """a/b + c/d."""
    if a == 0:
        return c, d
    if c == 0:
        return a, b
    return reduced(w, a * d + c * b, b * d)


# -- indices over intervals


@compiled
def mirrored(mode: int, low: float, high: float, n: float) -> tuple[float, float]:
    edge = 1.0 if mode == 2 else 0.0
    end = n * 2.0 - 2.0 + edge
    if mode == 0:
        return low, high
    return min(low, end - high), max(high, -low - edge)


@compiled
def interval(g: Tables, at: int, dims: Floats2, stack: Floats2) -> tuple[float, float]:
    """The interval of an index over those of the dimensions, [dimensions, 2]."""
    code, top = g.ints, 0
    while code[at] != rec.END:
        op = code[at]
        if op == rec.CONST:
            top += 1
            stack[top, 0], stack[top, 1] = code[at + 1], code[at + 2]
            at += 3
        elif op == rec.DIM:
            k, c = code[at + 1], code[at + 2]
            if c > 0:
                stack[top, 0] += dims[k, 0] * c
                stack[top, 1] += dims[k, 1] * c
            else:
                stack[top, 0] += dims[k, 1] * c
                stack[top, 1] += dims[k, 0] * c
            at += 3
        elif op == rec.TIMES:
            c = code[at + 1]
            top -= 1
            if c > 0:
                stack[top, 0] += stack[top + 1, 0] * c
                stack[top, 1] += stack[top + 1, 1] * c
            else:
                stack[top, 0] += stack[top + 1, 1] * c
                stack[top, 1] += stack[top + 1, 0] * c
            at += 2
        elif op == rec.QUOTIENT:
            n = float(code[at + 1])
            stack[top, 0], stack[top, 1] = floor_div(stack[top, 0], n), floor_div(stack[top, 1], n)
            at += 2
        elif op == rec.REMAINDER:
            n = float(code[at + 1])
            start = floor_div(stack[top, 0], n) * n
            if stack[top, 1] < start + n:
                stack[top, 0] -= start
                stack[top, 1] -= start
            else:
                stack[top, 0], stack[top, 1] = 0.0, n - 1.0
            at += 2
        elif op == rec.LEAST:
            top -= 1
            stack[top, 0] = min(stack[top, 0], stack[top + 1, 0])
            stack[top, 1] = min(stack[top, 1], stack[top + 1, 1])
            at += 1
        elif op == rec.MOST:
            top -= 1
            stack[top, 0] = max(stack[top, 0], stack[top + 1, 0])
            stack[top, 1] = max(stack[top, 1], stack[top + 1, 1])
            at += 1
        elif op == rec.MIRROR:
            n = float(code[at + 2])
            low, high = mirrored(code[at + 1], stack[top, 0], stack[top, 1], n)
            stack[top, 0], stack[top, 1] = clip(low, n), clip(high, n)
            at += 3
        else:  # WRAP
            n = float(code[at + 1])
            if not (stack[top, 0] >= 0.0 and stack[top, 1] < n):
                stack[top, 0], stack[top, 1] = 0.0, n - 1.0
            stack[top, 0], stack[top, 1] = clip(stack[top, 0], n), clip(stack[top, 1], n)
            at += 2
    return stack[top, 0], stack[top, 1]


@compiled
def hull(g: Tables, axis: int, dims: Floats2, stack: Floats2) -> tuple[float, float]:
    """What is read along an axis: around all intervals there."""
    at = g.ints[axis + rec.X_INTERVALS]
    low, high = interval(g, g.ints[at + 1], dims, stack)
    for k in range(1, g.ints[at]):
        a, b = interval(g, g.ints[at + 1 + k], dims, stack)
        low, high = min(low, a), max(high, b)
    return low, high


@compiled
def read_region(g: Tables, footprint: int, dims: Floats2, found: Floats2, stack: Floats2) -> None:
    """`Footprint.region`: the region of an array that is read, into [axes, 2]."""
    shape = g.ints[footprint + rec.W_FLOATS]
    for axis in range(g.ints[footprint + rec.W_NDIM]):
        low, high = hull(g, footprint + rec.W_AXES + axis * rec.AXIS, dims, stack)
        found[axis, 0], found[axis, 1] = clip(low, g.floats[shape + axis]), clip(high, g.floats[shape + axis])


# -- groups of definitions


@compiled
def group_dims(g: Tables, group: int, region: Floats2, at: int, found: Floats2) -> None:
    """`DefinitionGroup.dims`: the iterations that write a region (two columns of [axes, ...], from `at` on)."""
    extents = g.ints[group + rec.G_FLOATS] + 1
    for k in range(g.ints[group + rec.G_DIMS]):
        found[k, 0], found[k, 1] = 0.0, g.floats[extents + k] - 1.0
    rows = g.ints[group + rec.G_INVERSE]
    for row in range(rows + 1, rows + 1 + g.ints[rows] * rec.INVERSE, rec.INVERSE):
        k, axis = g.ints[row + rec.I_DIM], g.ints[row + rec.I_AXIS]
        low, high = region[axis, at], region[axis, at + 1]
        if g.ints[row + rec.I_SOLVED]:
            c, rest, n = (
                float(g.ints[row + rec.I_FACTOR]),
                float(g.ints[row + rec.I_REST]),
                float(g.ints[row + rec.I_ELEMENTS]),
            )
            low, high = max(ceil_div(low - rest, c), 0.0), min(floor_div(high - rest, c), n - 1.0)
        found[k, 0], found[k, 1] = low, high


@compiled
def reading(g: Tables, group: int, dims: Floats2) -> None:
    """`DefinitionGroup.reading`, in place."""
    if not g.ints[group + rec.G_PLAIN]:
        for k in range(g.ints[group + rec.G_DIMS]):
            dims[k, 1] = max(dims[k, 0], dims[k, 1])


@compiled
def group_lengths(g: Tables, group: int, dims: Floats2, found: Floats1) -> None:
    """`DefinitionGroup.lengths`, into [dimensions]."""
    extents = g.ints[group + rec.G_FLOATS] + 1
    for k in range(g.ints[group + rec.G_DIMS]):
        least = min(g.floats[extents + k], 1.0) if g.ints[group + rec.G_PLAIN] else 0.0
        found[k] = max(dims[k, 1] - dims[k, 0] + 1.0, least)


@compiled
def points(g: Tables, group: int, lengths: Floats1) -> float:
    """`DefinitionGroup.points`."""
    at = g.ints[group + rec.G_DEFINITIONS]
    total = 0.0
    for d in range(g.ints[at]):
        product = 1.0
        for k in range(g.ints[at + 1 + d]):
            product *= lengths[k]
        total += product
    return total


@compiled
def copy_dims(w: Work, env: int, count: int, found: Floats2) -> None:
    """The ranges of the dimensions of an environment's stage, into [dimensions, 2]."""
    for k in range(count):
        found[k, 0], found[k, 1] = w.dims[env, k, rec.LOW], w.dims[env, k, rec.HIGH]


# -- what is needed at a place


@compiled
def complete(g: Tables, w: Work, s: int, array: int) -> None:
    """`SizedGraph.completed`, of what is needed of a stage into `Work.wanted` and `Work.region`."""
    shape = g.ints[array + rec.A_FLOATS] + 2
    for axis in range(g.ints[array + rec.A_NDIM]):
        n = g.floats[shape + axis]
        is_whole, step = g.ints[array + rec.A_AXES + 2 * axis], float(g.ints[array + rec.A_AXES + 2 * axis + 1])
        low, high = -rec.FAR, rec.FAR
        if w.used[s] and not is_whole and w.needed[s, axis] == rec.SOME:
            low, high = w.needs[s, axis, 0], w.needs[s, axis, 1]
            if step > 1.0 and not (low == -rec.FAR and high == rec.FAR):
                low, high = floor_div(low, step) * step, floor_div(high, step) * step + (step - 1.0)
        w.wanted[axis, 0], w.wanted[axis, 1] = low, high
        w.region[axis, 0], w.region[axis, 1] = clip(low, n), clip(high, n)


@compiled
def slide(g: Tables, w: Work, b: int, s: int, array: int, axis: int, loop: int) -> None:
    """`hjit.sched.analysis.sites.steady`, of one axis."""
    speed, per = w.rates[s, axis, 0], w.rates[s, axis, 1]
    if speed <= 0 or (w.wanted[axis, 0] == -rec.FAR and w.wanted[axis, 1] == rec.FAR):
        return
    low, high = w.region[axis, 0], w.region[axis, 1]
    c = g.ints[array + rec.A_AXES + 2 * axis + 1]
    new = min(ceil_div(w.loops[loop, rec.O_STEP] * float(speed), float(per * c)) * float(c), high - low + 1.0)
    several = w.loops[loop, rec.O_LENGTH] > w.loops[loop, rec.O_STEP]
    more = w.slacks[s, axis, 0] / w.slacks[s, axis, 1]
    w.required[b, s, axis, rec.R_PART_LOW] = high - (new - 1.0) if several else low
    w.required[b, s, axis, rec.R_WINDOW] = w.wanted[axis, 1] - w.wanted[axis, 0] + 1.0 + more if several else 0.0
    w.required[b, s, axis, rec.R_SLIDES] = 1.0


@compiled
def begin(g: Tables, n: NestTables, w: Work, b: int, s: int, env: int, any_slides: bool) -> None:
    """What is required of a stage that begins at a place, given what its consumers need."""
    array = n.stages[s, rec.T_ARRAY]
    complete(g, w, s, array)
    loop = w.envs[env, rec.E_INNER]
    for axis in range(g.ints[array + rec.A_NDIM]):
        low, high = w.region[axis, 0], w.region[axis, 1]
        w.required[b, s, axis, rec.R_LOW], w.required[b, s, axis, rec.R_HIGH] = low, high
        w.required[b, s, axis, rec.R_PART_LOW], w.required[b, s, axis, rec.R_PART_HIGH] = low, high
        w.required[b, s, axis, rec.R_SLIDES] = 0.0
        w.slacks[s, axis, 0], w.slacks[s, axis, 1] = w.rates[s, axis, 2], w.rates[s, axis, 3]
        if any_slides and w.sliding[s] and loop >= 0 and w.used[s]:
            slide(g, w, b, s, array, axis, loop)
            if w.rates[s, axis, 0] > 0:
                w.slacks[s, axis, 0], w.slacks[s, axis, 1] = 0, 1


@compiled
def rates_of_dims(g: Tables, n: NestTables, w: Work, c: int, env: int) -> None:
    """How fast the dimensions of a computation move with the loop around a place, and their slack, into
    `Work.dim_rates`."""
    group, s = n.computations[c, rec.C_GROUP], n.computations[c, rec.C_STAGE]
    for k in range(g.ints[group + rec.G_DIMS]):
        w.dim_rates[k, 0], w.dim_rates[k, 1], w.dim_rates[k, 2], w.dim_rates[k, 3] = 0, 1, 0, 1
    loop, is_open = w.envs[env, rec.E_INNER], w.opened[env, s] >= 0
    if loop >= 0 and n.nodes[loop, rec.N_STAGE] == s:
        key = n.nodes[loop, rec.N_KEY]
        rest = 1.0
        for k in range(1, n.keys[key, 0]):
            rest *= g.floats[g.ints[group + rec.G_FLOATS] + 1 + n.keys[key, 1 + k]]
        w.dim_rates[n.keys[key, 1], 0], w.dim_rates[n.keys[key, 1], 1] = reduced(w, 1, max(int(rest), 1))
    rows = g.ints[group + rec.G_INVERSE]
    for row in range(rows + 1, rows + 1 + g.ints[rows] * rec.INVERSE, rec.INVERSE):
        k, axis, c1 = g.ints[row + rec.I_DIM], g.ints[row + rec.I_AXIS], g.ints[row + rec.I_FACTOR]
        if not is_open:
            w.dim_rates[k, 2], w.dim_rates[k, 3] = multiplied(w, w.slacks[s, axis, 0], w.slacks[s, axis, 1], 1, c1)
            if w.used[s]:
                w.dim_rates[k, 0], w.dim_rates[k, 1] = multiplied(w, w.rates[s, axis, 0], w.rates[s, axis, 1], 1, c1)


@compiled
def move(g: Tables, w: Work, t: int, footprint: int) -> None:
    """How fast what is needed of a source moves, and its slack: the most of all consumers."""
    for axis in range(g.ints[footprint + rec.W_NDIM]):
        record = footprint + rec.W_AXES + axis * rec.AXIS
        at = g.ints[record + rec.X_RATES]
        speed, per, slack, by = 0, 1, g.ints[record + rec.X_SLACK], 1
        for row in range(at + 1, at + 1 + 3 * g.ints[at], 3):
            k, c, d = g.ints[row], g.ints[row + 1], g.ints[row + 2]
            a, b = multiplied(w, w.dim_rates[k, 0], w.dim_rates[k, 1], c, d)
            speed, per = added(w, speed, per, a, b)
            a, b = multiplied(w, w.dim_rates[k, 2], w.dim_rates[k, 3], abs(c), d)
            slack, by = added(w, slack, by, a, b)
        if not w.used[t] or speed * w.rates[t, axis, 1] > w.rates[t, axis, 0] * per:
            w.rates[t, axis, 0], w.rates[t, axis, 1] = speed, per
        if slack * w.rates[t, axis, 3] > w.rates[t, axis, 2] * by:
            w.rates[t, axis, 2], w.rates[t, axis, 3] = slack, by


@compiled
def use(g: Tables, n: NestTables, w: Work, source: int, dims: Floats2, any_slides: bool) -> None:
    """Note what one consumer needs of a source."""
    t, footprint = n.sources[source, rec.S_STAGE], n.sources[source, rec.S_FOOTPRINT]
    for axis in range(g.ints[footprint + rec.W_NDIM]):
        record = footprint + rec.W_AXES + axis * rec.AXIS
        if not g.ints[record + rec.X_MOVING]:
            w.needed[t, axis] = rec.ANY
        elif w.needed[t, axis] != rec.ANY:
            low, high = hull(g, record, dims, w.stack)
            if w.needed[t, axis] == rec.SOME:
                low, high = min(low, w.needs[t, axis, 0]), max(high, w.needs[t, axis, 1])
            w.needed[t, axis], w.needs[t, axis, 0], w.needs[t, axis, 1] = rec.SOME, low, high
    if any_slides:
        move(g, w, t, footprint)
    w.used[t] = 1


@compiled
def is_among(n: NestTables, s: int, first: int, last: int) -> bool:
    """Is a stage computed by some computations?"""
    for c in range(first, last):
        if n.computations[c, rec.C_STAGE] == s:
            return True
    return False


@compiled
def regions(g: Tables, n: NestTables, w: Work, b: int, env: int, first: int, last: int, any_slides: bool) -> None:
    """What is required of the stages that begin under a place where some computations are, into `Work.required[b]`.

    Args:
        any_slides: do some, those of `Work.sliding`?
    """
    for c in range(first, last):
        s = n.computations[c, rec.C_STAGE]
        w.used[s] = 0
        for axis in range(w.needed.shape[1]):
            w.needed[s, axis] = rec.NONE
            w.rates[s, axis, 0], w.rates[s, axis, 1], w.rates[s, axis, 2], w.rates[s, axis, 3] = 0, 1, 0, 1
    before = -1
    for position in range(len(n.order)):
        c = n.order[position]
        if not first <= c < last:
            continue
        group, s = n.computations[c, rec.C_GROUP], n.computations[c, rec.C_STAGE]
        at = w.opened[env, s]
        if at < 0:
            if s != before:
                begin(g, n, w, b, s, env, any_slides)
            group_dims(g, group, w.required[b, s], rec.R_PART_LOW, w.one)
        else:
            copy_dims(w, at, g.ints[group + rec.G_DIMS], w.one)
        before = s
        reading(g, group, w.one)
        if any_slides:
            rates_of_dims(g, n, w, c, env)
        sources = n.computations[c, rec.C_SOURCES]
        for source in range(sources, sources + n.computations[c, rec.C_SOURCE_COUNT]):
            t = n.sources[source, rec.S_STAGE]
            if t >= 0 and t != s and w.opened[env, t] < 0 and is_among(n, t, first, last):
                use(g, n, w, source, w.one, any_slides)
