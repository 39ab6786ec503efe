"""`benchmarks.apps.camera_pipe` in JAX. The table of the tone curve is made while tracing."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from benchmarks.apps.camera_pipe import sharpen_by, shifted, tone_curve

Array = Any  # jax.Array: helpers of the application have NumPy's types

LEFT, RIGHT, UP, DOWN, HERE = (0, -1), (0, 1), (-1, 0), (1, 0), (0, 0)
DOWN_LEFT, UP_RIGHT = (1, -1), (-1, 1)
Place = tuple[int, int]


def average(a: Array, b: Array) -> Array:
    return ((a.astype(jnp.uint32) + b + 1) // 2).astype(jnp.uint16)


def difference(a: Array, b: Array) -> Array:
    return jnp.maximum(a, b) - jnp.minimum(a, b)


def suppress_hot_pixels(raw: Array) -> Array:
    rows = jnp.maximum(raw[:-4, 2:-2], raw[4:, 2:-2])
    columns = jnp.maximum(raw[2:-2, :-4], raw[2:-2, 4:])
    return jnp.minimum(raw[2:-2, 2:-2], jnp.maximum(rows, columns))


def interpolate(centre: Array, green: Array, colour: Array, a: Place, b: Place) -> Array:
    correction = shifted(centre) - average(shifted(green, *a), shifted(green, *b))
    return correction + average(shifted(colour, *a), shifted(colour, *b))


def across(colour: Array, a: Place, b: Place) -> Array:
    return difference(shifted(colour, *a), shifted(colour, *b))


def interleaved(gr: Array, r: Array, b: Array, gb: Array) -> Array:
    """Four sites as one picture of twice the height and width."""
    h, w = gr.shape
    rows = [jnp.stack([gr, r], -1), jnp.stack([b, gb], -1)]
    return jnp.stack(rows, 1).reshape(2 * h, 2 * w)


def demosaic(raw: Array) -> Array:
    g_gr, r_r, b_b, g_gb = raw[0::2, 0::2], raw[0::2, 1::2], raw[1::2, 0::2], raw[1::2, 1::2]

    gr, gb = shifted(g_gr), shifted(g_gb)
    gr_right, gr_down = shifted(g_gr, *RIGHT), shifted(g_gr, *DOWN)
    gb_left, gb_up = shifted(g_gb, *LEFT), shifted(g_gb, *UP)
    g_r: Array = jnp.where(difference(gr_right, gr) < difference(gb_up, gb), average(gr_right, gr), average(gb_up, gb))
    g_b: Array = jnp.where(
        difference(gb_left, gb) < difference(gr_down, gr), average(gb_left, gb), average(gr_down, gr)
    )

    g_gr, r_r, b_b, g_gb = shifted(g_gr), shifted(r_r), shifted(b_b), shifted(g_gb)
    r_gr = interpolate(g_gr, g_r, r_r, LEFT, HERE)
    b_gr = interpolate(g_gr, g_b, b_b, HERE, UP)
    r_gb = interpolate(g_gb, g_r, r_r, HERE, DOWN)
    b_gb = interpolate(g_gb, g_b, b_b, HERE, RIGHT)
    r_b: Array = jnp.where(
        across(r_r, HERE, DOWN_LEFT) < across(r_r, LEFT, DOWN),
        interpolate(g_b, g_r, r_r, HERE, DOWN_LEFT),
        interpolate(g_b, g_r, r_r, LEFT, DOWN),
    )
    b_r: Array = jnp.where(
        across(b_b, HERE, UP_RIGHT) < across(b_b, RIGHT, UP),
        interpolate(g_r, g_b, b_b, HERE, UP_RIGHT),
        interpolate(g_r, g_b, b_b, RIGHT, UP),
    )
    red = interleaved(r_gr, shifted(r_r), r_b, r_gb)
    green = interleaved(shifted(g_gr), shifted(g_r), shifted(g_b), shifted(g_gb))
    blue = interleaved(b_gr, b_r, shifted(b_b), b_gb)
    return jnp.stack([red, green, blue]).astype(jnp.int16)


def blur_121(a: Array, b: Array, c: Array) -> Array:
    ends = (a.astype(jnp.uint16) + c + 1) // 2
    return ((ends + b + 1) // 2).astype(jnp.uint8)


def camera_pipe(
    raw: Array,
    matrix_3200: Array,
    matrix_7000: Array,
    colour_temperature: float = 3700.0,
    gamma: float = 2.0,
    contrast: float = 50.0,
    sharpen: float = 1.0,
    black: int = 25,
    white: int = 1023,
) -> Array:
    demosaiced = demosaic(suppress_hot_pixels(raw[4:-28, 8:-8]))

    alpha = (1 / colour_temperature - 1 / 3200) / (1 / 7000 - 1 / 3200)
    matrix = ((matrix_3200 * alpha + matrix_7000 * (1 - alpha)) * 256).astype(jnp.int16).astype(jnp.int32)
    red, green, blue = demosaiced.astype(jnp.int32)
    corrected = jnp.stack([(m[3] + m[0] * red + m[1] * green + m[2] * blue) // 256 for m in matrix]).astype(jnp.int16)
    curved = jnp.asarray(tone_curve(gamma, contrast, black, white))[jnp.clip(corrected, 0, 1023)]

    unsharp_y = blur_121(curved[:, :-2], curved[:, 1:-1], curved[:, 2:])
    unsharp = blur_121(unsharp_y[:, :, :-2], unsharp_y[:, :, 1:-1], unsharp_y[:, :, 2:])
    centre = curved[:, 1:-1, 1:-1].astype(jnp.int16)
    sharpened = centre + (centre - unsharp) * sharpen_by(sharpen) // 32
    return jnp.clip(sharpened, 0, 255).astype(jnp.uint8)[:, 1:-1, 1:-1]
