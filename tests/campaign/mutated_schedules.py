"""Schedules as a user, a file or a damaged file may give them: refused soon with a `ScheduleError`, or right.

A case is a program, and either a whole tree (a random legal one, mutated as JSON data) or directives (drawn from the
words that there are, with the names of the program, and mutated). Both come in as a user gives them: `Pipeline.use`, or
a file.
"""

from __future__ import annotations

import copy
import json
import random
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hjit
from hjit.errors import ScheduleError
from hjit.sched.hand.directives import dim_names
from hjit.sched.hand.schedule import usable
from hjit.sched.language.check import check_tree
from hjit.sched.language.tree import KINDS, TAILS, Root, from_json
from hjit.trace.ir.graph import Graph
from tests import fuzz
from tests.campaign.kinds import Case, Result
from tests.numpy_check import assert_same, place
from tests.sched.random_schedules import random_schedule
from tests.schedules import MOST, evaluations

LIMIT = 60.0
SOON = 5.0  # seconds of processor time for a refusal: a second on a machine of its own
SMALL = (1, 2, 3, 4, 5, 8, 16)
NUMBERS = (
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    16,
    17,
    64,
    100,
    4096,
    65535,
    2**31 - 1,
    2**31,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    2**64,
    2**65,
    -1,
    -8,
    -(2**31),
    -(2**63),
    -(2**64),
)
ODD: tuple[Any, ...] = ("", "nothing", "d0", "x", "y", "vector", None, True, 1.5, [], [0], [1, 0], {}, float("nan"))
TREE, DIRECTIVES, FILE = "tree", "directives", "file"


class TooExpensive(Exception):
    """The schedule is legal, and computes so much again that it would run for hours."""


class Bounded:
    """A schedule that the pipeline runs by, unless it computes too much."""

    longest_block = 2**62

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def rewrites(self) -> Any:
        return self.inner.rewrites()

    def check_names(self, graphs: Any) -> None:
        if hasattr(self.inner, "check_names"):
            self.inner.check_names(graphs)

    def tree(self, graph: Any, target: Any) -> Any:
        tree = self.inner.tree(graph, target)
        check_tree(tree, graph)
        if evaluations(graph, tree) > MOST:
            raise TooExpensive
        return tree


# -- drawing


def case(seed: int) -> Case:
    """A program of `tests.fuzz` with one kind of schedule."""
    r = random.Random(seed)
    program = fuzz.random_program(seed)
    way = r.choice((TREE, TREE, DIRECTIVES, FILE))
    found: Case = {"seed": seed, "statements": list(range(min(len(program.statements), 6))), "way": way}
    graphs = graphs_of(found)
    if way == TREE:
        found["trees"] = [json.loads(random_schedule(g, r).to_json()) for g in graphs]
        found["trees"] = mutated(found["trees"], r, r.choice((0, 1, 1, 2)))
    else:
        found["directives"] = directives(graphs, r)
        if r.random() < 0.4:
            found["directives"] = mutated(found["directives"], r, r.randint(1, 2))
    return found


def program(case: Case) -> fuzz.Program:
    """Of the program of a seed, the statements that are left."""
    whole = fuzz.random_program(case["seed"])
    left = tuple(whole.statements[k] for k in case["statements"])
    names = [s.split(" = ")[0].split("; ")[-1] for s in left]
    returned = [n for n in names if n.isidentifier() and n.startswith("v")]
    return fuzz.Program(left, tuple(returned[-1:]) or ("a",), whole.args)


def graphs_of(case: Case) -> list[Graph]:
    """The Graphs of the program as a user's schedule sees them; none where it has none."""
    p = program(case)
    try:
        with np.errstate(all="ignore"):
            return list(hjit.pipeline(p.function(), verify="off", cache="off").schedule(*copied(p)).graphs())
    except Exception:
        return []


def copied(p: fuzz.Program) -> list[Any]:
    return [a.copy(order="K") if isinstance(a, np.ndarray) else a for a in p.args.values()]


def mutated(data: Any, r: random.Random, changes: int) -> Any:
    """A copy with some leaves and branches changed."""
    found = copy.deepcopy(data)
    for _ in range(changes):
        places = [p for p in _places(found) if r.random() < 0.2 or type(p[0][p[1]]) is int] or list(_places(found))
        if not places:
            break
        holder, key = r.choice(places)
        how = r.random()
        if how < 0.1:
            del holder[key]
        elif how < 0.2:
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[key] = _other(holder[key], found, r)
    return found


def _places(data: Any) -> Iterator[tuple[list[Any], int]]:
    if isinstance(data, list):
        for k, x in enumerate(data):
            yield data, k
            yield from _places(x)


