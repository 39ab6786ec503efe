"""The features of computations: `hjit.sched.features.schedule_features` in the compiled subset of Python; see
`regions`."""

from __future__ import annotations

from hjit.model.feature_names import SCHEDULE
from hjit.sched.native import records as rec
from hjit.sched.native.records import Floats1, Floats2, Floats3, NestTables, Tables, Work
from hjit.sched.native.regions import (
    ceil_div,
    compiled,
    copy_dims,
    floor_div,
    group_dims,
    group_lengths,
    points,
    ratio,
    read_region,
)
from hjit.sched.native.sites import (
    at_root,
    begin_nest,
    begin_stages,
    begun_env,
    enter,
    times,
)

(
    NUM_REALIZATIONS, NUM_PRODUCTIONS, POINTS_REALIZATION, POINTS_PRODUCTION, POINTS_TOTAL, POINTS_MINIMUM,
    INNERMOST, INNERMOST_PURE, UNROLLED, INNER_PARALLELISM, OUTER_PARALLELISM,
    BYTES_REALIZATION, BYTES_PRODUCTION, BYTES_ROOT, ROW_REALIZATION, ROW_PRODUCTION, ROW_ROOT, INLINED_CALLS,
    READ_BYTES_REALIZATION, READ_LINES_REALIZATION, ALLOCATION_READ, VECTOR_SIZE, NATIVE_SIZE, NUM_VECTORS, NUM_SCALARS,
    _SCALARS_A_VECTOR, _VECTORS_A_VECTOR, _SCALARS_A_SCALAR, READ_BYTES_VECTOR, READ_LINES_VECTOR, READ_BYTES_TASK,
    READ_LINES_TASK, BYTES_TASK, ROW_TASK, SET, SET_TASK, SET_PRODUCTION, SET_REALIZATION, _SET_ROOT, FEATURES,
) = range(40)  # fmt: skip
assert len(SCHEDULE) == FEATURES


@compiled
def points_of(g: Tables, w: Work, group: int, s: int, low: int) -> float:
    """How many points compute the part of a stage that columns `low` and after it of its site say."""
    group_dims(g, group, w.site_axes[s], low, w.one)
    group_lengths(g, group, w.one, w.lengths)
    return points(g, group, w.lengths)


@compiled
def count(g: Tables, n: NestTables, w: Work, c: int, env: int, tasks_count: float, is_head: bool, row: Floats1) -> None:
    """How often, how much, and how much at once."""
    group, s = n.computations[c, rec.C_GROUP], n.computations[c, rec.C_STAGE]
    realizations, productions, runs = (
        w.sites[s, rec.Z_REALIZATIONS],
        w.sites[s, rec.Z_COUNT],
        w.sites[s, rec.Z_RUNS],
    )
    opened = w.envs[env, rec.E_OPENED]
    for k in range(g.ints[group + rec.G_DIMS]):
        w.lengths[k] = w.dims[opened, k, rec.LENGTH]
    at_once = points(g, group, w.lengths)
    slid = points_of(g, w, group, s, rec.Z_FIRST_LOW) + at_once * (w.sites[s, rec.Z_TURNS] - 1.0)
    each = min(points_of(g, w, group, s, rec.Z_RUN_LOW), slid) * ratio(runs, realizations)
    row[NUM_REALIZATIONS], row[NUM_PRODUCTIONS] = realizations, productions
    row[POINTS_REALIZATION], row[POINTS_PRODUCTION] = each, at_once
    row[POINTS_TOTAL] = each * realizations
    row[POINTS_MINIMUM] = g.floats[g.ints[group + rec.G_FLOATS]]
    row[INNER_PARALLELISM] = tasks_count if is_head else 1.0
    row[OUTER_PARALLELISM] = 1.0 if is_head else tasks_count


