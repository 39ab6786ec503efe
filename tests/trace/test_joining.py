"""Stacking, concatenating, repeating, splitting, inserting and deleting give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hjit.errors import TraceError
from tests.trace.helpers import check, interpreted, trace_of

DTYPES = ("uint8", "int16", "int64", "float32", "float64", "bool")
SHAPES = ((20, 30), (17, 1), (1, 33), (3, 5), (1, 1))
dtypes = st.sampled_from(DTYPES)
shapes = st.sampled_from(SHAPES)


def image(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray[Any, Any]:
    return np.asarray(np.random.default_rng(seed).random(shape) * 50).astype(dtype)


def graph_text(function: Any, *args: Any) -> str:
    traced, _ = trace_of(function, *args)
    leaves: list[str] = []
    traced.result.build(lambda r: leaves.append(r.name)) if hasattr(traced.result, "build") else leaves.append(
        traced.result.name
    )
    return str(traced.recorder.graph(tuple(leaves)))


@settings(max_examples=25, deadline=None)
@given(shapes, dtypes, dtypes, st.integers(-2, 1))
def test_concatenate(shape: tuple[int, ...], first: str, second: str, axis: int) -> None:
    a, b = image(shape, first), image(shape, second, 1)
    check(lambda x, y: np.concatenate([x, y, x], axis), a, b)
    check(lambda x, y: np.append(x, y, axis), a, b)
    check(lambda x, y: np.append(x, y), a, b)
    check(lambda x, y: np.concatenate((x, y), axis=None), a, b)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_r_and_c(dtype: str) -> None:
    a, v = image((20, 30), dtype), image((30,), dtype, 1)
    check(lambda a, v: np.r_[v, 0, 1, v], a, v)
    check(lambda a, v: np.r_[0, np.cumsum(v)], a, v)
    check(lambda a, v: np.r_[v[1:], 2.5, v[5:0:-1]], a, v)
    check(lambda a, v: np.r_[a.max(), v, a.shape[0]], a, v)
    check(lambda a, v: np.r_[-1:1:6j, : len(v), v], a, v)
    check(lambda a, v: np.r_["0,2", v, v], a, v)
    check(lambda a, v: np.r_["1,2,0", v, v], a, v)
    check(lambda a, v: np.c_[a, a[:, 0], v[:20]], a, v)
    check(lambda a, v: np.c_[v, v * 2], a, v)
    check(lambda a, v: np.c_[a.max(), a.min()], a, v)
    check(lambda a, v: a[:, np.r_[0, 5:8, -1]], a, v)
    check(lambda a, v: np.diagflat(a[:3, :4], 2), a, v)
    with pytest.raises(ValueError, match="concatenate"):
        trace_of(lambda a: np.r_[()] + a, a)


@settings(max_examples=25, deadline=None)
@given(shapes, dtypes, st.integers(-3, 2), st.integers(1, 4))
def test_stack(shape: tuple[int, ...], dtype: str, axis: int, count: int) -> None:
    check(lambda x: np.stack([x[::-1]] * count, axis), image(shape, dtype))
    check(lambda x: np.stack([x, x.astype(np.int16)], axis), image(shape, dtype))


@pytest.mark.parametrize("shape", [*SHAPES, (4,), (40,), (2, 3, 4), ()])
@pytest.mark.parametrize("function", [np.hstack, np.vstack, np.dstack, np.column_stack])
def test_other_stacks(function: Any, shape: tuple[int, ...]) -> None:
    a = image(shape)
    if function is np.column_stack and shape == ():
        check(lambda x: np.column_stack([x[()], x[()]]), a)
        return
    check(lambda x: function([x, x]), a)
    check(lambda x: function((x, x, x[...])), a)


def test_concatenate_of_the_rows_of_one_array() -> None:
    for shape in ((2, 20, 30), (3, 4, 5)):
        a = image(shape)
        check(lambda x: np.concatenate(x), a)
        check(lambda x: np.concatenate(x, axis=1), a)
        check(lambda x: np.concatenate(x[::-1], -1), a)
        check(lambda x: np.stack(x, -1), a)
        check(lambda x: np.vstack(x), a)


def test_dtype_out_and_casting() -> None:
    a, b = image((20, 30)), image((2, 30), "int16")
    check(lambda x, y: np.concatenate([x, y], dtype=np.float64), a, b)
    check(lambda x, y: np.concatenate([x, y], dtype=np.int32, casting="unsafe"), a, b)
    check(lambda x, y: np.stack([y, y], dtype=np.float32), a, b)

    def into(x: Any, y: Any) -> Any:
        out = np.zeros((22, 30))
        np.concatenate([x, y], out=out)
        return out

    check(into, a, b)
    for bad in (lambda x, y: np.concatenate([x, y], dtype=np.int16), lambda x, y: np.stack([x, x], dtype=np.uint8)):
        with pytest.raises(TypeError, match="Cannot cast array data"):
            interpreted(bad, a, b)
    with pytest.raises(TraceError):
        interpreted(lambda x: np.concatenate([x, x], dtype=np.longdouble), a)


def test_mixed_scalars_and_literals() -> None:
    a = image((20, 30))
    check(lambda x: np.array([x[0, 0], 2.0, x[1, 1]]), a)
    check(lambda x, s: np.append(x, s), a, 3)
    check(lambda x: np.concatenate([x[0], [1.0, 2.0]]), a)
    check(lambda: np.concatenate([np.arange(3), np.ones(2)]) * np.stack([np.arange(5)] * 2))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: np.concatenate([]), ValueError),
        (lambda x: np.concatenate([x, x[0]]), ValueError),
        (lambda x: np.concatenate([x, x[:, :2]]), ValueError),
        (lambda x: np.concatenate([x, x], axis=2), np.exceptions.AxisError),
        (lambda x: np.concatenate([x[0, 0], x[0, 0]]), ValueError),
        (lambda x: np.stack([x, x[:2]]), ValueError),
        (lambda x: np.stack([x, x], 3), np.exceptions.AxisError),
        (lambda x: np.hstack([x, x[:, 0]]), ValueError),
        (lambda x: np.split(x, 7), ValueError),
        (lambda x: np.array_split(x, 0), ValueError),
        (lambda x: np.hsplit(x[0, 0], 1), ValueError),
        (lambda x: np.vsplit(x[0], 1), ValueError),
        (lambda x: np.dsplit(x, 1), ValueError),
        (lambda x: np.delete(x, 40, 0), IndexError),
        (lambda x: np.delete(x, [1, 40], 0), IndexError),
        (lambda x: np.insert(x, 40, 0, 0), IndexError),
        (lambda x: np.insert(x, 1, [1.0, 2.0], 0), ValueError),
        (lambda x: np.repeat(x, -1), ValueError),
        (lambda x: np.repeat(x, [1, 2], 0), ValueError),
        (lambda x: np.repeat(x, np.array([1.5] * 20), 0), TypeError),
        (lambda x: np.tile(x, -1), ValueError),
        (lambda x: np.block([[x, x], [x]]), ValueError),
        (lambda x: np.block([[x], x]), ValueError),
        (lambda x: np.block((x, x)), TypeError),
    ],
)
def test_refuses_as_numpy_does(function: Any, kind: type[Exception]) -> None:
    a = image((20, 30))
    with pytest.raises(kind) as expected:
        function(a)
    with pytest.raises(kind) as got:
        interpreted(function, a)
    assert str(got.value) == str(expected.value)


@settings(max_examples=25, deadline=None)
@given(shapes, dtypes, st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_tile(shape: tuple[int, ...], dtype: str, reps: list[int]) -> None:
    check(lambda x: np.tile(x, tuple(reps)), image(shape, dtype))
    check(lambda x: np.tile(x, reps[0]), image(shape, dtype))


def test_tile_by_a_size() -> None:
    check(lambda x: np.tile(x[0], (x.shape[0], 1)), image((20, 30)))
    check(lambda x: np.tile(x[:, :1], x.shape[1]), image((20, 30)))
    check(lambda x: np.tile(x, (5, 4)), image((20, 3)))


@settings(max_examples=25, deadline=None)
@given(shapes, dtypes, st.integers(0, 4), st.sampled_from([None, 0, 1, -1]))
def test_repeat(shape: tuple[int, ...], dtype: str, times: int, axis: int | None) -> None:
    a = image(shape, dtype)
    check(lambda x: np.repeat(x, times, axis), a)
    check(lambda x: x.repeat(times, axis), a)
    counts = [k % 3 for k in range(a.size if axis is None else shape[axis])]
    check(lambda x: np.repeat(x, counts, axis), a)
    check(lambda x: np.repeat(x, [1.5], axis), a)


def test_repeat_by_computed_counts_is_refused() -> None:
    with pytest.raises(TraceError, match="repeats"):
        interpreted(lambda x, n: np.repeat(x, n, 0), image((20, 30)), np.arange(20))
    check(lambda x, n: np.repeat(x, n, 0), image((3, 30)), np.arange(3))


@pytest.mark.parametrize("shape", [(3,), (50, 50), (7, 2, 3), (0,), 5])
def test_resize(shape: Any) -> None:
    for given_shape in SHAPES:
        check(lambda x: np.resize(x, shape), image(given_shape))


@settings(max_examples=25, deadline=None)
@given(shapes, st.integers(1, 5), st.integers(-2, 1))
def test_array_split(shape: tuple[int, ...], sections: int, axis: int) -> None:
    check(lambda x: np.array_split(x, sections, axis), image(shape))
    check(lambda x: np.array_split(x, [1, 4, -2], axis), image(shape))
    check(lambda x: np.split(x, np.array([2, 3]), axis), image(shape))


def test_other_splits() -> None:
    a = image((20, 30, 4))
    check(lambda x: np.split(x, 4), a)
    check(lambda x: np.hsplit(x, 3) + np.vsplit(x, 2) + np.dsplit(x, 2), a)
    check(lambda x: np.hsplit(x[0, 0], [1, 3]), a)
    check(lambda x: [half * 2 for half in np.split(x, [x.shape[0] // 2])], a)
    if hasattr(np, "unstack"):
        check(lambda x: np.unstack(x, axis=2), a)


def test_block() -> None:
    a, b = image((20, 30)), image((20, 5), "int16")
    check(lambda x, y: np.block([[x, y], [y, x]]), a, b)
    check(lambda x, y: np.block([x, y]), a, b)
    check(lambda x, y: np.block([[x[0], 1.0], [np.zeros(30), x[1, 1]]]), a, b)
    check(lambda x, y: np.block(x), a, b)
    check(lambda x, y: np.block([[[x]], [[x]]]), a, b)
    with pytest.raises(ValueError, match="must match exactly"):
        interpreted(lambda x, y: np.block([[x, y], [y, y]]), a, b)


@pytest.mark.parametrize(
    "obj",
    [
        0,
        3,
        -1,
        slice(1, 3),
        slice(None, None, 2),
        slice(4, 0, -1),
        slice(2, 2),
        [0, 2],
        [-1, 1, 1],
        [],
        [True, False] * 10,
    ],
)
def test_delete(obj: Any) -> None:
    a = image((20, 30), "int16")
    check(lambda x: np.delete(x, obj, 0), a)
    if not isinstance(obj, list) or len(obj) < 20:
        check(lambda x: np.delete(x, obj, -1), a)
        check(lambda x: np.delete(x, obj), a)
        check(lambda x: np.delete(x, obj, 0), image((5, 2)))


def test_delete_many() -> None:
    check(lambda x: np.delete(x, slice(None, None, 2), 1), image((3, 400)))
    check(lambda x: np.delete(x, x.shape[0] // 2, 0), image((40, 5)))


@pytest.mark.parametrize("obj", [0, 3, -1, 5, slice(1, 3), [2], [0, 2], [-1, 1, 1], []])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_insert(obj: Any, axis: int | None) -> None:
    for a in (image((20, 30)), image((5, 5), "uint8")):
        check(lambda x: np.insert(x, obj, 7, axis), a)


def test_insert_arrays() -> None:
    a = image((20, 30))
    check(lambda x: np.insert(x, 2, x[0], 0), a)
    check(lambda x: np.insert(x, 2, x[:3].T, 1), image((3, 30)))
    check(lambda x: np.insert(x, [2], x[:2], 0), a)
    check(lambda x: np.insert(x, [1, 4], x[:, :2], 1), a)
    check(lambda x: np.insert(x, 4, [1, 2, 3]), a)
    check(lambda x: np.insert(x, x.shape[0], 0.5, 0), a)


def test_pieces_are_updates_not_selects() -> None:
    text = graph_text(lambda x: np.dstack([x, x * 2, np.vstack([x[:4], x[4:]])]), image((20, 30)))
    assert "select" not in text
    assert "[d0, d1, 0] = " in text
    assert "[d0, d1, 2] = " in text


def test_many_pieces_have_a_constant_count() -> None:
    text = graph_text(lambda x: np.stack([x + k for k in range(25)]), image((20, 30)))
    assert "[25, a0.0, a0.1]" in text


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.concatenate([x, x[:3], x], 1 - 1),
        lambda x: np.stack([x, x]),
        lambda x: np.tile(x, (2, 2)),
        lambda x: np.tile(x, (1, 50)),
        lambda x: np.repeat(x, 2, 1),
        lambda x: np.block([[x, x], [x, x]]),
        lambda x: np.delete(x, [1, -2], 1),
        lambda x: np.insert(x, -1, 0, 1),
        lambda x: np.array_split(x, [3, -3], 1)[1] + 1,
        lambda x: np.resize(x, (x.shape[0], 3)),
    ],
)
def test_one_graph_for_all_sizes(function: Any) -> None:
    assert graph_text(function, image((20, 30))) == graph_text(function, image((21, 37)))
