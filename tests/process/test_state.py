"""State that lives between calls is in one table: `hjit.process.state.TABLE`."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from hjit.process.state import RESET, TABLE

PACKAGE = Path(__file__).parents[2] / "hjit"
CONTAINERS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
CHANGES = {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft", "popitem", "remove"}
CHANGES |= {"setdefault", "update"}
LOGS = {"log", "__all__"}


@functools.cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    files = sorted(PACKAGE.rglob("*.py"))
    names = (".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in files)
    return tuple((name, ast.parse(path.read_text())) for name, path in zip(names, files, strict=True))


def assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Names at a module's top, and what they are first."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            for x in ast.walk(target):
                if isinstance(x, ast.Name):
                    yield x.id, getattr(node, "value", None)


def changed(tree: ast.Module) -> set[str]:
    """Names that functions of a module rebind, or whose contents they change."""
    found: set[str] = set()
    for node in inside_functions(tree):
        match node:
            case ast.Global(names=names):
                found.update(names)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in CHANGES:
                found.add(name)
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))]):
                found.add(name)
            case ast.Delete(targets=[ast.Subscript(value=ast.Name(id=name))]):
                found.add(name)
    return found


def inside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below functions, each once."""
    is_function = isinstance(node, (ast.FunctionDef, ast.Lambda))
    for child in ast.iter_child_nodes(node):
        yield from ast.walk(child) if is_function else inside_functions(child)


def state_of(tree: ast.Module) -> set[str]:
    """What at a module's top may change: names in small letters that are no plain values, and what functions change."""
    top = dict(assigned(tree))
    objects = {n for n, value in top.items() if isinstance(value, (*CONTAINERS, ast.Call)) and n != n.upper()}
    types = {n for n in objects if n[:1].isupper()}  # TypeVar, and names for types
    return (objects - types - LOGS) | (changed(tree) & top.keys())


def changed_elsewhere() -> set[tuple[str, str]]:
    """What functions of a module rebind in another one: ``forks.unfinished = ...``."""
    by_last = {name.rpartition(".")[2]: name for name, _ in modules()}
    found = set()
    for _, tree in modules():
        imported = {a.asname or a.name for x in ast.walk(tree) if isinstance(x, ast.ImportFrom) for a in x.names}
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr=attr)]):
                    if name in imported & by_last.keys():
                        found.add((by_last[name], attr))
    return found


def unbounded(tree: ast.Module) -> set[str]:
    """Functions of something whose results are all kept."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.args):
            texts = [ast.unparse(d).removeprefix("functools.") for d in node.decorator_list]
            found |= {node.name for t in texts if t in ("cache", "lru_cache(None)", "lru_cache(maxsize=None)")}
    return found


def test_all_state_is_in_the_table() -> None:
    listed = {(module, x.name) for module, rows in TABLE.items() for x in rows}
    found = {(name, x) for name, tree in modules() for x in state_of(tree)} | changed_elsewhere()
    assert found - listed == set(), "state that is not in hjit.process.state.TABLE"
    assert listed - found == set(), "there is no such state any more"


def test_caches_of_functions_are_bounded() -> None:
    assert {(name, f) for name, tree in modules() for f in unbounded(tree)} == set()


def test_locks_are_reset_in_children() -> None:
    trees = dict(modules())
    reset = {(module, x.name) for module, rows in TABLE.items() for x in rows if x.in_child == RESET}
    for name in {module for module, _ in reset}:
        functions = {x.name for x in trees[name].body if isinstance(x, ast.FunctionDef)}
        assert "after_fork" in functions, name
    locks = {
        (name, n)
        for name, tree in trees.items()
        for n, value in assigned(tree)
        if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in ("Lock", "RLock", "Condition")
    }
    assert locks <= reset


def test_rows_say_what_and_how_much() -> None:
    for rows in TABLE.values():
        assert len({x.name for x in rows}) == len(rows)
        assert all(x.holds and x.bound and x.in_child for x in rows)
