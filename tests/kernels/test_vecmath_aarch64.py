"""Ufuncs and casts of `hjit.kernels.llvm.vecmath` for aarch64, compiled here and run under an emulator.

All of them by a C program under QEMU, where that and a cross compiler are installed; some arguments of each on a
processor that is emulated in this process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hjit.export.targets import PLATFORMS, object_code
from hjit.kernels.llvm.builder.code import Code, Val
from hjit.kernels.llvm.vecmath import apply as vecmath
from hjit.kernels.llvm.vecmath.libm import vector_name
from hjit.kernels.runtime.features import AARCH64, NEWEST_OF_LIBMVEC
from hjit.trace.ops.elementwise.ufuncs import UFUNCS
from tests.export.emulated import CROSS, QEMU
from tests.kernels.test_vecmath import ALL, Case, _arguments_of, _cast_arguments, _check, _function, _loops, assert_same

needs_emulator = pytest.mark.skipif(not (CROSS and QEMU), reason="no compiler and no emulator of aarch64")
WIDTH = 16
PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

EXTERNS
static const struct { void *function; int inputs; size_t items[3], out; } cases[] = {
ROWS
};

int main(void) {
  FILE *in = fopen("in", "rb"), *file = fopen("out", "wb");
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    void *a[3] = {NULL, NULL, NULL}, *out, *f = cases[k].function;
    int64_t n;
    if (fread(&n, sizeof n, 1, in) != 1) return 1;
    for (int j = 0; j < cases[k].inputs; j++) {
      a[j] = malloc((size_t)n * cases[k].items[j]);
      if (fread(a[j], cases[k].items[j], (size_t)n, in) != (size_t)n) return 2;
    }
    out = malloc((size_t)n * cases[k].out);
    switch (cases[k].inputs) {
      case 1: ((void (*)(void *, void *, int64_t))f)(a[0], out, n); break;
      case 2: ((void (*)(void *, void *, void *, int64_t))f)(a[0], a[1], out, n); break;
      default: ((void (*)(void *, void *, void *, void *, int64_t))f)(a[0], a[1], a[2], out, n);
    }
    fwrite(out, cases[k].out, (size_t)n, file);
    for (int j = 0; j < 3; j++) free(a[j]);
    free(out);
  }
  return fclose(file) != 0;
}
"""


Cases = Sequence[tuple[Case, tuple[np.ndarray, ...]]]
FEW = 512  # elements of arguments, where some of them do


def compiled(cases: Cases) -> bytes:
    """The object file; the functions are ``case0``, ``case1`` ..."""
    parts, declarations = [], dict[str, None]()
    for k, (case, args) in enumerate(cases):
        assert tuple(a.dtype for a in args) == case.inputs and args[0].size % case.lanes == 0
        text, needed = _function(f"case{k}", case)
        parts.append(text)
        declarations.update(needed)
    module = "\n".join([*declarations, *parts, "attributes #0 = { nounwind }"])
    return object_code(module, "cases", PLATFORMS["aarch64"])


