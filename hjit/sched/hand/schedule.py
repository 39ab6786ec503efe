"""Schedules by hand, in Halide's words: ``s = f.schedule(img); s["blur_x"].compute_at("blur_y", "yo").vectorize("x",
16)``.

A `Schedule` is a list of directives, partial: what it leaves out is as in the default schedule. `Schedule.tree` makes
the schedule tree of a Graph from it. Loops have names: a stage begins with one for each dimension, the reduction
dimensions after the pure ones, and `split`, `tile`, `fuse`, `vectorize` and `unroll` make new ones.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path as File
from typing import Any

from hjit.errors import ScheduleError
from hjit.sched.hand.directives import (
    GRAPH_DIRECTIVES,
    Directive,
    NamedLoop,
    all_loops,
    check_directive,
    check_factored,
    check_inlined,
    loops_of,
    rewrites,
    schedule_of,
    schedules,
    tree_of,
)
from hjit.sched.language.check import check_tree
from hjit.sched.language.kinds import Memory
from hjit.sched.language.limits import MAX_DIRECTIVES, MAX_PARTS, check_number, shown
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Root, Tail, check_nodes, computes, schedule_html
from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.passes.rewrites import Rewrites, cache_name, parts_name

FORMAT = 1


class Schedule:
    """A partial schedule of a pipeline, from `f.schedule(*args)`; `f.use(s)` applies it.

    Anything without a directive is as in the default schedule.
    """

    longest_block = math.inf  # who unrolls by hand means it

    def __init__(
        self,
        graphs: Callable[[Rewrites], list[Graph]] | None = None,
        directives: Sequence[Directive] = (),
        target: Target | None = None,
    ) -> None:
        self._make = graphs
        self._made: tuple[Rewrites, list[Graph]] | None = None
        self._directives: list[Directive] = list(directives)
        self._target = target or Target()

    def copy(self) -> Schedule:
        """A copy of the schedule."""
        return Schedule(self._make, self._directives, self._target)

    # -- by hand
    def __getitem__(self, stage: str) -> StageHandle:
        """The stage of a variable's name.

        Raises:
            ScheduleError: there is no such stage; the message lists those that there are.
        """
        self._known(stage)
        return StageHandle(self, stage, 0)

    def cache_read(self, source: str) -> StageHandle:
        """Copy an input or a stage; all consumers read the copy. Returns the stage of the copy, which has its own place
        and layout.

        Raises:
            ScheduleError: there is no input or stage of that name.
        """
        return self._new_stage(
            (source, 0, "cache_read", ()), cache_name(source), f"there is no input or stage {source} to copy"
        )

    @property
    def directives(self) -> tuple[Directive, ...]:
        """The directives, in order."""
        return tuple(self._directives)

    @property
    def stages(self) -> list[str]:
        """Names of the stages, except inlined ones."""
        return [s.name for g in self.graphs() for s in g.stages]

    @property
    def inlined(self) -> list[str]:
        """Names of the inlined stages; any directive but `inline` makes one a separate stage."""
        known = set(self.stages)
        return [name for name in self._whole if name not in known]

    @cached_property
    def _whole(self) -> dict[str, Stage]:
        """The stages where nothing is inlined."""
        return (
            {} if self._make is None else {s.name: s for g in self._make(Rewrites(kept=_Universe())) for s in g.stages}
        )

    def graphs(self) -> list[Graph]:
        """The canonical Graphs that it schedules."""
        if self._make is None:
            return []
        wanted = self.rewrites()
        if self._made is None or not self._is_as(wanted, *self._made):
            self._made = wanted, self._make(wanted)
        return self._made[1]

    @staticmethod
    def _is_as(wanted: Rewrites, old: Rewrites, made: list[Graph]) -> bool:
        """Do two rewrites make the same Graphs? To keep what is a stage anyway changes nothing."""
        if (wanted.inlined, wanted.cached, wanted.factored) != (old.inlined, old.cached, old.factored):
            return False
        kept, before = wanted.kept, old.kept
        assert isinstance(kept, frozenset) and isinstance(before, frozenset)
        return before <= kept and all(any(name in g.by_name for g in made) for name in kept - before)

    def add(self, directive: Directive) -> None:
        """Add a directive, if the schedule stays one.

        Raises:
            ScheduleError: it is not possible; the schedule is as before.
        """
        check_directive(*directive)
        self._directives.append(directive)
        try:
            check_count(self._directives)
            if self._make is not None:
                self._check(directive)
        except ScheduleError:
            self._directives.pop()
            raise

    def _check(self, directive: Directive) -> None:
        """Is the last directive possible? What it does to the loops of its stage is seen without new Graphs."""
        stage, _, word, args = directive
        if word in GRAPH_DIRECTIVES:
            for g in self.graphs():
                schedules(g, self._directives)
            check_inlined(self.graphs(), self._directives)
            return
        self._loops(stage)
        if word in ("compute_at", "store_at"):
            consumer, loop = args
            if consumer == stage:
                raise ScheduleError(
                    f"{word}: {stage} cannot be computed, or stored, in loops of its own; name a stage that reads it"
                )
            found = [x.name for x in self._loops(consumer)]
            if loop not in found:
                raise ScheduleError(f"{consumer} has no loop {loop}; it has {', '.join(dict.fromkeys(found))}")

    def _loops(self, stage: str) -> list[NamedLoop]:
        """The loops of all nests of a stage."""
        self._known(stage)
        if stage in self._whole and not any(word in GRAPH_DIRECTIVES for _, _, word, _ in self._directives):
            return all_loops(schedule_of(self._whole[stage], self._directives))
        return [
            x
            for g in self.graphs()
            if stage in g.by_name
            for x in all_loops(schedule_of(g.stage(stage), self._directives))
        ]

    def _new_stage(self, directive: Directive, name: str, message: str) -> StageHandle:
        """The stage that a directive makes: `name`, or something like it."""
        before = set(self.stages)
        self.add(directive)
        new = [n for n in self.stages if n not in before and n != directive[0]] or [n for n in self.stages if n == name]
        if not new:
            self._directives.pop()
            raise ScheduleError(message)
        return StageHandle(self, new[0], 0)

    def _known(self, stage: str) -> None:
        if type(stage) is not str:
            raise ScheduleError(f"{shown(stage)} is not the name of a stage")
        if self._make is not None and stage not in self._whole and stage not in self.stages:
            raise ScheduleError(
                f"there is no stage {stage}; there are {', '.join(self.stages)}, "
                f"and inlined {', '.join(self.inlined) or 'none'}"
            )

    # -- what it means
    def rewrites(self) -> Rewrites:
        """What it changes of the Graph."""
        return rewrites(self._directives)

    def check_names(self, graphs: Sequence[Graph]) -> None:
        """Are there the stages that it speaks of?

        Raises:
            ScheduleError: it is not for these Graphs.
        """
        stages = [s.name for g in graphs for s in g.stages]
        known = {*stages, *(i.name for g in graphs for i in g.inputs)}
        for stage, _, word, args in self._directives:
            names = (stage, args[0]) if word in ("compute_at", "store_at") else () if word == "inline" else (stage,)
            for name in names:
                if name not in known:
                    raise ScheduleError(
                        f"the schedule speaks of a stage {name}, which there is not; there are {', '.join(stages)}"
                    )
        check_inlined(graphs, self._directives)
        check_factored(graphs, self._directives)

    def tree(self, graph: Graph, target: Target) -> Root:
        """The schedule tree of a canonical Graph."""
        return tree_of(graph, schedules(graph, self._directives), target)

    def trees(self) -> list[Root]:
        """The schedule trees of all its Graphs, checked.

        Raises:
            ScheduleError: one is not legal; the message says why.
        """
        found = []
        self.check_names(self.graphs())
        for g in self.graphs():
            tree = self.tree(g, self._target)
            check_tree(tree, g, self._target.kind)
            found.append(tree)
        return found

    def __len__(self) -> int:
        return len(self.trees())

    def __iter__(self) -> Iterator[Root]:
        return iter(self.trees())

    # -- for people, and for later
    def __str__(self) -> str:
        if self._make is None:
            return "\n".join(_directive_text(d) for d in self._directives) or "the default schedule"
        return "\n\n".join(map(str, self.trees()))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return "".join(map(schedule_html, self.trees()))

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the directives as JSON; `Schedule.load` reads them.

        Raises:
            OSError: the file cannot be written.
        """
        rows = ",\n  ".join(json.dumps([s, g, w, list(a)]) for s, g, w, a in self._directives)
        File(file).write_text(f'{{"hjit schedule": {FORMAT}, "directives": [\n  {rows}\n]}}\n')

    @staticmethod
    def load(file: str | os.PathLike[str]) -> Schedule:
        """Load a schedule that `save` has written.

        Raises:
            ScheduleError: the file does not contain a schedule.
            OSError: it cannot be read.
        """
        try:
            return Schedule(None, _directives(json.loads(File(file).read_text())))
        except (ValueError, RecursionError) as error:
            raise ScheduleError(f"{file} is not a schedule: {error}") from None
        except ScheduleError as error:
            raise ScheduleError(f"{file}: {error}") from None


