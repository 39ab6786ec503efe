"""Fitting the network to measured schedules (Adams 2019, sections 4.2 and 5). The only module here that needs JAX.

    network, report = fit(programs)

A batch is up to 32 schedules of one program. There are two errors to choose from (`LOSSES`):

    throughput   the paper's: L2 on throughput relative to the fastest of the batch. The network learns to tell fast
                 schedules from each other rather than how slow the slow ones are, and programs that take microseconds
                 count as much as those that take seconds.
    log          L2 on the logarithm of throughput relative to the batch, slow schedules counting less. With few samples
                 it predicts unseen programs better: one schedule predicted too fast does not dominate the error.
                 Beyond a limit an error counts as it is, not squared (Huber's), for 5 % of the schedules make three
                 fifths of the squares.
"""

from __future__ import annotations

import functools
import html
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from hjit.errors import ModelError
from hjit.model.costs import Cost
from hjit.model.feature_names import MACHINE, PIPELINE, SCHEDULE
from hjit.model.network import (
    AT_ROOT,
    BANDWIDTH,
    FIXED,
    LOGGED,
    UNFITTED,
    Network,
    bandwidth_known,
    prepare,
    random,
    shapes,
)
from hjit.model.terms import Array

BATCH = 32  # schedules of one program
FEW = 0.002  # share of stages whose features are beyond the limits: the network has learnt nothing there
ALIKE = 1e-3  # standard deviations of a fact of machines: it tells nothing about other machines
POWERS = (0.0, 1.0)  # of the bandwidth, by which costs fall: as if nothing waited for memory, and as if all did
SLOPE_STEPS, FINE = 50, 1e-3  # of fitting a line, and an error that is as good as none
SEEN = np.arange(len(SCHEDULE)) != AT_ROOT  # which features of schedules the network sees; that one has its own terms
FEWEST_STAGES = 8  # programs are padded to this or a power of two above it: a compilation for each


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Measured schedules of one program on one machine.

    Attributes:
        pipeline: [stages, len(PIPELINE)].
        schedule: [schedules, stages, len(SCHEDULE)].
        runtimes: seconds, [schedules].
        machine: [len(MACHINE)].
        part: which part of the kernel each stage is in, [schedules, stages]; None: all are in one.
        part_runtimes: seconds of each part, by its number, [schedules, stages]; see `hjit.tuning.nest_times`.

    Raises:
        ModelError: the shapes do not fit each other, or a number is not finite, negative, or a runtime of zero.
    """

    pipeline: Array
    schedule: Array
    runtimes: Array
    machine: Array
    part: Array = None
    part_runtimes: Array = None

    def __post_init__(self) -> None:
        stages, schedules = len(self.pipeline), len(self.runtimes)
        if self.part is None:
            whole = np.zeros((schedules, stages))
            whole[:, 0] = self.runtimes
            object.__setattr__(self, "part", np.zeros((schedules, stages)))
            object.__setattr__(self, "part_runtimes", whole)
        wanted = {
            "pipeline": (stages, len(PIPELINE)),
            "schedule": (schedules, stages, len(SCHEDULE)),
            "runtimes": (schedules,),
            "machine": (len(MACHINE),),
            "part": (schedules, stages),
            "part_runtimes": (schedules, stages),
        }
        for name, shape in wanted.items():
            x = np.asarray(getattr(self, name), np.float32)
            if x.shape != shape or not x.size:
                raise ModelError(f"{name} of a program has the shape {x.shape}, not {shape}")
            if not (np.isfinite(x).all() and (x >= 0).all()):
                raise ModelError(f"{name} of a program has numbers that are negative or not finite")
            object.__setattr__(self, name, x)
        if not (self.runtimes > 0).all():
            raise ModelError("a runtime of a program is zero")


# -- how good a cost is


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How well a cost predicts measured runtimes; nan where the samples do not say.

    Attributes:
        programs, schedules: how many were compared.
        throughput_r2: R2 of throughput relative to the fastest schedule of the program. 1 is perfect; below 0 the error
            that all schedules of a program share exceeds the variance of their throughputs.
        relative_r2: the same without that shared error: predicted throughput is relative to the fastest prediction, as
            a search compares schedules of one program only.
        log_runtime_r2: R2 of the logarithm of seconds.
        rank: mean over programs of Spearman's rank correlation between predicted and measured runtimes.
        choice: runtime of the schedule that the cost prefers over that of the fastest; geometric mean over programs.
    """

    programs: int
    schedules: int
    throughput_r2: float
    relative_r2: float
    log_runtime_r2: float
    rank: float
    choice: float


