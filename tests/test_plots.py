"""The pictures of the page of benchmarks."""

from __future__ import annotations

import copy
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

EXTENSIONS = Path(__file__).parent.parent / "docs" / "_ext"
PAGE = (EXTENSIONS.parent / "benchmarks.md").read_text()
README = EXTENSIONS.parent.parent / "benchmarks" / "README.md"
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("halide-by-hand", "halide-by-autoscheduler", "coverage", "mosaic", "model")


@pytest.fixture
def plots(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    import plots  # type: ignore[import-not-found]

    return plots


def elements(picture: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(picture).iter(f"{SVG}{kind}"))


def texts(picture: str, kind: str = "text") -> list[str]:
    return [x.text or "" for x in elements(picture, kind)]


def test_the_page_names_each_of_them(plots: Any) -> None:
    assert tuple(re.findall(r"```\{plot\} (\S+)", PAGE)) == NAMES == tuple(plots.PLOTS)


def test_the_page_has_all_of_the_text() -> None:
    before, after = re.findall(r':(?:end-before|start-after): "(.*)"', PAGE)
    (comment,) = re.findall(r"<!-- pictures.*-->\n", README.read_text())
    assert comment.startswith(before) and comment.endswith(f"{after}\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_says_what_it_shows_and_of_which_file(name: str, plots: Any) -> None:
    plot = plots.PLOTS[name]()
    top = ElementTree.fromstring(plot.picture)
    assert top.get("aria-label") == plot.about and top.get("role") == "img"
    d = plots.results(plot.file)
    assert (
        f"results/{plot.file}.json: {d['machine']['cpu']}" in plot.source
        and (d["commits"]["peers"] if name == "mosaic" else d["commit"])[:12] in plot.source
    )
    numbers = [float(x) for e in top.iter() for k in ("x", "y", "cx", "cy", "width") if (x := e.get(k))]
    assert numbers and all(math.isfinite(x) and x >= 0 for x in numbers)


def test_bars_beside_halide_are_the_numbers_of_the_table(plots: Any) -> None:
    picture = plots.halide_by_hand().picture
    lines = re.search(r"<!-- table beside-halide -->\n(.*?)<!-- end -->", README.read_text(), re.S)
    assert lines is not None
    titles = set(texts(picture, "title"))
    for line in lines[1].splitlines()[2:]:
        app, *cells = (x.strip() for x in line.strip("|").split("|"))
        for kind, cell in zip(("default", "greedy", "by hand"), cells[:3], strict=True):
            assert (f"{app}, {kind}: {cell.split(' ')[0]}" in titles) == bool(cell)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("halide-by-hand", lambda d: [r["ratios"]["halide manual"].update(median=7.77, low=7.5, high=8) for r in d["rows"] if "halide manual" in r["ratios"]]),
        ("halide-by-autoscheduler", lambda d: [r.update(min_ms=7.77 if r["peer"] == "halide" else 1.0) for r in d["rows"]]),
        ("coverage", lambda d: [x.update(times=7.77) for r in d["rows"] for x in r.get("speed", {}).values() if x]),
        ("mosaic", lambda d: [r.update(times=7.77) for r in d["peers"]["rows"]]),
    ],
)  # fmt: skip
def test_bars_are_drawn_of_the_results(name: str, change: Any, plots: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before, results = plots.PLOTS[name]().picture, plots.results

    def changed(file: str) -> Any:
        d = copy.deepcopy(results(file))
        change(d)
        return d

    monkeypatch.setattr(plots, "results", changed)
    after = plots.PLOTS[name]().picture
    titles = texts(after, "title")
    assert len(titles) == len(texts(before, "title")) > 3
    assert all(t.endswith(": 7.77") for t in titles) and not any(t.endswith(": 7.77") for t in texts(before, "title"))


def test_every_schedule_is_a_point(plots: Any) -> None:
    rows = plots.results("model-choices")["rows"]
    samples = [s for r in rows for s in r["samples"]]
    picture = plots.model().picture
    assert len(elements(picture, "circle")) == len(samples) > 100
    first = f"{rows[0]['app']}, default: {samples[0]['predicted_ms']:.3g}, {samples[0]['ms']:.3g}"
    assert first in texts(picture, "title")


def test_a_bar_begins_at_one(plots: Any) -> None:
    ratio = plots.Ratio
    picture = plots.svg.ratios("x", "times", {"slow": {"a": ratio(0.5)}, "fast": {"a": ratio(2.0, 1.5, 2.5)}})
    slow, fast = (e for e in elements(picture, "rect") if len(e))
    at_one = float(fast.get("x", ""))
    assert float(slow.get("x", "")) + float(slow.get("width", "")) == pytest.approx(at_one, abs=0.2)
    assert float(slow.get("width", "")) == pytest.approx(float(fast.get("width", "")), abs=0.2), "logarithmic"
    assert any(
        float(e.get("x1", "")) == float(e.get("x2", "")) == pytest.approx(at_one, abs=0.1)
        for e in elements(picture, "line")
    )
