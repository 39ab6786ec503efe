"""Splitting a function that cannot be traced into parts that may be, and the code between them.

The function keeps its control flow and runs in Python at every call. Runs of its statements, as long as possible,
become functions of their own: what they read are their parameters, what is read after them they return.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hjit.trace.splitting.dead_code import binding, drop_dead
from hjit.trace.splitting.frame_inspection import points_above
from hjit.trace.splitting.locations import RETURNED, SourceRange
from hjit.trace.splitting.names import (
    SCOPES,
    bound_by,
    children,
    declared,
    definitely_bound,
    first_reads,
    live_before,
    loads,
    loop_live,
    stores,
    unbound_by,
    walk,
)
from hjit.trace.splitting.normal_form import OPERATIONS, TEMPORARY, steps
from hjit.trace.splitting.source import TREE, NoSource, arguments, code_of, copied, function_def, made, tree_of

PART = "__hjit_part"  # begins the names of parts
CALLEES = "__hjit_callees"  # what gives, for a function, what runs it
# what is never moved into another function
ALONE = (
    ast.Return, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.ClassDef, ast.Lambda, ast.Delete, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.AsyncFor, ast.Yield,
    ast.YieldFrom, ast.Await, ast.Raise, ast.Match,
)  # fmt: skip
LOOPS = (ast.For, ast.While)
Names = frozenset[str]
WORK = (*OPERATIONS, ast.AugAssign)


@dataclass(frozen=True, slots=True)
class Fragment:
    """Statements as a function.

    Attributes:
        first, last: their lines.
    """

    function: types.FunctionType
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Split:
    """A split function: code, without function objects yet.

    Attributes:
        code: of what runs the parts.
        parts: by the names that it calls: their code, and their first and last lines.
        kept: the first line of the statement that stays as it is, and its number; None: it is not known which.
        has_callees: does it call what runs functions that it calls?
        asked: names that are called, and whether they count the frames above them; all else follows from the code.
        tree: gives the syntax tree of a part by its name, of what runs them by "".
    """

    code: types.CodeType
    parts: Mapping[str, tuple[types.CodeType, int, int]]
    kept: tuple[str, int] | None
    has_callees: bool
    asked: Mapping[str, bool]
    tree: Callable[[str], ast.FunctionDef]

    def assembled(
        self,
        function: types.FunctionType,
        pipeline: Callable[[Fragment], Any],
        callees: Callable[[Any], Any] | None = None,
    ) -> types.FunctionType:
        """The function that runs the parts.

        Args:
            function: that was split.
            pipeline: what runs a part.
            callees: gives what runs a function that is called where no part may be.
        """
        found = {}
        for name, (code, first, last) in self.parts.items():
            part = made(function, code, functools.partial(self.tree, name))
            found[name] = pipeline(Fragment(part, first, last))
        if self.has_callees:
            found[CALLEES] = callees
        return made(function, self.code, functools.partial(self.tree, ""), found, defaults=True)

    def holds(self, function: types.FunctionType) -> bool:
        """Do the functions that it calls still count the frames above them, or not?"""
        return all(points_above(value_of(function, name)) is answer for name, answer in self.asked.items())


def split(
    function: types.FunctionType,
    place: SourceRange | str | None,
    may_have_callees: bool = False,
    is_loop: bool = False,
    is_deeper: bool = True,
) -> Split | None:
    """Split a function around the statement at `place`; if that is not known, in halves. None: it has no parts.

    Args:
        place: or a name that is read there.
        may_have_callees: may something else run a function that is called where no part may be?
        is_loop: is it the loop around the place that is not to be traced, and not what is there?
        is_deeper: is what cannot be traced in the function that is called at the place?

    Raises:
        NoSource: its source is not known, or cannot be changed.
    """
    splitter = _Splitter(function, place, may_have_callees, is_loop, is_deeper)
    whole = _size(splitter.tree)
    parts = splitter.parts()
    trees = splitter.trees
    is_as_large = not splitter.is_returned and any(_size(tree) >= whole for tree in trees.values())
    if not (parts or splitter.has_callee) or is_as_large:
        return None
    trees[""] = copied(splitter.tree)
    names = [*parts, CALLEES] if splitter.has_callee else list(parts)
    code, kept = code_of(function, splitter.tree, names), splitter.kept
    text = None if kept is None else (_text(kept), kept.lineno)
    return Split(code, parts, text, splitter.has_callee, splitter.asked, trees.__getitem__)


def value_of(function: types.FunctionType, name: str) -> Any:
    """The value of a variable of an enclosing function, of a global, or of a module's attribute; else None."""
    name, _, attribute = name.partition(".")
    cells, value = function.__code__.co_freevars, None
    if name not in cells:
        value = function.__globals__.get(name)
    else:
        with contextlib.suppress(ValueError):  # it has none yet
            value = (function.__closure__ or ())[cells.index(name)].cell_contents
    if not attribute:
        return value
    return vars(value).get(attribute) if isinstance(value, types.ModuleType) else None


