"""Schedules by hand of the applications' Halide programs for a GPU, after Halide's own apps where these have one.

The programs are those of `benchmarks.peers.halide`, without their schedules for the CPU. A schedule finds their Funcs
by name, and the result as `output`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import halide as hl

Funcs = Mapping[str, list[Any]]
Schedule = Callable[[Funcs, hl.Func, Any], None]
NUMBER = re.compile(r"(?:_\d+|(?<=pull|push)\d)$")


@contextlib.contextmanager
def recorded() -> Iterator[dict[str, list[Any]]]:
    """All Funcs and RDoms that are made meanwhile, by their names without a number at the end ("": RDoms without)."""
    found: dict[str, list[Any]] = {}
    usual, domain = hl.Func, hl.RDom

    def func(name: Any = None) -> hl.Func:
        if not isinstance(name, str):
            return usual() if name is None else usual(name)
        made = usual(name)
        found.setdefault(NUMBER.sub("", name), []).append(made)
        return made

    def rdom(ranges: Any, name: str = "") -> hl.RDom:
        made = domain(ranges, name) if name else domain(ranges)
        found.setdefault(name, []).append(made)
        return made

    hl.Func, hl.RDom = func, rdom
    try:
        yield found
    finally:
        hl.Func, hl.RDom = usual, domain


def tiled(f: hl.Func, wide: int = 32, high: int = 8, updates: bool = True) -> hl.Func:
    """At the root, a thread an element, in blocks of x and y; other axes are of blocks, too."""
    f.compute_root()
    stages = [f, *(f.update(k) for k in range(f.num_update_definitions()))] if updates else [f]
    for s in stages:
        axes = f.args()
        xi, yi = hl.Var("xi"), hl.Var("yi")
        if len(axes) == 1:
            s.gpu_tile(axes[0], xi, wide * high)
            continue
        s.gpu_tile(axes[0], axes[1], axes[0], axes[1], xi, yi, wide, high)
        rest = axes[2:]
        while len(rest) > 1:
            s.fuse(rest[0], rest[1], rest[0])
            rest = [rest[0], *rest[2:]]
        for axis in rest:
            s.gpu_blocks(axis)
    return f


def colours(f: hl.Func, count: int = 3, wide: int = 32, high: int = 8) -> tuple[hl.Var, hl.Var]:
    """At the root, a thread a pixel of all colours; the loops of a block's threads."""
    x, y, c = f.args()
    xi, yi = hl.Var("xi"), hl.Var("yi")
    f.compute_root().bound(c, 0, count).reorder(c, x, y).unroll(c).gpu_tile(x, y, x, y, xi, yi, wide, high)
    return xi, yi


def in_block(f: hl.Func, of: hl.Func, loop: hl.Var) -> hl.Func:
    """By the threads of each block of another Func."""
    axes = f.args()
    f.compute_at(of, loop).gpu_threads(axes[0], axes[1])
    return f


def blur(f: Funcs, output: hl.Func, program: Any) -> None:
    x, y = output.args()
    output.compute_root().gpu_tile(x, y, hl.Var("xi"), hl.Var("yi"), 32, 8)


def unsharp(f: Funcs, output: hl.Func, program: Any) -> None:
    xi, _ = colours(output)
    x = output.args()[0]
    (gray,), (blur_y,), (ratio,) = f["gray"], f["blur_y"], f["ratio"]
    ratio.compute_at(output, xi)
    in_block(blur_y, output, x)
    in_block(gray, output, x)


def harris(f: Funcs, output: hl.Func, program: Any) -> None:
    x, y = output.args()
    xi, yi = hl.Var("xi"), hl.Var("yi")
    output.compute_root().gpu_tile(x, y, xi, yi, 30, 14)
    for name in ("gray", "ix", "iy"):
        in_block(f[name][0], output, x)