def accuracy(cost: Cost, programs: Sequence[Program]) -> Accuracy:
    """Compare a cost with measurements. The two R2 mean something only where the cost is in seconds."""
    predicted = [cost.stages(p.pipeline, p.schedule, p.machine).sum(-1).astype(np.float64) for p in programs]
    measured = [p.runtimes.astype(np.float64) for p in programs]
    pairs = list(zip(predicted, measured, strict=True))
    ranks = [_correlation(_ranks(a), _ranks(b)) for a, b in pairs if np.ptp(b) > 0]
    slower = [b[a.argmin()] / b.min() for a, b in pairs]
    return Accuracy(
        programs=len(pairs),
        schedules=sum(map(len, measured)),
        throughput_r2=_r2([b.min() / np.maximum(a, _TINY) for a, b in pairs], [b.min() / b for b in measured]),
        relative_r2=_r2(
            [max(a.min(), _TINY) / np.maximum(a, _TINY) for a in predicted], [b.min() / b for b in measured]
        ),
        log_runtime_r2=_r2([np.log(np.maximum(a, _TINY)) for a in predicted], [np.log(b) for b in measured]),
        rank=float(np.mean(ranks)) if ranks else float("nan"),
        choice=float(np.exp(np.mean(np.log(slower)))) if slower else float("nan"),
    )


_TINY = 1e-12  # seconds: a prediction of nothing is a throughput without end


def _r2(predicted: Sequence[Array], measured: Sequence[Array]) -> float:
    """The coefficient of determination over all samples together."""
    if not measured:
        return float("nan")
    a, b = np.concatenate(predicted), np.concatenate(measured)
    spread = ((b - b.mean()) ** 2).sum()
    return float(1 - ((a - b) ** 2).sum() / spread) if spread > 0 else float("nan")


