"""What cannot be traced says why; the function's own exceptions are NumPy's."""

from __future__ import annotations

import asyncio
import re
import warnings
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import HjitWarning, TraceError

IMAGE = np.linspace(0, 9, 40 * 50).reshape(40, 50)


def lengths(img: Any) -> Any:
    bright = img > 3
    return np.sort(img[bright])


def unknown_function(img: Any) -> Any:
    doubled = img * 2
    return np.busday_count(doubled, 3)


def long_doubles(img: Any) -> Any:
    return img.astype(np.longdouble)


def generator(img: Any) -> Any:
    yield img


def sets_a_global(img: Any) -> Any:
    global IMAGE
    IMAGE = img
    return img


@pytest.mark.parametrize(
    ("f", "line", "operation"),
    [(lengths, 2, "numpy.sort"), (long_doubles, 1, "astype"), (sets_a_global, 2, "global IMAGE")],
)
def test_messages(f: Any, line: int, operation: str) -> None:
    with pytest.raises(TraceError) as caught:
        hjit.pipeline(f)(IMAGE)
    error = caught.value
    assert error.origin is not None
    assert error.origin.filename == __file__
    assert f.__code__.co_firstlineno <= error.origin.line <= f.__code__.co_firstlineno + line
    assert error.origin.function == f.__name__
    assert operation in error.operation
    for part in (f"{__file__}:{error.origin.line} in {f.__name__}", error.operation, error.reason, "What to do: "):
        assert part in str(error)


def test_functions_whose_calls_only_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    async def later(img: Any) -> Any:
        return img * 2

    for f, kind in ((generator, "a generator"), (later, "a coroutine")):
        with pytest.raises(TraceError, match=kind):
            hjit.pipeline(f)
        with pytest.warns(hjit.HjitWarning, match=f"{f.__name__} stays as it is: each call makes {kind}"):
            assert hjit.pipeline(f, on_unsupported="break") is f
        assert hjit.pipeline(f, disable=True) is f
    with pytest.warns(hjit.HjitWarning):
        assert type(hjit.pipeline(staticmethod(later), on_unsupported="numpy")) is staticmethod
    np.testing.assert_array_equal(asyncio.run(later(IMAGE)), IMAGE * 2)


def test_errors_of_shapes_have_numpys_text() -> None:
    def f(img: Any, shape: Any) -> str:
        try:
            img.reshape(shape)
        except ValueError as error:
            return str(error)
        return ""

    for shape in ((3, 3), (7,), (3, -1, 5), (), (-1, 0), (-1, 5), (1, 2)):
        pipe = hjit.pipeline(lambda img, shape=shape: (f(img, shape), img * 2))
        assert pipe(IMAGE[:1, :6])[0] == f(IMAGE[:1, :6], shape) != ""


def test_a_trace_error_is_raised_at_every_call() -> None:
    p = hjit.pipeline(long_doubles)
    for _ in range(2):
        with pytest.raises(TraceError):
            p(IMAGE)
    assert p.stats.traces == p.stats.fallbacks == 0


def test_a_pixel_loop_is_not_traced_for_ever() -> None:
    def f(img: Any) -> Any:
        seen = []
        for k in range(10**7):
            seen.append(img[k % 40] * 2)
        return seen

    with pytest.raises(TraceError, match="loop"):
        hjit.pipeline(f)(IMAGE)


def test_numpy_instead_warns_once() -> None:
    p = hjit.pipeline(lengths, on_unsupported="numpy")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for image in (IMAGE, IMAGE, IMAGE * 2, IMAGE[:20], IMAGE.astype(np.float32)):
            np.testing.assert_array_equal(p(image), lengths(image))
    assert len(seen) == 1
    assert seen[0].category is HjitWarning
    assert seen[0].filename == __file__
    assert "lengths" in str(seen[0].message)
    assert p.stats.fallbacks == 5


def test_what_numpy_runs_is_explained_once() -> None:
    p = hjit.pipeline(lengths, on_unsupported="numpy").quiet()
    p(IMAGE)
    text = p.explain(IMAGE)
    assert text.startswith("lengths runs as plain NumPy with such arguments: ")
    assert text.count("plain NumPy") == 1 and "depends on the image's values" in text


def test_one_unsupported_call_does_not_spoil_others() -> None:
    p = hjit.pipeline(lambda img, on: np.sort(img[img > 3]) if on else img + 1, on_unsupported="numpy")
    with pytest.warns(HjitWarning):
        p(IMAGE, True)
    for _ in range(2):
        np.testing.assert_array_equal(p(IMAGE, False), IMAGE + 1)
        np.testing.assert_array_equal(p(IMAGE, True), np.sort(IMAGE[IMAGE > 3]))
    assert p.stats.fallbacks == 3


# -- exceptions of the function itself


class Refused(Exception):
    """The user's own."""


def refuses(img: Any) -> Any:
    if img.ndim == 2:
        raise Refused("grey images are not wanted")
    return img


def wrong_call(img: Any) -> Any:
    return refuses(img, 3)  # type: ignore[call-arg]


def catches(img: Any) -> Any:
    try:
        return img + np.ones(7)
    except ValueError:
        return img + 1


