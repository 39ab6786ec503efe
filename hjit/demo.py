"""The demo: four plain NumPy image functions, run as they are and under `hjit.pipeline`, in a table and a picture."""

from __future__ import annotations

import importlib.util
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hjit.pipeline import pipeline

Array = np.ndarray[Any, Any]

SIZE = (3000, 4000)  # of the images that are timed
DEFAULT_PHOTO = "coffee.png"  # inside scikit-image's wheel
PICTURE_WIDTH = 600  # of one image in the picture


# -- the pipelines: NumPy as an imaging engineer writes it


def gaussian(img: Array) -> Array:
    """A separable 7-tap Gaussian blur (sigma about 1.5) with repeated edges."""
    taps = (0.0366, 0.1113, 0.2167, 0.2708, 0.2167, 0.1113, 0.0366)
    height, width = img.shape[:2]
    sides = [(0, 0)] * (img.ndim - 2)
    padded = np.pad(img, [(3, 3), (0, 0), *sides], mode="edge")
    rows = taps[0] * padded[:height]
    for k in range(1, 7):
        rows = rows + taps[k] * padded[k : k + height]
    padded = np.pad(rows, [(0, 0), (3, 3), *sides], mode="edge")
    blurred = taps[0] * padded[:, :width]
    for k in range(1, 7):
        blurred = blurred + taps[k] * padded[:, k : k + width]
    return blurred


def unsharp_mask(img: Array, amount: float = 1.5, threshold: float = 0.01) -> Array:
    """Add back what a blur takes away, where it is more than noise."""
    detail = img - gaussian(img)
    strong = np.where(np.abs(detail) > threshold, detail, 0)
    return np.clip(img + amount * strong, 0, 1)


def box_sum(a: Array, radius: int) -> Any:
    """Sums over squares; the result is smaller by `radius` on each side."""
    n = 2 * radius + 1
    rows: Any = sum(a[k : a.shape[0] - n + 1 + k] for k in range(n))
    return sum(rows[:, k : a.shape[1] - n + 1 + k] for k in range(n))


def harris_corners(grey: Array, k: float = 0.05) -> Array:
    """The Harris response: large and positive at corners, negative along edges."""
    p = np.pad(grey, 2, mode="symmetric")
    left, right, up, down = p[:, :-2], p[:, 2:], p[:-2], p[2:]
    dx = (right - left)[:-2] + 2 * (right - left)[1:-1] + (right - left)[2:]
    dy = (down - up)[:, :-2] + 2 * (down - up)[:, 1:-1] + (down - up)[:, 2:]
    sxx, syy, sxy = box_sum(dx * dx, 1), box_sum(dy * dy, 1), box_sum(dx * dy, 1)
    trace = sxx + syy
    response: Array = sxx * syy - sxy * sxy - k * trace * trace
    return response


def local_contrast(grey: Array, target: float = 0.18, max_gain: float = 3.0) -> Array:
    """Bring the contrast of every 15 x 15 neighbourhood towards `target`."""
    radius = 7
    area = (2 * radius + 1) ** 2
    p = np.pad(grey, radius, mode="reflect")
    mean = box_sum(p, radius) / area
    variance = np.maximum(box_sum(p * p, radius) / area - mean * mean, 0)
    gain = np.clip(target / (np.sqrt(variance) + 0.02), 0.5, max_gain)
    result: Array = np.clip(mean + gain * (grey - mean), 0, 1)
    return result


def develop(rgb: Array, gamma: float = 0.8) -> Array:
    """White balance and gamma of an 8-bit RGB image."""
    gains = np.array([0.92, 1.0, 1.28], np.float32)
    linear = np.clip(rgb.astype(np.float32) / 255 * gains, 0, 1)
    return np.round(np.power(linear, gamma) * 255).astype(np.uint8)


@dataclass(frozen=True)
class Case:
    """A pipeline of the demo, how its input is made of an RGB photo, and how its result is shown."""

    name: str
    function: Callable[..., Array]
    prepare: Callable[[Array], Array]
    show: Callable[[Array], Array]


def _grey(rgb: Array) -> Array:
    return np.ascontiguousarray((rgb @ np.array([0.299, 0.587, 0.114])).astype(np.float32) / np.float32(255))


def _unit(rgb: Array) -> Array:
    return rgb.astype(np.float32) / np.float32(255)


def _to_bytes(a: Array) -> Array:
    a = a if a.dtype == np.uint8 else np.round(np.clip(a, 0, 1) * 255).astype(np.uint8)
    return a if a.ndim == 3 else np.repeat(a[..., None], 3, axis=2)


