"""Scratch memory: stages share it where no nest needs both, and only there."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hjit
from hjit.kernels.runtime.arena import ALIGN
from hjit.kernels.runtime.scratch import LARGE_BYTES, PAGE_BYTES, offsets, staggered

LIVES = st.tuples(st.integers(0, 12), st.integers(0, 6)).map(lambda x: (x[0], x[0] + x[1]))


@given(st.lists(st.tuples(st.integers(0, 9).map(lambda n: n * ALIGN), LIVES), max_size=24))
def test_what_lives_at_the_same_time_is_apart(stages: list[tuple[int, tuple[int, int]]]) -> None:
    sizes = {f"s{k}": size for k, (size, _) in enumerate(stages)}
    live_ranges = {f"s{k}": live for k, (_, live) in enumerate(stages)}
    places, total = offsets(sizes, live_ranges)
    assert places.keys() == sizes.keys()
    for a in sizes:
        assert 0 <= places[a] <= places[a] + sizes[a] <= total and places[a] % ALIGN == 0
        for b in sizes:
            together = live_ranges[a][0] <= live_ranges[b][1] and live_ranges[b][0] <= live_ranges[a][1]
            if a < b and together:
                assert places[a] + sizes[a] <= places[b] or places[b] + sizes[b] <= places[a]
    assert total <= sum(sizes.values())


def test_large_arrays_lie_at_different_places_of_a_page() -> None:
    sizes = {f"s{k}": staggered(LARGE_BYTES) for k in range(12)}
    places, _ = offsets(sizes, dict.fromkeys(sizes, (0, 0)))
    assert len({p % PAGE_BYTES for p in places.values()}) == len(sizes) and all(p % ALIGN == 0 for p in places.values())
    assert staggered(LARGE_BYTES - ALIGN) == LARGE_BYTES - ALIGN


def chain(img: Any) -> Any:
    for _ in range(8):
        img = np.pad(img, 1, mode="edge")
        img = img[:-2, 1:-1] ^ img[2:, 1:-1] + img[1:-1, 2:]
    return img


def skipping(img: Any) -> Any:
    first = np.cumsum(img, axis=0)
    others = first
    for _ in range(4):
        others = np.cumsum(others ^ 3, axis=1)
        others = np.cumsum(others ^ 5, axis=0)
    return first[::-1] + others


def through(img: Any) -> Any:
    early = np.cumsum(img, axis=0)
    middle = (early[:, :-2] + early[:, 1:-1] + early[:, 2:]) // 3
    other = np.cumsum(np.cumsum(img ^ 7, axis=1), axis=0)
    return (middle[:-2] + middle[1:-1] + middle[2:]) // 3 + other[1:-1, 1:-1]


def test_the_stages_of_a_chain_take_turns() -> None:
    img = np.random.default_rng(0).integers(0, 99, (150, 200)).astype(np.int64)
    f = hjit.pipeline(chain, verify="off")
    s = f.schedule(img)
    for name in s.stages[:-1]:
        s[name].root()
    f.use(s)
    np.testing.assert_array_equal(f(img), chain(img))
    assert f.stats.scratch_bytes < 3 * img.nbytes


def test_a_stage_that_is_read_late_is_kept_until_then() -> None:
    img = np.random.default_rng(0).integers(0, 99, (150, 200)).astype(np.int64)
    f = hjit.pipeline(skipping, verify="off", tune=False)
    np.testing.assert_array_equal(f(img), skipping(img))
    assert img.nbytes <= f.stats.scratch_bytes < 5 * img.nbytes


def test_a_stage_that_is_read_through_an_inlined_one_is_kept() -> None:
    img = np.random.default_rng(0).integers(0, 99, (60, 80)).astype(np.int64)
    f = hjit.pipeline(through, verify="off")
    s = f.schedule(img)
    s["middle"].inline()
    f.use(s)
    np.testing.assert_array_equal(f(img), through(img))
