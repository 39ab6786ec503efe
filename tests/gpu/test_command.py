"""``python -m tests.gpu``: what it runs, with pytest and without it, and that it does so from end to end."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hjit.kernels.cuda.compilers import opencl
from tests.gpu import __main__ as command
from tests.gpu import words, worker
from tests.gpu.collect import FIXTURES, cases
from tests.gpu.parts import PARTS
from tests.kernels import cuda

LISTED = """
import sys
if {bare}:
    sys.modules["pytest"] = None
from tests.gpu import words
words.install()
from tests.gpu.parts import PARTS
print([f"{{part}}: {{name}}" for part in PARTS for name in PARTS[part]()])
"""


def modules() -> list[str]:
    folder = Path(cuda.__file__).parent
    return [p.stem for p in sorted(folder.glob("test_*.py"))]


def test_every_test_that_needs_a_device_is_in_a_part() -> None:
    listed = {name.rpartition(": ")[2] for make in PARTS.values() for name in make()}
    for name in modules():
        assert set(cases(importlib.import_module(f"{cuda.__name__}.{name}"))) <= listed, name
    whole = ("test_what_does_not_round_is_numpys[max]", "test_scans_of_whole_numbers_are_numpys[columns]")
    assert listed.issuperset((*whole, "test_sizes_and_scalars_are_given_at_the_launch", "test_wide_accesses"))


def test_tests_of_opencl_are_not() -> None:
    names = {name.rpartition(": ")[2] for make in PARTS.values() for name in make()}
    assert not names & {"test_refused_kernel", "test_barriers_around_the_updates_are_needed"}


def test_fixtures_of_fixtures_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import ExitStack

    from tests.gpu.collect import _make

    with ExitStack() as stack:
        made: dict[str, object] = {}
        _make("on_device", made, stack)
        assert set(made) == {"on_device", "monkeypatch", "tmp_path"} <= FIXTURES.keys()
        folder = made["tmp_path"]
        assert _make("tmp_path", made, stack) is folder


def test_the_same_is_run_without_pytest() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", LISTED.format(bare=bare)], capture_output=True, text=True, check=True
        ).stdout
        for bare in (False, True)
    }
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("module", "kind", "is_skipped"),
    [
        ("no_such_module", ImportError, True),
        ("no_such_module", ModuleNotFoundError, True),
        ("tests.gpu.broken", ImportError, True),
        ("tests.gpu.broken", ModuleNotFoundError, False),
        ("json", ImportError, False),
    ],
)
def test_modules_that_are_missing_are_skipped_as_by_pytest(
    module: str, kind: type[ImportError], is_skipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "tests.gpu.broken":
                raise ImportError("no such library")

    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    for function, skipped in ((words.importorskip, words.Skipped), (pytest.importorskip, pytest.skip.Exception)):
        try:
            found = function(module, exc_type=kind)
        except skipped:
            assert is_skipped
        except ImportError as error:
            assert module == "tests.gpu.broken" and type(error) is ImportError and not is_skipped
        else:
            assert found is json and not is_skipped


def test_versions_that_are_too_old_are_skipped() -> None:
    assert words.importorskip("numpy", "1.9").__name__ == "numpy"
    with pytest.raises(words.Skipped, match="the reason"):
        words.importorskip("numpy", minversion="99.0", reason="the reason")


def test_a_fault_of_the_device_after_a_failure_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that another process runs the next case."""

    def spoilt() -> None:
        raise RuntimeError("cudaErrorIllegalAddress")

    monkeypatch.setattr(worker, "_settled", spoilt)
    assert any(word in worker._fault() for word in command.SPOILED)
    monkeypatch.setattr(worker, "_settled", lambda: None)
    assert worker._fault() == ""


def test_a_process_that_dies_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen
    words = [sys.executable, "-c", "import sys; sys.stdin.readline(); sys.exit('no memory')"]
    monkeypatch.setattr(command.subprocess, "Popen", lambda _, **given: start(words, **given))
    process = command.Worker(False)
    found = process.run(("calls", "one"), float("inf"))
    assert found == {"result": "failed", "why": "the process ended with status 1: no memory"} and process.is_ended


@pytest.mark.skipif(not opencl.is_available(), reason="needs an OpenCL device")
def test_it_runs_on_the_stand_in(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    words = ("--stand-in", "--jobs", "1", "--only", "blocks,calls", "--cases", "[columns]", "--json", str(file))
    done = subprocess.run([sys.executable, "-m", "tests.gpu", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    passed = [name for name, x in found["results"].items() if x["result"] == "passed"]
    assert "blocks: test_block_scans: test_scans_of_whole_numbers_are_numpys[columns]" in passed
    assert not found["failed"] and not found["left_out"]
