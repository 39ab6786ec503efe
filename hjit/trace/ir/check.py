"""The invariants of a Graph, as a list of named rules; `HJIT_CHECK=1` checks them after each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from hjit.errors import CompileError
from hjit.trace.ir.analysis.accumulations import accumulation_of
from hjit.trace.ir.expressions import Expr, Load, Op, ScalarRef, walk
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import Dim, Poly, Var, deep_atoms


@dataclass(frozen=True, slots=True)
class CheckedDefinition:
    """A definition of a stage, by its number, with the Graph around it."""

    graph: Graph
    positions: dict[str, int]  # of the stages in the Graph
    stage: Stage
    number: int
    definition: Definition

    def __str__(self) -> str:
        return f"{self.stage.name}, definition {self.number}"


def check_graph(graph: Graph, after: str = "", before: Graph | None = None) -> None:
    """Raise an error if a Graph is not well formed.

    Args:
        after: the pass that has made it.
        before: what the pass was given, which is well formed.

    Raises:
        CompileError: a rule does not hold; a fault of the pass that is named.
    """
    for rule, fault in faults(graph, before):
        where = f" after {after}" if after else ""
        raise CompileError(f"invalid Graph{where}: {rule}: {fault}. Please report this.\n{graph}")


def faults(graph: Graph, before: Graph | None = None) -> Iterator[tuple[str, str]]:
    """The violated rules, by name, with a description.

    Args:
        before: a Graph that is well formed: stages that are as there are not looked at again.
    """
    for check in GRAPH_RULES:
        yield from ((check.__name__, fault) for fault in check(graph))
    positions = {s.name: n for n, s in enumerate(graph.stages)}
    for s in graph.stages:
        if before is not None and _is_as_before(s, graph, positions, before):
            continue
        for number, d in enumerate(s.definitions):
            checked = CheckedDefinition(graph, positions, s, number, d)
            for name, fault in _faults_at(checked):
                yield name, f"{checked}: {fault}"


def _is_as_before(s: Stage, graph: Graph, positions: Mapping[str, int], before: Graph) -> bool:
    """Is everything that the rules check about a stage unchanged: the stage, its sources, and their order?"""
    if s != before.by_name.get(s.name) or graph.scalars != before.scalars:
        return False
    for name in s.sources - {s.name}:
        ours, theirs = graph.arrays.get(name), before.arrays.get(name)
        if ours is None or theirs is None or (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return False
        if positions.get(name, -1) > positions[s.name]:
            return False
    return True


def _faults_at(checked: CheckedDefinition) -> Iterator[tuple[str, str]]:
    d = checked.definition
    exprs = list(walk(*d.exprs()))
    for check in DEFINITION_RULES:
        yield from ((check.__name__, fault) for fault in check(checked))
    for p in (*d.target, *(p for e in exprs for p in e.polys)):
        for of_index in INDEX_RULES:
            yield from ((of_index.__name__, fault) for fault in of_index(checked, p))
    for e in exprs:
        for of_expr in EXPR_RULES:
            yield from ((of_expr.__name__, fault) for fault in of_expr(checked, e))


# -- of the Graph


def names_are_unique(graph: Graph) -> Iterator[str]:
    """No two inputs or stages have one name."""
    names = [*(i.name for i in graph.inputs), *(s.name for s in graph.stages)]
    yield from (f"two arrays are named {n}" for n in dict.fromkeys(names) if names.count(n) > 1)


def outputs_are_stages(graph: Graph) -> Iterator[str]:
    """Every output is the name of a stage."""
    yield from (f"the output {n} is no stage" for n in graph.outputs if n not in graph.by_name)


def stages_are_defined(graph: Graph) -> Iterator[str]:
    """Every stage has a definition."""
    yield from (f"{s.name} has no definition" for s in graph.stages if not s.definitions)


# -- of a definition


def target_has_an_index_per_axis(checked: CheckedDefinition) -> Iterator[str]:
    """A target has as many indices as its stage has axes."""
    target, shape = checked.definition.target, checked.stage.shape
    if len(target) != len(shape):
        yield f"{len(target)} indices for {len(shape)} axes"


def value_has_the_dtype(checked: CheckedDefinition) -> Iterator[str]:
    """A value has its stage's dtype."""
    found, dtype = checked.definition.value.dtype, checked.stage.dtype
    if found != dtype:
        yield f"a value of {found} for {dtype}"


def order_is_the_operation(checked: CheckedDefinition) -> Iterator[str]:
    """An associative order is the operation of the value, whose first argument is the element itself, which nothing
    else reads."""
    d = checked.definition
    if d.order in ("pure", "sequential"):
        return
    x = accumulation_of(checked.stage.name, d)
    if x is None or x.op != d.order or x.is_reversed or x.dtype != d.value.dtype:
        yield f"the order is {d.order}, and the update is not {d.order}(own element, element)"


