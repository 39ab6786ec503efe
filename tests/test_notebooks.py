"""Every notebook runs from top to bottom, and what its cells end with can be shown."""

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HJIT_TUNE")  # as users run them
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path))
    state: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] != "code":
            continue
        *body, last = "".join(cell["source"]).split("\n")
        exec(compile("\n".join([*body, last]), f"{path.name}[{number}]", "exec"), state)
        if last.isidentifier() or last.startswith("sharpen."):
            shown = eval(last, state)
            assert shown is None or repr(shown)
            if hasattr(shown, "_repr_html_"):
                assert "<" in shown._repr_html_()


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
