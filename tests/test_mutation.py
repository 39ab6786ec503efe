"""Arguments changed in place, results that share memory, and arrays that overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check

pytestmark = pytest.mark.filterwarnings("error::hjit.HjitWarning")

IMAGE = np.linspace(0, 255, 40 * 50, dtype=np.float32).reshape(40, 50)
TABLE = np.arange(10.0)


def alike(f: Any, *makers: Any) -> hjit.Pipeline:
    """Compare three calls of a compiled `f` with plain ones, with the arrays that `makers` make anew; also what became of them."""
    p = hjit.pipeline(f)
    for _ in range(3):
        ours, theirs = [m() for m in makers], [m() for m in makers]
        result, expected = p(*ours), f(*theirs)
        assert (result is None) == (expected is None)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
        if expected is not None:
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result, expected)
            for a, b in zip(ours, theirs, strict=True):
                assert np.shares_memory(result, a) == np.shares_memory(expected, b)
                assert (result is a) == (expected is b)
    return p


def image() -> Any:
    return IMAGE.copy()


# -- in place


def in_place(a: Any) -> None:
    a += 1
    a[1:-1] *= 2
    a[:, 0] = a[:, 1]


def masked(a: Any) -> Any:
    a[a > 100] = 0
    return a


def through_out(a: Any, out: Any) -> Any:
    return np.multiply(a, 2, out=out)


def overlapping_self(a: Any) -> None:
    a[1:] = a[:-1]
    a[:, :-1] += a[:, 1:]


def added_at(a: Any) -> None:
    np.add.at(a, (np.array([1, 1, 2]), np.array([0, 0, 3])), 5)


def swapped(a: Any, b: Any) -> None:
    a[...], b[...] = b.copy(), a.copy()


def through_a_view(a: Any) -> Any:
    view = a[::2, 1:][:, ::-1]
    view += 3
    return view


def sorted_in_place(a: Any) -> Any:
    a[:3].sort(axis=0)


def first_row_in_all(a: Any) -> Any:
    a[...] = a[:1]
    a[:, ::2] = a[:, :1]
    b = a * 2
    np.copyto(b, b[:, :1])
    return b


@pytest.mark.parametrize(
    "f",
    [in_place, masked, overlapping_self, added_at, through_a_view, sorted_in_place, first_row_in_all],
    ids=lambda f: f.__name__,
)
def test_in_place(f: Any) -> None:
    p = alike(f, image)
    assert p.stats.fallbacks == 0
    alike(f, lambda: np.asfortranarray(IMAGE))
    alike(f, lambda: IMAGE.copy()[::-1, ::-1])
    alike(f, lambda: np.pad(IMAGE, 3)[3:-3, 3:-3])


def test_rows_that_do_not_fit_into_their_own_array() -> None:
    def f(a: Any) -> None:
        a[...] = a[:3]

    with pytest.raises(ValueError, match="could not broadcast input array"):
        hjit.pipeline(f, verify="off")(image())


def test_two_arrays_are_written() -> None:
    assert alike(swapped, image, lambda: IMAGE * 2).stats.fallbacks == 0
    assert alike(through_out, image, image).stats.fallbacks == 0
    alike(through_out, image, lambda: np.zeros((40, 50)))


def test_around_what_is_written_nothing_changes() -> None:
    padded = np.full((60, 70), 7.0, np.float32)
    inside = padded[10:50, 10:60]
    f = hjit.pipeline(in_place)
    for _ in range(2):
        f(inside)
    outside = np.ones(padded.shape, bool)
    outside[10:50, 10:60] = False
    assert (padded[outside] == 7).all()


def test_written_fields_of_a_structured_array() -> None:
    f = hjit.pipeline(in_place)
    ours = np.zeros((40, 50), [("flag", "u1"), ("value", "f4")])
    theirs = ours.copy()
    for _ in range(2):
        f(ours["value"])
        in_place(theirs["value"])
        np.testing.assert_array_equal(ours, theirs)


# -- results that share memory


@pytest.mark.parametrize(
    "f",
    [
        lambda a: a,
        lambda a: a[1:],
        lambda a: a[::-1, ::2],
        lambda a: a.T,
        lambda a: a[3],
        lambda a: a[:, 4],
        lambda a: a[None],
        lambda a: a.swapaxes(0, 1)[2:],
        lambda a: a[5:5],
        lambda a: a + 0,
        lambda a: a.copy(),
        lambda a: np.asarray(a),
        lambda a: a[-1, ::-3],
    ],
)
def test_views(f: Any) -> None:
    for make in (
        image,
        lambda: np.asfortranarray(IMAGE),
        lambda: IMAGE.copy()[::-1],
        lambda: np.repeat(IMAGE, 2, 1)[:, ::2],
    ):
        alike(f, make)
    result = hjit.pipeline(f)(IMAGE)
    assert result.strides == f(IMAGE).strides or f(IMAGE).base is None or result.size == 0


def test_a_view_of_a_read_only_array_is_read_only() -> None:
    a = image()
    a.flags.writeable = False
    f = hjit.pipeline(lambda a: a[1:])
    for _ in range(2):
        assert not f(a).flags.writeable
        assert f(image()).flags.writeable


def test_two_results_share_a_buffer() -> None:
    def f(a: Any) -> Any:
        b = a * 2
        return b, b[1:], b.T, b

    p = hjit.pipeline(f, verify="off")
    for _ in range(2):
        whole, part, turned, again = p(IMAGE)
        whole[2, 3] = -1
        assert part[1, 3] == turned[3, 2] == again[2, 3] == -1
        np.testing.assert_array_equal(part[2:], f(IMAGE)[1][2:])


def test_results_of_two_calls_are_apart() -> None:
    for f in (lambda a: a + 1, lambda a: np.zeros(30), lambda a: np.arange(20.0)[1:]):
        p = hjit.pipeline(f)
        for _ in range(3):
            ours = p(IMAGE)
            np.testing.assert_array_equal(ours, f(IMAGE))
            ours += 5


# -- arrays that overlap


def accumulate(a: Any, b: Any) -> Any:
    a += b
    a += b
    return a - b


def test_the_same_array_twice() -> None:
    p = hjit.pipeline(accumulate)
    for order in ((True, False, True), (False, True, False)):
        for both in order:
            ours, theirs = image(), image()
            other, expected_other = (ours, theirs) if both else (IMAGE * 3, IMAGE * 3)
            np.testing.assert_array_equal(p(ours, other), accumulate(theirs, expected_other))
            np.testing.assert_array_equal(ours, theirs)
    q = hjit.pipeline(lambda a, b: a - b * 2)
    for b in (IMAGE, IMAGE + 1, IMAGE):
        np.testing.assert_array_equal(q(IMAGE, b), IMAGE - b * 2)


def test_overlapping_arguments() -> None:
    p = hjit.pipeline(accumulate)
    for _ in range(3):
        ours, theirs = np.arange(2000.0), np.arange(2000.0)
        np.testing.assert_array_equal(p(ours[5:1005], ours[:1000]), accumulate(theirs[5:1005], theirs[:1000]))
        np.testing.assert_array_equal(ours, theirs)
        ours, theirs = np.arange(2000.0), np.arange(2000.0)
        np.testing.assert_array_equal(p(ours[:1000], ours[1000:]), accumulate(theirs[:1000], theirs[1000:]))
        np.testing.assert_array_equal(ours, theirs)


def test_interleaved_arguments_are_apart() -> None:
    p = hjit.pipeline(accumulate, verify="off")
    for _ in range(2):
        ours, theirs = np.arange(2000.0), np.arange(2000.0)
        np.testing.assert_array_equal(p(ours[::2], ours[1::2]), accumulate(theirs[::2], theirs[1::2]))
        np.testing.assert_array_equal(ours, theirs)
    assert p.stats.fallbacks == 0


def test_a_written_array_that_overlaps_itself() -> None:
    def f(a: Any) -> None:
        a += 1

    p = hjit.pipeline(f)
    for _ in range(2):
        ours, theirs = np.arange(100.0), np.arange(100.0)
        p(np.lib.stride_tricks.as_strided(ours, (60, 30), (8, 8)))
        f(np.lib.stride_tricks.as_strided(theirs, (60, 30), (8, 8)))
        np.testing.assert_array_equal(ours, theirs)


def test_an_argument_that_is_also_a_global() -> None:
    def f(a: Any) -> Any:
        a += TABLE[1]
        return TABLE * 2

    p = hjit.pipeline(f)
    for own in (True, False, True, True):
        TABLE[...] = np.arange(10.0)
        ours = TABLE if own else np.arange(10.0)
        result = p(ours)
        changed = ours.copy()
        TABLE[...] = np.arange(10.0)
        ours = TABLE if own else np.arange(10.0)
        np.testing.assert_array_equal(result, f(ours))
        np.testing.assert_array_equal(changed, ours)
    TABLE[...] = np.arange(10.0)


def test_a_written_global() -> None:
    def f(a: Any) -> Any:
        TABLE[0] += 1
        return a + TABLE[0]

    p = hjit.pipeline(f)
    TABLE[...] = 0
    for k in range(1, 5):
        np.testing.assert_array_equal(p(IMAGE), IMAGE + np.float64(k))
        assert TABLE[0] == k
    TABLE[...] = np.arange(10.0)


# -- read-only


def test_a_read_only_argument() -> None:
    locked = image()
    locked.flags.writeable = False
    for first in (locked, image()):
        p = hjit.pipeline(in_place)
        for a in (first, locked, locked):
            if a.flags.writeable:
                p(a)
                continue
            with pytest.raises(ValueError, match="read-only") as ours:
                p(a)
            with pytest.raises(ValueError, match="read-only") as theirs:
                in_place(a)
            assert str(ours.value) == str(theirs.value)
    np.testing.assert_array_equal(locked, IMAGE)
    broadcast = np.broadcast_to(IMAGE[0], (40, 50))
    with pytest.raises(ValueError, match="read-only"):
        hjit.pipeline(in_place)(broadcast)


def test_lists_and_dicts_that_outlive_the_call() -> None:
    memo: dict[str, Any] = {}
    log: list[Any] = []

    def appends(items: Any) -> Any:
        items.append(items[0] + 1)
        return items[0]

    def replaces(d: Any) -> Any:
        d["x"] = d["x"] + 1
        return d["x"]

    def remembers(a: Any) -> Any:
        memo["a"] = a
        return a + 1

    def logs(a: Any) -> Any:
        log.append(1)
        return a + 1

    for f, argument in ((appends, [IMAGE]), (replaces, {"x": IMAGE}), (remembers, IMAGE), (logs, IMAGE)):
        with pytest.raises(hjit.TraceError, match="outlives"):
            hjit.pipeline(f)(argument)
    with pytest.warns(hjit.HjitWarning, match="outlives"):
        hjit.pipeline(logs, on_unsupported="numpy")(IMAGE)
    assert log == [1]
    inside = hjit.pipeline(lambda items: [*items, items[0] + 1])
    assert len(inside([IMAGE])) == 2


@pytest.mark.parametrize(
    "first", [lambda w: w.__setitem__(0, 1), lambda w: w.__setitem__(0, w[0] + 1)], ids=["replaced", "changed"]
)
def test_a_copy_reads_what_it_is_a_copy_of_after_it_changed_itself(first: Any) -> None:
    def restored(a: Any) -> Any:
        v = a + 2
        v[0] = 5
        w = v.copy()
        first(w)
        w[0] = v[0]
        return w

    check(restored, np.arange(60).reshape(5, 12))


def test_copies_of_parts_that_are_apart_share_one_buffer() -> None:
    def halves(a: Any) -> Any:
        v = a * a
        w = v.copy()
        w[0::2] = v[0::2] + 1
        w[1::2] = v[1::2] - 1
        return w

    a = np.arange(60).reshape(5, 12)
    check(halves, a)
    assert str(hjit.pipeline(halves).graph(a)).count("in halves") == 1, "one stage"


def scalar_of(how: str) -> Any:
    """A function that makes arrays of a NumPy scalar, changes them, and returns all of them."""

    def f(a: Any) -> Any:
        x = {"sum": lambda: a.sum(), "item": lambda: a[1], "complex": lambda: (a * 1j).sum()}[how]()
        made = [np.asarray(x), np.array(x), np.atleast_1d(x), np.ravel(x), x.reshape(1), x[...], x[None]]
        for k, y in enumerate(made):
            y[...] = k
        first, second = np.asarray(x), np.asarray(x)
        first += 1
        return x, first, second, *made

    return f


@pytest.mark.parametrize("how", ["sum", "item", "complex"])
def test_an_array_that_is_made_of_a_scalar_is_a_copy(how: str) -> None:
    f = scalar_of(how)
    for x, y in zip(hjit.pipeline(f, verify="off")(TABLE), f(TABLE), strict=True):
        assert type(x) is type(y)
        np.testing.assert_array_equal(x, y)
