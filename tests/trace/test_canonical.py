"""The canonical Graph: what is fused, shared, dropped and split, and that its numbers stay the same."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

import hjit
from hjit.trace.ir.expressions import Expr, rewrite
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.interpret import interpret
from hjit.trace.ir.key import graph_key
from hjit.trace.ir.poly import Boundary, deep_atoms
from hjit.trace.passes.canonical import PASSES, canonicalise
from hjit.trace.passes.elimination.stage_elimination import merge_versions
from hjit.trace.passes.fusion import fuse
from tests.trace.helpers import assert_same, scalars_of, trace_of


def graphs(function: Any, *args: Any) -> tuple[Graph, Any, list[Any]]:
    traced, leaves = trace_of(function, *args)
    results: list[Any] = []
    tree = traced.result
    tree.build(results.append) if hasattr(tree, "build") else results.append(tree)
    names = dict.fromkeys(r.name for r in results if r.name in traced.recorder.stages)
    return traced.recorder.graph(tuple(names)), traced.recorder, leaves


def canonical(function: Any, *args: Any, target: Literal["cpu", "cuda"] = "cpu") -> Graph:
    return canonicalise(graphs(function, *args)[0], target=target)


IMAGE = np.random.default_rng(0).random((20, 30), np.float32)


def chain(a: Any) -> Any:
    b = a * 2
    c = b + 1
    return np.sqrt(c) - b


def stencil(a: Any) -> Any:
    blurred = (a[:-2] + a[1:-1] * 2 + a[2:]) / 4 + np.exp(a[1:-1])
    return blurred[:, :-2] + blurred[:, 2:]


def assembled(a: Any) -> Any:
    out = np.empty((*a.shape, 3), a.dtype)
    out[..., 0] = a
    out[..., 1] = a * 2
    out[..., 2] = a + 1
    return out[..., 0] + out[..., 2]


def everything(a: Any) -> Any:
    return a.sum(), a.max(axis=1), a.mean(axis=0)


def updated(a: Any) -> Any:
    out = a * 2
    out[0] = 1
    out[:, 3:5] += 2
    return out


def bytes_gamma(a: Any) -> Any:
    u = a.astype(np.uint8)
    v = u + np.uint8(1)
    return (v.astype(np.float32) / 255) ** 0.4


def counted_bytes(a: Any) -> Any:
    bins = np.clip(a * 200, 0, 255).astype(np.uint8)
    return np.bincount(bins.ravel(), minlength=256)[bins] + bins


def halved(a: Any) -> Any:
    weighted = np.pad(np.stack([a * a[::-1], a]), ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = weighted[:, :-2:2] + 2 * weighted[:, 1:-1:2] + weighted[:, 2::2]
    return rows[..., :-2:2] + 2 * rows[..., 1:-1:2] + rows[..., 2::2]


@pytest.mark.parametrize(
    "function", [chain, stencil, assembled, everything, updated, bytes_gamma, counted_bytes, halved]
)
def test_every_pass_keeps_the_numbers(function: Any) -> None:
    graph, rec, leaves = graphs(function, IMAGE)
    arrays = {n: s.array for n, s in rec.inputs.items()}
    expected = interpret(graph, arrays, rec.sizes, scalars_of(rec, leaves))
    for run in PASSES:
        graph = run(graph)
        got = interpret(graph, arrays, rec.sizes, scalars_of(rec, leaves))
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-5, err_msg=run.__name__)


def test_pointwise_chains_become_one_stage() -> None:
    assert len(canonical(chain, IMAGE).stages) == 1


def test_what_is_costly_and_used_twice_stays_a_stage() -> None:
    stages = canonical(stencil, IMAGE).stages
    assert len(stages) == 2 and "exp" in str(stages[0]) and "exp" not in str(stages[1])


def test_of_a_cast_and_what_it_casts_the_narrower_is_kept() -> None:
    by_name = canonical(counted_bytes, IMAGE).by_name
    assert by_name["bins"].dtype == np.uint8 and not any(s.dtype == np.float32 for s in by_name.values())


def test_what_is_read_in_steps_is_read_less_often() -> None:
    assert len(canonical(halved, IMAGE).stages) == 1, "nine taps read each element of the planes about twice"
    assert len(canonical(lambda a: stencil(np.sqrt(a) * a), IMAGE).stages) > 1


def pooled(n: int) -> Any:
    return lambda a: sum(np.sqrt(a * 3)[y:16:n, x:16:n] for y in range(n) for x in range(n))


def test_what_is_read_in_many_or_long_steps_stays_a_stage() -> None:
    assert [len(canonical(pooled(n), IMAGE).stages) for n in (2, 4, 8)] == [1, 2, 2]


def test_known_pieces_are_forwarded() -> None:
    graph = canonical(assembled, IMAGE)
    assert len(graph.stages) == 1 and not graph.stages[0].updates


def test_full_reductions_are_done_by_rows() -> None:
    names = [s.name for s in canonical(everything, IMAGE).stages]
    assert any(n.endswith("_rows") for n in names)


def test_versions_share_one_buffer() -> None:
    graph = canonical(updated, IMAGE)
    assert len(graph.stages) == 1 and len(graph.stages[0].updates) == 2


def test_equal_programs_have_equal_keys_whatever_the_names_and_sizes() -> None:
    def one(a: Any) -> Any:
        left = a[:, :-1] * 3
        return left + 1

    def other(image: Any) -> Any:
        x = image[:, :-1] * 3
        y = x + 1
        return y

    keys = [graph_key(canonical(f, a)) for f in (one, other) for a in (IMAGE, np.ones((40, 55), np.float32))]
    assert len({k.text for k in keys}) == 1


def test_numbers_that_nothing_reads_are_in_no_key() -> None:
    def one(a: Any, s: float) -> Any:
        return a * s

    def other(a: Any, s: float, t: float) -> Any:
        np.sqrt(a) * s  # of another kernel, say
        return a * t

    assert graph_key(canonical(one, IMAGE, 0.5)).text == graph_key(canonical(other, IMAGE, 1.5, 0.5)).text


def test_whole_numbers_that_their_dtype_cannot_hold_are_errors_although_nothing_reads_them() -> None:
    def unread(a: Any, n: int) -> Any:
        a + n
        return a * 2

    p = hjit.pipeline(unread)
    image = (IMAGE * 200).astype(np.uint8)
    for _ in range(3):
        assert_same(p(image, 7), image * 2)
        with pytest.raises(OverflowError):
            p(image, 300)


def test_different_programs_have_different_keys() -> None:
    def one(a: Any) -> Any:
        add = a * 2
        return add * a

    def other(a: Any) -> Any:
        multiply = a + a
        return multiply * a

    texts = {graph_key(canonical(f, IMAGE)).text for f in (one, other)}
    texts |= {graph_key(canonical(one, IMAGE.astype(np.float64))).text, graph_key(canonical(one, IMAGE.T)).text}
    assert len(texts) == 4


def test_shared_expressions_do_not_blow_up_text_or_time() -> None:
    def doubling(a: Any) -> Any:
        for _ in range(60):
            a = a + a
        return a

    graph = canonical(doubling, IMAGE)
    assert len(graph.stages) == 1
    assert len(graph_key(graph).text) < 10_000 and len(str(graph)) < 10_000


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 3), (20, 30, 4, 20)])
def test_rolls_of_flat_images_follow_each_other_without_nesting(shape: tuple[int, ...]) -> None:
    def rolled(a: Any) -> Any:
        for _ in range(12):
            a = np.roll(a, 5) + a
        return a

    graph = canonical(rolled, np.zeros(shape, np.float32))
    wraps = {
        b for s in graph.stages for x in s.loads for p in x.index for b in deep_atoms(p) if isinstance(b, Boundary)
    }
    assert wraps and not any(b.arg.has(Boundary) for b in wraps)


def test_indices_of_views_of_views_are_not_nested_too_deeply() -> None:
    def rolled(a: Any) -> Any:
        for _ in range(12):
            a = np.roll(a, 3).T.copy()
        return a

    graph = canonical(rolled, IMAGE)
    indices = [p for s in graph.stages for x in s.loads for p in x.index]
    assert len(graph.stages) > 1
    assert max(len(str(p)) for p in indices) < 5_000


def test_long_chains_are_cut_into_stages() -> None:
    def long(a: Any) -> Any:
        for k in range(900):
            a = a * 0.5 + k
        return a

    assert 2 <= len(canonical(long, IMAGE).stages) <= 20


def in_links(n: int) -> Graph:
    def f(a: Any) -> Any:
        out = a * 0
        for k in range(n):
            out[k] += a[k] * 2
        return out

    return graphs(f, IMAGE)[0]


@pytest.mark.parametrize("links", [5, 10, 20])
def test_each_update_of_a_chain_of_versions_is_renamed_once(links: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = in_links(links)
    rewritten: list[Expr] = []

    def counting(e: Expr, *rest: Any) -> Expr:
        rewritten.append(e)
        return rewrite(e, *rest)

    graph = fuse(graph)
    monkeypatch.setattr("hjit.trace.passes.elimination.stage_elimination.rewrite", counting)
    merged = merge_versions(graph)
    assert max(len(s.updates) for s in merged.stages) == links
    assert len(rewritten) == links


def test_a_graph_is_hashed_once() -> None:
    hashed: list[str] = []

    class Counted(str):
        __slots__ = ()

        def __hash__(self) -> int:
            hashed.append(self)
            return super().__hash__()

    graph = graphs(chain, IMAGE)[0]
    stages = tuple(replace(s, name=Counted(s.name)) for s in graph.stages)
    graph = replace(graph, stages=stages)
    assert len({hash(graph) for _ in range(3)}) == 1
    assert len(hashed) == len(stages)
    assert hash(graph) == hash(replace(graph, stages=tuple(map(replace, stages))))
