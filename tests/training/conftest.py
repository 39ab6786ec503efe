"""Trainings that take seconds."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from hjit.training import cases, programs, rounds, schedules


def measure_here(command: list[str]) -> Any:
    """The same without a process."""
    return subprocess.CompletedProcess(command, programs.main(command[3:]), "", "")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of small images, measured in this process, one after the other; weights of few passes."""
    monkeypatch.setattr(programs, "PIXELS", (64**2, 64**2))
    monkeypatch.setattr(programs, "IMAGES", 1)
    monkeypatch.setattr(cases, "PROGRAM_SECONDS", 60.0)
    monkeypatch.setattr(rounds, "process", measure_here)
    monkeypatch.setattr(schedules, "SEARCH_SECONDS", 0.3)
    monkeypatch.setattr(rounds, "PASSES", 2)
