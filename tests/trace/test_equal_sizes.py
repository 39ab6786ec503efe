"""Sizes that a function takes for equal are one symbol, where they are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Sym, deep_atoms, sizes_value
from hjit.trace.passes.equal_sizes import unify_sizes
from tests.numpy_check import check
from tests.trace.test_canonical import graphs

IMAGE = np.random.default_rng(0).random((60, 90), np.float32)
OTHER = np.random.default_rng(1).random((60, 90), np.float32)


def unified(function: Any, *args: Any) -> Graph:
    graph, recorder, _ = graphs(function, *args)
    return unify_sizes(graph, recorder.sizes, recorder.equations)


def symbols(graph: Graph) -> set[str]:
    shapes = [p for x in (*graph.inputs, *graph.stages) for p in x.shape]
    return {a.name for p in shapes for a in deep_atoms(p) if isinstance(a, Sym)}


def blended(a: Any, b: Any) -> Any:
    p = np.pad(a, 1, mode="reflect")
    soft = p[:-2, 1:-1] + p[2:, 1:-1] + b
    q = np.pad(soft, 1, mode="edge")
    return q[:-2, 1:-1] + q[2:, 1:-1] * b


def cropped(a: Any, b: Any) -> Any:
    return a[2:-2, 2:-2] - b


def inner(a: Any, b: Any) -> Any:
    return np.pad(a, 2, mode="symmetric")[1:-3, 2:-2] * b


def stored(a: Any, b: Any) -> Any:
    out = np.empty(b.shape, np.float32)
    out[:] = a * 2
    return out + b


def gathered(a: Any, b: Any) -> Any:
    return (a + b)[np.arange(len(a)) // 2, 3:]


def transposed(a: Any, b: Any) -> Any:
    return a.T + b


def halved(a: Any, b: Any) -> Any:
    return a[::2, ::2] + b


def along_one_axis(a: Any, b: Any) -> Any:
    return a.sum(axis=0) + b[:, 0]


@pytest.mark.parametrize(
    ("function", "other", "expected"),
    [
        (blended, OTHER, {"a0.0", "a0.1"}),
        (cropped, OTHER[4:, 4:], {"a0.0", "a0.1"}),
        (inner, OTHER, {"a0.0", "a0.1"}),
        (stored, OTHER, {"a0.0", "a0.1"}),
        (gathered, OTHER, {"a0.0", "a0.1"}),
        (transposed, OTHER.T, {"a0.0", "a0.1"}),
        (halved, OTHER[:30, :45], {"a0.0", "a0.1"}),
        (along_one_axis, OTHER.T, {"a0.0", "a0.1", "a1.1"}),
    ],
)
def test_what_is_read_from_end_to_end_has_the_size_of_the_loop(function: Any, other: Any, expected: set[str]) -> None:
    graph, recorder, _ = graphs(function, IMAGE, other)
    found = unify_sizes(graph, recorder.sizes, recorder.equations)
    assert symbols(found) == expected
    for x, y in zip((*graph.inputs, *graph.stages), (*found.inputs, *found.stages), strict=True):
        assert [sizes_value(p, recorder.sizes) for p in x.shape] == [sizes_value(p, recorder.sizes) for p in y.shape]
    check(function, IMAGE, other, exact=False)


def test_equal_sizes_that_nothing_compares_stay_apart() -> None:
    square = IMAGE[:50, :50]
    assert symbols(unified(lambda a, b: a.sum() + b * 2, square, square.copy())) == {"a0.0", "a0.1", "a1.0", "a1.1"}
    assert symbols(unified(lambda a: a * 2 + a[::-1], square)) == {"a0.0", "a0.1"}
    assert symbols(unified(lambda a, b: a[: len(b)] + b, IMAGE, OTHER[:40])) == {"a0.0", "a0.1", "a1.0"}


def test_what_is_equal_at_these_sizes_only_stays_apart_where_others_are_to_be_served() -> None:
    graph, recorder, _ = graphs(lambda a, b: a[: len(b)] + b, IMAGE, OTHER)
    for by_chance, expected in ((True, {"a0.0", "a0.1"}), (False, {"a0.0", "a1.0", "a0.1"})):
        assert symbols(unify_sizes(graph, recorder.sizes, recorder.equations, by_chance)) == expected


def test_quotients_of_sizes_are_equal_to_others() -> None:
    """As many columns as the half of others: 45 = 90 // 2 = 91 // 2."""
    graph = unified(lambda a, b: a[:, ::2] + b[:, ::2], IMAGE, np.ones((60, 89), np.float32))
    (stage,) = graph.stages
    assert [str(n) for n in stage.shape] == [str(n) for n in graph.stages[0].shape]
    assert len({str(p) for x in graph.stages for p in x.shape}) == 2


def test_memory_is_no_longer_than_where_there_is_one_size() -> None:
    """A stage that is read across the boundary of one array in loops over the other."""

    def two(a: Any, b: Any) -> Any:
        roots = np.sqrt(a)
        rows = np.pad(roots, ((1, 1), (0, 0)), mode="reflect")
        result = b + rows[2:] + rows[:-2]
        return result

    def scratch(function: Any, *args: Any) -> int:
        pipe = hjit.pipeline(function, cache="off", num_threads=1)
        schedule = pipe.schedule(*args)
        schedule["roots"].compute_at("result", "y").store_root()
        pipe.use(schedule)
        np.testing.assert_array_equal(pipe(*args), function(*args))
        return pipe.stats.scratch_bytes

    assert scratch(two, IMAGE, OTHER) == scratch(lambda a: two(a, a), IMAGE)


def test_other_sizes_are_another_trace() -> None:
    pipe = hjit.pipeline(transposed, cache="off")
    for a, b in ((IMAGE, OTHER.T), (IMAGE[:50, :50], OTHER[:50, :50]), (IMAGE[:30], OTHER.T[:, :30])):
        np.testing.assert_array_equal(pipe(a, b), transposed(a, b))
    with pytest.raises(ValueError, match="could not be broadcast"):
        pipe(IMAGE, OTHER)