def _ranks(x: Array) -> Array:
    """The place of each number in the sorted order; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    return (last - (counts - 1) / 2)[inverse]


def _correlation(a: Array, b: Array) -> float:
    """Pearson's correlation; 0 where one of the two does not vary."""
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a fit.

    Attributes:
        losses: mean squared error of relative throughput in each pass over the training programs.
        trained: accuracy on the programs that the network was fitted to.
        held_out: accuracy on those that it never saw; None where none were held out.
    """

    losses: tuple[float, ...]
    trained: Accuracy
    held_out: Accuracy | None

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("", "trained", "held out")]
        for x in fields(Accuracy):
            values = (getattr(self.trained, x.name), "" if self.held_out is None else getattr(self.held_out, x.name))
            rows.append((x.name, *(f"{v:.3f}" if isinstance(v, float) else str(v) for v in values)))
        return rows

    def __str__(self) -> str:
        table = [f"{name:<15}{trained:>10}{held_out:>10}".rstrip() for name, trained, held_out in self._rows()]
        return "\n".join(
            [*table, f"loss {self.losses[0]:.4f} at first, {self.losses[-1]:.4f} after {len(self.losses)} passes"]
        )

    def _repr_html_(self) -> str:
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(x)}</td>" for x in row) + "</tr>" for row in self._rows())
        return f"<table>{rows}</table><p>{html.escape(str(self).splitlines()[-1])}</p>"


# -- fitting


def missing_packages() -> list[str]:
    """JAX and Optax, which only fitting needs, where they are not installed."""
    return [name for name in ("jax", "optax") if importlib.util.find_spec(name) is None]


def check_packages() -> None:
    """Are JAX and Optax there, which only fitting needs?

    Raises:
        ModuleNotFoundError: one of them is not.
    """
    missing = missing_packages()
    if missing:
        raise ModuleNotFoundError(f'fitting the cost model needs {" and ".join(missing)}: pip install "hjit[train]"')


def fit(
    programs: Sequence[Program],
    *,
    start: Network | None = None,
    seed: int = 0,
    passes: int = 40,
    learning_rate: float = 3e-3,
    loss: str = "throughput",
    decay: float = 0.0,
    held_out: float = 0.2,
    show: Callable[[int, float], None] = lambda number, loss: None,
) -> tuple[Network, Report]:
    """Fit a network to measured schedules; the same arguments give the same network on the same machine.

    Args:
        programs: one at several sizes of its images counts as one when some are held out.
        start: the network to go on from, with its normalisation; None for a random one, normalised by the programs.
        seed: of the weights to start from, of what is held out, and of the order.
        passes: over the training programs, at least 1.
        learning_rate: of Adam at first; it falls to zero along a cosine.
        loss: one of `LOSSES`.
        decay: weight decay of the matrices, as a share for each unit of learning rate.
        held_out: the share of programs that the network is not fitted to, at least one program if it is not 0.
        show: called after each pass with its number and its loss.

    Returns:
        The network, and how well it does on the programs it was fitted to and on the others.

    Raises:
        ModelError: there are no programs, or none left to train on, or there is no such loss.
        ModuleNotFoundError: JAX or Optax is not installed.
    """
    check_packages()
    if loss not in LOSSES:
        raise ModelError(f"there is no loss {loss!r}; there are {', '.join(LOSSES)}")
    rng = np.random.default_rng(seed)
    train, test = split(programs, held_out, rng)
    if not train:
        raise ModelError(f"of {len(programs)} programs none are left to fit a cost model to: hold out fewer, or none")
    network = _limited(start, train) if start is not None else _normalised(random(seed), train)
    network = scaled(network, train)
    arrays, losses = _trained(network.arrays, train, passes, learning_rate, _adam(loss, decay), rng, show)
    network = Network(arrays) if start is None else _of_other_machines(Network(arrays), start, train)
    return network, Report(losses, accuracy(network, train), accuracy(network, test) if test else None)


def split(
    programs: Sequence[Program], held_out: float, rng: np.random.Generator
) -> tuple[list[Program], list[Program]]:
    """Programs to train on and to hold out; a program stays together at all sizes of its images."""
    groups: dict[bytes, list[Program]] = {}
    for p in programs:
        groups.setdefault(same_program(p), []).append(p)
    order = [list(groups.values())[k] for k in rng.permutation(len(groups))]
    count = max(1, round(held_out * len(order))) if held_out else 0
    return [p for group in order[count:] for p in group], [p for group in order[:count] for p in group]


def same_program(p: Program) -> bytes:
    """A key that a program has at all sizes of its images, and hardly another one has.

    Its operations are not in it: some depend on the size, as those of a reduction that is split.
    """
    return np.asarray(p.pipeline, np.float32)[:, _AT_ANY_SIZE].tobytes()


_AT_ANY_SIZE = [
    k
    for k, name in enumerate(PIPELINE)
    if name.startswith("type_") or name in ("is_output", "is_input_only", "has_updates", "dimensions")
]


def steadied(programs: Sequence[Program]) -> list[Program]:
    """The same programs, their machines' bandwidth replaced by the median over machines that are otherwise equal.

    Bandwidth is measured anew in each process, and other work on the machine disturbs it.
    """
    column = MACHINE.index("bandwidth")
    alike: dict[bytes, list[float]] = {}
    for p in programs:
        alike.setdefault(np.delete(p.machine, column).tobytes(), []).append(float(p.machine[column]))
    found = []
    for p in programs:
        machine = p.machine.copy()
        machine[column] = np.median(alike[np.delete(machine, column).tobytes()])
        found.append(replace(p, machine=machine))
    return found


def _normalised(network: Network, programs: Sequence[Program]) -> Network:
    """The network with features normalised as these programs have them."""
    pipeline, logs = _features(programs)
    facts = np.log1p(np.stack([p.machine for p in programs]))
    found = {
        **limits(programs),
        "pipeline_scale": 1
        / np.maximum(pipeline.std(0), 1),  # counts: only shrunk, so that a rare operation is not a giant
        "schedule_mean": logs.mean(0),
        "schedule_scale": _inverse(logs.std(0)) * SEEN,
        "machine_mean": facts.mean(0),
        "machine_scale": _inverse(facts.std(0)),
    }
    return Network({**network.arrays, **{name: x.astype(np.float32) for name, x in found.items()}})


def _limited(network: Network, programs: Sequence[Program]) -> Network:
    """The network with limits that hold these programs, too."""
    ours = network.arrays
    wider = {
        name: (np.minimum if name.endswith("_low") else np.maximum)(ours[name], x)
        for name, x in limits(programs).items()
    }
    return Network({**ours, **wider})


def limits(programs: Sequence[Program]) -> dict[str, Array]:
    """The arrays of `hjit.model.network.LIMITS`, of what some programs have, but for a few stages of them."""
    pipeline, logs = _features(programs)
    low, high = np.quantile(logs, (FEW, 1 - FEW), axis=0)
    found = {
        "pipeline_high": np.quantile(pipeline, 1 - FEW, axis=0),
        "schedule_low": low,
        "schedule_high": high,
    }
    return {name: x.astype(np.float32) for name, x in found.items()}


def _features(programs: Sequence[Program]) -> tuple[Array, Array]:
    """Of all stages, [n, len(PIPELINE)]; and of all stages of all schedules, log(1 + x), [m, len(SCHEDULE)]."""
    logs = np.concatenate([np.log1p(p.schedule).reshape(-1, len(SCHEDULE)) * SEEN for p in programs])
    return np.concatenate([np.where(LOGGED, np.log1p(p.pipeline), p.pipeline) for p in programs]), logs


def _inverse(deviation: Array) -> Array:
    """1 / x, and 0 for a feature that never varied: nothing is known of its effect, so it shall have none."""
    return np.where(deviation > 1e-3, 1 / np.maximum(deviation, 1e-3), 0)


def _of_other_machines(network: Network, start: Network, programs: Sequence[Program]) -> Network:
    """The network with the weights that `start` has for facts of machines that are alike in all programs.

    Such a fact is a bias to the fit, and what it learnt goes there: it is the same on these machines, and what other
    machines cost is as far from that as before.
    """
    ours = network.arrays
    facts = (np.log1p(np.stack([p.machine for p in programs])) - ours["machine_mean"]) * ours["machine_scale"]
    alike = np.ptp(facts, axis=0) < ALIKE
    learnt = np.where(alike[:, None], ours["machine_weights"] - start.arrays["machine_weights"], 0)
    found = {
        "machine_weights": ours["machine_weights"] - learnt,
        "schedule_bias": ours["schedule_bias"] + facts.mean(0) @ learnt,
    }
    return Network({**ours, **{name: x.astype(np.float32) for name, x in found.items()}})


def scaled(network: Network, programs: Sequence[Program]) -> Network:
    """The network with all coefficients times one number, and another power of the bandwidth where machines differ.

    Its runtimes are right on average then, on all machines; which of two schedules it prefers stays nearly as it was.
    """
    logs = np.log1p([p.machine[BANDWIDTH] for p in programs])
    arrays = {
        **network.arrays,
        "bandwidth_low": np.minimum(network.arrays["bandwidth_low"], np.float32(logs.min())),
        "bandwidth_high": np.maximum(network.arrays["bandwidth_high"], np.float32(logs.max())),
    }
    network = Network(arrays)
    errors = [
        np.log(p.runtimes / np.maximum(network.stages(p.pipeline, p.schedule, p.machine).sum(-1), _TINY))
        for p in programs
    ]
    bandwidth = np.concatenate([bandwidth_known(arrays, p.machine) for p in programs])
    more = np.zeros(1)  # of the power
    if np.ptp(logs) > ALIKE:
        slope = _slope(bandwidth, np.array([np.median(x) for x in errors]))
        more = np.clip(arrays["bandwidth_power"] - slope, *POWERS) - arrays["bandwidth_power"]
    shift = np.concatenate([x + y for x, y in zip(errors, more * bandwidth, strict=True)]).mean()
    whole = arrays["whole_log_unit"]
    found = {
        "bandwidth_power": arrays["bandwidth_power"] + more,
        "log_unit": arrays["log_unit"] + shift,
        "whole_log_unit": np.where(whole > UNFITTED, whole + shift, UNFITTED),
    }
    return Network({**arrays, **{name: x.astype(np.float32) for name, x in found.items()}})


def _slope(x: Array, y: Array) -> Array:
    """The slope of the line with the least sum of absolute errors, [1], by weighted least squares again and again.

    Some samples that were measured while other work was running are twice as slow, whatever the program.
    """
    columns = np.stack([x, np.ones_like(x)], 1).astype(np.float64)
    weights = np.ones(len(x))
    for _ in range(SLOPE_STEPS):
        line = np.linalg.lstsq(columns * weights[:, None], y * weights, rcond=None)[0]
        weights = 1 / np.sqrt(np.maximum(np.abs(y - columns @ line), FINE))
    return line[:1]


def _trained(
    arrays: Mapping[str, Array],
    programs: Sequence[Program],
    passes: int,
    learning_rate: float,
    adam: tuple[Callable[..., Any], Callable[..., Any]],
    rng: np.random.Generator,
    show: Callable[[int, float], None],
) -> tuple[dict[str, Array], tuple[float, ...]]:
    """Adam over batches in random order: the arrays that it found, and the loss of each pass."""
    import jax

    fixed = {name: x for name, x in arrays.items() if name in FIXED}
    weights = {name: x for name, x in arrays.items() if name not in FIXED}
    start, step = adam
    steps = passes * sum(-(-len(p.runtimes) // BATCH) for p in programs)
    rates = iter(learning_rate * (1 + np.cos(np.pi * np.arange(steps) / steps)) / 2)
    losses = []
    with jax.default_device(jax.devices("cpu")[0]):  # too small to gain by any other
        state = start(weights)
        for number in range(passes):
            found = []
            for batch in _batches(programs, rng):
                weights, state, loss = step(weights, state, fixed, batch, np.float32(next(rates)))
                found.append(loss)
            losses.append(float(np.mean(found)))
            show(number, losses[-1])
    return {name: np.array(x) for name, x in (fixed | weights).items()}, tuple(losses)


@functools.lru_cache(maxsize=8)
def _adam(loss: str, decay: float) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Adam's first state, and a step of it; compiled once for each shape of a batch in a process."""
    import jax
    import optax

    error = LOSSES[loss]
    adam = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(),
        optax.add_decayed_weights(decay, {name: name in DECAYED for name in shapes() if name not in FIXED}),
    )

    def step(weights: Any, state: Any, fixed: Any, batch: Any, rate: Any) -> tuple[Any, Any, Any]:
        found, gradient = jax.value_and_grad(lambda w: _loss({**fixed, **w}, batch, error))(weights)
        change, state = adam.update(gradient, state, weights)
        return {name: x - rate * change[name] for name, x in weights.items()}, state, found

    return jax.jit(adam.init), jax.jit(step)


