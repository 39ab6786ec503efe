"""`Pipeline.report`: all that is known of how a call runs, and why it takes as long as it does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hjit.kernels.lower.params import TASKS_PER_THREAD
from hjit.report.columns import aligned
from hjit.report.performance import charts, nests
from hjit.report.performance.costs import GROUPS
from hjit.report.performance.facts import Facts, KernelFacts, SourceLine
from hjit.report.performance.gather import Call, facts_of
from hjit.report.performance.style import document, folded, none, picture, pre, table, tabs, text
from hjit.report.pictures import graph_svg
from hjit.sched.language.tree import schedule_html

KIB = 1024
FEW_TERMS = 5  # that are shown as text
FEW_STAGES = 4  # of a loop nest that are named
MACHINE_UNITS = {"bandwidth": (1e-9, "GB/s, of a copy by all threads"), "cores": (1, "threads")}


@dataclass(frozen=True, slots=True)
class Report:
    """How a call runs; see `Pipeline.report`. `str` gives text, a notebook shows HTML, `save` writes a page."""

    facts: Facts

    def __str__(self) -> str:
        return "\n".join(_as_text(self.facts))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return tabs(f"Report on {self.facts.name}", [(name, made(self.facts)) for name, made in SECTIONS.items()])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML page, pictures included, which needs neither network nor scripts.

        Raises:
            OSError: the file cannot be written.
        """
        Path(path).write_text(document(f"hjit: {self.facts.name}", self._repr_html_()), encoding="utf-8")


def report_of(call: Call) -> Report:
    """Collect the facts about a call."""
    return Report(facts_of(call))


# -- the sections


def _overview(f: Facts) -> str:
    parts = [
        pre(f.explained),
        table("The arguments", ("argument", "value"), f.arguments, "words"),
        _kernel_table(f),
        *(pre(k.on_device) for k in f.kernels if k.on_device),
        table("Options in force", ("option", "value"), ((n, repr(x)) for n, x in f.options.items()), "words"),
    ]
    if f.machine:
        parts.append(table("The machine, as the cost model knows it", ("fact", "value"), _machine_rows(f)))
    return "".join(parts) + table("Counters of the pipeline", ("counter", "value"), _counter_rows(f))


def _machine_rows(f: Facts) -> Iterator[tuple[str, str]]:
    for name, value in f.machine.items():
        scale, unit = MACHINE_UNITS.get(name, (1 / KIB, "KiB") if name.startswith("l") else (1, "bytes"))
        yield name, f"{value * scale:g} {unit}" if name != "bandwidth" else f"{value * scale:.2f} {unit}"


def _counter_rows(f: Facts) -> Iterator[tuple[str, str]]:
    for pair in f.stats.partition("(")[2].removesuffix(")").split(", "):
        name, _, value = pair.partition("=")
        yield name, value


def _kernel_table(f: Facts) -> str:
    if not f.kernels:
        return none(f"There is no kernel to measure: {f.why_no_kernels}")
    return table(
        "Kernels: measured now on these arguments, the least of several runs; predicted by the cost model; "
        "the limit is what it takes to move each input and output once, at the speed of a copy from memory. "
        "What lies in the caches is faster",
        KERNEL_HEAD,
        _kernel_rows(f),
    )


KERNEL_HEAD = ("kernel", "measured", "predicted", "least bytes", "limit", "of a copy's speed")


def _kernel_rows(f: Facts) -> Iterator[tuple[str, ...]]:
    for k in f.kernels:
        limit = k.limit
        yield (
            _title(k),
            "not measured" if k.seconds is None else _time(k.seconds),
            "unknown" if k.costs is None else _time(k.costs.total),
            _bytes(k.read + k.written),
            _time(limit),
            "" if k.seconds is None else f"{limit / max(k.seconds, 1e-9):.0%}",
        )


def _graph(f: Facts) -> str:
    return _each(f, lambda k: picture(graph_svg(k.graph)) + folded("as text", pre(k.graph)))


