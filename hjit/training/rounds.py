"""Training in rounds: random programs under the picks of the present weights, measured; new weights; and again.

    FOLDER/training.json   the settings, and for each finished round what it measured and how well its weights do
    FOLDER/0, 1, ...       the rounds: the files of `hjit.training.programs`, and at the end weights.npz

What is there is not done again, so a training that was killed goes on where it was. The first round has no weights, and
random ones pick, or those that the training starts from do; each later one has those of the round before. Weights are
fitted to the samples of all rounds so far, afresh or from those at the start.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hjit.errors import ModelError
from hjit.kernels.runtime import launch
from hjit.model.fit import Program, Report, check_packages, fit, steadied
from hjit.model.generator import LENGTHS
from hjit.model.network import load
from hjit.options import resolve
from hjit.process.files import replacing
from hjit.process.machine import cpu, kept_bandwidth
from hjit.training import programs
from hjit.tuning.featuriser import compiled_featuriser
from hjit.version import __version__

PASSES = 60  # over the samples
DECAY, RATE = 0.1, 6e-3  # of weights, and of learning; programs held out are predicted best with them
START_RATE = 2e-3  # where weights are there to start from, which know more programs than are measured now
HELD_OUT = 0.2  # of the programs
LONGEST = 180.0  # seconds of one program
SHOWN = ("default", "greedy", "beam")  # of the choices

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a training is; one folder has one.

    Attributes:
        programs: of one round.
        schedules: of one program, at most.
        seed: of the first program.
        target: see `hjit.options.Options`.
        stages: of a program, at most.
    """

    programs: int = 250
    schedules: int = 20
    seed: int = 0
    target: str = "cpu"
    stages: int = LENGTHS[1]


@dataclass(frozen=True, slots=True)
class Round:
    """What came of a round.

    Attributes:
        refused, wrong: programs without samples: that are not one kernel, or whose results are not NumPy's.
        ended: those whose process died or took too long, by how.
        lost: schedules that are no samples, by why.
        choices: the time of the best schedule of an origin, of the default one or of what a search picked, over the
            best of all; geometric mean over programs and images. The picks of a round are those of weights that were
            not fitted to its programs.
        trained, held_out: how well the weights do, see `hjit.model.fit.Accuracy`.
    """

    number: int
    programs: int
    samples: int
    refused: int
    wrong: tuple[int, ...]
    ended: dict[str, int]
    lost: dict[str, int]
    choices: dict[str, float]
    seconds: float
    trained: dict[str, Any] = field(default_factory=dict)
    held_out: dict[str, Any] = field(default_factory=dict)


