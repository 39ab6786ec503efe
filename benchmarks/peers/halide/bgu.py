"""`benchmarks.apps.bgu` in Halide; the schedule follows that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.apps.bgu import R_SIGMA, REGULARISATION, S_SIGMA, TAPS
from benchmarks.peers.halide import Program

# 32 runs out of memory: the solver has about a hundred stages. 1 and 4 find schedules half as fast.
AUTOSCHEDULER = {"beam_size": "8"}

x, y, z, c, row, col = hl.Var("x"), hl.Var("y"), hl.Var("z"), hl.Var("c"), hl.Var("row"), hl.Var("col")
Matrix = list[list[hl.Expr]]


def lerp(a: hl.Expr, b: hl.Expr, t: hl.Expr) -> hl.Expr:
    return hl.lerp(a, b, t)


def brightness(f: hl.Func | hl.ImageParam) -> hl.Expr:
    return 0.25 * f[x, y, 0] + 0.5 * f[x, y, 1] + 0.25 * f[x, y, 2]


def solver(a: Matrix, b: Matrix) -> tuple[hl.Func, Matrix]:
    """A Func of a and b, on which Cholesky's method works in place; and where it leaves x of a x = b."""
    f = hl.Func("solver")
    f[x, y, z, row, col] = hl.undef(hl.Float(32))
    size, columns = len(a), len(b[0])

    def put(i: int, j: int, value: hl.Expr) -> None:
        f[x, y, z, i, j] = value

    def at(i: int, j: int) -> hl.Expr:
        return f[x, y, z, i, j]

    for i in range(size):
        for j in range(size):
            put(i, j, a[i][j])
        for k in range(columns):
            put(i, size + k, b[i][k])
    # L below the diagonal, 1 / D on it, columns of L times D above it
    for j in range(size):
        put(j, j, hl.f32(1.0) / at(j, j))
        for i in range(j + 1, size):
            put(i, j, at(i, j) * at(j, j))
        for i in range(j + 1, size):
            for k in range(j + 1, size):
                put(i, k, at(k, i) if k < i else at(i, k) - at(k, j) * at(j, i))
    for k in range(size, size + columns):
        for j in range(size):
            for i in range(j):
                put(j, k, at(j, k) - at(j, i) * at(i, k))
        for j in range(size):
            put(j, k, at(j, k) * at(j, j))
        for j in reversed(range(size)):
            for i in range(j + 1, size):
                put(j, k, at(j, k) - at(i, j) * at(i, k))
    return f, [[at(i, size + k) for k in range(columns)] for i in range(size)]


