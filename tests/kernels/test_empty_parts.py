"""Pieces of a stage of which nothing is needed: their ranges end before they begin, and nothing is written."""

from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check, watched_scratch

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


@pytest.mark.parametrize("cut", [2, 17])
def test_a_consumer_without_columns_needs_no_more_than_there_is_memory_for(cut: int) -> None:
    def f(a: Any) -> Any:
        rows = a[:, ::-1] * 3 + a
        rows[1:-1, ::4] += rows[1:-1, ::4]
        result = rows[2:, :-cut] + rows[1:-1, :-cut] * 2
        return result

    p = hjit.pipeline(f, cache="off", verify="off", tune=False, num_threads=1)
    for width in (cut, cut + 3):
        a = np.random.default_rng(0).random((32, width))
        s = p.use(None).schedule(a)
        s["rows_v"].compute_at("result", "y").store_root().reorder_storage(1, 0)
        with watched_scratch():
            np.testing.assert_array_equal(p.use(s)(a), f(a))
