"""`Pipeline.export`: a function as an object file or a shared library, and a C header."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import subprocess
import tempfile
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hjit.call.build import Request
from hjit.errors import CompileError, HjitError, OptionError, Origin
from hjit.export.c_source import Source, check_name, data_name, level_suffix, source_of
from hjit.export.compiling import Compiled, compiled
from hjit.export.description import CannotExport, Description
from hjit.export.matching import signature_of
from hjit.export.targets import Platform, object_code, platforms
from hjit.process.files import replacing

SUFFIXES = (".o", ".so")


@dataclass(frozen=True, slots=True)
class Exported:
    """What `Pipeline.export` has written.

    Attributes:
        files: their paths; with an object file, also that of the C code that is compiled with it.
        target: the processors that it is for, possibly several levels.
        sizes: run-time sizes, such as "img.0".
        fixed: those of them that must have the example's value.
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


def export(request: Request, name: str, path: str | os.PathLike[str], targets: Sequence[str]) -> Exported:
    """Write the files; see `Pipeline.export`.

    Args:
        request: the function, with the arguments of an example.
        name: of the C function.
        targets: of several levels of x86-64 the library has the code of all.

    Raises:
        FileNotFoundError: there is no such folder.
        HjitError: the function needs Python when it runs, or there is no C compiler for a shared library.
    """
    where = _checked_path(path)
    levels = platforms(targets)
    compiler = _linker(levels) if where.suffix == ".so" else None
    _check_method(request)
    check_name(name)
    suffixes = [level_suffix(one) if len(levels) > 1 else "" for one in levels]  # of the names of object files
    kernels = [_kernel(request, name, suffix, one) for suffix, one in zip(suffixes, levels, strict=True)]
    codes = {
        suffix: object_code(with_data(k.lowered.llvm, k.description), name, one)
        for suffix, k, one in zip(suffixes, kernels, levels, strict=True)
    }
    source = source_of([(k.description, one) for k, one in zip(kernels, levels, strict=True)])
    header = where.with_name(f"{name}.h")
    _write(header, source.header.encode())
    if compiler is None:
        files = (*_write_objects(where, codes), header, where.with_name(f"{name}.c"))
        _write(files[-1], source.code.encode())
    else:
        files = (where, header)
        _write(where, linked(compiler, name, source, codes))
    free = kernels[-1].polymorphic
    target = ", ".join(p.name for p in levels)
    return Exported(files, target, free.names, tuple(sorted(free.fixed)), source.header)


def _checked_path(path: str | os.PathLike[str]) -> Path:
    where = Path(path)
    if where.suffix not in SUFFIXES:
        raise OptionError(f"{where.name}: the name of an object file ends in .o, that of a shared library in .so")
    if not where.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(where))
    return where


def _linker(levels: Iterable[Platform]) -> str:
    """The C compiler, which links a shared library for all these."""
    for one in levels:
        if not one.is_linked_here():
            raise OptionError(f"a shared library for {one.name} is linked there: export an object file, NAME.o")
    return c_compiler()


def _kernel(request: Request, name: str, suffix: str, platform: Platform) -> Compiled:
    found = compiled(request, name, f"hjit_{name}{suffix}", platform, copies=True)
    if found.description.views:
        raise CannotExport("a result is a view of an argument, of another dtype", "copy it")
    return found


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


def linked(compiler: str, name: str, source: Source, codes: Mapping[str, bytes]) -> bytes:
    """A shared library.

    Args:
        codes: object files, by what their names end in.

    Raises:
        CompileError: the C compiler refuses it.
    """
    with tempfile.TemporaryDirectory(prefix="hjit-export-") as folder:
        room = Path(folder)
        texts = {".h": source.header.encode(), ".c": source.code.encode()}
        texts |= {f"{suffix}.o": code for suffix, code in codes.items()}
        for suffix, text in texts.items():
            (room / f"{name}{suffix}").write_bytes(text)
        flags: Sequence[str] = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread")
        files = (f"{name}.c", *(f"{name}{suffix}.o" for suffix in codes), "-o", f"{name}.so", "-lm")
        done = subprocess.run([compiler, *flags, *files], cwd=room, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(f"{compiler} refuses the code of {name}: {done.stderr.strip()}")
        return (room / f"{name}.so").read_bytes()


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as new:
        new.write_bytes(data)
        new.chmod(0o755 if path.suffix == ".so" else 0o644)


def _write_objects(where: Path, codes: Mapping[str, bytes]) -> list[Path]:
    """Write an object file for each level."""
    files = {where.with_name(f"{where.stem}{suffix}.o"): code for suffix, code in codes.items()}
    for path, code in files.items():
        _write(path, code)
    return list(files)


def _check_method(request: Request) -> None:
    """Refuse a method without its object: Python looks `export` up at the function of it.

    Raises:
        CannotExport: these are not the arguments of a call with it.
    """
    function = request.function
    signature = signature_of(function)
    if not isinstance(function, types.FunctionType) or next(iter(signature.parameters), "") not in ("self", "cls"):
        return
    args, kwargs = request.structure.build(request.leaves.__getitem__)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        advice = f"of a method: hjit.pipeline(object.{function.__name__}).export(...)"
        code = function.__code__
        origin = Origin(code.co_filename, code.co_firstlineno, code.co_name)
        raise CannotExport(f"{function.__name__}: {error}", advice, origin) from None
