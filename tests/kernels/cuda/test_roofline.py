"""The roofline of kernels: bytes, operations and occupancy."""

from __future__ import annotations

import numpy as np
import pytest

from hjit.kernels.cuda.compilers.machine_code import Resources
from hjit.kernels.cuda.roofline import GPUS, LAUNCH_SECONDS, NestLaunch, estimate, gpu, occupancy
from hjit.kernels.lower.lower import CUDA, lower
from hjit.sched.default.cuda import cuda_schedule
from tests.kernels.cuda.test_blocks import rows
from tests.trace.test_canonical import canonical

H100 = GPUS[90]


def needs(registers: int, shared: int = 0) -> Resources:
    return Resources(registers, 0, 0, 0, shared)


@pytest.mark.parametrize(
    ("threads", "resources", "part"),
    [
        (256, needs(32), 1.0),
        (256, needs(64), 0.5),
        (256, needs(128), 0.25),
        (1024, needs(65), 0.0),  # of 72 registers each there are not enough for one block
        (32, needs(16), 0.5),  # 32 blocks of one warp
        (256, needs(32, shared=100 << 10), 0.25),
        (100, needs(32), 1.0),  # rounded up to 128
    ],
)
def test_occupancy(threads: int, resources: Resources, part: float) -> None:
    assert occupancy(H100, threads, resources) == part


def test_a_gpu_without_a_row_counts_as_the_next_lower_one() -> None:
    assert gpu(90) is H100
    assert gpu(87).capability == 86
    assert gpu(121).capability == 100
    assert gpu(50).capability == 75


def test_a_fused_stencil_moves_its_argument_and_its_result_once() -> None:
    graph = canonical(rows, np.ones((40, 50), np.float32))
    program = lower(graph, cuda_schedule(graph), passes=CUDA)
    sizes = {"a0.0": 4002, "a0.1": 6002}
    one = estimate(graph, program, NestLaunch(0, 256, needs(32)), sizes, H100)
    assert one.bytes == 4 * (4002 * 6002 + 4000 * 6000)
    assert one.limit == "memory"
    assert one.seconds == pytest.approx(LAUNCH_SECONDS + one.bytes / H100.bandwidth)
    assert one.occupancy == 1.0


def test_small_images_are_launches_and_long_chains_arithmetic() -> None:
    def small(a: object) -> object:
        return rows(a)

    def long(a: object) -> object:
        for _ in range(40):
            a = np.exp(a) / np.sqrt(a)  # type: ignore[call-overload]
        return a

    found = []
    for function, size in ((small, 20), (long, 4000)):
        graph = canonical(function, np.ones((40, 50), np.float32))
        program = lower(graph, cuda_schedule(graph), passes=CUDA)
        one = estimate(graph, program, NestLaunch(0, 256), {"a0.0": size, "a0.1": size}, H100)
        assert one.occupancy is None
        found.append(one.limit)
    assert found == ["launch", "arithmetic"]


def test_a_table_is_not_read_more_often_than_there_are_elements() -> None:
    graph = canonical(lambda a, t: t[a], np.ones((40, 50), np.uint8), np.ones(1 << 20, np.float32))
    program = lower(graph, cuda_schedule(graph), passes=CUDA)
    sizes = {"a0.0": 10, "a0.1": 10, "a.0": 10, "a.1": 10, "t.0": 1 << 20, "a1.0": 1 << 20}
    found = [estimate(graph, program, NestLaunch(k, 256), sizes, H100).bytes for k in range(len(program.nests))]
    assert sum(found) < 1 << 20


@pytest.mark.parametrize(
    "function",
    [lambda a: a.sum(axis=1), lambda a: a.sum(axis=0), lambda a: a.max(), lambda a: np.bincount(a.ravel() > 0)],
)
def test_a_reduction_reads_all_that_it_reduces(function: object) -> None:
    graph = canonical(function, np.ones((400, 500), np.float32))
    program = lower(graph, cuda_schedule(graph), passes=CUDA)
    sizes = {"a0.0": 4000, "a0.1": 6000}
    found = max(estimate(graph, program, NestLaunch(k, 256), sizes, H100).bytes for k in range(len(program.nests)))
    assert 4 * 4000 * 6000 <= found < 1.1 * 4 * 4000 * 6000


def test_doubles_take_longer_where_there_are_few_units_for_them() -> None:
    def long(a: object) -> object:
        for _ in range(40):
            a = a * a + 1.5  # type: ignore[operator]
        return a

    seconds = {}
    for dtype in ("f4", "f8"):
        graph = canonical(long, np.ones((40, 50), dtype))
        program = lower(graph, cuda_schedule(graph), passes=CUDA)
        for on in (GPUS[80], GPUS[86]):
            one = estimate(graph, program, NestLaunch(0, 256), {"a0.0": 4000, "a0.1": 4000}, on)
            seconds[dtype, on.name] = one.seconds
    assert seconds["f8", "A10"] > 4 * seconds["f8", "A100"]
    assert seconds["f4", "A10"] < 3 * seconds["f4", "A100"]
