"""Arrays that loops run as written change: in place where nothing else reads them, else copies."""

from __future__ import annotations

from typing import Any

import numpy as np

import hjit
from tests.trace.test_carried_variables import compiled
from tests.trace.test_lists_that_loops_fill import identical, image

Array = np.ndarray[Any, Any]


def scattered(a: Array) -> Array:
    b = a / 255
    for y in range(b.shape[0]):
        for x in range(b.shape[1]):
            b[y, int(a[y, x]) % 20] += b[y, x] * 0.5
    return b


def read_afterwards(a: Array) -> Any:
    b = a / 255
    before = b[::-1] * 2
    for y in range(b.shape[0]):
        for x in range(b.shape[1]):
            b[y, int(a[y, x]) % 20] += b[y, x] * 0.5
    return b, before, before + b


def twice(a: Array) -> Any:
    b = a / 255
    for _ in range(2):
        for y in range(b.shape[0]):
            for x in range(b.shape[1]):
                b[y, int(a[y, x]) % 20] += b[y, x] * 0.5
    return b


def of_an_argument(a: Array) -> Array:
    for y in range(a.shape[0]):
        for x in range(a.shape[1] - 1):
            if a[y, x] > 100:
                a[y, x + 1] //= 2
    return a[::-1].copy()


def unread(pipe: Any) -> list[int]:
    """For each program how many arrays it may change in place."""
    (variant,) = pipe.entries[0].variants
    return [len(s.unread) for s in variant.segments if s.graph_break is not None and s.graph_break.program is not None]


def test_an_array_that_nothing_reads_afterwards_is_changed_in_place() -> None:
    pipe = compiled(scattered)
    for _ in range(2):
        assert identical(pipe(image(20, 30)), scattered(image(20, 30)))
    assert unread(pipe) == [1]


def test_an_array_that_is_read_afterwards_is_copied() -> None:
    pipe = compiled(read_afterwards)
    for _ in range(2):
        assert identical(pipe(image(20, 30)), read_afterwards(image(20, 30)))
    assert unread(pipe) == [0]


def test_loops_one_after_the_other_pass_an_array_on() -> None:
    pipe = compiled(twice)
    for _ in range(2):
        assert identical(pipe(image(20, 30)), twice(image(20, 30)))
    assert set(unread(pipe)) == {1}


def test_arguments_are_changed_when_the_call_has_ended() -> None:
    pipe = hjit.pipeline(of_an_argument)
    for _ in range(3):
        ours, theirs = image(20, 30), image(20, 30)
        assert identical(pipe(ours), of_an_argument(theirs)) and identical(ours, theirs)
