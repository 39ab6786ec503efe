"""`Pipeline.export`: a function as an object file or a shared library, and a C header."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hjit.call.arguments import leaf_names
from hjit.call.build import with_room
from hjit.call.segments import Cut, strides_of
from hjit.errors import CompileError, HjitError, OptionError
from hjit.export.c_source import Source, check_name, data_name, source_of
from hjit.export.description import CannotExport, Description, check, described
from hjit.export.sizes import Sized, sized
from hjit.export.targets import Platform, object_code, platform
from hjit.kernels.runtime.kernel import Bound
from hjit.kernels.runtime.lowered import Lowered, lowered_for
from hjit.options import Options
from hjit.process import forks
from hjit.process.garbage_collection import few_collections
from hjit.trace.capture.trace import Tree, flatten
from hjit.tuning.choice import Arguments, Candidate, Choice, Scheduler
from hjit.tuning.decide import decided

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


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function with one kernel, lowered for a platform."""

    sized: Sized
    description: Description
    lowered: Lowered


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
    found = compiled(function, check_name(name), f"hjit_{name}", args, kwargs, options, scheduler, for_what)
    d = found.description
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


def compiled(
    function: Any,
    name: str,
    entry: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Options,
    scheduler: Scheduler | None,
    for_what: Platform,
) -> Compiled:
    """The one kernel of a function, and all that is known of it.

    Raises:
        HjitError: it needs Python when it runs.
    """
    leaves: list[Any] = []
    structure = Tree(tuple, (flatten(args, leaves), flatten(kwargs, leaves)))
    quiet = replace(options, budget=None, on_unsupported="raise", blas=False, numpy_if_faster=False, target="cpu")
    with forks.builds, few_collections():
        return with_room(_compiled, function, name, entry, structure, leaves, quiet, scheduler, for_what)


def _compiled(
    function: Any,
    name: str,
    entry: str,
    structure: Tree,
    leaves: list[Any],
    options: Options,
    scheduler: Scheduler | None,
    for_what: Platform,
) -> Compiled:
    found = sized(function, structure, leaves, options)
    check(found)
    cut = Cut(found.trace, for_what.target)
    if for_what.is_here() and scheduler is None:
        choice = _best(found, cut, leaves, options)
    else:  # what cannot be measured runs by the default schedule
        choice = decided(cut, scheduler, True, found.trace.recorder.sizes, replace(options, tune=False)).best
    (segment,) = cut(choice.rewrites)
    if not segment.graph.outputs:
        raise CannotExport("nothing is computed of the arguments", "export a function that returns an array")
    machine = replace(for_what.machine, fast_math=options.fast_math, small=True)
    low = lowered_for(choice.of(segment), machine, entry)
    names = leaf_names(function, structure, len(leaves))
    return Compiled(
        found, replace(described(name, entry, found, segment.graph, low, leaves, names), structure=structure), low
    )


def _best(found: Sized, cut: Cut, leaves: list[Any], options: Options) -> Choice:
    """The schedule that a call of the pipeline would run by: on disk, or searched and measured."""
    rec = found.trace.recorder
    decision = decided(cut, None, True, rec.sizes, options)
    if decision.is_final:
        return decision.best
    from hjit.tuning.candidates import chosen  # not loaded where nothing is compared

    def make(choice: Choice) -> Candidate:
        segments = cut(choice.rewrites)
        strides = strides_of(rec, [x.graph for x in segments])
        bounds = (Bound(choice.of(x), options, rec.sizes, strides) for x in segments if x.graph.outputs)
        return Candidate(choice, segments, tuple(bounds))

    def arguments() -> Arguments | None:
        values = rec.tape.replay(leaves) if rec.tape.ops else []
        if values is None:
            return None
        scalars = {n: values[slot.k] for n, (slot, _) in rec.scalar_slots().items()}
        return Arguments({n: s.array for n, s in rec.inputs.items()}, scalars)

    return chosen(decision, make, cut, arguments, options).choice


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
    """A file as a whole: a process that has loaded the old one keeps it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(data)
    os.chmod(file.name, 0o755 if path.suffix == ".so" else 0o644)
    os.replace(file.name, path)


__all__ = ["Compiled", "Exported", "compiled", "export"]
