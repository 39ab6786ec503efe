"""Serialised samples (measured schedules of programs), some hundred bytes each, for fitting weights again later.

They are an npz under LZMA. All programs lie one after the other in its arrays, features of schedules one feature
after the other, since a schedule shares most of them with the next:

    about       JSON: the format, the names of the features, those of the origins
    stages, schedules   of each program, int32 [programs]
    pipeline    float32 [all stages, len(PIPELINE)]
    schedule    float32 [len(SCHEDULE), all stages of all schedules]
    runtimes    seconds, float32 [all schedules]
    origins     numbers of names, uint8 [all schedules]
    machine     float32 [programs, len(MACHINE)]
    part, part_runtimes   uint8 and float32 [all stages of all schedules]; older files have none
    sources     JSON, uint8: of each program a `Source`, from which features can be worked out anew where these have
                changed (`hjit.training.renewed`); older files have none
"""

from __future__ import annotations

import io
import json
import lzma
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hjit.errors import ModelError
from hjit.model.feature_names import MACHINE, PIPELINE, SCHEDULE
from hjit.model.fit import Program
from hjit.process.files import replacing

FORMAT = "hjit-samples-1"
PARTS = ("part", "part_runtimes")
NAMES = {"pipeline": list(PIPELINE), "schedule": list(SCHEDULE), "machine": list(MACHINE)}
_DAMAGE = (EOFError, KeyError, IndexError, ValueError, zipfile.BadZipFile, lzma.LZMAError)


@dataclass(frozen=True, slots=True)
class Source:
    """What a random program and its schedules are.

    Attributes:
        seed, pixels, stages: that `hjit.model.generator.random_program` makes it from.
        target: see `hjit.options.Options`.
        trees: of each schedule JSON of its tree and of the names of stages that are inlined.
    """

    seed: int
    pixels: int
    stages: int
    target: str
    trees: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Measured programs, and how each of their schedules was found.

    Attributes:
        origins: of each program those of its schedules, see `hjit.training.schedules.candidates`.
        sources: of each program where it is from, and its schedules; empty where that is not known.
    """

    programs: tuple[Program, ...]
    origins: tuple[tuple[str, ...], ...]
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        counts = [len(p.runtimes) for p in self.programs]
        if counts != [len(x) for x in self.origins]:
            raise ModelError("programs have other numbers of schedules than of origins")
        if self.sources and counts != [len(x.trees) for x in self.sources]:
            raise ModelError("programs have other numbers of schedules than of trees")


def to_bytes(data: Dataset) -> bytes:
    """What `from_bytes` reads.

    Raises:
        ModelError: there are no samples.
    """
    if not data.programs:
        raise ModelError("there are no samples to write")
    names = sorted({x for origins in data.origins for x in origins})
    about = {"format": FORMAT, **NAMES, "origins": names}
    rows = [p.schedule.reshape(-1, len(SCHEDULE)) for p in data.programs]
    content = io.BytesIO()
    np.savez(
        content,
        about=np.array(json.dumps(about)),
        stages=np.array([len(p.pipeline) for p in data.programs], np.int32),
        schedules=np.array([len(p.runtimes) for p in data.programs], np.int32),
        pipeline=np.concatenate([p.pipeline for p in data.programs]),
        schedule=np.ascontiguousarray(np.concatenate(rows).T),
        runtimes=np.concatenate([p.runtimes for p in data.programs]),
        origins=np.array([names.index(x) for origins in data.origins for x in origins], np.uint8),
        machine=np.stack([p.machine for p in data.programs]),
        part=np.concatenate([p.part.ravel() for p in data.programs]).astype(np.uint8),
        part_runtimes=np.concatenate([p.part_runtimes.ravel() for p in data.programs]),
        **({"sources": _packed(data.sources)} if data.sources else {}),
    )
    return lzma.compress(content.getvalue(), preset=9)


def from_bytes(content: bytes, where: str) -> Dataset:
    """The samples that `to_bytes` wrote.

    Args:
        where: they are from, for what is said of them.

    Raises:
        ModelError: they are no samples, or have other features than this version's.
    """
    try:
        with np.load(io.BytesIO(lzma.decompress(content)), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about")))
        if about["format"] != FORMAT or any(about[kind] != names for kind, names in NAMES.items()):
            raise ModelError(f"{where}: samples in another format, or of other features than this version of hjit has")
        return _unpacked(arrays, about["origins"])
    except _DAMAGE as error:
        raise ModelError(f"{where}: not samples of hjit, or damaged ({error})") from None


def write(path: str | os.PathLike[str], data: Dataset) -> None:
    """Write a file that `read` reads.

    Raises:
        OSError: it cannot be written.
        ModelError: there are no samples.
    """
    content = to_bytes(data)
    with replacing(Path(path)) as new:
        new.write_bytes(content)


def read(path: str | os.PathLike[str]) -> Dataset:
    """The samples that `write` wrote.

    Raises:
        OSError: the file cannot be read.
        ModelError: it is not such a file, or has other features than this version's.
    """
    return from_bytes(Path(path).read_bytes(), str(path))


def _packed(sources: Sequence[Source]) -> Any:
    """As bytes."""
    rows = [[x.seed, x.pixels, x.stages, x.target, [json.loads(tree) for tree in x.trees]] for x in sources]
    return np.frombuffer(json.dumps(rows, separators=(",", ":")).encode(), np.uint8)


def _sources(packed: Any) -> tuple[Source, ...]:
    """The opposite of `_packed`."""
    return tuple(
        Source(seed, pixels, stages, target, tuple(map(json.dumps, trees)))
        for seed, pixels, stages, target, trees in json.loads(packed.tobytes())
    )


def _unpacked(arrays: dict[str, Any], names: Sequence[str]) -> Dataset:
    stages, schedules = arrays["stages"].astype(int), arrays["schedules"].astype(int)
    rows = np.split(np.ascontiguousarray(arrays["schedule"].T), np.cumsum(stages * schedules)[:-1])
    pipelines = np.split(arrays["pipeline"], np.cumsum(stages)[:-1])
    runtimes = np.split(arrays["runtimes"], np.cumsum(schedules)[:-1])
    origins = np.split(arrays["origins"], np.cumsum(schedules)[:-1])
    ends = np.cumsum(stages * schedules)[:-1]
    part, seconds = (np.split(arrays[x], ends) if x in arrays else [None] * len(stages) for x in PARTS)
    found = [
        Program(
            pipeline,
            x.reshape(count, len(pipeline), -1),
            runtimes_of,
            machine,
            *(None if y is None else y.reshape(count, len(pipeline)) for y in of_parts),
        )
        for pipeline, x, count, runtimes_of, machine, *of_parts in zip(
            pipelines, rows, schedules, runtimes, arrays["machine"], part, seconds, strict=True
        )
    ]
    sources = _sources(arrays["sources"]) if "sources" in arrays else ()
    return Dataset(tuple(found), tuple(tuple(names[k] for k in x) for x in origins), sources)