class Training:
    """A folder of rounds.

    Args:
        start: weights that pick in the first round, and that fits go on from; None: random ones.

    Raises:
        ModelError: the folder is that of a training with other settings.
    """

    def __init__(self, folder: Path, settings: Settings | None = None, start: Path | None = None) -> None:
        self.start = start
        self.folder, self._card = folder, folder / "training.json"
        known = json.loads(self._card.read_text()) if self._card.exists() else None
        if known is not None and settings is not None and Settings(**known["settings"]) != settings:
            raise ModelError(f"{folder} holds a training with {known['settings']}; take another folder")
        self.settings = settings or (Settings(**known["settings"]) if known else Settings())
        self.rounds: list[dict[str, Any]] = known["rounds"] if known else []
        folder.mkdir(parents=True, exist_ok=True)
        self._keep()

    def __str__(self) -> str:
        """A line for each finished round: what was measured, and how well its weights do on programs held out.

        Last the choices of the weights before it, see `Round.choices`.
        """
        head = ("round", "programs", "samples", "lost", "rank", "log R2", "chosen", *SHOWN)
        lines = [" ".join(f"{x:>8}" for x in head)]
        for r in self.rounds:
            held = r["held_out"] or r["trained"]
            known = (r["number"], r["programs"], r["samples"], sum(r["lost"].values()))
            means = (held["rank"], held["log_runtime_r2"], held["choice"], *map(r["choices"].get, SHOWN))
            cells = (*map(str, known), *("-" if x is None else f"{x:.3f}" for x in means))
            lines.append(" ".join(f"{x:>8}" for x in cells))
        return "\n".join(lines)

    @property
    def weights(self) -> Path | None:
        """Those of the last finished round, or those at the start."""
        return self.folder / str(len(self.rounds) - 1) / "weights.npz" if self.rounds else self.start

    @property
    def folders(self) -> list[Path]:
        """Of all rounds, the one that is not finished included."""
        return [x for k in range(len(self.rounds) + 1) if (x := self.folder / str(k)).is_dir()]

    def run(self, rounds: int, minutes: float | None, jobs: int, show: Show, others: Sequence[Program] = ()) -> None:
        """Finish rounds, until there are so many or the time is over.

        Args:
            jobs: processes that compile at once; one at a time measures, while the others wait.
            others: samples from elsewhere, which weights are fitted to, too.

        Raises:
            ModuleNotFoundError: what fitting needs is not installed.
        """
        check_packages()
        know_machine()
        end = None if minutes is None else time.monotonic() + 60 * minutes
        while len(self.rounds) < rounds:
            place = self.folder / str(len(self.rounds))
            place.mkdir(exist_ok=True)
            start = time.monotonic()
            if not self._collect(place, jobs, end, show):
                return
            self._finish(place, time.monotonic() - start, show, others)

    # -- one round
    def seeds(self, number: int) -> Iterable[int]:
        """The programs of a round."""
        first = self.settings.seed + number * self.settings.programs
        return range(first, first + self.settings.programs)

    def _collect(self, place: Path, jobs: int, end: float | None, show: Show) -> bool:
        """Measure what is missing of a round; False where the time was over before."""
        todo = iter([s for s in self.seeds(len(self.rounds)) if not (place / f"{s}.json").exists()])
        lock, stopped = threading.Lock(), threading.Event()

        def work(_: int) -> None:
            while not stopped.is_set():
                with lock:
                    seed = next(todo, None)
                if seed is None:
                    return
                if end is not None and time.monotonic() > end:
                    stopped.set()
                    return
                self._measure(seed, place, show)

        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(work, k) for k in range(jobs)]
            try:
                for f in futures:
                    f.result()
            except BaseException:  # Ctrl-C: what is being measured is not waited for to its end
                stopped.set()
                raise
        return not stopped.is_set()

    def _measure(self, seed: int, place: Path, show: Show) -> None:
        """One program in a process of its own; how it ended is its summary, where it did not end well."""
        command = [sys.executable, "-m", "hjit.training.programs", str(seed), str(place)]
        command += ["--schedules", str(self.settings.schedules), "--target", self.settings.target]
        command += ["--stages", str(self.settings.stages)]
        command += ["--weights", str(self.weights)] if self.weights else []
        try:
            done = process(command)
        except subprocess.TimeoutExpired:
            how: str | None = f"took more than {LONGEST:g} s"
        else:
            how = None if done.returncode == 0 else f"ended with status {done.returncode}"
            if how is not None:
                show(f"{seed}: {how}: {done.stderr.strip()[-400:]}")
        if how is not None:  # it is done, too: it would end so again
            _write(place / f"{seed}.json", {"ended": how})
        else:
            show(f"{seed}: {(place / f'{seed}.json').read_text().strip()}")

    def _finish(self, place: Path, seconds: float, show: Show, others: Sequence[Program]) -> None:
        """Fit weights to all rounds so far, and note what they are worth."""
        number = len(self.rounds)
        report = self._fit([*others, *programs.load(self.folders)], place / "weights.npz", show)
        found = summed_up(number, place, self.seeds(number), seconds)
        trained, held_out = ({} if x is None else asdict(x) for x in (report.trained, report.held_out))
        self.rounds.append(asdict(replace(found, trained=trained, held_out=held_out)))
        self._keep()

    def _fit(self, samples: Sequence[Program], out: Path, show: Show) -> Report:
        def told(number: int, error: float) -> None:
            if number % 10 == 9:
                show(f"pass {number + 1}: {error:.5f}")

        known = steadied(samples)
        if not known:
            raise ModelError(f"no program has samples so far; {out.parent} says why not")
        several = len({p.pipeline.tobytes() for p in known}) > 1
        network, report = fit(
            known,
            start=None if self.start is None else load(self.start),
            seed=self.settings.seed,
            passes=PASSES,
            learning_rate=RATE if self.start is None else START_RATE,
            loss="log",
            decay=DECAY,
            held_out=HELD_OUT if several else 0.0,
            show=told,
        )
        with replacing(out) as new:
            network.save(new)
        show(str(report))
        return report

    def _keep(self) -> None:
        about = {"hjit": __version__, "processor": cpu(), "settings": asdict(self.settings)}
        _write(self._card, about | {"rounds": self.rounds})


def know_machine() -> None:
    """Measure the machine while nothing else runs, and compile what all programs need, once for all their processes."""
    options = resolve({})
    for threads in (1, launch.threads(0)):
        kept_bandwidth(threads, options.cache_dir, options.cache)
    compiled_featuriser(options)


def process(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command.

    Raises:
        subprocess.TimeoutExpired: it took too long, and was killed.
    """
    return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)


def summed_up(number: int, place: Path, seeds: Iterable[int], seconds: float) -> Round:
    """What the summaries of a round's programs say together."""
    found = {s: json.loads((place / f"{s}.json").read_text()) for s in seeds if (place / f"{s}.json").exists()}
    return Round(
        number,
        sum("samples" in f for f in found.values()),
        sum(f.get("samples", 0) for f in found.values()),
        sum("refused" in f for f in found.values()),
        tuple(s for s, f in found.items() if "wrong" in f),
        dict(Counter(f["ended"] for f in found.values() if "ended" in f)),
        dict(sum((Counter(f.get("lost", {})) for f in found.values()), Counter())),
        choices(programs.best_by_origin(place)),
        round(seconds, 1),
    )


def choices(best: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The times of some origins' best schedules over the best of all: geometric means over programs that have them."""
    logs: dict[str, list[float]] = {}
    for times in best:
        for origin, seconds in times.items():
            logs.setdefault(origin, []).append(math.log(seconds / min(times.values())))
    return {origin: round(math.exp(sum(x) / len(x)), 4) for origin, x in sorted(logs.items())}


def _write(file: Path, data: Any) -> None:
    with replacing(file) as new:
        new.write_text(json.dumps(data, indent=1) + "\n")
