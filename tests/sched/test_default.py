"""What the default schedule decides on."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.model.generator import random_program
from hjit.sched.default.schedules import default_schedule, lanes_across
from hjit.sched.default.thresholds import JAM_ROWS, MAX_WARM_UP, MIN_STRIP
from hjit.sched.language.check import check_tree
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Loop, computes, walk
from hjit.sched.nests.root_nests import RootNests, vector_lanes
from hjit.sched.nests.thresholds import SCAN_ROWS, STRIP_VECTORS, TRANSPOSE_LANES, TRANSPOSE_ROWS
from hjit.training.cases import leaves
from tests.numpy_check import check, image
from tests.trace.test_canonical import canonical


def loops(f: Any, *args: Any) -> list[Loop]:
    """The loops of the default schedule, outermost first."""
    (root,) = hjit.pipeline(f, cache="off").tree(*args)
    return [n for n in walk(root) if isinstance(n, Loop)]


READ_ACROSS = {
    "copy": lambda a: np.ascontiguousarray(a.T),
    "turned": lambda a: np.ascontiguousarray(np.rot90(a)),
    "both ways": lambda a: a[:90, :90] * 2 + a[:90, :90].T,
    "differences": lambda a: np.ascontiguousarray((a[1:] - a[:-1]).T),
    "of each picture": lambda a: np.ascontiguousarray(np.swapaxes(a.reshape(3, -1, 100), 1, 2)),
    "pixels": lambda a: np.ascontiguousarray(np.swapaxes(a[:, :99].reshape(120, 33, 3), 0, 1)),
}


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("name", READ_ACROSS)
def test_what_is_read_across_is_computed_in_tiles(name: str, dtype: str) -> None:
    f, a = READ_ACROSS[name], image((120, 100), dtype)
    found = loops(f, a)
    vector = next(n for n in found if n.kind == "vector")
    assert vector.size is not None
    assert vector.size <= TRANSPOSE_LANES
    assert any(n.size == TRANSPOSE_ROWS and n.dim != vector.dim and n.kind == "serial" for n in found)
    check(f, a)


@pytest.mark.parametrize("shape", [(1, 1), (5, 200), (31, 33), (64, 17), (200, 5)])
@pytest.mark.parametrize("name", ["copy", "turned", "differences"])
def test_tiles_end_where_the_picture_does(name: str, shape: tuple[int, int]) -> None:
    check(READ_ACROSS[name], image(shape, "float32"))


@pytest.mark.parametrize(
    "f",
    [
        lambda a: a * 2,
        lambda a: a.T * 2,
        lambda a: a[:, ::-1] + 1,
        lambda a: a + a[:, :1],
        lambda a: np.ascontiguousarray(np.moveaxis(a[:, :99].reshape(120, 33, 3), 2, 0)),
    ],
    ids=range(5),
)
def test_what_is_read_along_its_rows_has_no_tiles(f: Any) -> None:
    assert not any(n.size for n in loops(f, image((120, 100), "float32")) if n.kind != "vector")


def window(a: Any, rows: int, columns: int) -> Any:
    """Sums over a window, as they are written by hand."""
    total: Any = 0
    for y in range(rows):
        for x in range(columns):
            total = total + a[..., y : a.shape[-2] - rows + 1 + y, x : a.shape[-1] - columns + 1 + x]
    return total


def padded(a: Any, mode: Any) -> Any:
    return window(np.pad(a, 1, mode=mode), 3, 3) / 9


STENCILS = {
    "window": lambda a: window(a, 3, 3),
    "large window": lambda a: window(a, 5, 5) / 25,
    "column": lambda a: window(a, 9, 1),
    "edge": lambda a: padded(a, "edge"),
    "reflect": lambda a: padded(a, "reflect"),
    "planes": lambda a: window(a.reshape(3, -1, a.shape[1]), 3, 3),
    "two results": lambda a: (window(a, 3, 3), window(a[:, ::-1], 4, 2)),
}


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32"])
@pytest.mark.parametrize("name", ["window", "column"])
def test_rows_of_all_types_run_together(name: str, dtype: str) -> None:
    f = STENCILS[name]
    found = loops(f, image((120, 96), dtype))
    assert any(n.kind == "unroll" and n.size == JAM_ROWS for n in found)
    for shape in ((12, 5), (13, 301), (37, 96)):
        check(f, image(shape, dtype), exact=dtype != "float32")


@pytest.mark.parametrize("name", STENCILS)
def test_rows_of_a_stencil_run_together(name: str) -> None:
    f = STENCILS[name]
    found = loops(f, image((120, 96), "float32"))
    assert any(n.kind == "unroll" and n.size == JAM_ROWS for n in found)
    for shape in ((120, 96), (15, 17), (18, 200), (30, 5), (33, 70)):
        check(f, image(shape, "float32"))
        check(f, image(shape, "float64"), num_threads=1)


@pytest.mark.parametrize("f", [
    lambda a: window(np.exp(a), 3, 3),
    lambda a: (soft := window(a, 9, 1))[:, 2:] * soft[:, :-2] - soft[:, 1:-1] / 3,
    lambda a: window(np.sqrt(np.abs(window(np.pad(a, 4, mode="reflect"), 9, 1))), 3, 3),
], ids=["the last", "one of them", "several"])  # fmt: skip
def test_rows_of_a_group_run_together_where_it_has_a_stencil(f: Any) -> None:
    p = hjit.pipeline(f, tune=False)
    a = image((120, 96), "float32")
    assert str(p.tree(a)).count("parallel") == 1, "one group"
    assert any(n.size == JAM_ROWS for n in loops(f, a))
    for shape in ((120, 96), (15, 17), (18, 200), (30, 9), (33, 70)):
        check(f, image(shape, "float32"), exact=False)
        check(f, image(shape, "float64"), exact=False, num_threads=1)


def likeness(a: Any, turn: Any = lambda x: x) -> Any:
    """How alike a picture is to itself in many other places."""
    wide = a.shape[1] - 24
    total: Any = 0
    for dx in range(24):
        apart = turn(np.sqrt(np.abs(a[:, dx : dx + wide] - a[:, :wide])))
        total = total + np.exp(-sum(apart[k : k + a.shape[0] - 8] for k in range(9)))
    return total


def loops_for(f: Any, target: Target, *args: Any) -> list[Loop]:
    """The loops of the default schedule for a target."""
    return [n for n in walk(default_schedule(canonical(f, *args), target)) if isinstance(n, Loop)]


def test_a_group_with_long_windows_is_computed_in_strips_of_columns() -> None:
    found = loops_for(likeness, Target(64), image((60, 90), "float32"))
    assert [n.kind for n in found[:2]] == ["parallel", "parallel"] and found[0].dim != found[1].dim
    (strip,) = (
        n.size for n in found if n.dim == found[0].dim and n.kind == "serial" and n.stage == found[0].stage and n.size
    )
    assert strip == 256  # of 24 stages with 16 rows of 4 bytes each
    for shape in ((60, 90), (9, 25), (20, 280), (33, 700)):
        check(likeness, image(shape, "float32"), exact=False)
    check(likeness, image((60, 600), "float32"), exact=False, num_threads=1)


@pytest.mark.parametrize(
    ("l2_bytes", "columns"), [(1 << 10, MIN_STRIP), (512 << 10, 128), (1 << 20, 256), (4 << 20, 256)]
)
def test_strips_stay_in_the_second_cache(l2_bytes: int, columns: int) -> None:
    found = loops_for(likeness, Target(64, l2_bytes=l2_bytes), image((60, 90), "float32"))
    sizes = {n.size for n in found if n.kind == "serial" and n.size and n.size >= MIN_STRIP}
    assert sizes == {columns}


@pytest.mark.parametrize(
    "f",
    [
        lambda a: likeness(a, lambda x: x[:, ::-1]),  # a strip would need other columns
        lambda a: likeness(a, lambda x: x - np.max(x, axis=1, keepdims=True)),  # and all of them
        lambda a: window(np.sqrt(np.abs(a)), 9, 3),  # its windows are near in any case
    ],
    ids=range(3),
)
def test_other_groups_are_not(f: Any) -> None:
    found = [n for n in loops(f, image((60, 90), "float32")) if n.kind in ("parallel", "serial")]
    assert not any(n.size and n.size >= MIN_STRIP for n in found)
    check(f, image((30, 290), "float32"), exact=False)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: window(a, 1, 12),  # one row
        lambda a: window(a, 3, 2),  # few loads
        lambda a: window(a[::4], 3, 3),  # rows apart
        lambda a: window(a, 12, 12),  # much code
    ],
    ids=range(4),
)
def test_other_rows_run_by_themselves(f: Any) -> None:
    assert not any(n.kind == "unroll" and n.size == JAM_ROWS for n in loops(f, image((120, 96), "float32")))


def sharpened_pyramid(img: Any) -> Any:
    levels = [img]
    for _ in range(6):
        levels.append(levels[-1][::2, ::2] * 0.5)
    found = levels.pop()
    while levels:
        fine = levels.pop()
        h, w = fine.shape
        p = np.pad(found, 1, mode="edge")
        soft = p[:-2, 1:-1] + 2 * p[1:-1, 1:-1] + p[2:, 1:-1]
        found = np.sqrt(np.abs(np.repeat(np.repeat(soft, 2, 0), 2, 1)[:h, :w] - fine))
    return found


def down_rows(a: Any) -> Any:
    out = a.copy()
    for y in range(1, len(a)):
        out[y] = a[y] + 0.5 * out[y - 1]
    return out


def down_planes(a: Any) -> Any:
    """Planes, of which each has its own tasks."""
    out = a.reshape(3, -1, a.shape[1]).copy()
    for y in range(1, out.shape[1]):
        out[:, y] = out[:, y] + 0.5 * out[:, y - 1]
    return out


def along_rows(a: Any) -> Any:
    """Lanes read far apart, but do not wait for each other."""
    out = np.ascontiguousarray(a.T)
    for x in range(1, len(out)):
        out[x] = a[:, x] + 0.5 * out[x - 1]
    return out


@pytest.mark.parametrize("f", [down_rows, down_planes, along_rows])
def test_strips_of_a_scan_are_tasks(f: Any) -> None:
    a = image((120, 700), "float32")
    found = loops(f, a)
    strip = next(k for k, n in enumerate(found) if n.size is not None and n.kind == "serial")
    dim, vector = found[strip].dim, found[strip + 1]
    assert any(n.dim == dim and n.kind == "parallel" for n in found[:strip])
    assert vector.dim == dim and vector.kind == "vector" and found[strip].size == STRIP_VECTORS * (vector.size or 1)
    for shape in ((120, 700), (3, 1), (6, 255), (30, 257)):
        check(f, image(shape, "float32"))


def box_filter(a: Any) -> Any:
    total = np.cumsum(a, axis=1)
    return np.sqrt(total[:, 8:] - total[:, :-8])


def up_and_down(a: Any) -> Any:
    """Sums to both sides; a row needs its own elements only."""
    return np.cumsum(a, axis=1) + np.cumsum(a[:, ::-1], axis=1)[:, ::-1]


def rows_of_sums(a: Any) -> Any:
    total = np.maximum.accumulate(a, axis=1)
    return total[4:] - total[:-4]


@pytest.mark.parametrize("f", [box_filter, up_and_down, rows_of_sums])
def test_scans_along_rows_are_computed_a_few_rows_at_a_time_with_what_reads_them(f: Any) -> None:
    p = hjit.pipeline(f, tune=False)
    a = image((120, 96), "float32")
    (root,) = p.tree(a)
    assert len(root.children) == 1, "one group"
    scans = [n for n in walk(root) if isinstance(n, Loop) and n.kind == "unroll" and n.size == SCAN_ROWS]
    head = root.children[0].stage
    assert scans and any(n.stage == head and n.size == JAM_ROWS for n in walk(root) if isinstance(n, Loop)), (
        "several scans go on at once"
    )
    for shape in ((120, 96), (9, 17), (18, 200), (31, 9)):
        check(f, image(shape, "float32"), exact=False)
        check(f, image(shape, "float64"), exact=False, num_threads=1)


def filtered(a: Any) -> Any:
    """Down the columns of the turned picture: its lanes are the rows of the result."""
    turned = np.exp(-a.T)
    out = turned.copy()
    for y in range(1, len(out)):
        out[y] = turned[y] * 0.5 + out[y - 1] * 0.5
    return np.ascontiguousarray(out.T)


def test_what_a_tile_reads_across_is_computed_for_its_rows() -> None:
    p = hjit.pipeline(filtered, tune=False)
    (root,) = p.tree(image((120, 100), "float32"))
    head = root.children[-1]
    found = [n for n in walk(head) if isinstance(n, Loop)]
    assert {n.stage for n in found} > {head.stage}, "the scan is in its nest"
    assert any(n.stage == head.stage and n.size == TRANSPOSE_ROWS for n in found)
    assert [n.kind for n in found].count("parallel") == 1
    for shape in ((120, 100), (31, 33), (1, 40), (65, 9), (200, 130)):
        check(filtered, image(shape, "float32"), exact=False)
        check(filtered, image(shape, "float64"), exact=False, num_threads=1)


def test_it_is_known_how_many_rows_a_scan_computes_at_once() -> None:
    """A head that computes fewer in an iteration would leave lanes without work."""
    for f, along_last in ((down_rows, 16), (lambda a: np.cumsum(a, axis=1), 1)):
        (graph,) = hjit.pipeline(f, tune=False).schedule(image((120, 96), "float32")).graphs()
        (s,) = graph.stages
        found = [lanes_across(s, RootNests(graph, Target(64))[s.name], axis) for axis in (0, 1)]
        assert found == [1, along_last]


def test_tasks_do_not_begin_long_before_their_rows() -> None:
    img = image((512, 384), "float32")
    f = check(sharpened_pyramid, img, exact=False, num_threads=2)
    early = [int(n) for n in re.findall(r"begin - (\d+)", str(f.loops(img)))]
    assert early and max(early) <= MAX_WARM_UP


def test_producers_of_an_update_are_computed_in_its_nest() -> None:
    def binned(a: Any) -> Any:
        levels = np.clip(np.sqrt(np.abs(a)) * 4, 0, 15).astype(np.int64)
        cells = np.zeros((a.shape[0] // 8, a.shape[1] // 8, 16), np.float32)
        np.add.at(cells, (np.arange(a.shape[0])[:, None] // 8, np.arange(a.shape[1]) // 8, levels), a)
        return cells

    a = image((400, 320), "float32")
    (root,) = check(binned, a, num_threads=2).tree(a)
    (cells,) = root.children
    first, second = cells.children
    assert {c.stage for c in computes(first)} == {cells.stage}
    assert {c.stage for c in computes(second)} > {cells.stage}


def test_small_dimensions_are_unrolled_as_far_as_schedules_may() -> None:
    def f(a: Any) -> Any:
        return np.pad(a[:4, :4, :4, :3], [(0, 0), (0, 0), (0, 0), (3, 0)], mode="wrap")

    a = np.arange(6.0**4).reshape(6, 6, 6, 6)
    assert [x.kind for x in loops(f, a)][1:] == ["unroll"] * 3, "384 copies would be too many"
    assert loops(f, a)[0].kind != "unroll"
    check(f, a)


def weighted_means(img: Any) -> Any:
    """Of each plane, with weights that all planes share: too much code for planes to be unrolled."""
    height, width = img.shape[1] - 6, img.shape[2] - 6
    total, norm = np.zeros((3, height, width), img.dtype), np.zeros((height, width), img.dtype)
    for dy in range(7):
        for dx in range(7):
            shifted = img[:, dy : dy + height, dx : dx + width]
            r, g, b = img[:, 3:-3, 3:-3] - shifted
            weight = np.exp(-(r * r + g * g + b * b))
            total += weight * shifted
            norm += weight
    return total / norm


def test_what_planes_share_is_computed_row_by_row_with_them() -> None:
    planes = np.random.default_rng(0).random((3, 300, 70), np.float32)
    f = hjit.pipeline(weighted_means, cache="off", verify="off", tune=False, num_threads=2)
    (root,) = f.tree(planes)
    assert len(root.children) == 1 and len({c.stage for c in computes(root)}) == 51
    np.testing.assert_allclose(f(planes), weighted_means(planes), rtol=1e-5)
    assert 0 < f.stats.scratch_bytes < planes.nbytes, "rows, not 49 images"


def filtered_and_cropped(a: Any) -> Any:
    smooth = np.sqrt((a[:-2] + 2 * a[1:-1] + a[2:]) / 4)
    p = np.pad(smooth, 2, mode="reflect")
    total = sum((dy + 1) * p[dy : dy + smooth.shape[0], 2 : 2 + smooth.shape[1]] for dy in range(5))
    return total[40:-30, 20:-25]


def test_what_large_crops_read_is_computed_in_rows() -> None:
    a = image((300, 200), "float32")
    f = hjit.pipeline(filtered_and_cropped, cache="off", verify="off", tune=False, num_threads=2)
    np.testing.assert_array_equal(f(a), filtered_and_cropped(a))
    assert 0 < f.stats.scratch_bytes < a.nbytes / 4, "rows, although offsets of 40 and lengths less 70 are numbers"


LINES = {
    "a sum": lambda a: a + 1,
    "a stencil": lambda a: window(a, 2, 3),
    "a sum over planes": lambda a: a.reshape(4, -1, a.shape[1]).sum(0),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_an_iteration_computes_a_line_of_memory(name: str, dtype: str, vector_bytes: int) -> None:
    a = image((120, 96), dtype)
    graph = canonical(LINES[name], a)
    s, target = graph.stages[-1], Target(vector_bytes)
    (node,) = RootNests(graph, target)[s.name]
    vectors = [x for x in walk(node) if isinstance(x, Loop) and x.kind == "vector"]
    for x in vectors:
        assert (
            isinstance(x.dim, int) and x.size == vector_lanes(s, s.definitions[-1], target, x.dim) * 64 // vector_bytes
        )
    assert len(vectors) == 1


OF_A_REGISTER = {
    "gathers": lambda a: np.sqrt(np.arange(256, dtype=np.float32))[(a * 255).astype(np.uint8)],
    "a scan": down_rows,
    "read across": lambda a: np.ascontiguousarray(a.T),
    "a product": lambda a: a @ a.T,
}


@pytest.mark.parametrize("name", OF_A_REGISTER)
def test_where_two_vectors_gain_nothing_an_iteration_computes_one(name: str) -> None:
    a = image((120, 120), "float32")
    graph = canonical(OF_A_REGISTER[name], a)
    s = graph.stages[-1]
    found = [
        x.size
        for node in RootNests(graph, Target(32))[s.name]
        for x in walk(node)
        if isinstance(x, Loop) and x.kind == "vector"
    ]
    assert found and (set(found[1:]) or set(found)) == {8}


def test_what_copies_share_counts_once_as_code() -> None:
    """Weights that all planes share are no more code for three planes than for one."""

    def f(img: Any) -> Any:
        total = np.zeros((3, img.shape[1], img.shape[2] - 40), img.dtype)
        for k in range(40):
            total += (
                np.sqrt(img[0, :, k : k - 40] + img[1, :, k : k - 40] * img[2, :, k : k - 40]) * img[:, :, k : k - 40]
            )
        return total

    planes = np.random.default_rng(0).random((3, 30, 120), np.float32)
    assert any(x.kind == "unroll" and x.dim == 0 for x in loops(f, planes))
    check(f, planes, exact=False)


def layer(x: Any, w: Any, b: Any) -> Any:
    return np.maximum(x @ w + b, 0)


def neighbours(x: Any, w: Any, b: Any) -> Any:
    total = np.zeros((*x.shape[:2], x.shape[2] - 1, w.shape[1]), x.dtype)
    for k in range(2):
        total += x[:, :, k : x.shape[2] - 1 + k] @ w
    return np.where(total > 0, total, total * 0.1) + b


@pytest.mark.parametrize("shape", [(5, 40, 60, 33, 70), (5, 9, 13, 8, 64), (3, 2, 7, 1, 17), (20, 3, 30, 50, 100)])
@pytest.mark.parametrize("f", [layer, neighbours])
def test_what_sums_of_products_are_for_is_computed_in_tiles_of_their_blocks(f: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    n, h, w, inner, outer = shape
    given = [rng.standard_normal(s, np.float32) for s in ((n, h, w, inner), (inner, outer), (outer,))]
    g = hjit.pipeline(f, cache="off", tune=False, blas=False)
    assert len(g.tree(*given)[0].children) == 1 or inner < 8
    np.testing.assert_allclose(g(*given), f(*given), rtol=1e-5, atol=1e-5 * inner)


@pytest.mark.parametrize(
    ("vector_bytes", "columns", "rows", "vectors"),
    [(64, 16, 16, 1), (64, 99, 6, 4), (32, 8, 10, 1), (32, 16, 5, 2), (32, 99, 5, 2)],
)
def test_batches_of_products_are_loops_around_blocks_of_accumulators(
    vector_bytes: int, columns: int, rows: int, vectors: int
) -> None:
    """Four images are few enough to be unrolled as planes are, and each accumulator would wait for its sum of before."""
    x, w = image((4, 20, 30, 40), "float32"), image((40, columns), "float32")
    found = [n for n in loops_for(lambda x, w: x @ w, Target(vector_bytes), x, w) if n.kind == "unroll"]
    lanes = vector_bytes // 4
    assert [(n.dim, n.size) for n in found] == [(2, rows), (3, vectors * lanes)]


def test_products_that_are_read_elsewhere_too_are_computed_by_themselves() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 20, 60, 33), np.float32), rng.standard_normal((33, 70), np.float32)
    for f in (
        lambda x, w: (x @ w, np.exp(x @ w)),
        lambda x, w: (x @ w)[:, 1:] - (x @ w)[:, :-1],
        lambda x, w: (x @ w)[::-1] * 2,
    ):
        g = hjit.pipeline(f, cache="off", tune=False, blas=False)
        assert len(g.tree(x, w)[0].children) > 1
        for ours, theirs in zip(leaves(g(x, w)), leaves(f(x, w)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "parallel"),
    [((5, 100, 120, 128), [0, 1]), ((100, 5, 120, 128), [0, 1]), ((7, 3000), [0]), ((200, 300, 40), [0])],
)
def test_loops_in_a_parallel_one_of_few_iterations_are_parallel_too(
    shape: tuple[int, ...], parallel: list[int]
) -> None:
    f = lambda a: np.sqrt(a) + 1  # noqa: E731
    a = np.abs(image(shape, "float32"))
    assert [n.dim for n in loops(f, a) if n.kind == "parallel"] == (parallel if shape[0] < 16 else [0])
    check(f, a)


@pytest.mark.parametrize("seed", [1, 11, 12, 30])
@pytest.mark.parametrize("vector_bytes", [32, 64])
def test_default_schedules_of_random_programs_are_legal(seed: int, vector_bytes: int) -> None:
    """1 and 11: rows of pixels, which are not what vectors run along."""
    program = random_program(seed, 100 * 100)
    graph = canonical(program.function, *program.inputs(seed))
    check_tree(default_schedule(graph, Target(vector_bytes=vector_bytes)), graph)


@pytest.mark.parametrize(("channels", "lanes"), [(8, 8), (12, 8), (15, 8), (16, 16)])
def test_lanes_along_a_few_channels_are_as_many_as_there_are(channels: int, lanes: int) -> None:
    a = np.random.default_rng(0).random((5, 6, channels)).astype(np.float32)
    f = hjit.pipeline(lambda a: np.exp(-np.abs(a)) * 0.5, cache="off", target="x86-64-v4")
    assert re.findall(r"vector \w+\.d2 of (\d+)", str(f.tree(a))) == [str(lanes)]
