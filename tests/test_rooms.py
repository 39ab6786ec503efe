"""Which room of the package imports which, and what is imported late: the arrows of the table in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SERVICES = {"errors", "process"}  # every room may import these, but for those that they are made of
RECORDING = {*SERVICES, "trace.ir", "trace.tracing", "trace.tracing.scalars", "trace.tracing.recording"}
TRACING = {*RECORDING, "trace.tracing.arrays", "trace.tracing.externs"}
OPS = {*TRACING, "trace.ops"}
BUILDER = {*SERVICES, "trace.ir", "kernels.lower", "kernels.llvm.thresholds", "kernels.llvm.builder"}
NEST = {*BUILDER, "sched.language", "kernels.llvm.vecmath", "kernels.llvm.nest"}
SCHEDULES = {*SERVICES, "trace.ir", "trace.passes", "sched.language", "sched.analysis", "sched.nests"}
MAY = {
    "version": set(),
    "errors": set(),
    "options": {"errors"},
    "cache": {"errors", "options", "version"},
    "process": {"errors", "cache"},
    "trace.ir": SERVICES,
    "trace.tracing": {"errors"},
    "trace.tracing.scalars": {"errors", "trace.ir", "trace.tracing"},
    "trace.tracing.recording": RECORDING,
    "trace.tracing.arrays": RECORDING,
    "trace.tracing.externs": {*RECORDING, "trace.tracing.arrays"},
    "trace.ops": TRACING,
    "trace.ops.elementwise": OPS,
    "trace.ops.indexing": {*OPS, "trace.ops.elementwise"},
    "trace.ops.arrays": {*OPS, "trace.ops.indexing"},
    "trace.ops.reductions": {*OPS, "trace.ops.elementwise", "trace.ops.indexing", "trace.ops.arrays"},
    "trace.ops.stencils": {
        *OPS,
        "trace.ops.elementwise",
        "trace.ops.indexing",
        "trace.ops.arrays",
        "trace.ops.reductions",
    },
    "trace.ops.complex_numbers": {
        *OPS,
        "trace.ops.elementwise",
        "trace.ops.arrays",
        "trace.ops.reductions",
        "trace.ops.stencils",
    },
    "trace.ops.geometry": {*OPS, "trace.ops.stencils"},
    "trace.capture": {
        *OPS,
        "trace.ops.elementwise",
        "trace.ops.indexing",
        "trace.ops.arrays",
        "trace.ops.complex_numbers",
        "trace.splitting",
    },
    "trace.passes": {*SERVICES, "trace.ir"},
    "trace.splitting": {"process"},
    "verify": TRACING,
    "model": {*SERVICES, "trace.ir"},
    "sched.language": {*SERVICES, "trace.ir", "trace.passes"},
    "sched.analysis": {*SERVICES, "trace.ir", "sched.language"},
    "sched.nests": {*SERVICES, "trace.ir", "sched.language"},
    "sched.default": SCHEDULES,
    "sched.hand": {*SCHEDULES, "sched.default"},
    "sched.native": {*SCHEDULES, "model"},
    "sched.features": {*SCHEDULES, "sched.native", "model"},
    "sched.search": {*SCHEDULES, "sched.native", "sched.features", "model"},
    "kernels.functions": set(),
    "kernels.lower": {*SERVICES, "trace.ir", "sched.language", "sched.analysis"},
    "kernels.llvm": {*NEST, "kernels.llvm.memory", "kernels.llvm.driver"},
    "kernels.llvm.thresholds": set(),
    "kernels.llvm.builder": {"trace.ir", "kernels.llvm.thresholds"},
    "kernels.llvm.vecmath": BUILDER,
    "kernels.llvm.nest": NEST,
    "kernels.llvm.memory": NEST,
    "kernels.llvm.driver": NEST,
    "kernels.cuda": {"errors", "trace.ir", "sched.language", "kernels.lower"},
    "kernels.cuda.runtime": {
        *SERVICES,
        "options",
        "cache",
        "trace.ir",
        "sched.language",
        "kernels.lower",
        "kernels.cuda",
        "kernels.runtime",
    },
    "kernels.runtime": {
        *SERVICES,
        "options",
        "cache",
        "trace.ir",
        "sched.language",
        "kernels.lower",
        "kernels.llvm",
    },
    "tuning": {
        *SERVICES,
        "options",
        "cache",
        "version",
        "model",
        "trace.ir",
        "trace.passes",
        "sched.language",
        "sched.nests",
        "sched.default",
        "sched.native",
        "sched.search",
        "kernels.functions",
        "kernels.runtime",
    },
    "chunks": {
        *SERVICES,
        "options",
        "trace.ir",
        "trace.passes",
        "sched.analysis",
        "kernels.lower",
        "kernels.runtime",
        "tuning",
    },
    "report": {"trace.ir", "sched.language", "call"},
    "export": {
        *TRACING,
        "options",
        "cache",
        "version",
        "call",
        "trace.capture",
        "trace.passes",
        "sched.language",
        "kernels.lower",
        "kernels.llvm.driver",
        "kernels.runtime",
        "tuning",
    },
}
MAY["call"] = {*MAY} - {"report", "export"}
MAY["report.performance"] = {*MAY} - {"export"}
for name in (
    "tunable",
    "inspection",
    "graph_breaks",
    "pipeline",
    "training",
    "profiler",
    "modules",
    "demo",
    "cli",
    "__main__",
):
    MAY[name] = {*MAY}  # all before it
MAY["pytest_plugin"] = {"errors", "modules", "report"}
MAY["hjit"] = {"errors", "export", "modules", "options", "pipeline", "sched.hand", "version"}


FOLDERS = ("kernels", "sched", "trace")  # of rooms


@functools.cache
def modules() -> dict[str, Path]:
    """All modules of the package, without its name; its own `__init__` is "hjit"."""
    names = {
        ".".join(p.relative_to(ROOT / "hjit").with_suffix("").parts).removesuffix("__init__").rstrip("."): p
        for p in (ROOT / "hjit").rglob("*.py")
    }
    return {name or "hjit": p for name, p in names.items()}


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of each module."""
    return {name: ast.parse(path.read_text()) for name, path in modules().items()}


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a piece of code imports, also inside functions and for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "hjit":
            base = node.module.removeprefix("hjit").lstrip(".")
            for a in node.names:
                inside = f"{base}.{a.name}".lstrip(".")
                yield inside if inside in modules() else base or "hjit"
        elif isinstance(node, ast.Import):
            yield from (
                a.name.removeprefix("hjit.") for a in node.names if a.name == "hjit" or a.name.startswith("hjit.")
            )


