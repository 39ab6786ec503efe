"""The default schedules on CUDA: what blocks compute together, and what a thread computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import apps
from hjit.kernels.cuda.roofline import GPUS, NestLaunch, estimate
from hjit.kernels.lower.loopir import Block
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.traverse import every
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.default.thresholds import MOST_ROWS
from hjit.sched.language.check import check_tree
from hjit.sched.language.tree import Loop, Root, walk
from hjit.trace.ir.graph import Graph
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(0)
PLANES = RNG.random((3, 200, 300), np.float32)


def scheduled(function: Any, *args: Any) -> tuple[Graph, Root]:
    graph = canonical(function, *args, target="cuda")
    tree = cuda_schedule(graph)
    check_tree(tree, graph, "cuda")
    return graph, tree


def loops(tree: Root, kind: str) -> list[Loop]:
    return [x for x in walk(tree) if isinstance(x, Loop) and x.kind == kind]


def relative(rgb: Any) -> Any:
    """Colours over how bright their neighbours of 13 rows are."""
    gray = 0.3 * rgb[0] + 0.6 * rgb[1] + 0.1 * rgb[2]
    near = sum(gray[k : gray.shape[0] - 12 + k] for k in range(1, 13)) + gray[:-12]
    near = near[:, :-6] + near[:, 2:-4] + near[:, 4:-2] + near[:, 6:]
    return near / gray[6:-6, 3:-3] * rgb[:, 6:-6, 3:-3]


def test_what_all_colours_need_is_computed_once_by_a_block() -> None:
    _, tree = scheduled(relative, PLANES)
    assert len(tree.children) == 1
    assert not any(x.dim == 0 for x in loops(tree, "gpu_block"))
    assert any(x.dim == 0 and x.size is None for x in loops(tree, "unroll")), "a thread has all colours of a pixel"


def test_tiles_are_higher_where_blocks_then_compute_more_stages_for_themselves() -> None:
    _, tree = scheduled(relative, PLANES)
    head = tree.children[0].stage  # type: ignore[union-attr]
    tile = {x.dim: x.size for x in loops(tree, "gpu_thread") if x.stage == head}
    (together,) = (x.size for x in loops(tree, "unroll") if x.stage == head and x.dim == 1)
    assert tile == {1: 8 * (together or 1), 2: 32} and together in (2, 4)
    _, tree = scheduled(lambda rgb: rgb * 2, PLANES)
    assert not any(x.dim == 1 for x in loops(tree, "unroll")), "there is nothing that they would compute"


@pytest.mark.parametrize(("dtype", "count"), [("f4", 4), ("f8", 2), ("u2", 8), ("u1", 8)])
def test_a_thread_of_a_map_reads_and_writes_16_bytes_at_once(dtype: str, count: int) -> None:
    graph, tree = scheduled(lambda a: a * 2, np.ones((200, 300), dtype))
    program = lower(graph, tree, passes=CUDA)
    found = [row.count for nest in program.nests for s in every(nest.body) if isinstance(s, Block) for row in s.rows]
    assert found == [count, count]


@pytest.mark.parametrize("name", ["unsharp", "harris", "blur"])
def test_applications_move_little_more_than_they_must(name: str) -> None:
    module = apps.load(name)
    image, *numbers = module.inputs(RNG, module.SMALL)
    graph, tree = scheduled(getattr(module, name), image, *numbers)
    program = lower(graph, tree, passes=CUDA)
    sizes = {f"{i.name}.{k}": 1000 for i in graph.inputs for k in range(3)}
    moved = sum(estimate(graph, program, NestLaunch(k, 256), sizes, GPUS[80]).bytes for k in range(len(program.nests)))
    results = graph.stage(graph.outputs[0])
    must = 4 * 1000 * 1000 * sum(3 if len(x.shape) == 3 else 1 for x in (graph.inputs[0], results))
    assert moved <= 1.05 * must


@pytest.mark.parametrize("name", ["camera_pipe", "interpolate", "bgu", "bilateral_grid", "conv_layer", "stencil_chain"])
def test_schedules_of_long_graphs_are_legal(name: str) -> None:
    module = apps.load(name)
    _, tree = scheduled(getattr(module, name), *module.inputs(RNG, module.SMALL))
    assert all((x.size or 1) <= MOST_ROWS for x in loops(tree, "unroll"))


@pytest.mark.parametrize("app", ["camera_pipe", "unsharp"])
def test_images_with_their_channels_last_have_as_few_kernels_as_planar_ones(app: str) -> None:
    """Tiles of all channels are high enough for stages that are read around each element."""
    m = apps.load(app)
    rng = np.random.default_rng(1)
    planar = scheduled(getattr(m, app), *m.inputs(rng, m.SMALL))
    last = scheduled(m.channels_last, *m.inputs_last(rng, m.SMALL))
    first, second = (len(lower(*x, passes=CUDA).nests) for x in (planar, last))
    assert first == second
