"""The applications, small, against NumPy; and the harness that times them, without a look at the times."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from benchmarks import __main__ as command
from benchmarks import apps, idioms, pairs, papers, pixel_loops, products, rows, search, suite, table, tables
from benchmarks.peers import Compiled

CASES = [
    (name, layout)
    for name in apps.NAMES
    for layout in rows.LAYOUTS
    if layout == "planar" or hasattr(apps.load(name), layout)
]
FIELDS = {f.name for f in fields(rows.Row)}


@pytest.mark.parametrize(("name", "layout"), CASES, ids=[f"{n}-{x}" for n, x in CASES])
def test_hjit_computes_what_numpy_does(name: str, layout: str) -> None:
    p = rows.problem(name, layout, small=True)
    assert p is not None
    f = hjit.pipeline(p.function, verify="off")
    got = f(*p.arguments)
    assert (got.shape, got.dtype) == (p.expected.shape, p.expected.dtype)
    if p.tolerance == (0, 0):
        np.testing.assert_array_equal(got, p.expected)
    else:
        rtol, atol = p.tolerance
        np.testing.assert_allclose(got, p.expected, rtol=max(rtol, 1e-5), atol=atol)
    out = np.zeros_like(p.expected)
    np.testing.assert_array_equal(f.into(out, *p.arguments), got)
    assert f.stats.fallbacks == 0


@pytest.mark.parametrize("name", [n for n, x in CASES if x == "channels_last"])
def test_layouts_say_the_same(name: str) -> None:
    planar, other = (rows.problem(name, layout, small=True) for layout in rows.LAYOUTS)
    assert planar is not None and other is not None
    assert rows.agrees(other.expected, rows.last(planar.expected), planar.tolerance)


@pytest.mark.parametrize("name", apps.NAMES)
def test_applications_keep_their_contract(name: str) -> None:
    module = apps.load(name)
    assert module.__doc__
    arguments = module.inputs(np.random.default_rng(0), module.SMALL)
    kinds = [isinstance(x, np.ndarray) for x in arguments]
    assert kinds == sorted(kinds, reverse=True), "arrays come first"
    again = module.inputs(np.random.default_rng(0), module.SMALL)
    for a, b in zip(arguments, again, strict=True):
        np.testing.assert_array_equal(a, b)
    rtol, atol = module.TOLERANCE
    assert 0 <= rtol < 0.1 and atol >= 0
    assert len(module.SHAPE) == len(module.SMALL)


def test_nothing_is_left_out() -> None:
    files = {p.stem for p in Path(apps.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(apps.NAMES)


# -- the harness


def measured(request: rows.Request) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    rows.measure(request, records.append)
    return [json.loads(json.dumps(r["row"])) for r in records if "row" in r]


def test_rows_of_an_application() -> None:
    kept: list[Any] = []
    numbers = suite.run(
        ["blur"], ["numpy"], [1], small=True, budget=0.01, keep=lambda x: kept.append(json.loads(json.dumps(x)))
    )
    assert [len(x["rows"]) for x in kept] == [len(numbers["rows"])], "what there is after each application"
    assert numbers["machine"]["cores"] >= 1 and numbers["machine"]["cpu"] and numbers["machine"]["os"]
    assert {"python", "numpy", "numba", "llvmlite", "halide", "opencv", "jax", "hjit"} <= set(numbers["versions"])
    assert numbers["commit"]
    copy, *found = numbers["rows"]
    assert (copy["peer"], copy["error"]) == (rows.COPY, None)
    assert all(set(r) == FIELDS for r in numbers["rows"])
    ways = {(r["peer"], r["schedule"], r["fast_math"], r["into"]) for r in found}
    assert ways >= {("numpy", None, False, False)} | {
        ("hjit", "default", fast, into) for fast in (False, True) for into in (False, True)
    }
    for r in found:
        assert (r["app"], r["layout"], r["threads"], r["shape"], r["dtype"]) == (
            "blur",
            "planar",
            1,
            [36, 81],
            "uint16",
        )
        assert r["error"] is None and r["agrees"] is True
        low, high = r["iqr_ms"]
        assert 0 < low <= r["median_ms"] <= high
        assert r["compile_s"] >= 0 and r["rounds"] >= pairs.MIN_ROUNDS
        assert set(r["ratios"]) == {"numpy", rows.COPY} | ({"hjit default"} if r["peer"] == "hjit" else set())
        assert r["ratios"]["numpy"]["pairs"] == min(r["rounds"], found[0]["rounds"])
    assert found[0]["ratios"]["numpy"] == {"median": 1, "low": 1, "high": 1, "pairs": found[0]["rounds"]}
    table.show(numbers)


def _peer(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """The rows of a peer that runs so."""
    (tmp_path / "peers" / "numba").mkdir(parents=True)
    (tmp_path / "peers" / "numba" / "blur.py").touch()
    monkeypatch.setattr(rows, "HERE", tmp_path)
    module = types.ModuleType("benchmarks.peers.numba.blur")
    module.build = lambda arguments, threads: Compiled(run, (36, 81), np.dtype(np.uint16), 0.25)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.peers.numba", types.ModuleType("benchmarks.peers.numba"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = measured(rows.Request("blur", ("numpy", "numba"), 1, small=True, budget=0.001))
    assert [r["error"] for r in found if r["peer"] == "hjit"] == [None] * 4
    return [r for r in found if r["peer"] == "numba"]


def test_a_peer_that_agrees(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    p = rows.problem("blur", "planar", small=True)
    assert p is not None
    found = _peer(lambda out: np.copyto(out, p.expected), monkeypatch, tmp_path)
    assert [(r["into"], r["agrees"], r["compile_s"]) for r in found] == [(False, True, 0.25), (True, True, 0.25)]


def test_a_peer_that_disagrees_is_timed_and_shown_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _peer(lambda out: out.fill(7), monkeypatch, tmp_path)
    assert [r["agrees"] for r in found] == [False, False]
    assert all(r["median_ms"] > 0 for r in found)
    table.show({"rows": found})
    assert "disagrees with NumPy" in capsys.readouterr().out


def test_a_peer_that_does_nothing_disagrees(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert [r["agrees"] for r in _peer(lambda out: None, monkeypatch, tmp_path)][1] is False


def test_a_peer_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(out: Any) -> None:
        raise RuntimeError("no such\nthing")

    (row,) = _peer(run, monkeypatch, tmp_path)
    assert row["error"] == "RuntimeError: no such thing"
    assert row["median_ms"] is None


def test_a_candidate_that_ends_the_process_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    request = rows.Request("blur", ("numpy",), 1)
    bad, good = (asdict(rows.Row("blur", p, None, "planar", 1, [], "", False, False)) for p in ("halide", "numpy"))
    seen: list[dict[str, str]] = []

    def process(r: rows.Request) -> tuple[list[dict[str, Any]], str | None]:
        seen.append(r.skip)
        if r.skip:
            return [{"row": bad | {"error": r.skip["halide"]}}, {"row": good}], None
        return [{"at": "numpy"}, {"at": "halide"}], "killed"

    monkeypatch.setattr(suite, "process", process)
    assert [r["error"] for r in suite.rows_of(request)] == ["killed", None]
    assert seen == [{}, {"halide": "killed"}]


def test_a_process_that_cannot_start_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "process", lambda r: ([], "killed"))
    (row,) = suite.rows_of(rows.Request("blur", (), 1))
    assert row["error"] == "killed" and set(row) == FIELDS


def test_a_schedule_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "apps" / "schedules").mkdir(parents=True)
    file = tmp_path / "apps" / "schedules" / "blur.json"
    monkeypatch.setattr(rows, "HERE", tmp_path)
    hjit.Schedule().save(file)
    found = measured(rows.Request("blur", (), 1, small=True, budget=0.001))
    assert [(r["schedule"], r["error"]) for r in found if r["peer"] == "hjit"] == [("default", None)] * 4 + [
        ("manual", None)
    ] * 4
    file.write_text("{}")
    found = measured(rows.Request("blur", (), 1, small=True, budget=0.001))
    assert [r["schedule"] for r in found if r["error"]] == ["manual"] * 2
    assert all("ScheduleError" in r["error"] for r in found if r["error"])


def test_agreement() -> None:
    a = np.array([1.0, np.nan, 3.0], np.float32)
    assert rows.agrees(a.copy(), a, (0, 0))
    assert not rows.agrees(a.astype(np.float64), a, (0, 0))
    assert not rows.agrees(a[:2], a, (0, 0))
    assert not rows.agrees(a * np.float32(1.001), a, (0, 0))
    assert rows.agrees(a * np.float32(1.001), a, (0.01, 0))
    assert not rows.agrees(np.nan_to_num(a), a, (0.01, 0))


class Clock:
    """A machine whose calls take what `speeds` say, one after the other; time is what they add up to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.order: list[str] = []
        monkeypatch.setattr(pairs.time, "perf_counter", lambda: self.now)

    def run(self, name: str, took: Any) -> Any:
        def call() -> None:
            self.order.append(name)
            self.now += took(len(self.order))

        return call


