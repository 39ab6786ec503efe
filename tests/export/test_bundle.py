"""Bundles: kernels in a file, loaded without tracing and compiling."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import HjitError, OptionError
from tests.export.test_export import copies, image, in_place, looked_up

EXACT = np.testing.assert_array_equal
WEIGHTS = np.linspace(0, 1, 3000, dtype=np.float32)


def sharpened(img: Any, amount: float, mode: str = "edge") -> Any:
    p = np.pad(img, 1, mode=mode)  # type: ignore[call-overload]
    across = p[1:-1, :-2] + p[1:-1, 2:] - 2 * img
    return {"image": (img - amount * across).T, "most": across.max(), "size": [img.mean(), across.max(0)]}


def weighted(img: Any, n: int) -> Any:
    return img * WEIGHTS[: img.shape[1]] * (img.shape[0] - n)


def cut(img: Any) -> Any:
    return img[: round(img.shape[0] * 0.7)] * 2


def shared(a: Any, b: Any) -> Any:
    a += 1
    mean = (a + b) / 2
    return a[::-2, 3:], b.T, (mean[1:], mean), np.array([0.5, 2.5]), a


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("bundles") / "service"
    called = hjit.pipeline(sharpened)
    for size in ((40, 50), (41, 53)):
        called(image(*size), 0.5, "edge")
    pipelines = [hjit.pipeline(f) for f in (in_place, shared, looked_up, weighted, cut)]
    two = image(40, 50), image(40, 50)
    examples = two, two, (image(40, 50, dtype="u1"), image(300)), (image(40, 50), 3), (image(40, 50),)
    hjit.bundle(found, called, *((p, *args) for p, args in zip(pipelines, examples, strict=True)))
    return found


@pytest.fixture
def service(path: Path) -> Any:
    return hjit.load(path)


def same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(found, list):
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    else:
        EXACT(found, expected)
        assert (found.dtype, found.strides) == (expected.dtype, expected.strides)


def test_results_are_the_pipelines(service: Any) -> None:
    assert [*service] == ["sharpened", "in_place", "shared", "looked_up", "weighted", "cut"]
    for size in ((40, 50), (333, 17)):
        args = (image(*size)[::-1], 0.25, "edge")
        same(service.sharpened(*args), hjit.pipeline(sharpened)(*args))
    mine, numpys = copies([image(70, 80), image(70, 80)]), copies([image(70, 80), image(70, 80)])
    same(service["in_place"](*mine), in_place(*numpys))
    EXACT(mine[0], numpys[0])
    assert len(service.sharpened.kernels) == 1  # of both sizes


def test_results_share_memory_as_numpys_do(service: Any) -> None:
    a, b = image(41, 60), image(41, 60)
    b.flags.writeable = False
    rows, across, (part, mean), constant, whole = service.shared(a, b)
    expected = shared(image(41, 60), b)
    for found, numpys in zip(
        (rows, across, part, mean, constant), (*expected[:2], *expected[2], expected[3]), strict=True
    ):
        same(found, numpys)
        assert found.flags.writeable == numpys.flags.writeable
    assert whole is a
    rows[0, 0], part[0, 0] = -1, -2
    assert a[40, 3] == -1
    assert mean[1, 0] == -2
    assert np.shares_memory(across, b)


def test_sizes_that_numbers_are_taken_from(service: Any) -> None:
    EXACT(service.weighted(image(40, 60), 3), weighted(image(40, 60), 3))
    EXACT(service.weighted(image(40, 60), 7), weighted(image(40, 60), 7))
    EXACT(service.weighted(image(91, 33), 3), weighted(image(91, 33), 3))
    EXACT(service.cut(image(40, 60)), cut(image(40, 60)))
    with pytest.raises(HjitError, match=r"it needs img\.0 == 40"):
        service.cut(image(41, 60))


def test_a_call_without_a_kernel_says_what_there_is(service: Any) -> None:
    for args, why in (
        ((image(40, 50, dtype="f8"), 0.5, "edge"), r"img: float64\[40, 50\], where it has float32\[any, any\]"),
        ((image(12, 50), 0.5, "edge"), r"it needs img\.0 > 16"),
        ((image(40, 50), 2, "edge"), "amount: a int, not float"),
        ((image(40, 50), 0.5, "wrap"), "mode: 'wrap', where it has 'edge'"),
        ((image(50, 40).T, 0.5, "edge"), "another memory layout"),
        (([image(40, 50)], 0.5), "others by keyword"),
    ):
        with pytest.raises(HjitError, match=why):
            service.sharpened(*args)
    a = image(40, 50)
    with pytest.raises(HjitError, match="do not share memory"):
        service.in_place(a, a)
    with pytest.raises(AttributeError, match="sharpened, in_place"):
        service.blurred  # noqa: B018


TABLE = np.arange(50, dtype=np.float32)


def positions(a: Any, /, by: float, *, plus: int = 2, parts: Any = (1, (2, 0.5))) -> Any:
    return a * by + plus - parts[1][0] * parts[0] + parts[1][1]


def listed(a: Any, *others: Any, **named: Any) -> Any:
    return sum(others, a) - named["less"]


def defaults(a: Any, /, row: Any = TABLE, *, n: int = 3) -> Any:
    return a * row - n


@pytest.fixture(scope="module")
def by_name(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = tmp_path_factory.mktemp("bundles") / "names"
    a, called = image(40, 50), hjit.pipeline(positions)
    called(a, plus=5, by=0.5)
    examples: list[Any] = [(hjit.pipeline(sharpened), a, 0.5), (hjit.pipeline(defaults), a)]
    called_by_name = hjit.pipeline(listed)
    called_by_name(a, a, less=1.0)
    examples += [(hjit.pipeline(np.clip), a, 0.2, 0.8), (hjit.pipeline(np.multiply), a, a)]
    hjit.bundle(found, called, called_by_name, *examples)
    return hjit.load(found)


IMG = object()  # stands for an image
CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (sharpened, (), {"img": IMG, "amount": 0.25}),
    (sharpened, (IMG,), {"mode": "edge", "amount": 0.25}),
    (sharpened, (IMG, 0.25, "edge"), {}),
    (positions, (IMG, 1.5), {}),
    (positions, (IMG,), {"by": 1.5, "plus": 7, "parts": (1, (2, 0.5))}),
    (listed, (IMG, IMG), {"less": 2.0}),
    (np.clip, (IMG,), {"a_max": 0.5, "a_min": 0.25}),
    (np.multiply, (IMG, IMG), {}),
    (defaults, (IMG,), {}),
    (defaults, (IMG,), {"n": 5}),
]


@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS)
def test_arguments_are_given_as_to_the_function(by_name: Any, function: Any, args: Any, kwargs: Any) -> None:
    a = image(60, 50)  # for each IMG
    args, kwargs = [a if x is IMG else x for x in args], {k: a if x is IMG else x for k, x in kwargs.items()}
    same(by_name[function.__name__](*args, **kwargs), function(*args, **kwargs))


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (sharpened, (IMG,), {}),
        (sharpened, (IMG, 0.5, "edge", 1), {}),
        (sharpened, (IMG, 0.5), {"img": IMG}),
        (sharpened, (IMG, 0.5), {"self": IMG}),
        (positions, (), {"a": IMG, "by": 0.5}),
        (positions, (IMG, 0.5, 5), {}),
        (listed, (), {"less": 1.0}),
    ],
)
def test_wrong_calls_are_pythons_errors(by_name: Any, function: Any, args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError) as expected:
        function(*args, **kwargs)
    with pytest.raises(TypeError) as found:
        by_name[function.__name__](*args, **kwargs)
    assert str(found.value) == str(expected.value)


def test_parameters_are_kept(by_name: Any) -> None:
    assert str(inspect.signature(by_name.positions)) == "(a, /, by, *, plus=2, parts=(1, (2, 0.5)))"
    assert str(inspect.signature(by_name.defaults)) == "(a, /, row=..., *, n=3)"
    with pytest.raises(HjitError, match=r"amount: a int, not float"):
        by_name.sharpened(amount=1, img=image(40, 50))
    with pytest.raises(HjitError, match="3 arguments, or others by keyword"):  # the default was part of the code
        by_name.defaults(image(40, 50), row=TABLE)


def test_the_plain_function_runs_where_there_is_no_kernel(path: Path) -> None:
    service = hjit.load(path, sharpened, looked_up, num_threads=1)
    same(service.sharpened(image(5, 5), 0.5), sharpened(image(5, 5), 0.5))
    with pytest.raises(IndexError, match=r"index 2\d\d is out of bounds for axis 0 with size 201"):
        service.looked_up(image(40, 50, dtype="u1"), image(201))
    with pytest.raises(HjitError, match="has no function 'print'"):
        hjit.load(path, print)


def test_a_process_that_loads_a_bundle_compiles_nothing(path: Path, tmp_path: Path) -> None:
    text = f"""