def _schedule(f: Facts) -> str:
    return _each(f, lambda k: _nests_beside(f, k))


def _nests_beside(f: Facts, k: KernelFacts) -> str:
    tasks = _tasks(f)
    drawn = [
        picture(nests.nest_svg(n, k.buffers, tasks))
        + "<ul>"
        + "".join(f"<li>{text(x)}</li>" for x in nests.described(n, k.buffers, tasks))
        + "</ul>"
        for n in nests.nests_of(k.tree, k.graph, k.sizes)
    ]
    return f'<div class="beside"><div>{schedule_html(k.tree)}</div><div>{"".join(drawn)}</div></div>' + folded(
        "as text", pre(k.tree)
    )


def _tasks(f: Facts) -> int:
    threads = int(f.machine.get("cores", 1))
    return 1 if threads == 1 else threads * TASKS_PER_THREAD


def _candidates(f: Facts) -> str:
    return _each(f, _compared)


def _compared(k: KernelFacts) -> str:
    if not k.candidates:
        return none(f"Nothing was compared: {k.why_no_candidates}")
    points = [(c.name, 1e3 * c.predicted, 1e3 * c.measured, c.is_chosen) for c in k.candidates if c.predicted]
    trees = "".join(folded(f"the tree of {c.name}", schedule_html(c.tree)) for c in k.candidates)
    return (
        picture(charts.scatter("Measured against predicted time of each candidate", points))
        + table(
            "Candidates, timed interleaved at the first call with such arguments", CANDIDATE_HEAD, _candidate_rows(k)
        )
        + trees
    )


CANDIDATE_HEAD = ("candidate", "predicted", "measured", "measured / predicted", "")


def _candidate_rows(k: KernelFacts) -> Iterator[tuple[str, ...]]:
    for c in k.candidates:
        guess = "unknown" if c.predicted is None else _time(c.predicted)
        ratio = f"{c.measured / c.predicted:.2f}" if c.predicted else ""
        yield c.name, guess, _time(c.measured), ratio, "chosen" if c.is_chosen else ""


def _cost(f: Facts) -> str:
    return _each(f, _costs)


def _costs(k: KernelFacts) -> str:
    costs = k.costs
    if costs is None:
        return none(f"There are no predicted costs: {k.why_no_costs}")
    rows = [(s.name, {g: 1e3 * x for g, x in costs.by_group(n).items()}) for n, s in enumerate(costs.graph.stages)]
    stages = table(
        "Predicted milliseconds of each stage, by part of its cost; a stage that is inlined costs where it is read",
        ("stage", *GROUPS, "all"),
        (
            (
                name + (", inlined" if name in costs.inlined else ""),
                *(f"{x:.4g}" for x in parts.values()),
                f"{sum(parts.values()):.4g}",
            )
            for name, parts in rows
        ),
    )
    terms = table(
        "Predicted milliseconds of the kernel by term of the cost model, the largest first",
        ("term", "ms", "share"),
        ((name, f"{1e3 * x:.4g}", f"{x / costs.total:.1%}") for name, x in costs.by_term()),
    )
    return picture(charts.bars("Predicted cost of each stage", rows, "ms")) + stages + terms


def _memory(f: Facts) -> str:
    limits = [
        (k.name, {"time": 1e3 * k.seconds})
        if what == "time" and k.seconds
        else (f"{k.name}, limit", {"limit": 1e3 * k.limit})
        for k in f.kernels
        for what in (("time", "limit") if k.seconds else ("limit",))
    ]
    chart = (
        picture(charts.bars("Measured time of each kernel, and what moving its bytes takes", limits, "ms"))
        if limits
        else ""
    )
    return chart + _kernel_table(f) + _each(f, lambda k: _traffic(f, k))


