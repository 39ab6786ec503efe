"""Interleaving: values that are stored adjacently, such as the channels of pixels, as vectors in memory order.

In ``out[y, x, c]`` with lanes along x, each channel is a separate vector; shuffles interleave the channels for the
store, and deinterleave those of loads. If all channels are computed in the same way from adjacent elements, vectors in
memory order are used instead, and values that the channels share are repeated. The variant with fewer shuffles is
chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hjit.kernels.llvm.builder.code import Code, Val, const, shuffle, splat, type_name
from hjit.kernels.llvm.memory.loads import looked_up, neighbours
from hjit.kernels.llvm.nest import indices, registers
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.vecmath import apply as vecmath
from hjit.kernels.lower.loopir import Register
from hjit.trace.ir.borders import INSIDE, fold_select
from hjit.trace.ir.expressions import Cast, Const, Expr, Load, Op, walk
from hjit.trace.ir.poly import Indirect, poly

Values = tuple[Expr, ...]  # one for each channel


def joined(code: Code, values: Sequence[Val], lanes: int) -> Iterator[Val]:
    """The vectors in which the lanes of some values are interleaved."""
    n = len(values)
    values = [splat(code, v, lanes) for v in values]
    for part in range(n):
        sources = [divmod(part * lanes + k, n) for k in range(lanes)]  # (lane, which value)
        result: Val | None = None
        for w in range(0, n, 2):
            a, b = values[w], values[min(w + 1, n - 1)]
            pair = shuffle(
                code, a, b, [lane if which == w else lanes + lane if which == w + 1 else -1 for lane, which in sources]
            )
            if result is None:
                result = pair
            else:
                result = shuffle(
                    code,
                    result,
                    pair,
                    [lanes + k if which in (w, w + 1) else k for k, (_, which) in enumerate(sources)],
                )
        assert result is not None
        yield result


def in_order(e: NestEmitter, values: Sequence[Expr]) -> list[Val] | None:
    """The vectors in which the lanes of some values alternate; None where it is better to join each value's own."""
    if e.vector is None or e.mask is not None:
        return None
    order = _Order(e, len(values))
    channels = tuple(map(fold_select, values))
    return order.vectors(channels) if order.is_better(channels) else None


def _arguments(values: Values) -> Iterator[Values]:
    """The arguments of operations, each those of all channels."""
    return (tuple(map(fold_select, args)) for args in zip(*(x.args for x in values), strict=True))


def _operation(x: Expr) -> tuple[Any, ...]:
    """The operation of an expression, without its arguments."""
    return type(x), x.name if isinstance(x, Op) else "", x.dtype, tuple(a.dtype for a in x.args)


def _chosen(x: Expr) -> Indirect | None:
    """Of a load with one index that is a value and nothing more, that value."""
    chosen = [p for p in x.index if p.exprs] if isinstance(x, Load) else []
    atoms = [a for p in chosen for a in p.atoms() if isinstance(a, Indirect)]
    return atoms[0] if len(chosen) == len(atoms) == 1 and chosen[0] == poly(atoms[0]) else None