KEYS = {"hjit schedule", "directives"}  # of a file


def _directives(data: Any) -> list[Directive]:
    """The directives that a file holds.

    Raises:
        ScheduleError: it holds something else.
    """
    if not isinstance(data, dict) or data.keys() != KEYS:
        found = f"the keys {', '.join(map(shown, data))}" if isinstance(data, dict) else shown(data)
        raise ScheduleError(f"not a schedule: it has the keys {', '.join(sorted(KEYS))}, not {found}")
    if type(data["hjit schedule"]) is not int or data["hjit schedule"] != FORMAT:
        raise ScheduleError(f"a schedule of format {shown(data['hjit schedule'])}; this hjit reads format {FORMAT}")
    rows = data["directives"]
    if not isinstance(rows, list) or not all(
        isinstance(r, list) and len(r) == 4 and type(r[2]) is str and isinstance(r[3], list) for r in rows
    ):
        raise ScheduleError("directives is to be a list of [stage, nest, word, [arguments]]")
    check_count(rows)
    for stage, group, word, args in rows:
        check_directive(stage, group, word, args)
    return [(stage, group, word, tuple(args)) for stage, group, word, args in rows]


def check_count(directives: Sequence[Any]) -> None:
    """Are there not too many directives?

    Raises:
        ScheduleError: there are.
    """
    if len(directives) > MAX_DIRECTIVES:
        raise ScheduleError(f"a schedule of {len(directives)} directives, more than {MAX_DIRECTIVES}")


