"""Random programs: what they are made of, that they trace, and that compiled they give NumPy's numbers."""

from __future__ import annotations

import ast
import functools
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.model.generator import BOUNDS, EVERY_KIND, LENGTHS, drawn, is_large, random_program
from hjit.model.generator_sketch import SMALLEST
from hjit.model.generator_stages import KINDS
from tests.trace.test_canonical import canonical

SMALL = 4000  # pixels
LARGE = [seed for seed in range(150) if is_large(seed)]  # programs of all kinds of stages
STENCILS = (
    "stencil",
    "stencil_2d",
    "stencil_pad",
    "separable",
    "stencil_ndimage",
    "order_filter",
    "box",
    "depthwise",
    "bilateral",
)


@functools.cache
def stages_of_graph(seed: int) -> int:
    p = random_program(seed, SMALL)
    return len(canonical(p.function, *p.inputs()).stages)


def listed(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple) else [x]


# -- the text


def test_a_seed_is_a_program() -> None:
    for seed in range(20):
        assert random_program(seed) == random_program(seed)
        assert str(random_program(seed)) == random_program(seed).source
    assert len({random_program(seed).source for seed in range(200)}) == 200


def test_programs_are_as_long_as_they_may_be() -> None:
    lengths = {n: [len(random_program(seed, SMALL, n).stages) for seed in range(40)] for n in (25, 60)}
    assert max(lengths[25]) <= 26 < 40 < max(lengths[60]) <= 61, "the last stage may be a pyramid's"
    assert [random_program(seed, SMALL, 25) for seed in range(40)] == [
        random_program(seed, SMALL) for seed in range(40)
    ]


def test_arguments_are_those_of_a_seed() -> None:
    p = random_program(4, SMALL)
    for a, b in zip(p.inputs(1), p.inputs(1), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(p.inputs(1), p.inputs(2), strict=True))
    assert [(a.shape, str(a.dtype)) for a in p.inputs()] == [(x.shape, x.dtype) for x in p.parameters]


@pytest.mark.parametrize("seed", [*range(0, 200, 10), 88, 89, 176])
def test_every_line_is_needed(seed: int) -> None:
    """What a line computes is read by a later one or returned, and so is every argument.

    In the last ones a variable was named `mean`, and the method of this name was taken for a use of it.
    """
    tree = ast.parse(random_program(seed, SMALL).source)
    names = [x for x in ast.walk(tree) if isinstance(x, ast.Name)]
    made = {x.id for x in names if isinstance(x.ctx, ast.Store)} | {
        x.arg for x in ast.walk(tree) if isinstance(x, ast.arg)
    }
    assert made <= {x.id for x in names if isinstance(x.ctx, ast.Load)} | {"_"}


@pytest.mark.parametrize("start", range(0, 120, 20))
def test_values_are_what_the_sketch_says(start: int) -> None:
    """Shapes, dtypes and bounds; and NumPy does not warn."""
    for seed in range(start, start + 20):
        p, (sketch, _) = random_program(seed, SMALL), drawn(seed, SMALL)
        module = ast.parse(p.source)
        *imports, function = module.body
        assert isinstance(function, ast.FunctionDef)
        scope: dict[str, Any] = {x.name: a for x, a in zip(p.parameters, p.inputs(seed), strict=True)}
        body = ast.Module([*imports, *function.body[:-1]], [])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(compile(body, "body", "exec"), scope)
        for v in sketch.values.values():
            x = np.asarray(scope[v.name])
            assert (x.shape, str(x.dtype)) == (v.shape, v.dtype), f"seed {seed}: {v}"
            slack = 1e-3 * v.most if v.is_float else 1
            assert np.isfinite(x).all() and v.low - slack <= x.min() and x.max() <= v.high + slack, f"seed {seed}: {v}"


def test_weighted_sums_are_of_parts_that_broadcast() -> None:
    """The program of this seed had parts of 1, 8 and 3 channels."""
    p = random_program(613, 1000)
    p.function(*p.inputs())


# -- the distribution


