"""The walk down a nest: `hjit.sched.analysis.iterations` and `sites` in the compiled subset of Python; see `regions`.

An environment (`Env` in `hjit.sched.analysis.iterations`) is a row in several arrays of `Work`. It holds the dimensions
of the stage with the innermost loops; `Work.opened` has the rows of the other stages.
"""

from __future__ import annotations

from hjit.sched.native import records as rec
from hjit.sched.native.records import Floats1, Floats2, NestTables, Tables, Work
from hjit.sched.native.regions import (
    ceil_div,
    compiled,
    floor_div,
    group_dims,
    group_lengths,
    is_among,
    power_of_two,
    read_region,
    regions,
)

# -- environments


@compiled
def times(w: Work, env: int) -> float:
    """How often a place runs."""
    total = 1.0
    for key in range(w.known.shape[1]):
        if w.known[env, key]:
            total *= w.left[env, key, rec.L_PIECES]
    return w.productions[w.envs[env, rec.E_OPENED]] * total


@compiled
def open_env(g: Tables, w: Work, new: int, s: int, group: int, outer: int, productions: float) -> None:
    """Where the loops of a stage begin that computes the dimensions in `Work.one`; `outer`: around it, or -1."""
    group_lengths(g, group, w.one, w.lengths)
    for k in range(g.ints[group + rec.G_DIMS]):
        w.dims[new, k, rec.LOW], w.dims[new, k, rec.HIGH] = w.one[k, 0], w.one[k, 1]
        w.dims[new, k, rec.BASE_LOW], w.dims[new, k, rec.BASE_HIGH] = w.one[k, 0], w.one[k, 1]
        w.dims[new, k, rec.LENGTH] = w.lengths[k]
    for key in range(w.known.shape[1]):
        w.known[new, key] = 0
    for t in range(w.opened.shape[1]):
        w.opened[new, t] = w.opened[outer, t] if outer >= 0 else -1
    w.opened[new, s] = new
    w.productions[new] = productions
    w.envs[new, rec.E_OPENED], w.envs[new, rec.E_TILE] = new, -1
    w.envs[new, rec.E_OUTSIDE] = w.envs[outer, rec.E_OUTSIDE] if outer >= 0 else -1
    w.envs[new, rec.E_INNER] = w.envs[outer, rec.E_INNER] if outer >= 0 else -1


@compiled
def copy_env(w: Work, env: int, new: int, s: int) -> None:
    """The same environment once more."""
    for k in range(w.dims.shape[1]):
        for column in range(rec.DIMS):
            w.dims[new, k, column] = w.dims[env, k, column]
    for key in range(w.known.shape[1]):
        w.known[new, key] = w.known[env, key]
        for column in range(rec.LEFT):
            w.left[new, key, column] = w.left[env, key, column]
    for t in range(w.opened.shape[1]):
        w.opened[new, t] = w.opened[env, t]
    w.opened[new, s] = new
    for column in range(rec.ENV):
        w.envs[new, column] = w.envs[env, column]


@compiled
def remaining_of(n: NestTables, w: Work, env: int, key: int) -> float:
    """What is left of a loop's dimension before it, into `Work.left`; its length."""
    if not w.known[env, key]:
        every = 1.0
        for k in range(n.keys[key, 0]):
            every *= w.dims[env, n.keys[key, 1 + k], rec.LENGTH]
        w.left[env, key, rec.L_LOW] = w.dims[env, n.keys[key, 1], rec.BASE_LOW] if n.keys[key, 0] == 1 else 0.0
        w.left[env, key, rec.L_LENGTH], w.left[env, key, rec.L_TOTAL], w.left[env, key, rec.L_PIECES] = (
            every,
            every,
            1.0,
        )
    return w.left[env, key, rec.L_LENGTH]


@compiled
def unfuse(n: NestTables, w: Work, env: int, key: int, first: float, last: float) -> None:
    """The ranges of the parts of a fused dimension; see `hjit.sched.analysis.iterations`."""
    for at in range(n.keys[key, 0] - 1, 0, -1):
        k = n.keys[key, 1 + at]
        low, high = w.dims[env, k, rec.BASE_LOW], w.dims[env, k, rec.BASE_HIGH]
        count = max(high - low + 1.0, 1.0)
        up, down = floor_div(first, count), floor_div(last, count)
        w.dims[env, k, rec.LOW], w.dims[env, k, rec.HIGH] = low, high
        if up >= down:
            w.dims[env, k, rec.LOW], w.dims[env, k, rec.HIGH] = low + first - up * count, low + last - down * count
        first, last = up, down
    k = n.keys[key, 1]
    low = w.dims[env, k, rec.BASE_LOW]
    w.dims[env, k, rec.LOW], w.dims[env, k, rec.HIGH] = low + first, low + last


