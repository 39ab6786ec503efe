"""Which room of the package imports which: the arrows of the table in CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRACING = {"errors", "trace.ir", "trace.tracing"}
SCHEDULES = {"errors", "trace.ir", "trace.passes", "sched.language", "sched.analysis", "sched.nests"}
MAY = {
    "version": set(),
    "errors": set(),
    "deadline": {"errors"},  # which may be imported everywhere, too
    "options": {"errors"},
    "cache": {"errors", "options", "version"},
    "machine": {"cache"},
    "forks": set(),
    "debug": set(),
    "trace.ir": {"errors"},
    "trace.tracing": TRACING,
    "trace.ops": TRACING,
    "trace.capture": {*TRACING, "trace.ops"},
    "trace.passes": {"debug", "errors", "trace.ir"},
    "verify": TRACING,
    "model": {"errors", "trace.ir"},
    "sched.language": {"errors", "trace.ir", "trace.passes"},
    "sched.analysis": {"errors", "trace.ir", "sched.language"},
    "sched.nests": {"errors", "trace.ir", "sched.language"},
    "sched.default": SCHEDULES,
    "sched.hand": {*SCHEDULES, "sched.default"},
    "sched.features": {*SCHEDULES, "model"},
    "sched.search": {*SCHEDULES, "sched.features", "model"},
    "kernels.lower": {"debug", "errors", "trace.ir", "sched.language", "sched.analysis"},
    "kernels.llvm": {"errors", "trace.ir", "sched.language", "kernels.lower"},
    "kernels.runtime": {
        "debug",
        "errors",
        "options",
        "cache",
        "forks",
        "machine",
        "trace.ir",
        "sched.language",
        "kernels.lower",
        "kernels.llvm",
    },
}
STILL = {  # against the table, to be mended; no others
    ("kernels.runtime.listing", "sched.default.schedules"),  # a kernel without a schedule is lowered by the default one
    ("kernels.runtime.listing", "sched.nests.usual"),
    ("sched.language.transforms", "sched.nests.usual"),  # an inlined stage comes back in its usual nests
    ("machine", "kernels.runtime.signals"),  # bandwidth is measured by threads that outlive the main one
}


def modules() -> dict[str, Path]:
    """All modules of the package, without its name."""
    names = {
        ".".join(p.relative_to(ROOT / "hjit").with_suffix("").parts).removesuffix("__init__").rstrip("."): p
        for p in (ROOT / "hjit").rglob("*.py")
    }
    return {name: p for name, p in names.items() if name}


def imported(path: Path, known: set[str]) -> Iterator[str]:
    """The modules that a module imports, also inside functions and for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "hjit":
            base = node.module.removeprefix("hjit").lstrip(".")
            for a in node.names:
                inside = f"{base}.{a.name}".lstrip(".")
                if inside in known or base:
                    yield inside if inside in known else base
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("hjit.") for a in node.names if a.name.startswith("hjit."))


def room(module: str) -> str:
    """The room of a module: a folder of a folder, or of the package, or a module of its own."""
    parts = module.split(".")
    two = ".".join(parts[:2])
    return two if two in MAY else parts[0]


def against_the_table() -> set[tuple[str, str]]:
    known = modules()
    return {
        (name, other)
        for name, path in known.items()
        if room(name) in MAY
        for other in imported(path, set(known))
        if room(other) not in {*MAY[room(name)], room(name), "deadline"}
    }


def test_rooms_import_what_the_table_allows() -> None:
    found = against_the_table()
    assert found - STILL == set()
    assert STILL - found == set(), "mended: take it out of STILL"


def test_every_folder_is_a_room() -> None:
    rooms = {room(m) for m in modules() if "." in m}
    assert {r for r in rooms if r.partition(".")[0] in ("trace", "sched", "kernels")} <= MAY.keys()
    assert {r.partition(".")[0] for r in rooms} == {"trace", "sched", "kernels", "verify", "model", "tuning", "report"}


def test_folders_are_small() -> None:
    folders: dict[Path, int] = {}
    for path in modules().values():
        folders[path.parent] = folders.get(path.parent, 0) + 1
    assert {str(f.relative_to(ROOT)): n for f, n in folders.items() if n > 20} == {}


CIRCLES = {  # of imports, those inside functions included: to be mended; no others
    (
        "sched.language.limits",
        "sched.language.picture",
        "sched.language.tree",
    ),  # a tree that is read is checked, and shown in notebooks
}


def test_imports_run_in_no_circle() -> None:
    known = modules()
    reached = {name: {x for x in imported(path, set(known)) if x in known} for name, path in known.items()}
    for _ in known:  # what they import, what that imports, and so on
        more = {name: found.union(*(reached[x] for x in found)) for name, found in reached.items()}
        if more == reached:
            break
        reached = more
    circles = {
        tuple(sorted(x for x in reached[name] if name in reached[x])) for name in reached if name in reached[name]
    }
    assert circles == CIRCLES