def camera_pipe(f: Funcs, output: hl.Func, program: Any) -> None:
    tiled(f["curve"][0])
    f["matrix"][0].compute_root().gpu_single_thread()
    f["strength_x32"][0].compute_root()
    colours(output, wide=28, high=12)
    x = output.args()[0]
    for name in ("curved", "demosaiced", "mosaic", "denoised", "g_r", "g_b"):
        g = f[name][0]
        in_block(g, output, x)
        if name in ("curved", "demosaiced", "mosaic"):
            c = g.args()[2]
            g.reorder(c, *g.args()[:2]).bound(c, 0, 4 if name == "mosaic" else 3).unroll(c)


def local_laplacian(f: Funcs, output: hl.Func, program: Any) -> None:
    tiled(f["remap"][0])
    colours(output)
    for name in ("remapped", "guide", "result"):
        for k, g in enumerate(f[name]):
            if k or name == "result":
                tiled(g, *((32, 8) if k < 4 else (8, 4)))
    tiled(f["gray"][0])


def bilateral_grid(f: Funcs, output: hl.Func, program: Any) -> None:
    (histogram,), (blurz,), (blurx,), (blury,) = (f[n] for n in ("histogram", "blurz", "blurx", "blury"))
    x, y, z, c = blurz.args()
    xi, yi, zi = hl.Var("xi"), hl.Var("yi"), hl.Var("zi")
    blurz.compute_root().reorder(c, z, x, y).reorder_storage(c, x, y, z).bound(c, 0, 2)
    blurz.gpu_tile(x, y, x, y, xi, yi, 16, 8).unroll(c)
    histogram.reorder(c, z, x, y).compute_at(blurz, x).store_in(hl.MemoryType.GPUShared).gpu_threads(x, y)
    histogram.bound(c, 0, 2)
    histogram.update(0).gpu_threads(x, y).unroll(c)
    for g in (blurx, blury):
        g.compute_root().reorder_storage(c, x, y, z).reorder(c, x, y, z).bound(c, 0, 2)
        g.gpu_tile(x, y, z, x, y, z, xi, yi, zi, 32, 4, 1).unroll(c)
    tiled(output)


def interpolate(f: Funcs, output: hl.Func, program: Any) -> None:
    colours(output)
    for k, g in enumerate(f["downsampled"]):
        if k:
            tiled(g, *((32, 8) if k < 5 else (8, 4)))
    for k, g in enumerate(f["filled"]):
        if k:
            tiled(g, *((32, 8) if k < 5 else (8, 4)))


def stencil_chain(f: Funcs, output: hl.Func, program: Any) -> None:
    for g in f["stage"]:
        tiled(g)
    tiled(output)


def hist(f: Funcs, output: hl.Func, program: Any) -> None:
    (rows,), (histogram,), (cdf,) = f["rows"], f["histogram"], f["cdf"]
    x, y = rows.args()
    rows.compute_root().bound(x, 0, 256).gpu_blocks(y).gpu_threads(x)
    pixel, row, _ = (r.x for r in f[""])
    xi, part = hl.Var("xi"), hl.Var("part")
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    rows.update(0).atomic().split(pixel, ro, ri, 128).reorder(ro, ri, y).gpu_blocks(y).gpu_threads(ri)
    (bins,) = histogram.args()
    parts = histogram.update(0).split(row, ro, ri, 32).rfactor(ro, part)
    parts.compute_root().gpu_tile(bins, xi, 128).gpu_blocks(part)
    parts.update(0).reorder(ri, bins, part).gpu_tile(bins, xi, 128).gpu_blocks(part)
    histogram.compute_root().bound(bins, 0, 256).gpu_tile(bins, xi, 32)
    histogram.update(0).gpu_tile(bins, xi, 32)
    cdf.compute_root().bound(cdf.args()[0], 0, 256).gpu_tile(cdf.args()[0], xi, 256)
    cdf.update(0).gpu_single_thread()
    colours(output)