def usable(schedule: Any) -> Any:
    """A schedule of its own for a pipeline to run by.

    Raises:
        ScheduleError: it is none.
    """
    if isinstance(schedule, Schedule):
        return schedule.copy()
    if hasattr(schedule, "rewrites") and hasattr(schedule, "tree"):
        return schedule  # whatever decides on schedules
    trees = (
        [schedule]
        if isinstance(schedule, Root)
        else list(schedule)
        if isinstance(schedule, Iterable) and not isinstance(schedule, str)
        else []
    )
    if not trees or not all(isinstance(t, Root) for t in trees):
        advice = "make one with `schedule` of the pipeline, or read one with hjit.Schedule.load"
        raise ScheduleError(f"{schedule!r} is no schedule. What to do: {advice}")
    for t in trees:
        check_nodes(t)
    return FixedSchedule(trees)


class FixedSchedule:
    """Whole trees as the schedule of a pipeline: what `f.tree` shows, `hjit.sched.language.transforms` make of it, or
    `Root.to_json` keeps.

    Stages that no tree computes are inlined.
    """

    longest_block = math.inf

    def __init__(self, trees: Sequence[Root]) -> None:
        self._trees = {frozenset(c.stage for c in computes(t)): t for t in trees}

    def rewrites(self) -> Rewrites:
        """What it changes of the Graph."""
        return Rewrites(inlined_after=_Complement(frozenset().union(*self._trees)))

    def has(self, stage: str) -> bool:
        """Is it a stage of one of the trees?"""
        return any(stage in names for names in self._trees)

    def tree(self, graph: Graph, target: Target) -> Root:
        """The schedule tree of a canonical Graph.

        Raises:
            ScheduleError: no tree computes its stages.
        """
        found = self._trees.get(frozenset(graph.by_name))
        if found is None:
            names = ", ".join(graph.by_name)
            raise ScheduleError(
                f"no tree computes just the stages {names}: is it of another function, or of other arguments?"
            )
        return found


