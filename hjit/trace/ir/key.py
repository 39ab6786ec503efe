"""The key of a Graph: a text that is equal for equal programs, whatever their variables are named.

Shared sub-expressions are written once and numbered, so the text grows with the Graph, not with its tree form.
The same walk fixes the order in which a kernel takes its run-time sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, ScalarRef
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Atom, Boundary, Dim, Extremum, FloorDiv, Indirect, Mod, Poly, Sym


@dataclass(frozen=True, slots=True)
class Key:
    """The text, and the run-time sizes in the order of the text."""

    text: str
    symbols: tuple[str, ...]


class Writer:
    """Writes programs as text that does not depend on names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.exprs: dict[Expr, str] = {}
        self.polys: dict[Poly, str] = {}
        self.names: dict[str, str] = {}
        self.symbols: dict[str, str] = {}

    def poly(self, p: Poly) -> str:
        """A polynomial in a normal form: its terms sorted as text."""
        if not p.terms:
            return str(p.const)
        found = self.polys.get(p)
        if found is None:
            terms = sorted("*".join([str(c), *map(self.atom, m)]) for m, c in p.terms.items())
            found = self.polys[p] = "+".join([*terms, str(p.const)])
        return found

    def atom(self, a: Atom) -> str:
        """An atom; sizes are numbered in the order in which they are met."""
        match a:
            case Dim():
                return f"d{a.k}"
            case Sym():
                return self.symbols.setdefault(a.name, f"n{len(self.symbols)}")
            case FloorDiv():
                return f"div({self.poly(a.arg)},{self.poly(a.by)})"
            case Mod():
                return f"mod({self.poly(a.arg)},{self.poly(a.by)})"
            case Extremum():
                return f"{a.which}({self.poly(a.a)},{self.poly(a.b)})"
            case Boundary():
                return f"{a.mode}({self.poly(a.arg)},{self.poly(a.extent)})"
            case Indirect():
                return f"at({self.expr(a.expr)},{'' if a.extent is None else self.poly(a.extent)})"
        raise AssertionError(a)

    def expr(self, e: Expr) -> str:
        """The name of an expression, which gets a line of its own once."""
        found = self.exprs.get(e)
        if found is None:
            text = self.node(e)
            found = self.exprs[e] = f"e{len(self.exprs)}"
            self.lines.append(f"{found}={text}:{e.dtype.str[1:]}")
        return found

    def node(self, e: Expr) -> str:
        """An expression over the names of its arguments."""
        match e:
            case Const():
                return f"const {e.bits.hex()}"
            case ScalarRef():
                return f"scalar {self.names[e.name]}"
            case Index():
                return f"index {self.poly(e.poly)}"
            case Load():
                return f"{self.names[e.source]}[{','.join(map(self.poly, e.index))}]"
            case Cast():
                return f"cast {self.expr(e.arg)}"
            case Op():
                return f"{e.name}({','.join(map(self.expr, e.args))})"
        raise AssertionError(e)


def graph_key(graph: Graph) -> Key:
    """The key of a Graph."""
    w = write_graph(graph)
    return Key("\n".join(w.lines), tuple(w.symbols))


def write_graph(graph: Graph) -> Writer:
    """The text of a Graph, as the Writer that has written it."""
    w = Writer()
    for k, i in enumerate(graph.inputs):
        w.names[i.name] = f"i{k}"
        data = "" if i.data is None else f" {i.data.hex()}"
        w.lines.append(f"input {i.dtype.str[1:]} [{','.join(map(w.poly, i.shape))}] {i.layout}{data}")
    for k, c in enumerate(graph.scalars):
        w.names[c.name] = f"c{k}"
        w.lines.append(f"scalar {c.dtype.str[1:]}")
    for k, s in enumerate(graph.stages):
        w.names[s.name] = f"s{k}"
    for s in graph.stages:
        w.lines.append(f"stage {s.dtype.str[1:]} [{','.join(map(w.poly, s.shape))}]")
        if s.initial is not None:
            w.lines.append(f"initial {w.expr(s.initial)}")
        for d in s.updates:
            target = ",".join(map(w.poly, d.target))
            dims, rdims = ",".join(map(w.poly, d.dims)), ",".join(map(w.poly, d.rdims))
            how = f"{d.order}{' reorders' * d.reorders}{' joined' * d.joined}"
            w.lines.append(f"update {how} [{dims}|{rdims}] [{target}]={w.expr(d.value)}")
    w.lines.append(f"return {','.join(w.names[name] for name in graph.outputs)}")
    return w
