"""Bilateral-guided upsampling: an effect on a small image, carried over to the large one by local affine models.

Source: Halide's `apps/bgu`; J. Chen, A. Adams, N. Wadhwa, S. Hasinoff, "Bilateral guided upsampling" (2016). The blurs
over the grid fall off as in Z. Farbman, R. Fattal, D. Lischinski, "Convolution pyramids" (2011); the solver is
Cholesky's without roots.
"""

from __future__ import annotations

import numpy as np

SHAPE = (3, 2560, 1536)
SMALL = (3, 291, 197)
SCALE = 8  # how much smaller the small image is
R_SIGMA, S_SIGMA = 1 / 8, 16
REGULARISATION = 0.1  # of a sample, towards the identity
TOLERANCE = (1e-4, 1e-5)

TAPS = (1 / 64, 1 / 27, 1 / 8, 1.0, 1 / 8, 1 / 27, 1 / 64)


def brightness(rgb: np.ndarray) -> np.ndarray:
    return 0.25 * rgb[0] + 0.5 * rgb[1] + 0.25 * rgb[2]


def blur7(grid: np.ndarray, axis: int) -> np.ndarray:
    """`TAPS` along an axis, where all are inside."""
    g = np.moveaxis(grid, axis, 0)
    n = g.shape[0] - 6
    blurred = g[:n] * TAPS[0]
    for k in range(1, 7):
        blurred = blurred + g[k : k + n] * TAPS[k]
    return np.moveaxis(blurred, 0, axis)


def lerp(a: np.ndarray, b: np.ndarray, t: np.ndarray) -> np.ndarray:
    return a * (1.0 - t) + b * t


def solve_symmetric(a: list[list[np.ndarray]], b: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    """The x of a x = b in every cell: rows of columns of arrays; of a, the lower triangle is read.

    a = L D L', L with ones on its diagonal.
    """
    size, columns = len(a), len(b[0])
    lower = [list(row) for row in a]
    inverse = []
    for j in range(size):
        inverse.append(1.0 / lower[j][j])
        below = [lower[i][j] for i in range(size)]
        for i in range(j + 1, size):
            lower[i][j] = below[i] * inverse[j]
            for k in range(j + 1, i + 1):
                lower[i][k] = lower[i][k] - below[k] * lower[i][j]
    x = [list(row) for row in b]
    for c in range(columns):
        for j in range(size):
            for i in range(j):
                x[j][c] = x[j][c] - lower[j][i] * x[i][c]
        for j in range(size):
            x[j][c] = x[j][c] * inverse[j]
        for j in reversed(range(size)):
            for i in range(j + 1, size):
                x[j][c] = x[j][c] - lower[i][j] * x[i][c]
    return x


def bgu(
    splat_loc: np.ndarray, values: np.ndarray, slice_loc: np.ndarray, r_sigma: float = R_SIGMA, s_sigma: int = S_SIGMA
) -> np.ndarray:
    """float32 (3, h, w) small, before and after the effect, and (3, H, W) large -> float32 (3, H, W); all in 0 to 1."""
    _, small_h, small_w = splat_loc.shape
    _, h, w = slice_loc.shape
    upsample_factor = max(-(-h // small_h), -(-w // small_w))
    big_sigma = s_sigma * upsample_factor
    bins = int(1 / r_sigma)

    # A cell is around its sample; three more on every side for the blur, one for the last interpolation.
    before = 3 * s_sigma + s_sigma // 2
    rows, cols = (h - 1) // big_sigma + 8, (w - 1) // big_sigma + 8
    around = [(0, 0), (before, rows * s_sigma - before - small_h), (before, cols * s_sigma - before - small_w)]
    splat = np.pad(splat_loc, around, mode="edge")
    value = np.pad(values, around, mode="edge")

    # What each cell needs for its fit: the products of the colours before with each other, with those after, and with
    # one.
    sr, sg, sb = splat
    one = np.ones_like(sr)
    affine = [sr, sg, sb, one]
    products = [affine[i] * affine[j] for i in range(4) for j in range(i, 4)] + [v * a for v in value for a in affine]
    zi = np.rint(np.clip(brightness(splat), 0.0, 1.0) * (1.0 / r_sigma)).astype(np.int32) + 3
    row = np.arange(rows * s_sigma)[:, None] // s_sigma
    col = np.arange(cols * s_sigma) // s_sigma
    histogram = np.zeros((22, bins + 8, rows, cols), np.float32)
    np.add.at(histogram, (slice(None), zi, row, col), np.stack(products))

    blurz = blur7(histogram, 1)
    blury = blur7(blurz, 2)
    blurx = blur7(blury, 3)

    # The affine models.
    upper = {(i, j): 4 * i - i * (i - 1) // 2 + j - i for i in range(4) for j in range(i, 4)}
    gram = [[blurx[upper[min(i, j), max(i, j)]] for j in range(4)] for i in range(4)]
    target = [[blurx[10 + 4 * c + i] for c in range(3)] for i in range(4)]
    for i in range(4):
        gram[i][i] = gram[i][i] + REGULARISATION
    for i in range(3):
        target[i][i] = target[i][i] + REGULARISATION
    models = solve_symmetric(gram, target)
    line = np.stack([models[i][c] for c in range(3) for i in range(4)])

    # Trilinear samples of the models, applied to the large image.
    y, x = np.arange(h), np.arange(w)
    yi, xi = y // big_sigma, x // big_sigma
    yf = (y % big_sigma).astype(np.float32)[:, None] / big_sigma
    xf = (x % big_sigma).astype(np.float32) / big_sigma
    matrix_y = lerp(line[:, :, yi], line[:, :, yi + 1], yf)
    position = np.clip(brightness(slice_loc), 0.0, 1.0) * bins
    zi = position.astype(np.int32)
    zf = position - zi.astype(np.float32)
    y = y[:, None]
    result = np.empty_like(slice_loc)
    for c in range(3):
        coefficients = []
        for m in matrix_y[4 * c : 4 * c + 4]:
            near = lerp(m[zi, y, xi], m[zi, y, xi + 1], xf)
            far = lerp(m[zi + 1, y, xi], m[zi + 1, y, xi + 1], xf)
            coefficients.append(lerp(near, far, zf))
        r, g, b, constant = coefficients
        interpolated = r * slice_loc[0] + g * slice_loc[1] + b * slice_loc[2] + constant
        result[c] = np.clip(interpolated, 0.0, 1.0)
    return result


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random images: two small ones and a large one, float32."""
    c, h, w = shape
    small = (c, -(-h // SCALE), -(-w // SCALE))
    return rng.random(small, np.float32), rng.random(small, np.float32), rng.random(shape, np.float32)
