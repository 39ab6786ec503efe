"""Flat axes that are read at rows and columns become rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.ir.graph import Graph
from tests.numpy_check import check, image
from tests.trace.test_canonical import canonical

MATRIX = np.array([[-0.25, 0.13, 0.41], [0.2, -0.5, 0.23], [0.12, -0.13, 0.6]], np.float32)
PLANES = image((3, 30, 43), "float32")


def planar(a: Any) -> Any:
    mixed = (MATRIX @ np.sqrt(a).reshape(3, -1)).reshape(a.shape)
    return mixed[:, 1:] - mixed[:, :-1]


def channels_last(a: Any) -> Any:
    mixed = (np.sqrt(a).reshape(-1, 3) @ MATRIX.T).reshape(a.shape)
    return mixed[1:, ::2] * mixed[:-1, ::2]


def stacked(a: Any) -> Any:
    """Frames, rows and columns in one axis."""
    frames = np.stack([a, a * 2, a[:, ::-1]])
    mixed = (frames.transpose(1, 0, 2, 3).reshape(3, -1).T @ MATRIX).T.reshape(3, *frames[:, 0].shape)
    return mixed[:, 1:, 2:, 1:] - mixed[:, :-1, :-2, :-1]


def in_borders(a: Any) -> Any:
    mixed = (MATRIX @ a.reshape(3, -1)).reshape(a.shape)
    padded = np.pad(mixed, ((0, 0), (2, 2), (1, 1)), mode="reflect")
    return padded[:, 4:, 2:] + padded[:, :-4, :-2]


def cropped(a: Any) -> Any:
    part = a[:, 2:-2]
    mixed = (MATRIX @ np.sqrt(part).reshape(3, -1)).reshape(part.shape)
    return mixed[:, 1:] - mixed[:, :-1]


def cropped_both_ways(a: Any) -> Any:
    part = np.sqrt(a[:, 2:-3, 1:-2])
    mixed = (MATRIX @ part.reshape(3, -1)).reshape(part.shape)
    return mixed[:, 1:, 1:] - mixed[:, :-1, :-1]


def stretched(a: Any) -> Any:
    """Rows of ``2 * w`` elements."""
    wide = np.repeat(np.sqrt(a), 2, axis=2)
    mixed = (MATRIX @ wide.reshape(3, -1)).reshape(wide.shape)
    return mixed[:, 1:, 2:] - mixed[:, :-1, :-2]


def quotients(graph: Graph) -> bool:
    return any(mark in str(graph) for mark in ("//", "%"))


@pytest.mark.parametrize("f", [planar, stacked, in_borders, cropped, cropped_both_ways])
def test_what_is_read_at_rows_and_columns_has_rows_and_columns(f: Any) -> None:
    graph = canonical(f, PLANES)
    assert not quotients(graph)
    (product,) = (s for s in graph.stages if s.updates)
    assert len(product.shape) == 1 + PLANES.ndim - (f is not stacked)
    check(f, PLANES, exact=False)
    check(f, PLANES[:, ::-1, 3:], exact=False)


def test_rows_may_be_a_multiple_of_a_size() -> None:
    (product,) = (s for s in canonical(stretched, PLANES).stages if s.updates)
    assert len(product.shape) == 3
    check(stretched, PLANES, exact=False)


def test_channels_may_be_last() -> None:
    a = np.ascontiguousarray(np.moveaxis(PLANES, 0, -1))
    (product,) = (s for s in canonical(channels_last, a).stages if s.updates)
    assert len(product.shape) == 3
    check(channels_last, a, exact=False)


def test_what_is_also_read_across_rows_stays_flat() -> None:
    def across(a: Any) -> Any:
        mixed = MATRIX @ np.sqrt(a).reshape(3, -1)
        return mixed.reshape(a.shape)[:, 1:] - mixed[:, 5 : 5 + a.shape[1] * a.shape[2] - a.shape[2]].reshape(
            3, -1, a.shape[2]
        )

    (product,) = (s for s in canonical(across, PLANES).stages if s.updates)
    assert len(product.shape) == 2
    check(across, PLANES, exact=False)


@pytest.mark.parametrize("part", [slice(48), slice(7, 400), slice(0, None, 2), slice(-30, None)])
def test_what_is_written_in_a_part_of_a_flat_image_stays_there(part: slice) -> None:
    def marked(a: Any, marks: Any) -> Any:
        flat = a.flatten()
        flat[part] = (flat[part] & 0xFE) | marks[part]
        return flat.reshape(a.shape)

    a = np.arange(20 * 24 * 3, dtype=np.uint8).reshape(20, 24, 3)
    check(marked, a, (a.ravel() >> 1) & 1)


def test_what_is_returned_keeps_its_shape() -> None:
    check(lambda a: MATRIX @ np.sqrt(a).reshape(3, -1), PLANES, exact=False)
    check(lambda a: (MATRIX @ a.reshape(3, -1)).reshape(a.shape), PLANES, exact=False)


def test_images_without_elements() -> None:
    for shape in ((3, 0, 5), (3, 5, 0), (3, 1, 1)):
        check(planar, np.zeros(shape, np.float32), exact=False)


def test_rows_of_a_product_are_computed_where_they_are_read() -> None:
    text = str(hjit.pipeline(planar, cache="off", tune=False).loops(PLANES))
    assert "circular" in text, "a line buffer, not the whole product"