import sys
import numpy as np
import hjit
service = hjit.load({str(path)!r}, num_threads=1)
result = service.looked_up(np.ones((90, 100), np.uint8), np.arange(256, dtype=np.float32))
assert result.shape == (90, 100) and (result == 1).all()
loaded = {{"numba", "hjit.kernels.llvm.emit", "hjit.kernels.lower.lower", "hjit.tuning.autoschedule"}} & {{*sys.modules}}
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", text], check=True, cwd=tmp_path, env={"PYTHONPATH": ":".join(sys.path)})


def changed(path: Path, to: Path, **header: Any) -> Path:
    """A bundle that says something else of itself, and of its digest."""
    from hashlib import sha256

    magic, _, text = path.read_bytes().split(b"\n", 2)
    head, _, payload = text.partition(b"\n")
    text = json.dumps({**json.loads(head), **header}).encode() + b"\n" + payload
    to.write_bytes(b"\n".join([magic, sha256(text).hexdigest().encode(), text]))
    return to


def test_files_that_do_not_fit_are_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for header, why in (
        ({"hjit": "0.0.1"}, r"made by hjit 0\.0\.1, and this is"),
        ({"numpy": "1.0"}, r"NumPy 1\.0"),
        ({"cpu": ["amx-bf16-of-tomorrow"]}, "a processor with amx-bf16-of-tomorrow, which this one lacks"),
        ({"features": ["sve"]}, "a processor with sve"),
        ({"array": 8}, "laid out in another way"),
    ):
        with pytest.raises(HjitError, match=why):
            hjit.load(changed(path, other, **header))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    for damaged, why in (
        (data, "its digest"),
        (data[:1000], "its digest"),
        (b"PK", "no bundle"),
        (b"hjit-bundle-1\n", "another version"),
        (b"hjit-bundle-9", "another"),
    ):
        other.write_bytes(damaged)
        with pytest.raises(HjitError, match=why):
            hjit.load(other)


