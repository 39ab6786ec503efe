"""Debug output on stderr while functions are compiled, by two environment variables.

| variable                                                | prints                                                   |
|---------------------------------------------------------|----------------------------------------------------------|
| `HJIT_DEBUG=passes,schedule,search,loops,llvm,asm,cuda` | these topics: see `TOPICS`                               |
| `HJIT_PRINT_AFTER=name,...`                             | Graph or loops after these passes; "all": after each     |

With `HJIT_CHECK=1` the Graph and the loops are also validated after every pass, schedule trees after every transform.
What a cache holds is not compiled again, and so not printed: add `HJIT_CACHE=off`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable

from hjit.errors import OptionError

TOPICS = {
    "passes": "the time of each pass of the canonicaliser and of lowering",
    "schedule": "the schedule tree of each kernel",
    "search": "the best schedules that a search finds, with their predicted cost",
    "loops": "the loop IR after all passes",
    "llvm": "the LLVM IR that is handed to LLVM",
    "asm": "the assembly of the kernel",
    "cuda": "the text of kernels for a GPU, without its prelude",
}


def _names(variable: str) -> frozenset[str]:
    return frozenset(filter(None, (x.strip() for x in os.environ.get(variable, "").split(","))))


def wants(topic: str) -> bool:
    """Is this one of `TOPICS` in `HJIT_DEBUG`?"""
    return topic in _names("HJIT_DEBUG")


def checks() -> bool:
    """Is the result of every pass to be validated (`HJIT_CHECK`)?"""
    return os.environ.get("HJIT_CHECK", "0") not in ("", "0")


def is_on() -> bool:
    """Is anything to be printed or validated during a first call?"""
    return bool(_names("HJIT_DEBUG") or _names("HJIT_PRINT_AFTER") or checks())


def check_names(passes: Iterable[str]) -> None:
    """Are all names in the two variables known?

    Args:
        passes: the names of all passes.

    Raises:
        OptionError: one is not.
    """
    for variable, known in (("HJIT_DEBUG", tuple(TOPICS)), ("HJIT_PRINT_AFTER", ("all", *sorted(set(passes))))):
        unknown = sorted(_names(variable) - set(known))
        if unknown:
            raise OptionError(f"{variable} names {', '.join(unknown)}: choose of {', '.join(known)}")


def say(topic: str, title: str, text: Callable[[], object]) -> None:
    """Print `text()` under a title if the topic is enabled."""
    if wants(topic):
        _print(f"{topic}: {title}", text())


def passes(of: str) -> Callable[[str, object], None] | None:
    """A callback for the name and the result of each pass of the list `of`; None if nothing is to be printed."""
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
