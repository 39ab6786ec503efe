"""Machine code that the tests keep is what LLVM and NVRTC make."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from hjit.errors import CompileError
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.runtime import backend
from tests.object_code import Compile, forget, kept, kept_cubins

NAMES = ["hjit_" + c * 40 for c in "0a"]
ANSWER = """
declare double @sin(double)

define double @NAME(double %x) {
  %y = call double @sin(double %x)
  %z = call double @NAME.twice(double %y)
  ret double %z
}

define internal double @NAME.twice(double %x) noinline {
  %y = fadd double %x, %x
  ret double %y
}
"""


def by_llvm(text: str, name: str, target: str, quick: bool = False) -> bytes:
    """What hjit itself does."""
    function: Any = backend.compile_module
    found: bytes = getattr(function, "__wrapped__", function)(text, name, target, quick)
    return found


def counted(calls: list[str]) -> Compile:
    def compile_module(text: str, name: str, target: str, quick: bool = False) -> bytes:
        calls.append(name)
        return by_llvm(text, name, target, quick)

    return compile_module


def sections(code: bytes) -> list[tuple[bytes, bytes]]:
    """All but the tables of names, which are sorted."""
    found = llvm.ObjectFileRef.from_data(code).sections()
    return [(x.name(), x.data()) for x in found if x.name() not in (b".strtab", b".symtab")]


def test_a_kernel_of_another_name_has_the_code_that_llvm_would_make(tmp_path: Path) -> None:
    calls: list[str] = []
    compiled = kept(counted(calls), tmp_path)
    for name in (*NAMES, *NAMES):
        text = ANSWER.replace("NAME", name)
        code = compiled(text, name, "cpu")
        assert sections(code) == sections(by_llvm(text, name, "cpu"))
        assert all(other.encode() not in code for other in NAMES if other != name)
        backend.load_object(code, name)
    assert calls == NAMES[:1]


def test_other_texts_names_and_targets_are_compiled(tmp_path: Path) -> None:
    calls: list[str] = []
    compiled = kept(counted(calls), tmp_path)
    for name, operation, target in (
        ("answer", "fadd", "cpu"),
        ("question", "fadd", "cpu"),
        ("answer", "fmul", "cpu"),
        ("answer", "fadd", "x86-64-v3"),
    ):
        text = ANSWER.replace("NAME", name).replace("fadd", operation)
        for _ in range(2):
            assert compiled(text, name, target) == by_llvm(text, name, target)
    assert calls == ["answer", "question", "answer", "answer"]
    text = ANSWER.replace("NAME", "answer")
    assert compiled(text, "answer", "cpu", True) == by_llvm(text, "answer", "cpu", True)
    assert len(calls) == 5, "what is compiled quickly is other code"


def test_what_llvm_refuses_or_is_damaged_is_not_kept(tmp_path: Path) -> None:
    calls: list[str] = []
    compiled = kept(counted(calls), tmp_path)
    text = ANSWER.replace("NAME", "answer")
    for _ in range(2):
        with pytest.raises(CompileError):
            compiled(text.replace("ret double %z", "ret i32 %z"), "answer", "cpu")
    code = compiled(text, "answer", "cpu")
    (file,) = tmp_path.glob("*/*")
    file.write_bytes(file.read_bytes()[:-1])
    assert compiled(text, "answer", "cpu") == code
    assert len(calls) == 4


def test_what_was_not_used_for_longest_is_removed(tmp_path: Path) -> None:
    compiled = kept(lambda text, name, target, quick: b"x" * 100, tmp_path)
    for k in range(4):
        compiled(str(k), "name", "cpu")
    for k, file in enumerate(sorted(tmp_path.glob("*/*"))):
        os.utime(file, (k, k))
    compiled("0", "name", "cpu")
    forget(tmp_path, 300)
    assert len(list(tmp_path.glob("*/*"))) == 2
    compiled = kept(lambda text, name, target, quick: b"", tmp_path)
    assert compiled("0", "name", "cpu") == b"x" * 100


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
def test_what_nvrtc_makes_is_kept_for_each_device_and_option(tmp_path: Path) -> None:
    plain: Any = getattr(nvrtc._compiled, "__wrapped__", nvrtc._compiled)
    calls: list[tuple[Any, ...]] = []

    def compile_program(*args: Any) -> nvrtc.Compiled:
        calls.append(args)
        found: nvrtc.Compiled = plain(*args)
        return found

    compiled = kept_cubins(compile_program, tmp_path)
    body = "HJ_KERNEL(f, 32, 1, 1)(HJ_GLOBAL f32 *p) { p[HJ_THREAD] += 1.0f; }"
    asked = [(body, 80, ()), (body, 90, ()), (body, 80, ("--use_fast_math",)), (body.replace("1.0", "2.0"), 80, ())]
    for args in asked * 2:
        found, expected = compiled(*args), plain(*args)
        assert found == replace(expected, log=found.log)  # which says how long it took
    assert calls == [(*args, None) for args in asked]
    with pytest.raises(CompileError):
        compiled("nonsense", 80, ())
