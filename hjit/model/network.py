"""The small network that predicts the coefficients of the cost model (Adams 2019, section 4.2 and figure 4).

Two heads embed the features of a stage, and one layer makes 27 coefficients of both:

    pipeline head    linear, its weights positive by a sigmoid: cost grows with the number of operations
    schedule head    linear in log(1 + features) of the schedule and of the machine, then relu
    coefficients     softplus(linear in both heads), each times its own unit in nanoseconds

Five things differ from the paper. Its last activation is a relu, which on 200 synthetic programs left a quarter to a
half of the coefficients at zero for good; a softplus comes as near to zero, but always has a gradient. Features are
normalised as the training set has them. Facts of the machine are among them: a working set compares with a cache. And
the network does not extrapolate: features of schedules are limited to the range that they have in the training set, and
a stage of more operations than any there is as several stages, whose points cost as much as those of the largest there.
And all costs fall with a power of the machine's measured bandwidth, within what the training set has of it: a machine
that copies faster also computes faster, and which schedule is the best hardly depends on how fast.

The pipeline head and all that concerns the machine are computed once for a graph (`prepare`).

`working_set_at_root` is not among what the heads see, for it is of all stages: see `hjit.model.terms.whole_terms`.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hjit.errors import ModelError
from hjit.model.feature_names import MACHINE, PIPELINE, SCHEDULE
from hjit.model.terms import COEFFICIENTS, GUESSES, WHOLE, WHOLE_GUESSES, Array, stage_costs, whole_terms

FORMAT = "hjit-network-2"
NAMES = {"pipeline": PIPELINE, "schedule": SCHEDULE, "machine": MACHINE, "coefficients": COEFFICIENTS}

UNLIMITED = 1e6  # more than any count, and than the logarithm of any feature

PIPELINE_WIDTH, SCHEDULE_WIDTH = 8, 24  # of the embeddings, as in the paper's code

# Stages of schedules that NumPy works out at once: what lies between the layers stays in a cache, and OpenBLAS
# multiplies matrices of so many rows in this thread. Of more it wakes others, and waits for them: where something else
# ran on a core, 0.3 us a stage became 15.
ROWS = 512

UNFITTED = -100.0  # logarithm of a unit that adds nothing: of terms that a network was not fitted with

NO_BANDWIDTH = {
    "bandwidth_low": np.full(1, UNLIMITED, np.float32),
    "bandwidth_high": np.full(1, -UNLIMITED, np.float32),
    "bandwidth_power": np.zeros(1, np.float32),
}
"""Of a network that has seen no machine's bandwidth: an empty range, and no effect."""

BEFORE = {"whole_log_unit": np.full(len(WHOLE), UNFITTED, np.float32), **NO_BANDWIDTH}
"""What is read for arrays that a file is too old to have."""

IS_OUTPUT = PIPELINE.index("is_output")
AT_ROOT = SCHEDULE.index("working_set_at_root")
LOGGED = np.array([x == "reduction_points" for x in PIPELINE])  # of the pipeline features; the others are small counts
COUNTS = np.array([x.startswith(("op_", "access_")) for x in PIPELINE])  # of what is done for a point
BANDWIDTH = MACHINE.index("bandwidth")
PER_POINT = np.array([x.endswith("_points") for x in COEFFICIENTS])

LIMITS = ("pipeline_high", "schedule_low", "schedule_high")
"""The arrays with what the training set has: the most of each count, and the range of log(1 + feature) of schedules."""

SPEED = ("bandwidth_low", "bandwidth_high", "bandwidth_power")
"""The arrays that are fitted before the others: the range of log(1 + bandwidth), and the power by which costs fall."""

