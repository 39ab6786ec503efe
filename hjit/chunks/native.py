"""Tasks as Dask itself has them, the only place that knows their classes.

Dask's older form, tuples that begin with a function, is converted to these before anything runs, which costs as much
again as all else that is done for a graph. The classes are described in Dask's documentation (Task Graphs:
Specification), but live in a private module of it: `tests/test_dask_native.py` says what is relied on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dask._task_spec import DataNode, Task, TaskRef

Key = str | tuple[Any, ...]


def task(key: Key, function: Callable[..., Any], values: Iterable[Any], results: Iterable[Key]) -> Task:
    """The task of that key: the function, called with values, in which Dask looks for nothing, and then with the
    results of other tasks."""
    return Task(key, function, *values, *map(TaskRef, results))


def data(key: Key, value: Any) -> DataNode:
    """A value that tasks may refer to by its key."""
    return DataNode(key, value)


def after(key: Key, computed: Task, earlier: Key) -> Task:
    """A task that computes what another does, but not before a third one has run."""
    return Task(key, _result_of, computed, TaskRef(earlier))


def _result_of(result: Any, _: Any) -> Any:
    return result


def is_task(x: Any) -> bool:
    """Is it a task in this form?"""
    return isinstance(x, Task)
