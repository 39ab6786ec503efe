"""The loop of a campaign: which kind is next, what failed (alone or only after others), and the smallest such case."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.campaign import minimise
from tests.campaign.kinds import SHARES, Case, Result, kind
from tests.campaign.process import Worker

CASES = 100  # that a worker runs before another one takes its place
MINIMISING = 90.0  # seconds for a failure
WORDS = 300  # characters of a line
LIKE = 600  # of two texts, without their numbers, that make two failures alike


@dataclass
class Count:
    """What became of the cases of a kind."""

    first_seed: int
    cases: int = 0
    seconds: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)  # of what was not plainly right: why

    def add(self, result: Result, seconds: float) -> None:
        self.cases += 1
        self.seconds += seconds
        self.statuses[result.status] += 1
        if result.sort:
            self.notes[f"{result.status}: {result.sort}"] += 1

    def data(self) -> dict[str, Any]:
        return {
            "first_seed": self.first_seed,
            "cases": self.cases,
            "seconds": round(self.seconds, 1),
            **self.statuses,
            "notes": dict(self.notes.most_common(20)),
        }


@dataclass
class Failure:
    """A failure, as small as it was made.

    Attributes:
        after: how many cases its process had run before: 0 where it fails in a process of its own.
        like: the seed of an earlier failure that reads the same, which was made smaller instead.
    """

    kind: str
    seed: int
    sort: str
    text: str
    case: Case | None = None
    described: str = ""
    after: int = 0
    like: int | None = None

    def line(self) -> str:
        """One line, with what reproduces it."""
        text = " ".join(self.text.split())[:WORDS]
        others = f" (after {self.after} others in its process)" if self.after else ""
        like = f" (like seed {self.like})" if self.like is not None else ""
        again = f"[python -m tests.campaign --only {self.kind} --seed {self.seed}]"
        return f"{self.kind} seed {self.seed}: {self.sort}: {text}{others}{like} {again}"


class Campaign:
    """Kinds in shares of the time, from a seed on."""

    def __init__(
        self,
        kinds: Sequence[str],
        seed: int,
        say: Callable[[str], None] = print,
        minimising: float = MINIMISING,
        **environment: str,
    ) -> None:
        self.worker = Worker(**environment)
        self.alone = Worker(**environment)
        self.counts = {name: Count(seed) for name in kinds}
        self.failures: list[Failure] = []
        self.say, self.minimising = say, minimising
        self._seen: dict[tuple[str, str, str], int] = {}

    def run(self, go_on: Callable[[Mapping[str, Count]], bool], keep: Callable[[], None] = lambda: None) -> None:
        """Run cases until `go_on` says no; `keep` is called after each failure, and now and then."""
        try:
            while go_on(self.counts):
                name = min(self.counts, key=lambda n: self.counts[n].seconds / SHARES[n])
                self.one(name)
                if sum(c.cases for c in self.counts.values()) % 20 == 0:
                    keep()
        finally:
            self.worker.close()
            self.alone.close()
            keep()

    def one(self, name: str) -> None:
        """The next case of a kind."""
        count = self.counts[name]
        if self.worker.cases >= CASES:
            self.worker.close()
        seed, before, start = count.first_seed + count.cases, self.worker.cases, time.monotonic()
        result = self.worker.ask({"kind": name, "seed": seed})
        count.add(result, time.monotonic() - start)
        if result.status == "failed":
            self._failed(name, seed, result, before)

    def _failed(self, name: str, seed: int, result: Result, before: int) -> None:
        case, module = self.worker.case, kind(name)
        failure = Failure(name, seed, result.sort, result.text, case, "", before)
        known = (name, result.sort, re.sub(r"\b[vs]?\d[\d.]*\b", "0", result.text)[:LIKE])  # dtypes keep their numbers
        if case is not None and known in self._seen:
            failure.like, failure.after = self._seen[known], 0
        elif case is not None:
            again = self._alone(name, case)
            if again.status == "failed":
                failure.after, failure.sort, failure.text = 0, again.sort, again.text
                failure.case, smaller = minimise.minimised(
                    module, case, again.sort, lambda c: self._alone(name, c), self.minimising
                )
                failure.text = smaller.text if smaller else again.text
                self._seen[known] = seed
        if failure.case is not None:
            failure.described = module.described(failure.case)
        self.failures.append(failure)
        self.say(failure.line())

    def _alone(self, name: str, case: Case) -> Result:
        """The case in a process that has run nothing else that went wrong; the first time in a fresh one."""
        result = self.alone.ask({"kind": name, "case": case})
        if self.alone.cases > 1 and result.status == "failed" and not result.sort.startswith(("dies", "hangs")):
            self.alone.close()
        return result

    def data(self) -> dict[str, Any]:
        """Counts and failures, as JSON data."""
        return {
            "kinds": {name: c.data() for name, c in self.counts.items()},
            "failures": [vars(f) for f in self.failures],
        }