def test_rounds_are_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    a, b = pairs.interleaved([clock.run("a", lambda _: 0.5), clock.run("b", lambda _: 0.25)], 0.0, [None, 1])
    assert (a, b) == ([0.5] * pairs.MIN_ROUNDS, [0.25] * pairs.MIN_ROUNDS)
    assert clock.order == ["a", *"ab" * pairs.MIN_ROUNDS], "one call that is not timed, as it is not known to be long"


def test_short_calls_find_their_data_in_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of each round is slow, and is not timed."""
    clock = Clock(monkeypatch)
    last: list[str] = [""]

    def took(name: str) -> Any:
        def cold(_: int) -> float:
            found, last[0] = (1e-3 if last[0] == name else 5e-3), name
            return found

        return cold

    a, b = pairs.interleaved([clock.run("a", took("a")), clock.run("b", took("b"))], 0.0)
    assert a == pytest.approx([1e-3] * pairs.MIN_ROUNDS) and b == pytest.approx([1e-3] * pairs.MIN_ROUNDS)


def test_a_slow_run_drops_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    slow, fast = pairs.interleaved([clock.run("slow", lambda _: 1.0), clock.run("fast", lambda _: 0.03)], 1.0)
    assert len(slow) == pairs.MIN_ROUNDS and 30 <= len(fast) <= 36
    assert pairs.ratio(slow, fast).pairs == pairs.MIN_ROUNDS
    assert clock.order[-20:] == ["fast"] * 20


def test_two_speeds_of_a_machine_leave_the_ratio_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow most of the time; one call of `a` happens to be at the fast speed, so its minimum is below that of `b`."""
    clock = Clock(monkeypatch)

    def took(name: str, base: float) -> Any:
        return lambda _: base * (1.0 if name == "a" and clock.order.count("a") == 20 else 1.9)

    a, b = pairs.interleaved([clock.run("a", took("a", 0.06)), clock.run("b", took("b", 0.05))], 3.0)
    found = pairs.ratio(a, b)
    assert min(a) / min(b) < 0.7, "what minima would say"
    assert (found.median, found.low, found.high) == pytest.approx((1.2, 1.2, 1.2))