class _Complement:
    """The set of all that is not in another one."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def __contains__(self, name: object) -> bool:
        return name not in self._names


class _Universe:
    """A set that has everything in it."""

    def __contains__(self, name: object) -> bool:
        return True


def _directive_text(d: Directive) -> str:
    stage, group, word, args = d
    update = f".update({group})" if group else ""
    return f'["{stage}"]{update}.{word}({", ".join(map(repr, args))})'


class StageHandle:
    """Directives for one stage; each returns the handle, so that they chain.

    Sizes and distances are integers, in iterations or elements. A directive that names a loop or stage that does not
    exist, or is not possible, raises a `ScheduleError` and leaves the schedule unchanged.
    """

    def __init__(self, schedule: Schedule, stage: str, group: int) -> None:
        self._schedule, self.stage, self._group = schedule, stage, group

    def _add(self, word: str, *args: Any) -> StageHandle:
        self._schedule.add((self.stage, self._group, word, args))
        return self

    def update(self, n: int) -> StageHandle:
        """The n-th nest of the stage, for stages that are computed in several; 0 is the first."""
        return StageHandle(self._schedule, self.stage, n)

    @property
    def loops(self) -> list[str]:
        """Names of the loops, outermost first."""
        for g in self._schedule.graphs():
            if self.stage in g.by_name:
                return [
                    x.name for x in loops_of(schedule_of(g.stage(self.stage), self._schedule.directives), self._group)
                ]
        return []

    def split(self, loop: str, outer: str, inner: str, size: int, tail: Tail = "auto") -> StageHandle:
        """Run `size` iterations of `loop` as an inner loop.

        Args:
            tail: the tail strategy, if the size does not divide the extent; see `hjit.sched.language.tree.Loop`.
        """
        return self._add("split", loop, outer, inner, size, *_unless_auto(tail))

    def tile(
        self, y: str, x: str, yo: str, xo: str, yi: str, xi: str, ysize: int, xsize: int, tail: Tail = "auto"
    ) -> StageHandle:
        """Split two loops, both inner ones inside both outer ones."""
        return self.split(y, yo, yi, ysize, tail).split(x, xo, xi, xsize, tail).reorder(yo, xo, yi, xi)

    def reorder(self, *loops: str) -> StageHandle:
        """Reorder these loops, outermost first, among the positions that they have now."""
        return self._add("reorder", *loops)

    def fuse(self, outer: str, inner: str, name: str) -> StageHandle:
        """Fuse two adjacent loops into one."""
        return self._add("fuse", outer, inner, name)

    def parallel(self, loop: str, size: int | None = None, tail: Tail = "auto") -> StageHandle:
        """Run the iterations as tasks; with a size, that many per task, as a loop ``yt`` in the loop ``y`` over tasks.

        A stage stored at the task loop and computed at ``yt`` has a sliding window over the iterations of a task.
        """
        return (
            self._add("kind", loop, "parallel") if size is None else self._add("tasks", loop, size, *_unless_auto(tail))
        )

    def serial(self, loop: str) -> StageHandle:
        """Run the iterations one after the other."""
        return self._add("kind", loop, "serial")

    def vectorize(self, loop: str, size: int | None = None, tail: Tail = "auto") -> StageHandle:
        """Run `size` iterations as lanes of vectors; without a size, the whole loop."""
        return (
            self._add("kind", loop, "vector")
            if size is None
            else self._add("inner", loop, "vector", size, *_unless_auto(tail))
        )

    def unroll(self, loop: str, size: int | None = None, tail: Tail = "auto") -> StageHandle:
        """Unroll `size` iterations; without a size, the whole loop."""
        return (
            self._add("kind", loop, "unroll")
            if size is None
            else self._add("inner", loop, "unroll", size, *_unless_auto(tail))
        )

    def gpu_blocks(self, *loops: str) -> StageHandle:
        """Run each iteration of these outermost loops in its own block of threads."""
        for loop in loops:
            self._add("kind", loop, "gpu_block")
        return self

    def gpu_threads(self, *loops: str) -> StageHandle:
        """Distribute the iterations of these directly nested loops over the threads of a block.

        Consecutive threads run consecutive iterations of the last loop. There are as many threads as the loops of a
        result or a stage at the root have iterations, if their sizes are known, but at most 1024.
        """
        for loop in loops:
            self._add("kind", loop, "gpu_thread")
        return self

    def gpu_lanes(self, loop: str, size: int | None = None) -> StageHandle:
        """Run the iterations of a loop as lanes of one warp; with a size, that many lanes.

        The number of lanes is a power of two, at most 32. Over a pure dimension, it is the innermost thread loop. Over
        a reduction, each result has that many lanes: with 32, each lane reduces every 32nd element, and shuffles
        combine the partial results, without shared memory or a barrier.
        """
        return self._add("kind", loop, "gpu_lane") if size is None else self._add("inner", loop, "gpu_lane", size)

    def gpu_tile(self, y: str, x: str, yi: str, xi: str, ysize: int, xsize: int, tail: Tail = "auto") -> StageHandle:
        """Tile two loops: each tile is a block, and its elements are distributed over the threads."""
        tiled = self.tile(y, x, y, x, yi, xi, ysize, xsize, tail)
        return tiled.gpu_blocks(y, x).gpu_threads(yi, xi)

    def rfactor(self, loop: str, parts: int) -> StageHandle:
        """Split a reduction dimension into `parts` partial results, then combine them; returns the stage of the parts.

        Raises:
            ScheduleError: `loop` is not a whole reduction dimension, or the operation is not associative.
        """
        check_number("rfactor", parts, MAX_PARTS, "parts")
        for g in self._schedule.graphs():
            if self.stage in g.by_name:
                own = schedule_of(g.stage(self.stage), self._schedule.directives)
                found = loops_of(own, self._group)
                pure = len(own.stage.definitions[-1].dims)
                k = next((x.dim for x in found if x.name == loop and x.size is None and isinstance(x.dim, int)), None)
                if k is None or k < pure:
                    its = ", ".join(x.name for x in found)
                    raise ScheduleError(
                        f"rfactor: {loop} is no loop over a reduction dimension; {self.stage} has {its}"
                    )
                why = f"rfactor: {self.stage} is not computed by an associative operation whose order NumPy leaves open"
                return self._schedule._new_stage(
                    (self.stage, self._group, "rfactor", (k - pure, parts)), parts_name(self.stage), why
                )
        raise ScheduleError(f"there is no stage {self.stage}")

    def compute_at(self, consumer: str | StageHandle, loop: str) -> StageHandle:
        """Compute the stage inside a consumer's loop: in each iteration, the region that it needs."""
        return self._add("compute_at", _name(consumer), loop)

    def store_at(self, consumer: str | StageHandle, loop: str) -> StageHandle:
        """Store the stage at `loop`, for all iterations of the loops inside: each computes only what is new."""
        return self._add("store_at", _name(consumer), loop)

    def store_root(self) -> StageHandle:
        """Store the stage for all iterations that one task of a parallel loop runs."""
        return self._add("store_root")

    def root(self) -> StageHandle:
        """Compute the whole stage before its consumers."""
        return self._add("root")

    def inline(self) -> StageHandle:
        """Compute the stage wherever it is read."""
        return self._add("inline")

    def store_in(self, memory: Memory) -> StageHandle:
        """Store the stage in "shared" memory or in "register"s of a GPU: the former inside loops over blocks, the
        latter inside loops over threads. "heap", the default, depends on where it is stored."""
        return self._add("store_in", memory)

    def prefetch(self, array: str, loop: str, distance: int) -> StageHandle:
        """Prefetch what the stage will read of an input or a stage, `distance` elements ahead in the loop's dimension.

        Raises:
            ScheduleError: the stage is a reduction, or the loop runs over several dimensions. Whether the stage reads
                the array is checked at the first use of the schedule, since it depends on what is inlined.
        """
        return self._add("prefetch", array, loop, distance)

    def reorder_storage(self, *axes: int) -> StageHandle:
        """The order of the axes in memory, the slowest first."""
        return self._add("storage", *axes)

    def align_storage(self, axis: int, n: int) -> StageHandle:
        """Pad the length of an axis in memory to a multiple of `n` elements."""
        return self._add("align", axis, n)


def _unless_auto(tail: Tail) -> tuple[Tail, ...]:
    return () if tail == "auto" else (tail,)


def _name(x: str | StageHandle) -> str:
    return x.stage if isinstance(x, StageHandle) else x
