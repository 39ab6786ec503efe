"""What tutorials of image processing write in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage
from skimage import transform

Array = np.ndarray[Any, Any]


def brighten(img: Array, contrast: float, offset: float) -> Array:
    return np.clip(img.astype(np.float32) * contrast + offset, 0, 255).astype(np.uint8)


def equalised(img: Array) -> Array:
    hist, _ = np.histogram(img.ravel(), 256, (0, 256))
    total = np.ma.masked_equal(hist.cumsum(), 0)
    scaled = (total - total.min()) * 255 / (total.max() - total.min())
    return np.ma.filled(scaled, 0).astype(np.uint8)[img]


def otsu(img: Array) -> tuple[int, Array]:
    p = np.bincount(img.ravel(), minlength=256) / img.size
    best, threshold = -1.0, 0
    for t in range(1, 256):
        left, right = p[:t].sum(), p[t:].sum()
        if left == 0 or right == 0:
            continue
        means = (np.arange(t) * p[:t]).sum() / left, (np.arange(t, 256) * p[t:]).sum() / right
        between = left * right * (means[0] - means[1]) ** 2
        if between > best:
            best, threshold = between, t
    return threshold, np.where(img >= threshold, 255, 0).astype(np.uint8)


def windows(img: Array, n: int, mode: str = "edge") -> list[Array]:
    p = np.pad(img, n // 2, mode=mode)  # type: ignore[call-overload]
    h, w = img.shape
    return [p[y : y + h, x : x + w] for y in range(n) for x in range(n)]


def filtered(img: Array, kernel: list[float]) -> Array:
    n = int(len(kernel) ** 0.5)
    return sum((k * a for k, a in zip(kernel, windows(img, n), strict=True)), np.zeros_like(img))


def sobel_edges(img: Array) -> Array:
    gx = filtered(img, [-1, 0, 1, -2, 0, 2, -1, 0, 1])
    gy = filtered(img, [-1, -2, -1, 0, 0, 0, 1, 2, 1])
    magnitude = np.hypot(gx, gy)
    return (magnitude / magnitude.max() * 255).astype(np.uint8)


def sharpen(img: Array) -> Array:
    kernel = [0.0, -1, 0, -1, 5, -1, 0, -1, 0]
    channels = [filtered(img[..., c].astype(np.float64), kernel) for c in range(img.shape[2])]
    return np.clip(np.dstack(channels), 0, 255).astype(np.uint8)


def sepia(img: Array) -> Array:
    matrix = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]])
    return np.clip(img @ matrix.T, 0, 255).astype(np.uint8)


def gamma_table(img: Array, gamma: float) -> Array:
    table = np.array([((i / 255.0) ** (1 / gamma)) * 255 for i in range(256)]).astype(np.uint8)
    return table[img]


def blend(a: Array, b: Array, alpha: float) -> Array:
    return np.uint8(np.round(a * (1 - alpha) + b * alpha))


def box_blur(img: Array, n: int = 5) -> Array:
    padded = np.pad(img.astype(np.float64), ((n // 2 + 1, n // 2), (n // 2 + 1, n // 2)), mode="edge")
    s = padded.cumsum(0).cumsum(1)
    return (s[n:, n:] - s[:-n, n:] - s[n:, :-n] + s[:-n, :-n]) / (n * n)


def median3(img: Array) -> Array:
    return np.median(np.stack(windows(img, 3)), axis=0).astype(img.dtype)


def emboss(img: Array) -> Array:
    return np.clip(filtered(img, [-2, -1, 0, -1, 1, 1, 0, 1, 2]) + 0.5, 0, 1)


def harris(img: Array, k: float = 0.04) -> Array:
    gy, gx = np.gradient(img)
    xx, yy, xy = (sum(windows(a, 5)) for a in (gx * gx, gy * gy, gx * gy))
    response = xx * yy - xy**2 - k * (xx + yy) ** 2
    return response > 0.01 * response.max()


def laplacian_pyramid(img: Array, levels: int = 3) -> list[Array]:
    taps = [1.0, 4, 6, 4, 1]
    kernel = [a * b / 256 for a in taps for b in taps]
    out = []
    for _ in range(levels):
        small = filtered(img, kernel)[::2, ::2]
        large = np.repeat(np.repeat(small, 2, 0), 2, 1)[: img.shape[0], : img.shape[1]]
        out.append(img - filtered(large, kernel))
        img = small
    return [*out, img]


def bilinear_resize(img: Array, h: int, w: int) -> Array:
    y, x = np.linspace(0, img.shape[0] - 1, h), np.linspace(0, img.shape[1] - 1, w)
    y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
    y1, x1 = np.minimum(y0 + 1, img.shape[0] - 1), np.minimum(x0 + 1, img.shape[1] - 1)
    fy, fx = (y - y0)[:, None], (x - x0)[None, :]
    top = img[y0][:, x0] * (1 - fx) + img[y0][:, x1] * fx
    bottom = img[y1][:, x0] * (1 - fx) + img[y1][:, x1] * fx
    return top * (1 - fy) + bottom * fy


def enlarged(img: Array, factor: int) -> Array:
    return np.asarray(transform.resize(img, (img.shape[0] * factor, img.shape[1] * factor)))


def affine_warp(img: Array, angle: float = 0.3) -> Array:
    h, w = img.shape
    y, x = np.meshgrid(np.arange(h), np.arange(w), indexing="ij")
    c, s = np.cos(angle), np.sin(angle)
    u = np.round(c * (x - w / 2) + s * (y - h / 2) + w / 2).astype(int)
    v = np.round(-s * (x - w / 2) + c * (y - h / 2) + h / 2).astype(int)
    inside = (u >= 0) & (u < w) & (v >= 0) & (v < h)
    out = np.zeros_like(img)
    out[inside] = img[v[inside], u[inside]]
    return out


def grey_world(img: Array) -> Array:
    means = img.reshape(-1, 3).mean(axis=0)
    return np.clip(img * (means.mean() / means), 0, 1)


def kmeans_colours(img: Array, k: int, rounds: int = 4) -> Array:
    pixels = img.reshape(-1, 3)
    centers = pixels[:: max(len(pixels) // k, 1)][:k].copy()
    for _ in range(rounds):
        distance = ((pixels[:, None, :] - centers[None]) ** 2).sum(-1)
        nearest = distance.argmin(1)
        for c in range(k):
            chosen = pixels[nearest == c]
            if len(chosen):
                centers[c] = chosen.mean(0)
    return centers[nearest].reshape(img.shape)


def floyd_steinberg(img: Array) -> Array:
    a = img.copy()
    h, w = a.shape
    for y in range(h - 1):
        for x in range(1, w - 1):
            old = a[y, x]
            new = float(old > 0.5)
            a[y, x] = new
            e = old - new
            a[y, x + 1] += e * 7 / 16
            a[y + 1, x - 1] += e * 3 / 16
            a[y + 1, x] += e * 5 / 16
            a[y + 1, x + 1] += e / 16
    return a


def back_projection(img: Array) -> Array:
    h, w = img.shape[:2]
    model = img[h // 4 : h // 2, w // 4 : w // 2] // 32
    index, wanted = img // 32, np.zeros((8, 8, 8))
    np.add.at(wanted, (model[..., 0], model[..., 1], model[..., 2]), 1)
    seen = np.zeros((8, 8, 8))
    np.add.at(seen, (index[..., 0], index[..., 1], index[..., 2]), 1)
    likely = np.minimum(wanted / (seen + 1), 1)
    return likely[index[..., 0], index[..., 1], index[..., 2]]


def posterise(img: Array, levels: int) -> Array:
    step = 256 // levels
    return (img // step * step + step // 2).astype(np.uint8)


def mutual_information(a: Array, b: Array, bins: int = 64) -> float:
    joint = np.histogram2d(a.ravel(), b.ravel(), bins)[0] / a.size
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    return np.where(joint > 0, joint * np.log(np.where(joint > 0, joint / product, 1)), 0).sum()


def balanced_by_percentiles(rgb: Array) -> Array:
    low, high = np.percentile(rgb, (1, 99), axis=(0, 1))
    return np.clip((rgb - low) / (high - low), 0, 1)


def regions_as_means(img: Array, labels: Array) -> Array:
    """Each region in its mean colour."""
    return ndimage.mean(img, labels, np.arange(labels.max() + 1))[labels]
