"""A compiler from a small subset of Python to LLVM IR: integers, floats, and arrays that the caller allocates.

hjit's own tight loops over tables are written in this subset, so that they run as Python and can also be compiled.
numba would take a minute where this takes a second, because no types have to be inferred. Arguments and results of a
function are annotated: ``int`` (64 bits), ``float`` (a double), ``bool``, ``Ints1``, ``Floats2`` and so on (arrays of
that many axes, in C order), tuples of numbers as results, or a `typing.NamedTuple` of arrays. A local variable has the
type of its first value, or float if a later one is a float. The subset has assignments, ``if``, ``while``, ``for`` over
ranges and tuples, arithmetic and comparison operators, ``min``, ``max``, ``abs``, ``len``, ``float``, ``int``,
``shape``, the functions of `UNARY`, calls of functions defined earlier, and subscripts; with fewer subscripts than
axes, the result is a subarray.
"""

from __future__ import annotations

import ast
import inspect
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INT, FLOAT, BOOL = "i64", "double", "i1"
UNARY = {"floor": "llvm.floor.f64", "ceil": "llvm.ceil.f64", "log2": "llvm.log2.f64"}
COMPARED = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}


@dataclass(frozen=True, slots=True)
class Array:
    """The type of an array in C order."""

    element: str
    axes: int


@dataclass(frozen=True, slots=True)
class Record:
    """The type of a `typing.NamedTuple` of arrays: in memory, of each the address and the lengths of its axes."""

    name: str
    fields: tuple[tuple[str, Array], ...]

    def at(self, field: str) -> tuple[int, Array]:
        """The first word of a field, and its type."""
        word = 0
        for name, kind in self.fields:
            if name == field:
                return word, kind
            word += 1 + kind.axes
        raise NotImplementedError(f"{self.name}.{field}")

    @property
    def words(self) -> int:
        """How many it has."""
        return sum(1 + kind.axes for _, kind in self.fields)


Type = str | Array | Record


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression gives: names of LLVM values, for an array those of its address and lengths."""

    kind: Type
    names: tuple[str, ...]


def kind_of(annotation: Any, records: Mapping[str, Record]) -> Type:
    """The type that an annotation names."""
    text = annotation if isinstance(annotation, str) else annotation.__name__
    plain = {"int": INT, "float": FLOAT, "bool": BOOL}
    if text in plain:
        return plain[text]
    if text in records:
        return records[text]
    for word, element in (("Ints", INT), ("Floats", FLOAT)):
        if text.startswith(word):
            return Array(element, int(text.removeprefix(word)))
    raise NotImplementedError(text)


def record_of(of: Any) -> Record:
    """The type of a `typing.NamedTuple`."""
    fields = {name: kind_of(text.__forward_arg__ if hasattr(text, "__forward_arg__") else text, {})
              for name, text in of.__annotations__.items()}  # fmt: skip
    assert all(isinstance(x, Array) for x in fields.values())
    return Record(of.__name__, tuple(fields.items()))  # type: ignore[arg-type]


def module(functions: Sequence[Callable[..., Any]], records: Sequence[Any], entry: str) -> str:
    """LLVM IR of some functions, each of which calls only those before it.

    Args:
        entry: the name of ``i32 entry(ptr words)``, which calls the last of them, whose result is an ``int``: a word
            for each number, those of a `Record` for a record, and for an array its address and the lengths of its axes.
    """
    known = {r.__name__: record_of(r) for r in records}
    made: dict[str, Signature] = {}
    texts = [f"declare double @{name}(double)" for name in UNARY.values()]
    texts += [f"declare double @llvm.{x}num.f64(double, double)" for x in ("min", "max")]
    texts += ["declare double @llvm.pow.f64(double, double)"]
    trees = _Trees()
    for f in functions:
        signature = Signature.of(f, known)
        made[f.__name__] = signature
        texts.append(Translation(f, trees.of(f), signature, made).text())
    return "\n".join([*texts, _entry(entry, functions[-1].__name__, made[functions[-1].__name__]), "!0 = !{}\n"])


class _Trees(dict[str, dict[int, ast.FunctionDef]]):
    """The syntax trees of the functions of modules, by their names and first lines; each module is parsed once."""

    def __missing__(self, name: str) -> dict[int, ast.FunctionDef]:
        functions = (x for x in ast.walk(ast.parse(inspect.getsource(sys.modules[name]))) if type(x) is ast.FunctionDef)
        self[name] = {min([x.lineno, *(d.lineno for d in x.decorator_list)]): x for x in functions}
        return self[name]

    def of(self, f: Callable[..., Any]) -> ast.FunctionDef:
        """The tree of a function.

        Raises:
            OSError: there is no source, or another one by now.
        """
        found = self[f.__module__].get(f.__code__.co_firstlineno)
        if found is None or found.name != f.__name__:
            raise OSError(f"the source of {f.__name__} has changed")
        return found


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a function's arguments, and of its results."""

    arguments: tuple[tuple[str, Type], ...]
    results: tuple[Type, ...]

    @staticmethod
    def of(f: Callable[..., Any], records: Mapping[str, Record]) -> Signature:
        annotations = dict(f.__annotations__)
        results = annotations.pop("return")
        if results in (None, "None"):
            kinds: tuple[Type, ...] = ()
        else:
            names = results.removeprefix("tuple[").removesuffix("]").split(", ")
            kinds = tuple(kind_of(x, records) for x in names)
        return Signature(tuple((name, kind_of(x, records)) for name, x in annotations.items()), kinds)

    @property
    def result(self) -> str:
        """LLVM's type of the results."""
        if len(self.results) == 1:
            return str(self.results[0])
        return f"{{{', '.join(map(str, self.results))}}}" if self.results else "void"


