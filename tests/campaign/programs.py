"""Whole functions against NumPy, in several calls of one pipeline.

Results, dtypes, errors, changed arguments and shared memory must be the same. Results whose last bits are free may
differ by some roundings of their largest number, and otherwise as far as `hjit.verify` finds that roundings explain:
elements cancel, or are converted from a coarser dtype, or a partial sum overflows.
"""

from __future__ import annotations

import contextlib
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import hjit
from hjit.call.checks.first_calls import MAX_DOUBTS, MAX_PATHS
from tests.campaign import arguments, source
from tests.campaign.kinds import OK, Case, Result
from tests.numpy_check import assert_same, place, watched_scratch

LIMIT = 90.0
CALLS = ((0, True), (0, False), (1, True), (0, True))  # a set of arguments, and whether the guard pages are at its ends
ULPS = 4096  # of the largest number: of results of which the last bits are free

described = source.described


def case(seed: int, by_itself: bool = False) -> Case:
    """A function with two sets of arguments, and options; `by_itself`: several threads may call it at once."""
    r = random.Random(seed)
    options: dict[str, Any] = {"tune": "greedy" if r.random() < 0.25 else False, "num_threads": r.choice((1, 2))}
    if r.random() < 0.2:
        options["verify"] = "first"
    return {**source.random_case(seed, by_itself), "options": options, "enclosed": r.random() < 0.2}


def run(case: Case, schedule: Any = None, watch: bool = True, **more: Any) -> Result:
    """Compare some calls of one pipeline with plain ones.

    Args:
        schedule: what it runs by, if not what it finds itself.
        watch: scratch memory, too; that is for one thread at a time.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", hjit.HjitWarning)
        given = {"verify": "off", "cache": "off", **case["options"], **more}

        def made(**options: Any) -> Any:
            return source.function(case, lambda f: hjit.pipeline(f, **{**given, **options}).use(schedule))

        return compared(made, source.function(case), case, watch)


def compared(made: Callable[..., Any], plain: Any, case: Case, watch: bool) -> Result:
    """The first call that goes wrong, or how all of them went.

    Args:
        made: makes the pipeline, with some other options.
    """
    pipe = made()
    for number, (which, at_end) in enumerate(CALLS):
        given = [arguments.made(s) for s in case["args"][which].values()]
        result = one(pipe, plain, given, at_end, case["returned"], watch, lambda x: verified(made(verify="first"), x))
        if result.status == "failed":
            return replace(result, text=f"call {number}: {result.text}")
        if result.status != "ok" and number == 0:
            return result  # of later calls a refusal, or NumPy's own exception, is as good as an agreement
    return Result("ok", "fell back") if pipe.stats.fallbacks else OK


def verified(pipe: Any, given: Sequence[Any]) -> bool:
    """Does the comparison of first calls find that roundings explain how their result differs from NumPy's?"""
    for _ in range(MAX_PATHS + MAX_DOUBTS + 1):  # until it is decided
        pipe(*place(list(given), True))
        if pipe.stats.verified is not None:
            break
    return pipe.stats.verified is True


def one(
    pipe: Any,
    plain: Any,
    given: Sequence[Any],
    at_end: bool,
    names: Sequence[str],
    watch: bool,
    explains: Callable[[Sequence[Any]], bool],
) -> Result:
    """A call, compared with a plain one.

    Args:
        explains: do roundings explain results that differ by more than some?
    """
    theirs, ours = place(list(given), at_end), place(list(given), at_end)
    error: Exception | None = None
    try:
        expected = plain(*theirs)
    except Exception as raised:
        error = raised
    try:
        with warnings.catch_warnings(record=True) as given_warnings:
            warnings.simplefilter("always", hjit.HjitWarning)
            with watched_scratch() if watch else contextlib.nullcontext():
                got = pipe(*ours)
    except hjit.TraceError as raised:
        return Result("refused", raised.operation, f"{raised.operation}: {raised.reason}")
    except AssertionError as raised:
        return Result("failed", "scratch memory", str(raised))
    except Exception as raised:
        if error is not None and isinstance(raised, type(error)):
            return Result("invalid", type(error).__name__, str(error))
        instead = f" where NumPy raises {error!r}" if error is not None else ""
        return Result("failed", f"raises {type(raised).__name__}", f"{type(raised).__name__}: {raised}{instead}")
    if error is not None:
        return Result("failed", "no error", f"NumPy raises {error!r}, the pipeline does not")
    messages = [str(x.message) for x in given_warnings if issubclass(x.category, hjit.HjitWarning)]
    if messages := [x for x in messages if "f.stats.flipped" not in x]:  # that decisions are close is no fault
        if not all(" runs as plain NumPy: " in x and "What to do: " in x for x in messages):
            return Result("failed", "warns", messages[0])
    result = same(got, expected, ours, theirs, names, lambda: explains(given))
    if messages and result.status == "ok":  # inside `try`, say, what cannot be traced leaves all of it to Python
        return Result("refused", "runs plain", messages[0])
    return result


