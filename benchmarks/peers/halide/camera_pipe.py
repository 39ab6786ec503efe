"""`benchmarks.apps.camera_pipe` in Halide; the schedule is that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program

STRIP = 32  # rows of the output in a parallel task

x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")


def average(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """Rounded up, in the type of `a`."""
    a = a if isinstance(a, hl.Expr) else hl.Expr(a)
    wider = a.type().with_bits(2 * a.type().bits())
    return hl.cast(a.type(), (hl.cast(wider, a) + b + 1) / 2)


def blur_121(first: hl.Expr, middle: hl.Expr, last: hl.Expr) -> hl.Expr:
    return average(average(first, last), middle)


def interleave(gr: hl.Func, r: hl.Func, b: hl.Func, gb: hl.Func) -> hl.Func:
    """One image of the four sites of the mosaic."""
    red_rows, blue_rows, both = hl.Func("red_rows"), hl.Func("blue_rows"), hl.Func("both")
    red_rows[x, y] = hl.select(x % 2 == 0, gr[x / 2, y], r[x / 2, y])
    blue_rows[x, y] = hl.select(x % 2 == 0, b[x / 2, y], gb[x / 2, y])
    both[x, y] = hl.select(y % 2 == 0, red_rows[x, y / 2], blue_rows[x, y / 2])
    return both


def demosaic(mosaic: hl.Func) -> tuple[hl.Func, hl.Func, hl.Func]:
    """The int16 picture, and green at red and at blue, which it is made of."""
    names = ("g_gr", "r_r", "b_b", "g_gb", "g_r", "g_b", "r_gr", "b_gr", "r_gb", "b_gb", "r_b", "b_r")
    g_gr, r_r, b_b, g_gb, g_r, g_b, r_gr, b_gr, r_gb, b_gb, r_b, b_r = (hl.Func(name) for name in names)
    for k, site in enumerate((g_gr, r_r, b_b, g_gb)):
        site[x, y] = mosaic[x, y, k]

    def mean(f: hl.Func, here: tuple[int, int], there: tuple[int, int]) -> hl.Expr:
        return average(f[x + here[0], y + here[1]], f[x + there[0], y + there[1]])

    def change(f: hl.Func, here: tuple[int, int], there: tuple[int, int]) -> hl.Expr:
        return hl.absd(f[x + here[0], y + here[1]], f[x + there[0], y + there[1]])

    def corrected(centre: hl.Func, green: hl.Func, colour: hl.Func, *ends: tuple[int, int]) -> hl.Expr:
        """`colour` between two places, corrected by what green would have been wrong by."""
        return centre[x, y] - mean(green, *ends) + mean(colour, *ends)

    here, left, right, up, down = (0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)
    across, along = (right, here), (up, here)
    g_r[x, y] = hl.select(change(g_gr, *across) < change(g_gb, *along), mean(g_gr, *across), mean(g_gb, *along))
    across, along = (left, here), (down, here)
    g_b[x, y] = hl.select(change(g_gb, *across) < change(g_gr, *along), mean(g_gb, *across), mean(g_gr, *along))

    r_gr[x, y] = corrected(g_gr, g_r, r_r, left, here)
    b_gr[x, y] = corrected(g_gr, g_b, b_b, here, up)
    r_gb[x, y] = corrected(g_gb, g_r, r_r, here, down)
    b_gb[x, y] = corrected(g_gb, g_b, b_b, here, right)

    falling, rising = (here, (-1, 1)), (left, down)
    r_b[x, y] = hl.select(
        change(r_r, *falling) < change(r_r, *rising),
        corrected(g_b, g_r, r_r, *falling),
        corrected(g_b, g_r, r_r, *rising),
    )
    falling, rising = (here, (1, -1)), (right, up)
    b_r[x, y] = hl.select(
        change(b_b, *falling) < change(b_b, *rising),
        corrected(g_r, g_b, b_b, *falling),
        corrected(g_r, g_b, b_b, *rising),
    )

    colours = (r_gr, r_r, r_b, r_gb), (g_gr, g_r, g_b, g_gb), (b_gr, b_r, b_b, b_gb)
    picture = hl.Func("demosaiced")
    picture[x, y, c] = hl.i16(hl.mux(c, [interleave(*sites)[x, y] for sites in colours]))
    return picture, g_r, g_b


def define(arguments: tuple, manual: bool) -> Program:
    raw, matrix_3200, matrix_7000, *numbers = arguments
    source = hl.ImageParam(hl.UInt(16), 2, "raw")
    warm, cold = hl.ImageParam(hl.Float(32), 2, "matrix_3200"), hl.ImageParam(hl.Float(32), 2, "matrix_7000")
    kinds = (("kelvin", 32), ("gamma", 32), ("contrast", 32), ("strength", 32), ("black", 0), ("white", 0))
    scalars = []
    for (name, bits), value in zip(kinds, numbers, strict=True):
        scalar = hl.Param(hl.Float(bits) if bits else hl.Int(32), name, value)
        scalar.set_estimate(value)
        scalars.append(scalar)
    kelvin, gamma, contrast, strength, black, white = scalars

    # The picture begins well inside the mosaic, so that no border has to be made up.
    shifted, denoised, mosaic = hl.Func("shifted"), hl.Func("denoised"), hl.Func("mosaic")
    shifted[x, y] = source[x + 16, y + 12]
    brightest = hl.max(hl.max(shifted[x - 2, y], shifted[x + 2, y]), hl.max(shifted[x, y - 2], shifted[x, y + 2]))
    denoised[x, y] = hl.min(shifted[x, y], brightest)
    mosaic[x, y, c] = hl.mux(c, [denoised[2 * x + i, 2 * y + j] for j in (0, 1) for i in (0, 1)])
    demosaiced, g_r, g_b = demosaic(mosaic)

    matrix, corrected = hl.Func("matrix"), hl.Func("corrected")
    alpha = (hl.f32(1) / kelvin - hl.f32(1 / 3200)) / hl.f32(1 / 7000 - 1 / 3200)
    matrix[x, y] = hl.i16((warm[x, y] * alpha + cold[x, y] * (hl.f32(1) - alpha)) * hl.f32(256))
    red, green, blue = (hl.i32(demosaiced[x, y, k]) for k in range(3))
    channels = [matrix[3, k] + matrix[0, k] * red + matrix[1, k] * green + matrix[2, k] * blue for k in range(3)]
    corrected[x, y, c] = hl.mux(c, [hl.i16(channel / 256) for channel in channels])

    curve, curved = hl.Func("curve"), hl.Func("curved")
    b = hl.f32(2) - hl.pow(hl.f32(2), contrast / hl.f32(100))
    a = hl.f32(2) - 2 * b
    linear = hl.clamp(hl.f32(x - black) * (hl.f32(1) / (white - black)), hl.f32(0), hl.f32(1))
    g = hl.pow(linear, hl.f32(1) / gamma)
    z = hl.select(g > hl.f32(0.5), 1 - (a * (1 - g) * (1 - g) + b * (1 - g)), a * g * g + b * g)
    value = hl.u8(hl.clamp(z * 255 + hl.f32(0.5), hl.f32(0), hl.f32(255)))
    curve[x] = hl.select(x <= black, hl.u8(0), x > white, hl.u8(255), value)
    curved[x, y, c] = curve[hl.i32(hl.clamp(corrected[x, y, c], 0, 1023))]

    strength_x32, unsharp_y, unsharp, mask, output = (
        hl.Func(name) for name in ("strength_x32", "unsharp_y", "unsharp", "mask", "output")
    )
    strength_x32[()] = hl.u8_sat(strength * 32)
    unsharp_y[x, y, c] = blur_121(curved[x, y - 1, c], curved[x, y, c], curved[x, y + 1, c])
    unsharp[x, y, c] = blur_121(unsharp_y[x - 1, y, c], unsharp_y[x, y, c], unsharp_y[x + 1, y, c])
    mask[x, y, c] = hl.i16(curved[x, y, c]) - hl.i16(unsharp[x, y, c])
    output[x, y, c] = hl.u8_sat(curved[x, y, c] + (mask[x, y, c] * strength_x32[()]) / 32)

    h, w = raw.shape[0] - 48, raw.shape[1] - 32
    if manual:
        lanes = 2 * hl.get_jit_target_from_environment().natural_vector_size(hl.UInt(16))
        xi, yi, yo, yii = hl.Var("xi"), hl.Var("yi"), hl.Var("yo"), hl.Var("yii")
        up = hl.TailStrategy.RoundUp
        whole = h % STRIP == 0 and w % lanes == 0  # as the picture of the benchmark is: no tails
        tail = up if whole else hl.TailStrategy.GuardWithIf
        for table in (matrix, curve, strength_x32):
            table.compute_root()
        output.compute_root().reorder(c, x, y).split(y, yi, yii, 2, tail).split(yi, yo, yi, STRIP // 2)
        output.vectorize(x, lanes, tail).unroll(c).parallel(yo)
        denoised.compute_at(output, yi).store_at(output, yo).fold_storage(y, 4)
        denoised.tile(x, y, x, y, xi, yi, lanes, 2).vectorize(xi).unroll(yi)
        mosaic.compute_at(output, yi).store_at(output, yo).fold_storage(y, 4)
        mosaic.reorder(c, x, y).vectorize(x, lanes, up).unroll(c)
        curved.compute_at(output, yi).store_at(output, yo).reorder(c, x, y)
        curved.tile(x, y, x, y, xi, yi, lanes, 2, up).vectorize(xi).unroll(yi).unroll(c)
        corrected.compute_at(curved, x).reorder(c, x, y).vectorize(x).unroll(c)
        for stage in (g_r, g_b):
            stage.compute_at(output, yi).store_at(output, yo).vectorize(x, lanes, up).fold_storage(y, 4)
        start = hl.LoopAlignStrategy.AlignStart
        g_b.compute_with(g_r, x, [(x, start), (y, start)])
        demosaiced.compute_at(curved, x).vectorize(x).unroll(y).reorder(c, x, y).unroll(c)
        output.bound(c, 0, 3).bound(x, 0, w).bound(y, 0, h)
    return Program(output, [source, warm, cold], [raw, matrix_3200, matrix_7000], (3, h, w), np.uint8)