def _traffic(f: Facts, k: KernelFacts) -> str:
    if k.seconds is None:
        about = none(f"It is not timed: {k.why_untimed}")
    else:
        speed = (k.read + k.written) / max(k.seconds, 1e-9) / 1e9
        copy = 2e-9 * f.machine["bandwidth"]
        about = f"<p>{speed:.2f} GB/s of inputs and outputs; a copy reads and writes {copy:.2f} GB/s.</p>"
    if k.nests:
        about += table(
            "Loop nests, in order: measured now, in the fastest of several runs; predicted by the cost model, "
            "without the stages that are inlined into theirs",
            NEST_HEAD,
            _nest_rows(k),
        )
    if k.costs is None:
        return about + none(f"Bytes by stage come from the features of the cost model: {k.why_no_costs}")
    return about + table(
        "Bytes by stage, from the features of the schedule: read, and allocated for its values, over all realisations. "
        "The measured time of each loop nest is shared out among its stages by predicted cost",
        ("stage", "read", "allocated", "where", "predicted", "share", "of the measured time"),
        _stage_rows(k),
    )


NEST_HEAD = ("loop nest", "measured", "share", "predicted")


def _nest_rows(k: KernelFacts) -> Iterator[tuple[str, ...]]:
    every = sum(x.seconds for x in k.nests) or 1.0
    for x in k.nests:
        of = {} if k.costs is None else k.costs.by_stage
        predicted = _time(sum(of.get(n, 0.0) for n in x.stages)) if of else "unknown"
        names = [*x.stages[:FEW_STAGES], *(["..."] if len(x.stages) > FEW_STAGES else [])]
        yield ", ".join(names), _time(x.seconds), f"{x.seconds / every:.0%}", predicted


def _stage_rows(k: KernelFacts) -> Iterator[tuple[str, ...]]:
    assert k.costs is not None
    total = k.costs.total or 1.0
    for s, read, written in zip(k.costs.graph.stages, k.costs.read, k.costs.written, strict=True):
        seconds = k.costs.by_stage[s.name]
        is_inlined = s.name in k.costs.inlined
        where = "nowhere: inlined" if is_inlined else "a task's buffer" if s.name in k.buffers else "memory"
        spent = k.stage_seconds.get(s.name, None if k.seconds is None else k.seconds * seconds / total)
        measured = "" if spent is None else _time(spent)
        yield s.name, _bytes(read), _bytes(written), where, _time(seconds), f"{seconds / total:.0%}", measured


def _lines(f: Facts) -> str:
    if not f.source:
        return none("There is no line to show: the source is not in a file, or nothing of it is compiled")
    every = sum(x.seconds for rows in f.source.values() for x in rows)
    if not every:
        found = none("No line has a predicted cost: there is no kernel, or the cost model does not know it")
    else:
        found = (
            f"<p>{_cost_of_lines(f)} of each line. Operations that were merged into one stage share that of the stage "
            "by what they cost alone.</p>"
        )
    return found + "".join(_listing(name, rows, every) for name, rows in f.source.items())


def _cost_of_lines(f: Facts) -> str:
    """What lines of source are coloured by."""
    return "Measured time" if f.kernels and all(k.stage_seconds for k in f.kernels) else "Predicted cost"


def _listing(name: str, rows: Sequence[SourceLine], every: float) -> str:
    most = max((x.seconds for x in rows), default=0.0)
    body = "".join(
        f'<tr style="background:rgba(234,88,12,{0.55 * x.seconds / most if most else 0:.2f})"><td>{x.number}</td>'
        f"<td>{f'{x.seconds / every:.1%}' if x.seconds else ''}</td><td>{text(x.text)}</td><td>{text(x.note)}</td></tr>"
        for x in rows
    )
    head = "".join(f'<th scope="col">{x}</th>' for x in ("line", "cost", "source", "not compiled"))
    caption = f"<caption>{text(name)}</caption>"
    return f'<table class="source">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _breaks(f: Facts) -> str:
    if not f.breaks:
        why = "The function is compiled as a whole" if f.kernels else f"It is not known here: {f.why_no_kernels}"
        return none(why) + pre(f.explained)
    return pre(f.explained) + table(
        "Where the function is not one kernel",
        ("line", "what", "why", "measured"),
        (("" if b.line is None else b.line, b.what, b.why, _known(b.seconds)) for b in f.breaks),
        "words",
    )