class _Splitter:
    """Splits one function.

    Attributes:
        tree: the function, in the end with calls of parts.
        kept: the statement at the place.
        has_callee: does it call what `callees` of `split` gives?
    """

    def __init__(
        self,
        function: types.FunctionType,
        place: SourceRange | str | None,
        may_have_callees: bool = False,
        is_loop: bool = False,
        is_deeper: bool = True,
    ) -> None:
        self.function, self.tree = function, tree_of(function)
        self.dead = drop_dead(self.tree)  # names that are local, though nothing binds them
        self.place = _place_of_name(self.tree, place) if isinstance(place, str) else place
        self.is_returned = place == RETURNED and not hasattr(function, TREE)  # a part has its end from here
        self.may_have_callees, self.has_callee = may_have_callees, False
        self.is_loop, self.is_deeper = is_loop, is_deeper
        if _is_of_frames(self.tree):
            raise NoSource("it asks for its own variables")
        self.kept: ast.stmt | None = None
        a = self.tree.args
        given = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None)]
        self.parameters = {x.arg for x in given}
        self.own: set[str] = set()  # the function's local variables
        self.outer = declared(self.tree.body)  # those that it assigns in the scopes around it
        self.shared: frozenset[str] = frozenset()  # those that inner functions read, whenever they are called
        self.rebound: frozenset[str] = frozenset()  # those that they may assign
        self.made: dict[str, tuple[types.CodeType, int, int]] = {}
        self.trees: dict[str, ast.FunctionDef] = {}
        self.asked: dict[str, bool] = {}
        self.caught: frozenset[str] = frozenset()  # those that may be read when a statement has raised an exception
        self.temporaries = 0

    def parts(self) -> dict[str, tuple[types.CodeType, int, int]]:
        """Split the function (its tree is changed); returns the parts by the names under which it calls them."""
        body = self.cut(self.tree.body)  # the cut first: names of values in between belong to the function
        self.own = {*self.parameters, *stores(body), *self.dead} - self.outer
        inner = [x for s in body for x in walk(s) if isinstance(x, SCOPES)]
        self.shared = frozenset(loads(inner))
        self.rebound = declared(inner)
        unbound = {n: None for n in self.dead if n not in self.outer}
        self.tree.body = [*self.grouped(body, set(self.parameters), frozenset(), frozenset()), *binding(unbound)]
        ast.fix_missing_locations(self.tree)
        return self.made

    # -- what is left out
    def number(self, nodes: Iterable[ast.AST]) -> int | None:
        """The index of the node that contains the place."""
        return next((k for k, x in enumerate(nodes) if self.place is not None and self.place.is_in(x)), None)

    def cut(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements with the smallest possible statement around the place marked."""
        at = self.number(body)
        if self.is_returned and isinstance(body[-1], ast.Return):
            return [*body[:-1], *self.broken(body[-1])]
        if at is None or (isinstance(body[at], ast.Return) and not any(isinstance(x, WORK) for x in walk(body[at]))):
            return self.halves(body)  # of what is returned something cannot be returned
        return [*body[:at], *self.broken(body[at]), *body[at + 1 :]]

    def halves(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Split statements in halves if it is not known which one cannot be traced."""
        if len(body) == 1:
            (s,) = body
            return self.broken(s)
        return [*body[: len(body) // 2], *self.marked([ast.Pass()]), *body[len(body) // 2 :]]

    def broken(self, s: ast.stmt) -> list[ast.stmt]:
        """Mark the statement that cannot be traced, or contains the place."""
        match s:
            case ast.For() if self.is_loop:
                return self.marked([s])
            case ast.While() if self.is_loop:
                return self.tested(s) if any(isinstance(x, WORK) for x in walk(s.test)) else self.marked([s])
            case ast.If() | ast.While() if self.place is None or self.place.is_in(s.test):
                return self.tested(s)
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try() | ast.Match():
                for body in _bodies(s):
                    if body and (self.place is None or self.number(body) is not None):
                        body[:] = self.cut(body)
                return self.marked([s])
            case ast.TryStar():
                return self.marked([s])
        text = ast.unparse(s)  # as it was written, without temporary names
        small = steps(s, self.temporaries)
        self.temporaries += len(small)
        for x in small:
            x.hjit_text = text  # type: ignore[attr-defined]
        if len(small) == 1:
            if self.is_deeper and not self.is_returned:
                self.call(small[0])
            return self.marked(small)
        k = len(small) - 1 if self.is_returned else self.number(map(_value, small))
        if k is None:
            half = len(small) // 2
            return [*small[:half], *self.marked([ast.Pass()]), *small[half:]]
        if self.is_deeper and not self.is_returned:
            self.call(small[k])
        return [*small[:k], *self.marked([small[k]]), *small[k + 1 :]]

    def call(self, s: ast.stmt) -> None:
        """The statement calls what runs the function that it calls now."""
        value = _value(s)
        if self.may_have_callees and isinstance(value, ast.Call):
            name = ast.copy_location(ast.Name(CALLEES, ast.Load()), value.func)
            value.func = ast.copy_location(ast.Call(name, [value.func], []), value.func)
            self.has_callee = True

    def tested(self, s: ast.If | ast.While) -> list[ast.stmt]:
        """A condition whose value is computed before Python decides on it."""
        name = f"{TEMPORARY}{self.temporaries}"
        self.temporaries += 1
        value = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], s.test), s.test)
        read = ast.copy_location(ast.Name(name, ast.Load()), s.test)
        if isinstance(s, ast.If):
            s.test = read
            return [value, *self.marked([s])]
        if s.orelse:
            return self.marked([s])
        s.test = ast.copy_location(ast.Constant(True), s.test)
        leave = ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), read), [ast.Break()], []), value)
        s.body = [value, *self.marked([leave]), *s.body]
        return self.marked([s])

    def marked(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Mark statements that no part contains as a whole."""
        for s in body:
            s.hjit_kept = True  # type: ignore[attr-defined]
            if not isinstance(s, ast.Pass):
                self.kept = s
        return body

    # -- what is put together
    def grouped(self, body: list[ast.stmt], bound: set[str], after: Names, jump: Names) -> list[ast.stmt]:
        """A block whose statements are replaced by calls of parts, as far as possible.

        Args:
            bound: names that have values for certain where it begins.
            after, jump: see `names.live_before`.
        """
        found: list[ast.stmt] = []
        run: list[ast.stmt] = []
        before: set[str] = set()

        def flush(rest: Sequence[ast.stmt]) -> None:
            found.extend(self.part(run, before, live_before(rest, after, jump) | self.caught))
            run.clear()

        for k, s in enumerate(body):
            is_alone = not self.caught.isdisjoint(stores([s]))  # else it would be unset where a later one raises
            moves = self.may_move(s) and (not is_alone or _binds_at_last(s))
            if is_alone or not (moves and run):
                flush(body[k:])
                before = set(bound)
            if moves:
                run.append(s)
            else:
                found.append(self.opened(s, set(bound), live_before(body[k + 1 :], after, jump), jump))
            if is_alone:
                flush(body[k + 1 :])
                before = (bound - unbound_by(s)) | definitely_bound([s])
            bound -= unbound_by(s)
            bound |= definitely_bound([s])
        flush([])
        return [s for s in found if not isinstance(s, ast.Pass)] or [ast.Pass()]

    def opened(self, s: ast.stmt, bound: set[str], after: Names, jump: Names) -> ast.stmt:
        """A statement whose blocks have parts."""
        match s:
            case ast.If():
                bound |= bound_by(s.test)
                s.body = self.grouped(s.body, set(bound), after, jump)
                s.orelse = self.grouped(s.orelse, set(bound), after, jump) if s.orelse else []
            case ast.Match():
                bound |= bound_by(s.subject)
                for c in s.cases:
                    named = set(stores([c.pattern])) | (set() if c.guard is None else bound_by(c.guard))
                    c.body = self.grouped(c.body, bound | named, after, jump)
            case ast.For() | ast.While():
                ended = loop_live(s, after)
                names = set(stores([s.target])) if isinstance(s, ast.For) else bound_by(s.test)
                s.body = self.grouped(s.body, bound | names, ended, ended)
                s.orelse = self.grouped(s.orelse, set(bound), after, jump) if s.orelse else []
            case ast.With() if all(_ignores_errors(x) for x in s.items):
                s.body = self.grouped(s.body, bound, after, jump)
            case ast.With() if not any(map(_changes_warnings, s.items)):
                named = {n for x in s.items if x.optional_vars is not None for n in stores([x.optional_vars])}
                with self.catching(after):  # it may end an exception
                    s.body = self.grouped(s.body, bound | named, after, jump)
            case ast.Try():
                self.open_try(s, bound, after, jump)
            case ast.Assign() | ast.Expr() | ast.Return() if self.is_seen_above(s):
                self.call(s)
        return s

    @contextlib.contextmanager
    def catching(self, names: Names) -> Iterator[None]:
        """A block after whose exceptions these names may be read: they are what they were before the statement that
        raised one."""
        before, self.caught = self.caught, self.caught | names
        try:
            yield
        finally:
            self.caught = before

    def open_try(self, s: ast.Try, bound: set[str], after: Names, jump: Names) -> None:
        """As `opened`; what is read after an exception, or at last, no part sets together with anything else."""
        end = after | jump | frozenset(loads(s.finalbody))
        handled: Names = frozenset()
        for h in s.handlers:
            handled |= live_before(h.body, end, end) - {h.name} | frozenset(loads([] if h.type is None else [h.type]))
        with self.catching(end if s.finalbody else frozenset()):
            with self.catching(handled):
                s.body = self.grouped(s.body, set(bound), live_before(s.orelse, end, end), end)
            for h in s.handlers:
                h.body = self.grouped(h.body, bound | ({h.name} if h.name else set()), end, end)
            if s.orelse:
                s.orelse = self.grouped(s.orelse, bound | definitely_bound(s.body), end, end)
        if s.finalbody:
            s.finalbody = self.grouped(s.finalbody, set(bound), after | jump, jump)

    def may_move(self, s: ast.AST) -> bool:
        """May it be part of another function? The result that is returned is that of the part."""
        if isinstance(s, (ast.Break, ast.Continue)) or getattr(s, "hjit_kept", False):
            return False
        if isinstance(s, ast.Return):
            return s.value is not None and self.may_move(s.value)
        if any(isinstance(x, ALONE) or getattr(x, "hjit_kept", False) for x in walk(s)):
            return False
        if any(map(_counts_frames, walk(s))) or self.is_seen_above(s):
            return False  # that of a part would be one more
        written = set(stores([s]))
        if written & (self.shared | self.outer):
            return False  # inner functions, which are called in between, see the new value at once
        if self.rebound & {*written, *loads([s])}:
            return False  # an inner function that is called in between gives it another value
        return isinstance(s, LOOPS) or not any(isinstance(x, (ast.Break, ast.Continue)) for x in _of_loop(s))

    def is_seen_above(self, s: ast.AST) -> bool:
        """Does it call a function that counts the frames above it?"""
        return any(isinstance(x, ast.Call) and self.points_above(x.func) for x in walk(s))

    def points_above(self, x: ast.AST) -> bool:
        """Does what is called count the frames above it? No where it is neither a name nor what a module has."""
        match x:
            case ast.Name(id=name):
                pass
            case ast.Attribute(value=ast.Name(id=of), attr=attribute):
                name = f"{of}.{attribute}"
            case _:
                return False
        first = name.partition(".")[0]
        if first in self.own and first not in self.function.__code__.co_freevars:
            return False
        if name not in self.asked:
            self.asked[name] = points_above(value_of(self.function, name))
        return self.asked[name]

    def part(self, run: list[ast.stmt], bound: set[str], live: Names) -> list[ast.stmt]:
        """Statements as the call of a part; unchanged if they do no work, or cannot be moved."""
        if not any(isinstance(x, WORK) for s in run for x in walk(s)) or all(map(_is_trivial, run)):
            return list(run)
        read = [n for n in first_reads(run) if n in self.own]
        after = definitely_bound(run)
        written = [n for n in stores(run) if n in self.own and n in live]
        read += [n for n in written if n not in after and n not in read]
        if not set(read) <= bound:
            return list(run)
        returns = isinstance(run[-1], ast.Return)
        body = copied(run)
        if not returns and written:
            body.append(ast.copy_location(ast.Return(_tuple(written, ast.Load())), run[-1]))
        tree = ast.copy_location(function_def(self.tree.name, arguments(read), body), run[0])
        name = f"{PART}{len(self.made)}"
        self.trees[name] = copied(ast.fix_missing_locations(tree))
        self.made[name] = code_of(self.function, tree), run[0].lineno, run[-1].end_lineno or 0
        call: ast.expr = ast.Call(ast.Name(name, ast.Load()), [ast.Name(n, ast.Load()) for n in read], [])
        if returns:
            s: ast.stmt = ast.Return(call)
        elif written:
            s = ast.Assign([_tuple(written, ast.Store())], call)
        else:
            s = ast.Expr(call)
        return [ast.copy_location(s, run[0])]


def _text(s: ast.stmt) -> str:
    """The first line of a statement."""
    return str(getattr(s, "hjit_text", None) or ast.unparse(s)).splitlines()[0]


def _size(tree: ast.AST) -> tuple[int, int]:
    """The number of operations and statements: parts have fewer, so repeated splitting ends."""
    nodes = list(walk(tree))
    return sum(isinstance(x, WORK) for x in nodes), sum(isinstance(x, ast.stmt) for x in nodes)


def _place_of_name(tree: ast.AST, name: str) -> SourceRange | None:
    """The location at which a name is read first."""
    found = [x for x in walk(tree) if isinstance(x, ast.Name) and x.id == name and isinstance(x.ctx, ast.Load)]
    x = min(found, key=lambda x: (x.lineno, x.col_offset), default=None)
    return None if x is None else SourceRange(x.lineno, x.end_lineno or x.lineno, x.col_offset, x.end_col_offset)


def _tuple(names: Sequence[str], context: ast.expr_context) -> ast.expr:
    parts: list[ast.expr] = [ast.Name(n, context) for n in names]
    return parts[0] if len(parts) == 1 else ast.Tuple(parts, context)


def _value(s: ast.stmt) -> ast.AST:
    """The expression that a statement computes."""
    found = getattr(s, "value", None)
    return s if found is None else found


def _bodies(s: ast.stmt) -> list[list[ast.stmt]]:
    inner = [x.body for x in (*getattr(s, "handlers", []), *getattr(s, "cases", []))]
    return [*(getattr(s, name, []) for name in ("body", "orelse", "finalbody")), *inner]


def _binds_at_last(s: ast.stmt) -> bool:
    """Does a statement bind one name, when all else is done?"""
    return isinstance(s, ast.Assign) and len(stores([s])) == 1 and isinstance(s.targets[-1], ast.Name)


def _of_loop(s: ast.AST) -> Iterable[ast.AST]:
    """What belongs to a statement, without what is in loops inside it."""
    for x in children(s):
        if not isinstance(x, LOOPS):
            yield x
            yield from _of_loop(x)


def _ignores_errors(x: ast.withitem) -> bool:
    """Is it ``np.errstate`` with "ignore" only? This is what compiled code does."""
    match x:
        case ast.withitem(ast.Call(ast.Attribute(attr="errstate"), [], keywords), None):
            return all(isinstance(k.value, ast.Constant) and k.value.value == "ignore" for k in keywords)
    return False


def _changes_warnings(x: ast.withitem) -> bool:
    """May it turn warnings into errors or record them? Compiled code issues none."""
    names = {_name(y) or getattr(y, "attr", "") for y in walk(x.context_expr)}
    return not names.isdisjoint(("errstate", "catch_warnings", "simplefilter", "warns", "raises"))


def _is_trivial(s: ast.stmt) -> bool:
    """Does it only access attributes, items of tuples and numbers?"""
    return isinstance(s, ast.Assign) and not any(isinstance(x, (ast.Call, ast.BinOp, ast.Compare)) for x in walk(s))


def _counts_frames(x: ast.AST) -> bool:
    """Is it a warning or a log record with a stack level?"""
    match x:
        case ast.Call(ast.Name(id="warn") | ast.Attribute(attr="warn"), [_, _, _, *_]):
            return True
        case ast.keyword("stacklevel"):
            return True
    return False


def _is_of_frames(tree: ast.AST) -> bool:
    names = {"locals", "vars", "eval", "exec", "dir", "super", "__class__"}
    calls = [x for x in walk(tree) if isinstance(x, ast.Call) and x.args and not isinstance(x.args[0], ast.Starred)]
    of_objects = {x.func for x in calls if _name(x.func) in ("vars", "dir")}  # ``vars(x)``
    return any(_name(x) in names and x not in of_objects for x in walk(tree))


def _name(x: ast.AST) -> str:
    return x.id if isinstance(x, ast.Name) else ""
