"""``python -m benchmarks ranges``: is what the cost model is trained on as wide as the applications are?

The network does not extrapolate: what is beyond the range of its training set counts as what is at the end of it (see
`hjit.model.fit.limits`). So each feature of each stage of the applications, under their default schedules, should lie
within the range that it has over stages of generated programs, on images of the sizes of a training. A row has the
range of one feature, and the applications that leave it, with how far. The features of a definition alone
(`hjit.model.feature_names.PIPELINE`) have rows, too. Nothing is compiled or timed.

A fit leaves a few stages of the training set out of its limits, too: `limited` has what lies beyond what it would set
for these programs. A training has more schedules of each program, and so wider limits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import apps
from hjit.model.feature_names import PIPELINE, SCHEDULE

PROGRAMS, SEED = 200, 5_000_000  # generated programs: none of these seeds is used for training or tests
WALKED, MOVES = 16, 8  # stages of a Graph at most, of which another schedule is looked at, and how far that one is
FEATURES = (*SCHEDULE, *PIPELINE)
SLACK = 1e-6  # of a feature
SMALL = 4000  # pixels of the images of tests
TOGETHER, LIMIT = 8, 400.0  # programs of one process, and its seconds

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outside:
    """A feature of an application that programs do not have.

    Attributes:
        most: the number furthest from the range.
        stages: how many there are beyond it.
    """

    app: str
    most: float
    stages: int


def features(function: Callable[..., Any], arguments: Sequence[Any], walk: int | None = None) -> Any:
    """The features of each stage under the default schedule, [stages, len(FEATURES)].

    Args:
        walk: a seed, for the stages of a schedule near to that one as well, where there are few stages.

    Raises:
        HjitError: the function cannot be traced.
    """
    from hjit.model import network
    from hjit.options import Options
    from hjit.pipeline import Pipeline
    from hjit.sched.default.schedules import default_schedule
    from hjit.sched.search.refine import Schedule, random_walk
    from hjit.training.cases import segment_of
    from hjit.tuning.autoschedule import space_of

    given: dict[str, Any] = {"cache": "off", "verify": "off", "tune": False, "blas": False}
    options = Options(**given)
    variant = Pipeline(function, given).variant_of(tuple(arguments), {}, options)
    found = []
    for graph in variant.graphs:
        space = space_of(segment_of(graph, options), variant.rec.sizes, options, network.random(0))
        schedules = [Schedule(default_schedule(graph, space.target), frozenset())]
        if walk is not None and len(graph.stages) <= WALKED:
            rng = random.Random(walk)
            schedules.append(random_walk(space, schedules[0], rng.randint(1, MOVES), rng))
        for x in schedules:
            found.append(np.concatenate([space.features(x.tree, x.inlined), space.nests.pipeline], 1))
    return np.concatenate([np.zeros((0, len(FEATURES))), *found])


def of_application(name: str, small: bool) -> Any:
    """The features of an application's stages, [stages, len(FEATURES)]."""
    module = apps.load(name)
    arguments = module.inputs(np.random.default_rng(0), module.SMALL if small else module.SHAPE)
    return features(getattr(module, name), arguments)


def of_program(seed: int, pixels: int | None = None) -> Any:
    """The features of a generated program's stages, [stages, len(FEATURES)]; on one of the sizes of its training."""
    from hjit.model.generator import random_program
    from hjit.training.programs import sizes

    program = random_program(seed, random.Random(seed).choice(sizes(seed)) if pixels is None else pixels)
    return features(program.function, program.inputs(seed), walk=seed)


def limits(rows: Any) -> tuple[Any, Any]:
    """What the features of stages lie between but for the few that a fit leaves out, [len(FEATURES)] each."""
    from hjit.model.fit import FEW

    low, high = np.quantile(rows, (FEW, 1 - FEW), axis=0)
    return low, high


def outside(low: float, high: float, values: Mapping[str, Any]) -> list[Outside]:
    """The applications of which a feature, [stages] each, leaves a range."""
    found = []
    for app, x in values.items():
        beyond = (x > high + SLACK * abs(high)) | (x < low - SLACK * abs(low))
        if beyond.any():
            most = x[beyond][np.argmax(np.maximum(x[beyond] - high, low - x[beyond]))]
            found.append(Outside(app, float(most), int(beyond.sum())))
    return found