def room(module: str) -> str:
    """The room of a module: the innermost folder around it that has a row, or a module of its own."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 1, -1))
    return next((name for name in names if name in MAY), parts[0])


@functools.cache
def imports() -> dict[str, set[str]]:
    """What each module imports of the package."""
    return {name: {*imported(tree)} for name, tree in trees().items()}


def against_the_table() -> set[tuple[str, str]]:
    return {
        (name, other)
        for name, others in imports().items()
        if room(name) in MAY
        for other in others
        if room(other) not in {*MAY[room(name)], room(name)}
    }


def test_rooms_import_what_the_table_allows() -> None:
    assert against_the_table() == set()


def reached_from(*names: str) -> set[str]:
    """The modules that some import, that those import, and so on."""
    known, found, new = imports(), set[str](), set(names)
    while new:
        found |= new
        new = {x for name in new for x in known[name] if x in known} - found
    return found


def test_what_is_legal_pruned_or_searched_does_not_depend_on_the_defaults() -> None:
    language, search = ({m for m in modules() if room(m) == r} for r in ("sched.language", "sched.search"))
    below = {room(m) for m in reached_from(*language, "sched.search.pruning")}
    assert not below & {"sched.default", "sched.nests"}
    assert "sched.default" not in {room(m) for m in reached_from(*search)}


def test_every_folder_is_a_room() -> None:
    assert {room(m) for m in modules() if m not in FOLDERS} <= MAY.keys()
    rooms = {room(m) for m in modules() if "." in m}
    folders = {"call", "chunks", "process", "verify", "model", "tuning", "training", "report", "export", *FOLDERS}
    assert {r.partition(".")[0] for r in rooms} == folders


def test_folders_are_small() -> None:
    folders: dict[Path, int] = {}
    for path in modules().values():
        folders[path.parent] = folders.get(path.parent, 0) + 1
    assert {str(f.relative_to(ROOT)): n for f, n in folders.items() if n > 15} == {}


def circles(arrows: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """What reaches itself, with all that it does so by."""
    reached = arrows
    for _ in reached:  # what they import, what that imports, and so on
        more = {name: found.union(*(reached.get(x, ()) for x in found)) for name, found in reached.items()}
        if more == reached:
            break
        reached = more
    return {
        tuple(sorted(x for x in reached[name] if name in reached.get(x, ())))
        for name in reached
        if name in reached[name]
    }


def test_imports_run_in_no_circle() -> None:
    """Those inside functions and for types included."""
    assert circles(imports()) == set()


def test_nothing_is_imported_of_the_package_itself() -> None:
    """It imports them: `from hjit import cache` reads as a circle."""
    froms = {
        name: [a.name for a in node.names]
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "hjit"
    }
    assert froms == {}


def test_rooms_import_in_no_circle() -> None:
    rooms: dict[str, set[str]] = {}
    for name, others in imports().items():
        rooms.setdefault(room(name), set()).update({room(x) for x in others} - {room(name)})
    assert circles(rooms) == set()


def test_the_table_allows_no_circle() -> None:
    assert circles({name: others - {name} for name, others in MAY.items()}) == set()


# Packages that few processes need, or that take long to load: `import hjit` takes less than 150 ms
HEAVY = {"PIL", "jax", "jax.numpy", "llvmlite", "matplotlib", "matplotlib.figure", "numba", "optax", "platformdirs"}
HEAVY |= {
    "cupy",
    "pyopencl",
    "rich",
    "rich.console",
    "rich.live",
    "rich.progress_bar",
    "rich.spinner",
    "rich.table",
    "rich.text",
    "tempfile",
}
# Imports of hjit's own modules inside functions, with why they are late; no others
FIRST_CALL = "loaded by the first call of a pipeline, or by a command: `import hjit` is light"
COMPILER = "loaded where something is compiled or shown: a process that finds its kernels on disk needs none of it"
SHOWN = "loaded where something is shown to a person"
SEARCH = "loaded where a schedule is searched, or is not on disk"
TRAINING = "loaded where the cost model is trained"
SELDOM = "loaded by programs that use it: most never do"
DASK = "loaded where there are arrays of Dask"
GPU = "loaded where a function runs on a GPU"
LATE = {
    "cli": {
        "kernels.cuda.runtime.inventory": GPU,
        "kernels.runtime.features": FIRST_CALL,
        "kernels.runtime.launch": FIRST_CALL,
        "model.calibration": TRAINING,
        "model.samples": TRAINING,
        "modules": SELDOM,
        "profiler": SELDOM,
        "report.profile": SHOWN,
        "report.patch": SELDOM,
        "sched.language.target": FIRST_CALL,
        "training.calibrate": TRAINING,
        "training.programs": TRAINING,
        "training.renewed": TRAINING,
        "training.rounds": TRAINING,
        "tuning.calibrated": SELDOM,
        "tuning.kept_plans": SELDOM,
        "tuning.weights": SELDOM,
    },
    "call.breaks.split_calls": {
        "call.breaks.parts": FIRST_CALL,
        "call.stored.refusals": FIRST_CALL,
    },
    "call.build": {
        "call.compiling": COMPILER,
        "call.other_arrays.on_device": GPU,
        "kernels.runtime.programs.running": SELDOM,
        "tuning.choice": COMPILER,
    },
    "call.compiling": {
        "kernels.cuda.runtime.bound": GPU,
        "tuning.candidates": SEARCH,
    },
    "kernels.cuda.runtime.device": {"kernels.cuda.runtime.on_cupy": GPU},
    "kernels.cuda.runtime.inspection": {"kernels.cuda.runtime.on_cupy": GPU},
    "kernels.cuda.runtime.kernels": {"kernels.cuda.runtime.lowered": COMPILER},
    "export.compiling": {"tuning.candidates": SEARCH},
    "kernels.runtime.backend": {"kernels.runtime.codegen": COMPILER},
    "kernels.runtime.bind": {"kernels.runtime.lowered": COMPILER},
    "kernels.runtime.kernel": {"kernels.runtime.backend": COMPILER},
    "kernels.runtime.programs.running": {"kernels.runtime.programs.compiling": COMPILER},
    "call.checks.verified_calls": {
        "call.build": FIRST_CALL,
        "call.checks.first_calls": FIRST_CALL,
        "call.checks.uninitialised": FIRST_CALL,
        "call.other_arrays.on_device": GPU,
        "call.stored.verdicts": FIRST_CALL,
    },
    "call.other_arrays.calls": {"call.other_arrays.on_dask": DASK, "call.other_arrays.on_device": GPU},
    "call.function_state": {
        "call.build": FIRST_CALL,
        "call.other_arrays.on_device": GPU,
        "call.tuning.kernels": SEARCH,
        "trace.capture.cupy_names": GPU,
    },
    "call.known_calls": {"call.variant": FIRST_CALL},
    "call.new_calls": {
        "call.build": FIRST_CALL,
        "call.other_arrays.on_device": GPU,
        "call.stored.outcomes": FIRST_CALL,
        "call.variant": FIRST_CALL,
    },
    "call.tuning.calls": {
        "call.build": FIRST_CALL,
        "call.compiling": COMPILER,
        "call.tuning.kernels": SEARCH,
        "call.variant": FIRST_CALL,
        "tuning.autotune": SEARCH,
    },
    "pytest_plugin": {"modules": SELDOM, "report.kinds": SELDOM, "errors": SELDOM},
    "chunks.kernels": {"tuning.candidates": SEARCH},
    "inspection": {
        "call.build": FIRST_CALL,
        "call.other_arrays.on_dask": DASK,
        "call.other_arrays.on_device": GPU,
        "call.segments": FIRST_CALL,
        "call.stored.refusals": FIRST_CALL,
        "call.variant": FIRST_CALL,
        "export.library": SELDOM,
        "kernels.cuda.runtime.inspection": SHOWN,
        "kernels.runtime.backend": FIRST_CALL,
        "kernels.runtime.features": FIRST_CALL,
        "kernels.runtime.lowered": COMPILER,
        "report.explain": SHOWN,
        "report.listing": SHOWN,
        "report.performance.gather": SHOWN,
        "report.performance.report": SHOWN,
        "sched.hand.schedule": "loaded where a schedule is given",
    },
    "pipeline": {"sched.hand.schedule": "loaded where a schedule is given"},
    "report.performance.kernels": {"kernels.cuda.runtime.inspection": GPU},
    "report.listing": {
        "report.pictures": SHOWN,
        "sched.language.tree": SHOWN,
        "trace.ir.graph": SHOWN,
    },
    "tuning.choice": {
        "sched.default.cuda": GPU,
        "sched.default.schedules": COMPILER,
        "sched.language.check": SEARCH,
        "sched.nests.root_nests": COMPILER,
    },
    "tunable": {
        "call.build": FIRST_CALL,
        "call.variant": FIRST_CALL,
        "tuning.autotune": SEARCH,
    },
    "tuning.decide": {"tuning.autoschedule": SEARCH},
    "tuning.learning": {"model.fit": TRAINING},
    "tuning.calibrated": {"model.calibration": SELDOM},
    "tuning.weights": {"model.calibration": SELDOM, "model.network": SEARCH},
}


def late(tree: ast.Module) -> Iterator[str]:
    """What is imported inside functions: modules of the package, and of others."""
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imported(function)
            for node in ast.walk(function):
                match node:
                    case ast.ImportFrom(module=str(name)) if name.partition(".")[0] != "hjit":
                        yield name
                    case ast.Import():
                        yield from (a.name for a in node.names if a.name.partition(".")[0] != "hjit")


def test_imports_inside_functions_have_a_reason() -> None:
    found = {name: {*late(tree)} - HEAVY for name, tree in trees().items()}
    assert {name: sorted(others) for name, others in found.items() if others} == {
        name: sorted(others) for name, others in LATE.items()
    }


@functools.cache
def defined(tree: ast.AST) -> set[str]:
    """What a module or a class gives a name to, at any depth but inside functions."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name):
                found |= {name} | {f"{name}.{x}" for x in defined(node)}
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {a.asname or a.name for a in names}
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                found |= defined(node)
    return found


def test_what_texts_name_exists() -> None:
    """Modules, and names in them, as `hjit.trace.ir.poly.Poly` in docstrings, comments and documents."""
    texts = [*modules().values(), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    wrong = set()
    for path in texts:
        for name in re.findall(r"`hjit\.([\w.]+)", path.read_text()):
            parts = name.rstrip(".").split(".")
            inside = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
            module = next((m for m in reversed(inside) if m in modules()), "hjit")
            rest = name.rstrip(".").removeprefix(module).lstrip(".")
            if rest and rest not in defined(trees()[module]):
                wrong.add((path.name, name))
    assert wrong == set()