@compiled
def tile(g: Tables, n: NestTables, w: Work, c: int, env: int, row: Floats1) -> None:
    """The innermost tile."""
    group = n.computations[c, rec.C_GROUP]
    opened, at = w.envs[env, rec.E_OPENED], w.envs[env, rec.E_TILE]
    for k in range(g.ints[group + rec.G_DIMS]):
        w.lengths[k] = w.dims[opened, k, rec.LENGTH]
    pure, every = 1.0, 1.0
    if at >= 0:
        for key in range(n.keys.shape[0]):
            if w.known[at, key]:
                for k in range(n.keys[key, 0]):
                    w.lengths[n.keys[key, 1 + k]] = 1.0
        for key in range(n.keys.shape[0]):
            if w.known[at, key]:
                every *= w.left[at, key, rec.L_LENGTH]
                if n.keys[key, 1] < g.ints[group + rec.G_PURE]:
                    pure *= w.left[at, key, rec.L_LENGTH]
    for k in range(g.ints[group + rec.G_DIMS]):
        every *= w.lengths[k]
        if k < g.ints[group + rec.G_PURE]:
            pure *= w.lengths[k]
    copies, always = 1.0, False
    loops = n.computations[c, rec.C_LOOPS]
    for k in range(n.lists[loops], 0, -1):
        node = n.lists[loops + k]
        kind = n.nodes[node, rec.N_KIND]
        if kind <= rec.PARALLEL and n.keys[n.nodes[node, rec.N_KEY], 1] < g.ints[group + rec.G_PURE]:
            break
        if kind == rec.UNROLL:
            if n.nodes[node, rec.N_OPTIONAL]:
                copies *= ratio(w.loops[node, rec.O_SIZE], w.loops[node, rec.O_STEP])
            else:
                always = True
    row[INNERMOST], row[INNERMOST_PURE] = every, pure
    row[UNROLLED] = pure if always or copies > 1.0 else 1.0


@compiled
def row_bytes(g: Tables, memory: int, axes: Floats2, low: int) -> float:
    """Bytes along the innermost dimension of the part that columns `low` and after it of [axes, ...] say."""
    total, axes_count = g.floats[g.ints[memory + rec.M_FLOATS]], g.ints[memory + rec.M_NDIM]
    for k in range(axes_count - g.ints[memory + rec.M_ROW], axes_count):
        axis = g.ints[memory + rec.M_ORDER + k]
        total *= axes[axis, low + 1] - axes[axis, low] + 1.0
    return total


@compiled
def own_sizes(g: Tables, n: NestTables, w: Work, s: int, row: Floats1) -> None:
    """Bytes of the stage itself at the sites."""
    memory, root = n.stages[s, rec.T_MEMORY], n.stages[s, rec.T_ROOT]
    at, axes = g.ints[memory + rec.M_FLOATS], g.ints[memory + rec.M_NDIM]
    row[BYTES_REALIZATION] = w.sites[s, rec.Z_BYTES]
    row[ROW_REALIZATION] = g.floats[at]
    for k in range(axes - g.ints[memory + rec.M_ROW], axes):
        row[ROW_REALIZATION] *= w.site_axes[s, g.ints[memory + rec.M_ORDER + k], rec.Z_LENGTH]
    at = g.ints[root + rec.M_FLOATS]
    row[BYTES_ROOT], row[ROW_ROOT] = g.floats[at], g.floats[at]
    row[BYTES_PRODUCTION], row[BYTES_TASK] = g.floats[at], g.floats[at]
    for axis in range(axes):
        row[BYTES_ROOT] *= g.floats[at + 1 + axis]
        site = w.site_axes[s, axis]
        row[BYTES_PRODUCTION] *= site[rec.Z_HIGH] - site[rec.Z_LOW] + 1.0
        row[BYTES_TASK] *= site[rec.Z_TASK_HIGH] - site[rec.Z_TASK_LOW] + 1.0
    for k in range(axes - g.ints[root + rec.M_ROW], axes):
        row[ROW_ROOT] *= g.floats[at + 1 + g.ints[root + rec.M_ORDER + k]]
    row[ROW_PRODUCTION] = row_bytes(g, root, w.site_axes[s], rec.Z_LOW)
    row[ROW_TASK] = row_bytes(g, root, w.site_axes[s], rec.Z_TASK_LOW)


# -- reading


@compiled
def fewest(
    n: NestTables, source: int, elements: float, lines: float, loads: float, itemsize: float
) -> tuple[float, float]:
    """Bytes and contiguous pieces; where places are computed no more than there are loads."""
    if n.sources[source, rec.S_GATHERS]:
        return min(elements, loads) * itemsize, min(lines, loads)
    return elements * itemsize, lines


