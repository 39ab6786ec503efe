"""`benchmarks.apps.lens_blur` in Halide; the schedule follows that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.apps.lens_blur import APERTURE_SAMPLES, BLUR_RADIUS_SCALE, FOCUS_DEPTH, LEVELS, SLICES
from benchmarks.peers.halide import Program

# More runs out of memory: the pyramid has 80 stages.
AUTOSCHEDULER = {"beam_size": "1"}

x, y, z, c, s = hl.Var("x"), hl.Var("y"), hl.Var("z"), hl.Var("c"), hl.Var("s")


def clamped(f: hl.Func, w: int, h: int) -> hl.Func:
    """The function within w x h, continued by its border."""
    return hl.BoundaryConditions.repeat_edge(f, [(0, w), (0, h)])


def downsample(f: hl.Func) -> hl.Func:
    downx, downy = hl.Func("downx"), hl.Func("downy")
    downx[x, y, z, c] = (
        f[2 * x - 1, y, z, c] + 3.0 * (f[2 * x, y, z, c] + f[2 * x + 1, y, z, c]) + f[2 * x + 2, y, z, c]
    ) / 8.0
    downy[x, y, z, c] = (
        downx[x, 2 * y - 1, z, c]
        + 3.0 * (downx[x, 2 * y, z, c] + downx[x, 2 * y + 1, z, c])
        + downx[x, 2 * y + 2, z, c]
    ) / 8.0
    return downy


def upsample(f: hl.Func) -> hl.Func:
    upx, upy = hl.Func("upx"), hl.Func("upy")
    upx[x, y, z, c] = 0.25 * f[(x / 2) - 1 + 2 * (x % 2), y, z, c] + 0.75 * f[x / 2, y, z, c]
    upy[x, y, z, c] = 0.25 * upx[x, (y / 2) - 1 + 2 * (y % 2), z, c] + 0.75 * upx[x, y / 2, z, c]
    return upy


def permute(n: hl.Expr) -> hl.Expr:
    return (n * hl.u32(0x3C6EF372) + hl.u32(0x85EBCA6B)) * n + hl.u32(0x9E3779B9)


def noise(seed: hl.Expr) -> hl.Expr:
    return hl.f32(permute(seed) >> 8) * hl.f32(2.0**-23) - 1.0


def define(arguments: tuple, manual: bool) -> Program:
    _, h, w = arguments[0].shape
    slices, focus_depth, scale, samples = arguments[2:] or (SLICES, FOCUS_DEPTH, BLUR_RADIUS_SCALE, APERTURE_SAMPLES)
    radius = int(max(slices - focus_depth, focus_depth) * scale)
    left_im, right_im = hl.ImageParam(hl.UInt(8), 3, "left"), hl.ImageParam(hl.UInt(8), 3, "right")
    left = hl.BoundaryConditions.repeat_edge(left_im, [(0, w), (0, h)])
    right = hl.BoundaryConditions.repeat_edge(right_im, [(0, w), (0, h)])

    diff, cost = hl.Func("diff"), hl.Func("cost")
    diff[x, y, z, c] = hl.min(
        hl.absd(left[x, y, c], right[x + 2 * z, y, c]),
        hl.absd(left[x, y, c], right[x + 2 * z + 1, y, c]),
    )
    d = [hl.f32(diff[x, y, z, k]) for k in range(3)]
    cost[x, y, z] = d[0] * d[0] + d[1] * d[1] + d[2] * d[2]

    confidence = hl.Func("confidence")
    r = hl.RDom([(0, slices)])
    mean = hl.sum(r, cost[x, y, r] / slices)
    confidence[x, y] = hl.sum(r, cost[x, y, r] * cost[x, y, r]) / slices - mean * mean

    sizes = [(w, h)]
    push0 = hl.Func("push0")
    push0[x, y, z, c] = hl.select(c == 0, cost[x, y, z] * confidence[x, y], confidence[x, y])
    push = [clamped(push0, w, h)]
    for _ in range(1, LEVELS):
        sizes.append((sizes[-1][0] // 2, sizes[-1][1] // 2))
        push.append(clamped(downsample(push[-1]), *sizes[-1]))
    pull = {LEVELS - 1: push[-1]}
    for k in reversed(range(LEVELS - 1)):
        level = hl.Func(f"pull{k}")
        level[x, y, z, c] = hl.f32(0.5) * upsample(pull[k + 1])[x, y, z, c] + hl.f32(0.5) * push[k][x, y, z, c]
        pull[k] = clamped(level, *sizes[k]) if k else level

    filtered_cost, depth_inside = hl.Func("filtered_cost"), hl.Func("depth")
    filtered_cost[x, y, z] = pull[0][x, y, z, 0] / pull[0][x, y, z, 1]
    r = hl.RDom([(0, slices)])
    depth_inside[x, y] = hl.argmin(r, filtered_cost[x, y, r])[0]
    depth = clamped(depth_inside, w, h)

    bokeh_radius, bokeh_radius_squared = hl.Func("bokeh_radius"), hl.Func("bokeh_radius_squared")
    bokeh_radius[x, y] = hl.f32(hl.abs(depth[x, y] - focus_depth)) * hl.f32(scale)
    bokeh_radius_squared[x, y] = bokeh_radius[x, y] * bokeh_radius[x, y]

    worst_y, worst = hl.Func("worst_y"), hl.Func("worst")
    r = hl.RDom([(-radius, 2 * radius + 1)])
    worst_y[x, y] = hl.maximum(r, bokeh_radius[x, y + r])
    worst[x, y] = hl.maximum(r, worst_y[x + r, y])

    with_alpha = hl.Func("with_alpha")
    with_alpha[x, y, c] = hl.mux(c, [hl.f32(left[x, y, k]) for k in range(3)] + [hl.f32(255.0)])

    seed = permute(permute(permute(hl.u32(x)) + hl.u32(y)) + hl.u32(z))
    offset = [hl.clamp(hl.i32(noise(n) * worst[x, y]), -radius, radius) for n in (seed, seed + hl.u32(1))]
    locations, weight = hl.Func("locations"), hl.Func("weight")
    locations[x, y, z] = (offset[0], offset[1])

    u, v = locations[x, y, z][0], locations[x, y, z][1]
    distance = hl.f32(u * u + v * v)
    covers = distance < bokeh_radius_squared[x, y]
    covered = distance < bokeh_radius_squared[x + u, y + v]
    in_front = depth[x + u, y + v] < depth[x, y]
    weight[x, y, z] = hl.select((covers | in_front) & covered, hl.f32(1.0), hl.f32(0.0))

    output, final = hl.Func("output"), hl.Func("final")
    output[x, y, c] = with_alpha[x, y, c]
    r = hl.RDom([(0, samples)], "r")
    at = locations[x, y, r]
    output[x, y, c] += weight[x, y, r] * with_alpha[x + at[0], y + at[1], c]
    final[x, y, c] = output[x, y, c] / output[x, y, 3]

    if manual:
        xi, yi, t = hl.Var("xi"), hl.Var("yi"), hl.Var("t")
        push0.compute_root().reorder(c, z, x, y).bound(c, 0, 2).unroll(c).vectorize(x, 16).parallel(y, 4)
        cost.compute_at(push0, x).vectorize(x)
        confidence.compute_at(push0, x).vectorize(x)
        for k in range(1, LEVELS):
            push[k].compute_at(pull[1], t).vectorize(push[k].args()[0], 8)
            if k > 1 and k < LEVELS - 1:
                px, py = pull[k].args()[:2]
                pull[k].compute_at(pull[1], t).tile(px, py, xi, yi, 8, 2).vectorize(xi).unroll(yi)
        px, py, pz, pc = pull[1].args()
        pull[1].compute_root().fuse(pz, pc, t).parallel(t).tile(px, py, xi, yi, 8, 2).vectorize(xi).unroll(yi)
        depth_inside.compute_root().tile(x, y, xi, yi, 8, 2).vectorize(xi).unroll(yi).parallel(y, 8)
        with_alpha.compute_root().reorder(c, x, y).bound(c, 0, 4).unroll(c).vectorize(x, 8).parallel(y, 8)
        final.compute_root().reorder(c, x, y).bound(c, 0, 3).unroll(c).vectorize(x, 8).parallel(y)
        worst_y.compute_at(final, y).vectorize(x, 8)
        worst.compute_at(final, y).vectorize(x, 8)
        output.compute_at(final, x).vectorize(x)
        output.update().reorder(c, x, r).vectorize(x).unroll(c)
        weight.compute_at(output, x).unroll(x)
        locations.compute_at(output, x).vectorize(x)
    return Program(final, [left_im, right_im], list(arguments[:2]), (3, h, w), np.float32)
