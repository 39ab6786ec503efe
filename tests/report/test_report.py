"""`f.report`: text, HTML and a page, of what runs whole, in parts, and not at all."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda.compilers import opencl
from hjit.report.performance.nests import nests_of
from hjit.report.performance.report import SECTIONS
from tests.report import chrome

IMAGE = np.random.default_rng(0).random((480, 640), np.float32)
PROBE = """
window.tabs = [...document.querySelectorAll('label')].map(label => {
  label.click();
  return [...document.querySelectorAll('.panels>section')].filter(x => x.offsetHeight > 0).map(x => x.ariaLabel + ':' +
    [...x.querySelectorAll('svg')].every(s => s.getBoundingClientRect().width > 0)).join();
}).join(' ');
"""  # after each click the names of the tabs that are shown, and whether their pictures have a size
VOID = {"input", "meta", "br", "img", "hr", "link"}


def blur(img: Any, amount: float = 0.5) -> Any:
    blur_x = (img[:, :-2] + img[:, 1:-1] + img[:, 2:]) / 3
    soft = (blur_x[:-2] + blur_x[1:-1] + blur_x[2:]) / 3
    return np.exp(amount * soft) + soft


def standardised(img: Any) -> Any:
    return (img - img.mean()) / img.std()


def logged(img: Any, name: str) -> Any:
    bright = img * 2 + 1
    os.environ["HJIT_TEST_REPORT"] = name
    return bright / 3


class Page(HTMLParser):
    """A page that is well formed: every element is closed by its own end. What there is of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not (self.get_starttag_text() or "").endswith("/>") or tag == (self.open or [""])[-1]:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.seen if name == tag]


def check_page(text: str) -> Page:
    """Is it well formed, does it need nothing from outside, and has it its tabs?"""
    page = Page(text)
    assert not page.all("script") and not page.all("link") and not page.all("img")
    for _, attrs in page.seen:
        assert not {"src", "href", "onclick", "onload"} & attrs.keys()
        assert all((attrs.get(n) or "#").startswith(("#", "url(#")) for n in ("marker-end", "fill-ref"))
    outside = re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', "", text)
    assert "http" not in outside and "@import" not in outside
    heads = [a for a in page.all("input") if a.get("type") == "radio"]
    assert len(heads) == len(page.all("section")) == len(SECTIONS)
    assert [a["for"] for a in page.all("label")] == [a["id"] for a in heads]
    assert sum("checked" in a for a in heads) == 1
    assert len(page.all("caption")) == len(page.all("table"))
    for k in range(1, len(SECTIONS) + 1):
        assert f"input:nth-of-type({k}):checked~.panels>section:nth-of-type({k})" in text
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)
    return page


@pytest.fixture(scope="module")
def of_blur() -> Any:
    p = hjit.pipeline(blur)
    p(IMAGE)
    return p.report(IMAGE)


def test_a_blur_as_text(of_blur: Any) -> None:
    text = str(of_blur)
    assert text == repr(of_blur)
    assert "blur(img: float32[480, 640])" in text and "blur runs compiled: 1 kernel" in text
    assert "line buffer" in text and "compute blur_x" in text
    assert re.search(r"\d+ +\d+\.\d% +blur_x = ", text), "lines of source have their costs"


