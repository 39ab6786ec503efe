"""Corrections of the cost model for one machine: a factor for each group of terms, fitted to few measured schedules.

The weights that come with hjit know the machines that they were fitted on. How long a computation takes there beside
a byte from memory, an allocation or the launch of a task is the machine's own, and the same for all programs; which
features of a stage make its terms expensive is not, and needs thousands of samples. So the network is left as it is,
and the units of its 27 coefficients are multiplied by seven factors. They minimise the squares of log
predicted/measured (what all schedules of a program share counting less, as in training) with a ridge around their mean:
a machine may be faster in all, which n programs tell, but that it is so in one group is to be seen clearly.

    sum over schedules of w (log sum_g exp(d_g) x_g - log t)^2  +  RIDGE n sum_g (d_g - mean d)^2

where x_g are the seconds that group g has in the prediction. It is solved by Gauss-Newton steps. The corrections are
worth keeping only where they predict programs that they were not fitted to better (`fitted`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.errors import ModelError
from hjit.model.fit import COMMON, Program, same_program
from hjit.model.network import Network
from hjit.model.terms import COEFFICIENTS, Array, streaming, terms

GROUPS: Mapping[str, tuple[str, ...]] = {
    "computing": ("inlined_vector_points", "inlined_scalar_points", "vector_points", "scalar_points"),
    "loads": ("vector_loads_of_vectors", "scalar_loads_of_scalars", "scalar_loads_of_vectors"),
    "reading": (
        "lines_read_by_realizations", "bytes_read_by_realizations", "bytes_read_by_scalars", "bytes_read_by_vectors",
        "lines_read_by_scalars", "lines_read_by_vectors", "bytes_read_by_tasks", "lines_read_by_tasks",
    ),
    "writing": (
        "lines_written_in_parallel", "lines_written_of_output", "lines_written", "bytes_written_in_parallel",
        "bytes_written_of_output", "bytes_written",
    ),
    "memory": ("page_faults", "allocations", "working_set"),
    "threads": ("false_sharing", "parallel_launches"),
    "tasks": ("parallel_tasks",),
}  # fmt: skip
"""Terms whose units change together: what of the machine they depend on is the same."""

RIDGE = 0.02  # weight of the squared deviations of logarithms of factors, relative to mean squared errors
LEAST_RIDGE = 1e-6  # of the mean: of programs that tell nothing all factors are 1
STEPS, FINEST = 40, 1e-6  # of Gauss-Newton, and how small a step is the last
LONGEST_STEP = 0.5  # of a factor's logarithm
FOLDS = 5  # parts of the programs, each of which is held out once
FEWEST = 8  # programs, below which nothing is fitted
MARGIN = 0.98  # of the error without corrections: what held-out programs must be predicted better than


@dataclass(frozen=True, slots=True)
class Calibration:
    """Corrections, and what they are worth.

    Attributes:
        factors: of the units of the terms, by group.
        before, after: root of the mean square of log predicted/measured on held-out programs, without and with them;
            what all schedules of a program share counts as in training.
        programs, samples: how many were measured.
    """

    factors: Mapping[str, float]
    before: float
    after: float
    programs: int
    samples: int

    @property
    def helps(self) -> bool:
        """Are programs that it was not fitted to predicted better?"""
        return self.after < MARGIN * self.before


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What the prediction of a program's schedules is made of.

    Attributes:
        seconds: [schedules, stages, groups].
        floor: what each stage takes at least, [schedules, stages].
        measured: seconds, [schedules].
    """

    seconds: Array
    floor: Array
    measured: Array

    @staticmethod
    def of(network: Network, p: Program) -> _Parts:
        prepared = network.prepare(p.pipeline, p.machine)
        schedule = np.asarray(p.schedule, np.float32)
        found = terms(schedule, prepared.is_output, p.machine).astype(np.float64) * prepared.coefficients(schedule)
        columns = [[COEFFICIENTS.index(name) for name in names] for names in GROUPS.values()]
        groups = np.stack([found[..., k].sum(-1) for k in columns], -1) * 1e-9
        return _Parts(groups, np.asarray(streaming(schedule, p.machine), np.float64), p.runtimes.astype(np.float64))

    def errors(self, logs: Array) -> tuple[Array, Array]:
        """Weighted errors of the logarithm, [schedules + 1], and their derivatives, [schedules + 1, groups].

        The last row is of what all schedules share.
        """
        factors = np.exp(logs)
        stages = self.seconds @ factors
        open_ = stages > self.floor
        total = np.maximum(np.maximum(stages, self.floor).sum(-1), TINY)
        slopes = (self.seconds * open_[..., None]).sum(1) * factors / total[:, None]
        weights = np.sqrt(self.measured.min() / self.measured)
        weights = weights / weights.sum()
        error = np.log(total) - np.log(self.measured)
        common, slope = weights @ error, weights @ slopes
        roots = np.sqrt(weights)
        return (
            np.append(roots * (error - common), np.sqrt(COMMON) * common),
            np.concatenate([roots[:, None] * (slopes - slope), np.sqrt(COMMON) * slope[None]]),
        )


