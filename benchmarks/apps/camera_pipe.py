"""From the raw mosaic of a camera to a picture: hot pixels, demosaicing, colour correction, tone curve, sharpening.

Source: Halide's `apps/camera_pipe`; A. Adams et al., "The Frankencamera" (2010), whose pipeline for the Nokia N900
this is.
"""

from __future__ import annotations

import numpy as np

SHAPE = (1968, 2592)
SMALL = (98, 130)
TOLERANCE = (0.0, 0.0)

# Colour matrices of the sensor of the N900 in light of 3200 K and of 7000 K; the last column is an offset.
MATRIX_3200 = (
    (1.6697, -0.2693, -0.4004, -42.4346),
    (-0.3576, 1.0615, 1.5949, -37.1158),
    (-0.2175, -1.8751, 6.9640, -26.6970),
)
MATRIX_7000 = (
    (2.2997, -0.4478, 0.1706, -39.0923),
    (-0.3826, 1.5906, -0.2080, -25.4311),
    (-0.0888, -0.7344, 2.2832, -20.0826),
)


def average(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The mean of two uint16 images, rounded up."""
    return ((a.astype(np.uint32) + b + 1) // 2).astype(np.uint16)


def difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The absolute difference of two unsigned images."""
    return np.maximum(a, b) - np.minimum(a, b)


def shifted(plane: np.ndarray, y: int = 0, x: int = 0) -> np.ndarray:
    """The pixels at (y, x) from each pixel inside a border of 1: (H, W) -> (H - 2, W - 2)."""
    return plane[1 + y : plane.shape[0] - 1 + y, 1 + x : plane.shape[1] - 1 + x]


def suppress_hot_pixels(raw: np.ndarray) -> np.ndarray:
    """No pixel is brighter than the brightest of its neighbours of the same colour: (H, W) -> (H - 4, W - 4)."""
    rows = np.maximum(raw[:-4, 2:-2], raw[4:, 2:-2])
    columns = np.maximum(raw[2:-2, :-4], raw[2:-2, 4:])
    return np.minimum(raw[2:-2, 2:-2], np.maximum(rows, columns))


def demosaic(raw: np.ndarray) -> list[list[np.ndarray]]:
    """A mosaic of green, red / blue, green -> [r, g, b], each at the four sites.

    uint16 (H, W) -> uint16 (H // 2 - 4, W // 2 - 4).

    `r_gb` is red at the sites of green in rows of blue; `g_gr` is green in rows of red.
    """
    g_gr, r_r = raw[0::2, 0::2], raw[0::2, 1::2]
    b_b, g_gb = raw[1::2, 0::2], raw[1::2, 1::2]

    # Green at red and at blue: along the direction that changes less.
    left, right, up, down = (0, -1), (0, 1), (-1, 0), (1, 0)
    gr, gb = shifted(g_gr), shifted(g_gb)
    gr_right, gr_down = shifted(g_gr, *right), shifted(g_gr, *down)
    gb_left, gb_up = shifted(g_gb, *left), shifted(g_gb, *up)
    g_r = np.where(difference(gr_right, gr) < difference(gb_up, gb), average(gr_right, gr), average(gb_up, gb))
    g_b = np.where(difference(gb_left, gb) < difference(gr_down, gr), average(gb_left, gb), average(gr_down, gr))

    # From here on everything has the border of g_r and g_b, and loses one pixel more.
    g_gr, r_r, b_b, g_gb = shifted(g_gr), shifted(r_r), shifted(b_b), shifted(g_gb)

    def interpolate(
        centre: np.ndarray, green: np.ndarray, colour: np.ndarray, here: tuple[int, int], there: tuple[int, int]
    ) -> np.ndarray:
        """`colour` between two places, corrected by what green would have been wrong by."""
        correction = shifted(centre) - average(shifted(green, *here), shifted(green, *there))
        return correction + average(shifted(colour, *here), shifted(colour, *there))

    def across(colour: np.ndarray, here: tuple[int, int], there: tuple[int, int]) -> np.ndarray:
        return difference(shifted(colour, *here), shifted(colour, *there))

    here = (0, 0)
    r_gr = interpolate(g_gr, g_r, r_r, left, here)
    b_gr = interpolate(g_gr, g_b, b_b, here, up)
    r_gb = interpolate(g_gb, g_r, r_r, here, down)
    b_gb = interpolate(g_gb, g_b, b_b, here, right)

    # Red at blue and blue at red: along the diagonal that changes less.
    down_left, up_right = (1, -1), (-1, 1)
    r_b = np.where(
        across(r_r, here, down_left) < across(r_r, left, down),
        interpolate(g_b, g_r, r_r, here, down_left),
        interpolate(g_b, g_r, r_r, left, down),
    )
    b_r = np.where(
        across(b_b, here, up_right) < across(b_b, right, up),
        interpolate(g_r, g_b, b_b, here, up_right),
        interpolate(g_r, g_b, b_b, right, up),
    )

    red = [r_gr, shifted(r_r), r_b, r_gb]
    green = [shifted(g_gr), shifted(g_r), shifted(g_b), shifted(g_gb)]
    blue = [b_gr, b_r, shifted(b_b), b_gb]
    return [red, green, blue]


def colour_matrix(matrix_3200: np.ndarray, matrix_7000: np.ndarray, colour_temperature: float) -> np.ndarray:
    """The matrix of a light between the two, by inverse temperature, in 1/256: int16 (3, 4)."""
    alpha = (1 / colour_temperature - 1 / 3200) / (1 / 7000 - 1 / 3200)
    matrix = matrix_3200 * alpha + matrix_7000 * (1 - alpha)
    return (matrix * 256).astype(np.int16)


def tone_curve(gamma: float, contrast: float, black: int, white: int) -> np.ndarray:
    """A table from 10 bits to 8: gamma, then an S of two parabolas. uint8 (1024,)."""
    level = np.arange(1024, dtype=np.float32)
    b = 2 - 2 ** (contrast / 100)
    a = 2 - 2 * b
    linear = np.clip((level - black) * (1 / (white - black)), 0, 1)
    g = linear ** (1 / gamma)
    z = np.where(g > 0.5, 1 - (a * (1 - g) * (1 - g) + b * (1 - g)), a * g * g + b * g)
    value = np.clip(z * 255 + 0.5, 0, 255).astype(np.uint8)
    return np.where(level <= black, np.uint8(0), np.where(level > white, np.uint8(255), value))


def blur_121(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """(a + 2 b + c) / 4 of uint8 images, rounded up twice."""
    ends = (a.astype(np.uint16) + c + 1) // 2
    return ((ends + b + 1) // 2).astype(np.uint8)


def sharpen_by(strength: float) -> int:
    """The strength of sharpening in 1/32."""
    return min(max(int(strength * 32), 0), 255)


def camera_pipe(
    raw: np.ndarray,
    matrix_3200: np.ndarray,
    matrix_7000: np.ndarray,
    colour_temperature: float = 3700.0,
    gamma: float = 2.0,
    contrast: float = 50.0,
    sharpen: float = 1.0,
    black: int = 25,
    white: int = 1023,
) -> np.ndarray:
    """uint16 (H, W) of 10 bits, float32 (3, 4), float32 (3, 4) -> uint8 (3, H - 48, W - 32).

    The picture begins at raw[12, 16]: all filters find their neighbours, no border is made up.
    """
    denoised = suppress_hot_pixels(raw[4:-28, 8:-8])
    sites = demosaic(denoised)
    height, width = sites[0][0].shape
    demosaiced = np.empty((3, 2 * height, 2 * width), np.int16)
    for c, (gr, r, b, gb) in enumerate(sites):
        demosaiced[c, 0::2, 0::2] = gr.astype(np.int16)
        demosaiced[c, 0::2, 1::2] = r.astype(np.int16)
        demosaiced[c, 1::2, 0::2] = b.astype(np.int16)
        demosaiced[c, 1::2, 1::2] = gb.astype(np.int16)

    matrix = colour_matrix(matrix_3200, matrix_7000, colour_temperature).astype(np.int32)
    red, green, blue = demosaiced.astype(np.int32)
    corrected = np.stack([(m[3] + m[0] * red + m[1] * green + m[2] * blue) // 256 for m in matrix]).astype(np.int16)

    curve = tone_curve(gamma, contrast, black, white)
    curved = curve[np.clip(corrected, 0, 1023)]

    unsharp_y = blur_121(curved[:, :-2], curved[:, 1:-1], curved[:, 2:])
    unsharp = blur_121(unsharp_y[:, :, :-2], unsharp_y[:, :, 1:-1], unsharp_y[:, :, 2:])
    centre = curved[:, 1:-1, 1:-1].astype(np.int16)
    mask = centre - unsharp
    sharpened = np.clip(centre + mask * sharpen_by(sharpen) // 32, 0, 255).astype(np.uint8)
    return sharpened[:, 1:-1, 1:-1]


def channels_last(
    raw: np.ndarray,
    matrix_3200: np.ndarray,
    matrix_7000: np.ndarray,
    colour_temperature: float = 3700.0,
    gamma: float = 2.0,
    contrast: float = 50.0,
    sharpen: float = 1.0,
    black: int = 25,
    white: int = 1023,
) -> np.ndarray:
    """`camera_pipe` to a picture with its channels last: uint8 (H - 48, W - 32, 3)."""
    denoised = suppress_hot_pixels(raw[4:-28, 8:-8])
    sites = demosaic(denoised)
    height, width = sites[0][0].shape
    demosaiced = np.empty((2 * height, 2 * width, 3), np.int16)
    for c, (gr, r, b, gb) in enumerate(sites):
        demosaiced[0::2, 0::2, c] = gr.astype(np.int16)
        demosaiced[0::2, 1::2, c] = r.astype(np.int16)
        demosaiced[1::2, 0::2, c] = b.astype(np.int16)
        demosaiced[1::2, 1::2, c] = gb.astype(np.int16)

    matrix = colour_matrix(matrix_3200, matrix_7000, colour_temperature).astype(np.int32)
    corrected = ((demosaiced.astype(np.int32) @ matrix[:, :3].T + matrix[:, 3]) // 256).astype(np.int16)

    curve = tone_curve(gamma, contrast, black, white)
    curved = curve[np.clip(corrected, 0, 1023)]

    unsharp_y = blur_121(curved[:-2], curved[1:-1], curved[2:])
    unsharp = blur_121(unsharp_y[:, :-2], unsharp_y[:, 1:-1], unsharp_y[:, 2:])
    centre = curved[1:-1, 1:-1].astype(np.int16)
    mask = centre - unsharp
    sharpened = np.clip(centre + mask * sharpen_by(sharpen) // 32, 0, 255).astype(np.uint8)
    return sharpened[1:-1, 1:-1]


def inputs(rng: np.random.Generator, shape: tuple[int, int] = SHAPE) -> tuple[np.ndarray | float, ...]:
    """A random mosaic of 10 bits, the colour matrices, and the parameters of Halide's test."""
    raw = rng.integers(0, 1024, shape, np.uint16)
    return raw, np.array(MATRIX_3200, np.float32), np.array(MATRIX_7000, np.float32), 3700.0, 2.0, 50.0, 1.0, 25, 1023


inputs_last = inputs
