"""Machine code that LLVM or NVRTC has made of the same text before, in this run of the tests or an earlier one, or another
process of it. They are half the time of many tests, and functions of what they are given.

All else is done anew: what is traced, lowered, emitted as text, linked and run. `make clean` removes what is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from importlib.metadata import version
from pathlib import Path

from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.prelude import program
from hjit.kernels.runtime import backend

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "test-objects"
LIMIT = 1 << 30  # bytes that are kept
CALLS = (
    "kernels/runtime/backend",
    "kernels/runtime/codegen",
    "kernels/runtime/features",
    "kernels/cuda/compilers/nvrtc",
)
NAME = re.compile(r"hjit_[0-9a-f]{40}")  # of kernels: it changes with every file of hjit
NO_NAME = "hjit_" + "_" * 40
DIGEST = hashlib.sha256().digest_size

Compile = Callable[..., bytes]


@lru_cache(maxsize=1)
def _about() -> str:
    """The versions of LLVM and numba, and how hjit calls them and NVRTC."""
    calls = [(ROOT / "hjit" / f"{x}.py").read_text() for x in CALLS]
    return "\0".join([version("llvmlite"), version("numba"), *calls])


def _path(folder: Path, *parts: str) -> Path:
    digest = hashlib.sha256("\0".join([_about(), *parts]).encode()).hexdigest()
    return folder / digest[:2] / digest[2:]


def kept(compile_module: Compile, folder: Path = FOLDER) -> Compile:
    """`compile_module` of the back end, which compiles a text once. Kernels that differ in their names alone are the same."""

    @wraps(compile_module)
    def compiled(text: str, name: str, target: str, quick: bool = False) -> bytes:
        old, new = (name.encode(), NO_NAME.encode()) if NAME.fullmatch(name) else (b"", b"")
        of = text.replace(name, NO_NAME) if old else f"{name}\0{text}"
        path = _path(folder, backend.machine_text(target), *(["quick"] if quick else []), of)
        found = _read(path)
        if found is None:
            made = compile_module(text, name, target, quick)
            _write(path, made.replace(old, new) if old else made)
            return made
        return found.replace(new, old) if old else found

    return compiled


def kept_cubins(compile_program: Callable[..., nvrtc.Compiled], folder: Path = FOLDER) -> Callable[..., nvrtc.Compiled]:
    """`_compiled` of `hjit.kernels.cuda.compilers.nvrtc`, which compiles a text once."""

    @wraps(compile_program)
    def compiled(body: str, capability: int, options: Sequence[str], cuda: int | None = None) -> nvrtc.Compiled:
        source, about = program(body, "cuda"), (nvrtc.version(cuda), capability, tuple(options), cuda)
        path = _path(folder, repr(about), source)
        found = _read(path)
        if found is None:
            made = compile_program(body, capability, options, cuda)
            texts = json.dumps([made.ptx, made.log]).encode()
            _write(path, texts + b"\n" + made.cubin)
            return made
        texts, _, cubin = found.partition(b"\n")
        ptx, log = json.loads(texts)
        return nvrtc.Compiled(source, ptx, cubin, log, nvrtc.resources(log))

    return compiled


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    return data[DIGEST:] if hashlib.sha256(data[DIGEST:]).digest() == data[:DIGEST] else None


def _write(path: Path, code: bytes) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_bytes(hashlib.sha256(code).digest() + code)
        new.replace(path)


def forget(folder: Path = FOLDER, limit: int = LIMIT) -> None:
    """Remove what was not used for longest, beyond a limit."""
    with contextlib.suppress(OSError):
        found = [(s.st_mtime, s.st_size, p) for p in folder.glob("*/*") if (s := p.stat())]
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= limit:
                break
            path.unlink(missing_ok=True)
            total -= size