TINY = 1e-12  # seconds


def corrected(network: Network, factors: Mapping[str, float]) -> Network:
    """The network with its units times the factors of their groups."""
    unit = network.arrays["log_unit"].copy()
    for group, names in GROUPS.items():
        unit[[COEFFICIENTS.index(name) for name in names]] += np.float32(np.log(factors[group]))
    return Network({**network.arrays, "log_unit": unit})


def fitted(network: Network, programs: Sequence[Program]) -> Calibration:
    """Corrections of a network, fitted to programs of one machine; NumPy is enough.

    Args:
        programs: one is held out at all sizes of its images together.

    Raises:
        ModelError: there are fewer than `FEWEST` programs.
    """
    groups: dict[bytes, list[_Parts]] = {}
    for p in programs:
        groups.setdefault(same_program(p), []).append(_Parts.of(network, p))
    known = list(groups.values())
    if len(known) < FEWEST:
        raise ModelError(f"{len(known)} programs are too few to correct a cost model by: there must be {FEWEST}")
    before, after = 0.0, 0.0
    for k in range(FOLDS):
        rest = [x for j, parts in enumerate(known) if j % FOLDS != k for x in parts]
        held = [x for parts in known[k::FOLDS] for x in parts]
        before += _error(held, np.zeros(len(GROUPS)))
        after += _error(held, _solved(rest))
    every = [x for parts in known for x in parts]
    factors = dict(zip(GROUPS, np.exp(_solved(every)).tolist(), strict=True))
    samples = sum(len(x.measured) for x in every)
    return Calibration(factors, (before / len(every)) ** 0.5, (after / len(every)) ** 0.5, len(known), samples)


def _error(parts: Sequence[_Parts], logs: Array) -> float:
    """The sum over programs of their mean squared errors."""
    return float(sum((x.errors(logs)[0] ** 2).sum() for x in parts))


def _solved(parts: Sequence[_Parts]) -> Array:
    """The logarithms of the factors that fit best, [groups]."""
    logs = np.zeros(len(GROUPS))
    mean = np.full((len(GROUPS), len(GROUPS)), 1 / len(GROUPS))
    ridge = len(parts) * (RIDGE * (np.eye(len(GROUPS)) - mean) + LEAST_RIDGE * mean)
    for _ in range(STEPS):
        errors, slopes = zip(*(x.errors(logs) for x in parts), strict=True)
        e, j = np.concatenate(errors), np.concatenate(slopes)
        step = np.clip(np.linalg.solve(j.T @ j + ridge, -(j.T @ e + ridge @ logs)), -LONGEST_STEP, LONGEST_STEP)
        if np.abs(step).max() < FINEST:
            break
        logs = logs + step
    return logs


def to_json(x: Calibration) -> dict[str, Any]:
    """A calibration as JSON has it."""
    return {
        "factors": dict(x.factors),
        "before": x.before,
        "after": x.after,
        "programs": x.programs,
        "samples": x.samples,
    }


def from_json(data: Any) -> Calibration:
    """What `to_json` made.

    Raises:
        ModelError: it is something else.
    """
    try:
        factors = {group: float(data["factors"][group]) for group in GROUPS}
        if set(data["factors"]) != set(GROUPS) or not all(0 < x < np.inf for x in factors.values()):
            raise ValueError("factors of other groups, or none")
        return Calibration(
            factors, float(data["before"]), float(data["after"]), int(data["programs"]), int(data["samples"])
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"not a calibration of this version of hjit ({error})") from None
