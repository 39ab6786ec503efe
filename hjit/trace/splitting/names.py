"""The names that statements read and bind, and those that are certainly bound after them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LEAF = frozenset((ast.Name, ast.Constant))
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDS = frozenset(
    (
        *SCOPES,
        *COMPREHENSIONS,
        ast.Import,
        ast.ImportFrom,
        ast.ExceptHandler,
        ast.MatchAs,
        ast.MatchStar,
        ast.MatchMapping,
    )
)


def children(x: ast.AST) -> list[ast.AST]:
    """The children of a node, in order; `ast.iter_child_nodes` takes several times as long."""
    found: list[ast.AST] = []
    if type(x) in _LEAF:
        return found
    values = x.__dict__
    for name in x._fields:
        y = values.get(name)
        if type(y) is list:
            found += [z for z in y if isinstance(z, ast.AST)]
        elif isinstance(y, ast.AST):
            found.append(y)
    return found


def walk(x: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree, in no order; `ast.walk` takes several times as long."""
    stack = [x]
    while stack:
        x = stack.pop()
        yield x
        stack += children(x)


def loads(nodes: Iterable[ast.AST]) -> Counter[str]:
    """How many times names are read, except the variables of comprehensions."""
    found: Counter[str] = Counter()
    for x in nodes:
        _loads(x, found, frozenset())
    return found


def _loads(x: ast.AST, found: Counter[str], own: frozenset[str]) -> None:
    if isinstance(x, ast.Name):
        if not isinstance(x.ctx, ast.Store) and x.id not in own:
            found[x.id] += 1
        return
    if isinstance(x, COMPREHENSIONS):
        first = x.generators[0]
        _loads(first.iter, found, own)  # outside, where a name may be another variable than inside
        own = own | {n for g in x.generators for n in stores([g.target])}
        inside = [y for y in children(x) if y is not first]
        for y in (first.target, *first.ifs, *inside):
            _loads(y, found, own)
        return
    if isinstance(x, ast.AugAssign) and isinstance(x.target, ast.Name):
        found[x.target.id] += 1
    for y in children(x):
        _loads(y, found, own)


def stores(nodes: Iterable[ast.AST], in_expressions: bool = True) -> dict[str, None]:
    """The names that are bound, in order; not those of inner scopes.

    Args:
        in_expressions: also by ``:=``, which `bound_by` finds where it is evaluated for certain?
    """
    found: dict[str, None] = {}

    def visit(x: ast.AST) -> None:
        if isinstance(x, ast.Name):
            if not isinstance(x.ctx, ast.Load):
                found[x.id] = None
            return
        if isinstance(x, ast.NamedExpr) and not in_expressions:
            return
        if type(x) in _BINDS and binds(x):
            return
        for y in children(x):
            visit(y)

    def binds(x: ast.AST) -> bool:
        """Names of a node that has some; is that all of it?"""
        if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[x.name] = None
        if isinstance(x, (ast.Import, ast.ImportFrom)):
            found.update((a.asname or a.name.partition(".")[0], None) for a in x.names)
        if isinstance(x, ast.ExceptHandler) and x.name:
            found[x.name] = None
        if isinstance(x, (ast.MatchAs, ast.MatchStar)) and x.name:
            found[x.name] = None
        if isinstance(x, ast.MatchMapping) and x.rest:
            found[x.rest] = None
        if isinstance(x, COMPREHENSIONS) and in_expressions:  # of which only `:=` binds outside
            for y in walk(x):
                if isinstance(y, ast.NamedExpr):
                    visit(y.target)
        if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for default in (*x.args.defaults, *x.args.kw_defaults):
                if default is not None:
                    visit(default)
        return isinstance(x, (*SCOPES, *COMPREHENSIONS))

    for x in nodes:
        visit(x)
    return found


def declared(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """The names that ``global`` and ``nonlocal`` declare in functions: those that contain `nodes`, or are `nodes`."""
    found: set[str] = set()
    for x in nodes:
        inner = children(x)
        found |= set(x.names) if isinstance(x, (ast.Global, ast.Nonlocal)) else set()
        found |= declared(y for y in inner if not isinstance(y, SCOPES))
    return frozenset(found)


def bound_by(test: ast.AST) -> set[str]:
    """The names that an expression certainly binds: not those of ``c`` in ``a or c``."""
    match test:
        case ast.BoolOp():
            return bound_by(test.values[0])
        case ast.IfExp():
            return bound_by(test.test)
        case ast.Compare():
            return bound_by(test.left) | bound_by(test.comparators[0])
        case ast.NamedExpr():
            return {test.target.id} | bound_by(test.value)
    if isinstance(test, (*SCOPES, *COMPREHENSIONS)):
        return set()
    return {n for x in children(test) for n in bound_by(x)}


def unbound_by(s: ast.AST) -> set[str]:
    """The names that a statement may unbind."""
    found: set[str] = set()
    for x in walk(s):
        if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Del):
            found.add(x.id)
        elif isinstance(x, ast.ExceptHandler) and x.name:
            found.add(x.name)
    return found