def _corners(response: Array) -> Array:
    """Corners warm, edges cold, on black."""
    scale = float(np.percentile(np.abs(response), 99)) or 1.0
    r = np.sign(response) * np.sqrt(np.minimum(np.abs(response) / scale, 1))
    plus, minus = np.maximum(r, 0), np.maximum(-r, 0)
    return _to_bytes(np.stack([plus + 0.1 * minus, 0.75 * plus + 0.35 * minus, 0.2 * plus + 0.8 * minus], axis=2))


CASES = (
    Case("unsharp mask", unsharp_mask, _unit, _to_bytes),
    Case("Harris corners", harris_corners, _grey, _corners),
    Case("local contrast", local_contrast, _grey, _to_bytes),
    Case("white balance, gamma", develop, np.ascontiguousarray, _to_bytes),
)


# -- the photo


class PhotoError(Exception):
    """A photo that cannot be read; the message is one line."""


def load_photo(path: str | None = None) -> Array:
    """An RGB image as uint8; without a path, one from scikit-image's wheel, or else a drawn one.

    Raises:
        PhotoError: the file is missing or no image, or Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        if path is None:
            return _drawn()
        raise PhotoError("reading photos needs Pillow: pip install pillow") from None
    if path is None:
        spec = importlib.util.find_spec("skimage")
        found = Path(spec.origin).parent / "data" / DEFAULT_PHOTO if spec and spec.origin else None
        if found is None or not found.exists():
            return _drawn()
        path = str(found)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                return np.asarray(image.convert("RGB"))
    except FileNotFoundError:
        raise PhotoError(f"no such photo: {path}") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PhotoError(f"cannot read {path} as an image: {' '.join(str(error).split())}") from None


def _drawn() -> Array:
    """A picture with gradients, edges and texture."""
    height, width = 400, 600
    y, x = np.mgrid[:height, :width].astype(np.float32) / height
    rings = 0.5 + 0.5 * np.sin(40 * np.hypot(y - 0.5, x - 0.75))
    squares = ((8 * x).astype(int) + (8 * y).astype(int)) % 2
    noise = np.random.default_rng(0).normal(0, 0.02, (height, width))
    planes = (0.7 * rings + 0.2 * y, 0.5 * squares + 0.3 * x, 0.4 * rings * squares + 0.3)
    return np.stack([np.clip((p + noise) * 255, 0, 255) for p in planes], axis=2).astype(np.uint8)


def resized(rgb: Array, height: int, width: int) -> Array:
    """The photo scaled to fill `height` x `width`, cut in the middle; mirrored tiles where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return np.pad(
            rgb, [(0, max(height - rgb.shape[0], 0)), (0, max(width - rgb.shape[1], 0)), (0, 0)], mode="symmetric"
        )[:height, :width].copy()
    h, w = rgb.shape[:2]
    scale = max(height / h, width / w)
    cut_h, cut_w = height / scale, width / scale
    box = ((w - cut_w) / 2, (h - cut_h) / 2, (w + cut_w) / 2, (h + cut_h) / 2)
    return np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.BICUBIC, box=box))


# -- timing


@dataclass(frozen=True)
class Row:
    """What the demo measures of one pipeline; times in milliseconds."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    numpy_ms: float
    first_ms: float
    warm_ms: float
    difference: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many times faster a warm call is than NumPy: the median over pairs that ran one after the other."""
        return statistics.median(self.ratios)


def _ms(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def measure(case: Case, photo: Array, rounds: int = 3, cache_dir: str = "") -> Row:
    """Time a pipeline on a photo: the plain function and the compiled one interleaved."""
    compiled = pipeline(case.function, verify="off", cache_dir=cache_dir)
    image = case.prepare(photo)
    first = _ms(partial(compiled, image))
    ours, theirs = compiled(image), case.function(image)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        raise AssertionError(f"{case.name}: {ours.dtype} {ours.shape} instead of {theirs.dtype} {theirs.shape}")
    difference = float(np.max(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)), initial=0))
    del ours, theirs
    plain, warm = [], []
    for _ in range(rounds):
        plain.append(_ms(partial(case.function, image)))
        warm.append(statistics.median(_ms(partial(compiled, image)) for _ in range(3)))
    ratios = tuple(a / b for a, b in zip(plain, warm, strict=True))
    return Row(
        case.name,
        image.shape,
        str(image.dtype),
        statistics.median(plain),
        first,
        statistics.median(warm),
        difference,
        ratios,
    )


def start_up() -> float:
    """Import the compiler and compile something small, so that a first call is its own pipeline's; milliseconds."""
    return _ms(lambda: pipeline(lambda a: a + 1, verify="off", cache="off")(np.zeros((8, 8), np.float32)))


# -- the table and the picture


