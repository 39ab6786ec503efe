"""Which objects a function returns: arguments themselves, or views of them, and one object in several places."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage

import hjit
from hjit.trace.tracing.objects import MakeObject

IMAGE = np.arange(12.0).reshape(3, 4)
SETTINGS = {"gain": 2.0, "name": "x"}
SIZES = [1, 2, [3]]


def numbers(x: Any, known: list[Any]) -> list[int]:
    """A number for each object in a result; the same one for the same object."""
    if not any(y is x for y in known):
        known.append(x)
    found = [next(k for k, y in enumerate(known) if y is x)]
    items = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    return found + [n for y in items for n in numbers(y, known)]


def check(f: Callable[..., Any], *args: Any) -> None:
    for verify in ("off", "first"):
        p = hjit.pipeline(f, verify=verify, on_unsupported="break")
        for _ in range(3):
            ours, theirs = p(*args), f(*args)
            assert numbers(ours, [*args, SETTINGS, SIZES]) == numbers(theirs, [*args, SETTINGS, SIZES])
            np.testing.assert_equal(ours, theirs)


@pytest.mark.parametrize("given", [SETTINGS, SIZES, (1.5, 2), {"image": IMAGE + 1}, [[1, 2], 3], ((1.5, [2]), 3), ()])
def test_containers_that_are_given(given: Any) -> None:
    check(lambda img, x: (img * 2, x), IMAGE, given)
    check(lambda img, x: x, IMAGE, given)
    check(lambda img, x: {"all": x, "one": (x, img + 1)}, IMAGE, given)
    check(lambda img, x: [img * 2, *x, list(x)], IMAGE, given)


def test_parts_of_containers_that_are_given() -> None:
    check(lambda img, x: (x[1], img * 2, x[0]["a"], x), IMAGE, [{"a": [1.0]}, (2, [3])])


def test_a_container_by_name() -> None:
    p = hjit.pipeline(lambda img, meta=None: (img * 2, meta), verify="off")
    for meta in ({"gain": 1.0}, {"gain": 2.0}):
        assert p(IMAGE, meta=meta)[1] is meta


def test_the_container_of_each_call() -> None:
    p = hjit.pipeline(lambda img, meta: (img * meta["gain"], meta), verify="off")
    for gain in (1.0, 2.0, 3.0):
        meta = {"gain": gain}
        found = p(IMAGE, meta)
        assert found[1] is meta
        np.testing.assert_array_equal(found[0], IMAGE * gain)


def test_global_containers() -> None:
    check(lambda img: (img * SETTINGS["gain"], SETTINGS, SIZES), IMAGE)
    check(lambda img: (img, SIZES[2], [*SIZES]), IMAGE)


def test_arguments_and_views_of_them() -> None:
    for image in (IMAGE, np.asfortranarray(IMAGE), IMAGE[:, ::2], IMAGE + 1j, IMAGE.astype(np.uint8)):
        check(lambda a: (a[...], a.view(), np.asarray(a), a[:], a[:, :], a, a.reshape(a.shape)), image)
        check(lambda a: (a.conj(), a.squeeze(), *np.broadcast_arrays(a, a), a.real, np.atleast_2d(a)), image)


def test_what_is_returned_twice_is_one_object() -> None:
    check(lambda a: [a + 1] * 2, IMAGE)
    check(lambda a: copy.deepcopy([a, a]), IMAGE)
    check(lambda a: (lambda b: (b, b, b[...], b.view(), [b]))(a + 1), IMAGE)
    check(lambda a: (lambda b: (b, b, (b,), {"b": b}))([a + 1, a.sum()]), IMAGE)
    check(lambda a: (lambda b: (a * 2, b, b))([]), IMAGE)
    check(lambda a: (lambda b: (b, b))(a * 1j), IMAGE)
    check(lambda a: (lambda b: (b, b))(np.zeros(3)), IMAGE)


def test_changes_of_a_conjugate_of_real_numbers_are_of_the_argument() -> None:
    def f(a: Any) -> Any:
        a.conj()[0] = 5.0
        return a.sum()

    p = hjit.pipeline(f, verify="off")
    for _ in range(2):
        image = IMAGE.copy()
        assert p(image) == f(IMAGE.copy())
        assert image[0, 0] == 5.0


@pytest.mark.parametrize(
    "f",
    [
        lambda a: a.T,
        lambda a: a[1:, ::-1],
        lambda a: a[..., None].transpose(1, 2, 0),
        lambda a: a[:, 1],
        lambda a: a[None, 1:2],
        lambda a: np.rot90(a),
        lambda a: np.broadcast_to(a, a.shape),
        lambda a: np.broadcast_to(a[1], (3, len(a[1]))),
        lambda a: np.diagonal(a),
        lambda a: a.reshape(len(a), 1, -1),
        lambda a: a.ravel("K"),
    ],
)
def test_the_base_of_a_view(f: Callable[..., Any]) -> None:
    big = np.arange(64.0).reshape(8, 8)
    fixed = big[:, 1:].copy()
    fixed.flags.writeable = False
    for a in (big, np.asfortranarray(big), big[1:, ::2], big.T[::-1], big + 1j, fixed):
        p = hjit.pipeline(f, verify="off")
        for _ in range(2):
            ours, theirs = p(a), f(a)
            assert (ours.base is a, ours.base is a.base) == (theirs.base is a, theirs.base is a.base)
            assert ours.flags.writeable == theirs.flags.writeable
            steps = zip(ours.strides, theirs.strides, ours.shape, strict=True)
            assert all(x == y for x, y, n in steps if n > 1)
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: a.T.reshape(-1),
        lambda a: a.reshape(-1)[1:4],
        lambda a: a.T.reshape(-1)[1:20:3],
        lambda a: a.T.reshape(2, -1)[:, ::-1],
    ],
)
def test_views_in_another_shape(f: Callable[..., Any]) -> None:
    big = np.arange(64.0).reshape(8, 8)
    fixed = big[:, 1:].copy()
    fixed.flags.writeable = False
    for a in (big, np.asfortranarray(big), big[1:], big.T[:5], np.asfortranarray(big[:2]), fixed, fixed.T):
        p = hjit.pipeline(f, verify="off")
        for _ in range(2):
            ours, theirs = p(a), f(a)
            np.testing.assert_array_equal(ours, theirs)
            assert np.shares_memory(ours, a) == np.shares_memory(theirs, a)


def test_imaginary_parts_of_real_numbers_are_read_only() -> None:
    for a in (IMAGE, np.ones((80, 90)), np.ones((80, 90)).T):
        p = hjit.pipeline(lambda a: (a.imag, a * 2, np.imag(a)), verify="off")
        for _ in range(2):
            assert [x.flags.writeable for x in p(a)] == [False, True, False]


def test_broadcast_complex_arrays_are_as_writeable_as_they_were() -> None:
    check(lambda a: np.broadcast_arrays(a, a[:1])[0], IMAGE + 1j)
    p = hjit.pipeline(lambda a: np.broadcast_arrays(a, a[:1])[0], verify="off")
    assert all(p(IMAGE + 1j).flags.writeable for _ in range(2))


def test_triangles_of_vectors() -> None:
    p = hjit.pipeline(lambda a: (np.triu(a), np.tril(a, 1)), verify="off")
    for _ in range(2):
        np.testing.assert_array_equal(
            p(np.arange(1.0, 6.0)), (np.triu(np.arange(1.0, 6.0)), np.tril(np.arange(1.0, 6.0), 1))
        )


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.inner(a[0], a[1]),
        lambda a: a[0, 0].imag,
        lambda a: np.imag(a[0, 0]),
        lambda a: float(a.sum()).imag,
        lambda a: a[0, ..., 0].imag,
        lambda a: np.tensordot(a[0], a[1], 1),
    ],
)
def test_scalars_are_scalars(f: Callable[..., Any]) -> None:
    p = hjit.pipeline(f, verify="off")
    for _ in range(2):
        ours, theirs = p(IMAGE), f(IMAGE)
        assert type(ours) is type(theirs)
        np.testing.assert_array_equal(ours, theirs)


def test_views_without_elements() -> None:
    fixed = IMAGE.copy()
    fixed.flags.writeable = False
    for a in (IMAGE.copy(), np.asfortranarray(IMAGE), fixed, IMAGE[:0]):
        p = hjit.pipeline(lambda a: (a[:0], a[:, :0].T, np.broadcast_to(a[:0, :1], (0, 7))), verify="off")
        for _ in range(2):
            for x, y in zip(p(a), (a[:0], a[:, :0].T, np.broadcast_to(a[:0, :1], (0, 7))), strict=True):
                assert (x.shape, x.dtype, x.flags.writeable) == (y.shape, y.dtype, y.flags.writeable)
                assert (x.base is a, x.base is a.base) == (y.base is a, y.base is a.base)


def _of_a_new_tuple(a: Any) -> Any:
    pair = collections.namedtuple("pair", "first second")
    made = pair(a * 2, a.sum())
    return type(made), made.first, [made]


def _with_a_new_class(a: Any) -> Any:
    class Config:
        gain = 3

    return Config, a * Config.gain


@pytest.mark.filterwarnings("error::hjit.HjitWarning")
@pytest.mark.parametrize("f", [_of_a_new_tuple, _with_a_new_class])
def test_classes_that_the_function_makes(f: Any) -> None:
    p = hjit.pipeline(f, on_unsupported="break", cache="off")
    found, expected = [p(IMAGE) for _ in range(3)], f(IMAGE)
    for cls, image, *made in found:
        assert (cls.__qualname__, cls.__module__) == (expected[0].__qualname__, expected[0].__module__)
        np.testing.assert_array_equal(image, expected[1])
        assert all(type(x[0]) is cls for x in made)
    assert len({x[0] for x in found}) == 3
    assert p.stats.verified is not False


@dataclasses.dataclass
class Measured:
    image: Any
    total: float
    name: str = "measured"
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    first: Any
    second: Any = None


class Background:
    """A class with a state, whose methods change it."""

    def __init__(self, first: Any, rate: float = 0.25) -> None:
        self.mean = first.astype(np.float32)
        self.rate = rate
        self.seen: list[Any] = []

    def update(self, frame: Any) -> None:
        self.mean = (1 - self.rate) * self.mean + self.rate * frame
        self.seen.append(self.mean.max())


class Levels:
    """A class with slots, one of them private, whose methods only a trace can compile."""

    __slots__ = ("__raw", "levels")

    def __init__(self, first: Any) -> None:
        self.__raw = first
        self.levels = [scipy.ndimage.sobel(first)]

    def __len__(self) -> int:
        return len(self.levels)

    def raw(self) -> Any:
        return scipy.ndimage.uniform_filter(self.__raw, 3)


@dataclasses.dataclass(frozen=True, slots=True)
class Edges:
    image: Any

    def found(self) -> Any:
        return scipy.ndimage.sobel(self.image)


def measured(x: Any) -> Any:
    return Measured(x + 1, x.max(), more={"mask": x > 3})


def nested(x: Any) -> Any:
    found = Measured(x * 2, float(x.min()))
    found.total = found.image.max()
    return {"all": [Pair(found, found)], "pair": Pair(x)}


def updated(x: Any) -> Any:
    model = Background(x[0], 0.5)
    for row in x[1:]:
        model.update(row)
    return model


def parts(x: Any) -> Any:
    return vars(x) if not hasattr(x, "__slots__") else {n: getattr(x, n) for n in x.__slots__}


def assert_alike(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, Measured | Pair | Background):
        assert list(parts(a)) == list(parts(b))
        assert_alike(parts(a), parts(b))
    elif isinstance(a, dict):
        assert list(a) == list(b)
        assert_alike(list(a.values()), list(b.values()))
    elif isinstance(a, list):
        for x, y in zip(a, b, strict=True):
            assert_alike(x, y)
    else:
        np.testing.assert_array_equal(a, b)
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)


def test_methods_of_classes_with_slots_are_compiled() -> None:
    def f(x: Any) -> Any:
        pyramid, edges = Levels(x + 1), Edges(x * 2)
        return pyramid, edges, pyramid.raw() * len(pyramid), edges.found()

    p = hjit.pipeline(f, cache="off", on_unsupported="raise")
    for x in (IMAGE, IMAGE, 2 * IMAGE):
        (pyramid, edges, raw, sobel), expected = p(x), f(x)
        assert type(pyramid) is Levels and type(edges) is Edges
        np.testing.assert_array_equal(edges.image, expected[1].image)
        np.testing.assert_array_equal(pyramid.levels[0], expected[0].levels[0])
        np.testing.assert_array_equal(pyramid.raw(), raw)
        np.testing.assert_array_equal(raw, expected[2])
        np.testing.assert_array_equal(sobel, expected[3])
    assert not Levels.__subclasses__() and not Edges.__subclasses__()


@pytest.mark.parametrize("f", [measured, nested, updated])
def test_objects_that_the_function_makes(f: Callable[..., Any]) -> None:
    p = hjit.pipeline(f, cache="off")
    results = [p(x) for x in (IMAGE, IMAGE, 2 * IMAGE)]
    for result, x in zip(results, (IMAGE, IMAGE, 2 * IMAGE), strict=True):
        assert_alike(result, f(x))
    assert results[0] is not results[1]
    assert p.stats.verified is True
    assert p.stats.fallbacks == 0


def test_an_object_in_several_places_is_one_and_holds_the_argument_itself() -> None:
    found = hjit.pipeline(nested, cache="off")(IMAGE)
    assert found["all"][0].first is found["all"][0].second
    assert found["pair"].first is IMAGE


def test_wrong_fields_of_objects_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = MakeObject.__call__

    def wrong(self: MakeObject, fields: Any) -> Any:
        made = real(self, fields)
        if isinstance(getattr(made, "total", None), np.floating):
            made.total = made.total + 1
        return made

    monkeypatch.setattr(MakeObject, "__call__", wrong)
    with pytest.warns(hjit.HjitWarning, match="instead of"):
        found = hjit.pipeline(measured, cache="off")(IMAGE)
    assert found.total == IMAGE.max()


def test_into_writes_to_no_fields() -> None:
    with pytest.raises(ValueError, match="fields of a Measured"):
        hjit.pipeline(measured, cache="off").into(np.empty_like(IMAGE), IMAGE)


def test_objects_that_hold_nothing_traced_or_themselves_are_refused() -> None:
    def settings(x: Any) -> Any:
        return x + 1, Pair(1, 2)

    def circular(x: Any) -> Any:
        found = Measured(x + 1, 0.0)
        found.more["self"] = found
        return found

    for f, reason in ((settings, "a Pair"), (circular, "holds itself")):
        with pytest.raises(hjit.TraceError, match=reason):
            hjit.pipeline(f, cache="off")(IMAGE)