Error = Callable[[Array, Array, Array], Array]  # of predicted and measured runtimes, and how often each sample counts


def _loss(arrays: Mapping[str, Array], batch: Mapping[str, Array], error: Error) -> Array:
    """The error of a network on a batch, in JAX."""
    import jax.numpy as jnp

    stages = prepare(arrays, batch["pipeline"], batch["machine"], jnp).stages(batch["schedule"])
    return error(stages.sum(-1), batch["runtimes"], batch["counts"]) + PARTS * _error_of_parts(stages, batch)


def _error_of_parts(stages: Array, batch: Mapping[str, Array]) -> Array:
    """Mean error of the logarithm of the seconds of each part of a kernel that has several, in JAX; see `_huber`.

    A part counts as much as its share of the runtime is. The paper has the time of the whole alone, from which little
    can be learnt about one stage of many.
    """
    import jax.numpy as jnp

    measured = batch["part_runtimes"]
    predicted = jnp.einsum("bs,bsp->bp", stages, batch["part"][:, :, None] == jnp.arange(measured.shape[1]))
    error = jnp.log(jnp.maximum(predicted, _TINY)) - jnp.log(jnp.maximum(measured, _TINY))
    share = measured / measured.sum(-1, keepdims=True)
    counts = batch["counts"] * ((measured > 0).sum(-1) > 1) * jnp.sqrt(batch["runtimes"].min() / batch["runtimes"])
    return (counts * (share * _huber(error, OF_PARTS)).sum(-1)).sum() / batch["counts"].sum()


