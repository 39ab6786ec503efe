"""The demo, small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hjit
from hjit import cli, demo


@pytest.fixture(scope="module")
def photo() -> np.ndarray:
    return demo.resized(demo.load_photo(), 72, 90)


@pytest.mark.parametrize("case", demo.CASES, ids=lambda c: c.name)
def test_pipelines_compute_what_numpy_does(case: demo.Case, photo: np.ndarray) -> None:
    image = case.prepare(photo)
    compiled = hjit.pipeline(case.function, cache="off", verify="off")
    for part in (image, image[:61, :83], image[5:, 7:]):
        got, expected = compiled(part), case.function(part)
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        if case.function is demo.develop:  # its gamma curve may round the other way
            assert np.max(np.abs(got.astype(int) - expected.astype(int))) <= 1
        else:
            np.testing.assert_array_equal(got, expected)
    assert compiled.stats.fallbacks == 0


@pytest.mark.parametrize("case", demo.CASES[:1], ids=lambda c: c.name)
def test_unsharp_mask_of_grey(case: demo.Case, photo: np.ndarray) -> None:
    grey = np.ascontiguousarray(case.prepare(photo)[..., 1])
    np.testing.assert_array_equal(hjit.pipeline(case.function, cache="off")(grey), case.function(grey))


def test_measure(photo: np.ndarray, tmp_path: Path) -> None:
    row = demo.measure(demo.CASES[1], photo, rounds=1, cache_dir=str(tmp_path))
    assert (row.name, row.shape, row.dtype) == ("Harris corners", (72, 90), "float32")
    assert row.difference == 0
    assert row.ratio > 0


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    image_module = pytest.importorskip("PIL.Image")
    source = tmp_path / "mine.jpg"
    image_module.fromarray(np.random.default_rng(3).integers(0, 256, (50, 70), np.uint8)).save(source)
    out = tmp_path / "demo.png"
    assert cli.main(["demo", str(source), "--out", str(out), "--size", "64x80"]) == 0
    text = capsys.readouterr().out
    for case in demo.CASES:
        assert case.name in text
    assert "64x80x3" in text
    with image_module.open(out) as made:
        assert made.width > 1000 and made.height > 300


def test_default_photo_needs_no_download() -> None:
    photo = demo.load_photo()
    assert photo.ndim == 3
    assert photo.shape[2] == 3
    assert photo.dtype == np.uint8


def test_drawn_photo() -> None:
    drawn = demo._drawn()
    assert drawn.shape == (400, 600, 3)
    assert drawn.std() > 20


@pytest.mark.parametrize("size", [(40, 40), (33, 200), (500, 300)])
def test_resized(size: tuple[int, int], photo: np.ndarray) -> None:
    assert demo.resized(photo, *size).shape == (*size, 3)
