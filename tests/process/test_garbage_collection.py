"""Fewer garbage collections while something is compiled or searched, and as many as before afterwards."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.build import variant_of
from hjit.call.variant import Variant
from hjit.process.garbage_collection import FEWEST_REFERENCES, RARE_THRESHOLD, References, few_collections


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_collections_are_rare_inside_and_as_before_outside() -> None:
    with few_collections():
        assert gc.get_threshold()[0] == RARE_THRESHOLD
        with few_collections():
            assert gc.get_threshold()[0] == RARE_THRESHOLD
        assert gc.get_threshold()[0] == RARE_THRESHOLD
    assert gc.get_threshold() == (700, 10, 10)


def test_an_error_inside_changes_nothing_outside() -> None:
    with pytest.raises(KeyError), few_collections():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)


def test_the_last_of_several_threads_ends_it() -> None:
    begun, end = threading.Event(), threading.Event()

    def other() -> None:
        with few_collections():
            begun.set()
            end.wait()

    thread = threading.Thread(target=other)
    with few_collections():
        thread.start()
        begun.wait()
    assert gc.get_threshold()[0] == RARE_THRESHOLD
    end.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


def test_a_collector_that_is_off_stays_off() -> None:
    gc.set_threshold(0, 10, 10)
    with few_collections():
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold()[0] == 0


def test_a_first_call_leaves_it_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def variant(*given: Any) -> Variant:
        seen.append(gc.get_threshold()[0])
        return variant_of(*given)

    monkeypatch.setattr("hjit.call.build.variant_of", variant)
    f = hjit.pipeline(lambda x: x + 1, cache="off", tune=False, verify="off")
    np.testing.assert_array_equal(f(np.arange(6.0)), np.arange(1.0, 7.0))
    assert seen == [RARE_THRESHOLD]
    assert gc.get_threshold() == (700, 10, 10)


def refuses(img: Any) -> Any:
    return img[1000]


def breaks(img: Any) -> Any:
    found = np.unique(np.round(img * 9))
    return img * found[-1]


def breaks_and_refuses(img: Any) -> Any:
    return np.unique(np.round(img * 9))[0] + img[1000]


def decides(img: Any) -> Any:
    return img - 1 if img.max() > 0.5 else img


@pytest.mark.parametrize("on_unsupported", ["break", "numpy"])
@pytest.mark.parametrize("function", [refuses, breaks, breaks_and_refuses, decides])
def test_arrays_of_calls_that_are_traced_in_vain_are_freed_at_once(function: Any, on_unsupported: Any) -> None:
    p = hjit.pipeline(function, on_unsupported=on_unsupported).quiet()
    gc.disable()
    try:
        for call in range(4):
            img = np.random.default_rng(0).random((30 + call // 2, 40))
            kept = weakref.ref(img)
            with contextlib.suppress(IndexError):
                p(img)
            del img
            assert kept() is None
    finally:
        gc.enable()


def test_references_are_weak_and_call_nothing() -> None:
    class Thing:
        pass

    references, kept = References[Thing](), [Thing() for _ in range(3)]
    for x in kept:
        references.add(x)
        references.add(x)
    assert {*references} == {*kept} and len(references) == 3
    assert all(weakref.getweakrefs(x)[0].__callback__ is None for x in kept)
    for _ in range(10 * FEWEST_REFERENCES):
        references.add(Thing())
    assert {*references} == {*kept} and len(references) <= FEWEST_REFERENCES + 1
