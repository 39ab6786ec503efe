"""`Pipeline.export`: a function as an object file or a shared library, and a C header."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hjit.errors import CompileError, HjitError, OptionError
from hjit.export.c_source import Source, check_name, data_name, source_of
from hjit.export.compiling import compiled
from hjit.export.description import CannotExport, Description
from hjit.export.targets import object_code, platform
from hjit.options import Options
from hjit.process.files import replacing
from hjit.trace.capture.trace import flatten_arguments
from hjit.tuning.choice import Scheduler

SUFFIXES = (".o", ".so")


@dataclass(frozen=True, slots=True)
class Exported:
    """What `Pipeline.export` has written.

    Attributes:
        files: paths; of an object file also the C code that is compiled together with it.
        target: the processors that it is for.
        sizes: run-time sizes, as "img.0".
        fixed: those of them for which only the numbers of the example will do.
        header: the text of the C header.
    """

    files: tuple[Path, ...]
    target: str
    sizes: tuple[str, ...]
    fixed: tuple[str, ...]
    header: str

    def __str__(self) -> str:
        files = ", ".join(map(str, self.files))
        free = [s for s in self.sizes if s not in self.fixed]
        text = f"{files}: for {self.target}; sizes that may differ: {', '.join(free) or 'none'}"
        return text + (f"; fixed: {', '.join(self.fixed)}" if self.fixed else "")


def export(
    function: Any,
    name: str,
    path: str | os.PathLike[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    target: str,
    options: Options,
    scheduler: Scheduler | None,
) -> Exported:
    """Write the files; see `Pipeline.export`.

    Raises:
        HjitError: the function needs Python when it runs, or there is no C compiler for a shared library.
    """
    where = Path(path)
    if where.suffix not in SUFFIXES:
        raise OptionError(f"{where.name}: the name of an object file ends in .o, that of a shared library in .so")
    for_what = platform(target)
    compiler = None
    if where.suffix == ".so":
        if not for_what.is_here():
            raise OptionError(f"a shared library for {for_what.name} is linked there: export an object file, NAME.o")
        compiler = c_compiler()
    structure, leaves = flatten_arguments(args, kwargs)
    found = compiled(
        function, check_name(name), f"hjit_{name}", structure, leaves, options, scheduler, for_what, copies=True
    )
    d = found.description
    if d.views:
        raise CannotExport("a result is a view of an argument, of another dtype", "copy it")
    source = source_of(d, for_what)
    code = object_code(with_data(found.lowered.llvm, d), name, for_what)
    header = where.with_name(f"{name}.h")
    files = [where, header]
    _write(header, source.header.encode())
    if compiler is None:
        _write(where, code)
        files.append(where.with_name(f"{name}.c"))
        _write(files[-1], source.code.encode())
    else:
        _write(where, linked(compiler, name, source, code))
    free = found.sized
    return Exported(tuple(files), for_what.name, free.names, tuple(sorted(free.fixed)), source.header)


def with_data(llvm: str, d: Description) -> str:
    """LLVM IR, with the arrays that are part of the code."""
    return "\n".join([llvm, *(_data(data_name(d.entry, k), a) for k, a in enumerate(d.data))])


def _data(name: str, a: np.ndarray[Any, Any]) -> str:
    text = "".join(f"\\{b:02x}" for b in a.tobytes())
    return f'@{name} = hidden constant [{a.nbytes} x i8] c"{text}", align 64\n'


# -- files


@functools.lru_cache(maxsize=1)
def _found_compiler() -> str | None:
    return shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")


def c_compiler() -> str:
    """The C compiler of this machine, ``$CC`` or ``cc``.

    Raises:
        HjitError: there is none.
    """
    found = _found_compiler()
    if found is None:
        raise HjitError(
            "there is no C compiler (cc) to make a shared library with. What to do: install one, or set CC; or export "
            "an object file (NAME.o), and compile NAME.c, which is written beside it, where there is one"
        )
    return found


def linked(compiler: str, name: str, source: Source, code: bytes) -> bytes:
    """A shared library.

    Raises:
        CompileError: the C compiler refuses it.
    """
    with tempfile.TemporaryDirectory(prefix="hjit-export-") as folder:
        room = Path(folder)
        for suffix, text in ((".h", source.header.encode()), (".c", source.code.encode()), (".o", code)):
            (room / f"{name}{suffix}").write_bytes(text)
        flags: Sequence[str] = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread")
        files = (f"{name}.c", f"{name}.o", "-o", f"{name}.so", "-lm")
        done = subprocess.run([compiler, *flags, *files], cwd=room, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(f"{compiler} refuses the code of {name}: {done.stderr.strip()}")
        return (room / f"{name}.so").read_bytes()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as new:
        new.write_bytes(data)
        new.chmod(0o755 if path.suffix == ".so" else 0o644)
