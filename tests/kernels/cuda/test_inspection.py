"""What is shown of kernels that run on a GPU; no device is needed for that."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.runtime import inspection
from hjit.kernels.cuda.runtime.device import VARIABLE

IMAGE = np.random.default_rng(3).random((40, 50), np.float32)
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


@pytest.fixture
def f(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv(VARIABLE, raising=False)

    @hjit.pipeline
    def rows(a: Any) -> Any:
        return a / a.sum(axis=1)[:, None]

    return rows


def test_graph_schedule_and_loops_are_those_of_the_target(f: Any) -> None:
    cuda = f.on("cuda")
    assert str(cuda.graph(IMAGE)) == str(f.graph(IMAGE))
    assert (
        "vector" in str(f.loops(IMAGE))
        and "vector" not in str(cuda.loops(IMAGE))
        and "vector" not in str(cuda.tree(IMAGE))
    )
    assert cuda.inspect_llvm(IMAGE) == f.inspect_llvm(IMAGE) and "define" in f.inspect_llvm(IMAGE)


def test_cuda(f: Any) -> None:
    text = f.inspect_cuda(IMAGE)
    assert "__global__" in text and text == f.on("cuda").inspect_cuda(IMAGE)
    assert text.count("\nHJ_KERNEL(") == 2


@needs_nvrtc
def test_ptx(f: Any) -> None:
    assert ".target sm_80" in f.inspect_ptx(IMAGE)
    assert ".target sm_90" in f.inspect_ptx(IMAGE, capability=90)


@needs_nvrtc
def test_the_table_of_kernels(f: Any) -> None:
    table = f.kernels(IMAGE)
    assert [(x.blocks, x.threads) for x in table] == [(40, 256), (5, 256)]  # a row each; tiles of 8 x 128
    assert all(x.resources.registers > 0 and x.resources.spill_loads == 0 for x in table)
    head, *rows, about, _, least = str(table).splitlines()
    assert head.split()[:4] == ["kernel", "grid", "block", "registers"] and len(rows) == len(table)
    assert about.startswith("for compute capability 8.0") and least.endswith("of the A100")
    assert [x.estimate.bytes for x in table] == [4 * (IMAGE.size + 40), 4 * (2 * IMAGE.size + 40)]
    assert all(x.estimate.occupancy == 1.0 and x.estimate.limit == "launch" for x in table)


def test_the_table_without_a_compiler(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    monkeypatch.setattr(nvrtc, "compiled", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    table = f.kernels(IMAGE)
    assert [x.resources for x in table] == [None, None] and str(table).splitlines()[1].split()[3:8] == ["-"] * 5
    with pytest.raises(hjit.DeviceError, match="CuPy"):
        f.inspect_ptx(IMAGE)


@needs_nvrtc
def test_machine_code(f: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvdisasm"
    program.write_text('#!/bin/sh\necho "$1"; head -c 4 "$2" | tail -c 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert f.inspect_sass(IMAGE).splitlines() == ["--print-code", "ELF"]
    program.write_text("#!/bin/sh\necho wrong >&2; exit 3\n")
    with pytest.raises(hjit.CompileError, match="wrong"):
        f.inspect_sass(IMAGE)
    monkeypatch.setattr(inspection, "disassemblers", lambda: iter(()))
    with pytest.raises(hjit.DeviceError, match="nvdisasm"):
        f.inspect_sass(IMAGE)
