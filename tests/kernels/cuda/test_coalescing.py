"""What threads would read or write a row apart goes through tiles in shared memory: numbers, barriers, transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hjit
from benchmarks import apps
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.loopir import Barrier
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.passes.staging import coalesce_accesses
from hjit.kernels.lower.program import Program
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.hand.schedule import Schedule
from hjit.sched.language.check import check_tree
from hjit.trace.ir.graph import Graph
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import computed
from tests.kernels.cuda.test_blocks import schedule, statements, without
from tests.kernels.cuda.transactions import Traffic, traffic
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(11)
PLAIN = tuple(p for p in CUDA if p is not coalesce_accesses.coalesce_accesses)
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def along(a: Any) -> Any:
    out = a.copy()
    for x in range(1, a.shape[1]):
        out[:, x] = a[:, x] * 3 - out[:, x - 1] * 2
    return out


def forth_and_back(a: Any) -> Any:
    out = along(a)
    for x in range(a.shape[1] - 2, -1, -1):
        out[:, x] = out[:, x] * 2 - out[:, x + 1]
    return out


def of_order_two(a: Any) -> Any:
    out = a.copy()
    for x in range(2, a.shape[1]):
        out[:, x] = a[:, x - 2] + a[:, x] * 2 - out[:, x - 1] + out[:, x - 2] * 3
    return out


def ahead(a: Any) -> Any:
    """Each iteration reads what later ones will write over."""
    out = a.copy()
    for x in range(1, a.shape[1] - 1):
        out[:, x] = out[:, x - 1] - out[:, x + 1] * 2 + out[:, x]
    return out


def of_bytes(a: Any) -> Any:
    out = a.astype(np.float32)
    for x in range(1, a.shape[1]):
        out[:, x] = a[:, x] * np.float32(0.25) + out[:, x - 1] * np.float32(0.75)
    return out


def into_columns(a: Any) -> Any:
    """Rows are read, columns are written."""
    out = a.swapaxes(0, 1).copy()
    for x in range(1, a.shape[1]):
        out[x] = a[:, x] - out[x - 1] * 2
    return out


def transposed(a: Any) -> Any:
    return np.ascontiguousarray(a.swapaxes(0, 1)) * 2 + 1


def with_its_transpose(a: Any) -> Any:
    n = min(a.shape[:2])
    return a[:n, :n] - a[:n, :n].swapaxes(0, 1) * 3


def first_of_each(a: Any) -> Any:
    return a[:, :1] + np.arange(40, dtype=a.dtype)[None, :] if a.ndim == 2 else a[:, :1] * 2


def of_powers(a: Any, k: Any) -> Any:
    """Rows with coefficients that all have in common."""
    out = a.copy()
    for x in range(1, a.shape[1]):
        out[:, x] = a[:, x] - out[:, x - 1] * k[x]
    return out


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (along, forth_and_back, of_order_two, ahead, into_columns, transposed, with_its_transpose, first_of_each)
}
SHAPES = [(1, 1), (37, 2), (70, 33), (65, 130), (37, 29, 3)]


@needs_device
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_are_numpys(name: str, on_device: None) -> None:
    f = hjit.pipeline(FUNCTIONS[name], target="cuda", verify="off")
    for dtype, shapes in (("f4", SHAPES), ("u1", SHAPES[-1:]), ("f8", SHAPES[3:4]), ("i2", SHAPES[3:4])):
        for shape in shapes:
            a = RNG.integers(0, 5, shape).astype(dtype)
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(f(a), f.py_func(a), err_msg=f"{dtype} {shape}")


@needs_device
def test_arguments_of_other_layouts(on_device: None) -> None:
    f = hjit.pipeline(of_bytes, target="cuda", verify="off")
    a = RNG.integers(0, 255, (70, 90)).astype(np.uint8)
    for x in (a, a[::-1, ::-1], a[::2, 1::3], np.asfortranarray(a), a[:, :0], a[:0]):
        np.testing.assert_array_equal(f(x), of_bytes(x))
    g = hjit.pipeline(of_powers, target="cuda", verify="off")
    b, k = RNG.integers(0, 5, (2, 70, 90))
    np.testing.assert_array_equal(g(b, k[0]), of_powers(b, k[0]))
    h = hjit.pipeline(along, target="cuda", verify="off")
    c = RNG.integers(0, 5, (70, 90)) + 1j * RNG.integers(0, 5, (70, 90))
    np.testing.assert_array_equal(h(c), along(c))


# -- the loops


def loops(function: Any, a: Any, passes: Any = CUDA) -> tuple[Graph, Program]:
    graph = canonical(function, a, target="cuda")
    tree = cuda_schedule(graph)
    check_tree(tree, graph, "cuda")
    return graph, lower(graph, tree, passes=passes)


def sizes_of(graph: Graph, *shape: int) -> dict[str, int]:
    (name,) = (i.name for i in graph.inputs)
    return {f"{name}.{k}": n for k, n in enumerate(shape)}


GRAY, RGB = np.ones((40, 50), np.float32), np.ones((40, 50, 3), np.float32)
TILED: dict[str, tuple[Any, Any]] = {
    "along rows": (along, GRAY),
    "both ways": (forth_and_back, GRAY),
    "two before": (of_order_two, GRAY),
    "old values": (ahead, GRAY),
    "channels": (along, RGB),
    "narrow elements": (of_bytes, GRAY.astype(np.uint8)),
    "rows into columns": (into_columns, GRAY),
    "a transpose": (transposed, GRAY),
    "an argument in Fortran's order": (lambda a: np.ascontiguousarray(a) * 2, np.asfortranarray(GRAY)),
}


def all_traffic(graph: Graph, program: Program) -> list[Traffic]:
    sizes = sizes_of(graph, 100, 131)
    return [traffic(graph, program, k, sizes, block=1) for k in range(len(program.nests))]


@pytest.mark.parametrize("case", TILED)
def test_warps_touch_whole_sectors(case: str) -> None:
    graph, program = loops(*TILED[case])
    _, plain = loops(*TILED[case], passes=PLAIN)
    assert any("tile" in name for name in program.buffers)
    before, after = (max(all_traffic(graph, p), key=lambda t: t.sectors) for p in (plain, program))
    assert after.sectors * 1.5 < before.sectors and after.efficiency > 0.6, (before, after)
    assert after.passes < 2 * after.accesses


@pytest.mark.parametrize("case", TILED)
def test_without_any_of_its_barriers_there_is_a_race(case: str) -> None:
    graph, program = loops(*TILED[case])
    sizes = sizes_of(graph, 70, 75)
    assert not list(races(program, sizes))
    tiled = [n for n in program.nests if any("tile" in name for name in n.buffers)]
    assert tiled
    for nest in tiled:
        barriers = len(statements(Program((nest,)), Barrier))
        missing = [Program((replace(nest, body=without(nest.body, k)),), program.layouts) for k in range(barriers)]
        idle = [k for k, broken in enumerate(missing) if not list(races(broken, sizes))]
        # a thread copies into a tile just where it copied out of it before: the names of memory do not tell
        assert idle == ([0] if case == "both ways" and nest is tiled[-1] else [])


@needs_device
@pytest.mark.parametrize("case", ["along rows", "old values", "a transpose"])
def test_without_any_of_its_barriers_the_numbers_are_others(case: str) -> None:
    function, _ = TILED[case]
    image = RNG.integers(0, 3, (70, 75)).astype(np.float32)
    graph, program = loops(function, image)
    np.testing.assert_array_equal(computed(graph, program, image), function(image))
    tiled = {k: n for k, n in enumerate(program.nests) if any("tile" in name for name in n.buffers)}
    caught = 0
    for k, nest in tiled.items():
        for b in range(len(statements(Program((nest,)), Barrier))):
            broken = replace(nest, body=without(nest.body, b))
            nests = (*program.nests[:k], broken, *program.nests[k + 1 :])
            caught += not np.array_equal(computed(graph, Program(nests, program.layouts), image), function(image))
    assert caught


def test_what_is_read_side_by_side_has_no_tiles() -> None:
    for function in (lambda a: a.cumsum(axis=0) * 2, lambda a: a[::2] + a[:1], lambda a: a - a[:, :1]):
        _, program = loops(function, GRAY)
        assert not program.buffers


def test_rows_by_hand() -> None:
    """A recurrence in strips: threads inside the loop over strips."""

    def strips(s: Schedule) -> None:
        (out,) = s.stages
        s[out].update(1).split("r0", "r0", "column", 16).split("x", "x", "row", 32)
        s[out].update(1).reorder("x", "r0", "row", "column").gpu_blocks("x").gpu_threads("row")

    graph = canonical(along, GRAY, target="cuda")
    program = lower(graph, schedule(graph, strips), passes=CUDA)
    assert [b.lengths[0].const for b in program.buffers.values()] == [32, 32]


def test_tiles_are_no_more_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce_accesses, "MAX_BYTES", 9000)
    _, program = loops(along, GRAY)
    assert [b.lengths[0].const for b in program.buffers.values()] == [64]  # of what it writes, and not of what it reads
    monkeypatch.setattr(coalesce_accesses, "MAX_BYTES", 1000)
    _, program = loops(along, GRAY)
    assert not program.buffers


@needs_nvrtc
@pytest.mark.parametrize("capability", [75, 90])
def test_kernels_compile_without_spills(capability: int) -> None:
    m = apps.load("iir_blur")
    for function, a in (*TILED.values(), (m.iir_blur, m.inputs(RNG, m.SMALL)[0])):
        graph, program = loops(function, a)
        made = nvrtc.compiled(emit_module(graph, program, "hj_rows").text, capability)
        assert not made.spilling()
        assert all(r.stack == 0 for r in made.resources.values())