def joined_updates_are_alike(checked: CheckedDefinition) -> Iterator[str]:
    """Updates that run together are sequential, have the same dimensions, and follow another update."""
    d = checked.definition
    if not d.joined:
        return
    before = checked.stage.definitions[checked.number - 1]
    if checked.number == 0 or (checked.number == 1 and checked.stage.initial is not None):
        yield "the first update is joined to none"
    elif (d.dims, d.rdims, d.order) != (before.dims, before.rdims, before.order) or d.order != "sequential":
        yield "it is joined to an update of other dimensions, or another order"


# -- of an index


def dimensions_exist(checked: CheckedDefinition, p: Poly) -> Iterator[str]:
    """An index uses only dimensions of its definition."""
    ndims = len(checked.definition.extents)
    for a in deep_atoms(p):
        if isinstance(a, Dim) and not 0 <= a.k < ndims:
            yield f"the index {p} has dimension {a.k} of {ndims}"


def loop_variables_are_lowered(checked: CheckedDefinition, p: Poly) -> Iterator[str]:
    """An index uses no variables of the loop IR."""
    yield from (f"the index {p} has the loop variable {a}" for a in deep_atoms(p) if isinstance(a, Var))


# -- of an expression


def sources_exist(checked: CheckedDefinition, e: Expr) -> Iterator[str]:
    """A load reads an input or a stage."""
    if isinstance(e, Load) and e.source not in checked.graph.arrays:
        yield f"there is no {e.source}, which it loads"


def sources_are_computed_first(checked: CheckedDefinition, e: Expr) -> Iterator[str]:
    """A load reads an input or an earlier stage, or, in an update, the stage itself."""
    if isinstance(e, Load) and e.source in checked.positions:
        here, there = checked.positions[checked.stage.name], checked.positions[e.source]
        if there > here or (there == here and checked.number == 0):
            yield f"it loads {e.source}, which is computed later"


def loads_have_an_index_per_axis(checked: CheckedDefinition, e: Expr) -> Iterator[str]:
    """A load has as many indices as its source has axes."""
    source = checked.graph.arrays.get(e.source) if isinstance(e, Load) else None
    if isinstance(e, Load) and source is not None and len(e.index) != len(source.shape):
        yield f"{e} has {len(e.index)} indices for {len(source.shape)} axes"


def loads_have_the_dtype(checked: CheckedDefinition, e: Expr) -> Iterator[str]:
    """A load has its source's dtype."""
    source = checked.graph.arrays.get(e.source) if isinstance(e, Load) else None
    if source is not None and e.dtype != source.dtype:
        yield f"{e} is loaded as {e.dtype}, not {source.dtype}"


def scalars_exist(checked: CheckedDefinition, e: Expr) -> Iterator[str]:
    """A scalar is one of the Graph's, of its dtype."""
    if isinstance(e, ScalarRef):
        dtype = next((s.dtype for s in checked.graph.scalars if s.name == e.name), None)
        if dtype is None:
            yield f"the scalar {e.name} is not one of the Graph"
        elif e.dtype != dtype:
            yield f"the scalar {e.name} is {dtype}, not {e.dtype}"


def selects_have_one_dtype(checked: CheckedDefinition, e: Expr) -> Iterator[str]:
    """A select has a bool and two values of its own dtype."""
    if isinstance(e, Op) and e.name == "select":
        condition, *values = (a.dtype for a in e.args)
        if condition.kind != "b" or values != [e.dtype, e.dtype]:
            yield f"select of {', '.join(str(a.dtype) for a in e.args)} as {e.dtype}"


GRAPH_RULES: tuple[Callable[[Graph], Iterator[str]], ...] = (
    names_are_unique,
    outputs_are_stages,
    stages_are_defined,
)
DEFINITION_RULES: tuple[Callable[[CheckedDefinition], Iterator[str]], ...] = (
    target_has_an_index_per_axis,
    value_has_the_dtype,
    order_is_the_operation,
    joined_updates_are_alike,
)
INDEX_RULES: tuple[Callable[[CheckedDefinition, Poly], Iterator[str]], ...] = (
    dimensions_exist,
    loop_variables_are_lowered,
)
EXPR_RULES: tuple[Callable[[CheckedDefinition, Expr], Iterator[str]], ...] = (
    sources_exist,
    sources_are_computed_first,
    loads_have_an_index_per_axis,
    loads_have_the_dtype,
    scalars_exist,
    selects_have_one_dtype,
)