def words_of(kind: Type) -> tuple[str, ...]:
    """LLVM's types of a value."""
    if isinstance(kind, Array):
        return "ptr", *[INT] * kind.axes
    return ("ptr",) if isinstance(kind, Record) else (kind,)


def _entry(name: str, called: str, signature: Signature) -> str:
    lines, given, word = [], [], 0
    for k, (_, kind) in enumerate(signature.arguments):
        if isinstance(kind, Record):
            lines.append(f"  %r{k} = getelementptr i64, ptr %words, i64 {word}")
            given.append(f"ptr %r{k}")
            word += kind.words
            continue
        for type_ in words_of(kind):
            lines.append(f"  %p{word} = getelementptr i64, ptr %words, i64 {word}")
            lines.append(f"  %v{word} = load {type_}, ptr %p{word}")
            given.append(f"{type_} %v{word}")
            word += 1
    assert signature.results == (INT,)
    call = f"  %found = call i64 @{called}({', '.join(given)})"
    result = ["  %result = trunc i64 %found to i32", "  ret i32 %result"]
    return "\n".join([f"define i32 @{name}(ptr %words) {{", *lines, call, *result, "}"])


class Translation:
    """One function."""

    def __init__(
        self, f: Callable[..., Any], tree: ast.FunctionDef, signature: Signature, functions: Mapping[str, Signature]
    ) -> None:
        self.tree, self.signature, self.functions = tree, signature, functions
        self.f, self.globals = f, f.__globals__
        self.kinds: dict[str, Type] = {}  # of local variables
        self.is_changed = True

    def text(self) -> str:
        """Its LLVM IR. Translated again until no variable's type changes."""
        while self.is_changed:
            self._start()
            self._block(self.tree.body)
        if not self.is_done:
            self._op("ret void" if not self.signature.results else "unreachable")
        given = ", ".join(
            f"{type_} %{name}.{k}" for name, kind in self.signature.arguments for k, type_ in enumerate(words_of(kind))
        )
        head = f"define internal {self.signature.result} @{self.f.__name__}({given}) nounwind {{"
        return "\n".join([head, "entry:", *self.variables, *self.lines, "}"])

    def _start(self) -> None:
        self.is_changed, self.is_done = False, False
        self.lines: list[str] = []
        self.variables: list[str] = []
        self.count = self.temporaries = 0
        self.loops: list[tuple[str, str]] = []  # where `continue` and `break` lead
        self.known: dict[str, Value] = {}  # arguments and parts of arrays, which are assigned once
        self.slots: set[str] = set()
        for name, kind in self.signature.arguments:
            value = Value(kind, tuple(f"%{name}.{k}" for k in range(len(words_of(kind)))))
            if isinstance(kind, str):
                self._assign(name, value)
            else:
                self.known[name] = value

    # -- lines
    def _op(self, text: str) -> None:
        if not self.is_done:
            self.lines.append(f"  {text}")

    def _new(self, text: str) -> str:
        self.count += 1
        self._op(f"%t{self.count} = {text}")
        return f"%t{self.count}"

    def _temporary(self, what: str) -> str:
        """A variable of no name of its own: the same in every translation."""
        self.temporaries += 1
        return f"{what}.{self.temporaries}"

    def _label(self) -> str:
        self.count += 1
        return f"L{self.count}"

    def _place(self, label: str) -> None:
        self._jump(label)
        self.lines.append(f"{label}:")
        self.is_done = False

    def _jump(self, label: str) -> None:
        self._op(f"br label %{label}")
        self.is_done = True

    def _branch(self, condition: str, yes: str, no: str) -> None:
        self._op(f"br i1 {condition}, label %{yes}, label %{no}")
        self.is_done = True

    # -- statements
    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for s in statements:
            self._statement(s)

    def _statement(self, s: ast.stmt) -> None:
        match s:
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Expr(value=value):
                self._value(value)
            case ast.Assign(targets=[target], value=value):
                self._assigned(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                self._to(target, self._binary(op, self._value(target), self._value(value)))
            case ast.If(test=test, body=body, orelse=orelse):
                self._if(test, lambda: self._block(body), lambda: self._block(orelse))
            case ast.While(test=test, body=body):
                self._while(test, body)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=args), body=body):
                self._range(name, [self._value(x) for x in args], body)
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=elements), body=body):
                for x in elements:
                    self._assign(name, self._value(x))
                    self._block(body)
            case ast.Return(value=value):
                self._return(value)
            case ast.Continue():
                self._jump(self.loops[-1][0])
            case ast.Break():
                self._jump(self.loops[-1][1])
            case _:
                raise NotImplementedError(ast.unparse(s))

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Tuple):
            self._to(target, self._value(value))
            return
        values = [self._value(x) for x in value.elts] if isinstance(value, ast.Tuple) else self._called(value)
        for x, v in zip(target.elts, values, strict=True):
            self._to(x, v)

    def _to(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._assign(target.id, value)
            return
        kind, (address, *_) = self._element(target)
        assert isinstance(kind, Array)
        assert not kind.axes
        self._op(f"store {kind.element} {self._as(value, kind.element)}, ptr {address}")

    def _assign(self, name: str, value: Value) -> None:
        if not isinstance(value.kind, str):
            self.known[name] = value
            return
        kind = self.kinds.setdefault(name, value.kind)
        if kind != value.kind and value.kind == FLOAT:
            self.kinds[name] = kind = FLOAT
            self.is_changed = True
        if name not in self.slots:
            self.slots.add(name)
            self.variables.append(f"  %{name} = alloca {kind}")
        self._op(f"store {kind} {self._as(value, str(kind))}, ptr %{name}")

    def _if(self, test: ast.expr, yes: Callable[[], None], no: Callable[[], None]) -> None:
        then, otherwise, end = self._label(), self._label(), self._label()
        self._branch(self._truth(test), then, otherwise)
        for label, body in ((then, yes), (otherwise, no)):
            self.lines.append(f"{label}:")
            self.is_done = False
            body()
            self._jump(end)
        self.lines.append(f"{end}:")
        self.is_done = False

    def _while(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        head, inside, end = self._label(), self._label(), self._label()
        self._place(head)
        self._branch(self._truth(test), inside, end)
        self._looped(inside, head, end, body)
        self._jump(head)
        self.lines.append(f"{end}:")
        self.is_done = False

    def _looped(self, label: str, again: str, end: str, body: Sequence[ast.stmt]) -> None:
        self.lines.append(f"{label}:")
        self.is_done = False
        self.loops.append((again, end))
        self._block(body)
        self.loops.pop()

    def _range(self, name: str, args: Sequence[Value], body: Sequence[ast.stmt]) -> None:
        start = args[0] if len(args) > 1 else Value(INT, ("0",))
        stop, step = args[len(args) > 1], args[2] if len(args) > 2 else Value(INT, ("1",))
        counter = self._temporary(name)
        self._assign(counter, start)
        head, inside, again, end = self._label(), self._label(), self._label(), self._label()
        self._place(head)
        at = self._value(ast.Name(id=counter))
        is_down = step.names[0].startswith("-")
        self._branch(self._new(f"icmp {'sgt' if is_down else 'slt'} i64 {at.names[0]}, {stop.names[0]}"), inside, end)
        self.lines.append(f"{inside}:")
        self.is_done = False
        self._assign(name, at)
        self.loops.append((again, end))
        self._block(body)
        self.loops.pop()
        self._place(again)
        self._assign(counter, Value(INT, (self._new(f"add i64 {at.names[0]}, {step.names[0]}"),)))
        self._jump(head)
        self.lines.append(f"{end}:")
        self.is_done = False

    def _return(self, value: ast.expr | None) -> None:
        results = self.signature.results
        if value is None:
            self._op("ret void")
        elif len(results) == 1:
            self._op(f"ret {results[0]} {self._as(self._value(value), str(results[0]))}")
        else:
            parts = [self._value(x) for x in value.elts] if isinstance(value, ast.Tuple) else self._called(value)
            whole = "undef"
            for k, (kind, x) in enumerate(zip(results, parts, strict=True)):
                whole = self._new(f"insertvalue {self.signature.result} {whole}, {kind} {self._as(x, str(kind))}, {k}")
            self._op(f"ret {self.signature.result} {whole}")
        self.is_done = True

    # -- expressions
    def _value(self, e: ast.expr) -> Value:
        match e:
            case ast.Constant(value=bool(x)):
                return Value(BOOL, ("1" if x else "0",))
            case ast.Constant(value=int(x)):
                return Value(INT, (str(x),))
            case ast.Constant(value=float(x)):
                return Value(FLOAT, (_float(x),))
            case ast.Name(id=name) if name in self.known:
                return self.known[name]
            case ast.Name(id=name) if name in self.kinds:
                kind = str(self.kinds[name])
                return Value(kind, (self._new(f"load {kind}, ptr %{name}"),))
            case ast.Name(id=name):
                return self._value(ast.Constant(value=self.globals[name]))
            case ast.Attribute(value=ast.Name(id=name), attr=constant) if name not in self.known:
                return self._value(ast.Constant(value=getattr(self.globals[name], constant)))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(n))):
                return Value(INT, (str(-n),))
            case ast.UnaryOp(op=ast.USub(), operand=x):
                return self._negated(self._value(x))
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp() | ast.Compare():
                return Value(BOOL, (self._truth(e),))
            case ast.BinOp(left=a, op=op, right=b):
                return self._binary(op, self._value(a), self._value(b))
            case ast.IfExp(test=test, body=a, orelse=b):
                return self._chosen(test, a, b)
            case ast.Subscript(value=ast.Attribute(value=x, attr="shape"), slice=ast.Constant(value=int(axis))):
                return Value(INT, (self._value(x).names[1 + axis],))
            case ast.Subscript():
                return self._subscript(e)
            case ast.Attribute(value=x, attr=field):
                return self._field(self._value(x), field)
            case ast.Call():
                (found,) = self._called(e)
                return found
        raise NotImplementedError(ast.unparse(e))

    def _negated(self, x: Value) -> Value:
        zero = _float(-0.0) if x.kind == FLOAT else "0"
        return Value(x.kind, (self._new(f"{'fneg double' if x.kind == FLOAT else f'sub i64 {zero},'} {x.names[0]}"),))

    def _field(self, of: Value, field: str) -> Value:
        assert isinstance(of.kind, Record)
        word, kind = of.kind.at(field)
        names = []
        for k, type_ in enumerate(words_of(kind)):
            address = self._new(f"getelementptr i64, ptr {of.names[0]}, i64 {word + k}")
            names.append(self._new(f"load {type_}, ptr {address}, !invariant.load !0"))
        return Value(kind, tuple(names))

    def _element(self, e: ast.expr) -> tuple[Type, tuple[str, ...]]:
        """The part of an array that a subscript says: its type, its address and its lengths."""
        assert isinstance(e, ast.Subscript)
        array = self._value(e.value)
        assert isinstance(array.kind, Array)
        indices = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
        address, *lengths = array.names
        offset = "0"
        for k, length in enumerate(lengths):
            offset = offset if k == 0 else self._new(f"mul i64 {offset}, {length}")
            if k < len(indices):
                offset = self._new(f"add i64 {offset}, {self._as(self._value(indices[k]), INT)}")
        address = self._new(f"getelementptr {array.kind.element}, ptr {address}, i64 {offset}")
        rest = lengths[len(indices) :]
        return Array(array.kind.element, len(rest)), (address, *rest)

    def _subscript(self, e: ast.expr) -> Value:
        kind, names = self._element(e)
        assert isinstance(kind, Array)
        if kind.axes:
            return Value(kind, names)
        return Value(kind.element, (self._new(f"load {kind.element}, ptr {names[0]}"),))

    def _binary(self, op: ast.operator, a: Value, b: Value) -> Value:
        if isinstance(op, ast.Pow):
            pair = f"double {self._as(a, FLOAT)}, double {self._as(b, FLOAT)}"
            return Value(FLOAT, (self._new(f"call double @llvm.pow.f64({pair})"),))
        is_float = FLOAT in (a.kind, b.kind) or isinstance(op, ast.Div)
        kind = FLOAT if is_float else INT
        x, y = self._as(a, kind), self._as(b, kind)
        match op:
            case ast.Div():
                name = "fdiv"
            case ast.Add() | ast.Sub() | ast.Mult():
                name = ("f" if is_float else "") + ARITHMETIC[type(op)]
            case ast.FloorDiv() | ast.Mod() if not is_float:  # of numbers that are not negative
                name = "sdiv" if isinstance(op, ast.FloorDiv) else "srem"
            case ast.LShift() | ast.RShift() | ast.BitAnd() if not is_float:
                name = {ast.LShift: "shl", ast.RShift: "ashr", ast.BitAnd: "and"}[type(op)]
            case _:
                raise NotImplementedError(ast.dump(op))
        return Value(kind, (self._new(f"{name} {kind} {x}, {y}"),))

    def _chosen(self, test: ast.expr, a: ast.expr, b: ast.expr) -> Value:
        found: list[Value] = []
        name = self._temporary("chosen")

        def assign(e: ast.expr) -> None:
            found.append(self._value(e))
            self._assign(name, found[-1])

        self._if(test, lambda: assign(a), lambda: assign(b))
        return self._value(ast.Name(id=name))

    def _truth(self, e: ast.expr) -> str:
        match e:
            case ast.UnaryOp(op=ast.Not(), operand=x):
                return self._new(f"xor i1 {self._truth(x)}, 1")
            case ast.BoolOp(op=op, values=values):
                return self._short(isinstance(op, ast.And), values)
            case ast.Compare(left=left, ops=ops, comparators=others):
                given = [self._value(x) for x in (left, *others)]
                found = [self._compared(op, a, b) for op, a, b in zip(ops, given, given[1:], strict=False)]
                result = found[0]
                for truth in found[1:]:
                    result = self._new(f"and i1 {result}, {truth}")
                return result
        return self._as(self._value(e), BOOL)

    def _short(self, is_and: bool, values: Sequence[ast.expr]) -> str:
        """``and`` and ``or``, whose later operands count only where they have to."""
        name = self._temporary("truth")
        end = self._label()
        for k, e in enumerate(values):
            found = self._truth(e)
            self._assign(name, Value(BOOL, (found,)))
            if k < len(values) - 1:
                more = self._label()
                self._branch(found, *((more, end) if is_and else (end, more)))
                self.lines.append(f"{more}:")
                self.is_done = False
        self._place(end)
        return self._value(ast.Name(id=name)).names[0]

    def _compared(self, op: ast.cmpop, a: Value, b: Value) -> str:
        word = COMPARED[type(op)]
        if FLOAT in (a.kind, b.kind):
            code = f"fcmp {'une' if word == 'ne' else 'o' + word} double"
            return self._new(f"{code} {self._as(a, FLOAT)}, {self._as(b, FLOAT)}")
        sign = "" if word in ("eq", "ne") else "s"
        return self._new(f"icmp {sign}{word} i64 {self._as(a, INT)}, {self._as(b, INT)}")

    def _called(self, e: ast.expr) -> list[Value]:
        """The results of a call."""
        assert isinstance(e, ast.Call)
        match e.func:
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in UNARY:
                x = self._as(self._value(e.args[0]), FLOAT)
                return [Value(FLOAT, (self._new(f"call double @{UNARY[name]}(double {x})"),))]
            case ast.Name(id="len"):
                return [Value(INT, (self._value(e.args[0]).names[1],))]
            case ast.Name(id="float"):
                return [Value(FLOAT, (self._as(self._value(e.args[0]), FLOAT),))]
            case ast.Name(id="int"):
                return [Value(INT, (self._as(self._value(e.args[0]), INT),))]
            case ast.Name(id="abs"):
                given = self._value(e.args[0])
                below = self._compared(ast.Lt(), given, Value(INT, ("0",)))
                return [self._select(below, self._negated(given), given)]
            case ast.Name(id="min" | "max" as which):
                a, b = (self._value(x) for x in e.args)
                first = self._compared(ast.Lt() if which == "min" else ast.Gt(), b, a)
                return [self._select(first, b, a)]
            case ast.Name(id=name):
                return self._call(name, [self._value(x) for x in e.args])
        raise NotImplementedError(ast.unparse(e))

    def _select(self, condition: str, a: Value, b: Value) -> Value:
        kind = FLOAT if FLOAT in (a.kind, b.kind) else INT
        pair = f"{kind} {self._as(a, kind)}, {kind} {self._as(b, kind)}"
        return Value(kind, (self._new(f"select i1 {condition}, {pair}"),))

    def _call(self, name: str, args: Sequence[Value]) -> list[Value]:
        signature = self.functions[name]
        given: list[str] = []
        for (_, kind), x in zip(signature.arguments, args, strict=True):
            names = x.names if not isinstance(kind, str) else (self._as(x, kind),)
            assert isinstance(kind, str) or kind == x.kind, (name, kind, x.kind)
            given += [f"{type_} {n}" for type_, n in zip(words_of(kind), names, strict=True)]
        call = f"call {signature.result} @{name}({', '.join(given)})"
        if not signature.results:
            self._op(call)
            return [Value(INT, ("0",))]
        found = self._new(call)
        if len(signature.results) == 1:
            return [Value(signature.results[0], (found,))]
        return [
            Value(kind, (self._new(f"extractvalue {signature.result} {found}, {k}"),))
            for k, kind in enumerate(signature.results)
        ]

    def _as(self, x: Value, kind: str) -> str:
        """A number as one of a kind."""
        name = x.names[0]
        if x.kind == kind:
            return name
        match x.kind, kind:
            case "i64", "double":
                return self._new(f"sitofp i64 {name} to double")
            case "i1", "double":
                return self._new(f"uitofp i1 {name} to double")
            case "double", "i64":
                return self._new(f"fptosi double {name} to i64")
            case "i1", "i64":
                return self._new(f"zext i1 {name} to i64")
            case "i64", "i1":
                return self._new(f"icmp ne i64 {name}, 0")
            case "double", "i1":
                return self._new(f"fcmp une double {name}, 0.0")
        raise NotImplementedError(f"{x.kind} as {kind}")


def _float(x: float) -> str:
    """LLVM's text of a double, exactly."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"
