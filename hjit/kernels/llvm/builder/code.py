"""Writing LLVM IR as text: values, scopes, and the placement of instructions.

Each loop opens a `Scope`. A pure instruction is placed in the outermost scope in which all its operands are
known, and an instruction that is already there is used again: loop-invariant code motion and common-subexpression
elimination happen while the text is written, so LLVM has little left to find.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from hjit.kernels.llvm.builder.blocks import with_marks

_CONTRACTED = ("fadd ", "fsub ", "fmul ", "fdiv ")  # what fast_math lets LLVM fuse
_TYPES = {"f2": "half", "f4": "float", "f8": "double", "b1": "i1"}
BOOL, I64, I32, I8 = (np.dtype(t) for t in ("?", "i8", "i4", "u1"))

Lines = list["str | Lines"]  # of code, those of loops inside it as lists of their own


@lru_cache(maxsize=256)
def type_name(dtype: np.dtype[Any], lanes: int = 1) -> str:
    """The LLVM type of a value: ``<16 x float>``; bool is i1."""
    one = _TYPES.get(dtype.str[1:]) or f"i{8 * dtype.itemsize}"
    return one if lanes == 1 else f"<{lanes} x {one}>"


class Val(NamedTuple):  # a tuple: there are many
    """An SSA value or a constant.

    Attributes:
        text: its name, or its literal.
        dtype: of one lane; bool values are i1, pointers have dtype uint64 and `lanes` 1 and `pointer` True.
        lanes: 1 for a scalar.
        depth: of the scope that it is computed in; 0 is the function.
    """

    text: str
    dtype: np.dtype[Any]
    lanes: int = 1
    depth: int = 0
    pointer: bool = False

    @property
    def type(self) -> str:
        return "ptr" if self.pointer else type_name(self.dtype, self.lanes)

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


@dataclass(slots=True)
class Scope:
    """The code of one loop body: lines, and nested lists of lines of the loops inside it."""

    lines: Lines = field(default_factory=list)
    here: Lines = field(default_factory=list)
    memo: dict[str, Val] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lines.append(self.here)

    def split(self, inner: Lines) -> None:
        """Store `inner` after what is there; what comes now for this scope goes before it, until `resume`."""
        self.lines.append(inner)

    def resume(self) -> None:
        """Go on after the inner code."""
        self.here = []
        self.lines.append(self.here)


class Code:
    """One LLVM function being written, with the declarations that it needs."""

    def __init__(self, width: int = 64, features: frozenset[str] = frozenset(), fast: bool = False) -> None:
        self.scopes: list[Scope] = [Scope()]
        self.declarations: dict[str, None] = {}
        self.width, self.features, self.fast = width, features, fast
        self._count = 0
        self._is_pinned = False

    # -- instructions
    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def emit(
        self, rhs: str, dtype: DTypeLike, lanes: int, *operands: Val, pointer: bool = False, version: int = 0
    ) -> Val:
        """A pure instruction, placed by its operands unless it is `pinned`; `rhs` is its text after the equals sign.

        Args:
            version: of the memory that it reads; one of another version is not shared.
        """
        if self.fast and rhs.startswith(_CONTRACTED):
            opcode, _, rest = rhs.partition(" ")
            rhs = f"{opcode} contract nsz arcp {rest}"
        if self._is_pinned:
            return self.here(rhs, dtype, lanes, pointer)
        depth = 0
        for o in operands:
            if o.depth > depth:
                depth = o.depth
        scope = self.scopes[depth]
        key = rhs if not version else f"{rhs} ; {version}"
        found = scope.memo.get(key)
        if found is None:
            found = Val(f"%{self.fresh()}", np.dtype(dtype), lanes, depth, pointer)
            scope.here.append(f"  {found.text} = {rhs}")
            scope.memo[key] = found
        elif found.dtype is not dtype:  # the text does not say: signed and unsigned integers have one type
            found = found._replace(dtype=np.dtype(dtype))
        return found

    def effect(self, line: str) -> None:
        """An instruction with an effect, in order, in the innermost scope."""
        self.scopes[-1].here.append(f"  {line}")

    def here(self, rhs: str, dtype: DTypeLike, lanes: int = 1, pointer: bool = False) -> Val:
        """An instruction that depends on memory: in order, in the innermost scope, never shared."""
        v = Val(f"%{self.fresh()}", np.dtype(dtype), lanes, len(self.scopes) - 1, pointer)
        self.scopes[-1].here.append(f"  {v.text} = {rhs}")
        return v

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """Instructions emitted meanwhile stay in their block: they are neither hoisted nor shared with later code."""
        self._is_pinned = True
        try:
            yield
        finally:
            self._is_pinned = False

    def any_lane(self, x: Val) -> Val:
        """Does a truth value hold in any lane?"""
        return x if x.lanes == 1 else self.call(f"llvm.vector.reduce.or.v{x.lanes}i1", BOOL, 1, x)

    def declare(self, text: str) -> None:
        """A line outside of all functions: an external function, as LLVM's ``declare`` line."""
        self.declarations[text] = None

    def call(self, function: str, dtype: DTypeLike, lanes: int, *args: Val) -> Val:
        """Call a pure external function or intrinsic, declaring it."""
        result = type_name(np.dtype(dtype), lanes)
        self.declare(f"declare {result} @{function}({', '.join(a.type for a in args)})")
        return self.emit(f"call {result} @{function}({', '.join(map(str, args))})", dtype, lanes, *args)

    def opaque(self, x: Val) -> Val:
        """Hide a number, or a vector that fits in a register, from LLVM's optimiser."""
        register = "r" if x.lanes == 1 else "v"
        return self.emit(f'call {x.type} asm "", "={register},0"({x})', x.dtype, x.lanes, x)

    # -- scopes
    def open(self) -> Scope:
        scope = Scope()
        self.scopes[-1].split(scope.lines)
        self.scopes.append(scope)
        return scope

    def sibling(self) -> None:
        """Close the scope and open another that only one of the two runs: what they share goes before both."""
        self.scopes.pop()
        self.open()

    def close(self) -> None:
        self.scopes.pop()
        self.scopes[-1].resume()

    def label(self, name: str) -> None:
        self.scopes[-1].here.append(f"{name}:")

    def text(self) -> str:
        """The body of the function."""
        out: list[str] = []
        _flatten(self.scopes[0].lines, out)
        return "\n".join(with_marks(out, self.width))