class _Order:
    """Expressions of `n` channels in the order of memory."""

    def __init__(self, e: NestEmitter, n: int) -> None:
        self.e, self.n = e, n
        self.kinds: dict[Values, str] = {}
        self.moves: dict[Expr, bool] = {}
        self.found: dict[Values, list[Val]] = {}

    # -- is it worth it?
    def is_better(self, values: Values) -> bool:
        """Does it take fewer shuffles than interleaving `n` vectors, or deinterleaving them: `n - 1` each?"""
        self.look(values)
        joining = self.n * (self.n - 1)
        whole = {
            x
            for group, kind in self.kinds.items()
            if kind in ("same", "apart")
            for x in walk(*group)
            if isinstance(x, Load)
        }
        loaded = sum(kind == "loads" and not whole.intersection(group) for group, kind in self.kinds.items())
        kinds = list(self.kinds.values())
        repeated = sum(kind == "same" and self.is_moving(group[0]) for group, kind in self.kinds.items())
        return self.n * repeated + joining * kinds.count("apart") < joining * (1 + loaded)

    def look(self, values: Values) -> None:
        """Note the kinds of some values and of what they are computed from."""
        if values not in self.kinds:
            kind = self.kinds[values] = self.kind(values)
            if kind == "alike":
                for args in _arguments(values):
                    self.look(args)
            elif kind == "lookups":
                self.look(tuple(map(self.chosen_by, values)))

    def kind(self, values: Values) -> str:
        """The relation of values to each other, which determines how `vectors` computes them."""
        first = values[0]
        if all(x == first for x in values):
            return "same"
        if not any(map(self.is_moving, values)):
            return "fixed"
        if len(set(map(_operation, values))) > 1:
            return "apart"
        match first:
            case Load():
                loads = [x for x in values if isinstance(x, Load)]
                return "loads" if self.are_neighbours(loads) else "lookups" if self.are_lookups(loads) else "apart"
            case Op(name=name):
                return "apart" if name == INSIDE else "alike"
        return "alike" if isinstance(first, Cast) else "apart"

    def is_moving(self, x: Expr) -> bool:
        """Does an expression differ between lanes?"""
        found = self.moves.get(x)
        if found is None:
            found = any(map(self.e.varies, x.polys)) or any(map(self.is_moving, x.args))
            found = self.moves[x] = found or (isinstance(x, Register) and registers.lanes(self.e, x) > 1)
        return found

    def are_neighbours(self, loads: Sequence[Load]) -> bool:
        """Are loads adjacent, followed by those of the next lane?"""
        e, first = self.e, loads[0]
        flat = e.flat(first.source, first.index)
        assert e.vector is not None
        if flat.coefficient(e.vector) != self.n or any(x.source != first.source for x in loads):
            return False
        return all(e.flat(x.source, x.index) - flat == k for k, x in enumerate(loads))

    def are_lookups(self, loads: Sequence[Load]) -> bool:
        """Are they elements of one table, each chosen by a value of its own?"""
        found = [_chosen(x) for x in loads]
        if None in found or not all(self.is_moving(x) for x in loads):
            return False
        tables = {
            (x.source, self.e.flat(x.source, x.index) - poly(a), a.extent)
            for x, a in zip(loads, found, strict=True)
            if a is not None
        }
        return len(tables) == 1 and not self.e.varies(next(iter(tables))[1])

    def chosen_by(self, x: Expr) -> Expr:
        """The value that chooses the element of a lookup."""
        a = _chosen(x)
        assert a is not None
        return fold_select(indices.in_32_bits(a) or a.expr)

    # -- code
    def vectors(self, values: Values) -> list[Val]:
        """As many vectors as there are values; scalars where all lanes of them are the same."""
        found = self.found.get(values)
        if found is None:
            found = self.found[values] = list(self._vectors(values))
        return found

    def _vectors(self, values: Values) -> Iterator[Val]:
        e, code, n, lanes = self.e, self.e.code, self.n, self.e.lanes
        first = values[0]
        match self.kinds[values]:
            case "same":
                v = e.value(first)
                for part in range(n):
                    yield v if v.lanes == 1 else shuffle(code, v, v, [(part * lanes + k) // n for k in range(lanes)])
            case "fixed":
                yield from self._fixed(values)
            case "loads":
                assert isinstance(first, Load)
                yield from neighbours(e, first, n)
            case "alike":
                parts = [self.vectors(args) for args in _arguments(values)]
                for args in zip(*parts, strict=True):
                    if isinstance(first, Op):
                        yield e.applied(first, args)
                    else:
                        yield vecmath.convert(code, args[0], first.dtype)
            case "lookups":
                a = _chosen(first)
                assert isinstance(first, Load) and a is not None
                for index in self.vectors(tuple(map(self.chosen_by, values))):
                    yield looked_up(e, first, a, index)
            case _:
                yield from joined(code, [e.value(x) for x in values], lanes)

    def _fixed(self, values: Values) -> Iterator[Val]:
        """Values that are the same in all lanes, interleaved."""
        e, code, n, lanes = self.e, self.e.code, self.n, self.e.lanes
        given = [e.value(x) for x in values]
        if all(isinstance(x, Const) for x in values):
            one = type_name(given[0].dtype)
            for part in range(n):
                texts = (f"{one} {given[(part * lanes + k) % n].text}" for k in range(lanes))
                yield const(0, given[0].dtype, lanes)._replace(text=f"<{', '.join(texts)}>")
            return
        v = splat(code, given[0], n)  # there may be more channels than lanes
        for k, x in enumerate(given[1:], 1):
            v = code.emit(f"insertelement {v}, {x}, i64 {k}", v.dtype, n, v, x)
        for part in range(n):
            yield shuffle(code, v, v, [(part * lanes + k) % n for k in range(lanes)])
