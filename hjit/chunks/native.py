"""Tasks in Dask's own form; the only module that knows its classes.

Dask's older form, tuples that begin with a function, is converted to these before anything runs, which costs as much
again as everything else that is done for a graph. The classes are documented (Task Graphs: Specification), but live in
a private module: `tests/test_dask_native.py` checks what hjit relies on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dask._task_spec import DataNode, Task, TaskRef
from dask.array.core import getter, getter_inline, getter_nofancy
from dask.blockwise import Blockwise
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArraySliceDep

Key = str | tuple[Any, ...]
GETTERS = (getter, getter_nofancy, getter_inline)


@dataclass(frozen=True, slots=True)
class Source:
    """The source from which Dask loads the chunks of an array.

    Attributes:
        key: whose value it is.
        value: itself.
        graph: of that key, and of `first`.
        get: loads a part, given the source and slices.
        settings: further arguments of `get`.
        first: the key of a task that does nothing, which all tasks that read it begin after.
    """

    key: str
    value: Any
    graph: HighLevelGraph
    get: Callable[..., Any]
    settings: Mapping[str, Any]
    first: str


def task(key: Key, function: Callable[..., Any], values: Iterable[Any], results: Iterable[Key]) -> Task:
    """The task of that key: the function, called with values, in which Dask looks for nothing, and then with the
    results of other tasks."""
    return Task(key, function, *values, *map(TaskRef, results))


def data(key: Key, value: Any) -> DataNode:
    """A value that tasks may refer to by its key."""
    return DataNode(key, value)


def after(key: Key, computed: Task, earlier: Key) -> Task:
    """A task that computes the same as another one, but not before a third one has run."""
    return Task(key, _result_of, computed, TaskRef(earlier))


def _result_of(result: Any, _: Any) -> Any:
    return result


def is_task(x: Any) -> bool:
    """Is it a task in this form?"""
    return isinstance(x, Task)


def first_layer(first: str) -> dict[str, dict[Key, Any]]:
    """The layer with a task that does nothing."""
    return {first: {first: task(first, nothing, (), ())}}


def nothing() -> None:
    """What tasks begin after."""


def source_of(array: Any, first: str) -> Source | None:
    """The source of an array's chunks, as made by `da.from_array`; None if they are computed."""
    graph = array.dask
    layer = graph.layers.get(array.name)
    if not isinstance(layer, Blockwise) or layer.task.func not in GETTERS or len(layer.indices) != 2:
        return None
    (ref, dims), (slices, _) = layer.indices
    if not isinstance(ref, TaskRef) or dims is not None or not isinstance(layer.io_deps.get(slices), ArraySliceDep):
        return None
    held = graph.layers.get(ref.key)
    if held is None or len(held) != 1 or ref.key not in held or graph.dependencies[ref.key]:
        return None
    value = held[ref.key]
    if isinstance(value, DataNode):
        value = value.value
    both = HighLevelGraph({ref.key: held, **first_layer(first)}, {ref.key: set(), first: set()})
    return Source(ref.key, value, both, layer.task.func, dict(layer.task.kwargs), first)