def test_how_far_ratios_scatter() -> None:
    found = pairs.ratio([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0] * 5)
    assert found == pairs.Ratio(3.0, 2.0, 4.0, 5)
    assert found.text() == "3.00 (2.00-4.00)"
    assert pairs.ratio([3.0], [2.0]) == pairs.Ratio(1.5, None, None, 1)
    assert pairs.ratio([3.0], [2.0]).text() == "1.50"


def test_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    """Manual is the schedule by hand, also where the default one is faster; pairs are of one way to run."""

    def row(peer: str, schedule: str | None, fast: bool = True, into: bool = True) -> rows.Row:
        return rows.Row("blur", peer, schedule, "planar", 2, [8], "uint8", fast, into, agrees=True, bytes=1000)

    given = [
        (row(rows.COPY, None), [1e-3, 2e-3, 1e-3]),
        (row("halide", "manual"), [6e-3, 12e-3, 6e-3]),
        (row("halide", "manual", into=False), [1e-3, 1e-3, 1e-3]),
        (row("hjit", "default"), [3e-3, 6e-3, 2e-3]),
        (row("hjit", "manual"), [4e-3, 8e-3, 4e-3]),
        (row("hjit", "manual", into=False), [4e-3, 8e-3, 4e-3]),
        (row("hjit", "manual", fast=False), [2e-3, 2e-3, 2e-3]),
    ]
    found = [asdict(r) for r in rows.timed(*zip(*given, strict=True))]
    assert table.ratio(found, "manual") == pairs.Ratio(1.5, 1.5, 1.5, 3)
    assert table.ratio(found, "default") == pairs.Ratio(2, 2, 2.5, 3)
    assert table.ratio(found, "manual", "hjit default") == pairs.Ratio(0.75, 0.625, 0.75, 3)
    assert table.ratio(found[:3], "manual") is None
    assert found[5]["ratios"]["halide manual"]["median"] == 0.25
    assert "hjit default" not in found[6]["ratios"], "its numbers are others"
    assert table.geomean([2.0, None, 8.0]) == pytest.approx(4)
    assert table.geomean([]) is None
    (line,) = table.bandwidth({"rows": found}, 2)
    assert "hjit by hand 4 ms (4.00 times), by default 3 ms (3.00 times), Halide by hand 6 ms (6.00 times)" in line
    alone = [{**r, "app": "harris"} for r in found if r["schedule"] != "manual" or r["peer"] == "halide"]
    table.show({"rows": found + alone})
    shown = capsys.readouterr().out
    assert "1.50 (1.50-1.50)" in shown and "2.00 (of 2)" in shown and "1.50 (of 1)" in shown