def test_services_are_pickled_by_their_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    service = hjit.load(path.name, sharpened, num_threads=1)
    args = image(40, 50), 0.5
    data = pickle.dumps(service), pickle.dumps(service.sharpened)
    monkeypatch.chdir("/")
    there, f = map(pickle.loads, data)
    assert [*there] == [*service] and Path(there.path) == path
    for found in (there.sharpened, f, copy.deepcopy(service.sharpened)):
        assert found.function is sharpened
        same(found(*args), service.sharpened(*args))


def test_what_cannot_be_bundled(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    with pytest.raises(HjitError, match="has not been called"):
        hjit.bundle(path, hjit.pipeline(sharpened))
    for item in (sharpened, (sharpened, image(40, 50), 0.5)):
        with pytest.raises(
            HjitError, match="is made of pipelines, .* not of a function. What to do: give hjit.pipeline of it"
        ):
            hjit.bundle(path, item)
    with pytest.raises(FileNotFoundError) as caught:
        hjit.bundle(tmp_path / "none" / "bundle", (hjit.pipeline(sharpened), image(40, 50), 0.5))
    assert caught.value.filename == str(tmp_path / "none" / "bundle")
    with pytest.raises(OptionError, match="no pipeline is given"):
        hjit.bundle(path)
    with pytest.raises(HjitError, match="a Python decision on a computed value"):
        hjit.bundle(path, (hjit.pipeline(lambda a: a if a.max() > 3 else a + 1), image(40, 50)))
    with pytest.raises(HjitError, match="two functions are called sharpened"):
        other = hjit.pipeline(lambda a: a + 1)
        other.__name__ = "sharpened"
        hjit.bundle(path, (hjit.pipeline(sharpened), image(40, 50), 0.5), (other, image(40, 50)))
    decides = hjit.pipeline(lambda a: a[: int(a[0, 0]) + 16] * 2)
    decides(image(40, 50))
    with pytest.raises(HjitError, match="a Python decision on a computed value"):
        hjit.bundle(path, decides)
    by_numpy = hjit.pipeline(sharpened, budget=0.0)
    with pytest.warns(hjit.HjitWarning):
        by_numpy(image(40, 50), 0.5)
    with pytest.raises(HjitError, match="What to do: say which calls"):
        hjit.bundle(path, by_numpy)
    assert not path.exists()


def logged(f: Any) -> Any:
    @functools.wraps(f)
    def run(*args: Any) -> Any:
        return f(*args)

    return run


@hjit.pipeline
def times(x: Any, by: float = 2.0) -> Any:
    return x * by


class Scaler:
    by = 3.0

    @hjit.pipeline
    def scaled(self, x: Any) -> Any:
        return x * self.by

    @classmethod
    @hjit.pipeline
    def of_class(cls, x: Any) -> Any:
        return x * cls.by

    @staticmethod
    @hjit.pipeline
    def alone(x: Any) -> Any:
        return x * 5.0

    def __call__(self, x: Any) -> Any:
        return x - self.by


BOUND = {
    "scaled": Scaler().scaled,
    "of_class": Scaler.of_class,
    "alone": Scaler().alone,
    "times": functools.partial(times, by=4.0),
    "Scaler": hjit.pipeline(Scaler()),
    "run": hjit.pipeline(logged(times)),
}


@pytest.mark.parametrize("name", BOUND)
def test_methods_and_partials(name: str, tmp_path: Path) -> None:
    f, x = BOUND[name], np.ones((20, 30), np.float32)
    hjit.bundle(tmp_path / "a.hjit", (f, x), (f, x.astype(np.float64)))
    (found,) = (hjit.load(tmp_path / "a.hjit")[n] for n in hjit.load(tmp_path / "a.hjit"))
    for given in (x, x.astype(np.float64)):
        np.testing.assert_array_equal(found(given), f(given))


def test_what_binds_or_wraps_a_pipeline_says_what_to_give(tmp_path: Path) -> None:
    x = np.ones((20, 30), np.float32)
    path = tmp_path / "a.hjit"
    with pytest.raises(HjitError, match=r"give hjit\.pipeline of it, with the arguments of a call, or the pipeline"):
        hjit.bundle(path, (logged(times), x))
    with pytest.raises(HjitError, match=r"not of a Scaler. What to do: give hjit\.pipeline of it"):
        hjit.bundle(path, (Scaler(), x))
    for f, name in ((Scaler().scaled, "scaled"), (functools.partial(times, by=4.0), "times")):
        with pytest.raises(HjitError, match=rf"say which calls it is to serve: \({name}, ...\)"):
            hjit.bundle(path, f)
    with pytest.raises(HjitError, match="two functions are called times"):
        hjit.bundle(path, (functools.partial(times, by=4.0), x), (times, x))
    with pytest.raises(HjitError, match="two functions are called scaled"):
        hjit.bundle(path, (Scaler().scaled, x), (BOUND["scaled"], x))


def test_methods_are_exported_by_a_pipeline_of_them(tmp_path: Path) -> None:
    x, scaler = np.ones((20, 30), np.float32), Scaler()
    for f in (scaler.scaled, Scaler.of_class):
        with pytest.raises(HjitError, match=rf"^{__file__}:\d+ in .* hjit\.pipeline\(object\.\w+\)\.export"):
            f.export(tmp_path / "a.o", x)
        assert hjit.pipeline(f).export(tmp_path / "a.o", x).files
    for f in (scaler.alone, hjit.pipeline(scaler), hjit.pipeline(functools.partial(times, by=4.0))):
        assert f.export(tmp_path / "a.o", x).files