def _throughput(predicted: Array, runtimes: Array, counts: Array) -> Array:
    """Mean squared error of throughput relative to the fastest of the batch (Adams 2019, section 4.2), in JAX."""
    import jax.numpy as jnp

    fastest = runtimes.min()
    error = fastest / jnp.maximum(predicted, 1e-6 * fastest) - fastest / runtimes
    return (counts * error**2).sum() / counts.sum()


def _log_throughput(predicted: Array, runtimes: Array, counts: Array) -> Array:
    """Mean error of the logarithm of throughput, in JAX; what all of a program shares counts little. See `_huber`."""
    import jax.numpy as jnp

    counts = counts * jnp.sqrt(runtimes.min() / runtimes)
    error = jnp.log(jnp.maximum(predicted, _TINY)) - jnp.log(runtimes)
    common = (counts * error).sum() / counts.sum()
    return (counts * _huber(error - common, APART)).sum() / counts.sum() + COMMON * _huber(common, TOGETHER)


def _huber(error: Array, limit: float) -> Array:
    """The square of an error, beyond a limit its tangent, in JAX."""
    import jax.numpy as jnp

    size = jnp.abs(error)
    return jnp.where(size < limit, error**2, 2 * limit * size - limit**2)


# where these are zero, costs are the terms times their units
DECAYED = frozenset({"schedule_weights", "machine_weights", "pipeline_mix", "schedule_mix"})
PARTS = 0.5  # weight of the error of the parts of kernels
COMMON = 0.1  # weight of an error that all schedules of a batch share
APART, TOGETHER, OF_PARTS = (
    0.3,
    0.5,
    0.9,
)  # errors of logarithms within a program, of all of it, and of a part of a kernel
LOSSES: Mapping[str, Error] = {"throughput": _throughput, "log": _log_throughput}