def test_a_blur_as_html(of_blur: Any, tmp_path: Path) -> None:
    page = check_page(of_blur._repr_html_())
    labels = [a.get("aria-label") or "" for a in page.all("svg")]
    assert any("vectors of" in x for x in labels) and any("Predicted cost" in x for x in labels)
    assert "bytes_read_by_tasks" in page.text and "soft = (blur_x" in page.text
    of_blur.save(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text.startswith("<!DOCTYPE html>")
    check_page(text)
    ids = [a["id"] for a in Page(of_blur._repr_html_() + of_blur._repr_html_()).all("input")]
    assert len(ids) == len(set(ids)), "two reports in a notebook have tabs of their own"


def test_its_numbers_are_those_of_this_call(of_blur: Any) -> None:
    (k,) = of_blur.facts.kernels
    assert (k.read, k.written) == (IMAGE.nbytes, 478 * 638 * 4)
    assert k.seconds > 0
    assert k.costs.total == pytest.approx(sum(k.costs.by_stage.values()))
    assert sum(x for _, x in k.costs.by_term()) == pytest.approx(k.costs.total)
    groups = [sum(k.costs.by_group(n).values()) for n in range(len(k.costs.graph.stages))]
    assert groups == pytest.approx([*k.costs.by_stage.values()])
    buffer = k.buffers["blur_x"]
    assert buffer.circular == 0 and buffer.shape[1] == 638 and buffer.bytes == 4 * buffer.shape[0] * 638
    (nest,) = nests_of(k.tree, k.graph, k.sizes)
    assert [a.extent for a in nest.axes] == [478, 638] and nest.inner == ("blur_x",)
    assert nest.axes[1].vector > 1


def test_the_time_of_each_loop_nest_is_measured_and_shared_out(of_blur: Any) -> None:
    def described(img: Any) -> Any:
        return np.cumsum(img, 0) / 2, np.sort(img, 1)

    p = hjit.pipeline(described, tune=False)
    p(IMAGE)
    for report in (of_blur, p.report(IMAGE)):
        (k,) = report.facts.kernels
        assert all(x.seconds > 0 for x in k.nests)
        every = sum(x.seconds for x in k.nests)
        assert sum(k.lines.values()) == pytest.approx(sum(k.stage_seconds.values())) == pytest.approx(every)
        for x in k.nests:  # no stage is in two of them
            assert sum(k.stage_seconds[n] for n in x.stages) == pytest.approx(x.seconds)
        assert "by measured time" in str(report) and "loop nest" in str(report)
        assert "Measured time of each line" in check_page(report._repr_html_()).text


def test_without_times_of_nests_lines_have_predicted_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any) -> Any:
        raise hjit.HjitError("no time")

    monkeypatch.setattr("hjit.report.performance.timing.noting", refuses)
    report = (p := hjit.pipeline(blur, tune=False)).report(IMAGE)
    (k,) = report.facts.kernels
    assert not k.nests and k.seconds is not None and p.py_func is blur
    assert sum(k.lines.values()) == pytest.approx(k.costs.total) and "by predicted cost" in str(report)


def test_candidates_are_those_that_were_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    from hjit.tuning import candidates

    monkeypatch.setattr(candidates, "measured", lambda kernels, *_: (0, [0.001 * (k + 1) for k in range(len(kernels))]))
    p = hjit.pipeline(blur, tune="greedy", fast_math=True)  # with a plan of its own
    p(IMAGE)
    (k,) = p.report(IMAGE).facts.kernels
    assert [c.measured for c in k.candidates] == [0.001 * (n + 1) for n in range(len(k.candidates))]
    assert [c.name for c in k.candidates if c.is_chosen] == ["candidate 1"] and k.candidates[-1].name == "default"
    assert k.candidates[0].predicted == pytest.approx(k.costs.total, rel=1e-3), "as the search has it"
    assert all(c.predicted > 0 for c in k.candidates)
    page = check_page(p.report(IMAGE)._repr_html_())
    assert len(page.all("circle")) == len(k.candidates) > 1


def test_a_reduction() -> None:
    p = hjit.pipeline(standardised, tune=False)
    p(IMAGE)
    report = p.report(IMAGE)
    page = check_page(report._repr_html_())
    assert "tune=False: the default schedule runs" in page.text and not page.all("circle")
    (k,) = report.facts.kernels
    extents = [tuple(a.extent for a in n.axes) for n in nests_of(k.tree, k.graph, k.sizes)]
    assert (480, 640) in extents and len(extents) == len(k.tree.children)
    assert (k.read, k.written) == (IMAGE.nbytes, IMAGE.nbytes)


