"""`benchmarks.apps.lens_blur` in PyTorch, whose uint32 has no arithmetic: in int64, of which 32 bits are kept."""

from __future__ import annotations

import torch
from torch.nn import functional

from benchmarks.apps.lens_blur import APERTURE_SAMPLES, BLUR_RADIUS_SCALE, FOCUS_DEPTH, LEVELS, SLICES
from benchmarks.peers.torch.edges import by_turns, edge

BITS = 0xFFFFFFFF


def downsample(volume: torch.Tensor) -> torch.Tensor:
    h, w = volume.shape[-2] // 2 * 2, volume.shape[-1] // 2 * 2
    p = edge(volume, (1, 1), (1, 1))
    p = (p[..., 0:w:2] + 3.0 * (p[..., 1 : w + 1 : 2] + p[..., 2 : w + 2 : 2]) + p[..., 3 : w + 3 : 2]) / 8.0
    middle = p[..., 1 : h + 1 : 2, :] + p[..., 2 : h + 2 : 2, :]
    return (p[..., 0:h:2, :] + 3.0 * middle + p[..., 3 : h + 3 : 2, :]) / 8.0


def doubled(padded: torch.Tensor, axis: int, n: int) -> torch.Tensor:
    """Bilinear, along an axis with one sample before the first and two after the last, to n."""
    half = (n + 1) // 2
    before, here, after = (padded.narrow(axis, k, half) for k in range(3))
    return by_turns(0.25 * before + 0.75 * here, 0.25 * after + 0.75 * here, axis).narrow(axis, 0, n)


def upsample(volume: torch.Tensor, h: int, w: int) -> torch.Tensor:
    return doubled(doubled(edge(volume, (1, 2), (1, 2)), -1, w), -2, h)


def permute(n: torch.Tensor) -> torch.Tensor:
    return (((n * 0x3C6EF372 + 0x85EBCA6B) & BITS) * n + 0x9E3779B9) & BITS


def noise(seed: torch.Tensor) -> torch.Tensor:
    return (permute(seed) >> 8).to(torch.float32) * 2**-23 - 1.0


def matching(left: torch.Tensor, right: torch.Tensor, slices: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The cost of each disparity, (slices, H, W), and how sure it is, (H, W)."""
    padded = edge(right.to(torch.int32), (0, 0), (0, 2 * slices - 1))
    shifted = padded.unfold(2, left.shape[2], 1).transpose(1, 2)  # (3, 2 * slices, H, W), a view
    off = (left.to(torch.int32)[:, None] - shifted).abs()
    diff = torch.minimum(off[:, 0::2], off[:, 1::2]).to(torch.float32)
    cost = (diff**2).sum(dim=0)
    mean = (cost / slices).sum(dim=0)
    return cost, (cost**2).sum(dim=0) / slices - mean**2


def lens_blur(
    left: torch.Tensor,
    right: torch.Tensor,
    slices: int = SLICES,
    focus_depth: int = FOCUS_DEPTH,
    blur_radius_scale: float = BLUR_RADIUS_SCALE,
    aperture_samples: int = APERTURE_SAMPLES,
) -> torch.Tensor:
    _, h, w = left.shape
    radius = int(max(slices - focus_depth, focus_depth) * blur_radius_scale)

    cost, confidence = matching(left, right, slices)
    push = [torch.stack([cost * confidence, confidence.expand_as(cost)])]
    for _ in range(1, LEVELS):
        push.append(downsample(push[-1]))
    pull = push[-1]
    for level in reversed(push[:-1]):
        pull = 0.5 * upsample(pull, *level.shape[-2:]) + 0.5 * level
    depth = (pull[0] / pull[1]).argmin(dim=0).to(torch.int32)

    bokeh_radius = (depth - focus_depth).abs().to(torch.float32) * blur_radius_scale
    bokeh_radius_squared = bokeh_radius**2
    worst_case_radius = functional.max_pool2d(bokeh_radius[None], 2 * radius + 1, stride=1, padding=radius)[0]

    around = (radius, radius), (radius, radius)
    colours, depths, bokehs = edge(left, *around), edge(depth, *around), edge(bokeh_radius_squared, *around)

    y, x = torch.arange(h, device=left.device)[:, None], torch.arange(w, device=left.device)
    sample = torch.arange(aperture_samples, device=left.device)[:, None, None]
    seed = permute(permute(permute(x) + y) + sample)
    u = (noise(seed) * worst_case_radius).to(torch.int32).clamp(-radius, radius)
    v = (noise(seed + 1) * worst_case_radius).to(torch.int32).clamp(-radius, radius)
    sample_y, sample_x = y + v + radius, x + u + radius
    distance = (u * u + v * v).to(torch.float32)
    covers, covered = distance < bokeh_radius_squared, distance < bokehs[sample_y, sample_x]
    in_front = depths[sample_y, sample_x] < depth
    weight = ((covers | in_front) & covered).to(torch.float32)
    total = left + (weight * colours[:, sample_y, sample_x]).sum(dim=1)
    return total / (255.0 + (weight * 255.0).sum(dim=0))
