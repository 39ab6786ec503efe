"""Image code that loops over pixels in Python, as tutorials, papers' supplements and first drafts have it.

Each takes a grey image of bytes, or what `GIVEN` says, and is code that numba's ``njit`` takes as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def escape_times(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w), np.int64)
    for y in range(h):
        for x in range(w):
            c = complex(x / w * 2.6 - 2.0, y / h * 2.4 - 1.2)
            z = 0j
            k = 0
            while abs(z) <= 2 and k < 40:
                z = z * z + c
                k += 1
            out[y, x] = k
    return out


def block_matching(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w), np.int64)
    for y in range(2, h - 2):
        for x in range(14, w - 2):
            best = 1e18
            at = 0
            for d in range(12):
                cost = 0.0
                for dy in range(-2, 3):
                    for dx in range(-2, 3):
                        cost += abs(float(img[y + dy, x + dx]) - float(img[y + dy, x + dx - d]))
                if cost < best and d > 0:
                    best = cost
                    at = d
            out[y, x] = at
    return out


def error_diffusion(img: Array) -> Array:
    a = img.astype(np.float64)
    h, w = a.shape
    for y in range(h):
        for x in range(w):
            old = a[y, x]
            new = 255.0 if old > 127 else 0.0
            a[y, x] = new
            e = old - new
            if x + 1 < w:
                a[y, x + 1] += e * 7 / 16
            if y + 1 < h:
                if x > 0:
                    a[y + 1, x - 1] += e * 3 / 16
                a[y + 1, x] += e * 5 / 16
                if x + 1 < w:
                    a[y + 1, x + 1] += e * 1 / 16
    return a


def median_of_neighbours(img: Array) -> Array:
    h, w = img.shape
    out = img.copy()
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            values = []
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    values.append(img[y + dy, x + dx])
            values.sort()
            out[y, x] = values[4]
    return out


def binary_pattern(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w), np.uint8)
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            c = img[y, x]
            code = 0
            code |= (img[y - 1, x - 1] >= c) << 7
            code |= (img[y - 1, x] >= c) << 6
            code |= (img[y - 1, x + 1] >= c) << 5
            code |= (img[y, x + 1] >= c) << 4
            code |= (img[y + 1, x + 1] >= c) << 3
            code |= (img[y + 1, x] >= c) << 2
            code |= (img[y + 1, x - 1] >= c) << 1
            code |= (img[y, x - 1] >= c) << 0
            out[y, x] = code
    return out


def labels_by_union(img: Array) -> Array:
    h, w = img.shape
    labels = np.zeros((h, w), np.int64)
    parents = np.arange(h * w // 2 + 2)
    n = 1
    for y in range(h):
        for x in range(w):
            if img[y, x] < 128:
                continue
            above = labels[y - 1, x] if y > 0 else 0
            left = labels[y, x - 1] if x > 0 else 0
            if above == 0 and left == 0:
                labels[y, x] = n
                n += 1
            elif above > 0 and left > 0:
                p = above
                q = left
                while parents[p] != p:
                    p = parents[p]
                while parents[q] != q:
                    q = parents[q]
                m = min(p, q)
                parents[p] = m
                parents[q] = m
                labels[y, x] = m
            else:
                labels[y, x] = max(above, left)
    for y in range(h):
        for x in range(w):
            p = labels[y, x]
            while parents[p] != p:
                p = parents[p]
            labels[y, x] = p
    return labels


def chamfer_distance(img: Array) -> Array:
    h, w = img.shape
    d = np.where(img > 100, 1e6, 0.0)
    for y in range(1, h):
        for x in range(1, w - 1):
            d[y, x] = min(d[y, x], d[y - 1, x] + 1, d[y, x - 1] + 1, d[y - 1, x - 1] + 1.414, d[y - 1, x + 1] + 1.414)
    for y in range(h - 2, -1, -1):
        for x in range(w - 2, 0, -1):
            d[y, x] = min(d[y, x], d[y + 1, x] + 1, d[y, x + 1] + 1, d[y + 1, x + 1] + 1.414, d[y + 1, x - 1] + 1.414)
    return d


def bilateral(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w))
    for y in range(h):
        for x in range(w):
            total = 0.0
            weights = 0.0
            for j in range(max(0, y - 2), min(h, y + 3)):
                for i in range(max(0, x - 2), min(w, x + 3)):
                    d = float(img[y, x]) - float(img[j, i])
                    weight = math.exp(-((y - j) ** 2 + (x - i) ** 2) / 8.0 - d * d / 1250.0)
                    total += weight * img[j, i]
                    weights += weight
            out[y, x] = total / weights
    return out


def local_contrast(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w))
    for y in range(h):
        for x in range(w):
            window = img[max(y - 3, 0) : min(y + 4, h), max(x - 3, 0) : min(x + 4, w)]
            out[y, x] = (img[y, x] - window.mean()) / (window.std() + 1.0)
    return out


def cheapest_seams(img: Array) -> Array:
    h, w = img.shape
    cost = img.astype(np.float64)
    for y in range(1, h):
        for x in range(w):
            low = max(x - 1, 0)
            high = min(x + 2, w)
            cost[y, x] += cost[y - 1, low:high].min()
    return cost


def line_votes(img: Array) -> Array:
    h, w = img.shape
    diagonal = int(math.sqrt(h * h + w * w)) + 1
    votes = np.zeros((2 * diagonal + 1, 60), np.int64)
    angles = np.linspace(0, np.pi, 60)
    for y in range(h):
        for x in range(w):
            if img[y, x] > 220:
                for t in range(60):
                    rho = int(x * math.cos(angles[t]) + y * math.sin(angles[t]))
                    votes[rho + diagonal, t] += 1
    return votes


def integral_image(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h + 1, w + 1), np.int64)
    for y in range(h):
        row = 0
        for x in range(w):
            row += int(img[y, x])
            out[y + 1, x + 1] = out[y, x + 1] + row
    return out


def equalised(img: Array) -> Array:
    h, w = img.shape
    counts = np.zeros(256, np.int64)
    for y in range(h):
        for x in range(w):
            counts[img[y, x]] += 1
    sums = np.zeros(256)
    total = 0
    for k in range(256):
        total += counts[k]
        sums[k] = total / (h * w)
    out = np.zeros((h, w), np.uint8)
    for y in range(h):
        for x in range(w):
            out[y, x] = int(sums[img[y, x]] * 255)
    return out


def shadows(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w), np.bool_)
    for y in range(h):
        for x in range(w):
            height = float(img[y, x])
            for k in range(1, 40):
                if x + k >= w:
                    break
                height += 2.0
                if img[y, x + k] > height:
                    out[y, x] = True
                    break
    return out


def corners(img: Array) -> list[tuple[int, int, int]]:
    h, w = img.shape
    found = []
    for y in range(3, h - 3):
        for x in range(3, w - 3):
            c = int(img[y, x])
            n = 0
            n += int(img[y - 3, x]) > c + 20
            n += int(img[y, x + 3]) > c + 20
            n += int(img[y + 3, x]) > c + 20
            n += int(img[y, x - 3]) > c + 20
            if n >= 3:
                found.append((x, y, n))
    return found


def kuwahara(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w))
    for y in range(2, h - 2):
        for x in range(2, w - 2):
            best = 1e18
            mean = 0.0
            for j in range(2):
                for i in range(2):
                    window = img[y - 2 + 2 * j : y + 1 + 2 * j, x - 2 + 2 * i : x + 1 + 2 * i]
                    v = float(window.max()) - float(window.min())
                    if v < best:
                        best = v
                        mean = window.mean()
            out[y, x] = mean
    return out


def game_of_life(img: Array) -> Array:
    h, w = img.shape
    cells = (img > 128).astype(np.int64)
    out = cells.copy()
    for y in range(h):
        for x in range(w):
            n = 0
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    if dy != 0 or dx != 0:
                        n += cells[(y + dy) % h, (x + dx) % w]
            if cells[y, x] == 1 and (n < 2 or n > 3):
                out[y, x] = 0
            elif cells[y, x] == 0 and n == 3:
                out[y, x] = 1
    return out


def rotated(img: Array) -> Array:
    h, w = img.shape
    c = math.cos(0.3)
    s = math.sin(0.3)
    out = np.zeros((h, w), np.uint8)
    for y in range(h):
        for x in range(w):
            at_x = c * (x - w / 2) + s * (y - h / 2) + w / 2
            at_y = -s * (x - w / 2) + c * (y - h / 2) + h / 2
            i = int(at_x)
            j = int(at_y)
            if 0 <= at_x < w - 1 and 0 <= at_y < h - 1:
                u = at_x - i
                v = at_y - j
                top = img[j, i] * (1 - u) + img[j, i + 1] * u
                bottom = img[j + 1, i] * (1 - u) + img[j + 1, i + 1] * u
                out[y, x] = int(top * (1 - v) + bottom * v)
    return out


def cube_roots(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w))
    for y in range(h):
        for x in range(w):
            a = img[y, x] + 1.0
            r = a
            for _ in range(60):
                new = (2 * r + a / (r * r)) / 3
                if abs(new - r) < 1e-12 * a:
                    break
                r = new
            out[y, x] = r
    return out


def border_kept_mean(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w))
    for y in range(h):
        for x in range(w):
            if y == 0 or x == 0 or y == h - 1 or x == w - 1:
                out[y, x] = img[y, x]
            else:
                out[y, x] = img[y - 1 : y + 2, x - 1 : x + 2].mean()
    return out


def flood_fill(img: Array) -> Array:
    h, w = img.shape
    out = np.zeros((h, w), np.uint8)
    stack = [(h // 2, w // 2)]
    out[h // 2, w // 2] = 1
    while len(stack) > 0:
        y, x = stack.pop()
        for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            ny = y + dy
            nx = x + dx
            if ny >= 0 and ny < h and nx >= 0 and nx < w and out[ny, nx] == 0:
                if abs(float(img[ny, nx]) - float(img[y, x])) < 160:
                    out[ny, nx] = 1
                    stack.append((ny, nx))
    return out


def list_equalised(img: Array) -> Array:
    h, w = img.shape
    hist = [0] * 256
    for y in range(h):
        for x in range(w):
            hist[img[y, x]] += 1
    total = 0
    table = [0] * 256
    for i in range(256):
        total += hist[i]
        table[i] = 255 * total // (h * w)
    out = np.zeros_like(img)
    for y in range(h):
        for x in range(w):
            out[y, x] = table[img[y, x]]
    return out


def serpentine(img: Array) -> Array:
    a = img.astype(np.float64)
    h, w = a.shape
    for y in range(h):
        step = 1 if y % 2 == 0 else -1
        for x in range(w) if y % 2 == 0 else range(w - 1, -1, -1):
            old = a[y, x]
            new = 255.0 if old > 127 else 0.0
            a[y, x] = new
            e = old - new
            if x + step >= 0 and x + step < w:
                a[y, x + step] += e * 7 / 16
            if y + 1 < h:
                if x - step >= 0 and x - step < w:
                    a[y + 1, x - step] += e * 3 / 16
                a[y + 1, x] += e * 5 / 16
                if x + step >= 0 and x + step < w:
                    a[y + 1, x + step] += e / 16
    return a


FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    f.__name__: f
    for f in (
        escape_times, block_matching, error_diffusion, median_of_neighbours, binary_pattern, labels_by_union,
        chamfer_distance, bilateral, local_contrast, cheapest_seams, line_votes, integral_image, equalised, shadows,
        corners, kuwahara, game_of_life, rotated, cube_roots, border_kept_mean, flood_fill, list_equalised, serpentine,
    )
}  # fmt: skip
