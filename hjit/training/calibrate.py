"""A calibration: a few minutes of measurements on this machine, and corrections of the cost model by them.

The programs are a fixed list, each in a process of its own as in a training (`hjit.training.programs`), in a temporary
folder; what is measured when the time is over counts, and nothing is kept before all is done.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from hjit.errors import ModelError
from hjit.model.calibration import Calibration, fitted
from hjit.model.fit import Program, steadied
from hjit.model.generator import random_program
from hjit.model.network import Network
from hjit.process.progress import ends_in, progress, watched
from hjit.training import programs
from hjit.tuning import calibrated
from hjit.tuning.weights import file_digest, uncorrected, weights, weights_digest, weights_file

MINUTES = 3.0
FIRST_SEED = 9_000_000  # of the programs: no training begins there
STAGES = 9  # of a program at most: long ones take long to compile
PIXELS = 1200**2  # of an image at most: more than caches hold, with several arrays
MOST = 120  # programs
SCHEDULES = 10  # of a program at most
JOBS = 2  # processes that compile at once; one at a time measures, while the other waits

Measure = Callable[[int, Path, Callable[[], bool]], None]  # a program, the folder of its files, and is the time over?


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a calibration.

    Attributes:
        kept: are the corrections in force from now on?
        why: if not.
        calibration: None where there were too few programs.
        programs: that were measured.
    """

    kept: bool
    why: str
    calibration: Calibration | None
    programs: int


def seeds() -> Iterator[int]:
    """The programs, always the same."""
    return (seed for seed in count(FIRST_SEED) if len(random_program(seed, programs.PIXELS[0]).stages) <= STAGES)


def run(minutes: float = MINUTES, measure: Measure | None = None) -> Outcome:
    """Calibrate this machine, and keep the corrections where they help.

    Args:
        measure: a program; None: in a process.

    Raises:
        OptionError: there are no weights, see `hjit.tuning.weights`.
    """
    network = uncorrected()
    with tempfile.TemporaryDirectory(prefix="hjit-calibrate-") as folder, progress("hjit: calibrating"):
        collect(Path(folder), 60 * minutes, measure or measured)
        found = steadied(programs.load([Path(folder)]))
    return concluded(network, found)


def concluded(network: Network, found: Sequence[Program]) -> Outcome:
    """Fit corrections, and keep them where they help."""
    number = len({p.pipeline.tobytes() for p in found})
    try:
        calibration = fitted(network, found)
    except ModelError as error:
        return Outcome(False, f"{error}; give it more minutes", None, number)
    if not calibration.helps:
        return Outcome(False, "the model predicts this machine as well without corrections", calibration, number)
    if not calibrated.keep(calibration, file_digest()):
        return Outcome(False, "the cache folder cannot be written (hjit cache)", calibration, number)
    weights.cache_clear()
    weights_digest.cache_clear()
    return Outcome(True, "", calibration, number)


def collect(folder: Path, seconds: float, measure: Measure) -> None:
    """Measure programs until the time is over."""
    end, stopped = time.monotonic() + seconds, threading.Event()
    ends_in(seconds)
    status = watched()  # of this thread
    todo = iter(list(islice(seeds(), MOST)))  # a generator is not for several threads
    done: list[int] = []

    def is_over() -> bool:
        return stopped.is_set() or time.monotonic() > end

    def work(_: int) -> None:
        while not is_over() and (seed := next(todo, None)) is not None:
            measure(seed, folder, is_over)
            done.append(seed)
            if status is not None:
                status.doing = f"{len(done)} programs"

    with ThreadPoolExecutor(JOBS) as pool:
        futures = [pool.submit(work, k) for k in range(JOBS)]
        try:
            for f in futures:
                f.result()
        finally:  # Ctrl-C: no other program is begun, and those that run are ended
            stopped.set()


def measured(seed: int, folder: Path, is_over: Callable[[], bool]) -> None:
    """A program in a process of its own; one that is over before its end, or that dies, has no samples."""
    command = [sys.executable, "-m", "hjit.training.programs", str(seed), str(folder)]
    command += ["--schedules", str(SCHEDULES), "--weights", str(weights_file()), "--most", str(PIXELS)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
            if is_over():
                process.kill()


def spoken(outcome: Outcome) -> str:
    """What came of it, for a person."""
    c = outcome.calibration
    lines = []
    if c is not None:
        lines += [
            f"{c.samples} schedules of {c.programs} programs measured",
            f"error on programs that were held out: {c.before:.3f} before, {c.after:.3f} corrected (of logarithms)",
            "factors: " + ", ".join(f"{name} {x:.2f}" for name, x in c.factors.items()),
        ]
    lines.append("kept: searches on this machine use them" if outcome.kept else f"not kept: {outcome.why}")
    return "\n".join(lines)