@compiled
def touched(g: Tables, n: NestTables, w: Work, c: int, source: int, dims: Floats2) -> tuple[float, float]:
    """Bytes of an array that iterations read, and contiguous pieces."""
    group, memory, t = n.computations[c, rec.C_GROUP], n.sources[source, rec.S_MEMORY], n.sources[source, rec.S_STAGE]
    some, loads = 1.0, 0.0
    if n.sources[source, rec.S_GATHERS]:
        group_lengths(g, group, dims, w.lengths)
        loads = points(g, group, w.lengths) * n.sources[source, rec.S_GATHERS]
    if not g.ints[group + rec.G_PLAIN]:
        group_lengths(g, group, dims, w.lengths)
        for k in range(g.ints[group + rec.G_DIMS]):
            some *= w.lengths[k]
        some = min(some, 1.0)
        for k in range(g.ints[group + rec.G_DIMS]):
            w.two[k, 0], w.two[k, 1] = dims[k, 0], max(dims[k, 0], dims[k, 1])
        read_region(g, n.sources[source, rec.S_FOOTPRINT], w.two, w.region, w.stack)
    else:
        read_region(g, n.sources[source, rec.S_FOOTPRINT], dims, w.region, w.stack)
    at, axes = g.ints[memory + rec.M_FLOATS], g.ints[memory + rec.M_NDIM]
    elements, longest = 1.0, 1.0
    for axis in range(axes):
        length = w.region[axis, 1] - w.region[axis, 0] + 1.0
        if t >= 0:
            length = min(length, w.site_axes[t, axis, rec.Z_LENGTH])
        w.lengths[axis] = length
        elements *= length
        longest = max(longest, length)
    if not g.ints[memory + rec.M_FIXED]:
        return fewest(n, source, elements * some, elements / longest * some, loads, g.floats[at])
    lines, joined = 1.0, True
    for k in range(axes - 1, -1, -1):
        axis = g.ints[memory + rec.M_ORDER + k]
        if not joined:
            lines *= w.lengths[axis]
        whole = w.site_axes[t, axis, rec.Z_LENGTH] if t >= 0 else g.floats[at + 1 + axis]
        joined = joined and w.lengths[axis] >= whole
    return fewest(n, source, elements * some, lines * some, loads, g.floats[at])


@compiled
def memory_bytes(g: Tables, n: NestTables, w: Work, source: int) -> float:
    """Of an array that is read."""
    t = n.sources[source, rec.S_STAGE]
    if t >= 0:
        return w.sites[t, rec.Z_BYTES]
    memory = n.sources[source, rec.S_MEMORY]
    at = g.ints[memory + rec.M_FLOATS]
    total = g.floats[at]
    for axis in range(g.ints[memory + rec.M_NDIM]):
        total *= g.floats[at + 1 + axis]
    return total


@compiled
def read(g: Tables, n: NestTables, w: Work, c: int, env: int, task: int, is_head: bool, row: Floats1) -> None:
    """Bytes and contiguous pieces of memory read by a realization, by a task and by a vector."""
    group, s = n.computations[c, rec.C_GROUP], n.computations[c, rec.C_STAGE]
    dims = g.ints[group + rec.G_DIMS]
    for column in (
        READ_BYTES_REALIZATION, READ_LINES_REALIZATION, READ_BYTES_TASK, READ_LINES_TASK, READ_BYTES_VECTOR,
        READ_LINES_VECTOR, ALLOCATION_READ,
    ):  # fmt: skip
        row[column] = 0.0
    sources = n.computations[c, rec.C_SOURCES]
    for source in range(sources, sources + n.computations[c, rec.C_SOURCE_COUNT]):
        is_fixed = g.ints[n.sources[source, rec.S_MEMORY] + rec.M_FIXED]
        copy_dims(w, env, dims, w.one)
        size, lines = touched(g, n, w, c, source, w.one)
        row[READ_BYTES_VECTOR] += size
        row[READ_LINES_VECTOR] += lines
        if is_fixed:
            group_dims(g, group, w.site_axes[s], rec.Z_STORED_LOW, w.one)
            size, lines = touched(g, n, w, c, source, w.one)
        row[READ_BYTES_REALIZATION] += size
        row[READ_LINES_REALIZATION] += lines
        if is_fixed:
            size = memory_bytes(g, n, w, source) * (1.0 if size > 0.0 else 0.0)
        row[ALLOCATION_READ] += size
        if is_fixed and n.sources[source, rec.S_OUTSIDE]:
            if is_head:
                copy_dims(w, task, dims, w.one)
            else:
                group_dims(g, group, w.site_axes[s], rec.Z_TASK_LOW, w.one)
            size, lines = touched(g, n, w, c, source, w.one)
            row[READ_BYTES_TASK] += size
            row[READ_LINES_TASK] += lines


# -- vectors


@compiled
def split(m: float, lanes: float, together: float, tail: int, shifts: bool) -> tuple[float, float]:
    """Whole vectors and single elements of `m` elements."""
    whole, many = floor_div(m, lanes), ceil_div(m, lanes)
    if tail == rec.PREDICATE:
        return many, 0.0
    if not shifts or tail == rec.GUARD:
        return whole, m - whole * lanes
    if m < lanes:
        return 0.0, m
    if together != lanes and m >= together:
        many = ceil_div(m, together) * (together / lanes)
    return many, 0.0