def test_a_copy_moves_what_the_application_must() -> None:
    found = measured(rows.Request("blur", (), 2, small=True, budget=0.001, hjit=()))
    (row,) = [r for r in found if r["peer"] == rows.COPY and r["layout"] == "planar"]
    assert row["bytes"] == rows.problem("blur", "planar", True).bytes and row["median_ms"] > 0


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="unknown application nothing"):
        suite.run(["nothing"])
    with pytest.raises(ValueError, match="unknown peer nobody"):
        suite.run(["blur"], ["nobody"])
    with pytest.raises(SystemExit):
        command.main(["--apps", "nothing"])
    assert "unknown application" in capsys.readouterr().err


def test_the_command_line() -> None:
    given = command.parser().parse_args(["--apps", "blur,harris", "--threads", "1,2"])
    assert (given.name, given.apps, given.threads) == ("apps", ["blur", "harris"], [1, 2])
    assert given.peers == list(rows.PEERS)
    assert command.parser().parse_args(["overhead"]).name == "overhead"


def test_a_process_is_told_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_FAST_MATH", "1")
    found = suite.environment(3)
    assert {found[name] for name in suite.THREADS} == {"3"}
    assert "HJIT_FAST_MATH" not in found


def test_searches_are_counted_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    row = search.measure("blur", "greedy", 1, small=True)
    assert row["stages"] == 2 and row["schedules"] > row["expansions"] > 0 and row["peak_mb"] >= row["before_mb"] > 0
    assert row["us_per_schedule"] == pytest.approx(1e6 * row["greedy_s"] / row["schedules"])
    assert row["us_per_featurised"] == pytest.approx(1e6 * row["greedy_s"] / row["featurised"])
    search.show(
        [
            {"app": "blur", "tune": "greedy", "threads": 1, **row},
            {"app": "hist", "tune": "greedy", "threads": 1, "error": "too slow"},
        ]
    )
    shown = capsys.readouterr().out
    assert "blur greedy" in shown and "too slow" in shown and "geometric mean" in shown


def test_searched_schedules_are_timed_where_they_are_asked_for() -> None:
    found = measured(rows.Request("blur", (), 1, small=True, budget=0.001, hjit=("default", "greedy")))
    assert {r["schedule"] for r in found if r["peer"] == "hjit"} == {"default", "greedy"}
    assert all(r["agrees"] for r in found)


def test_of_three_searches_the_middle_one_counts() -> None:
    runs = [{"us_per_schedule": x} for x in (9.0, None, 4.0)]
    assert search.middle(runs) == {"us_per_schedule": 9.0}


# -- the tables of papers


