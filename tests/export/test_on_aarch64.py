"""Kernels for aarch64 on an emulated processor, with no other compiler than this machine's: a share of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.export.targets import PLATFORMS, object_code
from tests.export.aarch64 import Code, Emulated, Processor, unicorn
from tests.export.c_library import Context
from tests.export.test_aarch64 import ALL, INEXACT, functions, picked, product, toned
from tests.export.test_export import CASES, copies, in_place, leaves, needs_compiler
from tests.numpy_check import guarded, place

pytestmark = needs_compiler


def exported(folder: Path, functions: dict[Any, tuple[Any, ...]]) -> Emulated:
    names = {}
    for f, args in functions.items():
        hjit.pipeline(f).export(folder / f"{f.__name__}.o", *args, target="aarch64")
        names[f.__name__] = [np.asarray(x).dtype for x in leaves(f(*copies(args)))]
    return Emulated(folder, names)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    examples = {f: CASES[f][0] if f in CASES else args for f, args in ALL.items()}
    return exported(tmp_path_factory.mktemp("aarch64"), examples)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("f", ALL, ids=lambda f: str(f.__name__))
def test_kernels_are_numpys(f: Any, threads: int, emulated: Emulated) -> None:
    """On arguments that end, or begin, at memory that may not be read."""
    mine, numpys = list(place(ALL[f], at_end=threads == 1)), copies(ALL[f])
    expected = leaves(f(*numpys))
    results = emulated(f.__name__, *mine, context=Context(threads=threads))
    for ours, theirs in zip([*results, *mine], [*expected, *numpys], strict=True):
        if f in INEXACT and isinstance(theirs, np.ndarray):
            rtol = 4 * np.finfo(theirs.dtype).eps * (20 if f is product else 1)
            np.testing.assert_allclose(ours, theirs, rtol=rtol)
        else:
            np.testing.assert_array_equal(ours, theirs)


def test_what_the_emulated_processor_was_asked(emulated: Emulated) -> None:
    """The C library's functions, where kernels call them; tasks, where a loop is worth two threads."""
    for f in (functions, in_place):
        called = emulated.processors[f.__name__].called
        called.clear()
        emulated(f.__name__, *copies(ALL[f]), context=Context(threads=1))
        assert "hj_parallel_for" not in called
        assert ("tanhf" in called) == (f is functions)
    emulated(in_place.__name__, *copies(ALL[in_place]), context=Context(threads=2))
    assert called["hj_parallel_for"] > 0


@pytest.mark.parametrize("f", [toned, picked, product])
def test_small_tables_are_looked_up_in_registers(f: Any, emulated: Emulated) -> None:
    (text,) = emulated.processors[f.__name__].code.text
    is_tbl = np.frombuffer(text, "<u4") & 0xBFE09C00 == 0x0E000000
    assert is_tbl.any() == (f is not product)


def linked(ir: str, target: str = "aarch64") -> Code:
    return Code(object_code(ir, "f", PLATFORMS[target]))


def test_what_cannot_be_emulated_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="the emulated machine has no mystery, puts"):
        linked(
            "declare void @mystery()\ndeclare i32 @puts(ptr)\ndefine i32 @f(ptr %p) {\n  call void @mystery()\n  %x = call i32 @puts(ptr %p)\n  ret i32 %x\n}"
        )
    with pytest.raises(ValueError, match="no relocatable ELF object of aarch64"):
        linked("define i32 @f() {\n  ret i32 1\n}", "x86-64-v2")


def test_memory_that_is_not_there_is_an_error() -> None:
    processor = Processor(
        linked("define i32 @f(ptr %p) {\n  %x = load i32, ptr %p\n  %y = add i32 %x, 1\n  ret i32 %y\n}")
    )
    there = np.array([41], "i4")
    assert processor.call("f", there.ctypes.data) == 42
    for address in (8, 1 << 46):
        with pytest.raises(unicorn.UcError, match="UNMAPPED"):
            processor.call("f", address)
    with pytest.raises(unicorn.UcError, match="UNMAPPED"):
        processor.call("f", guarded(there).ctypes.data + there.nbytes)
    there += 1
    assert processor.call("f", there.ctypes.data) == 43


def test_constants_are_read_and_code_is_not_written() -> None:
    ir = "@c = private constant [2 x i32] [i32 3, i32 5]\ndefine i32 @f(i64 %k) {\n  %p = getelementptr i32, ptr @c, i64 %k\n  %x = load i32, ptr %p\n  ret i32 %x\n}"
    assert Processor(linked(ir)).call("f", 1) == 5
    processor = Processor(linked("define i32 @f(ptr %p) {\n  store i32 0, ptr %p\n  ret i32 0\n}"))
    with pytest.raises(unicorn.UcError, match="WRITE_PROT"):
        processor.call("f", processor.code.symbols["f"])
