"""The tests of a module as functions without arguments: its parametrised ones unfolded, with the few fixtures that they need."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

Case = Callable[[], object]


@contextlib.contextmanager
def monkeypatch() -> Iterator[Any]:
    """Changes that are taken back."""
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        yield patch


@contextlib.contextmanager
def tmp_path() -> Iterator[Path]:
    """A folder."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextlib.contextmanager
def cp() -> Iterator[Any]:
    """CuPy."""
    import cupy  # type: ignore[import-not-found]

    yield cupy


@contextlib.contextmanager
def on_device(monkeypatch: Any, tmp_path: Path) -> Iterator[None]:
    """Pipelines run on the device, and none of their kernels is known."""
    from tests.kernels.cuda import launching

    launching.new_pipelines(monkeypatch, tmp_path)
    yield


FIXTURES: Mapping[str, Callable[..., Any]] = {f.__name__: f for f in (monkeypatch, tmp_path, cp, on_device)}


def cases(module: ModuleType) -> dict[str, Case]:
    """The tests of a module that run on a device, by name, as pytest names them.

    They have the mark `needs_device` of `tests.kernels.cuda.launching`, or the module has, and not `needs_opencl`.
    """
    found: dict[str, Case] = {}
    for name, f in vars(module).items():
        if not name.startswith("test_") or not _is_for_device(module, f):
            continue
        asked = [fixture for m in _marks(module) if m.name == "usefixtures" for fixture in m.args]
        for values in _parameters(f):
            rest = [p for p in inspect.signature(f).parameters if p not in values]
            if {*rest, *asked} <= FIXTURES.keys():
                text = "-".join(_text(v) for v in values.values())
                found[f"{name}[{text}]" if values else name] = _bound(f, values, asked, rest)
    return found


def _is_for_device(module: ModuleType, f: Any) -> bool:
    from tests.kernels.cuda.launching import needs_device, needs_opencl

    (device,), (opencl,) = map(_listed, (needs_device, needs_opencl))
    own = _marks(f)
    return device in [*own, *_marks(module)] and opencl not in own


def _marks(x: Any) -> list[Any]:
    """The marks of a test or a module."""
    return _listed(getattr(x, "pytestmark", ()))


def _listed(marks: Any) -> list[Any]:
    """Marks, whether they are one or several, and decorators or not."""
    return [getattr(m, "mark", m) for m in (marks if isinstance(marks, (list, tuple)) else (marks,))]


def _bound(f: Callable[..., object], values: Mapping[str, Any], asked: Sequence[str], rest: Sequence[str]) -> Case:
    def case() -> object:
        with contextlib.ExitStack() as stack:
            made: dict[str, Any] = {}
            for name in (*asked, *rest):
                _make(name, made, stack)
            return f(**values, **{n: made[n] for n in rest})

    return case


def _make(name: str, made: dict[str, Any], stack: contextlib.ExitStack) -> Any:
    """A fixture, and those that it needs; each once a test."""
    if name not in made:
        needs = {n: _make(n, made, stack) for n in inspect.signature(FIXTURES[name]).parameters}
        made[name] = stack.enter_context(FIXTURES[name](**needs))
    return made[name]


def _parameters(f: Any) -> Iterator[dict[str, Any]]:
    lists: list[list[dict[str, Any]]] = []
    for mark in (m for m in _marks(f) if m.name == "parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        names = [n.strip() for n in names]
        lists.append([dict(zip(names, v if len(names) > 1 else (v,), strict=True)) for v in mark.args[1]])
    for row in itertools.product(*lists):
        yield {k: v for part in row for k, v in part.items()}


def _text(value: Any) -> str:
    return str(getattr(value, "__name__", value))
