"""``python -m tests.campaign --minutes N [--seed S] [--json FILE]``: hard use of hjit, at random, against NumPy.

Whole functions, random schedules, mutated schedules and caches, killed processes, threads and forks, in shares of the
time (`kinds.SHARES`), in processes of their own, with arguments between pages that may not be touched. One line for
each failure: it was made smaller, and ``--only KIND --seed S`` runs it again. A process that dies, that hangs, and a
result that is not NumPy's are failures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.campaign.campaign import Campaign, Count
from tests.campaign.kinds import SHARES


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="python -m tests.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--minutes", type=float, help="without it, with --only: one case")
    p.add_argument("--seed", type=int, default=None, help="the first of every kind; the time if not given")
    p.add_argument(
        "--only", metavar="KIND", action="append", choices=list(SHARES), help=f"of {', '.join(SHARES)}; may be repeated"
    )
    p.add_argument("--count", type=int, help="cases of each kind at most")
    p.add_argument("--json", metavar="FILE", type=Path, help="write counts and failures here, on the way, too")
    p.add_argument("--show", action="store_true", help="print the smallest case of each failure")
    return p


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; 1 where something failed."""
    p = parser()
    given = p.parse_args(arguments)
    if given.minutes is None and given.count is None:
        if not given.only:
            p.error("--minutes N, --count N or --only KIND --seed S is needed")
        given.count, given.show = 1, True
    start = time.monotonic()
    seed = given.seed if given.seed is not None else int(time.time())
    campaign = Campaign(given.only or list(SHARES), seed, lambda line: print(line, flush=True))

    def go_on(counts: Mapping[str, Count]) -> bool:
        late = given.minutes is not None and time.monotonic() - start > 60 * given.minutes
        return not late and (given.count is None or any(c.cases < given.count for c in counts.values()))

    def keep() -> None:
        if given.json:
            data = {
                "seed": seed,
                "minutes": given.minutes,
                "seconds": round(time.monotonic() - start),
                **campaign.data(),
            }
            given.json.write_text(json.dumps(data, indent=1) + "\n")

    campaign.run(go_on, keep)
    if given.show:
        for failure in campaign.failures:
            print(f"\n# {failure.kind} seed {failure.seed}: {failure.sort}\n{failure.text}\n\n{failure.described}")
    cases = {name: c.data() for name, c in campaign.counts.items()}
    print(
        f"{sum(c['cases'] for c in cases.values())} cases from seed {seed}, {len(campaign.failures)} failures, {time.monotonic() - start:.0f} s"
    )
    print("; ".join(f"{name} {c['cases']}" for name, c in cases.items()))
    return bool(campaign.failures)


if __name__ == "__main__":
    sys.exit(main())
