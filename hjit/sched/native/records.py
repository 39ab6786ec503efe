"""The data of the compiled featuriser: tables of integers and floats, and the names of their columns.

`hjit.sched.native.tables` writes the `Tables` of a Graph, `hjit.sched.native.nests` those of a nest (`NestTables`), and
the featuriser (`regions`, `places`, `measures`) reads them, and keeps its intermediate results in a `Work`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

FAR = 2.0**40  # as in `hjit.sched.analysis.footprint`: the ends of what may be anywhere

# -- the records of `Tables.ints`; what they call FLOATS is where their floats are in `Tables.floats`

# An array. Floats: bytes of an element, lanes of a native vector, the shape. Of each axis: is it computed whole, in
# multiples of what
A_NDIM, A_FLOATS, A_AXES = range(3)
# Memory of a whole array. Floats: bytes of an element, lengths of the axes, what each is a multiple of (0: of nothing)
M_NDIM, M_ROW, M_FIXED, M_FLOATS, M_ORDER = range(5)
# A footprint. Floats: the shape of the array. Of each axis: does it move as one, slack, and where its rates are (a
# count, and so many rows of a dimension, a numerator and a denominator) and its intervals (a count, and where each is)
W_NDIM, W_FLOATS, W_AXES = range(3)
X_MOVING, X_SLACK, X_RATES, X_INTERVALS, AXIS = range(5)
# A group of definitions. Floats: points that are computed at the least, extents of the dimensions
G_ARRAY, G_DIMS, G_PURE, G_REPEATABLE, G_PLAIN, G_WRITTEN, G_FLOATS, G_DEFINITIONS, G_INVERSE = range(9)
I_DIM, I_AXIS, I_FACTOR, I_SOLVED, I_REST, I_ELEMENTS, INVERSE = range(7)
# An index over intervals of dimensions: operations on a stack, each with its arguments
END, CONST, DIM, TIMES, QUOTIENT, REMAINDER, LEAST, MOST, MIRROR, WRAP = range(10)

# -- columns of `NestTables`

LOOP, COMPUTE = range(2)
SERIAL, PARALLEL, UNROLL, VECTOR = range(4)
AUTO, GUARD, PREDICATE = range(3)
# A node, in the order in which they run: what it is; its stage; its place, and that of its nest; the loop around it;
# its dimension, and kind; the column of its size (-1: it has none), whether it may be no loop, its tail; the
# computations under it; the loop inside it over the same dimension; is nothing of other stages inside; parallel loops
# from here on; does its stage begin here, and is it stored further out; where what is inside is listed: loops and
# computations, and stages that are stored; the group of its first computation
(
    N_IS, N_STAGE, N_PLACE, N_TASK_PLACE, N_AROUND, N_KEY, N_KIND, N_COLUMN, N_OPTIONAL, N_TAIL, N_FIRST, N_LAST,
    N_INNER, N_ALONE, N_PARALLEL, N_BEGINS, N_SLIDES, N_ITEMS, N_STORES, N_GROUP, NODE,
) = range(21)  # fmt: skip
# A computation: its group, stage; lists of sources (rows), loops, and loops over the dimension of the vectors; the
# first of its rows of features, how many stages are inlined into it; where the numbers of its block are
(
    C_GROUP,
    C_STAGE,
    C_SOURCES,
    C_SOURCE_COUNT,
    C_LOOPS,
    C_CHAIN,
    C_ROW,
    C_INLINED,
    C_NUMBERS,
    C_TASK_PLACE,
    COMPUTATION,
) = range(11)
# What a computation reads: the stage (-1: none of the nest's), footprint, memory, is it outside of the nest, how many
# loads an evaluation has at computed places
S_STAGE, S_FOOTPRINT, S_MEMORY, S_OUTSIDE, S_GATHERS, SOURCE = range(6)
# A stage: its array; its memory as it is stored, and of the whole; is it computed at the root; where places inside its
# loops are listed, the first and the last ones alternately; the axes that vectors run along, as bits
T_ARRAY, T_MEMORY, T_ROOT, T_IS_HEAD, T_INSIDE, T_VECTORS, STAGE = range(7)

# -- columns of `Work`

LOW, HIGH, BASE_LOW, BASE_HIGH, LENGTH, DIMS = range(6)  # of a dimension
L_LOW, L_LENGTH, L_TOTAL, L_PIECES, LEFT = range(5)  # of what is left of it
E_OPENED, E_TILE, E_OUTSIDE, E_INNER, ENV = range(5)  # environments (-1: none), the innermost loop
O_SIZE, O_LENGTH, O_STEP, OWN = range(4)  # of a loop
# of an axis of a stage: what is required, a part of it, the window's length; what is needed, and how far that is known
R_LOW, R_HIGH, R_PART_LOW, R_PART_HIGH, R_WINDOW, R_SLIDES, REQUIRED = range(7)
# of an axis of a stage's site
(
    Z_LOW, Z_HIGH, Z_FIRST_LOW, Z_FIRST_HIGH, Z_RUN_LOW, Z_RUN_HIGH, Z_STORED_LOW, Z_STORED_HIGH, Z_LENGTH, Z_TASK_LOW,
    Z_TASK_HIGH, SITE_AXIS
) = range(12)  # fmt: skip
Z_COUNT, Z_TURNS, Z_RUNS, Z_REALIZATIONS, Z_BYTES, SITE = range(6)
NONE, SOME, ANY = range(3)  # is needed

OK, TOO_LARGE = range(2)  # did it work? Too large: whole numbers for the rates at which windows slide

# arrays of so many axes: see `hjit.kernels.functions.translate`
Ints1: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Ints2: TypeAlias = Ints1
Ints3: TypeAlias = Ints1
Floats1: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Floats2: TypeAlias = Floats1
Floats3: TypeAlias = Floats1
Floats4: TypeAlias = Floats1


class Tables(NamedTuple):
    """Of a Graph: int64 and float64 [...], records one after the other."""

    ints: Ints1
    floats: Floats1


class NestTables(NamedTuple):
    """Of a child of the root: int64, a row for each of its nodes, computations and so on."""

    nodes: Ints2
    computations: Ints2
    sources: Ints2
    stages: Ints2  # in the order of the Graph
    keys: Ints2  # of each dimension of loops: its parts' number, and those
    order: Ints1  # computations, the last stage of the Graph first
    roots: Ints1  # stages that are stored around its loop nests, and not computed at the root
    ends: Ints1  # of each place the last one inside it
    lists: Ints1  # each a count, and so many numbers


class Work(NamedTuple):
    """What is worked out of a nest for one choice of its sizes."""

    dims: Floats3  # [environments, dimensions, DIMS]
    left: Floats3  # [environments, keys, LEFT]
    known: Ints2  # [environments, keys]: has `left` been narrowed?
    envs: Ints2  # [environments, ENV]
    productions: Floats1  # [environments]
    opened: Ints2  # [environments, stages]: the latest environment of each stage's loops, or -1
    inside: Ints1  # [nodes]: the environment inside a loop
    loops: Floats2  # [nodes, OWN]
    required: Floats4  # [3, stages, axes, REQUIRED]: see `sites.begin_stages`
    needs: Floats3  # [stages, axes, 2]
    needed: Ints2  # [stages, axes]: NONE, SOME or ANY
    used: Ints1  # [stages]
    sliding: Ints1  # [stages]
    rates: Ints3  # [stages, axes, 4]: speed and slack, numerators and denominators
    dim_rates: Ints2  # [dimensions, 4]
    slacks: Ints3  # [stages, axes, 2]
    sites: Floats2  # [stages, SITE]
    site_axes: Floats3  # [stages, axes, SITE_AXIS]
    places: Ints2  # [stages, 2]: where it is stored and computed
    wanted: Floats2  # [axes, 2]
    region: Floats2  # [axes, 2]
    one: Floats2  # [dimensions, 2]
    two: Floats2  # [dimensions, 2]
    lengths: Floats1  # [dimensions or axes]
    stack: Floats2  # [deep, 2]
    status: Ints1  # [1]
