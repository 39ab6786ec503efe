"""Kernels of scientific code, of the kinds that benchmarks of compilers for NumPy have."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def jacobi_2d(a: Array, steps: int) -> Array:
    b = a.copy()
    for _ in range(steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a = 0.5 * (a + b)
    return a


def heat_3d(a: Array, steps: int) -> Array:
    a = a.copy()
    for _ in range(steps):
        c = a[1:-1, 1:-1, 1:-1]
        a[1:-1, 1:-1, 1:-1] = (
            c
            + 0.125 * (a[2:, 1:-1, 1:-1] - 2 * c + a[:-2, 1:-1, 1:-1])
            + 0.125 * (a[1:-1, 2:, 1:-1] - 2 * c + a[1:-1, :-2, 1:-1])
            + 0.125 * (a[1:-1, 1:-1, 2:] - 2 * c + a[1:-1, 1:-1, :-2])
        )
    return a


def seidel_2d(a: Array, steps: int) -> Array:
    a = a.copy()
    n = a.shape[0]
    for _ in range(steps):
        for i in range(1, n - 1):
            a[i, 1:-1] += a[i - 1, :-2] + a[i - 1, 1:-1] + a[i - 1, 2:] + a[i, 2:] + a[i + 1, :-2] + a[i + 1, 1:-1]
            for j in range(1, n - 1):
                a[i, j] = (a[i, j] + a[i, j - 1]) / 9
    return a


def fdtd_2d(field: Array, steps: int) -> tuple[Array, Array, Array]:
    ex, ey, hz = field.copy(), field.T.copy(), field * 0.5
    for t in range(steps):
        ey[0, :] = t
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def hdiff(a: Array) -> Array:
    lap = 4 * a[1:-1, 1:-1] - a[2:, 1:-1] - a[:-2, 1:-1] - a[1:-1, 2:] - a[1:-1, :-2]
    fx = lap[:, 1:] - lap[:, :-1]
    fx = np.where(fx * (a[1:-1, 2:-1] - a[1:-1, 1:-2]) > 0, 0, fx)
    fy = lap[1:] - lap[:-1]
    fy = np.where(fy * (a[2:-1, 1:-1] - a[1:-2, 1:-1]) > 0, 0, fy)
    return a[2:-2, 2:-2] - 0.1 * (fx[1:-1, 1:] - fx[1:-1, :-1] + fy[1:, 1:-1] - fy[:-1, 1:-1])


def arc_distance(t1: Array, p1: Array, t2: Array, p2: Array) -> Array:
    a = np.sin((t2 - t1) / 2) ** 2 + np.cos(t1) * np.cos(t2) * np.sin((p2 - p1) / 2) ** 2
    return 2 * np.arctan2(np.sqrt(a), np.sqrt(np.maximum(1 - a, 0)))


def go_fast(a: Array) -> Array:
    trace = 0.0
    for i in range(a.shape[0]):
        trace += np.tanh(a[i, i])
    return a + trace


def softmax(a: Array) -> Array:
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def mandelbrot(h: int, w: int, steps: int) -> Array:
    y, x = np.mgrid[-1.2 : 1.2 : h * 1j, -2.2 : 0.8 : w * 1j]
    c = x + 1j * y
    z, count = np.zeros_like(c), np.zeros(c.shape, int)
    for _ in range(steps):
        inside = np.abs(z) < 2
        z[inside] = z[inside] ** 2 + c[inside]
        count += inside
    return count


def gemm(a: Array, b: Array) -> Array:
    return 1.5 * a @ b + 0.5 * a


def mvt(x1: Array, x2: Array, y1: Array, y2: Array, a: Array) -> tuple[Array, Array]:
    return x1 + a @ y1, x2 + a.T @ y2


def adi(u: Array, steps: int) -> Array:
    """Heat by alternating directions: each half step solves tridiagonal systems, along columns and then along rows."""
    u, n = u.copy(), u.shape[0]
    r = 0.5 * n / steps
    for _ in range(steps):
        for _ in range(2):
            p, q, v = np.zeros((n, n)), np.zeros((n, n)), np.ones((n, n))
            q[:, 0] = 1.0
            for j in range(1, n - 1):
                p[:, j] = r / (1 + 2 * r - r * p[:, j - 1])
                q[1:-1, j] = r * u[:-2, j] + (1 - 2 * r) * u[1:-1, j] + r * u[2:, j] + r * q[1:-1, j - 1]
                q[1:-1, j] /= 1 + 2 * r - r * p[1:-1, j - 1]
            for j in range(n - 2, 0, -1):
                v[1:-1, j] = p[1:-1, j] * v[1:-1, j + 1] + q[1:-1, j]
            u = v.T.copy()
    return u


def covariance(a: Array) -> Array:
    centered = a - a.mean(axis=0)
    return centered.T @ centered / (a.shape[0] - 1)


def correlation(a: Array) -> Array:
    spread = a.std(axis=0)
    spread[spread <= 0.1] = 1.0
    scaled = (a - a.mean(axis=0)) / (np.sqrt(a.shape[0]) * spread)
    return scaled.T @ scaled


def gram_schmidt(a: Array) -> tuple[Array, Array]:
    a = a.copy()
    n = a.shape[1]
    q, r = np.zeros_like(a), np.zeros((n, n))
    for k in range(n):
        r[k, k] = np.sqrt(a[:, k] @ a[:, k])
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, n):
            r[k, j] = q[:, k] @ a[:, j]
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


def compute(a: Array, b: float, c: float) -> Array:
    return np.clip(a, 0.2, 0.8) * b + a * c + 9


def conv2d(img: Array, weights: Array) -> Array:
    k = weights.shape[0]
    h, w = img.shape[0] - k + 1, img.shape[1] - k + 1
    out = np.zeros((h, w, weights.shape[2]))
    for y in range(k):
        for x in range(k):
            out += img[y : y + h, x : x + w, None] * weights[y, x]
    return np.maximum(out, 0)


def azimuthal(a: Array, bins: int = 16) -> Array:
    h, w = a.shape
    y, x = np.indices(a.shape)
    r = np.hypot(y - h / 2, x - w / 2)
    edges = np.linspace(0, r.max(), bins + 1)
    out = np.zeros(bins)
    for k in range(bins):
        chosen = (edges[k] <= r) & (r < edges[k + 1])
        out[k] = a[chosen].mean()
    return out


def lenet_pool(a: Array) -> Array:
    h, w = a.shape[0] // 2, a.shape[1] // 2
    out = np.empty((h, w), a.dtype)
    for y in range(h):
        out[y] = a[2 * y : 2 * y + 2, : 2 * w].reshape(2, w, 2).max(axis=(0, 2))
    return out


def spectral_norm(a: Array, steps: int) -> float:
    u = np.ones(a.shape[0])
    for _ in range(steps):
        v = a.T @ u
        v /= np.linalg.norm(v)
        u = a @ v
    return float(np.linalg.norm(u))


def crc16(data: Array) -> int:
    crc = 0xFFFF
    for value in data:
        byte = int(value)
        for _ in range(8):
            crc = crc >> 1 ^ 0x8408 if (crc & 1) ^ (byte & 1) else crc >> 1
            byte >>= 1
    return crc ^ 0xFFFF


def cholesky(a: Array) -> Array:
    a = a.copy()
    n = a.shape[0]
    for i in range(n):
        for j in range(i):
            a[i, j] = (a[i, j] - a[i, :j] @ a[j, :j]) / a[j, j]
        a[i, i] = np.sqrt(a[i, i] - a[i, :i] @ a[i, :i])
    return np.tril(a)
