"""Arrays that are changed in parts, and read in between: few copies, and NumPy's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.graph import Graph, identity
from hjit.trace.passes.elimination.versions import Region, read_earlier_versions
from hjit.trace.passes.fusion import fuse
from hjit.trace.passes.limits import EARLIER_VERSIONS
from tests.trace.helpers import assert_same, check
from tests.trace.test_canonical import canonical, graphs

RNG = np.random.default_rng(0)
CUBE = RNG.random((24, 20, 30))


def copies(graph: Graph) -> int:
    """The stages that begin with another one, as it is."""
    firsts = [(s.initial, len(s.shape)) for s in graph.stages if s.updates]
    return sum(isinstance(e, Load) and e.index == identity(n) for e, n in firsts)


def normalised_in_groups(a: Any) -> Any:
    a = np.maximum.accumulate(a)
    for k in range(0, len(a), 4):
        norms = np.sqrt(np.max(a[k : k + 4] ** 2, axis=0))
        a[k : k + 4] /= norms
    return a


def normalised_columns(a: Any) -> Any:
    a = np.maximum.accumulate(a)
    for k in range(a.shape[2] // 5):
        a[..., k * 5 : k * 5 + 5] -= a[..., k * 5 : k * 5 + 5].max(axis=(1, 2), keepdims=True)
    return a


def even_and_odd(a: Any) -> Any:
    a = np.maximum.accumulate(a)
    for k in range(2):
        a[:, k::2] *= a[:, k::2].max(axis=1, keepdims=True)
        a[:, 1 - k :: 2, 1] += a[:, k::2, 2].max()
    return a


def changed_argument(a: Any) -> Any:
    for k in range(6):
        a[k] -= a[k].max()
    return a.max(axis=0)


@pytest.mark.parametrize("function", [normalised_in_groups, normalised_columns])
def test_parts_that_are_changed_by_what_they_were_are_one_buffer(function: Callable[..., Any]) -> None:
    assert copies(canonical(function, CUBE)) == 1


def test_a_known_size_tells_parts_with_large_numbers_apart() -> None:
    def far(a: Any) -> Any:
        a = np.maximum.accumulate(a)
        for k in (300, 200, 100, 0):
            a[k : k + 90] /= a[k : k + 90].max()
        return a

    assert copies(canonical(far, RNG.random(400))) == 1


def test_what_was_written_is_read() -> None:
    def chained(a: Any) -> Any:
        a = np.maximum.accumulate(a)
        for k in range(4):
            a[k + 1] -= a[k].max()
        return a

    assert copies(canonical(chained, CUBE)) >= 3  # each plane is read after it was changed
    check(chained, CUBE)


def test_no_more_versions_are_read_than_before() -> None:
    def both(a: Any) -> Any:
        a = np.maximum.accumulate(a)
        a[0] *= 2
        a[1] *= 2
        return a[0].max(), a[1].max(), a[2].max(), a

    graph = fuse(graphs(both, CUBE)[0])
    assert read_earlier_versions(graph) == graph
    assert copies(canonical(both, CUBE)) == 0


def test_looking_back_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = 0

    def many(a: Any) -> Any:
        a = a + 1
        for k in [*range(10)] * 30:
            a[k] *= 2
        return a, a[11].max()

    graph, *_ = graphs(many, CUBE)
    is_apart = Region.is_apart

    def counted(self: Any, other: Any) -> bool:
        nonlocal pairs
        pairs += 1
        return is_apart(self, other)

    monkeypatch.setattr(Region, "is_apart", counted)
    read_earlier_versions(graph)
    reads = sum(len(s.loads) for s in graph.stages)
    assert pairs <= reads * EARLIER_VERSIONS


@pytest.mark.parametrize("function", [normalised_in_groups, normalised_columns, even_and_odd, changed_argument])
def test_numbers_are_numpys(function: Callable[..., Any]) -> None:
    check(function, CUBE.copy())
    ours, theirs = CUBE.copy(), CUBE.copy()
    p = hjit.pipeline(function, verify="off")
    assert_same(p(ours), function(theirs))
    assert_same(ours, theirs)
    assert p.stats.fallbacks == 0


@pytest.mark.parametrize("seed", range(40))
def test_parts_at_random_are_numpys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(rng.integers(3, 9)):
        axis, step = int(rng.integers(2)), int(rng.integers(1, 4))
        parts = []
        for _ in range(3):  # written, read element by element, read in maxima
            first = int(rng.integers(0, 20))
            part: list[Any] = [slice(None)] * 2
            part[axis] = slice(first, first + 6 * step, step)
            parts.append(tuple(part))
        steps.append((axis, parts, bool(rng.integers(2))))

    def f(a: Any) -> Any:
        a = a + 1
        maxima = []
        for axis, (to, of, highest), is_kept in steps:
            a[to] += a[of][: a[to].shape[0], : a[to].shape[1]] * a[highest].max(axis=axis, keepdims=True)
            if is_kept:
                maxima.append(a[of].max())
        return a, maxima

    image = RNG.random((40, 40))
    check(f, image)
    p = hjit.pipeline(f, verify="off")
    with np.errstate(all="ignore"):
        assert_same(p(image), f(image))
