"""What holds of every Graph between two passes; `HJIT_CHECK=1` looks at it after each of them."""

from __future__ import annotations

from collections.abc import Iterator

from hjit.errors import CompileError
from hjit.trace.ir.graph import Definition, Expr, Graph, Load, Op, ScalarRef, Stage, walk
from hjit.trace.ir.poly import Dim, Poly, Var, deep_atoms


def check_graph(graph: Graph, after: str = "") -> None:
    """Raise where a Graph is not well formed.

    Raises:
        CompileError: a fault of the pass that is named.
    """
    for fault in faults(graph):
        raise CompileError(f"invalid Graph{f' after {after}' if after else ''}: {fault}. Please report this.\n{graph}")


def faults(graph: Graph) -> Iterator[str]:
    """What is wrong with a Graph."""
    names = [x.name for x in (*graph.inputs, *graph.stages)]
    yield from (f"two arrays are named {n}" for n in dict.fromkeys(names) if names.count(n) > 1)
    yield from (f"the output {n} is no stage" for n in graph.outputs if n not in graph.by_name)
    known = dict(graph.shapes)
    scalars = {s.name: s.dtype for s in graph.scalars}
    done = {i.name for i in graph.inputs}
    for s in graph.stages:
        if not s.definitions:
            yield f"{s.name}: it has no definition"
        for k, d in enumerate(s.definitions):
            yield from (f"{s.name}, definition {k}: {x}" for x in _definition_faults(s, d))
            for e in walk(*d.exprs()):
                yield from (f"{s.name}, definition {k}: {x}" for x in _expr_faults(e, graph, scalars))
                if (
                    isinstance(e, Load)
                    and e.source in known
                    and e.source not in done
                    and (e.source != s.name or k == 0)
                ):
                    yield f"{s.name}, definition {k}: it loads {e.source}, which is computed later"
        done.add(s.name)


def _definition_faults(s: Stage, d: Definition) -> Iterator[str]:
    if len(d.target) != len(s.shape):
        yield f"{len(d.target)} indices for {len(s.shape)} axes"
    if d.value.dtype != s.dtype:
        yield f"a value of {d.value.dtype} for {s.dtype}"
    if d.order not in ("pure", "sequential") and not (isinstance(d.value, Op) and d.value.name == d.order):
        yield f"its order is {d.order}, which is not its operation"
    for p in (*d.target, *(p for e in walk(*d.exprs()) for p in e.polys)):
        yield from _index_faults(p, len(d.extents))


def _index_faults(p: Poly, ndims: int) -> Iterator[str]:
    for a in deep_atoms(p):
        if isinstance(a, Dim) and not 0 <= a.k < ndims:
            yield f"the index {p} has dimension {a.k} of {ndims}"
        if isinstance(a, Var):
            yield f"the index {p} has the loop variable {a}"


def _expr_faults(e: Expr, graph: Graph, scalars: dict[str, object]) -> Iterator[str]:
    match e:
        case Load():
            if e.source not in graph.shapes:
                yield f"it loads {e.source}, which there is not"
            elif len(e.index) != len(graph.shapes[e.source]):
                yield f"{e} has {len(e.index)} indices for {len(graph.shapes[e.source])} axes"
            elif e.dtype != graph.dtypes[e.source]:
                yield f"{e} is loaded as {e.dtype}, not {graph.dtypes[e.source]}"
        case ScalarRef():
            if e.name not in scalars:
                yield f"the scalar {e.name} is not one of the Graph"
            elif e.dtype != scalars[e.name]:
                yield f"the scalar {e.name} is {scalars[e.name]}, not {e.dtype}"
        case Op(name="select"):
            if len(e.args) != 3 or e.args[0].dtype.kind != "b" or len({e.dtype, *(a.dtype for a in e.args[1:])}) > 1:
                yield f"select of {', '.join(str(a.dtype) for a in e.args)} as {e.dtype}"
