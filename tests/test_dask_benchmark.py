"""The benchmark of arrays of Dask: the mosaic, the ways of its development, the model; without a look at times."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

from benchmarks import chunked, mosaic, scaling  # noqa: E402

COSTS = scaling.Costs(0.1, 0.2, 1e-3, 1e-4, 5e-4, 7, 1e6, 5e7)


@pytest.fixture
def file(tmp_path: Path) -> mosaic.RawFile:
    found = mosaic.RawFile(tmp_path / "mosaic.raw", (700, 900))
    mosaic.write_mosaic(found, tile=128)
    return found


def test_files_are_opened_by_path_and_holes_stay(file: mosaic.RawFile, tmp_path: Path) -> None:
    image = pickle.loads(pickle.dumps(file))[:]
    assert image.shape == (700, 900) and len(np.unique(image)) > 100
    assert not image[-100:].any() or not image[:128].all(), "tiles are left out"
    target = mosaic.RawFile(tmp_path / "other.raw", file.shape).create()
    target[10:20, :30] = np.zeros((10, 30), np.uint8)
    assert target.path.stat().st_blocks == 0
    target[10:20, :30] = np.ones((10, 30), np.uint8)
    assert target[:].sum() == 300


def test_all_ways_compute_the_same(file: mosaic.RawFile) -> None:
    image = file[:]
    expected = mosaic.developed(image)
    assert expected.min() == 0 and expected.max() == 255
    lazy = da.from_array(file, chunks=300, asarray=False, meta=np.empty((0, 0), np.uint8))
    ways = [hjit.pipeline(mosaic.developed), mosaic.by_map_overlap(mosaic.contrast)]
    if pytest.importorskip("importlib.util").find_spec("dask_image"):
        ways.append(mosaic.by_dask_image)
    for f in ways:
        np.testing.assert_array_equal(f(lazy).compute(scheduler="sync"), expected)


def test_windows_are_those_of_the_whole_result(file: mosaic.RawFile, tmp_path: Path) -> None:
    expected = mosaic.developed(file[:])
    table = mosaic.table_of(mosaic.strips(file, mosaic.contrast, rows=150))
    for corner in ((0, 0), (300, 400), (660, 870)):
        found = mosaic.window(file, table, corner, 64)
        np.testing.assert_array_equal(found, expected[corner[0] : corner[0] + 64, corner[1] : corner[1] + 64])
    target = mosaic.RawFile(tmp_path / "developed.raw", file.shape).create()
    target[:] = expected
    found = chunked.compared(file, target, 300, count=12)
    assert found["windows_that_differ"] == 0
    target[300:310, 300:310] = 255 - target[300:310, 300:310]
    assert chunked.compared(file, target, 300, count=12)["pixels_that_differ"] > 0


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("('developed-0-ab12-partial', 3, 4)", "histogram"),
        ("('developed-0-ab12-partial-1', 0)", "combine"),
        ("('developed-1-ab12-excerpts-0', 3, 4)", "cut out for others"),
        ("('developed-1-ab12', 3, 4)", "result"),
        ("('store-map-ab12', 3, 4)", "store"),
        ("('array-ab12', 3, 4)", "load"),
        ("sum-ab", "other"),
    ],
)
def test_kinds_of_tasks(key: str, kind: str) -> None:
    assert chunked.kind_of(key) == kind


def test_the_model_adds_up() -> None:
    one = scaling.predicted(COSTS, 1000, 1)
    assert one.limit == "workers"
    assert one.seconds == pytest.approx(1000 * 0.3 + 1000 * 1e-4 + one.tree)
    found: list[Any] = scaling.table(COSTS, 10_000)["same"]
    assert all(a["seconds"] >= b["seconds"] for a, b in pairwise(found))
    assert found[-1]["limit"] == "the scheduler"
    assert found[-1]["seconds"] >= 10_000 * 7 * 5e-4
    assert all(0 < row["efficiency"] <= 1 for row in found)


def test_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = {
        k: {"count": 4, "median_s": 0.1, "total_s": 0.4, "median_bytes": 9.0} for k in ("load", "histogram", "store")
    }
    graph = [{"graph": "development", "made_us": 50.0, "prepared_us": 60.0, "ordered_us": 77.0, "tasks": 4.0}]
    cluster: dict[str, Any] = {"shape": [10, 10], "chunks": 4, "chunk": 5, "run_s": 1.0, "mb_a_second": 1.0}
    cluster |= {"peak_mb": [1.0], "memory_limit": "2GB", "spilled_bytes": 0, "moved_bytes": 0, "empty_task_s": 1e-3}
    cluster |= {"windows": 9, "window_side": 4, "windows_that_differ": 0, "pixels_that_differ": 0, "tasks": tasks}
    chunked.show({"graph": graph, "cluster": cluster, "scaling": chunked.scaled(graph, cluster)})
    text = capsys.readouterr().out
    assert "9 windows of 4 x 4" in text and "bound by" in text and "77" in text


def test_costs_of_a_graph() -> None:
    rows = chunked.of_graph(chunks=5, calls=1, side=64)
    assert next(row["graph"] for row in rows) == "development"
    assert all(row[name] > 0 for row in rows for name in ("made_us", "prepared_us", "ordered_us", "tasks"))


def test_parts_of_an_earlier_run_keep_their_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "of_graph", lambda: [{"graph": "new"}])
    earlier = {"peers": {"rows": []}, "commits": {"graph": "before", "peers": "before"}}
    found = chunked.run(0.0, parts=["graph"], earlier=earlier)
    assert found["graph"] == [{"graph": "new"}] and found["peers"] == {"rows": []}
    assert found["commits"] == {"graph": found["commit"], "peers": "before"}