def compared(programs: Any, applications: Mapping[str, Any]) -> list[Row]:
    """A row for each feature; `programs`: [stages, len(FEATURES)] of all together, `applications`: of each one."""
    lows, highs = programs.min(0), programs.max(0)
    limited = limits(programs)
    rows = []
    for k, name in enumerate(FEATURES):
        values = {app: x[:, k] for app, x in applications.items()}
        rows.append(
            {
                "feature": name,
                "low": float(lows[k]),
                "high": float(highs[k]),
                "most": max((float(x.max()) for x in values.values() if len(x)), default=math.nan),
                "outside": [vars_of(x) for x in outside(lows[k], highs[k], values)],
                "limited": [vars_of(x) for x in outside(limited[0][k], limited[1][k], values)],
            }
        )
    return rows


def vars_of(x: Outside) -> Row:
    """As JSON has it."""
    return {"app": x.app, "most": x.most, "stages": x.stages}


def run(
    names: Sequence[str] = apps.NAMES,
    *,
    count: int = PROGRAMS,
    first: int = SEED,
    small: bool = False,
    show: Callable[[str], None] = lambda line: None,
) -> Row:
    """All numbers, under the names of the JSON file.

    Args:
        count, first: of generated programs.
        small: at the sizes of tests.
        show: called with what cannot be traced, or takes too long.
    """
    from benchmarks.children import reported
    from benchmarks.suite import about
    from hjit.kernels.runtime.launch import cores

    applications = {name: of_application(name, small) for name in names}
    found = [np.zeros((0, len(FEATURES)))]
    refused = []
    for k in range(0, count, TOGETHER):  # in processes of their own: some take gigabytes
        seeds = list(range(first + k, first + min(k + TOGETHER, count)))
        answer = reported("benchmarks.ranges", [seeds, small], cores(), LIMIT)
        if "error" in answer:
            answer = {"rows": [], "refused": dict.fromkeys(map(str, seeds), answer["error"])}
        for seed, why in answer["refused"].items():
            refused.append(int(seed))
            show(f"{seed}: {why}")
        found.append(np.array(answer["rows"]).reshape(-1, len(FEATURES)))
    rows = compared(np.concatenate(found), applications)
    return {
        **about(),
        "programs": count - len(refused),
        "stages": sum(map(len, found)),
        "refused": refused,
        "rows": rows,
    }


def table(numbers: Row) -> str:
    """The rows of features that an application has outside of the range, and how many there are in all."""
    lines = [f"{'feature':<40}{'programs have':>24}  outside"]
    left = [r for r in numbers["rows"] if r["outside"]]
    for r in left:
        names = ", ".join(f"{x['app']} {x['most']:.4g} ({x['stages']} stages)" for x in r["outside"])
        lines.append(f"{r['feature']:<40}{r['low']:>12.4g}{r['high']:>12.4g}  {names}")
    inside = [sum(not r["outside"] for r in numbers["rows"] if r["feature"] in x) for x in (SCHEDULE, PIPELINE)]
    limited = sum(not r["limited"] for r in numbers["rows"] if r["feature"] in SCHEDULE)
    lines.append(
        f"{inside[0]} of {len(SCHEDULE)} features of schedules are inside for all applications, {inside[1]} of "
        f"{len(PIPELINE)} of definitions; {limited} within the limits of a fit to {numbers['stages']} stages of "
        f"{numbers['programs']} programs"
    )
    return "\n".join(lines)


def of_programs(seeds: Sequence[int], small: bool) -> Row:
    """The features of the stages of several programs, and why some have none."""
    from hjit.errors import HjitError

    rows: list[list[float]] = []
    refused: dict[int, str] = {}
    for seed in seeds:
        try:
            rows += of_program(seed, SMALL if small else None).tolist()
        except HjitError as error:
            refused[seed] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return {"rows": rows, "refused": refused}


if __name__ == "__main__":
    from benchmarks.children import answer_whole

    answer_whole(of_programs)
