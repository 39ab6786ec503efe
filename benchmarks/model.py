"""``python -m benchmarks model``: how good the cost model's own choices are, for the applications.

No application is among the programs that the model is fitted to. For each, searches choose schedules by the model
alone, as do random dropout and walks from the default schedule; all are compiled, checked against NumPy, and timed in
interleaved rounds. A row has, for each kind of choice, its time over that of the best schedule of all (geometric means
in the last line), and its time over the predicted one. The searches never see the default schedule; `refined pick`
starts from what they found. The schedule that was written by hand, where there is one, is timed beside the default one:
the table has its place among the others, as predicted and as measured. Each application has a process of its own.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import apps
from benchmarks.children import answer_whole, reported
from benchmarks.pairs import interleaved
from benchmarks.suite import about
from benchmarks.table import geomean

UNTIMED = "untimed"  # what runs where nothing can be timed: greedy's choice, where it is predicted to be much faster
KINDS = ("default", "greedy", UNTIMED, "beam", "refined pick")  # choices; "beam" is the best of its and greedy's
BY_HAND = "by hand"
HAND_SECONDS = 1.0  # of timing either of the two
SCHEDULES = 16  # of an application
LIMIT = 600.0  # seconds of an application's process

Row = dict[str, Any]


def measure(name: str, weights: str, small: bool, calibration: Row | None = None) -> Row:
    """The row of an application, measured in this process.

    Args:
        weights: a file of the cost model; empty: the one that comes with hjit.
        calibration: corrections of it, as JSON has them.
    """
    from hjit.errors import HjitError
    from hjit.model import network
    from hjit.model.calibration import corrected, from_json
    from hjit.options import Options
    from hjit.training.cases import MeasurementLock, Mismatch, measured
    from hjit.tuning.limits import WEIGHTS

    module = apps.load(name)
    arguments = module.inputs(np.random.default_rng(0), module.SMALL if small else module.SHAPE)
    cost = network.load(weights or WEIGHTS)
    if calibration is not None:
        cost = corrected(cost, from_json(calibration).factors)
    options = Options(cache="off", verify="off", tune=False, blas=False)
    with tempfile.TemporaryDirectory() as folder:
        try:
            (found,) = measured(
                getattr(module, name), [arguments], options, SCHEDULES, 0, MeasurementLock(Path(folder)), cost
            )
        except (HjitError, Mismatch) as error:
            return {"app": name, "error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    predicted = cost.stages(found.pipeline, np.stack([s.features for s in found.samples]), found.machine).sum(-1)
    samples = [
        {"origin": s.origin, "also": s.origins[1:], "ms": 1e3 * s.seconds, "predicted_ms": 1e3 * float(p)}
        for s, p in zip(found.samples, predicted, strict=True)
    ]
    path = apps.by_hand(name)
    if path is not None:
        samples.append(by_hand(getattr(module, name), arguments, path, options, cost, samples[0]["ms"]))
    return {"app": name, "stages": len(found.pipeline), "samples": samples, "lost": dict(found.lost)}


def by_hand(
    function: Callable[..., Any], arguments: Sequence[Any], path: Path, options: Any, cost: Any, default_ms: float
) -> Row:
    """The sample of a schedule that was written by hand: its time from pairs with the default one's.

    It may change the Graph itself, so it has a space of its own to be predicted in.
    """
    import hjit
    from benchmarks.reach import scheduled_by_hand
    from hjit.tuning.autoschedule import space_of

    given = {"cache": "off", "verify": "off", "tune": False, "blas": False}
    default, hand = hjit.pipeline(function, **given), hjit.pipeline(function, **given)
    hand.use(hjit.Schedule.load(path))
    for f in (default, hand):
        f(*arguments)
    times = interleaved([lambda: default(*arguments), lambda: hand(*arguments)], HAND_SECONDS)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=False))
    variant = default.variant_of(tuple(arguments), {}, options)
    segment, tree = scheduled_by_hand(variant, options, path)
    predicted = space_of(segment, variant.rec.sizes, options, cost).schedule_cost(tree)
    return {"origin": BY_HAND, "ms": default_ms * ratio, "predicted_ms": 1e3 * predicted}


def place(row: Row, kind: str, key: str) -> int | None:
    """The place of a choice among all samples of an application, from 1 on, by "ms" or "predicted_ms"."""
    found = _choice(row, kind)
    return None if found is None else 1 + sum(s[key] < found[key] for s in row["samples"])


def over_best(row: Row, kind: str) -> float | None:
    """The time of a choice over that of the best schedule; None where there is no such choice."""
    found = _choice(row, kind)
    return None if found is None else found["ms"] / min(s["ms"] for s in row["samples"])


def over_predicted(row: Row, kind: str) -> float | None:
    """The time of a choice over the predicted one."""
    found = _choice(row, kind)
    return None if found is None else found["ms"] / found["predicted_ms"]


def _choice(row: Row, kind: str) -> Row | None:
    from hjit.tuning.limits import BELIEVED

    if kind == UNTIMED:
        greedy, default = _choice(row, "greedy"), _choice(row, "default")
        if greedy is None or default is None:
            return default
        return greedy if greedy["predicted_ms"] < BELIEVED * default["predicted_ms"] else default
    return next((s for s in row.get("samples", ()) if kind in (s["origin"], *s.get("also", ()))), None)


def rank(row: Row) -> float | None:
    """Spearman's rank correlation between predicted and measured times."""
    from scipy.stats import spearmanr

    samples = row.get("samples", ())
    if len(samples) < 3:
        return None
    return float(spearmanr([s["ms"] for s in samples], [s["predicted_ms"] for s in samples]).statistic)


