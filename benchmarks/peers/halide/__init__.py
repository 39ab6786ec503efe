"""The applications in Halide, one file each: the same algorithm, scheduled by hand or by its autoschedulers.

Every module has ``define(arguments, manual)``: it gets the NumPy arguments that the app's `inputs` made and returns a
`Program`. Halide's axes run the other way round: NumPy's (c, y, x) is Halide's (x, y, c).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import halide as hl
import numpy as np

from benchmarks.peers import Compiled

SCHEDULES = ("manual", "adams2019", "mullapudi2016")
AUTOSCHEDULERS = {"adams2019": "Adams2019", "mullapudi2016": "Mullapudi2016"}


@dataclass(frozen=True)
class Program:
    """An algorithm in Halide.

    Attributes:
        output: the last Func, scheduled by hand if `define` was told to.
        params: the ImageParams, in the order of `arrays`.
        arrays: the NumPy arrays that they read.
        shape: of the NumPy result.
        dtype: of the NumPy result.
    """

    output: hl.Func
    params: Sequence[hl.ImageParam]
    arrays: Sequence[np.ndarray]
    shape: tuple[int, ...]
    dtype: np.dtype


def load(app: str):  # type: ignore[no-untyped-def]
    """The module of an application."""
    return importlib.import_module(f"benchmarks.peers.halide.{app}")


def build(
    app: str, arguments: tuple, schedule: str, threads: int, autoscheduler: dict[str, str] | None = None
) -> Compiled:
    """Compile an application under one of `SCHEDULES`; `autoscheduler`: extra parameters of the autoscheduler."""
    begin = time.perf_counter()
    program = load(app).define(arguments, schedule == "manual")
    target = (
        hl.get_jit_target_from_environment()
        .with_feature(hl.TargetFeature.NoAsserts)
        .with_feature(hl.TargetFeature.NoBoundsQuery)
    )
    pipeline = hl.Pipeline(program.output)
    for param, array in zip(program.params, program.arrays, strict=True):
        for k, n in enumerate(reversed(array.shape)):
            param.dim(k).set_estimate(0, n)
    if schedule != "manual":
        for k, n in enumerate(reversed(program.shape)):
            program.output.set_estimate(program.output.args()[k], 0, n)
        name = AUTOSCHEDULERS[schedule]
        hl.load_plugin(str(Path(hl.__file__).parent / f"lib64/libautoschedule_{schedule}.so"))
        parameters = {"parallelism": str(max(threads, 2))} | (autoscheduler or {})
        pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(name, parameters))
    for param, array in zip(program.params, program.arrays, strict=True):
        param.set(hl.Buffer(array))
    pipeline.compile_jit(target)
    seconds = time.perf_counter() - begin
    last: list[tuple[np.ndarray, hl.Buffer]] = []

    def run(out: np.ndarray, program: Program = program) -> None:  # the program's arrays live as long as this function
        if not last or last[0][0] is not out:
            last[:] = [(out, hl.Buffer(out))]
        pipeline.realize(last[0][1])

    return Compiled(run, program.shape, np.dtype(program.dtype), seconds)