def table(rows: Iterable[Row]) -> Any:
    """The rows as a table of rich's."""
    from rich import box
    from rich.table import Table

    t = Table(box=box.SIMPLE_HEAD, padding=0)
    for heading in ("\npipeline", "\nshape", "\ndtype"):
        t.add_column(heading, no_wrap=True)
    for heading in ("NumPy\nms", "first\ncall ms", "warm\ncall ms", "\nratio", "largest\ndiff."):
        t.add_column(heading, justify="right", no_wrap=True)
    for r in rows:
        times = (
            f"{r.numpy_ms:.0f}" if r.numpy_ms >= 100 else f"{r.numpy_ms:.1f}",
            f"{r.first_ms:.0f}",
            f"{r.warm_ms:.1f}",
        )
        largest = "0" if r.difference == 0 else f"{r.difference:.1e}"
        t.add_row(r.name, "x".join(map(str, r.shape)), r.dtype, *times, f"{r.ratio:.1f}x", largest)
    return t


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers."""
    return statistics.geometric_mean(list(values))


def picture(photo: Array, panels: list[tuple[str, Array, Array]], path: str) -> None:
    """One PNG: a row for each pipeline, input and output side by side, with labels.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    shown_width = 4.2
    height = shown_width * photo.shape[0] / photo.shape[1]
    pairs_across = 2
    lines = -(-len(panels) // pairs_across)
    figure = Figure(
        figsize=(2 * pairs_across * shown_width + 0.6, lines * (height + 0.45) + 0.7), dpi=110, facecolor="white"
    )
    axes = figure.subplots(lines, 2 * pairs_across, squeeze=False)
    for ax in axes.flat:
        ax.set_axis_off()
    for number, (label, before, after) in enumerate(panels):
        line, column = divmod(number, pairs_across)
        for ax, text, image in zip(
            axes[line][2 * column :], (f"{label}: input", f"{label}: output"), (before, after), strict=False
        ):
            ax.imshow(image, interpolation="lanczos")
            ax.set_title(text, fontsize=12, loc="left", fontweight="bold" if image is after else "normal")
    figure.suptitle("hjit demo", x=0.012, ha="left", fontsize=15, fontweight="bold")
    figure.subplots_adjust(
        left=0.012, right=0.988, top=1 - 0.75 / figure.get_figheight(), bottom=0.012, wspace=0.03, hspace=0.14
    )
    figure.savefig(path)


def run(
    photo_path: str | None = None, out: str = "demo.png", size: tuple[int, int] = SIZE, rounds: int = 3
) -> list[Row]:
    """The demo: time the pipelines at `size`, print the table, write the picture.

    Raises:
        PhotoError: the photo cannot be read, or the picture not be written.
    """
    from rich.console import Console

    console = Console()
    photo = load_photo(photo_path)
    folder = Path(out).resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise PhotoError(f"cannot write {out}: no such folder, or not writable")
    large = resized(photo, *size)
    small = _fitted(photo)
    rows: list[Row] = []
    panels: list[tuple[str, Array, Array]] = []
    name = photo_path or f"{DEFAULT_PHOTO} of scikit-image"
    console.print(
        f"photo: {name}, {photo.shape[0]}x{photo.shape[1]}, timed at {size[0]}x{size[1]}",
        highlight=False,
        soft_wrap=True,
    )
    with tempfile.TemporaryDirectory(prefix="hjit-demo-") as cache_dir:
        console.print(f"starting the compiler took {start_up():.0f} ms (once a process)", highlight=False)
        for case in CASES:
            with console.status(f"timing {case.name}"):
                rows.append(measure(case, large, rounds, cache_dir))
            image = case.prepare(small)
            after = pipeline(case.function, cache_dir=cache_dir)(image)
            panels.append((case.name, _to_bytes(image), case.show(after)))
    console.print(table(rows))
    console.print(f"geometric mean of the ratios: {geometric_mean(r.ratio for r in rows):.1f}x", highlight=False)
    note = (
        "first call: tracing, searching for a schedule and compiling, with an empty cache; "
        "warm call: median, interleaved with NumPy; ratio: median of pairs"
    )
    console.print(note, highlight=False, soft_wrap=True, style="dim")
    try:
        picture(small, panels, out)
    except ImportError:
        console.print("no picture: it needs matplotlib (pip install matplotlib)", highlight=False)
    except (OSError, ValueError) as error:
        raise PhotoError(f"cannot write {out}: {' '.join(str(error).split())}") from None
    else:
        console.print(f"picture: {out}", highlight=False, soft_wrap=True)
    return rows


def _fitted(photo: Array) -> Array:
    """The whole photo, at most as wide as an image of the picture."""
    scale = min(1.0, PICTURE_WIDTH / photo.shape[1])
    return resized(photo, max(16, round(photo.shape[0] * scale)), max(16, round(photo.shape[1] * scale)))