@compiled
def split_in(m: float, region: float, lanes: float, together: float, tail: int, shifts: bool) -> tuple[float, float]:
    """The same in regions; 0: there are none."""
    if region == 0.0:
        return split(m, lanes, together, tail, shifts)
    pieces = floor_div(m, region)
    a, b = split(region, lanes, together, tail, shifts)
    c, d = split(m - pieces * region, lanes, together, tail, shifts)
    return pieces * a + c, pieces * b + d


@compiled
def whole_vectors(n: NestTables, w: Work, chain: int, m: float, shifts: bool) -> tuple[float, float]:
    """`hjit.sched.features.schedule_features.whole_vectors`; `chain`: where its loops are listed."""
    loops, last = chain + 1, n.lists[chain] - 1
    lanes, tail = w.loops[n.lists[loops + last], rec.O_SIZE], n.nodes[n.lists[loops + last], rec.N_TAIL]
    first, straight = last, True
    for k in range(last, -1, -1):  # the outermost one whose inner ones are unrolled
        if k < last - 1 and n.nodes[n.lists[loops + k + 1], rec.N_KIND] != rec.UNROLL:
            straight = False
        if straight and n.nodes[n.lists[loops + k], rec.N_ALONE]:
            first = k
    together = lanes if first >= last - 1 else w.loops[n.lists[loops + first + 1], rec.O_SIZE]
    node = n.lists[loops + first]
    own = w.loops[node, rec.O_SIZE]
    a, b = split_in(m, own, lanes, together, tail, shifts)
    if own == 0.0 or not n.nodes[node, rec.N_OPTIONAL] or n.nodes[node, rec.N_KIND] != rec.SERIAL or first == 0:
        return a, b
    around = n.lists[loops + first - 1]
    if n.nodes[around, rec.N_ALONE] and own <= together:
        return split_in(m, w.loops[around, rec.O_SIZE], lanes, together, tail, shifts)
    return a, b


@compiled
def vectors(g: Tables, n: NestTables, w: Work, c: int, env: int, row: Floats1) -> None:
    """How many vectors and scalars."""
    group = n.computations[c, rec.C_GROUP]
    row[VECTOR_SIZE], row[NUM_VECTORS], row[NUM_SCALARS] = 1.0, 0.0, row[POINTS_TOTAL]
    array = n.stages[n.computations[c, rec.C_STAGE], rec.T_ARRAY]
    row[NATIVE_SIZE] = g.floats[g.ints[array + rec.A_FLOATS] + 1]
    chain = n.computations[c, rec.C_CHAIN]
    if n.lists[chain] == 0:
        return
    key = n.nodes[n.lists[chain + 1], rec.N_KEY]
    opened = w.envs[env, rec.E_OPENED]
    elements, last = 1.0, n.keys[key, n.keys[key, 0]]
    for k in range(n.keys[key, 0]):
        elements *= w.dims[opened, n.keys[key, 1 + k], rec.LENGTH]
    shifts = g.ints[group + rec.G_REPEATABLE] != 0 and last < g.ints[group + rec.G_PURE]
    many, scalars = whole_vectors(n, w, chain, elements, shifts)
    rows = ratio(row[POINTS_TOTAL], elements)
    row[VECTOR_SIZE] = w.loops[n.lists[chain + n.lists[chain]], rec.O_SIZE]
    row[NUM_VECTORS], row[NUM_SCALARS] = rows * many, rows * scalars


@compiled
def block(n: NestTables, w: Work, c: int, numbers: Floats1) -> None:
    """What loads are counted from: the lanes of a vector, and for each unrolled loop its copies and its step."""
    at = n.computations[c, rec.C_NUMBERS]
    numbers[at] = 1.0
    loops, k = n.computations[c, rec.C_LOOPS], at + 1
    for position in range(loops + 1, loops + 1 + n.lists[loops]):
        node = n.lists[position]
        kind = n.nodes[node, rec.N_KIND]
        if kind == rec.UNROLL:
            numbers[k] = max(ceil_div(w.loops[node, rec.O_LENGTH], w.loops[node, rec.O_STEP]), 1.0)
            numbers[k + 1] = w.loops[node, rec.O_STEP]
            k += 2
        elif kind == rec.VECTOR and n.nodes[node, rec.N_COLUMN] >= 0:
            numbers[at] = w.loops[node, rec.O_SIZE]


# -- working sets


