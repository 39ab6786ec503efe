"""Which room of the package imports which, and what is imported late: the arrows of the table in CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SERVICES = {"errors", "process"}  # every room may import these, but for those that they are made of
TRACING = {*SERVICES, "trace.ir", "trace.tracing"}
SCHEDULES = {*SERVICES, "trace.ir", "trace.passes", "sched.language", "sched.analysis", "sched.nests"}
MAY = {
    "version": set(),
    "errors": set(),
    "options": {"errors"},
    "cache": {"errors", "options", "version"},
    "process": {"errors", "cache"},
    "trace.ir": SERVICES,
    "trace.tracing": TRACING,
    "trace.ops": TRACING,
    "trace.capture": {*TRACING, "trace.ops"},
    "trace.passes": {*SERVICES, "trace.ir"},
    "verify": TRACING,
    "model": {*SERVICES, "trace.ir"},
    "sched.language": {*SERVICES, "trace.ir", "trace.passes"},
    "sched.analysis": {*SERVICES, "trace.ir", "sched.language"},
    "sched.nests": {*SERVICES, "trace.ir", "sched.language"},
    "sched.default": SCHEDULES,
    "sched.hand": {*SCHEDULES, "sched.default"},
    "sched.features": {*SCHEDULES, "model"},
    "sched.search": {*SCHEDULES, "sched.features", "model"},
    "kernels.lower": {*SERVICES, "trace.ir", "sched.language", "sched.analysis"},
    "kernels.llvm": {*SERVICES, "trace.ir", "sched.language", "kernels.lower"},
    "kernels.runtime": {
        *SERVICES,
        "options",
        "cache",
        "trace.ir",
        "sched.language",
        "kernels.lower",
        "kernels.llvm",
    },
}
STILL = {  # against the table, to be fixed; no others
    ("kernels.runtime.listing", "sched.default.schedules"),  # a kernel without a schedule is lowered by the default one
    ("kernels.runtime.listing", "sched.nests.usual"),
    ("sched.language.transforms", "sched.nests.usual"),  # an inlined stage comes back in its usual nests
}
CIRCLES = {  # of imports, those inside functions and for types included: to be fixed; no others
    (
        "sched.language.limits",
        "sched.language.picture",
        "sched.language.tree",
    ),  # a tree that is read is checked, and shown in notebooks
    (
        "trace.capture.builtin_calls",
        "trace.capture.overlay",
        "trace.capture.rerolling",
    ),  # built-ins see captured objects
    (
        "trace.ops.creation",
        "trace.ops.elementwise",
        "trace.ops.histograms",
        "trace.ops.indexing",
        "trace.ops.reductions",
        "trace.ops.scattering",
    ),
}


def modules() -> dict[str, Path]:
    """All modules of the package, without its name; its own `__init__` is "hjit"."""
    names = {
        ".".join(p.relative_to(ROOT / "hjit").with_suffix("").parts).removesuffix("__init__").rstrip("."): p
        for p in (ROOT / "hjit").rglob("*.py")
    }
    return {name or "hjit": p for name, p in names.items()}


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """The modules that a piece of code imports, also inside functions and for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "hjit":
            base = node.module.removeprefix("hjit").lstrip(".")
            for a in node.names:
                inside = f"{base}.{a.name}".lstrip(".")
                yield inside if inside in known else base or "hjit"
        elif isinstance(node, ast.Import):
            yield from (
                a.name.removeprefix("hjit.") for a in node.names if a.name == "hjit" or a.name.startswith("hjit.")
            )


def room(module: str) -> str:
    """The room of a module: a folder of a folder, or of the package, or a module of its own."""
    parts = module.split(".")
    two = ".".join(parts[:2])
    return two if two in MAY else parts[0]


def imports() -> dict[str, set[str]]:
    """What each module imports of the package."""
    known = modules()
    return {name: {*imported(ast.parse(path.read_text()), set(known))} for name, path in known.items()}


def against_the_table() -> set[tuple[str, str]]:
    return {
        (name, other)
        for name, others in imports().items()
        if room(name) in MAY
        for other in others
        if room(other) not in {*MAY[room(name)], room(name)}
    }


def test_rooms_import_what_the_table_allows() -> None:
    found = against_the_table()
    assert found - STILL == set()
    assert STILL - found == set(), "fixed: take it out of STILL"


def test_every_folder_is_a_room() -> None:
    rooms = {room(m) for m in modules() if "." in m}
    assert {r for r in rooms if r.partition(".")[0] in ("trace", "sched", "kernels")} <= MAY.keys()
    folders = {"process", "trace", "sched", "kernels", "verify", "model", "tuning", "report"}
    assert {r.partition(".")[0] for r in rooms} == folders


def test_folders_are_small() -> None:
    folders: dict[Path, int] = {}
    for path in modules().values():
        folders[path.parent] = folders.get(path.parent, 0) + 1
    assert {str(f.relative_to(ROOT)): n for f, n in folders.items() if n > 20} == {}


def test_imports_run_in_no_circle() -> None:
    reached = imports()
    for _ in reached:  # what they import, what that imports, and so on
        more = {name: found.union(*(reached[x] for x in found)) for name, found in reached.items()}
        if more == reached:
            break
        reached = more
    circles = {
        tuple(sorted(x for x in reached[name] if name in reached[x])) for name in reached if name in reached[name]
    }
    assert circles == CIRCLES
