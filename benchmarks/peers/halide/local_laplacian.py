"""`benchmarks.apps.local_laplacian` in Halide; the schedule is that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.apps.local_laplacian import J
from benchmarks.peers.halide import Program

# A beam of 32 takes minutes to search.
AUTOSCHEDULER = {"beam_size": "4"}


def define(arguments: tuple, manual: bool) -> Program:
    img, levels, *strengths = arguments
    _, h, w = img.shape
    source = hl.ImageParam(hl.UInt(16), 3, "img")
    alpha, beta = (
        hl.Param(hl.Float(32), name, value) for name, value in zip(("alpha", "beta"), strengths, strict=True)
    )
    alpha.set_estimate(strengths[0])
    beta.set_estimate(strengths[1])
    x, y, c, k, entry = hl.Var("x"), hl.Var("y"), hl.Var("c"), hl.Var("k"), hl.Var("entry")
    heights, widths = [h], [w]
    for _ in range(1, J):
        heights.append((heights[-1] + 1) // 2)
        widths.append((widths[-1] + 1) // 2)

    def funcs(name: str) -> list[hl.Func]:
        return [hl.Func(f"{name}_{j}") for j in range(J)]

    def extended(f: hl.Func | hl.ImageParam, j: int) -> hl.Func:
        """A level that repeats its edge."""
        return hl.BoundaryConditions.repeat_edge(f, [(0, widths[j]), (0, heights[j])])

    def downsample(f: hl.Func, rest: list[hl.Var]) -> hl.Expr:
        half = hl.Func(f"{f.name()}_half")
        a, b, d, e = (f[[x, 2 * y + n, *rest]] for n in range(-1, 3))
        half[[x, y, *rest]] = (a + 3.0 * (b + d) + e) / 8.0
        a, b, d, e = (half[[2 * x + n, y, *rest]] for n in range(-1, 3))
        return (a + 3.0 * (b + d) + e) / 8.0

    def upsample(f: hl.Func, j: int, rest: list[hl.Var]) -> hl.Expr:
        edge, upx = extended(f, j), hl.Func(f"{f.name()}_upx")
        upx[[x, y, *rest]] = hl.lerp(
            edge[[(x + 1) / 2, y, *rest]], edge[[(x - 1) / 2, y, *rest]], (x % 2 * 2 + 1) / hl.f32(4.0)
        )
        return hl.lerp(upx[[x, (y + 1) / 2, *rest]], upx[[x, (y - 1) / 2, *rest]], (y % 2 * 2 + 1) / hl.f32(4.0))

    remap, floating, gray = hl.Func("remap"), hl.Func("floating"), hl.Func("gray")
    fx = hl.f32(entry) / hl.f32(256.0)
    remap[entry] = alpha * fx * hl.exp(-fx * fx / 2.0)
    # Levels rounded up to whole vectors read past the edge.
    floating[x, y, c] = extended(source, 0)[x, y, c] / hl.f32(65535.0)
    gray[x, y] = (
        hl.f32(0.299) * floating[x, y, 0] + hl.f32(0.587) * floating[x, y, 1] + hl.f32(0.114) * floating[x, y, 2]
    )

    remapped, laplacian, guide, detail, result = (
        funcs(name) for name in ("remapped", "laplacian", "guide", "detail", "result")
    )
    level = k * hl.f32(1.0 / (levels - 1))
    idx = hl.clamp(hl.i32(gray[x, y] * float(levels - 1) * 256.0), 0, (levels - 1) * 256)
    remapped[0][x, y, k] = beta * (gray[x, y] - level) + level + remap[idx - 256 * k]
    guide[0][x, y] = gray[x, y]
    edges = []
    for j in range(1, J):
        edges.append(extended(remapped[j - 1], j - 1))
        remapped[j][x, y, k] = downsample(edges[-1], [k])
        guide[j][x, y] = downsample(extended(guide[j - 1], j - 1), [])
    laplacian[-1][x, y, k] = remapped[-1][x, y, k]
    for j in range(J - 1):
        laplacian[j][x, y, k] = remapped[j][x, y, k] - upsample(remapped[j + 1], j + 1, [k])
    for j in range(J):
        position = guide[j][x, y] * float(levels - 1)
        li = hl.clamp(hl.i32(position), 0, levels - 2)
        lf = position - hl.f32(li)
        detail[j][x, y] = (1.0 - lf) * laplacian[j][x, y, li] + lf * laplacian[j][x, y, li + 1]
    result[-1][x, y] = detail[-1][x, y]
    for j in reversed(range(J - 1)):
        result[j][x, y] = upsample(result[j + 1], j + 1, []) + detail[j][x, y]

    color, output = hl.Func("color"), hl.Func("output")
    eps = hl.f32(0.01)
    color[x, y, c] = source[x, y, c] * (result[0][x, y] + eps) / (gray[x, y] + eps)
    output[x, y, c] = hl.u16(hl.clamp(color[x, y, c], 0.0, 65535.0))

    if manual:
        yo = hl.Var("yo")
        remap.compute_root()
        output.reorder(c, x, y).split(y, yo, y, 64).parallel(yo).vectorize(x, 8)
        gray.compute_root().parallel(y, 32).vectorize(x, 8)
        for j in range(1, 5):
            guide[j].compute_root().parallel(y, 32).vectorize(x, 8)
            remapped[j].compute_root().reorder_storage(x, k, y).reorder(k, y).split(y, yo, y, 8).parallel(yo).vectorize(
                x, 8
            )
            result[j].store_at(output, yo).compute_at(output, y).fold_storage(y, 4).vectorize(
                x, 8, hl.TailStrategy.RoundUp
            )
        remapped[0].clone_in(edges[0]).store_at(remapped[1], yo).compute_at(remapped[1], y).vectorize(x, 8)
        for j in range(5, J):
            guide[j].compute_root()
            remapped[j].compute_root().parallel(k)
            result[j].compute_root()
        result[0].compute_at(output, y).hoist_storage(output, yo).vectorize(x, 8, hl.TailStrategy.RoundUp)
    return Program(output, [source], [img], (3, h, w), np.uint16)