@compiled
def narrow(n: NestTables, w: Work, env: int, key: int, size: float) -> None:
    """An environment at the middle one of the pieces of `size` elements of a dimension, in place."""
    length = remaining_of(n, w, env, key)
    middle = floor_div(max(ceil_div(length, size), 1.0) - 1.0, 2.0)
    low, length = w.left[env, key, rec.L_LOW] + middle * size, min(length, size)
    if n.keys[key, 0] == 1:
        k = n.keys[key, 1]
        w.dims[env, k, rec.LOW], w.dims[env, k, rec.HIGH] = low, low + (length - 1.0)
    else:
        unfuse(n, w, env, key, low, low + (length - 1.0))
    w.known[env, key] = 1
    w.left[env, key, rec.L_LOW], w.left[env, key, rec.L_LENGTH] = low, length
    w.left[env, key, rec.L_PIECES] = ceil_div(w.left[env, key, rec.L_TOTAL], size)


@compiled
def step_of(n: NestTables, sizes: Floats1, node: int) -> float:
    """How far one iteration of a loop goes."""
    inner = n.nodes[node, rec.N_INNER]
    return sizes[n.nodes[inner, rec.N_COLUMN]] if inner >= 0 else 1.0


@compiled
def enter(g: Tables, n: NestTables, w: Work, sizes: Floats1, env: int, node: int, new: int) -> None:
    """Inside a loop, at its middle iteration; inside a vector loop, at all lanes."""
    key, kind, s = n.nodes[node, rec.N_KEY], n.nodes[node, rec.N_KIND], n.nodes[node, rec.N_STAGE]
    column = n.nodes[node, rec.N_COLUMN]
    w.loops[node, rec.O_SIZE] = sizes[column] if column >= 0 else 0.0
    w.loops[node, rec.O_LENGTH], w.loops[node, rec.O_STEP] = remaining_of(n, w, env, key), step_of(n, sizes, node)
    copy_env(w, env, new, s)
    if kind != rec.VECTOR:
        narrow(n, w, new, key, w.loops[node, rec.O_STEP])
        if kind != rec.UNROLL and n.keys[key, 1] < g.ints[n.nodes[node, rec.N_GROUP] + rec.G_PURE]:
            w.envs[new, rec.E_TILE] = new
        w.envs[new, rec.E_OUTSIDE], w.envs[new, rec.E_INNER] = env, node
    w.inside[node] = new


# -- sites


@compiled
def buffer_bytes(g: Tables, memory: int, lengths: Floats2, stride: int) -> float:
    """The bytes of a part of a stage with a buffer of its own, whose lengths (a column of [axes, ...]) become those in
    memory."""
    at, axes = g.ints[memory + rec.M_FLOATS], g.ints[memory + rec.M_NDIM]
    total = g.floats[at]
    for axis in range(axes):
        multiple = g.floats[at + 1 + axes + axis]
        if multiple > 0.0:
            lengths[axis, stride] = ceil_div(lengths[axis, stride], multiple) * multiple
        total *= lengths[axis, stride]
    return total


@compiled
def at_root(g: Tables, n: NestTables, w: Work, s: int) -> None:
    """A stage that is computed at the root."""
    array = n.stages[s, rec.T_ARRAY]
    shape = g.ints[array + rec.A_FLOATS] + 2
    for axis in range(g.ints[array + rec.A_NDIM]):
        last = g.floats[shape + axis] - 1.0
        for column in (rec.Z_LOW, rec.Z_FIRST_LOW, rec.Z_RUN_LOW, rec.Z_STORED_LOW):
            w.site_axes[s, axis, column], w.site_axes[s, axis, column + 1] = 0.0, last
        w.site_axes[s, axis, rec.Z_LENGTH] = last + 1.0
    w.sites[s, rec.Z_COUNT], w.sites[s, rec.Z_TURNS] = 1.0, 1.0
    w.sites[s, rec.Z_RUNS], w.sites[s, rec.Z_REALIZATIONS] = 1.0, 1.0
    w.sites[s, rec.Z_BYTES] = buffer_bytes(g, n.stages[s, rec.T_MEMORY], w.site_axes[s], rec.Z_LENGTH)
    w.places[s, 0], w.places[s, 1] = 0, 0


@compiled
def allocate(g: Tables, n: NestTables, w: Work, s: int, low: int, columns: Floats2, count: float, place: int) -> None:
    """The storage of the part of a stage that columns `low` and after it of [axes, ...] say."""
    for axis in range(g.ints[n.stages[s, rec.T_ARRAY] + rec.A_NDIM]):
        w.site_axes[s, axis, rec.Z_STORED_LOW] = columns[axis, low]
        w.site_axes[s, axis, rec.Z_STORED_HIGH] = columns[axis, low + 1]
    w.sites[s, rec.Z_REALIZATIONS] = count
    w.places[s, 0] = place


