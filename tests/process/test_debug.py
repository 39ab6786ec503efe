"""What HJIT_DEBUG and HJIT_PRINT_AFTER print, and that nothing is printed without them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.lower import lower
from hjit.process import debug
from hjit.trace.passes import canonical
from tests.campaign.fresh import forget
from tests.test_rooms import ROOT

IMAGE = np.random.default_rng(0).random((70, 90)).astype(np.float32)


def blur(img: Any) -> Any:
    rows = img[:, :-2] + img[:, 1:-1] + img[:, 2:]
    return rows[:-2] + rows[1:-1] + rows[2:]


def printed(capsys: Any, **options: Any) -> str:
    forget()  # what is compiled already is not compiled again
    np.testing.assert_array_equal(hjit.pipeline(blur, cache="off", **options)(IMAGE), blur(IMAGE))
    found = capsys.readouterr()
    assert found.out == ""
    return str(found.err)


def test_nothing_is_printed_unasked(capsys: Any) -> None:
    assert printed(capsys, tune=False) == ""


def test_passes_and_their_times(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HJIT_DEBUG", "passes")
    lines = printed(capsys, tune=False).splitlines()
    names = [line.split()[2] for line in lines]
    assert all(re.fullmatch(r"hjit passes: \w+\.\w+ \d+\.\d\d ms", line) for line in lines)
    assert [n for n in names if n.startswith("lower.")] == [
        "lower.place_loops",
        *(f"lower.{p.__name__}" for p in lower.CPU),
    ]
    assert names[: len(canonical.PASSES)] == [f"canonicalise.{p.__name__}" for p in canonical.PASSES]


@pytest.mark.parametrize(("topic", "text"), [
    ("schedule", "compute "), ("loops", "vector"), ("llvm", "define"), ("asm", ".section"),
])  # fmt: skip
def test_what_is_made(topic: str, text: str, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HJIT_DEBUG", f"{topic}, ")
    found = printed(capsys, tune=False)
    assert found.count("---- hjit ") == 1 and found.startswith(f"---- hjit {topic}: ") and text in found


def test_the_search(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HJIT_DEBUG", "search")
    found = printed(capsys, tune="greedy")
    assert "the best by the model" in found and "cost" in found


def test_the_result_of_a_pass(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HJIT_PRINT_AFTER", "place_loops,fuse")
    found = printed(capsys, tune=False)
    assert found.count("---- hjit after canonicalise.fuse") == 2  # it is in the list twice
    assert found.count("---- hjit after lower.place_loops") == 1 and found.count("---- hjit") == 3
    monkeypatch.setenv("HJIT_PRINT_AFTER", "all")
    assert printed(capsys, tune=False).count("---- hjit after ") == len(canonical.PASSES) + len(lower.CPU) + 1


def test_topics_are_combined(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HJIT_DEBUG", "schedule,passes,asm")
    monkeypatch.setenv("HJIT_PRINT_AFTER", "outline")
    found = [line.split()[2] for line in printed(capsys, tune=False).splitlines() if line.startswith("---- hjit ")]
    assert found == ["after", "schedule:", "asm:"]


def test_every_topic_is_documented() -> None:
    assert debug.__doc__ is not None
    assert f"HJIT_DEBUG={','.join(debug.TOPICS)}" in debug.__doc__
    page = (ROOT / "docs" / "reference" / "debugging.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| ", page.partition("| `HJIT_DEBUG=` |")[2].partition("\n\n")[0], re.M) == [
        *debug.TOPICS
    ]
    assert "HJIT_PRINT_AFTER=all" in page and "HJIT_CHECK=1" in page


@pytest.mark.parametrize(("variable", "known"), [("HJIT_DEBUG", "asm"), ("HJIT_PRINT_AFTER", "all, .*vectorize")])
def test_unknown_names(variable: str, known: str, monkeypatch: Any) -> None:
    monkeypatch.setenv(variable, "nothing")
    with pytest.raises(hjit.OptionError, match=f"{variable} names nothing: choose of .*{known}"):
        hjit.pipeline(lambda img: img * 2.5 - 1, cache="off")(IMAGE)
