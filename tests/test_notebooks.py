"""Every notebook runs from top to bottom, and what its cells end with can be shown."""

import ast
import html
import json
import linecache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.figure
import pytest

from hjit.kernels.cuda.compilers import opencl

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
PICTURES = {
    "beside_halide": 5,
    "dask_mosaic": 2,
    "first_steps": 3,
    "gpu": 3,
    "schedules_by_hand": 6,
    "graph_breaks": 1,
    "training_the_model": 5,
    "what_the_search_saw": 4,
}  # at least so many cells end with one
needs_device = pytest.mark.skipif(not opencl.is_available(), reason="needs an OpenCL device")


@pytest.mark.usefixtures("as_users_run_them")
@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=needs_device if p.stem == "gpu" else ()) for p in NOTEBOOKS]
)
def test_it_runs(path: Path) -> None:
    state: dict[str, Any] = {"__name__": "notebook"}
    pictures = checks = 0
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] != "code":
            continue
        source, name = "".join(cell["source"]), f"{path.name}[{number}]"
        linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name  # as IPython does
        tree = ast.parse(source)
        checks += sum(isinstance(node, ast.Assert) for node in ast.walk(tree))
        shown = _run(tree, name, state)
        if isinstance(shown, matplotlib.figure.Figure):
            shown.savefig("picture.png")
            pictures += 1
        elif hasattr(shown, "_repr_html_"):
            _check_html(shown._repr_html_(), str(shown))
            pictures += 1
    assert pictures >= PICTURES[path.stem]
    assert checks  # of what it says


def _run(tree: ast.Module, name: str, state: dict[str, Any]) -> Any:
    """Run a cell; returns the value of the expression that it ends with."""
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), state)
    return eval(compile(ast.Expression(last.value), name, "eval"), state) if isinstance(last, ast.Expr) else None


def _check_html(page: str, text: str) -> None:
    """Is every tag closed, and what the text says there?"""
    root = ElementTree.fromstring(f"<div>{page}</div>")
    listed = "\n\n".join("".join(e.itertext()) for e in root.iter("pre"))
    assert listed == text
    assert html.escape(text) in page


def test_there_are_notebooks() -> None:
    assert PICTURES.keys() == {p.stem for p in NOTEBOOKS}


def test_notebooks_are_stored_without_results() -> None:
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert not any(c.get("outputs") or c.get("execution_count") for c in cells), path.name
