"""Cases made smaller while they still fail in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.campaign.kinds import Case, Kind, Result

Fails = Callable[[Case], Result]


def minimised(kind: Kind, case: Case, sort: str, run: Fails, seconds: float) -> tuple[Case, Result | None]:
    """The smallest case that was found to fail like this, with how it fails; None where no smaller one does.

    Args:
        sort: of the failure; a smaller case that fails in another way is another failure.
        run: runs a case, in a process that it may end.
        seconds: for all of it.
    """
    until, last, tried = time.monotonic() + seconds, None, set[str]()
    found = True
    while found:
        found = False
        for candidate in kind.smaller(case):
            if time.monotonic() > until:
                return case, last
            if (text := repr(candidate)) in tried:
                continue
            tried.add(text)
            result = run(candidate)
            if result.status == "failed" and result.sort == sort:
                case, last, found = candidate, result, True
                break
    return case, last