def run(
    names: Sequence[str] = apps.NAMES,
    weights: Path | None = None,
    *,
    small: bool = False,
    calibrated: bool = False,
    limit: float = LIMIT,
    keep: Callable[[dict[str, Any]], None] = lambda numbers: None,
) -> dict[str, Any]:
    """All numbers, under the names of the JSON file.

    Args:
        calibrated: are the weights those of hjit, corrected by what `hjit calibrate` measured on this machine?
        keep: called with what there is after each application.

    Raises:
        ValueError: this machine was not calibrated.
    """
    from hjit.kernels.runtime.launch import cores
    from hjit.model.calibration import to_json
    from hjit.tuning.calibrated import kept
    from hjit.tuning.weights import file_digest

    correction = kept(file_digest()) if calibrated else None
    if calibrated and (correction is None or weights is not None):
        raise ValueError("--calibrated is of hjit's own weights, after `hjit calibrate` on this machine")
    head = {
        **about(),
        "weights": "those of hjit" if weights is None else weights.name,
        "calibration": None if correction is None else to_json(correction),
    }
    rows: list[Row] = []
    for name in names:
        request = [name, "" if weights is None else str(weights.resolve()), small, head["calibration"]]
        rows.append({"app": name, **reported("benchmarks.model", request, cores(), limit)})
        keep({**head, "rows": rows})
    return {**head, "rows": rows, "summary": summary(rows)}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Geometric means over the applications, the mean rank, and which are predicted within two times."""
    ranks = [x for x in map(rank, rows) if x is not None]
    off = [abs(math.log2(x)) for r in rows if (x := over_predicted(r, "default")) is not None]
    return {
        "over_best": {k: geomean(over_best(r, k) for r in rows) for k in KINDS},
        "over_predicted": {k: geomean(over_predicted(r, k) for r in rows) for k in KINDS},
        "rank": sum(ranks) / len(ranks) if ranks else None,
        "default_within_2": sum(x <= 1 for x in off),
        "compared": len(off),
    }


def show(numbers: dict[str, Any]) -> None:
    """Print the table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    t = Table(
        box=box.SIMPLE_HEAD,
        title="time / best (time / predicted); its place: as predicted and as measured",
        title_justify="left",
        padding=(0, 1, 0, 0),
    )
    for column in ("", "stages", "schedules", "rank", *KINDS, BY_HAND, "its place"):
        t.add_column(column, justify="right" if column else "left")
    for r in numbers["rows"]:
        if "error" in r:
            t.add_row(r["app"], *[""] * (4 + len(KINDS)), r["error"][:60])
            continue
        cells = [_cell(over_best(r, k), over_predicted(r, k)) for k in KINDS]
        places = [place(r, BY_HAND, key) for key in ("predicted_ms", "ms")]
        hand = _cell(over_best(r, BY_HAND), over_predicted(r, BY_HAND))
        about = "" if None in places else f"{places[0]} and {places[1]} of {len(r['samples'])}"
        t.add_row(r["app"], str(r["stages"]), str(len(r["samples"])), _number(rank(r)), *cells, hand, about)
    s = numbers["summary"]
    means = [_cell(s["over_best"][k], s["over_predicted"][k]) for k in KINDS]
    t.add_row(
        "mean", "", "", _number(s["rank"]), *means, "", f"{s['default_within_2']} of {s['compared']} within 2 times"
    )
    console = Console()
    (console if console.is_terminal else Console(width=150)).print(t)


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}"


def _cell(best: float | None, predicted: float | None) -> str:
    return "-" if best is None or predicted is None else f"{best:.2f} ({predicted:.2f})"


if __name__ == "__main__":
    answer_whole(measure)
