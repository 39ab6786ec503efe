"""Damaged schedules: trees, directives, files and plans are mutated; each is refused with a ScheduleError, or runs and is right.

``python -m tests.mutants --count 5000 --seed 0``. What damaged schedules could do is end the process, or never come to an end, so they run in a
process of their own that says which one it begins: `run` starts it, and starts it again behind what killed it.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import hjit
from hjit.errors import ScheduleError
from hjit.process import machine
from hjit.sched.hand.directives import DIRECTIVES, GRAPH_DIRECTIVES
from hjit.sched.language.tree import Root, from_json
from hjit.trace.passes.rewrites import Rewrites
from hjit.tuning import plans
from hjit.tuning.limits import LONGEST_BLOCK
from tests.sched import test_schedule as examples
from tests.sched.random_schedules import random_schedule

MEMORY = 16 << 30  # bytes of addresses that the process may have
SCRATCH = 1 << 30  # bytes of memory that hjit takes the machine to have
SILENT = 60.0  # seconds that one schedule may take, on however busy a machine
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 33, 64, 100, 255, 256, 257, 1024, 4096, 65535, 65536, 2**20, 2**28, 2**28 + 1, 2**31 - 1, 2**31,
           2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 2**65, 10**400, -1, -2, -(2**63), -(2**65))  # fmt: skip
OTHERS = (None, True, False, 1.0, 2.5, math.nan, math.inf, "", "x", "4", "nothing", [], {}, [0, 1], [[]], {"a": 1})
WORDS = (
    "serial",
    "parallel",
    "vector",
    "unroll",
    "auto",
    "guard_with_if",
    "shift_inwards",
    "predicate",
    "round_up",
    "root",
    "store",
    "loop",
    "compute",
)
WORDS_OF_DIRECTIVES = (*DIRECTIVES, *GRAPH_DIRECTIVES)


def histogram(img: Any) -> Any:
    counts = np.bincount((img >> 8).ravel(), minlength=256)
    result = counts * 2 + 1
    return result


def normalised(img: Any) -> Any:
    soft = np.exp(img * np.float32(-0.5))
    total = soft.sum(axis=1, keepdims=True)
    result = soft / total
    return result


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{name: (f, args) for name, (f, args, _, _) in examples.CASES.items()},
    "running": (examples.running, (examples.GRAY,)),
    "histogram": (histogram, (examples.GRAY,)),
    "normalised": (normalised, (examples.COLOUR[..., 0],)),
}


class Given:
    """A tree for the Graph in which no stage is inlined."""

    longest_block: ClassVar[float] = math.inf

    def __init__(self, tree: Root | None) -> None:
        self.made = tree

    def rewrites(self) -> Rewrites:
        return Rewrites(kept=frozenset() if self.made is None else _Everything())

    def tree(self, graph: Any, target: Any) -> Any:
        return self.made


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


def compiled(name: str) -> hjit.Pipeline:
    found: hjit.Pipeline = hjit.pipeline(CASES[name][0], verify="off", cache="off", tune=False, num_threads=2)
    return found


@cache
def graph_of(name: str, whole: bool) -> Any:
    """The Graph of a case, with all its stages (`whole`) or some inlined."""
    s = compiled(name).schedule(*CASES[name][1])
    return (s._make(Rewrites(kept=_Everything())) if whole and s._make is not None else s.graphs())[0]


@cache
def expected(name: str) -> Any:
    function, args = CASES[name]
    return function(*args)


@cache
def directives_of(name: str) -> list[Any]:
    """The directives of a case as a file has them."""
    if name not in examples.CASES:
        return [[compiled(name).schedule(*CASES[name][1]).stages[-1], 0, "split", ["x", "xo", "xi", 8]]]
    s = compiled(name).schedule(*CASES[name][1])
    examples.CASES[name][2](s)
    return [[stage, group, word, list(args)] for stage, group, word, args in s.directives]


# -- mutations of data


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is something in lists and dictionaries."""
    yield path
    items = enumerate(data) if isinstance(data, list) else data.items() if isinstance(data, dict) else ()
    for k, x in items:
        yield from places(x, (*path, k))


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for k in path:
        data = data[k]
    return data


