"""`benchmarks.apps.camera_pipe` in PyTorch, whose uint16 has no arithmetic: in int32. The table of
the tone curve is a constant.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.apps.camera_pipe import sharpen_by, shifted, tone_curve

Tensor = Any  # torch.Tensor: helpers of the application have NumPy's types

LEFT, RIGHT, UP, DOWN, HERE = (0, -1), (0, 1), (-1, 0), (1, 0), (0, 0)
DOWN_LEFT, UP_RIGHT = (1, -1), (-1, 1)
Place = tuple[int, int]


def average(a: Tensor, b: Tensor) -> Tensor:
    return (a + b + 1) >> 1


def difference(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).abs()


def suppress_hot_pixels(raw: Tensor) -> Tensor:
    rows = torch.maximum(raw[:-4, 2:-2], raw[4:, 2:-2])
    columns = torch.maximum(raw[2:-2, :-4], raw[2:-2, 4:])
    return torch.minimum(raw[2:-2, 2:-2], torch.maximum(rows, columns))


def interpolate(centre: Tensor, green: Tensor, colour: Tensor, a: Place, b: Place) -> Tensor:
    correction = shifted(centre) - average(shifted(green, *a), shifted(green, *b))
    return correction + average(shifted(colour, *a), shifted(colour, *b))


def across(colour: Tensor, a: Place, b: Place) -> Tensor:
    return difference(shifted(colour, *a), shifted(colour, *b))


def interleaved(gr: Tensor, r: Tensor, b: Tensor, gb: Tensor) -> Tensor:
    """Four sites as one picture of twice the height and width."""
    h, w = gr.shape
    rows = [torch.stack([gr, r], -1), torch.stack([b, gb], -1)]
    return torch.stack(rows, 1).reshape(2 * h, 2 * w)


def demosaic(raw: Tensor) -> Tensor:
    g_gr, r_r, b_b, g_gb = raw[0::2, 0::2], raw[0::2, 1::2], raw[1::2, 0::2], raw[1::2, 1::2]

    gr, gb = shifted(g_gr), shifted(g_gb)
    gr_right, gr_down = shifted(g_gr, *RIGHT), shifted(g_gr, *DOWN)
    gb_left, gb_up = shifted(g_gb, *LEFT), shifted(g_gb, *UP)
    g_r = torch.where(difference(gr_right, gr) < difference(gb_up, gb), average(gr_right, gr), average(gb_up, gb))
    g_b = torch.where(difference(gb_left, gb) < difference(gr_down, gr), average(gb_left, gb), average(gr_down, gr))

    g_gr, r_r, b_b, g_gb = shifted(g_gr), shifted(r_r), shifted(b_b), shifted(g_gb)
    r_gr = interpolate(g_gr, g_r, r_r, LEFT, HERE)
    b_gr = interpolate(g_gr, g_b, b_b, HERE, UP)
    r_gb = interpolate(g_gb, g_r, r_r, HERE, DOWN)
    b_gb = interpolate(g_gb, g_b, b_b, HERE, RIGHT)
    r_b = torch.where(
        across(r_r, HERE, DOWN_LEFT) < across(r_r, LEFT, DOWN),
        interpolate(g_b, g_r, r_r, HERE, DOWN_LEFT),
        interpolate(g_b, g_r, r_r, LEFT, DOWN),
    )
    b_r = torch.where(
        across(b_b, HERE, UP_RIGHT) < across(b_b, RIGHT, UP),
        interpolate(g_r, g_b, b_b, HERE, UP_RIGHT),
        interpolate(g_r, g_b, b_b, RIGHT, UP),
    )
    red = interleaved(r_gr, shifted(r_r), r_b, r_gb)
    green = interleaved(shifted(g_gr), shifted(g_r), shifted(g_b), shifted(g_gb))
    blue = interleaved(b_gr, b_r, shifted(b_b), b_gb)
    return torch.stack([red, green, blue]).to(torch.int16)


def blur_121(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return (((a + c + 1) >> 1) + b + 1) >> 1


@torch.compiler.assume_constant_result  # by NumPy
def table(gamma: float, contrast: float, black: int, white: int, device: torch.device) -> Tensor:
    return torch.from_numpy(tone_curve(gamma, contrast, black, white)).to(device)


def camera_pipe(
    raw: Tensor,
    matrix_3200: Tensor,
    matrix_7000: Tensor,
    colour_temperature: float = 3700.0,
    gamma: float = 2.0,
    contrast: float = 50.0,
    sharpen: float = 1.0,
    black: int = 25,
    white: int = 1023,
) -> Tensor:
    demosaiced = demosaic(suppress_hot_pixels(raw[4:-28, 8:-8].to(torch.int32)))

    alpha = (1 / colour_temperature - 1 / 3200) / (1 / 7000 - 1 / 3200)
    matrix = ((matrix_3200 * alpha + matrix_7000 * (1 - alpha)) * 256).to(torch.int16).to(torch.int32)
    red, green, blue = demosaiced.to(torch.int32)
    corrected = torch.stack([(m[3] + m[0] * red + m[1] * green + m[2] * blue) >> 8 for m in matrix]).to(torch.int16)
    curved = table(gamma, contrast, black, white, raw.device)[corrected.clamp(0, 1023).to(torch.int32)].to(torch.int32)

    unsharp_y = blur_121(curved[:, :-2], curved[:, 1:-1], curved[:, 2:])
    unsharp = blur_121(unsharp_y[:, :, :-2], unsharp_y[:, :, 1:-1], unsharp_y[:, :, 2:])
    centre = curved[:, 1:-1, 1:-1]
    sharpened = centre + ((centre - unsharp) * sharpen_by(sharpen) >> 5)
    return sharpened.clamp(0, 255).to(torch.uint8)[:, 1:-1, 1:-1]
