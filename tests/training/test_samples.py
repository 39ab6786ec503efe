"""Samples of a training in one file."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hjit import cli
from hjit.errors import ModelError
from hjit.model import samples
from hjit.model.feature_names import MACHINE, PIPELINE, SCHEDULE
from hjit.model.fit import Program
from hjit.model.fit import fit as hjit_fit
from hjit.model.samples import Dataset, Source
from hjit.training import programs, rounds
from hjit.training.renewed import renewed
from hjit.training.rounds import Settings, Training

RNG = np.random.default_rng(0)


def program(stages: int, count: int) -> Program:
    """Features and times without a meaning."""
    of = lambda *shape: RNG.random(shape, np.float32) + 1e-3  # noqa: E731
    given = of(stages, len(PIPELINE)), of(count, stages, len(SCHEDULE)), of(count), of(len(MACHINE))
    return Program(*given, RNG.integers(0, stages, (count, stages)), of(count, stages))


def same(a: Program, b: Program) -> bool:
    return all(np.array_equal(getattr(a, x.name), getattr(b, x.name)) for x in fields(Program))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    data = Dataset((program(3, 2), program(1, 5)), (("default", "beam"), ("random",) * 4 + ("default",)))
    samples.write(tmp_path / "x.xz", data)
    found = samples.read(tmp_path / "x.xz")
    assert found.origins == data.origins
    assert all(map(same, found.programs, data.programs))


def test_sources_are_written_with_them_and_fit_them(tmp_path: Path) -> None:
    trees = ('["root", []]', '["root\\n  store x", ["y"]]')
    data = Dataset((program(3, 2),), (("default", "beam"),), (Source(7, 4096, 25, "cpu", trees),))
    samples.write(tmp_path / "x.xz", data)
    assert samples.read(tmp_path / "x.xz").sources == data.sources
    with pytest.raises(ModelError, match="trees"):
        Dataset(data.programs, data.origins, (Source(7, 4096, 25, "cpu", trees[:1]),))


def test_samples_without_times_of_nests_are_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, save = Dataset((program(3, 2),), (("default", "beam"),)), np.savez
    older = lambda file, **given: save(file, **{k: x for k, x in given.items() if k not in samples.PARTS})  # noqa: E731
    monkeypatch.setattr(samples.np, "savez", older)
    (found,) = samples.from_bytes(samples.to_bytes(data), "x.xz").programs
    assert not found.part.any()
    np.testing.assert_array_equal(
        found.part_runtimes, np.stack([found.runtimes, 0 * found.runtimes, 0 * found.runtimes], 1)
    )


def test_damage_and_other_features_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.xz"
    samples.write(file, Dataset((program(3, 2),), (("default", "beam"),)))
    content = file.read_bytes()
    for damaged in (b"", b"samples", content[: len(content) // 2], content[:-9]):
        file.write_bytes(damaged)
        with pytest.raises(ModelError, match=r"x\.xz"):
            samples.read(file)
    file.write_bytes(content)
    monkeypatch.setitem(samples.NAMES, "schedule", [*SCHEDULE[1:], "moons"])
    with pytest.raises(ModelError, match="other features"):
        samples.read(file)
    with pytest.raises(ModelError, match="no samples"):
        samples.write(file, Dataset((), ()))


def test_another_training_is_fitted_to_them_too(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, settings = tmp_path / "samples.xz", ["--programs", "2", "--schedules", "3", "--seed", "4"]
    assert cli.main(["train", str(tmp_path / "a"), *settings, "--rounds", "1", "--pack", str(file)]) == 0
    packed = samples.read(file)
    first = Training(tmp_path / "a", Settings(2, 3, 4))
    assert len(packed.programs) == first.rounds[0]["programs"] > 0
    assert all(map(same, packed.programs, programs.load([tmp_path / "a" / "0"])))

    fitted: list[int] = []

    def fit(known: Any, **given: Any) -> Any:
        fitted.append(len(known))
        return hjit_fit(known, **given)

    monkeypatch.setattr(rounds, "fit", fit)
    second = Training(tmp_path / "b", Settings(2, 3, 6))
    second.run(1, None, 1, print, packed.programs)
    assert fitted == [second.rounds[0]["programs"] + len(packed.programs)]
    file.write_bytes(b"")
    assert cli.main(["train", str(tmp_path / "c"), "--also", str(file)]) == 1
    assert "samples.xz" in capsys.readouterr().err


def test_features_are_worked_out_anew(tmp_path: Path, small: None, capsys: pytest.CaptureFixture[str]) -> None:
    file, settings = tmp_path / "samples.xz", ["--programs", "2", "--schedules", "3", "--seed", "4"]
    assert cli.main(["train", str(tmp_path / "a"), *settings, "--rounds", "1", "--pack", str(file)]) == 0
    data = samples.read(file)
    older = replace(data, programs=tuple(replace(p, schedule=p.schedule + 1) for p in data.programs))
    samples.write(file, older)
    again = ["train", str(tmp_path / "a"), *settings, "--rounds", "1", "--also", str(file), "--renew"]
    assert cli.main(again) == 0
    assert "left out: none" in capsys.readouterr().out
    found = samples.read(file)
    assert all(map(same, found.programs, data.programs))
    assert (found.origins, found.sources) == (data.origins, data.sources)

    other = replace(data.sources[0], seed=data.sources[0].seed + 1000)  # as if the generator had changed
    kept, lost = renewed(replace(data, sources=(other, *data.sources[1:])))
    assert len(kept.programs) == len(data.programs) - 1 == len(data.programs) - sum(lost.values())
    with pytest.raises(ModelError, match="do not say"):
        renewed(replace(data, sources=()))