@compiled
def allocated(n: NestTables, w: Work, lists: int, place: int, last: int) -> float:
    """Bytes of all that is stored at places from one to another, or where a list at `lists` says."""
    total = 0.0
    for s in range(n.stages.shape[0]):
        at = w.places[s, 0]
        is_inside = place <= at <= last
        if lists >= 0:
            for k in range(lists + 1, lists + 1 + n.lists[lists], 2):
                is_inside = is_inside or n.lists[k] <= at <= n.lists[k + 1]
        if is_inside:
            total += w.sites[s, rec.Z_BYTES]
    return total


@compiled
def working_sets(n: NestTables, w: Work, c: int, row: Floats1) -> None:
    """Bytes of all that is allocated at the sites and further in, once the walk is over."""
    s, task = n.computations[c, rec.C_STAGE], n.computations[c, rec.C_TASK_PLACE]
    stored, computed = w.places[s, 0], w.places[s, 1]
    row[SET] = allocated(n, w, n.stages[s, rec.T_INSIDE], 1, 0)
    row[SET_TASK] = allocated(n, w, -1, task, n.ends[task])
    row[SET_PRODUCTION] = allocated(n, w, -1, computed, n.ends[computed])
    row[SET_REALIZATION] = allocated(n, w, -1, stored, n.ends[stored])


@compiled
def inline_rows(n: NestTables, c: int, row: Floats1, features: Floats2) -> None:
    """The rows of the stages that are inlined into a computation, as if it called each of them once."""
    first = n.computations[c, rec.C_ROW]
    for k in range(1, 1 + n.computations[c, rec.C_INLINED]):
        other = features[first + k]
        other[INLINED_CALLS], other[NUM_VECTORS] = row[POINTS_TOTAL], row[NUM_VECTORS]
        other[NUM_SCALARS], other[VECTOR_SIZE] = row[NUM_SCALARS], row[VECTOR_SIZE]
        other[INNER_PARALLELISM] = 1.0
        other[OUTER_PARALLELISM] = row[INNER_PARALLELISM] * row[OUTER_PARALLELISM]


@compiled
def measure(
    g: Tables,
    n: NestTables,
    w: Work,
    c: int,
    env: int,
    task: int,
    head: int,
    count_of_tasks: float,
    features: Floats2,
    numbers: Floats1,
) -> None:
    """The features of a computation, but for its working sets."""
    s, row = n.computations[c, rec.C_STAGE], features[n.computations[c, rec.C_ROW]]
    count(g, n, w, c, env, count_of_tasks, s == head, row)
    tile(g, n, w, c, env, row)
    own_sizes(g, n, w, s, row)
    read(g, n, w, c, env, task, s == head, row)
    vectors(g, n, w, c, env, row)
    block(n, w, c, numbers)
    inline_rows(n, c, row, features)


@compiled
def featurise_one(
    g: Tables, n: NestTables, w: Work, sizes: Floats1, tasks: int, features: Floats2, numbers: Floats1
) -> None:
    """One choice of sizes: features [rows, FEATURES], the numbers of the blocks, and what all that is stored takes."""
    for s in range(n.stages.shape[0]):
        w.places[s, 0] = -1
        if n.stages[s, rec.T_IS_HEAD]:
            at_root(g, n, w, s)
    new, task, head, count_of_tasks = 0, 0, 0, 1.0
    for node in range(n.nodes.shape[0]):
        around = n.nodes[node, rec.N_AROUND]
        if around < 0:
            task, new = begin_nest(g, n, w, sizes, tasks, node, new)
            env, head, count_of_tasks = task, n.nodes[node, rec.N_STAGE], times(w, task)
        elif n.nodes[node, rec.N_BEGINS]:
            begun_env(g, n, w, node, new)
            env, new = new, new + 1
        else:
            env = w.inside[around]
        if n.nodes[node, rec.N_IS] == rec.LOOP:
            enter(g, n, w, sizes, env, node, new)
            new += 1
            begin_stages(g, n, w, node)
        else:
            measure(g, n, w, n.nodes[node, rec.N_FIRST], env, task, head, count_of_tasks, features, numbers)
    for c in range(n.computations.shape[0]):
        working_sets(n, w, c, features[n.computations[c, rec.C_ROW]])
    numbers[len(numbers) - 1] = allocated(n, w, -1, 0, n.ends[0])


@compiled
def featurise(
    g: Tables, n: NestTables, w: Work, sizes: Floats2, tasks: int, features: Floats3, numbers: Floats2
) -> int:
    """Many: sizes [batch, loops], features [batch, rows, FEATURES], numbers [batch, numbers + 1]; the status."""
    w.status[0] = rec.OK
    for k in range(features.shape[0]):
        featurise_one(g, n, w, sizes[k], tasks, features[k], numbers[k])
    return w.status[0]
