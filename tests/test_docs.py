"""The examples of the documents run, and say what is so."""

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda.compilers import opencl

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def _examples() -> Any:
    spec = importlib.util.spec_from_file_location("examples", DOCS / "_ext" / "examples.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


examples = _examples()
PAGES = {p.relative_to(DOCS).as_posix(): tuple(examples.blocks(p.read_text())) for p in sorted(DOCS.rglob("*.md"))}
ON_A_GPU = {"guide/gpu.md", "inside_gpu.md"}
NOT_RUN = {"guide/gpu.md": 2, "inside_gpu.md": 1}  # blocks that need CuPy


@pytest.mark.usefixtures("as_users_run_them")
@pytest.mark.parametrize("page", [name for name, blocks in PAGES.items() if blocks])
def test_the_examples_of_a_page_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if page in ON_A_GPU:
        if not opencl.is_available():
            pytest.skip("needs an OpenCL device")
        monkeypatch.setenv("HJIT_CUDA_DEVICE", "opencl")
    namespace = examples.new_namespace()
    for _, code in PAGES[page]:
        examples.run(code, namespace)


def test_every_page_of_the_guide_has_examples() -> None:
    guide = {name for name in PAGES if name.startswith("guide/")}
    assert guide
    assert all(PAGES[name] for name in guide)


def test_no_example_is_left_out() -> None:
    shown = {p.relative_to(DOCS).as_posix(): p.read_text().count("{code-block} python") for p in DOCS.rglob("*.md")}
    assert {name: n for name, n in shown.items() if n} == NOT_RUN


def test_an_example_that_fails_is_seen() -> None:
    (block,) = examples.blocks("text\n\n```{run}\n:language: text\n\nassert 1 == 2\n```\n\n```\nassert 3 == 4\n```\n")
    assert block == (5, "assert 1 == 2\n")
    with pytest.raises(AssertionError):
        examples.run(block[1], examples.new_namespace())


NOT_RUN_OF_README = ("import cupy", "mypackage", "mosaic.zarr")  # each is in one block


@pytest.mark.usefixtures("as_users_run_them")
def test_the_examples_of_the_readme_run() -> None:
    photo = np.random.default_rng(0).random((120, 160), np.float32)
    given = {
        "hjit": hjit,
        "np": np,
        "photo": photo,
        "img": photo.copy(),
        "out": photo.copy(),
        "alpha": 0.5,
        "h": len(photo),
    }
    given |= {"w": photo.shape[1], "highest": 0.0}
    namespace = {**examples.new_namespace(), **given}
    codes = [code for _, code in examples.blocks((ROOT / "README.md").read_text())]
    left_out = [[code for code in codes if text in code] for text in NOT_RUN_OF_README]
    assert [len(found) for found in left_out] == [1] * len(NOT_RUN_OF_README)
    for code in codes:
        if [code] not in left_out:
            examples.run(code, namespace)
    assert np.array_equal(namespace["result"], namespace["sharpen"].py_func(photo))


INCLUDE = re.compile(r"^```\{include\} (\S+)\n(.*?)^```$", re.M | re.S)


def test_what_pages_include_is_there() -> None:
    found = 0
    for page in DOCS.rglob("*.md"):
        for file, options in INCLUDE.findall(page.read_text()):
            text = (page.parent / file).read_text()
            for name, quoted in re.findall(r"^:(start-after|end-before): (\".*\")$", options, re.M):
                mark = ast.literal_eval(quoted)
                assert text.count(mark) >= 1, f"{page.name}: {name} {mark!r} is not in {file}"
                text = text.partition(mark)[2 if name == "start-after" else 0]
                found += 1
            assert text.strip()
    assert found >= 6


PAGES_WITH_PATHS = ("CONTRIBUTING.md", "README.md", "benchmarks/README.md", "docs/inside.md", "docs/papers.md")


@pytest.mark.parametrize("page", PAGES_WITH_PATHS)
def test_files_that_pages_name_are_there(page: str) -> None:
    rooms = ("hjit", "tests", "benchmarks", "docs", "notebooks")
    paths = [p.relative_to(ROOT) for room in rooms for p in (ROOT / room).rglob("*.*")]
    there = {f"/{p}" for p in paths} | {f"/{folder}/" for p in paths for folder in p.parents}
    named = {x for x in re.findall(r"`([\w./]+)`", (ROOT / page).read_text()) if x.endswith((".py", "/"))}
    assert named, "nothing is looked for"
    assert {x for x in named if not any(path.endswith(f"/{x}") for path in there)} == set()


def test_the_reference_has_all_public_names() -> None:
    text = "\n".join(p.read_text() for p in (DOCS / "reference").glob("*.md"))
    errors = "automodule:: hjit.errors" in text
    for name in hjit.__all__:
        of_errors = errors and getattr(getattr(hjit, name), "__module__", "") == "hjit.errors"
        assert name == "__version__" or of_errors or f"hjit.{name}" in text, name
