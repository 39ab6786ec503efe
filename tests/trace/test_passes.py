"""What each pass of the canonicaliser does, as printed IR before and after it, in `golden/`: one small example a pass.

An example is traced and goes through the passes that come before its own in `PASSES`. ``python -m tests.trace.test_passes``
writes the files anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hjit.trace.ir.check import check_graph
from hjit.trace.ir.expressions import Expr, Load, rewrite
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.interpret import interpret
from hjit.trace.ir.rewriting import map_exprs
from hjit.trace.passes.canonical import CUDA_PASSES, PASSES, REQUESTABLE
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites
from tests.trace.helpers import scalars_of
from tests.trace.test_canonical import graphs

GOLDEN = Path(__file__).with_name("golden")
RNG = np.random.default_rng(0)
IMAGE = RNG.random((41, 50), np.float32)
BYTES = RNG.integers(0, 256, (41, 50), np.uint8)
PLANES = np.stack([IMAGE, IMAGE * 2, IMAGE[::-1]])


@dataclass(frozen=True, slots=True)
class Example:
    function: Callable[..., Any]
    args: tuple[Any, ...] = (IMAGE,)
    rewrites: Rewrites = NO_REWRITES


def unused(a: Any) -> Any:
    twice = a * 2
    doubled = twice + a
    del doubled
    return twice


def updated(a: Any) -> Any:
    out = a * 2
    out[0] = 1
    return out


def rows_in_turn(a: Any) -> Any:
    out = np.zeros_like(a)
    out[0::2] = a[0::2] * 2
    out[1::2] = a[1::2] + 1
    return out


def plane_of_a_stack(a: Any) -> Any:
    planes = np.stack([a, a * 2])
    return planes[1] + 1


def padded(a: Any) -> Any:
    return np.pad(a, 1)


def computed_twice(a: Any) -> Any:
    first = np.exp(a)
    second = np.exp(a)
    return first[1:] + second[:-1]


def pointwise(a: Any) -> Any:
    blurred = (a[:-1] + a[1:]) / 2
    return blurred * blurred


def any_plane_of_a_stack(a: Any) -> Any:
    planes = np.stack([a, a * 2])
    return planes * planes[::-1]


def read_as_float32(a: Any) -> Any:
    roots = np.exp(a.astype(np.float64))
    return roots[1:].astype(np.float32) + roots[:-1].astype(np.float32)


def mean_of_bytes(a: Any, b: Any) -> Any:
    return (a.astype(np.uint16) + b) // 2


def two_rows(a: Any) -> Any:
    sums = a.max(axis=1)
    return sums[3:5] * 2


def recurrence(a: Any) -> Any:
    out = a.copy()
    for y in range(1, len(a)):
        out[y] = a[y] + 0.5 * out[y - 1]
    return out


def gamma(a: Any) -> Any:
    return (a / 255) ** 0.4


def flattened(a: Any) -> Any:
    return np.dot(a.ravel(), a.ravel())


def mixed_colours(a: Any) -> Any:
    mixed = (np.eye(3, dtype=np.float32)[::-1] @ a.reshape(3, -1)).reshape(a.shape)
    return mixed[:, 1:] - mixed[:, :-1]


def weights(img: Any, x: Any) -> Any:
    found = np.zeros(256, x.dtype)
    np.add.at(found, img, x)
    return found


def ranks(img: Any) -> Any:
    return np.cumsum(np.bincount(img.ravel(), minlength=256))


def histogram(a: Any) -> Any:
    return np.bincount((a >> 4).ravel(), minlength=16)


def largest_step(a: Any) -> Any:
    p = np.pad(a, 1, mode="edge")
    return (p[1:-1, 2:] - p[1:-1, :-2]).max(axis=1)


def total(a: Any) -> Any:
    total = a.sum()
    return total


def running_total(a: Any) -> Any:
    sums = np.cumsum(a)
    return sums


def along_rows(a: Any) -> Any:
    total = a.sum(axis=1)
    return total


def product(a: Any, b: Any) -> Any:
    return a @ b


def edges(a: Any) -> Any:
    roots = np.exp(a)
    return roots[1:] - roots[:-1]


def planes_by_their_sums(a: Any) -> Any:
    out = np.stack([a, a + 1, a * 2])
    for k in range(3):
        out[k] /= np.sum(out[k])
    return out


EXAMPLES = {
    "drop_dead_stages": Example(unused),
    "merge_versions": Example(updated),
    "drop_overwritten": Example(rows_in_turn),
    "forward_stores": Example(plane_of_a_stack),
    "select_padding": Example(padded),
    "merge_equal_stages": Example(computed_twice),
    "fuse": Example(pointwise),
    "read_earlier_versions": Example(planes_by_their_sums),
    "select_planes": Example(any_plane_of_a_stack),
    "narrow_storage": Example(read_as_float32),
    "demote_integers": Example(mean_of_bytes, (BYTES, BYTES[::-1])),
    "crop_to_demanded": Example(two_rows),
    "drop_dead_initial_values": Example(recurrence),
    "tabulate": Example(gamma, (BYTES,)),
    "delinearise": Example(flattened),
    "delinearise_stages": Example(mixed_colours, (PLANES,)),
    "privatise_histograms": Example(histogram, (BYTES,)),
    "equalise_interleaved": Example(rows_in_turn),
    "separate_boundary_terms": Example(largest_step),
    "split_reductions": Example(total),
    "rfactor": Example(along_rows, rewrites=Rewrites(factored={"total": (0, 4)})),
    "cache_reads": Example(edges, rewrites=Rewrites(cached={"a0"})),
    "pack": Example(product, (IMAGE, IMAGE.T.copy())),
    "inline_after": Example(edges, rewrites=Rewrites(inlined_after={"roots"})),
    "scatter_in_parallel": Example(weights, (BYTES, IMAGE)),
    "reduce_in_blocks": Example(total),
    "separate_scans": Example(ranks, (BYTES,)),
    "scan_in_blocks": Example(running_total, (IMAGE[0],)),
}
ALL = tuple(dict.fromkeys((*PASSES, *CUDA_PASSES)))


def before_and_after(name: str) -> tuple[Graph, Graph, Any, list[Any]]:
    """The Graph that a pass is given and what it makes of it; the recorder and the arguments of the trace."""
    example = EXAMPLES[name]
    graph, rec, leaves = graphs(example.function, *example.args)
    graph = replace(graph, stages=tuple(replace(s, origin=None) for s in graph.stages))
    for run in PASSES if any(run.__name__ == name for run in PASSES) else CUDA_PASSES:
        new = run(graph, example.rewrites) if run in REQUESTABLE else run(graph)
        if run.__name__ == name:
            return graph, new, rec, leaves
        graph = new
    raise AssertionError(name)


def text(name: str) -> str:
    before, after, *_ = before_and_after(name)
    return f"before {name}:\n\n{before}\n\nafter {name}:\n\n{after}\n"


def test_every_pass_has_an_example() -> None:
    assert list(EXAMPLES) == list(dict.fromkeys(run.__name__ for run in ALL))
    assert sorted(p.stem for p in GOLDEN.iterdir()) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pass_does_what_its_golden_file_shows(name: str) -> None:
    assert text(name) == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_changed_and_keeps_its_numbers(name: str) -> None:
    before, after, rec, leaves = before_and_after(name)
    assert before != after
    check_graph(after)
    arrays, scalars = {n: s.array for n, s in rec.inputs.items()}, scalars_of(rec, leaves)
    old, new = (interpret(g, arrays, rec.sizes, scalars) for g in (before, after))
    for a, b in zip(old, new, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def with_input_named(graph: Graph, name: str) -> Graph:
    """The Graph whose first input has another name."""
    first, *others = graph.inputs

    def change(e: Expr) -> Expr | None:
        return Load(name, e.index, e.dtype) if isinstance(e, Load) and e.source == first.name else None

    stages = tuple(map_exprs(s, lambda e: rewrite(e, change)) for s in graph.stages)
    return replace(graph, inputs=(replace(first, name=name), *others), stages=stages)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_new_stage_has_a_name_that_no_input_has(name: str) -> None:
    before, after, *_ = before_and_after(name)
    run = next(run for run in ALL if run.__name__ == name)
    for taken in after.by_name.keys() - before.by_name.keys():
        graph = with_input_named(before, taken)
        check_graph(run(graph, EXAMPLES[name].rewrites) if run in REQUESTABLE else run(graph), name)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in EXAMPLES:
        (GOLDEN / f"{each}.txt").write_text(text(each))