def define(arguments: tuple, manual: bool) -> Program:
    splat, value, guide = (hl.ImageParam(hl.Float(32), 3, name) for name in ("splat_loc", "values", "slice_loc"))
    r_sigma, s_sigma = arguments[3:] or (R_SIGMA, S_SIGMA)
    (_, small_h, small_w), (_, h, w) = arguments[0].shape, arguments[2].shape
    big_sigma = s_sigma * max(-(-h // small_h), -(-w // small_w))
    splat_edge, value_edge = (
        hl.BoundaryConditions.repeat_edge(f, [(0, small_w), (0, small_h)]) for f in (splat, value)
    )

    gray_splat, gray_guide = hl.Func("gray_splat"), hl.Func("gray_guide")
    gray_splat[x, y] = brightness(splat_edge)
    gray_guide[x, y] = brightness(guide)

    histogram = hl.Func("histogram")
    r = hl.RDom([(0, s_sigma), (0, s_sigma)], "r")
    sx, sy = x * s_sigma + r.x - s_sigma // 2, y * s_sigma + r.y - s_sigma // 2
    zi = hl.i32(hl.round(hl.clamp(gray_splat[sx, sy], 0.0, 1.0) * hl.f32(1 / r_sigma)))
    affine = [splat_edge[sx, sy, 0], splat_edge[sx, sy, 1], splat_edge[sx, sy, 2], hl.f32(1.0)]
    products = [affine[i] * affine[j] for i in range(4) for j in range(i, 4)]
    products += [value_edge[sx, sy, k] * a for k in range(3) for a in affine]
    histogram[x, y, z, c] = hl.f32(0.0)
    histogram[x, y, zi, c] += hl.mux(c, products)

    def blur7(name: str, f: hl.Func, axis: int) -> hl.Func:
        blurred = hl.Func(name)
        taps = []
        for k, tap in enumerate(TAPS):
            at = [x, y, z, c]
            at[axis] = at[axis] + k - 3
            taps.append(f[tuple(at)] * hl.f32(tap))
        total = taps[0]
        for t in taps[1:]:
            total = total + t
        blurred[x, y, z, c] = total
        return blurred

    blurz = blur7("blurz", histogram, 2)
    blury = blur7("blury", blurz, 1)
    blurx = blur7("blurx", blury, 0)

    upper = {(i, j): 4 * i - i * (i - 1) // 2 + j - i for i in range(4) for j in range(i, 4)}
    gram = [[blurx[x, y, z, upper[min(i, j), max(i, j)]] for j in range(4)] for i in range(4)]
    target = [[blurx[x, y, z, 10 + 4 * k + i] for k in range(3)] for i in range(4)]
    for i in range(4):
        gram[i][i] = gram[i][i] + hl.f32(REGULARISATION)
    for i in range(3):
        target[i][i] = target[i][i] + hl.f32(REGULARISATION)
    solved, models = solver(gram, target)
    line = hl.Func("line")
    line[x, y, z, c] = hl.mux(c, [models[i][k] for k in range(3) for i in range(4)])

    matrix_x, matrix_y, matrix_z = hl.Func("matrix_x"), hl.Func("matrix_y"), hl.Func("matrix_z")
    yf, xf = hl.f32(y) / hl.f32(big_sigma), hl.f32(x) / hl.f32(big_sigma)
    yi, xi = hl.i32(hl.floor(yf)), hl.i32(hl.floor(xf))
    matrix_y[x, y, z, c] = lerp(line[x, yi, z, c], line[x, yi + 1, z, c], yf - yi)
    matrix_x[x, y, z, c] = lerp(matrix_y[xi, y, z, c], matrix_y[xi + 1, y, z, c], xf - xi)

    slice_z = hl.Func("slice_z")
    position = hl.clamp(gray_guide[x, y], 0.0, 1.0) * hl.f32(int(1 / r_sigma))
    slice_z[x, y] = (hl.i32(position), position - hl.i32(position))
    below, part = slice_z[x, y][0], slice_z[x, y][1]
    matrix_z[x, y, c] = lerp(matrix_x[x, y, below, c], matrix_x[x, y, below + 1, c], part)

    interpolated, output = hl.Func("interpolated"), hl.Func("output")
    interpolated[x, y, c] = (
        matrix_z[x, y, 4 * c] * guide[x, y, 0]
        + matrix_z[x, y, 4 * c + 1] * guide[x, y, 1]
        + matrix_z[x, y, 4 * c + 2] * guide[x, y, 2]
        + matrix_z[x, y, 4 * c + 3]
    )
    output[x, y, c] = hl.clamp(interpolated[x, y, c], 0.0, 1.0)

    if manual:
        vec = 8
        histogram.compute_at(blurz, y)
        histogram.update().reorder(c, r.x, r.y, x, y).unroll(c)
        gray_splat.compute_at(blurz, y).vectorize(x, vec)
        blurz.compute_root().reorder(c, z, x, y).parallel(y).vectorize(x, vec)
        blury.compute_at(line, z).hoist_storage(line, y).vectorize(x, vec)
        blurx.compute_at(line, x).vectorize(x)
        line.compute_root().parallel(y).vectorize(x, vec).reorder(c, x, y).unroll(c)
        for k in range(solved.num_update_definitions()):
            solved.update(k).vectorize(x)
        solved.compute_at(line, x)
        matrix_y.compute_root().parallel(c).parallel(z).vectorize(x, vec)
        matrix_z.store_at(output, x).compute_at(output, c).reorder(c, x, y).unroll(c).vectorize(x)
        output.compute_root().parallel(y).vectorize(x, vec).reorder(c, x, y).bound(c, 0, 3).unroll(c)
    return Program(output, [splat, value, guide], list(arguments[:3]), (3, h, w), np.float32)