@pytest.fixture(scope="module")
def tabled() -> dict[str, list[dict[str, Any]]]:
    """All settings on a small application."""
    return {
        name: [
            {
                "app": "blur",
                "setting": s,
                "threads": 1,
                **papers.measure(name, s, "blur", 1, small=True, limit=2, bandwidth=2.0**33),
            }
            for s in efforts
        ]
        for name, efforts in papers.EFFORT.items()
    }


def test_searches_of_the_papers_settings(tabled: dict[str, list[dict[str, Any]]]) -> None:
    assert len(papers.ANDERSON) == len(papers.SECONDS) == len(papers.SPEEDUPS) == 8
    assert len(papers.MB2FBS) == len(papers.COSTS) == len(papers.EXPANSIONS) == 4
    for found in tabled.values():
        for r in found:
            assert r["states"] > r["expansions"] > 0 and r["peak_mb"] > 0 and (r["cost"] is None or r["cost"] > 0)
    anderson = {r["setting"]: r for r in tabled["anderson"] if not r["stopped"]}
    for setting, r in anderson.items():
        on = anderson.get(setting.replace("memoise off", "memoise on"))
        assert on is None or (on["states"], on["cost"]) == (r["states"], pytest.approx(r["cost"]))
        whole = anderson.get(setting.replace("sample on", "sample off"))
        assert whole is None or r["states"] <= whole["states"]


def test_the_papers_tables(tabled: dict[str, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]) -> None:
    papers.show(tabled)
    shown = capsys.readouterr().out
    assert all(
        word in shown
        for word in ("Anderson 2021, Table 3", "Gao 2022, Table 3", "blur", "372.06", "1,834.0", "the paper's")
    )
    failed = {"app": "snake", "setting": "beam 32", "threads": 1, "error": "too slow"}
    empty = {
        "app": "snake",
        "setting": "beam 64",
        "threads": 1,
        "states": 7,
        "expansions": 3.0,
        "seconds": 5.0,
        "cost": None,
        "stopped": True,
    }
    papers.show({"anderson": [], "mb2fbs": [failed, empty]})
    shown = capsys.readouterr().out
    assert "> 3.0" in shown and "snake" in shown


def test_each_search_of_the_papers_has_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(papers, "EFFORT", {"anderson": {papers.ALL_OFF: papers.ANDERSON[papers.ALL_OFF]}, "mb2fbs": {}})
    found = papers.run(["blur"], [1], small=True, limit=0.0)
    assert found["mb2fbs"] == []
    (row,) = found["anderson"]
    assert row["stopped"] and row["seconds"] > 0 and (row["app"], row["threads"]) == ("blur", 1)
    monkeypatch.setattr(papers, "GRACE", 0.01)
    (row,) = papers.run(["blur"], [1], small=True, limit=0.0)["anderson"]
    assert "more than" in row["error"]


def test_numbers_that_may_be_bounds() -> None:
    exact, least, most = papers.Bound(8.0), papers.Bound(2.0, ">"), papers.Bound(2.0, "<")
    assert (exact / least, exact / most, least / exact) == (
        papers.Bound(4.0, "<"),
        papers.Bound(4.0, ">"),
        papers.Bound(0.25, ">"),
    )
    assert least / least is None and least / most == papers.Bound(1.0, ">")
    assert papers.mean([exact, None, least]) == papers.Bound(pytest.approx(4.0), ">")
    assert papers.mean([least, most]) == papers.Bound(pytest.approx(2.0), "~")
    assert papers.mean([None]) is None
    assert papers.mean([exact, papers.Bound(0, ">")]) == papers.mean([exact]), "stopped before it counted anything"
    assert (least.text(".1f"), exact.text(".1%")) == ("> 2.0", "800.0%")