def test_every_kind_occurs() -> None:
    kinds: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for seed in range(300):
        kinds[is_large(seed)].update(random_program(seed).stages)
    assert set(kinds[False]) == {name for name, *_ in KINDS}
    assert set(kinds[True]) == {name for name, *_ in EVERY_KIND}
    assert len({name for name, *_ in EVERY_KIND}) == len(EVERY_KIND), "the name of a kind says which it is"


def test_large_programs_are_some_of_all() -> None:
    assert 0.25 < sum(map(is_large, range(1000))) / 1000 < 0.35
    assert {is_large(seed) for seed in range(0, 60, 2)} == {is_large(seed) for seed in range(1, 60, 2)} == {True, False}


def test_arguments_of_large_programs_may_be_numbers_and_of_other_sizes() -> None:
    programs = [random_program(seed, SMALL) for seed in LARGE]
    assert any(
        isinstance(x, float) and p.low <= x <= p.high
        for program in programs
        for p, x in zip(program.parameters, program.inputs(), strict=True)
        if not p.shape
    )
    small = [p for program in programs for p in program.parameters if p.name.startswith("small")]
    assert small
    assert {p.dtype for p in small} == {"uint8", "float32"}
    for program in programs:
        sides = [max(p.shape) for p in program.parameters if p.name.startswith("small")]
        assert not sides or max(sides) <= max(program.parameters[0].shape) // 2


def test_lengths_layouts_and_dtypes_spread() -> None:
    programs = [random_program(seed) for seed in range(200) if not is_large(seed)]
    lengths = [len(p.stages) for p in programs]
    assert min(lengths) >= LENGTHS[0] and max(lengths) <= LENGTHS[1] + 3 and len(set(lengths)) > 15
    firsts = [p.parameters[0] for p in programs]
    assert {x.dtype for x in firsts} == set(BOUNDS)
    assert {x.axes for x in firsts} == {"hw", "hwc", "chw"}
    assert {sum(bool(x.axes) for x in p.parameters) for p in programs} == {1, 2, 3}
    assert {p.source.splitlines()[-1].count(",") for p in programs} == {0, 1}


def test_images_have_the_size_that_is_asked_for() -> None:
    for seed in range(50):
        for x in (random_program(seed, 40_000).parameters, random_program(seed).parameters):
            assert all(n >= SMALLEST for p in x for axis, n in zip(p.axes, p.shape, strict=False) if axis in "hw")
        p = random_program(seed, 40_000).parameters[0]
        h, w, c = (p.shape[p.axes.index(axis)] if axis in p.axes else 1 for axis in "hwc")
        assert 0.7 < h * w * (c if c > 3 and h * w < 30_000 else 1) / 40_000 < 1.4


def test_graphs_spread_from_one_fused_stage_to_many() -> None:
    counts = [stages_of_graph(seed) for seed in range(75)]
    assert min(counts) == 1 and max(counts) >= 20 and len(set(counts)) > 12
    programs = [random_program(seed, SMALL) for seed in range(75)]
    assert sum(n <= 2 and len(p.stages) >= 4 for n, p in zip(counts, programs, strict=True)) >= 2, (
        "point-wise programs, fused"
    )
    assert (
        sum(n >= 4 and sum(k in STENCILS for k in p.stages) >= 4 for n, p in zip(counts, programs, strict=True)) >= 5
    ), "stencils"


# -- compiling


@pytest.mark.parametrize("start", range(0, 150, 25))
def test_programs_trace(start: int) -> None:
    for seed in range(start, start + 25):
        assert stages_of_graph(seed) >= 1


@pytest.mark.parametrize("start", range(0, 15, 5))
def test_compiled_programs_give_the_numbers_of_numpy(start: int) -> None:
    for seed in range(start, start + 5):
        p = random_program(seed, SMALL)
        args = p.inputs(seed)
        compiled = hjit.pipeline(p.function, verify="off", cache="off")
        for got, expected in zip(listed(compiled(*args)), listed(p.function(*args)), strict=True):
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype), f"seed {seed}\n{p}"
            scale = float(np.abs(expected.astype(np.float64)).max())
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * scale, err_msg=f"seed {seed}\n{p}")
        assert compiled.stats.fallbacks == 0
