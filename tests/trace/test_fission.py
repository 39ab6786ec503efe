"""Reductions of what looks across borders compute it before, where vectors find the interior; others stay as they are."""

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hjit
from tests.numpy_check import check

RNG = np.random.default_rng(5)
IMAGE = RNG.random((41, 83)).astype(np.float32)


def difference(a: Any) -> Any:
    p = np.pad(a, 1, mode="edge")
    return p[1:-1, 2:] - p[1:-1, :-2]


APART = {
    "everything": lambda a: np.abs(ndimage.laplace(a)).max(),
    "rows": lambda a: difference(a).max(axis=1),
    "both ways round": lambda a: (np.roll(a, 1, 1) < a).sum(),
    "mirrored": lambda a: np.pad(a, 3, mode="reflect").min(axis=1),
    "with another": lambda a: (ndimage.maximum_filter(a, 3) == a[0, 0]).any(axis=1),
    "two": lambda a: (difference(a).max(), difference(a[::-1]).min()),
    "channels": lambda a: difference(np.stack([a, a * 2], 0).reshape(-1, a.shape[1])).max(axis=-1),
}
TOGETHER = {
    "columns": lambda a: difference(a).max(axis=0),
    "no border": lambda a: (a[:, 1:] - a[:, :-1]).max(axis=1),
    "rows of borders": lambda a: np.roll(a, 1, 0).max(axis=1),
    "few": lambda a: np.pad(a[:, :6], ((0, 0), (1, 1)), mode="edge").max(axis=1),
    "a filter": lambda a: ndimage.correlate(a, a[:5, :5], mode="nearest"),
    "a product": lambda a: np.roll(a, 1, 1) @ a.T,
}


def terms(f: Any) -> int:
    return sum("_terms" in s.name for g in hjit.pipeline(f, cache="off").schedule(IMAGE).graphs() for s in g.stages)


@pytest.mark.parametrize("name", APART)
def test_terms_across_borders_are_computed_before(name: str) -> None:
    assert terms(APART[name]) == (2 if name == "two" else 1)
    check(APART[name], IMAGE)
    check(APART[name], IMAGE[:2, :7])


@pytest.mark.parametrize("name", TOGETHER)
def test_other_terms_stay_in_their_reduction(name: str) -> None:
    assert terms(TOGETHER[name]) == 0
    check(TOGETHER[name], IMAGE, exact=name not in ("a product", "a filter"))


def test_sums_across_borders_are_numpys() -> None:
    for f in (lambda a: np.abs(ndimage.laplace(a)).sum(), lambda a: ndimage.uniform_filter(a, 5).mean(axis=1)):
        check(f, IMAGE, exact=False)
