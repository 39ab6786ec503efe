"""Pieces of a stage of which nothing is needed: their ranges end before they begin, and nothing is written."""

from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check

IMAGE = np.random.default_rng(0).integers(0, 60000, (9, 41)).astype(np.uint16)


def quarters(img: Any) -> Any:
    h, w = img.shape
    all_of = np.zeros((2 * h, 2 * w), np.uint16)
    all_of[:h, :w] = img + 1
    all_of[h:, w:] = img + 2
    result = all_of * 2
    return result


def side_by_side(img: Any) -> Any:
    both = np.hstack([img, img])
    result = both * 3
    return result


def repeated(img: Any) -> Any:
    half = img + 1
    wide = np.repeat(half, 4, axis=1)
    result = wide[:, 5:] ^ 3
    return result


@pytest.mark.parametrize("size", [1, 2, 8])
def test_two_empty_dimensions_that_run_as_one(size: int) -> None:
    s = hjit.pipeline(quarters, verify="off").schedule(IMAGE)
    pieces = s[s.stages[0]]
    s["result"].tile("y", "x", "yo", "xo", "yi", "xi", size, size)
    pieces.compute_at("result", "xo")
    for k in range(3):
        pieces.update(k).fuse("y", "x", "yx")
    check(quarters, IMAGE, schedule=s)


@pytest.mark.parametrize("tail", ["guard_with_if", "predicate"])
@pytest.mark.parametrize(("lanes", "size"), [(1, 4), (2, 6), (4, 8)])
def test_several_vectors_or_turns(lanes: int, size: int, tail: Any) -> None:
    s = hjit.pipeline(side_by_side, verify="off").schedule(IMAGE)
    s["result"].serial("y").serial("x").reorder("x", "y")
    s["both"].compute_at("result", "x").split("x", "x", "xu", size, tail="guard_with_if").unroll("xu")
    if lanes > 1:
        s["both"].vectorize("xu", lanes, tail=tail)
    check(side_by_side, IMAGE, schedule=s)


@pytest.mark.parametrize("lanes", [4, 16])
def test_fewer_elements_than_are_equal_to_each_other(lanes: int) -> None:
    img = IMAGE.astype(np.uint64)
    s = hjit.pipeline(repeated, verify="off").schedule(img)
    s["result"].tile("y", "x", "yo", "xo", "yi", "xi", 8, 1)
    s["wide"].compute_at("result", "xo").vectorize("x", lanes)
    s["half"].root()
    check(repeated, img, schedule=s, num_threads=1)
