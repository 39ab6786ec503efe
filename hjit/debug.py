"""What is printed on stderr while functions are compiled, as two variables of the environment ask for.

| variable                                               | prints                                                                |
|--------------------------------------------------------|-----------------------------------------------------------------------|
| `HJIT_DEBUG=passes,schedule,search,loops,llvm,asm`     | passes with their times, and what they lead to, as it is made          |
| `HJIT_PRINT_AFTER=name,...`                            | the Graph, or the loops, after these passes; "all": after each of them |

With `HJIT_CHECK=1` Graphs and loops are checked after every pass, and schedule trees after every transform, too. What a cache holds is not compiled, and not printed:
`HJIT_CACHE=off`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

TOPICS = ("passes", "schedule", "search", "loops", "llvm", "asm")


def _names(variable: str) -> frozenset[str]:
    return frozenset(filter(None, (x.strip() for x in os.environ.get(variable, "").split(","))))


def wants(topic: str) -> bool:
    """Is one of `TOPICS` to be printed?"""
    return topic in _names("HJIT_DEBUG")


def checks() -> bool:
    """Is the result of every pass to be checked?"""
    return os.environ.get("HJIT_CHECK", "0") not in ("", "0")


def say(topic: str, title: str, text: Callable[[], object]) -> None:
    """Print `text()` under a title, where the topic is wanted."""
    if wants(topic):
        _print(f"{topic}: {title}", text())


def passes(of: str) -> Callable[[str, object], None] | None:
    """What is to be given the name and the result of each pass of a list, as it is done; None where nobody asks."""
    timed, after = wants("passes"), _names("HJIT_PRINT_AFTER")
    if not timed and not after:
        return None
    last = time.perf_counter()

    def done(name: str, result: object) -> None:
        nonlocal last
        now = time.perf_counter()
        if timed:
            print(f"hjit passes: {of}.{name} {1000 * (now - last):.2f} ms", file=sys.stderr)
        if name in after or "all" in after:
            _print(f"after {of}.{name}", result)
        last = time.perf_counter()

    return done


def _print(title: str, what: object) -> None:
    print(f"---- hjit {title}\n{what}", file=sys.stderr)
