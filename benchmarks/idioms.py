"""``python -m benchmarks idioms``: short pieces of NumPy and SciPy image code, beside NumPy itself.

The applications say how fast hjit can be; this says where it is slow. A row for each idiom: NumPy's time and hjit's,
medians of interleaved rounds, and the median of their ratio in each round, with its quartiles; with the default
schedule and NumPy's own numbers (no fast-math), new results each time; and the seconds of hjit's first call.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import ndimage, signal

import hjit
from benchmarks.pairs import interleaved, ratio
from benchmarks.table import geomean
from hjit.kernels.runtime.launch import cores
from hjit.training.cases import alike, leaves

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

SIZE, SMALL = (1000, 1500), (60, 90)
GRAY, RGB, BYTES, RGB_BYTES = "gray", "rgb", "bytes", "rgb bytes"
SLOW = 2.0  # an idiom that is not as much faster than NumPy is worth a look
CURVE = (255 * (np.arange(256) / 255) ** 0.45).astype(np.uint8)
YUV = np.array([[0.299, 0.587, 0.114], [-0.147, -0.289, 0.436], [0.615, -0.515, -0.1]], np.float32)

IDIOMS: dict[str, tuple[Function, str]] = {}


def idiom(image: str, name: str = "") -> Callable[[Function], Function]:
    """Put a function into the table, with the image that it is called with."""

    def add(f: Function) -> Function:
        IDIOMS[name or f.__name__.replace("_", " ")] = f, image
        return f

    return add


def images(shape: tuple[int, int], seed: int = 0) -> dict[str, Array]:
    """The images by name."""
    r = np.random.default_rng(seed)
    rgb = r.random((*shape, 3)).astype(np.float32)
    return {
        RGB: rgb,
        GRAY: rgb[..., 0].copy(),
        RGB_BYTES: (rgb * 255).astype(np.uint8),
        BYTES: (rgb[..., 0] * 255).astype(np.uint8),
    }


# -- filters

idiom(GRAY, "gaussian filter")(lambda a: ndimage.gaussian_filter(a, 2))
idiom(GRAY, "difference of gaussians")(lambda a: ndimage.gaussian_filter(a, 1) - ndimage.gaussian_filter(a, 2))
idiom(GRAY, "uniform filter")(lambda a: ndimage.uniform_filter(a, 7))
idiom(GRAY, "local variance")(lambda a: ndimage.uniform_filter(a * a, 5) - ndimage.uniform_filter(a, 5) ** 2)
idiom(BYTES, "median filter 3")(lambda a: ndimage.median_filter(a, 3))
idiom(GRAY, "median filter 5")(lambda a: ndimage.median_filter(a, 5))
idiom(BYTES, "maximum filter")(lambda a: ndimage.maximum_filter(a, 7))
idiom(BYTES, "grey erosion")(lambda a: ndimage.grey_erosion(a, size=(5, 5)))
idiom(BYTES, "binary opening")(lambda a: ndimage.binary_opening(a > 128))
idiom(GRAY, "local maxima")(lambda a: (a == ndimage.maximum_filter(a, 9)) & (a > 0.9))
idiom(GRAY, "sobel magnitude")(lambda a: np.hypot(ndimage.sobel(a, 0), ndimage.sobel(a, 1)))
idiom(GRAY, "laplace")(ndimage.laplace)
idiom(GRAY, "convolve2d")(lambda a: signal.convolve2d(a, np.ones((5, 5), np.float32) / 25, mode="same"))
idiom(GRAY, "gradient")(lambda a: np.sqrt(np.gradient(a)[0] ** 2 + np.gradient(a)[1] ** 2))
idiom(RGB, "unsharp mask")(lambda a: np.clip(a + 1.5 * (a - ndimage.gaussian_filter(a, (1, 1, 0))), 0, 1))


@idiom(GRAY)
def bilateral_filter(a: Array) -> Any:
    p = np.pad(a, 3, mode="edge")
    h, w = a.shape
    total, weights = np.zeros_like(a), np.zeros_like(a)
    for dy in range(7):
        for dx in range(7):
            near = p[dy : dy + h, dx : dx + w]
            weight = np.exp(-((near - a) ** 2) * 10)
            total += weight * near
            weights += weight
    return total / weights


@idiom(GRAY)
def guided_filter(a: Array) -> Any:
    mean = ndimage.uniform_filter(a, 9)
    variance = ndimage.uniform_filter(a * a, 9) - mean * mean
    slope = variance / (variance + 0.01)
    return ndimage.uniform_filter(slope, 9) * a + ndimage.uniform_filter(mean - slope * mean, 9)


@idiom(GRAY)
def thin_edges(a: Array) -> Any:
    gx, gy = ndimage.sobel(a, 1), ndimage.sobel(a, 0)
    m = np.hypot(gx, gy)
    sector = np.round(np.arctan2(gy, gx) / (np.pi / 4)).astype(int) % 4
    p = np.pad(m, 1)
    sides = [
        (p[1:-1, 2:], p[1:-1, :-2]),
        (p[2:, 2:], p[:-2, :-2]),
        (p[2:, 1:-1], p[:-2, 1:-1]),
        (p[2:, :-2], p[:-2, 2:]),
    ]
    out = np.zeros_like(m)
    for k, (x, y) in enumerate(sides):
        out = np.where((sector == k) & (m >= x) & (m >= y), m, out)
    return out


@idiom(BYTES)
def dilation_by_rolls(a: Array) -> Any:
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            a = np.maximum(a, np.roll(a, (dy, dx), (0, 1)))
    return a


@idiom(BYTES)
def game_of_life(a: Array) -> Any:
    alive = (a > 128).astype(np.uint8)
    n = sum(np.roll(alive, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1) if y or x)
    return ((n == 3) | ((alive == 1) & (n == 2))).astype(np.uint8)


@idiom(GRAY)
def jacobi_steps(a: Array) -> Any:
    u = a.copy()
    for _ in range(20):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


# -- colour and tone

idiom(RGB_BYTES, "grey of bytes")(
    lambda a: (0.299 * a[..., 0] + 0.587 * a[..., 1] + 0.114 * a[..., 2]).astype(np.uint8)
)
idiom(RGB, "colour matrix")(lambda a: a @ YUV.T)
idiom(RGB, "white balance")(lambda a: np.clip(a * (a.mean() / a.reshape(-1, 3).mean(0)), 0, 1))
idiom(RGB, "normalise channels")(lambda a: (a - a.mean((0, 1))) / a.std((0, 1)))
idiom(RGB, "tone curves")(
    lambda a: np.stack([np.interp(a[..., c], [0, 0.2, 0.6, 1], [0, 0.3, 0.7, 1]) for c in range(3)], -1)
)
idiom(RGB_BYTES, "brighten bytes")(lambda a: np.clip(a.astype(np.int16) + 30, 0, 255).astype(np.uint8))
idiom(RGB_BYTES, "blend bytes")(lambda a: (a * 0.3 + a[::-1] * 0.7).astype(np.uint8))
idiom(BYTES, "threshold")(lambda a: np.where(a > 128, 255, 0).astype(np.uint8))
idiom(BYTES, "look-up table")(lambda a: CURVE[a])
idiom(RGB_BYTES, "take")(lambda a: np.take(CURVE, a))
idiom(GRAY, "gamma")(lambda a: np.clip(a, 0.1, 0.9) ** 2.2)
idiom(GRAY, "exp")(lambda a: np.exp(-a * a))
idiom(GRAY, "arctan2")(lambda a: np.arctan2(a[1:], a[:-1]))


@idiom(RGB)
def hue_and_saturation(a: Array) -> Any:
    most, least = a.max(-1), a.min(-1)
    d = most - least
    hue = np.where(d == 0, 0, (a[..., 1] - a[..., 2]) / np.where(d == 0, 1, d))
    return np.stack([hue, np.where(most == 0, 0, d / np.where(most == 0, 1, most)), most], -1)


@idiom(BYTES)
def equalise(a: Array) -> Any:
    c = np.cumsum(np.bincount(a.ravel(), minlength=256))
    return (c * 255 // c[-1]).astype(np.uint8)[a]


@idiom(BYTES)
def otsu_threshold(a: Array) -> Any:
    p = np.bincount(a.ravel(), minlength=256) / a.size
    w, m = np.cumsum(p), np.cumsum(p * np.arange(256))
    return a > ((m[-1] * w - m) ** 2 / np.maximum(w * (1 - w), 1e-9)).argmax()


@idiom(GRAY)
def masked_assignment(a: Array) -> Any:
    b = a.copy()
    b[b > 0.5] = 1
    return b


@idiom(RGB)
def vignette(a: Array) -> Any:
    h, w = a.shape[:2]
    y, x = np.ogrid[:h, :w]
    return a * (1 / (1 + ((y - h / 2) ** 2 + (x - w / 2) ** 2) / (h * w / 4)))[..., None]


# -- geometry

idiom(GRAY, "halve")(lambda a: a.reshape(a.shape[0] // 2, 2, a.shape[1] // 2, 2).mean((1, 3)))
idiom(BYTES, "double")(lambda a: a.repeat(2, 0).repeat(2, 1))
idiom(GRAY, "roll")(lambda a: np.roll(a, 5, 1) - a)
idiom(GRAY, "transpose")(lambda a: a.T * 2 + 1)
idiom(RGB_BYTES, "pad by reflection")(lambda a: np.pad(a, ((5, 5), (5, 5), (0, 0)), mode="reflect"))


@idiom(RGB_BYTES)
def bayer_mosaic(a: Array) -> Any:
    out = np.zeros(a.shape[:2], a.dtype)
    out[::2, ::2], out[::2, 1::2] = a[::2, ::2, 0], a[::2, 1::2, 1]
    out[1::2, ::2], out[1::2, 1::2] = a[1::2, ::2, 1], a[1::2, 1::2, 2]
    return out


@idiom(GRAY)
def pyramid(a: Array) -> Any:
    levels = [a[: a.shape[0] // 8 * 8, : a.shape[1] // 8 * 8]]
    for _ in range(3):
        b = levels[-1]
        levels.append((b[::2, ::2] + b[1::2, ::2] + b[::2, 1::2] + b[1::2, 1::2]) / 4)
    return tuple(levels)


@idiom(GRAY)
def warp(a: Array) -> Any:
    h, w = a.shape
    y, x = np.mgrid[0:h, 0:w]
    at = np.clip(x + 10 * np.sin(y / 20), 0, w - 1.001)
    left = at.astype(int)
    part = (at - left).astype(np.float32)
    return a[y, left] * (1 - part) + a[y, left + 1] * part


# -- sums, scans and order

idiom(GRAY, "sum of columns")(lambda a: a.sum(axis=0))
idiom(GRAY, "sum of rows")(lambda a: a.sum(axis=1))
idiom(GRAY, "standard deviation")(lambda a: a.std())
idiom(RGB, "mean of channels")(lambda a: a.mean((0, 1)))
idiom(RGB_BYTES, "largest channel")(lambda a: a.argmax(-1))
idiom(GRAY, "sharpness")(lambda a: np.abs(ndimage.laplace(a)).mean())
idiom(GRAY, "total variation")(lambda a: np.abs(np.roll(a, 1, 1) - a).sum() + np.abs(np.roll(a, 1, 0) - a).sum())
idiom(GRAY, "mean of a mask")(lambda a: a[a > 0.5].mean())
idiom(GRAY, "running sum of rows")(lambda a: np.cumsum(a, axis=1))
idiom(GRAY, "running sum of columns")(lambda a: np.cumsum(a, axis=0))
idiom(GRAY, "running maximum")(lambda a: np.maximum.accumulate(a, axis=1))
idiom(GRAY, "median of images")(
    lambda a: np.median(np.stack([a, np.roll(a, 1, 0), np.roll(a, 1, 1), np.roll(a, -1, 0), np.roll(a, -1, 1)]), axis=0)
)
idiom(RGB, "sort channels")(lambda a: np.sort(a, axis=-1))
idiom(BYTES, "histogram")(lambda a: np.histogram(a, 256, (0, 255))[0])
idiom(GRAY, "matrix product")(lambda a: a @ a.T)


@idiom(GRAY)
def integral_image(a: Array) -> Any:
    s = np.cumsum(np.cumsum(np.pad(a, ((1, 0), (1, 0))), 0), 1)
    return (s[7:, 7:] - s[:-7, 7:] - s[7:, :-7] + s[:-7, :-7]) / 49


@idiom(GRAY)
def recursive_filter(a: Array) -> Any:
    y = a.copy()
    for k in range(2, a.shape[1]):
        y[:, k] = a[:, k] * 0.5 + y[:, k - 1] * 0.3 + y[:, k - 2] * 0.2
    return y


@idiom(GRAY)
def structural_similarity(a: Array) -> Any:
    b = a[::-1]
    ma, mb = ndimage.uniform_filter(a, 7), ndimage.uniform_filter(b, 7)
    va, vb = ndimage.uniform_filter(a * a, 7) - ma * ma, ndimage.uniform_filter(b * b, 7) - mb * mb
    both = ndimage.uniform_filter(a * b, 7) - ma * mb
    return ((2 * ma * mb + 1e-4) * (2 * both + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))).mean()


# -- measuring


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of an idiom; None where it did not come to that.

    Attributes:
        times: how many times as fast as NumPy: the median over pairs of calls; `times_iqr` are the quartiles.
        fell_back: did NumPy run after all?
    """

    idiom: str
    threads: int
    numpy_ms: float | None = None
    hjit_ms: float | None = None
    times: float | None = None
    times_iqr: Sequence[float | None] = (None, None)
    first_s: float | None = None
    agrees: bool | None = None
    fell_back: bool | None = None
    error: str | None = None