def same(
    got: Any,
    expected: Any,
    ours: Sequence[Any],
    theirs: Sequence[Any],
    names: Sequence[str],
    explained: Callable[[], bool] = lambda: False,
) -> Result:
    """Is a result NumPy's, and are the arguments what they are after the plain call?

    Args:
        explained: do roundings explain results that differ by more than some?
    """
    try:
        assert_same(ours, theirs, zeros=False, where="arguments")
        many = len(names) > 1
        assert not many or (isinstance(got, tuple) and len(got) == len(names)), (
            f"result: {type(got)} instead of a tuple"
        )
        for name, g, e in zip(names, got if many else [got], expected if many else [expected], strict=True):
            soft = name.startswith("s")
            try:
                assert_same(g, e, not soft, zeros=False, ulps=ULPS, where=f"result {name}")
            except AssertionError as wrong:
                if not (soft and sort_of(str(wrong)) == "wrong numbers" and explained()):
                    raise
    except (AssertionError, TypeError, ValueError) as wrong:
        return Result("failed", sort_of(str(wrong)), str(wrong))
    pairs = [
        (k, j)
        for k, x in enumerate(leaves(expected))
        for j, a in enumerate(theirs)
        if isinstance(x, np.ndarray) and isinstance(a, np.ndarray)
    ]
    for k, j in pairs:
        if np.may_share_memory(leaves(expected)[k], theirs[j]) != np.may_share_memory(leaves(got)[k], ours[j]):
            return Result(
                "failed",
                "shared memory",
                f"result {k} and argument {j} share memory in one of NumPy and the pipeline, not in both",
            )
    return OK


def leaves(x: Any) -> list[Any]:
    return [y for part in x for y in leaves(part)] if isinstance(x, (tuple, list)) else [x]


def sort_of(text: str) -> str:
    """A wrong result in a word."""
    if "differ" in text:
        return "wrong numbers" if text.startswith("result") else "wrong arguments"
    return "wrong type" if "instead of" in text else "wrong result"


# -- smaller


def smaller(case: Case) -> Iterator[Case]:
    """Fewer blocks, fewer lines in them, fewer results, plainer options, arguments that are smaller or in C order."""
    blocks, returned = case["blocks"], case["returned"]
    n = len(blocks)
    for size in [s for s in (n // 2, n // 4, 1) if s] if n > 1 else []:
        for k in range(0, n, size):
            yield source.used({**case, "blocks": blocks[:k] + blocks[k + size :]})
    if len(returned) > 1:
        for name in returned:
            yield source.used({**case, "returned": [name]})
    for k, block in enumerate(blocks):
        names = re.findall(r"^([vs]\d+) [-+*|&]?=", block, re.MULTILINE)
        if names and returned != [names[-1]]:
            yield source.used({**case, "blocks": blocks[: k + 1], "returned": [names[-1]]})
        text = block.split("\n")
        for j in range(len(text)) if len(text) > 1 else ():
            yield source.used({**case, "blocks": [*blocks[:k], "\n".join(text[:j] + text[j + 1 :]), *blocks[k + 1 :]]})
    if case.get("enclosed"):
        yield {**case, "enclosed": False}
    plain = {"tune": False, "num_threads": 1}
    if case["options"] != plain:
        yield {**case, "options": plain}
    if case["args"][0] != case["args"][1]:
        yield {**case, "args": [case["args"][0]] * 2}
    yield from smaller_arguments(case)


def smaller_arguments(case: Case) -> Iterator[Case]:
    """The arguments smaller, and plainer."""
    one, two = case["args"]
    sizes = sorted(
        {n for specs in (one, two) for s in specs.values() for n in s.get("shape", ()) if n > 1}, reverse=True
    )
    for n in sizes:
        for m in dict.fromkeys((n // 4, n // 2, n - 1)):
            if m > 0:
                yield {
                    **case,
                    "args": [{name: arguments.resized(s, {n: m}) for name, s in specs.items()} for specs in (one, two)],
                }
    for name, spec in one.items():
        for key, value in (("layout", arguments.WHOLE), ("numbers", "image")):
            if spec.get(key, value) != value:
                yield {**case, "args": [{**specs, name: {**specs[name], key: value}} for specs in (one, two)]}
