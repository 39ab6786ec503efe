"""Lowering: printed loop IR against golden files, and the shape of what is generated."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hjit
from hjit.kernels.lower.lower import lower
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language.memory import C_ORDER
from hjit.sched.language.target import Target
from tests.trace.test_canonical import canonical

GOLDEN = Path(__file__).parent.parent / "golden"
IMAGE = np.ones((40, 50), np.float32)


def padded_blur(img: Any) -> Any:
    p = np.pad(img, 1, mode="edge")
    down = p[:-2] + p[1:-1] + p[2:]
    return (down[:, :-2] + down[:, 1:-1] + down[:, 2:]) / 9


def row_sums(img: Any) -> Any:
    return img.sum(axis=1), img.max(axis=0)


def channels(img: Any) -> Any:
    return np.stack([img, img * 2, img + 1], axis=-1)


def running(img: Any) -> Any:
    return np.cumsum(img.astype(np.int32), axis=1)


def lines(img: Any) -> Any:
    rows = np.sqrt(img[:-2] + img[2:]) + np.exp(img[1:-1])
    return rows[:-4] + rows[2:-2] + rows[4:]


def reflected(img: Any) -> Any:
    p = np.pad(img, 2, mode="reflect")
    return p[:-4, :-4] + p[4:, 4:]


def symmetric(img: Any) -> Any:
    p = np.pad(img, 1, mode="symmetric")
    return p[:-2, :-2] + p[2:, 2:]


def wrapped(img: Any) -> Any:
    p = np.pad(img, 1, mode="wrap")
    return p[:-2, :-2] + p[2:, 2:]


def constant(img: Any) -> Any:
    p = np.pad(img, 1)
    return p[:-2, :-2] + p[2:, 2:]


def rolled(img: Any) -> Any:
    return img - np.roll(img, 1, axis=1)


def nearest(img: Any) -> Any:
    return ndimage.convolve1d(img, [1, 2, 1], mode="nearest")


def mirrored(img: Any) -> Any:
    return ndimage.convolve1d(img, [1, 2, 1], mode="mirror")


BORDERS = [padded_blur, reflected, symmetric, wrapped, constant, rolled, nearest, mirrored]


@pytest.mark.parametrize("function", [*BORDERS, row_sums, channels, running, lines])
def test_loops_are_as_recorded(function: Any) -> None:
    graph = canonical(function, IMAGE)
    text = f"{graph}\n\n{lower(graph, default_schedule(graph, Target(64)))}\n"
    text = "\n".join(line.split("   #")[0] for line in text.splitlines()) + "\n"
    path = GOLDEN / f"{function.__name__}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("function", BORDERS)
def test_the_interior_has_no_boundary_handling_along_the_vector(function: Any) -> None:
    graph = canonical(function, IMAGE)
    text = str(lower(graph, default_schedule(graph, Target(64))))
    interior = text.split("vector")[-1].split("remainder")[0]
    assert not re.search(r"(clamp|reflect|symmetric|wrap|inside|min|max)\([^()]*d1(?!\.)", interior) and re.search(
        r"d1 - [12]", interior
    ), interior


def planes(img: Any) -> Any:
    found = np.exp(np.stack([img, img * 2, img + 1], axis=-1))
    return found[2:] + found[:-2]


@pytest.mark.parametrize(("function", "dtype", "align"), [
    (lines, "float32", (1, 16)),
    (lines, "float64", (1, 8)),
    (planes, "float32", ()),  # its rows are pixels of three values, that vectors run across
])  # fmt: skip
def test_rows_of_scratch_begin_with_lines_of_the_cache(function: Any, dtype: str, align: tuple[int, ...]) -> None:
    graph = canonical(function, IMAGE.astype(dtype))
    program = lower(graph, default_schedule(graph, Target(64)))
    (scratch,) = (s.name for s in graph.stages if s.name not in graph.outputs)
    assert program.layouts.get(scratch, C_ORDER).align == align
    assert not set(graph.outputs) & set(program.layouts), "results are as NumPy has them"


@pytest.mark.parametrize("n", [40, 64, 333])
def test_rolls_at_run_time_places(n: int) -> None:
    """The loop over a row is two, before and behind the place where the index wraps around."""
    rng = np.random.default_rng(n)
    x = rng.random((5, n), np.float32)
    z = x + 1j * rng.random((5, n), np.float32)
    for shift in (17, n // 2, n - 1, -17, -n // 2, 1 - n, n + 18, -3 * n - 20):

        def rolled(a: Any, s: int = shift) -> Any:
            once = np.roll(a, s, 1) * 2
            twice = np.roll(np.roll(a, s, 1), 20, 1) - np.roll(a, s, (0, 1))[:, ::-1]
            return once, twice, np.roll(a, (2, s), (0, 1)).conj() + np.roll(a, 1, 1), np.abs(np.roll(a, s, 1)).sum(0)

        for a in (x, z):
            f = hjit.pipeline(rolled, tune=False, on_unsupported="raise", numpy_if_faster=False)
            for _ in range(2):
                for got, expected in zip(f(a), rolled(a), strict=True):
                    assert got.dtype == expected.dtype
                    np.testing.assert_allclose(got, expected, rtol=1e-6)
            assert f.stats.verified and f.stats.fallbacks <= 1
        loops = str(hjit.pipeline(lambda a, s=shift: np.sqrt(np.roll(a, s, 1)), tune=False).loops(x))
        assert "d1.shift" in loops or shift % n in (1, n - 1)
