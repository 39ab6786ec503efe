"""The tests of a module as functions without arguments: its parametrised ones unfolded, with the few fixtures that they need."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

Case = Callable[[], object]


@contextlib.contextmanager
def _monkeypatch() -> Iterator[Any]:
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        yield patch


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextlib.contextmanager
def _cupy() -> Iterator[Any]:
    import cupy  # type: ignore[import-not-found]

    yield cupy


FIXTURES: Mapping[str, Callable[[], Any]] = {"monkeypatch": _monkeypatch, "tmp_path": _folder, "cp": _cupy}


def cases(module: ModuleType, leave: Collection[str] = (), only: Collection[str] = ()) -> dict[str, Case]:
    """Tests by name, as pytest names them.

    Args:
        leave: functions that are no tests of a GPU.
        only: if given, all others.
    """
    found: dict[str, Case] = {}
    for name, f in vars(module).items():
        if not name.startswith("test_") or name in leave or (only and name not in only):
            continue
        for values in _parameters(f):
            rest = [p for p in inspect.signature(f).parameters if p not in values]
            if set(rest) <= FIXTURES.keys():
                text = "-".join(_text(v) for v in values.values())
                found[f"{name}[{text}]" if values else name] = _bound(f, values, rest)
    return found


def _bound(f: Callable[..., object], values: Mapping[str, Any], fixtures: Sequence[str]) -> Case:
    def case() -> object:
        with contextlib.ExitStack() as stack:
            return f(**values, **{n: stack.enter_context(FIXTURES[n]()) for n in fixtures})

    return case


def _parameters(f: Any) -> Iterator[dict[str, Any]]:
    marks = [m for m in getattr(f, "pytestmark", ()) if m.name == "parametrize"]
    lists: list[list[dict[str, Any]]] = []
    for mark in marks:
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        names = [n.strip() for n in names]
        lists.append([dict(zip(names, v if len(names) > 1 else (v,), strict=True)) for v in mark.args[1]])
    for row in itertools.product(*lists):
        yield {k: v for part in row for k, v in part.items()}


def _text(value: Any) -> str:
    return str(getattr(value, "__name__", value))
