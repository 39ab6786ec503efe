"""What is relied on of Dask's own task classes, which are in a private module of it (`hjit/chunks/native.py`)."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.chunks import tasks
from hjit.chunks.cut import cut_graph
from tests.test_dask import OnDisk, equalised, image, one_thread, unsharp  # noqa: F401 (the fixture)

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
native = pytest.importorskip("hjit.chunks.native")


def of(*values: Any) -> tuple[Any, ...]:
    return values


def test_values_come_first_then_results_of_tasks() -> None:
    graph = {
        "one": native.data("one", {"not": "a task"}),
        ("two", 0): native.task(("two", 0), of, ((len, [1, 2]), "one", ("two", 1)), ()),
        "all": native.task("all", of, ("one",), ("one", ("two", 0))),
    }
    found = dask.get(graph, "all")
    assert found == ("one", {"not": "a task"}, ((len, [1, 2]), "one", ("two", 1))), "values are left as they are"


def test_dask_sees_what_a_task_needs_and_leaves_it_as_it_is() -> None:
    from dask._task_spec import DataNode, Task, convert_legacy_graph
    from dask.core import get_dependencies

    graph = {"a": native.data("a", 1), "b": native.task("b", of, (), ("a",)), "c": native.task("c", of, (), ("b", "a"))}
    assert get_dependencies(graph, "c") == {"a", "b"} and not get_dependencies(graph, "a")
    assert isinstance(graph["a"], DataNode) and isinstance(graph["b"], Task)
    converted = convert_legacy_graph(graph)
    assert all(converted[k] is graph[k] for k in graph), "nothing to convert"


def test_tasks_travel() -> None:
    made = pickle.loads(pickle.dumps(native.task("b", of, (5,), ("a",))))
    assert made.key == "b" and set(made.dependencies) == {"a"} and made({"a": 6}) == (5, 6)


def test_all_tasks_of_a_call_are_native() -> None:
    from dask._task_spec import GraphNode

    for f in (unsharp, equalised, lambda x: (x.cumsum(0), x.max())):
        found = hjit.pipeline(f)(da.from_array(image((90, 80), "u1"), chunks=30))
        for x in found if isinstance(found, tuple) else (found,):
            own = {
                k: v for name, layer in x.dask.layers.items() if name.startswith(f.__name__) for k, v in layer.items()
            }
            assert own and all(isinstance(v, GraphNode) for v in own.values())


def test_loading_twice_begins_after_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's ordering looks at pairs of chunks of the result and tasks that it begins with."""
    from dask._task_spec import DataNode, convert_legacy_graph

    x = image((300, 400), "u1")
    for room, count in ((0, 1), (x.nbytes, 12)):
        cut_graph.cache_clear()
        monkeypatch.setattr(tasks, "kept_bytes", lambda: room)
        found = hjit.pipeline(equalised)(da.from_array(OnDisk(x), chunks=100, asarray=False))
        graph = convert_legacy_graph(dict(da.optimize(found.__dask_graph__(), found.__dask_keys__())))
        data = {k for k, v in graph.items() if isinstance(v, DataNode)}
        assert sum(k not in data and v.dependencies <= data for k, v in graph.items()) == count
        np.testing.assert_array_equal(found, equalised(x))