_EXITS = (ast.Raise, ast.Return, ast.Break, ast.Continue)


def definitely_bound(body: Iterable[ast.stmt]) -> set[str]:
    """The names that are certainly bound after statements."""
    found: set[str] = set()
    for s in body:
        found -= unbound_by(s)
        match s:
            case ast.If():
                found |= bound_by(s.test) | (definitely_bound(s.body) & definitely_bound(s.orelse))
            case ast.Try():
                ways = [definitely_bound([*s.body, *s.orelse])]
                ways += [definitely_bound(h.body) - {h.name} for h in s.handlers if not isinstance(h.body[-1], _EXITS)]
                found |= set.intersection(*ways) | definitely_bound(s.finalbody)
            case ast.For() | ast.AsyncFor() | ast.While() | ast.TryStar() | ast.Match():
                pass  # none of it may have run
            case ast.With() | ast.AsyncWith():
                for x in s.items:
                    found |= set(stores([] if x.optional_vars is None else [x.optional_vars]))
                    if not _ends_no_exception(x):  # neither the next items nor the body may have run to their end
                        break
                else:
                    found |= definitely_bound(s.body)
            case ast.Delete() | ast.AnnAssign(value=None):
                pass
            case _:
                found |= bound_by(s) | set(stores([s], in_expressions=False))
    return found


def first_reads(body: Iterable[ast.stmt]) -> dict[str, None]:
    """The names that statements may read before they bind them, in order."""
    found: dict[str, None] = {}
    bound: set[str] = set()
    for s in body:
        match s:
            case ast.If():
                inner = [*loads([s.test]), *first_reads(s.body), *first_reads(s.orelse)]
            case ast.For():
                target = set(stores([s.target]))
                inner = [*loads([s.iter, s.target]), *(n for n in first_reads(s.body) if n not in target)]
                inner += first_reads(s.orelse)
            case ast.While():
                inner = [*loads([s.test]), *first_reads(s.body), *first_reads(s.orelse)]
            case _:
                inner = list(loads([s]))
        found.update((n, None) for n in inner if n not in bound)
        bound |= definitely_bound([s])
    return found


def live_before(body: Iterable[ast.stmt], after: frozenset[str], jump: frozenset[str] = frozenset()) -> frozenset[str]:
    """The names that are live before statements.

    Args:
        after: those that may be read when they have run. jump: when they leave the loop around them, or go on with it.
    """
    for s in reversed(list(body)):
        after = _live(s, after, jump)
    return after


def loop_live(s: ast.For | ast.While, after: frozenset[str]) -> frozenset[str]:
    """The names that are live at the end of an iteration of a loop."""
    again = frozenset(loads([s.test])) if isinstance(s, ast.While) else frozenset[str]()
    ended = after | again | live_before(s.orelse, after)
    target = frozenset(stores([s.target])) if isinstance(s, ast.For) else frozenset[str]()
    return ended | (live_before(s.body, ended, ended) - target)


def _live(s: ast.stmt, after: frozenset[str], jump: frozenset[str]) -> frozenset[str]:
    match s:
        case ast.If():
            both = live_before(s.body, after, jump) | live_before(s.orelse, after, jump)
            return both | frozenset(loads([s.test]))
        case ast.For():
            ended = loop_live(s, after)
            target = frozenset(stores([s.target]))
            return ended | (live_before(s.body, ended, ended) - target) | frozenset(loads([s.iter, s.target]))
        case ast.While():
            ended = loop_live(s, after)
            return ended | live_before(s.body, ended, ended) | frozenset(loads([s.test]))
        case ast.With():
            left = frozenset() if all(map(_ends_no_exception, s.items)) else after
            return live_before(s.body, after, jump) | left | frozenset(loads(s.items))
        case ast.Try() | ast.TryStar() | ast.Match() | ast.AsyncFor() | ast.AsyncWith():
            return after | frozenset(loads([s]))
        case ast.Return() | ast.Raise():
            return frozenset(loads([s]))
        case ast.Break() | ast.Continue():
            return jump
    return (after - definitely_bound([s])) | frozenset(loads([s]))


_END_NO_EXCEPTION = frozenset(
    """errstate catch_warnings printoptions open nullcontext closing redirect_stdout redirect_stderr localcontext
    TemporaryDirectory ThreadPoolExecutor ProcessPoolExecutor Lock RLock""".split()
)


def _ends_no_exception(x: ast.withitem) -> bool:
    """Is it a context manager that never suppresses exceptions? After others, such as `contextlib.suppress`, names that
    the block binds may have their old values."""
    match x.context_expr:
        case ast.Call(ast.Attribute(attr=name)) | ast.Call(ast.Name(id=name)):
            return name in _END_NO_EXCEPTION
    return False