FIXED = ("pipeline_scale", "schedule_mean", "schedule_scale", "machine_mean", "machine_scale", *LIMITS, *SPEED)
"""The arrays that steps of training do not change: how features are normalised and limited, and those of the speed."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The network for one graph on one machine; what does not depend on the schedule is computed.

    Attributes:
        low, high: the limits of log(1 + features), [len(SCHEDULE), 1].
        weights, bias: the schedule head on them, [len(SCHEDULE), width] and [width].
        mix: from the schedule head to the coefficients, [width, 27].
        embedded: what the pipeline head adds to the coefficients, [stages, 27].
        unit: nanoseconds, [stages, 27].
        whole_unit: nanoseconds of the terms of a whole schedule, [len(WHOLE)].
        has_whole: do these add anything?
        is_output: [stages].
        machine: [len(MACHINE)].
        xp: numpy or jax.numpy.
    """

    low: Array
    high: Array
    weights: Array
    bias: Array
    mix: Array
    embedded: Array
    unit: Array
    whole_unit: Array
    has_whole: bool
    is_output: Array
    machine: Array
    xp: ModuleType

    def coefficients(self, schedule: Array) -> Array:
        """Nanoseconds for a unit of each term, [batch, stages, 27] > 0; features [batch, stages, len(SCHEDULE)]."""
        xp, (features, stages, batch) = self.xp, schedule.T.shape
        rows = schedule.T.reshape(features, -1)  # one product of two matrices, not one for each schedule
        logs = xp.minimum(xp.maximum(xp.log(1 + rows), self.low), self.high)
        head = xp.maximum(self.weights.T @ logs + self.bias[:, None], 0)
        mixed = (self.mix.T @ head).reshape(len(COEFFICIENTS), stages, batch) + self.embedded.T[:, :, None]
        return (softplus(mixed, xp) * self.unit.T[:, :, None]).T

    def stages(self, schedule: Array) -> Array:
        """Predicted seconds of each stage, float32 [batch, stages]; features [batch, stages, len(SCHEDULE)]."""
        some = max(ROWS // max(schedule.shape[1], 1), 1)
        if self.xp is np and len(schedule) > some:
            return np.concatenate([self.stages(schedule[k : k + some]) for k in range(0, len(schedule), some)])
        return self._with_whole(self._stages(schedule), schedule) if self.has_whole else self._stages(schedule)

    def whole(self, allocated: Array) -> Array | None:
        """Predicted seconds besides those of stages, see `hjit.model.costs.PreparedCost`."""
        if not self.has_whole:
            return None
        return (whole_terms(allocated, self.machine, self.xp) * self.whole_unit).sum(-1) * 1e-9

    def _with_whole(self, costs: Array, schedule: Array) -> Array:
        """The costs of stages with what a whole schedule costs, shared by those stages that are placed."""
        sets = self.xp.asarray(schedule[..., AT_ROOT], dtype=self.xp.float32)
        seconds = (whole_terms(sets.max(-1), self.machine, self.xp) * self.whole_unit).sum(-1) * 1e-9
        placed = (sets > 0).astype(costs.dtype)
        return costs + placed * (seconds / placed.sum(-1).clip(min=1)).astype(costs.dtype)[:, None]

    def rows(self, schedule: Array, stages: Array) -> Array:
        """Predicted seconds of some of the stages in any order, float32 [rows]; features [rows, len(SCHEDULE)].

        Args:
            stages: which stage each row is of, int [rows].
        """
        found = [np.zeros(0, np.float32)]
        for k in range(0, len(schedule), ROWS):
            at = stages[k : k + ROWS]
            some = replace(self, embedded=self.embedded[at], unit=self.unit[at], is_output=self.is_output[at])
            found.append(some._stages(schedule[None, k : k + ROWS])[0])
        return np.concatenate(found)

    def _stages(self, schedule: Array) -> Array:
        schedule = self.xp.asarray(schedule, dtype=self.xp.float32).T.copy().T  # each feature in one piece, for speed
        return stage_costs(self.coefficients(schedule), schedule, self.is_output, self.machine, self.xp)


def softplus(x: Array, xp: ModuleType) -> Array:
    """log(1 + exp(x)), without overflow."""
    return xp.maximum(x, 0) + xp.log(1 + xp.exp(-xp.abs(x)))


def prepare(arrays: Mapping[str, Array], pipeline: Array, machine: Array, xp: ModuleType = np) -> Prepared:
    """All of the network that does not depend on the schedule.

    Args:
        arrays: those of a `Network`.
        pipeline: [stages, len(PIPELINE)].
        machine: [len(MACHINE)].
        xp: numpy or jax.numpy.
    """
    pipeline, machine = xp.asarray(pipeline, dtype=xp.float32), xp.asarray(machine, dtype=xp.float32)
    positive = 1 / (1 + xp.exp(-arrays["pipeline_weights"]))
    logged = xp.where(LOGGED, xp.log(1 + pipeline), pipeline)
    times = _times(logged, arrays["pipeline_high"], xp)
    counts = (xp.where(COUNTS, logged / times, logged) * arrays["pipeline_scale"]) @ positive
    facts = (xp.log(1 + machine) - arrays["machine_mean"]) * arrays["machine_scale"]
    weights = arrays["schedule_scale"][:, None] * arrays["schedule_weights"]
    faster = arrays["bandwidth_power"] * bandwidth_known(arrays, machine, xp)
    return Prepared(
        low=arrays["schedule_low"][:, None],
        high=arrays["schedule_high"][:, None],
        weights=weights,
        bias=arrays["schedule_bias"] + facts @ arrays["machine_weights"] - arrays["schedule_mean"] @ weights,
        mix=arrays["schedule_mix"],
        embedded=counts @ arrays["pipeline_mix"] + arrays["mix_bias"],
        unit=xp.exp(arrays["log_unit"] - faster) * xp.where(PER_POINT, times, 1),
        whole_unit=xp.exp(arrays["whole_log_unit"] - faster),
        has_whole=xp is not np or bool((arrays["whole_log_unit"] > UNFITTED).any()),
        is_output=pipeline[:, IS_OUTPUT],
        machine=machine,
        xp=xp,
    )


def bandwidth_known(arrays: Mapping[str, Array], machine: Array, xp: ModuleType = np) -> Array:
    """The logarithm of a machine's bandwidth, limited, less its mean in the training set, [1]."""
    bandwidth = xp.log(1 + machine[BANDWIDTH])
    limited = xp.minimum(xp.maximum(bandwidth, arrays["bandwidth_low"]), arrays["bandwidth_high"])
    return limited - arrays["machine_mean"][BANDWIDTH]


def _times(counts: Array, most: Array, xp: ModuleType) -> Array:
    """Of how many stages of the training set's size each stage has the operations, at least 1, [stages, 1]."""
    return xp.maximum((xp.where(COUNTS, counts, 0) / xp.maximum(most, 1)).max(-1, keepdims=True), 1)


def shapes(pipeline_width: int = PIPELINE_WIDTH, schedule_width: int = SCHEDULE_WIDTH) -> dict[str, tuple[int, ...]]:
    """The arrays of a network and their shapes."""
    p, s, m, c = len(PIPELINE), len(SCHEDULE), len(MACHINE), len(COEFFICIENTS)
    return {
        "pipeline_scale": (p,),
        "schedule_mean": (s,),
        "schedule_scale": (s,),
        "machine_mean": (m,),
        "machine_scale": (m,),
        "pipeline_high": (p,),
        "schedule_low": (s,),
        "schedule_high": (s,),
        "bandwidth_low": (1,),
        "bandwidth_high": (1,),
        "bandwidth_power": (1,),
        "pipeline_weights": (p, pipeline_width),
        "schedule_weights": (s, schedule_width),
        "machine_weights": (m, schedule_width),
        "schedule_bias": (schedule_width,),
        "pipeline_mix": (pipeline_width, c),
        "schedule_mix": (schedule_width, c),
        "mix_bias": (c,),
        "log_unit": (c,),
        "whole_log_unit": (len(WHOLE),),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network with its parameters.

    Attributes:
        arrays: float32, by the names and in the shapes of `shapes`; not to be changed.
    """

    arrays: Mapping[str, Array]

    def prepare(self, pipeline: Array, machine: Array) -> Prepared:
        """The network for one graph and machine, in NumPy: pipeline [stages, len(PIPELINE)], machine [len(MACHINE)]."""
        return prepare(self.arrays, pipeline, machine)

    def stages(self, pipeline: Array, schedule: Array, machine: Array) -> Array:
        """Predicted seconds of each stage, float32 [batch, stages]; for many batches of a graph use `prepare`."""
        return self.prepare(pipeline, machine).stages(schedule)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network as an npz file that says in JSON what it is for.

        Raises:
            OSError: the file cannot be written.
        """
        about = json.dumps({"format": FORMAT, **NAMES})
        data = io.BytesIO()
        np.savez(data, about=np.array(about), **self.arrays)
        Path(path).write_bytes(data.getvalue())


def load(path: str | os.PathLike[str]) -> Network:
    """The network that `Network.save` wrote.

    Raises:
        OSError: the file cannot be read.
        ModelError: it is not such a file, or for other features than this version's.
    """
    data = Path(path).read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about")))
        _check_about(about)
        for name, x in BEFORE.items():
            arrays.setdefault(name, x)
        _check_arrays(arrays)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except _DAMAGE as error:
        raise ModelError(f"{path}: not a cost model of hjit, or damaged ({error})") from None
    return Network(arrays)


_DAMAGE = (
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


def _check_about(about: Any) -> None:
    """Refuse a file of another format or for other features."""
    if about["format"] != FORMAT:
        raise ModelError(f"a cost model in the format {about['format']!r}; this version of hjit reads {FORMAT!r}")
    for kind, ours in NAMES.items():
        theirs = about[kind]
        if theirs != list(ours):
            odd = sorted(set(theirs) ^ set(ours)) or ["the same names in another order"]
            raise ModelError(
                f"a cost model for other {kind} names than this version of hjit has "
                f"({', '.join(odd[:5])}): fit it again"
            )


def _check_arrays(arrays: dict[str, Array]) -> None:
    """Refuse arrays that are missing, have other shapes, or hold what is not a number."""
    pipeline_width, schedule_width = arrays["pipeline_mix"].shape[0], arrays["schedule_mix"].shape[0]
    wanted = shapes(pipeline_width, schedule_width)
    for name in sorted(wanted.keys() | arrays.keys()):
        found = arrays.get(name)
        if (
            name not in wanted
            or found is None
            or found.shape != wanted[name]
            or found.dtype != np.float32
            or not np.isfinite(found).all()
        ):
            raise ModelError(f"the array {name!r} of a cost model is missing, odd, or not finite")


def random(seed: int, pipeline_width: int = PIPELINE_WIDTH, schedule_width: int = SCHEDULE_WIDTH) -> Network:
    """A network with random weights, whose coefficients vary around `hjit.model.terms.GUESSES`.

    With it a search finds the schedules of the first training set (section 5), and training starts from it.
    """
    rng = np.random.default_rng(seed)
    arrays = {name: np.zeros(shape) for name, shape in shapes(pipeline_width, schedule_width).items()}
    for name in ("schedule_weights", "machine_weights", "pipeline_mix", "schedule_mix"):
        fan_in = arrays[name].shape[0]
        arrays[name] = rng.uniform(-1, 1, arrays[name].shape) / np.sqrt(fan_in)
    # small through the sigmoid: sums are over many features
    arrays["pipeline_weights"] = rng.normal(-2, 1, arrays["pipeline_weights"].shape)
    arrays["pipeline_scale"] += 1 / 4
    arrays["schedule_mean"] += 7  # features from 1 to e14
    arrays["schedule_scale"] += 1 / 5
    arrays["schedule_scale"][AT_ROOT] = 0
    arrays["pipeline_high"] += UNLIMITED
    arrays["schedule_high"] += UNLIMITED
    arrays["machine_mean"] += 12
    arrays["machine_scale"] += 1 / 6
    arrays["mix_bias"] += np.log(np.e - 1)  # of which the softplus is 1
    arrays["log_unit"] = np.log(list(GUESSES.values()))
    arrays["whole_log_unit"] = np.log(list(WHOLE_GUESSES.values()))
    return Network({name: x.astype(np.float32) for name, x in (arrays | NO_BANDWIDTH).items()})