def max_filter(f: Funcs, output: hl.Func, program: Any) -> None:
    (runs,), (r,) = f["runs"], f["r"]
    tiled(runs, updates=False)
    x, _, c, _ = runs.args()
    doubled = runs.update(0).reorder(x, r.x, c, r.y).allow_race_conditions()  # a launch for each length
    doubled.gpu_tile(x, r.x, hl.Var("xi"), hl.RVar("yi"), 32, 8).gpu_blocks(c)
    tiled(output)


def nl_means(f: Funcs, output: hl.Func, program: Any) -> None:
    colours(output)
    x = output.args()[0]
    (total,), (weight,), (blur_y,), (distance,) = (f[n] for n in ("total", "weight", "blur_y", "distance"))
    tx, ty, c = total.args()
    total.compute_at(output, x).reorder(c, tx, ty).bound(c, 0, 4).unroll(c).gpu_threads(tx, ty)
    (offset,) = f["offset"]
    total.update(0).reorder(c, tx, ty, offset.x, offset.y).unroll(c).gpu_threads(tx, ty)
    for g in (weight, blur_y, distance):
        g.compute_at(total, offset.x).gpu_threads(*g.args()[:2])


def iir_blur(f: Funcs, output: hl.Func, program: Any) -> None:
    for g in (*f["blur_y"], *f["blur_x"]):
        x, _, c = g.args()
        g.compute_root()
        for k in range(g.num_update_definitions()):
            g.update(k).gpu_tile(x, hl.Var("xi"), 32).gpu_blocks(c)
    for g in (*f["blur_y_transposed"], *f["blur_x_transposed"]):
        tiled(g, 32, 16)


def channel_tiles(output: hl.Func, program: Any, sums: hl.Func, columns: int) -> None:
    """Tiles of channels and rows, a thread for each channel of a row, which computes some columns of sums."""
    c, x, y, n = output.args()
    ci, xi, yi = hl.Var("ci"), hl.Var("xi"), hl.Var("yi")
    channels = min(32, program.shape[-1])  # the program does without checks: tiles are not wider than the image
    output.compute_root().split(c, c, ci, channels).split(x, x, xi, columns).split(y, y, yi, 4)
    output.reorder(xi, ci, yi, c, x, y, n).unroll(xi).fuse(c, x, x).gpu_blocks(x, y, n).gpu_threads(ci, yi)
    sums.compute_at(output, ci).unroll(x)
    sums.update(0).unroll(x)


def conv_layer(f: Funcs, output: hl.Func, program: Any) -> None:
    (conv,) = f["conv"]
    channel_tiles(output, program, conv, 5)


def depthwise_separable_conv(f: Funcs, output: hl.Func, program: Any) -> None:
    (depthwise,), (pointwise,) = f["depthwise"], f["pointwise"]
    tiled(depthwise)
    channel_tiles(output, program, pointwise, 4)


def mat_mul(f: Funcs, output: hl.Func, program: Any) -> None:
    """As Halide's `apps/cuda_mat_mul`."""
    warp, lanes, x_tile, y_tile, y_unroll = 32, 2, 3, 4, 8
    a, b = program.params
    (product,) = f["product"]
    x, y = output.args()
    xi, yi, xio, xii, xo, yo, ty = (hl.Var(n) for n in ("xi", "yi", "xio", "xii", "xo", "yo", "ty"))
    up = hl.TailStrategy.RoundUp
    m, n = program.shape
    output.compute_root().bound(x, 0, n).bound(y, 0, m)
    output.tile(x, y, xi, yi, x_tile * lanes * warp, y_tile * y_unroll).split(yi, ty, yi, y_unroll)
    output.vectorize(xi, lanes).split(xi, xio, xii, warp).reorder(xio, yi, xii, ty, x, y).unroll(xio).unroll(yi)
    output.gpu_blocks(x, y).gpu_threads(ty).gpu_lanes(xii)
    product.store_in(hl.MemoryType.Register).compute_at(output, x)
    px, py = product.args()
    (r,) = f["r"]
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    product.split(px, xo, xi, warp * lanes, up).split(py, ty, py, y_unroll).gpu_threads(ty)
    product.unroll(xi, lanes).gpu_lanes(xi).unroll(xo).unroll(py)
    summed = product.update(0).split(px, xo, xi, warp * lanes, up).split(py, ty, py, y_unroll).gpu_threads(ty)
    summed.unroll(xi, lanes).gpu_lanes(xi).split(r.x, ro, ri, warp).reorder(xi, xo, py, ri, ty, ro)
    summed.unroll(xo).unroll(py)
    right = b.in_()
    bx, by = right.args()
    right.compute_at(product, ty).split(bx, xo, xi, warp).gpu_lanes(xi).unroll(xo).unroll(by)
    left = a.in_()
    ax, ay = left.args()
    left.compute_at(product, ro).vectorize(ax, lanes).split(ax, xo, xi, warp).gpu_lanes(xi)
    left.unroll(xo).split(ay, yo, yi, y_tile).gpu_threads(yi).unroll(yo)


