"""The undocumented names of numba and llvmlite that hjit uses: if one is gone or has other parameters, this says so."""

from __future__ import annotations

import ast
import inspect
import re
import threading
import tomllib
from importlib import import_module
from importlib.metadata import version
from typing import Any

import llvmlite.binding as llvm
import pytest
from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock

from hjit.errors import CompileError
from hjit.kernels.runtime import backend, launch
from hjit.kernels.runtime import codegen as our_codegen
from hjit.kernels.runtime.codegen import codegen_for
from tests.test_rooms import ROOT

pytestmark = pytest.mark.usefixtures("nothing_kept")

# Of each class the attributes that `backend` calls, overrides or reads, with the parameters that it counts on
NAMES: dict[type, dict[str, tuple[str, ...] | None]] = {
    codegen.JITCPUCodegen: {
        "__init__": ("self", "module_name"),
        "_library_class": None,
        "_get_host_cpu_name": ("self",),
        "_get_host_cpu_features": ("self",),
        "_pass_builder": ("self", "**kwargs"),
        "_check_llvm_bugs": ("self",),
        "create_library": ("self", "name", "**kwargs"),
    },
    codegen.JITCodeLibrary: {
        "_optimize_functions": ("self", "ll_module"),
        "_optimize_final_module": ("self",),
        "add_llvm_module": ("self", "ll_module"),
    },
    type(global_compiler_lock): {
        "acquire": ("self",),
        "release": ("self",),
        "is_locked": ("self",),
        "__enter__": ("self",),
        "__exit__": ("self", "exc_val", "exc_type", "traceback"),
    },
    llvm.ExecutionEngine: {
        "add_object_file": ("self", "obj_file"),
        "get_function_address": ("self", "name"),
        "close": ("self",),
    },
    llvm.TargetMachine: {
        "emit_object": ("self", "module"),
        "emit_assembly": ("self", "module"),
    },
    llvm.ObjectFileRef: {"from_data": ("data",)},
}
PASSES = ("add_sroa_pass", "add_instruction_combine_pass", "add_simplify_cfg_pass", "run")
ANSWER = "define i32 @answer(ptr %x) {\n  ret i32 42\n}\n"


def parameters(f: Any) -> tuple[str, ...]:
    return tuple(
        ("**" if p.kind is p.VAR_KEYWORD else "") + p.name
        for p in inspect.signature(f).parameters.values()
        if p.default is p.empty or p.name.startswith("_")
    )


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in NAMES.items() for name in names])
def test_names_that_are_used(owner: type, name: str) -> None:
    expected = NAMES[owner][name]
    found = getattr(owner, name)
    assert expected is None or parameters(found) == expected


def test_names_of_instances() -> None:
    generator = codegen_for("cpu")
    assert isinstance(generator._tm, llvm.TargetMachine)
    assert llvm.create_target_data(generator._data_layout) is not None
    library = generator.create_library("names")
    assert library._codegen is generator
    library.add_llvm_module(llvm.parse_assembly(ANSWER))
    assert "answer" in [f.name for f in library._final_module.functions]
    manager = llvm.create_new_module_pass_manager()
    assert all(callable(getattr(manager, name)) for name in PASSES)
    generator._pass_builder(loop_vectorize=False, slp_vectorize=False, opt=1)


def test_the_lock_is_reentrant_and_tells_of_this_thread() -> None:
    """`_retire` frees nothing while this thread compiles, and never waits for another one."""
    lock: Any = global_compiler_lock._lock
    assert isinstance(lock, type(threading.RLock()))
    with global_compiler_lock:
        assert global_compiler_lock.is_locked()
        assert lock.acquire(blocking=False)
        lock.release()
    assert not global_compiler_lock.is_locked()


def test_numba_s_code_libraries_run_hjit_s_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is optimised by `_Library`'s methods, not by numba's own."""
    ran = []

    def final(self: Any) -> None:
        ran.append(self.name)

    monkeypatch.setattr(our_codegen._Library, "_optimize_final_module", final)
    backend.compile_module(ANSWER, "answer", "cpu")
    assert ran == ["answer"]


def test_a_kernel_there_and_back() -> None:
    loaded = backend.load_object(backend.compile_module(ANSWER, "answer", "cpu"), "answer")
    assert loaded.entry(b"") == 42
    assert "answer" in backend.assembly(ANSWER, "answer", "cpu")


def test_what_llvm_refuses() -> None:
    with pytest.raises(CompileError, match="LLVM refuses the generated code of answer"):
        backend.compile_module(ANSWER.replace("ret i32", "ret i64"), "answer", "cpu")
    with pytest.raises(CompileError, match="no entry question"):
        backend.load_object(backend.compile_module(ANSWER, "answer", "cpu"), "question")


def test_tbb_s_parallel_for_is_an_address() -> None:
    address, layer = launch.parallel_for()  # loads the library
    if layer == "tbb":
        assert isinstance(address, int) and address == launch.tbb_parallel_for() != 0


def test_a_fork_knows_the_lock() -> None:
    from hjit.process import forks

    assert forks.compiler_lock() is global_compiler_lock


def uses(tree: ast.AST) -> set[str]:
    """The modules of numba that a module imports or names."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)):
                found.add(module)
            case ast.Import():
                found.update(a.name for a in node.names)
            case ast.Constant(value=str(text)) if re.fullmatch(r"numba(\.\w+)+", text):
                found.add(text)
    return {name for name in found if name.partition(".")[0] == "numba"}


def test_few_modules_use_numba() -> None:
    found = {
        str(path.relative_to(ROOT / "hjit")): names
        for path in (ROOT / "hjit").rglob("*.py")
        if (names := uses(ast.parse(path.read_text())))
    }
    assert found == {
        "kernels/runtime/codegen.py": {"numba.core", "numba.core.compiler_lock"},
        "kernels/runtime/launch.py": {"numba.np.ufunc.tbbpool"},  # this extension alone
        "process/forks.py": {"numba.core.compiler_lock"},  # where numba is loaded already, by whomever
    }
    assert all(import_module(name) for names in found.values() for name in names if not name.endswith("tbbpool"))


@pytest.mark.parametrize("package", ["numba", "llvmlite"])
def test_the_versions_are_tested_ones(package: str) -> None:
    """Bounds are of minor versions; the upper one is the first that has not been tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = next(x for x in project["dependencies"] if x.startswith(package))
    low, high = re.fullmatch(rf"{package}>=([\d.]+),<([\d.]+)", bounds).groups()  # type: ignore[union-attr]
    as_numbers = [tuple(map(int, x.split(".")[:2])) for x in (low, version(package), high)]
    assert as_numbers[0] <= as_numbers[1] < as_numbers[2]