def _batches(programs: Sequence[Program], rng: np.random.Generator) -> Iterator[dict[str, Array]]:
    """All schedules once, in a random order, in batches of up to `BATCH` of one program."""
    work = []
    for p in programs:
        order = rng.permutation(len(p.runtimes))
        work += [(p, order[k : k + BATCH]) for k in range(0, len(order), BATCH)]
    for k in rng.permutation(len(work)):
        yield padded(*work[k])


def padded(program: Program, chosen: Array) -> dict[str, Array]:
    """A batch in one of a few shapes.

    More stages are rows of zeros, which cost nothing; more schedules are the first of the chosen, and do not count.
    """
    more = max(FEWEST_STAGES, 1 << (len(program.pipeline) - 1).bit_length()) - len(program.pipeline)
    rows = np.concatenate([chosen, np.full(BATCH - len(chosen), chosen[0])])
    return {
        "pipeline": np.pad(program.pipeline, ((0, more), (0, 0))),
        "schedule": np.pad(program.schedule[rows], ((0, 0), (0, more), (0, 0))),
        "runtimes": program.runtimes[rows],
        "part": np.pad(program.part[rows], ((0, 0), (0, more))),
        "part_runtimes": np.pad(program.part_runtimes[rows], ((0, 0), (0, more))),
        "counts": (np.arange(BATCH) < len(chosen)).astype(np.float32),
        "machine": program.machine,
    }
