"""Stacked and concatenated planes: known ones are read where they come from, a few cheap ones are one pure definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.passes.elimination.forwarding import concatenated, select_planes
from tests.numpy_check import check
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(3)
IMAGE = RNG.random((4, 37, 45)).astype(np.float32)


def premultiplied(a: Any) -> Any:
    return np.concatenate([a[:3] * a[3], a[3:]])


def blurred(p: Any) -> Any:
    """So many reads that nothing cheap goes into them unasked."""
    return sum(p[:, k : k + 30, j : j + 40] * (k + 3 * j + 1) for k in range(4) for j in range(4))


def several(a: Any) -> Any:
    return blurred(premultiplied(a))


def last_axis(a: Any) -> Any:
    p = np.stack([a[0], a[1] + 1, a[2] * a[3]], axis=-1)
    return sum(p[k : k + 30, j : j + 40] for k in range(4) for j in range(4))


def quotients(a: Any) -> Any:
    b = (a * 9).astype(np.int32)
    return blurred(np.stack([b[0] // b[1], b[1] % b[2], b[3]]))


def written(a: Any) -> Any:
    p = np.empty_like(a)
    p[:2] = a[2:]
    p[2] = a[0] - a[1]
    p[3] = 1
    return blurred(p)


def written_twice(a: Any) -> Any:
    p = np.empty_like(a)
    p[:2] = a[2:]
    p[2:] = a[:2]
    p[:2] = a[2:] + 1
    return blurred(p)


MERGED = {f.__name__: f for f in (several, last_axis, quotients, written, written_twice)}


def stage_of(graph: Any, shape: int) -> Any:
    return next(
        s for s in graph.stages if shape in [n.const for n in s.shape if n.is_const] and s.name not in graph.outputs
    )


@pytest.mark.parametrize("name", MERGED)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_few_cheap_planes_are_one_definition(name: str) -> None:
    graph = canonical(MERGED[name], IMAGE)
    planes = stage_of(graph, 4 if name in ("several", "written", "written_twice") else 3)
    assert planes.initial is not None and not planes.updates
    check(MERGED[name], IMAGE)


@pytest.mark.parametrize("name", MERGED)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_planes_are_inlined_where_a_schedule_says_so(name: str) -> None:
    f = hjit.pipeline(MERGED[name], cache="off")
    s = f.schedule(IMAGE)
    planes = stage_of(s.graphs()[0], 4 if name in ("several", "written", "written_twice") else 3).name
    s[planes].inline()
    assert planes not in s.stages
    f.use(s)
    np.testing.assert_array_equal(f(IMAGE), MERGED[name](IMAGE))


def test_planes_of_results_and_dear_ones_stay_apart() -> None:
    graph = canonical(premultiplied, IMAGE)
    assert len(graph.stage(graph.outputs[0]).updates) == 2
    expensive = canonical(lambda a: blurred(np.stack([np.exp(a[0]), np.sin(a[1])])), IMAGE)
    assert len(stage_of(expensive, 2).updates) == 2
    many = canonical(lambda a: blurred(np.concatenate([a, a + 1])), IMAGE)
    assert len(stage_of(many, 8).updates) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda a: premultiplied(a)[:3] + 1,
        lambda a: premultiplied(a)[3] - 1,
        lambda a: premultiplied(a)[1:3].sum(axis=0),
        lambda a: premultiplied(a)[2, ::2] * 2,
    ],
)
def test_what_is_known_to_be_in_one_part_is_read_where_it_comes_from(function: Any) -> None:
    graph = canonical(function, IMAGE)
    assert len(graph.stages) == 1 and graph.stages[0].sources <= {"a0", graph.stages[0].name}
    check(function, IMAGE, exact=False)


def test_a_slice_of_two_parts_is_read_as_it_is() -> None:
    check(lambda a: blurred(premultiplied(a)[2:]), IMAGE)
    check(lambda a: premultiplied(a)[::-1] + 1, IMAGE)


def test_parts_need_to_be_whole_and_apart() -> None:
    def gap(a: Any) -> Any:
        p = np.zeros_like(a)
        p[:2] = a[:2]
        p[2, 1:] = a[2, 1:]
        p[3] = a[3]
        return blurred(p)

    def overlapping(a: Any) -> Any:
        p = np.empty_like(a)
        p[:3] = a[:3]
        p[2:] = a[2:] + 1
        return blurred(p)

    for f in (gap, overlapping):
        graph = canonical(f, IMAGE)
        assert select_planes(graph) == graph
        assert all(concatenated(s) is None for s in graph.stages)
        check(f, IMAGE)
