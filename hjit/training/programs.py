"""One random program, measured in a process of its own: a file of samples for each size of its images, and a summary.

    SEED-K.npz   pipeline [stages, len(PIPELINE)], machine [len(MACHINE)]; of each schedule: schedule
                 [stages, len(SCHEDULE)], runtimes and, of each round, times in seconds, part and part_runtimes [stages]
                 as in `hjit.model.fit.Program`, origins, trees as JSON; source as in `hjit.model.samples.Source`
    SEED.json    what came of the program: how many samples, how many schedules are none and why, or why there are none

A file is there as a whole or not at all, and the summary is written last: a program that has one is done.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hjit.errors import HjitError
from hjit.model import network
from hjit.model.fit import Program
from hjit.model.generator import LENGTHS, random_program
from hjit.model.samples import Dataset, Source
from hjit.options import Options
from hjit.process.files import replacing
from hjit.training.cases import ROUNDS, Measured, MeasurementLock, Mismatch, measured

PIXELS = (256**2, 2048**2)  # of the images of a program
SHORT, LARGEST = 8, 4096**2  # stages of a program whose largest images may have so many pixels
IMAGES = 3  # sizes of them, for one program
ONE_THREAD = 4  # of so many programs one runs on one thread, so that the model sees both


def measure(
    seed: int,
    folder: Path,
    count: int,
    weights: Path | None,
    target: str,
    most: int = LARGEST,
    stages: int = LENGTHS[1],
) -> dict[str, Any]:
    """Measure a random program and write its files; returns the summary.

    Args:
        count: schedules.
        most: pixels of an image.
        weights: of the cost model that picks some of them; None: random ones do.
        target: see `hjit.options.Options`.
        stages: of a program, at most.
    """
    summary = _measured(seed, folder, count, weights, target, most, stages)
    with replacing(folder / f"{seed}.json") as new:
        new.write_text(json.dumps(summary) + "\n")
    return summary


def sizes(seed: int, stages: int = LENGTHS[1]) -> list[int]:
    """Pixels of the images of a program: large ones, where it has few stages."""
    rng = random.Random(seed)
    low, high = map(math.log, PIXELS)
    found = [round(math.exp(rng.uniform(low, high))) for _ in range(IMAGES)]
    if len(random_program(seed, PIXELS[0], stages).stages) <= SHORT:
        found[-1] = round(math.exp(rng.uniform(high, math.log(LARGEST))))
    return found


def options_of(seed: int, target: str) -> Options:
    """The options of a random program: some are on one thread, and half with fast-math."""
    threads = 1 if seed % ONE_THREAD == ONE_THREAD - 1 else 0
    return Options(num_threads=threads, cache="off", verify="off", tune=False, fast_math=seed % 2 == 0, target=target)


def _measured(
    seed: int, folder: Path, count: int, weights: Path | None, target: str, most: int, stages: int
) -> dict[str, Any]:
    made = {pixels: random_program(seed, pixels, stages) for pixels in (min(n, most) for n in sizes(seed, stages))}
    first = next(iter(made.values()))
    same = {pixels: p for pixels, p in made.items() if p.source == first.source}
    options = options_of(seed, target)
    cost = None if weights is None else network.load(weights)
    lock = MeasurementLock(folder)
    try:
        found = measured(first.function, [p.inputs(seed) for p in same.values()], options, count, seed, lock, cost)
    except HjitError as error:
        return {"refused": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    except Mismatch as error:
        return {"wrong": str(error)}
    kept = [x for x in found if len(x.samples) > 1]
    for k, x in enumerate(kept):
        _save(folder / f"{seed}-{k}.npz", x, (seed, [*same][x.number], stages, target))
    return {
        "stages": len(found[0].pipeline),
        "images": len(kept),
        "samples": sum(len(x.samples) for x in kept),
        "lost": dict(sum((x.lost for x in found), Counter())),
    }


def _save(file: Path, x: Measured, source: tuple[int, int, int, str]) -> None:
    times = np.full((len(x.samples), ROUNDS), np.nan)
    for k, s in enumerate(x.samples):
        times[k, : len(s.times)] = s.times
    with replacing(file) as new:
        np.savez_compressed(
            new,
            pipeline=x.pipeline,
            machine=x.machine,
            schedule=np.stack([s.features for s in x.samples]).astype(np.float32),
            runtimes=np.array([s.seconds for s in x.samples]),
            times=times,
            part=np.stack([s.part for s in x.samples]).astype(np.uint8),
            part_runtimes=np.stack([s.part_seconds for s in x.samples]).astype(np.float32),
            origins=np.array([s.origin for s in x.samples]),
            trees=np.array([json.dumps([s.schedule.tree.to_json(), sorted(s.schedule.inlined)]) for s in x.samples]),
            source=json.dumps(source),
        )


def load(folders: Sequence[Path]) -> list[Program]:
    """The samples of some folders, in the order of their names; of programs that are done only."""
    return [program for program, _ in load_with_origins(folders)]


def load_with_origins(folders: Sequence[Path]) -> Iterator[tuple[Program, tuple[str, ...]]]:
    """As `load`, with the origins of each program's schedules."""
    return ((program, origins) for program, origins, _ in _load(folders))


def collected(folders: Sequence[Path]) -> Dataset:
    """As `load`, with the origins of all schedules, and what they and the programs are."""
    found = list(_load(folders))
    return Dataset(tuple(x for x, _, _ in found), tuple(x for _, x, _ in found), tuple(x for _, _, x in found))


def _load(folders: Sequence[Path]) -> Iterator[tuple[Program, tuple[str, ...], Source]]:
    for file in (file for folder in folders for file in _done(folder)):
        with np.load(file) as x:
            parts = (x["part"], x["part_runtimes"]) if "part" in x else ()
            program = Program(x["pipeline"], x["schedule"], x["runtimes"], x["machine"], *parts)
            seed, pixels, stages, target = json.loads(str(x["source"]))
            source = Source(seed, pixels, stages, target, tuple(map(str, x["trees"])))
            yield program, tuple(map(str, x["origins"])), source


def best_by_origin(folder: Path) -> Iterator[dict[str, float]]:
    """Of each program and image the least seconds of the schedules of each origin."""
    for file in _done(folder):
        with np.load(file) as x:
            origins, seconds = x["origins"], x["runtimes"]
        yield {str(name): float(seconds[origins == name].min()) for name in np.unique(origins)}


def _done(folder: Path) -> list[Path]:
    """The files of programs that are done, in the order of their names."""
    files = sorted(folder.glob("*-*.npz"), key=lambda x: tuple(map(int, x.stem.split("-"))))
    return [file for file in files if (folder / f"{file.stem.split('-')[0]}.json").exists()]


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m hjit.training.programs SEED FOLDER``: one program."""
    parser = argparse.ArgumentParser(prog="python -m hjit.training.programs", description=main.__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--schedules", type=int, default=16)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--most", type=int, default=LARGEST, metavar="PIXELS")
    parser.add_argument("--stages", type=int, default=LENGTHS[1])
    given = parser.parse_args(argv)
    of = (given.schedules, given.weights, given.target, given.most, given.stages)
    print(json.dumps(measure(given.seed, given.folder, *of)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
