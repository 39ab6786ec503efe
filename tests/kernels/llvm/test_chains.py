"""Long sums in one block of code are interleaved, and give NumPy's numbers."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.llvm.thresholds import MIN_CHAIN_STEPS
from tests.numpy_check import check

RNG = np.random.default_rng(8)
PLANES = RNG.random((3, 21, 75), np.float32)
GRAY = RNG.random((24, 90), np.float32)
ADD = re.compile(r"(%\w+) = fadd <\d+ x float> (\S+), (\S+)")


def weighted(img: Any, steps: int = 12) -> Any:
    """Planes that share their weights."""
    total, norm = np.zeros((3, 21, 64), np.float32), np.zeros((21, 64), np.float32)
    for k in range(steps):
        weight = img[0, :, k : k + 64] * img[1, :, k : k + 64]
        total += weight * img[:, :, k : k + 64]
        norm += weight
    return total / norm


def several(a: Any) -> tuple[Any, ...]:
    """Sums of different lengths, minima, and one that another begins with."""
    first = sum(a[:, k : k + 64] for k in range(9))
    second = (
        first + sum(a[k : k + 24, 5:69] * 2 for k in range(1)) + sum(a[:, k : k + 64] * a[:, 1:65] for k in range(15))
    )
    least = a[:, :64]
    for k in range(1, 13):
        least = np.minimum(least, a[:, k : k + 64])
    return first, second, least, np.sqrt(second) - least


def interleaving(function: Callable[..., Any], *args: Any) -> list[int]:
    """For each step of the long sums of vectors, in the order of the code, which sum it is of."""
    text = hjit.pipeline(function, tune=False, num_threads=1).inspect_llvm(*args)
    found: list[int] = []
    sums: dict[str, int] = {}
    for result, *parts in ADD.findall(text):
        sums[result] = next((sums[x] for x in parts if x in sums), len(found))
        found.append(sums[result])
    lengths = Counter(found)
    return [x for x in found if lengths[x] >= MIN_CHAIN_STEPS]


@pytest.mark.parametrize("steps", [MIN_CHAIN_STEPS - 1, MIN_CHAIN_STEPS, 12, 49])
def test_planes_with_weights_are_numpys(steps: int) -> None:
    img = RNG.random((3, 21, 64 + steps), np.float32)
    check(lambda x: weighted(x, steps), img)


def test_sums_of_all_kinds_are_numpys() -> None:
    check(several, GRAY)
    check(several, RNG.random((24, 90)))
    check(several, GRAY[:, :70].copy(order="F").repeat(2, 1)[:, :90])
    check(lambda a: several((a * 255).astype(np.uint8))[:3], GRAY)


def test_they_go_on_in_turns() -> None:
    order = interleaving(weighted, PLANES)
    neighbours = Counter(a == b for a, b in itertools.pairwise(order))
    assert len(set(order)) >= 3 and neighbours[True] < len(order) / 4


def test_a_sum_by_itself_is_written_as_it_is() -> None:
    order = interleaving(lambda a: sum(a[:, k : k + 64] for k in range(12)), GRAY)
    assert all(a <= b for a, b in itertools.pairwise(order))
