"""`Pipeline.into`: results in arrays of the caller."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import hjit

pytestmark = pytest.mark.filterwarnings("error::hjit.HjitWarning")

IMAGE = np.linspace(0, 9, 400 * 500).reshape(400, 500)


def test_results_land_in_out() -> None:
    f = hjit.pipeline(lambda img: img * 2 + 1)
    out = np.zeros_like(IMAGE)
    for k in range(3):
        out[...] = -1
        assert f.into(out, IMAGE + k) is out
        np.testing.assert_array_equal(out, (IMAGE + k) * 2 + 1)
    assert f.stats.traces == 1
    assert f.stats.calls == 3


def test_nothing_is_allocated() -> None:
    f = hjit.pipeline(lambda img: (img * 2, img + 1))
    out = (np.zeros_like(IMAGE), np.zeros_like(IMAGE))
    f.into(out, IMAGE)
    f.into(out, IMAGE)
    tracemalloc.start()
    f.into(out, IMAGE)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < IMAGE.nbytes // 10
    np.testing.assert_array_equal(out[1], IMAGE + 1)


def test_forms_of_results() -> None:
    def f(img: Any, gain: float = 1.0) -> Any:
        return {"a": img * gain, "b": [img + 1, (img[:20], img.sum(axis=0))]}

    p = hjit.pipeline(f)
    for gain in (2.0, 3.0, 4.0):
        out = {"a": np.empty_like(IMAGE), "b": [np.empty_like(IMAGE), (np.empty((20, 500)), np.empty(500))]}
        assert p.into(out, IMAGE, gain=gain) is out
        expected = f(IMAGE, gain=gain)
        np.testing.assert_array_equal(out["a"], expected["a"])
        np.testing.assert_array_equal(out["b"][1][0], expected["b"][1][0])
        np.testing.assert_allclose(out["b"][1][1], expected["b"][1][1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((500, 400)).T,
        lambda: np.zeros((400, 1000))[:, ::2],
        lambda: np.zeros((400, 500))[::-1],
        lambda: np.zeros((420, 520))[10:-10, 10:-10],
        lambda: np.zeros(IMAGE.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(IMAGE.shape),
        lambda: np.zeros((400, 500), [("x", "u1"), ("y", "f8")])["y"],
    ],
)
def test_layouts_of_out(make: Any) -> None:
    f = hjit.pipeline(lambda img: img * 2)
    for _ in range(3):
        out = make()
        f.into(out, IMAGE)
        np.testing.assert_array_equal(out, IMAGE * 2)


def test_out_overlaps_an_argument() -> None:
    f = hjit.pipeline(lambda img: img + np.roll(img, 1, 0))
    for view in (np.s_[:400], np.s_[1:401], np.s_[3:403]):
        for _ in range(3):
            base = np.zeros((410, 500))
            base[:400] = IMAGE
            out = base[view]
            f.into(out, base[:400])
            np.testing.assert_array_equal(out, IMAGE + np.roll(IMAGE, 1, 0))


def test_out_overlaps_what_the_function_captures() -> None:
    table = np.arange(30.0)
    f = hjit.pipeline(lambda: table[::-1] + table)
    for _ in range(3):
        table[...] = np.arange(30.0)
        f.into(table)
        np.testing.assert_array_equal(table, np.full(30, 29.0))


def test_one_out_for_two_results() -> None:
    f = hjit.pipeline(lambda img: (img + 1, img + 2))
    for _ in range(3):
        out = np.zeros_like(IMAGE)
        f.into((out, out), IMAGE)
        np.testing.assert_array_equal(out, IMAGE + 2)


def test_out_that_does_not_fit() -> None:
    f = hjit.pipeline(lambda img: img * 2)
    for _ in range(2):
        for out in (
            np.zeros((400, 499)),
            np.zeros((400, 500), np.float32),
            np.zeros((1, 400, 500)),
            (),
            [np.zeros_like(IMAGE)] * 2,
            3.0,
            None,
            np.zeros((400, 500), ">f8"),
        ):
            with pytest.raises(ValueError, match="out"):
                f.into(out, IMAGE)
        locked = np.zeros_like(IMAGE)
        locked.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            f.into(locked, IMAGE)
        assert not locked.any()


def test_other_sizes_and_branches() -> None:
    def f(img: Any) -> Any:
        if img.max() > 10:
            return img[:20] * 3
        return img * 2

    p = hjit.pipeline(f)
    for _ in range(2):
        for image in (IMAGE, IMAGE * 2, IMAGE[:50], IMAGE):
            out = np.zeros_like(f(image))
            p.into(out, image)
            np.testing.assert_array_equal(out, f(image))
    with pytest.raises(ValueError, match="out"):
        p.into(np.zeros_like(IMAGE), IMAGE * 2)


def test_changed_arguments_and_returned_arguments() -> None:
    def f(img: Any) -> Any:
        img += 1
        return img

    p = hjit.pipeline(f)
    for _ in range(3):
        image, out = IMAGE.copy(), np.zeros_like(IMAGE)
        p.into(out, image)
        np.testing.assert_array_equal(image, IMAGE + 1)
        np.testing.assert_array_equal(out, IMAGE + 1)


def test_numbers_as_results() -> None:
    f = hjit.pipeline(lambda img: img.max())
    for _ in range(2):
        out = np.zeros(())
        f.into(out, IMAGE)
        assert out == IMAGE.max()


def test_dicts_are_filled_by_their_keys() -> None:
    f = hjit.pipeline(lambda a: {"x": a * 2, "y": (a + 1, {"z": a - 1, "t": a[:3].sum(0)})})
    a = np.arange(12.0).reshape(4, 3)
    for _ in range(3):
        out = {"y": (np.zeros((4, 3)), {"t": np.zeros(3), "z": np.zeros((4, 3))}), "x": np.zeros((4, 3))}
        assert f.into(out, a) is out
        np.testing.assert_array_equal(out["x"], a * 2)
        np.testing.assert_array_equal(out["y"][0], a + 1)
        np.testing.assert_array_equal(out["y"][1]["z"], a - 1)
        np.testing.assert_array_equal(out["y"][1]["t"], a[:3].sum(0))


def test_structures_of_out() -> None:
    a = np.arange(3.0)

    def o() -> Any:
        return np.zeros(3)

    by_key, one, two = (
        hjit.pipeline(f) for f in (lambda a: {"x": a * 2, "y": a * 3}, lambda a: a * 2, lambda a: (a, a * 2))
    )
    for _ in range(2):
        for f, out in [
            (by_key, {"x": o(), "z": o()}), (by_key, {"x": o()}), (by_key, (o(), o())), (by_key, {"x": o(), "y": [o()]}),
            (one, (o(),)), (one, {"x": o()}), (one, [[o()]]), (two, {"x": o(), "y": o()}), (two, ((o(), o()),)), (two, o()),
        ]:  # fmt: skip
            with pytest.raises(ValueError, match="out"):
                f.into(out, a)
    out = [o(), o()]
    two.into(out, a)
    np.testing.assert_array_equal(out[1], a * 2)
