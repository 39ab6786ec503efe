"""Every notebook runs from top to bottom, and what its cells end with can be shown."""

import html
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HJIT_TUNE")  # as users run them
    monkeypatch.delenv("HJIT_ON_UNSUPPORTED")
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path))
    state: dict[str, Any] = {"__name__": "notebook"}
    pictures = 0
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] != "code":
            continue
        *body, last = "".join(cell["source"]).split("\n")
        exec(compile("\n".join([*body, last]), f"{path.name}[{number}]", "exec"), state)
        if last.isidentifier() or last.startswith("sharpen."):
            shown = eval(last, state)
            if shown is None:
                continue
            text = str(shown)
            assert "rows" in text or "verified=True" in text, (
                text
            )  # a stage of the function by its name, or what its calls came to
            if hasattr(shown, "_repr_html_"):
                _check_html(shown._repr_html_(), text)
                pictures += 1
    assert pictures >= 3
    assert state["sharpen"].stats.fallbacks == 0


def _check_html(page: str, text: str) -> None:
    """Is every tag closed, and what the text says there?"""
    root = ElementTree.fromstring(f"<div>{page}</div>")
    listed = "\n\n".join("".join(e.itertext()) for e in root.iter("pre"))
    assert listed == text
    assert html.escape(text) in page


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