FAILING = [
    lambda img: img + np.ones(7),
    lambda img: img.sum(axis=5),
    lambda img: img[100],
    lambda img: img[:, 50],
    lambda img: img[0, 0, 0],
    lambda img: img.reshape(3, 3),
    lambda img: np.stack([img, img[1:]]),
    lambda img: np.concatenate([img, img[0]]),
    lambda img: img @ img,
    lambda img: np.pad(img, -1),
    lambda img: img.transpose(0, 0),
    lambda img: img.no_such_attribute,
    lambda img: no_such_name + img,  # type: ignore[name-defined]  # noqa: F821
    lambda img: img.astype("no such dtype"),
    lambda img: np.take(img, np.array([5, 100]), axis=0),
    lambda img: img[np.array([1, 2]), np.array([1, 2, 3])],
    lambda img: img[np.array([-41])],
    lambda img: 1 / 0 + img,
    lambda img: [img][1],
    lambda img: {"a": img}["b"],
    lambda img: img.squeeze(0),
    lambda img: img.max(where=3, axis="x"),
    lambda img: np.ones((-1, 2)) + img,
    lambda img: bool(img),
    lambda img: len(img[0, 0]),
    lambda img: img[:0].max(),
    lambda img: img[:0].argmin(),
    lambda img: img.astype(np.uint8) + 300,
    lambda img: np.broadcast_to(img, (3, 3)),
    refuses,
    wrong_call,
]


@pytest.mark.parametrize("f", FAILING, ids=range(len(FAILING)))
def test_own_exceptions(f: Any) -> None:
    with pytest.raises(Exception) as theirs:
        f(IMAGE)
    p = hjit.pipeline(f)
    for _ in range(2):
        with pytest.raises(type(theirs.value)) as ours:
            p(IMAGE)
        assert type(ours.value) is type(theirs.value)
        assert str(ours.value) == str(theirs.value)
        assert ours.value.__cause__ is None
        assert type(ours.value.__context__) is type(theirs.value.__context__)


def test_caught_exceptions() -> None:
    p = hjit.pipeline(catches)
    for _ in range(2):
        np.testing.assert_array_equal(p(IMAGE), IMAGE + 1)
    assert p.stats.fallbacks == 0


def test_missing_and_surplus_arguments() -> None:
    def f(img: Any, gain: Any) -> Any:
        return img * gain

    p = hjit.pipeline(f)
    p(IMAGE, 2.0)
    for args, kwargs in (
        ((IMAGE,), {}),
        ((IMAGE, 1.0, 2.0), {}),
        ((IMAGE, 1.0), {"gain": 2.0}),
        ((IMAGE,), {"gian": 1.0}),
    ):
        with pytest.raises(TypeError) as theirs:
            f(*args, **kwargs)
        with pytest.raises(TypeError) as ours:
            p(*args, **kwargs)
        assert str(ours.value) == str(theirs.value)


def gathers(img: Any, index: Any) -> Any:
    img += 1
    return img[index] * 2


def scatters(img: Any, index: Any) -> Any:
    img[index] = 5
    return img.sum()


@pytest.mark.parametrize(
    "f", [gathers, scatters, lambda img, index: np.take(img, index, axis=1), lambda img, index: img[index, index % 3]]
)
def test_out_of_bounds(f: Any) -> None:
    good, bad, negative = np.array([3, 39, -40]), np.array([3, 50, 2]), np.array([0, -51, 1])
    for first in (good, bad):
        p = hjit.pipeline(f)
        for index in (first, good, bad, negative, good):
            ours, theirs = IMAGE.copy(), IMAGE.copy()
            if index is good:
                np.testing.assert_array_equal(p(ours, index), f(theirs, index))
            else:
                with pytest.raises(IndexError) as expected:
                    f(theirs, index)
                with pytest.raises(IndexError) as caught:
                    p(ours, index)
                assert str(caught.value) == re.sub("^$", "", str(expected.value))
                assert "out of bounds" in str(caught.value)
                if index is not first:
                    np.testing.assert_array_equal(ours, theirs)
            if index is good:
                np.testing.assert_array_equal(ours, theirs)


def test_exceptions_of_a_later_call() -> None:
    p = hjit.pipeline(lambda a, b: a + b)
    p(IMAGE, IMAGE)
    with pytest.raises(
        ValueError, match=re.escape("operands could not be broadcast together with shapes (40,50) (40,49)")
    ):
        p(IMAGE, IMAGE[:, 1:])
    np.testing.assert_array_equal(p(IMAGE, IMAGE[0]), IMAGE + IMAGE[0])


def test_endless_recursion() -> None:
    def f(img: Any) -> Any:
        return f(img + 1)

    with pytest.raises(RecursionError):
        hjit.pipeline(f)(IMAGE)


@pytest.mark.slow  # after other tests of its process nothing is too deep
def test_a_long_loop_that_is_traced_one_by_one_says_what_to_do_where_it_is_too_deep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hjit.process.deep_stack.RECURSION_LIMIT", 1000)

    def f(img: Any) -> Any:
        soft = np.exp(-img.T)
        out = soft.copy()
        for x in list(range(img.shape[0] - 2, -1, -1)):  # not a range
            out[:, x] = 0.5 * soft[:, x] + 0.5 * out[:, x + 1]
        return out / (np.abs(out[:, -1:]) + 1)

    tall = np.ones((320, 31))
    with pytest.raises(TraceError, match=re.escape("range(...)")):
        hjit.pipeline(f, budget=None)(tall)
    with pytest.warns(HjitWarning, match="plain NumPy"):
        np.testing.assert_array_equal(hjit.pipeline(f, on_unsupported="numpy")(tall), f(tall))
