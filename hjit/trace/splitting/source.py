"""The syntax tree of a function, with the positions of its code, and functions made from changed trees."""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from hjit.process.shown_warnings import of_the_compiler
from hjit.trace.splitting.names import children, walk

TREE = "__hjit_tree__"  # the attribute of functions that are made here: gives the tree
MAKER = "__hjit_make"  # what closes over the variables of a function that is made anew
MADE = "__hjit_made"  # that function, in there

T = TypeVar("T")

_FUTURE = annotations.compiler_flag  # of the only future statement that still changes code


class NoSource(Exception):
    """A function has no source, or none that can be changed."""


def tree_of(function: types.FunctionType) -> ast.FunctionDef:
    """A function's syntax tree, which may be changed; a lambda becomes a function that returns its value.

    Raises:
        NoSource: there is none; or it is a generator, a coroutine, or has names that its class mangles.
    """
    known: Callable[[], ast.FunctionDef] | None = getattr(function, TREE, None)
    if known is not None:
        return copied(known())
    code = function.__code__
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise NoSource("it is a generator or a coroutine")
    try:
        lines, _ = inspect.findsource(function)
        module = _module("".join(lines))
    except (OSError, TypeError, SyntaxError):
        raise NoSource("its source is not known") from None
    around = _around(module, code.co_firstlineno)
    found = [x for x in around if isinstance(x, (ast.FunctionDef, ast.Lambda)) and _is_of(x, code)]
    if len(found) != 1:
        raise NoSource("its source is not found where its code says")
    tree: Any = copied(found[0])
    for x in walk(tree):
        name = x.id if isinstance(x, ast.Name) else x.attr if isinstance(x, ast.Attribute) else ""
        if name.startswith("__") and not name.endswith("__"):
            raise NoSource(f"its class mangles {name}")
    if isinstance(tree, ast.Lambda):
        returned = ast.copy_location(ast.Return(tree.body), tree.body)
        tree = ast.copy_location(function_def(function.__name__, tree.args, [returned]), tree)
    definition: ast.FunctionDef = tree
    return definition


def is_of_source(function: types.FunctionType) -> bool:
    """Does a function match its source? The file may have changed since."""
    if hasattr(function, TREE):
        return True
    try:
        lines, _ = inspect.findsource(function)
        codes = [_compiled("".join(lines), function.__code__)]
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    while codes:
        code = codes.pop()
        if code == function.__code__:
            return True
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return False


def _compiled(module: ast.Module | str, like: types.CodeType) -> types.CodeType:
    """The code of a module: of the file of other code, with what that file has imported from `__future__`."""
    flags = like.co_flags & _FUTURE
    with of_the_compiler():
        return compile(module, like.co_filename, "exec", flags, dont_inherit=True)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=4)
def _module(text: str) -> ast.Module:
    with of_the_compiler():
        return ast.parse(text)


def _around(x: ast.AST, line: int) -> Iterator[ast.AST]:
    """The nodes of a tree that contain a line, including decorators."""
    yield x
    for y in children(x):
        first = min([getattr(y, "lineno", line), *(z.lineno for z in getattr(y, "decorator_list", ()))])
        if first <= line <= (getattr(y, "end_lineno", line) or line):
            yield from _around(y, line)


def copied(x: T) -> T:
    """A copy of a syntax tree, or of a list of them; `copy.deepcopy` takes ten times as long."""
    if isinstance(x, list):
        return [copied(y) for y in x]  # type: ignore[return-value]
    if not isinstance(x, ast.AST) or not (x._fields or isinstance(x, ast.stmt)):
        return x  # a number, a name; or an operator, which has nothing of its own
    found = type(x).__new__(type(x))
    values = found.__dict__
    for name, value in x.__dict__.items():
        values[name] = value if type(value) in _SHARED else copied(value)
    return found


_SHARED = frozenset((str, int, type(None), ast.Load, ast.Store))


def _is_of(tree: ast.FunctionDef | ast.Lambda, code: types.CodeType) -> bool:
    if isinstance(tree, ast.Lambda):
        args = [x.arg for x in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)]
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return code.co_name == "<lambda>" and tree.lineno == code.co_firstlineno and tuple(args) == named
    first = min([tree.lineno, *(x.lineno for x in tree.decorator_list)])
    return tree.name == code.co_name and code.co_firstlineno in (tree.lineno, first)


def function_def(name: str, args: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    """A function without decorators."""
    plain = name if name.isidentifier() else "f"
    made = ast.FunctionDef(plain, args, body, [])
    if "type_params" in made._fields:  # from Python 3.12 on
        made.type_params = []  # type: ignore[attr-defined]
    return made


def arguments(names: Sequence[str]) -> ast.arguments:
    """Positional parameters."""
    return ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])


def code_of(like: types.FunctionType, tree: ast.FunctionDef, more: Iterable[str] = ()) -> types.CodeType:
    """The code of a function of a tree, among the closure of another one; the tree is changed.

    Args:
        more: names that it closes over besides.
    """
    name = tree.name
    tree.name = MADE  # so that its own name is what it was in its body: a global, or one of the cells
    maker = function_def(MAKER, arguments([*like.__code__.co_freevars, *more]), [tree])
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(maker, tree)], []))
    code = _compiled(module, like.__code__)
    return _qualified(_code(_code(code, MAKER), MADE), like.__qualname__).replace(co_name=name)


_MADE_THERE = f"{MAKER}.<locals>.{MADE}"


def _qualified(code: types.CodeType, name: str) -> types.CodeType:
    """Code of what is made anew, and all in it, by the qualified names that it has in its source."""
    constants = []
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            x = _qualified(x, name)
        elif isinstance(x, str) and x.startswith(_MADE_THERE):  # a class has its name from a constant
            x = name + x.removeprefix(_MADE_THERE)
        constants.append(x)
    qualified = name + code.co_qualname.removeprefix(_MADE_THERE)
    return code.replace(co_consts=tuple(constants), co_qualname=qualified)


def made(
    like: types.FunctionType,
    code: types.CodeType,
    tree: Callable[[], ast.FunctionDef],
    more: Mapping[str, Any] = MappingProxyType({}),
    defaults: bool = False,
) -> types.FunctionType:
    """A function from the result of `code_of`, with the globals and the closure of another one.

    Args:
        tree: what it was made of, see `tree_of`.
        more: what it closes over besides, by name.
        defaults: has it that one's defaults of parameters?
    """
    cells = dict(zip(like.__code__.co_freevars, like.__closure__ or (), strict=True))
    cells |= {name: types.CellType(value) for name, value in more.items()}
    closure = tuple(cells[name] for name in code.co_freevars)
    found = types.FunctionType(code, like.__globals__, like.__name__, None, closure)
    found.__qualname__, found.__module__ = like.__qualname__, like.__module__
    setattr(found, TREE, tree)
    if defaults:
        found.__defaults__, found.__kwdefaults__ = like.__defaults__, like.__kwdefaults__
    return found


def _code(outer: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in outer.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