def test_a_function_with_breaks_is_escaped_and_not_called() -> None:
    p = hjit.pipeline(logged, on_unsupported="break")
    with pytest.MonkeyPatch.context() as m:
        m.setenv("HJIT_TEST_REPORT", "")
        before = p.report(IMAGE, "<script>x</script>")
        assert "Call the function, and report again" in str(before) and before.facts.breaks
        check_page(before._repr_html_())
        p(IMAGE, "<b>&")
        os.environ["HJIT_TEST_REPORT"] = ""
        report = p.report(IMAGE, "<b>&")
        assert os.environ["HJIT_TEST_REPORT"] == "", "a report calls nothing"
    page = check_page(report._repr_html_())
    assert "<b>&" in page.text and "<b>&" not in report._repr_html_()
    assert report.facts.kernels and all(k.seconds is None and k.why_untimed for k in report.facts.kernels)
    assert any("os.environ" in b.what for b in report.facts.breaks)
    (rows,) = (rows for name, rows in report.facts.source.items() if name == "logged")
    assert [x.number for x in rows if x.note] == [b.line for b in report.facts.breaks if b.line][:1]


def test_calls_between_kernels_are_timed_and_arguments_stay() -> None:
    def filtered(img: Any) -> Any:
        spectrum = np.fft.fft2(img + 1)
        img *= 2
        return spectrum.real / 2

    p = hjit.pipeline(filtered, tune=False)
    image = IMAGE[:64, :64].copy()
    p(image.copy())
    report = p.report(image)
    assert np.array_equal(image, IMAGE[:64, :64])
    assert [b.what for b in report.facts.breaks] == ["numpy.fft.fft2"]
    assert all(b.seconds > 0 for b in report.facts.breaks) and all(k.seconds > 0 for k in report.facts.kernels)


def test_the_other_way_of_a_decision_is_found() -> None:
    def stretched(img: Any) -> Any:
        return img / 2 if img.max() > 1 else img + 1

    p = hjit.pipeline(stretched, tune=False)
    p(IMAGE), p(IMAGE + 1)
    for image in (IMAGE, IMAGE + 1):
        kernels = p.report(image).facts.kernels
        assert len(kernels) == 2 and all(k.seconds is not None for k in kernels)


def test_a_schedule_by_hand_and_plain_numpy() -> None:
    p = hjit.pipeline(blur)
    s = p.schedule(IMAGE)
    s["blur_x"].root()
    p.use(s)
    p(IMAGE)
    report = p.report(IMAGE)
    assert "given to f.use" in str(report) and len(report.facts.kernels[0].tree.children) == 2
    check_page(report._repr_html_())
    off = hjit.pipeline(lambda img: np.sort(img[img > 0.5]), on_unsupported="numpy")
    with pytest.warns(hjit.HjitWarning):
        off(IMAGE)
    plain = off.report(IMAGE)
    assert not plain.facts.kernels and "mask" in str(plain)
    assert "There is no kernel" in check_page(plain._repr_html_()).text


@pytest.mark.parametrize(
    "array",
    [np.zeros((0, 5)), np.float32(3), np.zeros((3, 4), np.complex64), np.zeros(7, bool)],
    ids=lambda a: str(a.shape),
)
def test_odd_arrays(array: Any) -> None:
    p = hjit.pipeline(lambda x: x * 2)
    p(array)
    report = p.report(array)
    assert str(report)
    check_page(report._repr_html_())


def test_chunks_of_dask_have_kernels_of_their_own() -> None:
    array = pytest.importorskip("dask.array").ones((40, 50), chunks=(20, 50))
    report = hjit.pipeline(lambda x: x * 2).report(array)
    assert "chunks of Dask" in str(report) and not report.facts.kernels
    check_page(report._repr_html_())


@pytest.mark.skipif(chrome.found() is None, reason="needs Chromium")
def test_a_page_opens_in_a_browser(of_blur: Any, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    of_blur.save(page)
    page.write_text(page.read_text().replace("</body>", f"<script>{PROBE}</script></body>"))
    assert chrome.evaluated(page, "window.tabs", tmp_path / "profile") == " ".join(f"{n}:true" for n in SECTIONS)


@pytest.mark.skipif(not opencl.is_available(), reason="needs an OpenCL device")
def test_kernels_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_CUDA_DEVICE", "opencl")
    report = hjit.pipeline(blur, target="cuda").report(IMAGE)
    (k,) = report.facts.kernels
    assert k.limit > 0 and "blocks" in str(report) and "the cost model is one of CPUs" in str(report)
    assert "compute capability" in check_page(report._repr_html_()).text
