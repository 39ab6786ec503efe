"""A mosaic that is larger than memory, and its development: unsharp masking, local contrast, histogram equalisation.

The function is written for the whole image, in NumPy and SciPy. Beside it stand the ways in which it is written for
arrays of Dask without hjit: by the filters of dask-image, and by `map_overlap` with a function of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from scipy import ndimage

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

SIGMA, BOX = 1.5, 31  # of the unsharp mask, and of the local mean
HALO = 6 + BOX // 2  # pixels around one that it depends on: 4 sigma, and half of the box
TILE = 4096  # of the mosaic: it is written tile by tile; whole pages of a file
WRITTEN = 4e9  # bytes of tiles that are written at most; the others stay holes of the file, which are zeros


@dataclass(frozen=True)
class RawFile:
    """Bytes in a file without a header, which other processes open by its path; holes of the file are zeros."""

    path: Path
    shape: tuple[int, ...]
    chunks: None = None  # any window is read as well as another, as of a data set of HDF5 that is not in chunks

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def create(self) -> RawFile:
        """An empty file: one hole."""
        with open(self.path, "wb") as f:
            f.truncate(int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize)
        return self

    def mapped(self, mode: Any = "r") -> Any:
        """All of it, as memory."""
        return np.memmap(self.path, self.dtype, mode, shape=self.shape)

    def __getitem__(self, index: Any) -> Array:
        return np.array(self.mapped()[index])  # a copy: nothing stays mapped

    def __setitem__(self, index: Any, block: Array) -> None:
        if block.any():
            self.mapped("r+")[index] = block


def shape_of(gigabytes: float) -> tuple[int, int]:
    """Rows and columns of a mosaic of that many bytes."""
    side = max(round((gigabytes * 1e9) ** 0.5 / 512), 2) * 512
    return side, side


def texture(seed: int, n: int = TILE) -> Array:
    """What tiles show: structures of several sizes, as floats between 0 and 1, the same at opposite edges."""
    r = np.random.default_rng(seed)
    found = np.zeros((n, n), np.float32)
    for sigma in (2, 9, 40):
        noise = ndimage.gaussian_filter(r.random((n // 4, n // 4), dtype=np.float32), sigma / 4, mode="wrap")
        found += np.kron(noise / noise.std(), np.ones((4, 4), np.float32))
    return np.clip((found - found.mean()) / (6 * found.std()) + 0.5, 0, 1)


def write_mosaic(file: RawFile, tile: int = TILE) -> float:
    """Write tiles of different brightness, and leave others out, as scans do; the share that is written."""
    pattern = texture(0, tile)
    size = int(np.prod(file.shape, dtype=np.int64))
    share = min(0.75, WRITTEN / size)
    written = 0
    target = file.create().mapped("r+")
    for i in range(0, file.shape[0], tile):
        for j in range(0, file.shape[1], tile):
            r = np.random.default_rng((i, j))
            if (i, j) != (0, 0) and r.random() > share:
                continue
            moved = np.roll(pattern, tuple(r.integers(0, tile, 2)), (0, 1))
            low, high = sorted(r.integers(5, 250, 2))
            block = (low + moved * (high - low)).astype(np.uint8)
            part = target[i : i + tile, j : j + tile]
            part[...] = block[: part.shape[0], : part.shape[1]]
            written += part.size
    target.flush()
    return written / size


# -- what is computed


def contrast(img: Array) -> Array:
    """Sharper, and with more contrast to what lies around, as bytes."""
    x = img.astype(np.float32)
    sharp = x + 1.5 * (x - ndimage.gaussian_filter(x, SIGMA))
    mean = ndimage.uniform_filter(sharp, BOX)
    return np.clip(sharp + 0.5 * (sharp - mean), 0, 255).astype(np.uint8)


def table_of(counts: Array) -> Array:
    """What equalises a histogram."""
    total = counts.cumsum()
    span = np.maximum(total[-1] - total[0], 1)
    return ((total - total[0]) * 255 // span).astype(np.uint8)


def developed(img: Array) -> Array:
    """The whole development; what is black in all the image stays so."""
    found = contrast(img)
    return table_of(np.bincount(found.ravel(), minlength=256))[found]


# -- the same on Dask, without hjit


def _looked_up(block: Array, table: Array) -> Array:
    return table[block]


def _counted(block: Array) -> Array:
    return np.bincount(block.ravel(), minlength=256)[None, None]


def equalised(found: Any) -> Any:
    """An array of Dask, equalised: partial histograms, their sum, a table."""
    counts = found.map_blocks(_counted, dtype=np.int64, chunks=(1, 1, 256), new_axis=2).sum((0, 1))
    table = counts.map_blocks(table_of, dtype=np.uint8)
    return da.blockwise(_looked_up, "ij", found, "ij", table, "k", concatenate=True, dtype=np.uint8)


def by_dask_image(img: Any) -> Any:
    """With the filters of dask-image."""
    from dask_image import ndfilters

    x = img.astype(np.float32)
    sharp = x + 1.5 * (x - ndfilters.gaussian_filter(x, SIGMA))
    mean = ndfilters.uniform_filter(sharp, BOX)
    return equalised(da.clip(sharp + 0.5 * (sharp - mean), 0, 255).astype(np.uint8))


def by_map_overlap(of_block: Function) -> Function:
    """With a function of blocks, as written by hand."""

    def run(img: Any) -> Any:
        return equalised(da.map_overlap(of_block, img, depth=HALO, boundary="reflect", dtype=np.uint8))

    return run


# -- the whole-array result


def strips(file: RawFile, of_strip: Function, rows: int = 2048) -> Array:
    """The histogram of `contrast` of a whole file, in strips of its full width that are longer by the halo."""
    n = file.shape[0]
    counts = np.zeros(256, np.int64)
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        low, high = max(start - HALO, 0), min(stop + HALO, n)
        found = of_strip(file[low:high])[start - low : stop - low]
        counts += np.bincount(found.ravel(), minlength=256)
    return counts


def window(file: RawFile, table: Array, corner: tuple[int, int], side: int) -> Array:
    """A window of the whole-array result, by plain NumPy and SciPy."""
    ends = [(c, min(c + side, n)) for c, n in zip(corner, file.shape, strict=True)]
    wide = [(max(a - HALO, 0), min(z + HALO, n)) for (a, z), n in zip(ends, file.shape, strict=True)]
    found = contrast(file[tuple(slice(*x) for x in wide)])
    inner = tuple(slice(a - low, z - low) for (a, z), (low, _) in zip(ends, wide, strict=True))
    return table[found[inner]]
