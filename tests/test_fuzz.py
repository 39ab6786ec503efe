"""Random image programs, compiled, against NumPy; `tests.fuzz` runs as many as you like."""

from __future__ import annotations

import os

import pytest

from tests.fuzz import minimised, random_program

PROGRAMS = int(os.environ.get("HJIT_FUZZ_PROGRAMS", "60"))
BATCH = 10


@pytest.mark.parametrize("start", range(0, PROGRAMS, BATCH))
def test_random_programs(start: int) -> None:
    for seed in range(start, min(start + BATCH, PROGRAMS)):
        program = random_program(seed)
        if program.fails() is not None:
            small = minimised(program)
            pytest.fail(f"seed {seed}: {small.fails()}\n{small.described()}")


def test_a_seed_is_a_program() -> None:
    for seed in range(20):
        assert random_program(seed).source == random_program(seed).source


def test_failures_are_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a fault of the compiler: every program that rolls fails."""
    from tests.fuzz import Program

    monkeypatch.setattr(Program, "fails", lambda self: "wrong" if "np.roll" in self.source else None)
    seed = next(s for s in range(500) if random_program(s).fails())
    small = minimised(random_program(seed))
    assert len(small.statements) == 1 and "np.roll" in small.source
