"""The time of each nest of a kernel, and which stages have a share in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hjit.call.segments import strides_of
from hjit.kernels.llvm import thresholds
from hjit.kernels.runtime.bind import bind
from hjit.kernels.runtime.kernel import Bound
from hjit.options import Options
from hjit.pipeline import Pipeline
from hjit.sched.nests.root_nests import root_schedule
from hjit.training.cases import segment_of
from hjit.tuning.nest_times import components

IMAGE = np.random.default_rng(0).random((40, 60), np.float32)
OPTIONS = Options(cache="off", verify="off", tune=False)


def sums(a: Any) -> Any:
    down = np.cumsum(a, 0)
    return down[1:] - down[:-1], np.sqrt(a[:0])


def kernel(timed: bool) -> tuple[Any, Bound]:
    """All stages at the root."""
    pipe = Pipeline(sums, {"cache": "off", "verify": "off", "tune": False})
    pipe(IMAGE)
    variant = pipe.variant_of((IMAGE,), {}, OPTIONS)
    (graph,) = variant.graphs
    segment = segment_of(graph, OPTIONS)
    scheduled = segment.scheduled_by(root_schedule(graph, segment.target))
    return graph, bind(replace(scheduled, timed=timed), OPTIONS, variant.rec.sizes, strides_of(variant.rec, [graph]))


@pytest.mark.parametrize("most", [0, thresholds.MAX_CALLS_IN_CODE])
def test_a_kernel_that_notes_times_computes_the_same(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "MAX_CALLS_IN_CODE", most)  # 0: the driver is a table
    monkeypatch.setattr("hjit.kernels.runtime.kernel._kernels", {})
    graph, plain = kernel(timed=False)
    _, noting = kernel(timed=True)
    assert plain.kernel.name != noting.kernel.name and not plain.kernel.nests
    expected, found = plain.new_outputs(), noting.new_outputs()
    assert plain.run([IMAGE], expected, ())
    seconds = noting.nest_seconds([IMAGE], found, ())
    assert seconds is not None and seconds.shape == (len(noting.kernel.nests),)
    assert all(map(np.array_equal, expected, found))
    empty = [k for k, stages in enumerate(noting.kernel.nests) if graph.stages[stages[0]].name == graph.outputs[1]]
    assert not seconds[empty].any(), "a nest without elements takes no time"
    assert (np.delete(seconds, empty) > 0).all()


def test_a_part_is_of_nests_that_share_no_stage_with_others() -> None:
    graph, _ = kernel(timed=False)
    a, b, c = (s.name for s in graph.stages)
    part, seconds = components(graph, [], [[a], [b], [a], [c]], np.array([1.0, 2.0, 4.0, 8.0]))
    assert part.tolist() == [0, 1, 2] and seconds.tolist() == [5.0, 2.0, 8.0]


def test_an_inlined_stage_joins_the_nests_that_read_it() -> None:
    def read_twice(a: Any) -> Any:
        b = np.cumsum(a, 0)
        return b[1:] + b[:-1], b.sum(0)

    graph = Pipeline(read_twice, {"tune": False}).variant_of((IMAGE,), {}, OPTIONS).graphs[0]
    first, *others = (s.name for s in graph.stages)
    assert all(first in graph.stage(x).sources for x in others)
    part, seconds = components(graph, [first], [[x] for x in others], np.array([2.0, 8.0]))
    assert not part.any() and seconds.tolist() == [10.0, 0.0, 0.0]
