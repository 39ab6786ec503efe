"""Object code becomes machine code in memory without LLVM."""

from __future__ import annotations

import gc
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import hjit
from hjit.kernels.llvm.memory import loads
from hjit.kernels.runtime import backend
from hjit.kernels.runtime.linking import elf, linker
from hjit.kernels.runtime.linking.linker import linked
from hjit.kernels.runtime.linking.memory import NotLinked

ANSWER = """
@numbers = internal constant [2 x double] [double 0.5, double 4.0]
declare double @sin(double)
define i32 @answer(ptr %p) nounwind {
  %a = load volatile double, ptr @numbers
  %s = call double @sin(double %a)
  %m = fmul double %s, 1.0e2
  %n = fptosi double %m to i32
  ret i32 %n
}
"""
pytestmark = [
    pytest.mark.usefixtures("nothing_kept"),
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or backend.machine_text("cpu").find("x86_64") < 0, reason="ELF of x86-64"
    ),
]


@pytest.fixture(scope="module")
def code() -> bytes:
    return backend.compile_module(ANSWER, "answer", "cpu")


def test_constants_and_functions_of_the_c_library_are_found(code: bytes) -> None:
    entry = linked(code, "answer").entry
    gc.collect()
    assert entry(b"") == int(np.sin(0.5) * 100)


def test_what_is_no_such_code_is_left_to_llvm(code: bytes) -> None:
    for bad in (b"", b"\x7fELF", code[:100], code[:18] + b"\xb7" + code[19:], code[:-200]):
        with pytest.raises(NotLinked):
            linked(bad, "answer")
    with pytest.raises(NotLinked, match="no entry question"):
        linked(code, "question")


def test_damaged_tables_are_refused(code: bytes) -> None:
    """Whatever stands in the tables of sections and relocations, nothing is written beyond the code's own memory."""
    (start,) = struct.unpack_from("<Q", code, 40)
    length, count = struct.unpack_from("<HH", code, 58)
    for k in range(count):
        for field in (24, 32):  # where a section is, and how long
            bad = bytearray(code)
            struct.pack_into("<Q", bad, start + k * length + field, 1 << 40)
            try:
                linked(bytes(bad), "answer")
            except NotLinked:
                continue
    reached = bytearray(code)  # a table of relocations whose symbols are a section without contents
    (relocations,) = (k for k, s in enumerate(elf.read(code, elf.X86_64).sections) if s.kind == elf.RELA and s.info)
    struct.pack_into("<Q", reached, start, 0)
    struct.pack_into("<IIQQQQ", reached, start, 0, elf.NOBITS, 0, 0, 0, 1 << 50)
    struct.pack_into("<I", reached, start + relocations * length + 40, 0)
    with pytest.raises(NotLinked, match="no symbol table"):
        linked(bytes(reached), "answer")
    unknown = backend.compile_module(ANSWER.replace("@sin", "@no_such_function"), "answer", "cpu")
    with pytest.raises(NotLinked, match="no function no_such_function"):
        linked(unknown, "answer")


@pytest.mark.usefixtures("no_kernels")
def test_kernels_from_disk_are_linked_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(img):  # type: ignore[no-untyped-def]
        return np.sin(img) ** 0.3, np.hypot(img, 2), img.astype(np.uint8) % 7, np.cumsum(img, axis=0)

    img = np.linspace(0, 3, 4000).reshape(50, 80)
    p = hjit.pipeline(f, cache_dir=tmp_path)
    p(img)  # NumPy's result
    first = p(img)
    del p
    monkeypatch.setattr("hjit.kernels.runtime.kernel._kernels", {})
    found = []
    real = linker.linked
    monkeypatch.setattr(linker, "linked", lambda *args: found.append(args[1]) or real(*args))
    monkeypatch.setattr(backend, "load_object", lambda *args: pytest.fail("LLVM is called"))
    p = hjit.pipeline(f, cache_dir=tmp_path)
    p(img)
    for a, b in zip(first, p(img), strict=True):
        np.testing.assert_array_equal(a, b)
    assert found and p.stats.cache_hits == len(found) and p.stats.compilations == 0


def test_a_gather_is_told_by_two_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index is a whole expression: to write it for all lanes took most of the time of some first calls."""
    lanes = []
    real = loads._at_lane
    monkeypatch.setattr(loads, "_at_lane", lambda e, flat, lane: lanes.append(lane) or real(e, flat, lane))
    a, y = np.arange(600.0).reshape(20, 30), np.arange(20 * 30).reshape(20, 30) % 20
    p = hjit.pipeline(lambda a, y: a[y, 3] + 1, cache="off")
    np.testing.assert_array_equal(p(a, y), a[y, 3] + 1)
    assert max(lanes, default=0) <= 1
