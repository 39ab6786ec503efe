"""Random and searched schedules: programs of `tests.schedules` and `tests.searched`, functions of `source`."""

from __future__ import annotations

from collections.abc import Iterator

from tests import fuzz, searched
from tests import schedules as pairs
from tests.campaign import programs
from tests.campaign.kinds import OK, Case, Result

LIMIT = 300.0  # what computes much again is bounded by evaluations, not by seconds
WAYS = ("function", "fuzz", "function", "searched")


def case(seed: int) -> Case:
    """A program and a schedule of a seed."""
    way = WAYS[seed % len(WAYS)]
    if way == "function":
        return {**programs.case(seed), "way": way, "seed": seed}
    return {"way": way, "seed": seed, "statements": list(range(len(fuzz.random_program(seed).statements)))}


def program(case: Case) -> fuzz.Program:
    """Of the program of a seed, the statements that are left."""
    whole = fuzz.random_program(case["seed"])
    left = tuple(whole.statements[k] for k in case["statements"])
    returned = tuple(n for n in whole.returned if any(n in s for s in left)) or whole.returned
    return fuzz.Program(left, returned, whole.args)


def run(case: Case) -> Result:
    """Compare with NumPy."""
    if case["way"] == "function":
        return programs.run(case, schedule=pairs.RandomScheduler(case["seed"]), on_unsupported="raise")
    wrong = (
        searched.failure(case["seed"])
        if case["way"] == "searched"
        else program(case).fails(schedule=pairs.RandomScheduler(case["seed"]))
    )
    return OK if wrong is None else Result("failed", wrong.split(":")[0][:40], wrong)


def smaller(case: Case) -> Iterator[Case]:
    """Fewer statements."""
    if case["way"] == "function":
        yield from programs.smaller(case)
    elif case["way"] == "fuzz":
        left = case["statements"]
        for size in [s for s in (len(left) // 2, len(left) // 4, 1) if s]:
            for k in range(0, len(left), size):
                yield {**case, "statements": left[:k] + left[k + size :]}


def described(case: Case) -> str:
    """The program; its schedule is that of `tests.schedules.RandomScheduler`."""
    if case["way"] == "searched":
        return f"python -m tests.searched --seed {case['seed']} --count 1"
    return f"# under tests.schedules.RandomScheduler({case['seed']})\n" + (
        programs.described(case) if case["way"] == "function" else program(case).described()
    )