def test_tables_are_asked_for_on_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    requests: list[Any] = []

    def run(names: Any, threads: Any, keep: Any, **more: Any) -> Any:
        requests.append((names, threads, more))
        keep({"anderson": [1], "mb2fbs": []})
        kept.append(json.loads((tmp_path / "x.json").read_text()))
        return {"anderson": [], "mb2fbs": []}

    kept: list[Any] = []
    monkeypatch.setattr(papers, "run", run)
    command.main(
        ["search", "--tables", "--apps", "blur", "--small", "--limit", "3", "--json", str(tmp_path / "x.json")]
    )
    assert requests == [(["blur"], [], {"small": True, "limit": 3.0})]
    assert kept[0]["anderson"] == [1] and kept[0]["limit"] == 3, "what there is is written on the way"
    numbers = json.loads((tmp_path / "x.json").read_text())
    assert numbers["limit"] == 3 and numbers["anderson"] == numbers["mb2fbs"] == [] and numbers["commit"]
    with pytest.raises(SystemExit):
        command.main(["search", "--tables", "--apps", "nothing"])


# -- loops


@pytest.mark.parametrize("name", pixel_loops.FUNCTIONS)
def test_loops_over_pixels_are_compiled_and_pythons(name: str) -> None:
    f, img = pixel_loops.FUNCTIONS[name], pixel_loops.image(pixel_loops.SMALL)
    p = hjit.pipeline(f, cache="off", verify="off", on_unsupported="break")
    assert pixel_loops._alike(p(img), f(img))
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)


def test_loops_are_asked_for_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    command.main(["loops", "--small", "--budget", "0.01", "--functions", "equalised,corners", "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [r["function"] for r in rows] == ["equalised", "corners"] and all(r["agrees"] for r in rows)
    assert all(r["kind"].startswith("runs compiled") for r in rows)
    assert "loops over pixels" in capsys.readouterr().out


# -- idioms


@pytest.mark.parametrize("name", idioms.IDIOMS)
def test_idioms_are_numpys(name: str) -> None:
    (row,) = idioms.run([name], 2, small=True, budget=0.0)
    assert row["error"] is None and row["agrees"] and not row["fell_back"]
    assert (row["idiom"], row["threads"]) == (name, 2) and 0 < row["times_iqr"][0] <= row["times"] <= row["times_iqr"][
        1
    ]


def test_idioms_are_asked_for_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(a: Any) -> Any:
        return np.sort(a[a > 0])

    monkeypatch.setattr(
        idioms, "IDIOMS", {"laplace": idioms.IDIOMS["laplace"], "nothing of ours": (nothing, idioms.GRAY)}
    )
    command.main(["idioms", "--small", "--budget", "0.01", "--threads", "1,2", "--json", str(tmp_path / "x.json")])
    numbers = json.loads((tmp_path / "x.json").read_text())
    assert [(r["idiom"], r["threads"]) for r in numbers["rows"]] == [
        (name, n) for n in (1, 2) for name in ("laplace", "nothing of ours")
    ]
    assert numbers["commit"] and [bool(r["error"]) for r in numbers["rows"]] == [False, True] * 2
    assert "geometric mean" in capsys.readouterr().out


# -- products


def test_products_are_asked_for_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["products", "--small", "--budget", "0.02", "--threads", "1", "--json", str(tmp_path / "x.json")])
    found = json.loads((tmp_path / "x.json").read_text())["rows"]
    assert {tuple(map(tuple, row["shapes"])) for row in found} == {((16, 16), (16, 16)), ((32, 32), (32, 32))}
    assert all(not row["by_blas"] and row["threads"] == 1 for row in found)
    assert "float64" in capsys.readouterr().out


def test_disturbed_rounds_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = iter(range(10**6))
    monkeypatch.setattr(products.resource, "getrusage", lambda who: types.SimpleNamespace(ru_nivcsw=next(switches)))
    assert products.quiet_rounds([lambda: None, lambda: None], 0.02) == [[], []]
    monkeypatch.setattr(products.resource, "getrusage", lambda who: types.SimpleNamespace(ru_nivcsw=0))
    first, second = products.quiet_rounds([lambda: None, lambda: None], 5.0)
    assert len(first) == len(second) == products.MOST_ROUNDS


def test_the_tables_of_the_readme_are_those_of_the_results() -> None:
    text = tables.README.read_text()
    assert text == tables.filled(text)
    assert {m["name"] for m in tables.PLACE.finditer(text)} == tables.TABLES.keys()
    assert tables.filled(text.replace("1.79 (1.71 to 1.88)", "9.99")) == text