def _other(x: Any, whole: Any, r: random.Random) -> Any:
    kind = r.random()
    if kind < 0.1:
        return r.choice(ODD)
    if isinstance(x, bool) or x is None or isinstance(x, int):
        return r.choice(SMALL) if kind < 0.6 else r.choice(NUMBERS) if kind < 0.95 else None
    if isinstance(x, str):
        same = (
            KINDS
            if x in KINDS
            else TAILS
            if x in TAILS
            else [y for h, k in _places(whole) if isinstance(y := h[k], str)]
        )
        return r.choice(list(same))
    return copy.deepcopy(r.choice([h[k] for h, k in _places(whole)])) if kind < 0.6 else x


def directives(graphs: list[Graph], r: random.Random) -> list[Any]:
    """Rows of a file of directives, with names that the program has."""
    stages = [s for g in graphs for s in g.stages]
    if not stages:
        return [["t", 0, "split", ["x", "xo", "xi", 8]]]
    found: list[Any] = []
    for _ in range(r.randint(1, 5)):
        s, other = r.choice(stages), r.choice(stages)
        dims = 3 * dim_names(s.definitions[0]) + ["xo", "xi"]

        def loop(names: list[str] = dims) -> str:
            return r.choice(names)

        size = r.choice(NUMBERS) if r.random() < 0.3 else r.choice(SMALL)
        found.append(
            [
                s.name,
                r.choice((0, 0, 0, 1)),
                *r.choice(
                    [
                        ("split", [loop(), "xo", "xi", size, *r.choice(([], [r.choice(TAILS)]))]),
                        ("reorder", [loop(), loop()]),
                        ("fuse", [loop(), loop(), "xy"]),
                        ("kind", [loop(), r.choice(KINDS)]),
                        ("inner", [loop(), r.choice(("vector", "unroll")), size]),
                        ("tasks", [loop(), size, *r.choice(([], [r.choice(TAILS)]))]),
                        ("compute_at", [other.name, loop()]),
                        ("store_at", [other.name, loop()]),
                        ("store_root", []),
                        ("root", []),
                        ("storage", r.sample(range(max(len(s.shape), 1)), max(len(s.shape), 1))),
                        ("align", [0, size]),
                        ("prefetch", [other.name, loop(), size]),
                        ("inline", []),
                        ("cache_read", []),
                        ("rfactor", [0, size]),
                    ]
                ),
            ]
        )
    return found


# -- running


def run(case: Case) -> Result:
    """Refused soon, or right."""
    p = program(case)
    try:
        with np.errstate(all="ignore"):
            expected = p.function()(*copied(p))
    except Exception as error:
        return Result("invalid", type(error).__name__)
    start = time.process_time()
    try:
        pipe = hjit.pipeline(p.function(), verify="off", cache="off", num_threads=2).use(Bounded(usable(given(case))))
        got = pipe(*place(list(p.args.values()), case["seed"] % 2 == 0))
    except ScheduleError as error:
        took = time.process_time() - start
        return (
            Result("failed", "refused late", f"{took:.1f} s until {error}")
            if took > SOON
            else Result("refused", " ".join(re.sub(r"\S+\.json", "a file", str(error)).split()[:6]))
        )
    except TooExpensive:
        return Result("ok", "not run, computes too much")
    except hjit.TraceError as error:
        return Result("refused", error.operation)
    except Exception as error:
        return Result("failed", f"raises {type(error).__name__}", f"{type(error).__name__}: {error}")
    try:
        assert_same(got, expected, zeros=False)
    except AssertionError as wrong:
        return Result("failed", "wrong numbers", str(wrong))
    return (
        Result("ok", "" if case["way"] != TREE else "legal tree")
        if pipe.stats.fallbacks == 0
        else Result("ok", "fell back")
    )


def given(case: Case) -> Any:
    """The schedule, as a user has it."""
    if case["way"] == TREE:
        trees: list[Root] = [from_json(json.dumps(t)) for t in case["trees"]]
        return trees
    text = json.dumps({"hjit schedule": 1, "directives": case["directives"]})
    with tempfile.TemporaryDirectory(prefix="hjit-campaign-") as folder:
        file = Path(folder) / "s.json"
        file.write_text(text)
        schedule = hjit.Schedule.load(file)
    if case["way"] == FILE:
        return schedule
    p = program(case)
    mine = hjit.pipeline(p.function(), verify="off", cache="off").schedule(*copied(p))
    for row in schedule.directives:
        mine.add(row)
    return mine


# -- smaller


def smaller(case: Case) -> Iterator[Case]:
    """Fewer statements, fewer directives, smaller branches."""
    left = case["statements"]
    for k in range(len(left)):
        yield {**case, "statements": left[:k] + left[k + 1 :]}
    if case["way"] != TREE:
        rows = case["directives"]
        for k in range(len(rows)):
            yield {**case, "directives": rows[:k] + rows[k + 1 :]}


def described(case: Case) -> str:
    """The program and what it should run by."""
    rows = case["trees"] if case["way"] == TREE else case["directives"]
    return f"{program(case).described()}\n# {case['way']}: {json.dumps(rows)}"