@compiled
def settle(g: Tables, n: NestTables, w: Work, s: int, env: int, place: int, slides_from: int) -> None:
    """What is computed of a stage at a place; `slides_from`: the environment around the loop along which it slides, or
    -1."""
    slides = False
    for axis in range(g.ints[n.stages[s, rec.T_ARRAY] + rec.A_NDIM]):
        site = w.site_axes[s, axis]
        site[rec.Z_LOW], site[rec.Z_HIGH] = (
            w.required[0, s, axis, rec.R_PART_LOW],
            w.required[0, s, axis, rec.R_PART_HIGH],
        )
        site[rec.Z_FIRST_LOW], site[rec.Z_FIRST_HIGH] = site[rec.Z_LOW], site[rec.Z_HIGH]
        site[rec.Z_RUN_LOW], site[rec.Z_RUN_HIGH] = site[rec.Z_LOW], site[rec.Z_HIGH]
        site[rec.Z_LENGTH] = site[rec.Z_STORED_HIGH] - site[rec.Z_STORED_LOW] + 1.0
        if slides_from >= 0:
            site[rec.Z_RUN_LOW], site[rec.Z_RUN_HIGH] = (
                w.required[1, s, axis, rec.R_LOW],
                w.required[1, s, axis, rec.R_HIGH],
            )
            window = w.required[0, s, axis, rec.R_WINDOW] if w.required[0, s, axis, rec.R_SLIDES] else 0.0
            if window > 0.0:
                slides = True
                if not n.stages[s, rec.T_VECTORS] >> axis & 1:
                    site[rec.Z_LENGTH] = power_of_two(max(window, 1.0))
    if slides_from >= 0:
        whole = 2 if slides else 1
        for axis in range(g.ints[n.stages[s, rec.T_ARRAY] + rec.A_NDIM]):
            w.site_axes[s, axis, rec.Z_FIRST_LOW] = w.required[whole, s, axis, rec.R_LOW]
            w.site_axes[s, axis, rec.Z_FIRST_HIGH] = w.required[whole, s, axis, rec.R_HIGH]
    loop = w.envs[env, rec.E_INNER]
    w.sites[s, rec.Z_TURNS] = ceil_div(w.loops[loop, rec.O_LENGTH], w.loops[loop, rec.O_STEP]) if slides else 1.0
    count = times(w, env)
    runs = times(w, slides_from) if slides_from >= 0 else count
    w.sites[s, rec.Z_COUNT] = count if slides or slides_from < 0 else runs
    w.sites[s, rec.Z_RUNS] = runs
    w.sites[s, rec.Z_BYTES] = buffer_bytes(g, n.stages[s, rec.T_MEMORY], w.site_axes[s], rec.Z_LENGTH)
    w.places[s, 1] = place


@compiled
def begin_stages(g: Tables, n: NestTables, w: Work, node: int) -> None:
    """How much of the stages that begin inside a loop is computed there, and of those that are stored there, kept."""
    env, place = w.inside[node], n.nodes[node, rec.N_PLACE]
    first, last = n.nodes[node, rec.N_FIRST], n.nodes[node, rec.N_LAST]
    items, stores = n.nodes[node, rec.N_ITEMS], n.nodes[node, rec.N_STORES]
    is_new, any_slides = False, False
    for c in range(first, last):
        w.sliding[n.computations[c, rec.C_STAGE]] = 0
    for k in range(items + 1, items + 1 + n.lists[items]):
        item = n.lists[k]
        if n.nodes[item, rec.N_BEGINS]:
            is_new = True
            w.sliding[n.nodes[item, rec.N_STAGE]] = n.nodes[item, rec.N_SLIDES]
            any_slides = any_slides or n.nodes[item, rec.N_SLIDES] > 0
    if not is_new and n.lists[stores] == 0:
        return
    regions(g, n, w, 0, env, first, last, any_slides)
    for k in range(stores + 1, stores + 1 + n.lists[stores]):
        s = n.lists[k]
        allocate(g, n, w, s, rec.R_LOW, w.required[0, s], times(w, env), place)
    outside = w.envs[env, rec.E_OUTSIDE]
    if any_slides and outside >= 0:
        regions(g, n, w, 1, outside, first, last, False)
        regions(g, n, w, 2, env, first, last, False)
    for k in range(items + 1, items + 1 + n.lists[items]):
        item = n.lists[k]
        if n.nodes[item, rec.N_BEGINS]:
            s = n.nodes[item, rec.N_STAGE]
            settle(g, n, w, s, env, place, outside if any_slides and w.sliding[s] else -1)