def another(x: Any, rng: random.Random, known: list[Any]) -> Any:
    """Something in place of `x`, mostly of its kind."""
    if rng.random() < 0.15:
        return copy.deepcopy(rng.choice(OTHERS))
    if isinstance(x, str):
        return rng.choice([*WORDS, *(k for k in known if isinstance(k, str))])
    if type(x) is int:
        return rng.choice([*NUMBERS, x + 1, x - 1, x * 2, x // 2, x * 3])
    if x is None:
        return rng.choice(NUMBERS)
    return copy.deepcopy(rng.choice(known))


def mutate(data: Any, rng: random.Random, times: int) -> Any:
    """The data with some things changed, left out, doubled, exchanged, or moved."""
    data = copy.deepcopy(data)
    for _ in range(times):
        if not isinstance(data, (list, dict)):
            return data
        found = [p for p in places(data) if len(p) < 100]
        known = [at(data, p) for p in found]
        path = rng.choice(found[1:]) if len(found) > 1 else ()
        if not path:
            return copy.deepcopy(rng.choice(OTHERS))
        around, k = at(data, path[:-1]), path[-1]
        match rng.choice(("change", "change", "change", "leave out", "double", "exchange", "splice", "wrap", "key")):
            case "change":
                around[k] = another(around[k], rng, known)
            case "leave out":
                del around[k]
            case "double" if isinstance(around, list):
                around.insert(k, copy.deepcopy(around[k]))
            case "exchange" if isinstance(around, list):
                j = rng.randrange(len(around))
                around[k], around[j] = around[j], around[k]
            case "splice" if isinstance(around, list) and isinstance(
                around[k], list
            ):  # a node gone, those inside it in its place
                around[k : k + 1] = around[k][-1] if around[k] and isinstance(around[k][-1], list) else around[k]
            case "wrap":
                shell = _shell(data, rng)
                for _ in range(rng.choice((1, 1, 2, 50))):
                    around[k] = [*shell, [around[k]]] if rng.random() < 0.9 else [around[k]]
            case "key" if isinstance(around, dict):
                around[rng.choice(("", "x", "cost", "directives"))] = rng.choice(OTHERS)
    return data


def _shell(data: Any, rng: random.Random) -> list[Any]:
    """A loop, but for what is inside it."""
    loops = [x for x in (at(data, p) for p in places(data) if len(p) < 12) if isinstance(x, list) and x[:1] == ["loop"]]
    return copy.deepcopy(rng.choice(loops)[:-1]) if loops else ["loop", "x", 0, "serial", 4, "auto"]


def damaged(text: str, rng: random.Random) -> str:
    """A text with characters changed, or cut short."""
    if not text:
        return "["
    k = rng.randrange(len(text))
    return rng.choice(
        (
            text[:k],
            text[:k] + "[" * 100_000 + text[k:],
            text[:k] + rng.choice('0123456789[]{},"-.eN\x00') + text[k + 1 :],
            text[:k] + text[k + 1 :],
            text[:k] + "9" * 30 + text[k:],
        )
    )


# -- ways in


def _tree(name: str, rng: random.Random, whole: bool) -> Root:
    """A legal tree, and what became of it in a file."""
    data = json.loads(random_schedule(graph_of(name, whole), rng).to_json())
    return from_text(json.dumps(mutate_tree(data, rng)), rng)


def mutate_tree(data: Any, rng: random.Random) -> Any:
    """Some fields changed; of many of them only sizes, so that trees stay legal more often."""
    if rng.random() < 0.5:
        return mutate(data, rng, rng.choice((1, 1, 1, 2, 4)))
    found = [p for p in places(data) if type(at(data, p)) is int or at(data, p) in WORDS[:9]]
    for path in rng.sample(found, min(len(found), rng.choice((1, 1, 2, 3)))):
        old = at(data, path)
        at(data, path[:-1])[path[-1]] = (
            rng.choice([*NUMBERS, old * 2, old * 4]) if type(old) is int else rng.choice(WORDS[:9])
        )
    return data


def from_text(text: str, rng: random.Random) -> Root:
    return from_json(damaged(text, rng) if rng.random() < 0.05 else text)


def in_tree(name: str, rng: random.Random) -> Any:
    return _tree(name, rng, whole=False)


def in_whole_tree(name: str, rng: random.Random) -> Any:
    return Given(_tree(name, rng, whole=True))


def in_file(name: str, rng: random.Random) -> Any:
    data = {"hjit schedule": 1, "directives": directives_of(name)}
    data = mutate(data, rng, rng.choice((1, 1, 2, 3)))
    text = json.dumps(data)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "s.json")
        file.write_text(damaged(text, rng) if rng.random() < 0.1 else text)
        return hjit.Schedule.load(file)


def in_directives(name: str, rng: random.Random) -> Any:
    """Directives by hand, each refused as it is given, or not."""
    s = compiled(name).schedule(*CASES[name][1])
    rows = copy.deepcopy(directives_of(name))
    names = [*s.stages, "y", "x", "c", "r0", "xo", "xi", "yo", "xv", "yu"]
    for _ in range(rng.choice((0, 0, 1, 3, 300 if rng.random() < 0.1 else 2))):
        word = rng.choice(WORDS_OF_DIRECTIVES)
        args = [rng.choice((*names, *names, *WORDS, *NUMBERS[:20])) for _ in range(rng.randrange(5))]
        if word in ("inner", "split") and rng.random() < 0.8:
            args = [rng.choice(names[-9:]), rng.choice(("vector", "unroll", "serial")), rng.choice(NUMBERS)]
            args = args if word == "inner" else [args[0], "a", f"b{rng.randrange(99)}", args[-1]]
        rows.insert(rng.randrange(len(rows) + 1), [rng.choice(s.stages), rng.choice((0, 0, 0, 1)), word, args])
    for stage, group, word, args in mutated_rows(rows, rng):
        try:
            s.add((stage, group, word, tuple(args) if isinstance(args, list) else args))
        except ScheduleError:
            if rng.random() < 0.1:
                raise
    return s


def mutated_rows(rows: list[Any], rng: random.Random) -> list[Any]:
    changed = mutate(rows, rng, rng.choice((0, 1, 1, 2)))
    return (
        [r for r in changed if isinstance(r, list) and len(r) == 4 and type(r[2]) is str and isinstance(r[3], list)]
        if isinstance(changed, list)
        else []
    )


def in_plan(name: str, rng: random.Random) -> Any:
    """A plan on disk: where it is damaged there is none, which is no error."""
    graph = graph_of(name, False)
    text = plans.to_text(plans.Plan(random_schedule(graph, rng), frozenset(), 1.0), graph)
    data = json.loads(text)
    data["tree"] = mutate_tree(data["tree"], rng)
    data = mutate(data, rng, rng.choice((0, 0, 1)))
    text = json.dumps(data).encode()
    found = plans.from_text(damaged(text.decode(), rng).encode() if rng.random() < 0.1 else text, graph)
    if found is None or found.tree is None:
        raise ScheduleError("no plan")
    return FromPlan(found)


class FromPlan:
    """A plan, given to a pipeline."""

    longest_block = LONGEST_BLOCK

    def __init__(self, plan: plans.Plan) -> None:
        self.plan = plan

    def rewrites(self) -> Rewrites:
        return Rewrites(inlined_after=self.plan.inlined, factored=self.plan.factored)

    def tree(self, graph: Any, target: Any) -> Any:
        return self.plan.tree


WAYS = (in_tree, in_whole_tree, in_file, in_directives, in_plan)


def outcome(seed: int) -> str:
    """What becomes of a damaged schedule: "right", "refused", or what is wrong."""
    rng = random.Random(seed)
    name, way = rng.choice(list(CASES)), rng.choice(WAYS)
    try:
        f = compiled(name).use(way(name, rng))
        result = f(*CASES[name][1])
    except ScheduleError:
        return "refused"
    except Exception as error:
        return f"{name}, {way.__name__}: {type(error).__name__}: {str(error)[:200]}"
    wanted = expected(name)
    same = result.dtype == wanted.dtype and result.shape == wanted.shape
    exact = wanted.dtype.kind != "f"
    if not same or not (np.array_equal(result, wanted) if exact else np.allclose(result, wanted, 1e-4, 1e-5)):
        return f"{name}, {way.__name__}: wrong numbers"
    return "right"


# -- a process for many


def work(first: int, count: int) -> None:
    """Say what becomes of each seed, one line before and one after it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    machine.memory = lambda: SCRATCH  # type: ignore[assignment]
    for seed in range(first, first + count):
        print(seed, "begins", flush=True)
        print(seed, json.dumps(outcome(seed)), flush=True)


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """What a process writes, line by line, until it ends; it is ended where it is silent for too long."""
    assert process.stdout is not None
    rest = b""
    while select.select([process.stdout], [], [], SILENT)[0]:
        new = os.read(process.stdout.fileno(), 1 << 16)
        if not new:
            return
        *lines, rest = (rest + new).split(b"\n")
        yield from (x.decode() for x in lines)
    process.kill()


def run(
    first: int, count: int, say: Callable[[int, str], None] = lambda seed, why: None
) -> tuple[Counter[str], dict[int, str]]:
    """How many are right and refused, and what is wrong with the seeds that are neither, which `say` is told at once."""
    counts: Counter[str] = Counter()
    wrong: dict[int, str] = {}
    seed, end = first, first + count
    while seed < end:
        command = [sys.executable, "-m", "tests.mutants", "--work", "--seed", str(seed), "--count", str(end - seed)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            for line in _lines(process):
                number, _, said = line.partition(" ")
                seed = int(number)
                if said == "begins":
                    continue
                seed, found = seed + 1, json.loads(said)
                counts[found if found in ("right", "refused") else "wrong"] += 1
                if found not in ("right", "refused"):
                    wrong[int(number)] = found
                    say(int(number), found)
            status = process.wait()
            why = f"no end after {SILENT:.0f} s" if status == -signal.SIGKILL else f"the process ended with {status}"
        if seed < end:
            counts["killed"] += 1
            wrong[seed] = why
            say(seed, wrong[seed])
            seed += 1
    return counts, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--work", action="store_true")
    given = parser.parse_args()
    if given.work:
        work(given.seed, given.count)
    else:
        found, failed = run(given.seed, given.count, lambda seed, why: print(f"seed {seed}: {why}", flush=True))
        print(json.dumps(found))
        sys.exit(bool(failed))