SECTIONS: Mapping[str, Callable[[Facts], str]] = {
    "Overview": _overview,
    "Graph": _graph,
    "Schedule": _schedule,
    "Candidates": _candidates,
    "Cost": _cost,
    "Memory": _memory,
    "Source": _lines,
    "Breaks": _breaks,
}


def _each(f: Facts, made: Callable[[KernelFacts], str]) -> str:
    """Something of each kernel, or why there is none."""
    if not f.kernels:
        return none(f"There is no kernel: {f.why_no_kernels}")
    return "".join(
        (f"<h3>{text(_title(k))}</h3>" if len(f.kernels) > 1 or k.where else "") + made(k) for k in f.kernels
    )


def _title(k: KernelFacts) -> str:
    return f"{k.where}: {k.name}" if k.where else k.name


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.4g} ms" if seconds >= 1e-4 else f"{1e6 * seconds:.3g} us"


def _known(seconds: float | None) -> str:
    return "" if seconds is None else _time(seconds)


def _bytes(count: float) -> str:
    if count < KIB:
        return f"{count:.0f} bytes"
    return f"{count / KIB**2:.2f} MiB" if count >= KIB**2 else f"{count / KIB:.1f} KiB"


# -- as text


def _as_text(f: Facts) -> Iterator[str]:
    yield f"Report on {f.name}({', '.join(f'{n}: {x}' for n, x in f.arguments)})"
    yield from ("", f.explained)
    if not f.kernels:
        yield from ("", f"No kernel: {f.why_no_kernels}")
    else:
        yield from ("", *aligned([KERNEL_HEAD, *_kernel_rows(f)]))
    for b in f.breaks:
        seconds = "" if b.seconds is None else f" ({_time(b.seconds)})"
        yield f"break{'' if b.line is None else f' at line {b.line}'}: {b.what}: {b.why}{seconds}"
    for k in f.kernels:
        yield from ("", f"-- {_title(k)}", str(k.tree))
        for n in nests.nests_of(k.tree, k.graph, k.sizes):
            yield from (f"  {x}" for x in nests.described(n, k.buffers, _tasks(f)))
        yield from filter(None, [k.on_device])
        if k.nests:
            yield from ("", *aligned([NEST_HEAD, *_nest_rows(k)]))
        yield from _costs_as_text(k)
        if k.candidates:
            yield from ("", *aligned([CANDIDATE_HEAD, *_candidate_rows(k)]))
        else:
            yield f"nothing was compared: {k.why_no_candidates}"
    yield from _source_as_text(f)


def _costs_as_text(k: KernelFacts) -> Iterator[str]:
    if k.costs is None:
        yield f"no predicted costs: {k.why_no_costs}"
        return
    yield ""
    yield from aligned([("stage", "read", "allocated", "where", "predicted", "share", "of measured"), *_stage_rows(k)])
    terms = ", ".join(f"{name} {x / k.costs.total:.0%}" for name, x in k.costs.by_term()[:FEW_TERMS])
    yield f"largest terms of the cost: {terms}"


def _source_as_text(f: Facts) -> Iterator[str]:
    every = sum(x.seconds for rows in f.source.values() for x in rows)
    for name, rows in f.source.items():
        yield from ("", f"-- {name}, by {_cost_of_lines(f).lower()}")
        for x in rows:
            share = f"{x.seconds / every:6.1%}" if x.seconds else " " * 6
            yield f"{x.number:5} {share}  {x.text}{f'    <- {x.note}' if x.note else ''}".rstrip()
