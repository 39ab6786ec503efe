"""What a person can look at: the Graph, the schedule, the loops, LLVM IR, assembly, counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.ir.expressions import Load, Op

IMAGE = np.ones((40, 50), np.float32)


def blur(img: Any) -> Any:
    blur_x = (img[:, :-2] + img[:, 1:-1] + img[:, 2:]) / 3
    return (blur_x[:-2] + blur_x[1:-1] + blur_x[2:]) / 3


@pytest.mark.parametrize("called", [False, True])
def test_listings(called: bool) -> None:
    p = hjit.pipeline(blur)
    if called:
        p(IMAGE)
    before = (p.stats.calls, p.stats.fallbacks)
    assert str(p.schedule(IMAGE)) == repr(p.schedule(IMAGE)) == str(p.schedule(IMAGE).trees()[0])
    assert "parallel" in p.schedule(IMAGE)._repr_html_()
    for listing in (p.graph(IMAGE), p.loops(IMAGE)):
        assert len(listing) == 1
        assert str(listing) == repr(listing) == str(listing[0])
        assert "<pre" in listing._repr_html_()
        assert "<module" not in listing._repr_html_()
    assert "img" in str(p.graph(IMAGE))
    assert "nest" in str(p.loops(IMAGE))
    assert "define" in p.inspect_llvm(IMAGE)
    assert "hjit_" in p.inspect_asm(IMAGE)
    assert (p.stats.calls, p.stats.fallbacks) == before
    assert p.stats.traces == 1 if called else p.stats.traces >= 1
    np.testing.assert_array_equal(p(IMAGE), blur(IMAGE))


def test_names_of_the_user_are_kept() -> None:
    assert "blur_x" in str(hjit.pipeline(blur, num_threads=1).graph(IMAGE)) + str(hjit.pipeline(blur).loops(IMAGE))


def test_one_part_for_each_segment() -> None:
    def f(img: Any) -> Any:
        if img.max() > 3:
            return img / 2
        return img + 1

    p = hjit.pipeline(f)
    assert len(p.graph(IMAGE)) == 2
    p(IMAGE)
    traces = p.stats.traces
    assert len(p.loops(IMAGE)) == 2
    assert p.stats.traces == traces


def test_html_is_escaped() -> None:
    text = hjit.pipeline(lambda img: np.where(img < 3, img, 0)).loops(IMAGE)._repr_html_()
    assert text.count("<pre") == text.count("</pre>") == 1
    assert "<" not in text.replace("<pre", "").replace("</pre>", "").replace("&lt;", "")


def test_errors() -> None:
    with pytest.raises(hjit.TraceError):
        hjit.pipeline(lambda img: np.sort(img[img > 3]), on_unsupported="numpy").graph(IMAGE)
    with pytest.raises(ValueError, match="broadcast"):
        hjit.pipeline(lambda img: img + np.ones(7)).graph(IMAGE)


def test_counters() -> None:
    p = hjit.pipeline(blur)
    for _ in range(3):
        p(IMAGE)
    assert p.stats.calls == 3
    assert p.stats.traces == 1
    assert p.stats.fallbacks == 0
    assert p.stats.verified is True
    assert p.stats.scratch_bytes >= 0
    assert "calls=3" in repr(p.stats)


def test_expressions_are_as_long_as_their_distinct_nodes() -> None:
    e: Any = Load("a", (), np.float64)
    for _ in range(5000):
        e = Op("add", (e, e), np.float64)
    text = str(e)
    assert text == repr(e)
    assert text.startswith("add(v4998, v4998) where v0 = add(a[], a[]), v1 = add(v0, v0), ")
    assert str(Op("add", (Load("a", (), np.float64), Load("b", (), np.float64)), np.float64)) == "add(a[], b[])"