def by_program(folder: Path, cases: Cases) -> list[np.ndarray]:
    """The results of functions of equally long arrays, whose length is a multiple of the lanes."""
    (folder / "cases.o").write_bytes(compiled(cases))
    rows, data = [], []
    for k, (case, args) in enumerate(cases):
        items = ", ".join(str(t.itemsize) for t in case.inputs)
        rows.append(f"  {{(void *)case{k}, {len(case.inputs)}, {{{items}}}, {case.output.itemsize}}},")
        data += [np.int64(args[0].size).tobytes(), *(a.tobytes() for a in args)]
    externs = "\n".join(f"extern void case{k}(void);" for k in range(len(cases)))
    (folder / "main.c").write_text(PROGRAM.replace("EXTERNS", externs).replace("ROWS", "\n".join(rows)))
    (folder / "in").write_bytes(b"".join(data))
    command = [str(CROSS), "-O1", "-static", "main.c", "cases.o", "-o", "main", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run([str(QEMU), "./main"], cwd=folder, check=True)
    found, at, whole = [], 0, (folder / "out").read_bytes()
    for case, args in cases:
        found.append(np.frombuffer(whole, case.output, args[0].size, at))
        at += args[0].size * case.output.itemsize
    assert at == len(whole)
    return found


def in_process(folder: Path, cases: Cases) -> list[np.ndarray]:
    """The same, without a C compiler; skipped where nothing emulates a processor."""
    from tests.export import aarch64

    processor, found = aarch64.Processor(aarch64.Code(compiled(cases))), []
    for k, (case, args) in enumerate(cases):
        out = np.empty(args[0].size, case.output)
        processor.call(f"case{k}", *(a.ctypes.data for a in args), out.ctypes.data, out.size)
        found.append(out)
    return found


def all_of(args: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return args


def some_of(args: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Some, from all over the arrays."""
    picked = np.random.default_rng(0).permutation(args[0].size)[:FEW]
    return tuple(a[picked] for a in args)


ways = pytest.mark.parametrize(
    ("run", "taken"),
    [
        pytest.param(by_program, all_of, marks=needs_emulator, id="program"),
        pytest.param(in_process, some_of, id="in-process"),
    ],
)


@ways
def test_ufuncs(run: Any, taken: Any, tmp_path: Path) -> None:
    cases, of = [], []
    for name in sorted(UFUNCS):
        for ins, out in _loops(name):
            given = taken(_arguments_of(name, ins))
            if name == "reciprocal" and out.kind in "iu":  # that of 0 is a cast of infinity, see below
                given = (np.where(given[0] == 0, ins[0].type(3), given[0]),)

            def emit(code: Code, args: tuple[Val, ...], name: str = name, out: Any = out) -> Val:
                return vecmath.apply(code, name, args, out)

            for lanes in (1, WIDTH // ins[0].itemsize):
                cases.append((Case(ins, out, lanes, emit, WIDTH, AARCH64), given))
                of.append(name)
    for name, (case, args), got in zip(of, cases, run(tmp_path, cases), strict=True):
        what = f"{name} {[str(t) for t in case.inputs]} x{case.lanes}"
        _check(name, getattr(np, name), got, args, what)


@ways
def test_casts(run: Any, taken: Any, tmp_path: Path) -> None:
    """Floats that an integer cannot hold become what they do on aarch64: the nearest that it can, and 0 for NaN."""
    cases = []
    for source in ALL:
        (x,) = taken((_cast_arguments(source),))
        for t in ALL:

            def emit(code: Code, args: tuple[Val, ...], t: Any = t) -> Val:
                return vecmath.convert(code, args[0], t)

            cases += [(Case((source,), t, n, emit, WIDTH, AARCH64), (x,)) for n in (1, WIDTH // source.itemsize)]
    for (case, (x,)), got in zip(cases, run(tmp_path, cases), strict=True):
        what, inside = f"{x.dtype} to {case.output} x{case.lanes}", np.ones(x.size, bool)
        with np.errstate(all="ignore"):
            if x.dtype.kind == "f" and case.output.kind in "iu":
                info, wide = np.iinfo(case.output), x.astype(np.float64)
                inside = (wide > float(info.min) - 1) & (wide < float(info.max)) | (wide == float(info.min))
                assert (got[np.isnan(x)] == 0).all() and (got[x == np.inf] == info.max).all(), what
            assert_same(got[inside], x[inside].astype(case.output), (x[inside],), what)


def test_names_of_vector_functions() -> None:
    assert vector_name("n", 4, 1, "sinf") == "_ZGVnN4v_sinf"
    assert vector_name("n", 2, 2, "pow") in NEWEST_OF_LIBMVEC
    code, f4 = Code(16, AARCH64 | {"libmvec"}), np.dtype("f4")
    vecmath.apply(code, "sin", (Val("%x", f4, 8),), f4)
    assert code.text().count("@_ZGVnN4v_sinf(") == 2
    assert "@sinf(" in _scalar("sin")


def _scalar(name: str) -> str:
    code, f4 = Code(16, AARCH64), np.dtype("f4")
    vecmath.apply(code, name, (Val("%x", f4, 4),), f4)
    return code.text()
