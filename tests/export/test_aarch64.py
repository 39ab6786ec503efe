"""Kernels for aarch64, under an emulator: vectors of 128 bits, look-ups by ``tbl``, halves, integers, sums."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import hjit
from hjit.errors import OptionError
from hjit.export.targets import platform
from hjit.kernels.runtime import features
from hjit.process import machine
from hjit.sched.language.target import table_bytes, table_registers
from tests.export.emulated import CROSS, QEMU, Call, run, written
from tests.export.test_export import CASES, copies, image, leaves

needs_emulator = pytest.mark.skipif(not (CROSS and QEMU), reason="no compiler and no emulator of aarch64")
OBJDUMP = shutil.which("aarch64-linux-gnu-objdump")

GAMMA = (255 * (np.arange(256) / 255) ** 0.45).astype(np.uint8)
BYTES = image(37, 101, dtype="u1")


def toned(a: Any) -> Any:
    return GAMMA[a], GAMMA[:100][a % 100]


def picked(a: Any, table: Any, few: Any) -> Any:
    return table[a], few[a >> 3]


def functions(a: Any) -> Any:
    return np.exp(-a), np.log(a + 1), np.tanh(a), np.power(a, 2.5), np.arctan2(a, 2), np.exp(a.astype(np.float64) / 9)


def halves(a: Any) -> Any:
    return a * 2 + 1, np.sqrt(a), a.astype(np.float32) / 3, (a.astype(np.float32) / 3).astype(np.float16)


def integers(a: Any, b: Any) -> Any:
    wide = a.astype(np.int16) - b
    return wide, np.abs(wide), np.minimum(a, b), a // 7, a % (b | 1), (a.astype(np.uint16) * b) >> 3, a > b


def scanned(a: Any) -> Any:
    return np.cumsum(a, axis=0, dtype=np.int32), a.argmax(1), a.max(0), (a > 50).sum()


def luma(rgb: Any) -> Any:
    x = (77 * rgb[..., 0].astype(np.uint16) + 150 * rgb[..., 1] + 29 * rgb[..., 2]) >> 8
    return x.astype(np.uint8), rgb[:, ::-1], rgb[::2, 1::3]


def product(a: Any, b: Any) -> Any:
    return a @ b, a.sum(), a.mean(0)


def rounded(a: Any) -> Any:
    return np.rint(a).astype(np.int32), (a * 3).astype(np.uint8), np.floor(a / 4), a.astype(np.int64)


NEW: dict[Any, tuple[Any, ...]] = {
    toned: (BYTES,),
    picked: (BYTES, GAMMA, GAMMA[::-1][:40].copy()),
    functions: (image(37, 91) / np.float32(40),),
    halves: ((image(37, 91) / 9).astype(np.float16),),
    integers: (BYTES, BYTES[::-1].copy()),
    scanned: (image(37, 91, dtype="i2"),),
    luma: (image(37, 90, 3, dtype="u1"),),
    product: (image(37, 91) / np.float32(50), image(91, 64) / np.float32(50)),
    rounded: (image(37, 91) / np.float32(9),),
}
INEXACT = {functions, product}
ALL = {f: args for f, (_, args) in CASES.items()} | NEW


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them exported, called and run."""
    found, calls = tmp_path_factory.mktemp("aarch64"), []
    for f, args in ALL.items():
        example = CASES[f][0] if f in CASES else args
        hjit.pipeline(f).export(found / f"{f.__name__}.o", *example, target="aarch64")
        calls.append(Call(f.__name__, args, [np.asarray(x).dtype for x in leaves(f(*copies(args)))]))
    run(found, calls)
    return found


@needs_emulator
@pytest.mark.parametrize("f", ALL, ids=lambda f: str(f.__name__))
def test_kernels_on_aarch64(f: Any, folder: Path) -> None:
    args = copies(ALL[f])
    expected = [*map(np.asarray, leaves(f(*args))), *(x for x in args if isinstance(x, np.ndarray))]
    for ours, numpys in zip(written(folder, f.__name__, expected), expected, strict=True):
        if f in INEXACT:
            np.testing.assert_allclose(ours, numpys, rtol=4 * np.finfo(numpys.dtype).eps * (20 if f is product else 1))
        else:
            np.testing.assert_array_equal(ours, numpys)


@needs_emulator
@pytest.mark.skipif(OBJDUMP is None, reason="no disassembler")
@pytest.mark.parametrize("f", [toned, picked])
def test_small_tables_are_looked_up_in_registers(f: Any, folder: Path) -> None:
    command = [str(OBJDUMP), "-d", f"{f.__name__}.o"]
    code = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert "\ttbl\tv" in code


def test_tables_that_are_not_too_large() -> None:
    u1 = np.dtype("u1")
    assert table_bytes(frozenset({"neon"})) == {1}
    assert [table_registers(u1, n, 16, 16) for n in (1, 64, 65, 256, 257)] == [1, 1, 2, 4, None]


def test_a_machine_of_that_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(llvm, "get_default_triple", lambda: "aarch64-unknown-linux-gnu")
    found = features.host_features.__wrapped__()
    assert found == features.AARCH64, "no library here has vector functions of aarch64"
    monkeypatch.setattr(features, "host_features", lambda: found)
    assert platform("cpu").name == "aarch64" and platform("cpu").machine.width == 16
    assert platform("aarch64").is_here() and platform("aarch64").is_linked_here()
    assert not platform("x86-64-v2").is_linked_here()
    with pytest.raises(OptionError, match="x86"):
        features.target_features("x86-64-v2")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nprocessor\t: 1\n")
    monkeypatch.setattr(machine, "CPU", tmp_path / "cpuinfo")
    assert machine.cpu.__wrapped__() == "CPU implementer 0x41, CPU part 0xd0c"