def run(
    names: Sequence[str] = (), threads: int | None = None, *, small: bool = False, budget: float = 0.5
) -> list[dict[str, Any]]:
    """A row for each idiom; all if there are no names.

    Args:
        threads: of hjit; all cores if not given.
        small: the size of the tests.
        budget: seconds for each of the two.
    """
    given = images(SMALL if small else SIZE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            asdict(_row(name, f, given[image], threads or cores(), budget))
            for name, (f, image) in IDIOMS.items()
            if name in (names or IDIOMS)
        ]


def _row(name: str, f: Function, image: Array, threads: int, budget: float) -> Row:
    compiled = hjit.pipeline(f, cache="off", verify="off", num_threads=threads)
    start = time.perf_counter()
    try:
        found = leaves(compiled(image))
    except hjit.HjitError as error:
        return Row(name, threads, error=str(error).splitlines()[0])
    first = time.perf_counter() - start
    agrees = all(alike(a, b) for a, b in zip(found, leaves(f(image)), strict=True))
    numpy_s, hjit_s = interleaved([lambda: f(image), lambda: compiled(image)], budget)
    times = ratio(numpy_s, hjit_s)
    numpy_ms, hjit_ms = 1e3 * statistics.median(numpy_s), 1e3 * statistics.median(hjit_s)
    return Row(
        name,
        threads,
        numpy_ms,
        hjit_ms,
        times.median,
        [times.low, times.high],
        first,
        agrees,
        compiled.stats.fallbacks > 0,
    )


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    t = Table(box=box.SIMPLE_HEAD, title="idioms", title_justify="left", padding=(0, 1, 0, 0))
    for column in ("", "NumPy ms", "hjit ms", "times", "quartiles", "first s", ""):
        t.add_column(column, justify="right" if column else "left")
    for r in rows:
        if r["error"]:
            t.add_row(r["idiom"], "", "", "", "", "", r["error"])
            continue
        quartiles = "-".join(f"{x:.1f}" for x in r["times_iqr"] if x is not None)
        notes = [
            n
            for n, is_so in (("NumPy ran", r["fell_back"]), ("differs", not r["agrees"]), ("slow", r["times"] < SLOW))
            if is_so
        ]
        t.add_row(
            r["idiom"],
            f"{r['numpy_ms']:.2f}",
            f"{r['hjit_ms']:.2f}",
            f"{r['times']:.1f}",
            quartiles,
            f"{r['first_s']:.2f}",
            ", ".join(notes),
        )
    mean = geomean(r["times"] for r in rows)
    t.add_row("geometric mean", "", "", "-" if mean is None else f"{mean:.1f}", "", "", "")
    Console().print(t)