# -- nests


@compiled
def middle_task(n: NestTables, w: Work, sizes: Floats1, tasks: int, env: int, item: int, new: int) -> tuple[int, int]:
    """What the middle task has, as a block of iterations: whole rounds of the inner parallel loops first.

    Args:
        tasks: see `SizedGraph.tasks`; 0: None.
        new: the first environment that is free.

    Returns:
        The environment, and the next one that is free.
    """
    loops = n.nodes[item, rec.N_PARALLEL]
    count = 1.0
    for k in range(loops):
        node = item + k
        step = step_of(n, sizes, node)
        w.lengths[k] = ceil_div(remaining_of(n, w, env, n.nodes[node, rec.N_KEY]), step)
        count *= w.lengths[k]
    each = 1.0 if tasks == 0 else ceil_div(count, max(min(count, float(tasks)), 1.0))
    for k in range(loops - 1, -1, -1):
        node = item + k
        some = max(min(each, w.lengths[k]), 1.0)
        each = ceil_div(each, some)
        copy_env(w, env, new, n.nodes[item, rec.N_STAGE])
        narrow(n, w, new, n.nodes[node, rec.N_KEY], some * step_of(n, sizes, node))
        env, new = new, new + 1
    return env, new


@compiled
def written(g: Tables, n: NestTables, w: Work, env: int, s: int, first: int, last: int) -> None:
    """The part of its own stage that a task computes: around what its definitions write."""
    from_first = True
    for k in range(w.dims.shape[1]):
        w.two[k, 0], w.two[k, 1] = w.dims[env, k, rec.LOW], w.dims[env, k, rec.HIGH]
    for c in range(first, last):
        if n.computations[c, rec.C_STAGE] == s:
            read_region(g, g.ints[n.computations[c, rec.C_GROUP] + rec.G_WRITTEN], w.two, w.region, w.stack)
            for axis in range(g.ints[n.stages[s, rec.T_ARRAY] + rec.A_NDIM]):
                site = w.site_axes[s, axis]
                low, high = w.region[axis, 0], w.region[axis, 1]
                site[rec.Z_TASK_LOW] = low if from_first else min(low, site[rec.Z_TASK_LOW])
                site[rec.Z_TASK_HIGH] = high if from_first else max(high, site[rec.Z_TASK_HIGH])
            from_first = False


@compiled
def begin_nest(g: Tables, n: NestTables, w: Work, sizes: Floats1, tasks: int, item: int, new: int) -> tuple[int, int]:
    """One loop nest: its first environment, and the next one that is free. What is stored around it and not computed at
    the root, each task has for itself."""
    s, group = n.nodes[item, rec.N_STAGE], n.nodes[item, rec.N_GROUP]
    extents = g.ints[group + rec.G_FLOATS] + 1
    for k in range(g.ints[group + rec.G_DIMS]):
        w.one[k, 0], w.one[k, 1] = 0.0, g.floats[extents + k] - 1.0
    open_env(g, w, new, s, group, -1, 1.0)
    env, new = middle_task(n, w, sizes, tasks, new, item, new + 1)
    first, last = n.nodes[item, rec.N_FIRST], n.nodes[item, rec.N_LAST]
    regions(g, n, w, 0, env, first, last, False)
    for c in range(first, last):
        t = n.computations[c, rec.C_STAGE]
        for axis in range(g.ints[n.stages[t, rec.T_ARRAY] + rec.A_NDIM]):
            if t != s:
                w.site_axes[t, axis, rec.Z_TASK_LOW] = w.required[0, t, axis, rec.R_LOW]
                w.site_axes[t, axis, rec.Z_TASK_HIGH] = w.required[0, t, axis, rec.R_HIGH]
    written(g, n, w, env, s, first, last)
    for k in range(len(n.roots)):
        t = n.roots[k]
        if is_among(n, t, first, last):
            allocate(g, n, w, t, rec.Z_TASK_LOW, w.site_axes[t], times(w, env), n.nodes[item, rec.N_TASK_PLACE])
    return env, new


@compiled
def begun_env(g: Tables, n: NestTables, w: Work, node: int, new: int) -> None:
    """Where the loops of a stage begin inside others."""
    s, group = n.nodes[node, rec.N_STAGE], n.nodes[node, rec.N_GROUP]
    group_dims(g, group, w.site_axes[s], rec.Z_LOW, w.one)
    open_env(g, w, new, s, group, w.inside[n.nodes[node, rec.N_AROUND]], w.sites[s, rec.Z_COUNT])