def _flatten(lines: Lines, out: list[str]) -> None:
    for line in lines:
        if isinstance(line, list):
            _flatten(line, out)
        else:
            out.append(line)


# -- values


def const(value: Any, dtype: DTypeLike, lanes: int = 1) -> Val:
    """A constant, the same in all lanes."""
    if dtype is I64 and lanes == 1 and type(value) is int:  # most are parts of indices
        return Val(str(value), I64)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        wide = np.float64(np.asarray(value, dtype))
        bits = int(np.asarray(wide, np.float64).view(np.uint64))
        if dtype == np.float16:
            text = f"0xH{int(np.asarray(value, dtype).view(np.uint16)):04X}"
        else:
            text = f"0x{bits:016X}"
    elif dtype.kind == "b":
        text = "true" if value else "false"
    else:
        text = str(int(np.asarray(value).astype(dtype)) if not isinstance(value, int) else value)
    if lanes > 1:
        one = type_name(dtype)
        text = "zeroinitializer" if text in ("0", "false", "0x0000000000000000") else f"splat ({one} {text})"
    return Val(text, dtype, lanes)


def splat(code: Code, x: Val, lanes: int) -> Val:
    """A scalar broadcast to all lanes."""
    if x.lanes == lanes:
        return x
    if not x.text.startswith("%"):
        one = type_name(x.dtype)
        return Val(f"splat ({one} {x.text})", x.dtype, lanes, x.depth)
    wide = type_name(x.dtype, lanes)
    first = code.emit(f"insertelement {wide} poison, {x}, i64 0", x.dtype, lanes, x)
    return code.emit(
        f"shufflevector {wide} {first.text}, {wide} poison, <{lanes} x i32> zeroinitializer", x.dtype, lanes, first
    )


def shuffle(code: Code, a: Val, b: Val, mask: Sequence[int]) -> Val:
    """``shufflevector``; -1 leaves a lane undefined."""
    if _is_rewritten_for_ever(code, a.dtype, mask):
        return _opaque(code, _shuffled(code, _opaque(code, a), _opaque(code, b), mask))
    return _shuffled(code, a, b, mask)


def _shuffled(code: Code, a: Val, b: Val, mask: Sequence[int]) -> Val:
    text = ", ".join("i32 poison" if k < 0 else f"i32 {k}" for k in mask)
    return code.emit(f"shufflevector {a}, {b}, <{len(mask)} x i32> <{text}>", a.dtype, len(mask), a, b)


def _opaque(code: Code, x: Val) -> Val:
    """A vector of bytes of which LLVM is to know nothing; as it is where it does not fill registers."""
    if x.lanes < 16 or x.lanes & (x.lanes - 1):
        return x
    if x.lanes <= code.width:
        return code.opaque(x)
    half = x.lanes // 2
    low, high = (_opaque(code, _shuffled(code, x, x, range(k, k + half))) for k in (0, half))
    return _shuffled(code, low, high, range(x.lanes))


def _is_rewritten_for_ever(code: Code, dtype: np.dtype[Any], mask: Sequence[int]) -> bool:
    """Are these bytes that fill registers of 64, with some of the lanes repeated?

    LLVM 20 and 22 move operations on such vectors to the other side of the shuffle and back, without an end: ``x << 1``
    and ``(x & y) + ((x ^ y) >> 1)``, before it or after it.
    """
    if code.width < 64 or dtype.itemsize > 1 or dtype == BOOL or len(mask) < 64 or len(mask) & (len(mask) - 1):
        return False
    return 1 < len(set(mask)) < len(mask) and min(mask) >= 0