def lens_blur(f: Funcs, output: hl.Func, program: Any) -> None:
    for name in ("cost", "confidence", "push", "downy", "pull", "depth", "worst_y", "worst", "with_alpha"):
        for g in f.get(name, []):
            tiled(g, *((32, 8) if name not in ("downy", "pull") else (16, 8)))
    (samples,) = f["output"]
    x, y, c = samples.args()
    colours(output)
    samples.compute_root().reorder(c, x, y).bound(c, 0, 4).unroll(c)
    samples.gpu_tile(x, y, x, y, hl.Var("xj"), hl.Var("yj"), 32, 8)
    samples.update(0).reorder(c, x, y).unroll(c).gpu_tile(x, y, x, y, hl.Var("xj"), hl.Var("yj"), 32, 8)


def bgu(f: Funcs, output: hl.Func, program: Any) -> None:
    for name in ("histogram", "blurz", "blury", "blurx", "matrix_y", "gray_splat"):
        tiled(f[name][0], 16, 8, updates=False)
    (histogram,), (line,), (solver,) = f["histogram"], f["line"], f["solver"]
    x, y, _, c = histogram.args()
    (r,) = f["r"]
    cells = histogram.bound(c, 0, 22).update(0).reorder(c, r.x, r.y, x, y).unroll(c)
    cells.gpu_tile(x, y, hl.Var("xi"), hl.Var("yi"), 8, 8)
    x, y, z, c = line.args()
    xi, yi = hl.Var("xi"), hl.Var("yi")
    line.compute_root().bound(c, 0, 12).reorder(c, x, y, z).unroll(c).gpu_tile(x, y, xi, yi, 8, 8).gpu_blocks(z)
    row, column = solver.args()[3:]
    solver.compute_at(line, xi).bound(row, 0, 4).bound(column, 0, 7).unroll(row).unroll(column)
    for k in range(solver.num_update_definitions()):
        solver.update(k).unscheduled()
    colours(output)


def snake(f: Funcs, output: hl.Func, program: Any) -> None:
    for name in ("blur_y", "blur_x", "g", "g_slope", "field", "phi"):
        for g in f.get(name, []):
            tiled(g)


MANUAL: Mapping[str, Schedule] = {
    "blur": blur,
    "blur_large": blur,
    "unsharp": unsharp,
    "harris": harris,
    "camera_pipe": camera_pipe,
    "local_laplacian": local_laplacian,
    "bilateral_grid": bilateral_grid,
    "interpolate": interpolate,
    "stencil_chain": stencil_chain,
    "hist": hist,
    "max_filter": max_filter,
    "nl_means": nl_means,
    "iir_blur": iir_blur,
    "conv_layer": conv_layer,
    "lens_blur": lens_blur,
    "bgu": bgu,
    "depthwise_separable_conv": depthwise_separable_conv,
    "mat_mul": mat_mul,
    "snake": snake,
}
