"""Counts the instructions that one thread of a kernel executes, by interpreting its PTX.

The integers of a kernel are computed as the PTX says, from the sizes of a call and the numbers of block and thread, so
that its loops have their trip counts, and its branches are taken or not. What is in memory, and floats, are not known:
a branch on them is not taken, and counted as a guess.

Instructions are those of PTX, not of machine code: a division is one, and a square root, which are several there.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MAX_STEPS = 200_000  # of one thread; then it is not followed further

Value = int | None  # bits of a register, not negative; predicates are 0 or 1; None: not known


@dataclass(frozen=True, slots=True)
class Instructions:
    """Those that one thread runs.

    Attributes:
        f32: arithmetic, comparisons and conversions of float32 and float16.
        f64: of float64.
        integers: of integers, those for addresses included.
        memory: loads, stores and atomics of memory of the device, of any width.
        shared: of memory of the block.
        others: branches, barriers, moves, reads of parameters, logic of predicates.
        guesses: branches whose condition is not known, taken as not to be followed.
        is_whole: did the thread end within `MAX_STEPS`?
    """

    f32: int
    f64: int
    integers: int
    memory: int
    shared: int
    others: int
    guesses: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction: ``@guard opcode operands``.

    Attributes:
        guard: the predicate that it depends on, and for which value it runs; None: it always runs.
        words: the opcode's: ``mul``, ``wide``, ``s32``.
        kind: which count of `Instructions` it belongs to.
    """

    guard: tuple[str, int] | None
    words: tuple[str, ...]
    operands: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One entry of PTX: its parameters' names, in order, its instructions, and which one a label is before."""

    parameters: tuple[str, ...]
    lines: tuple[Line, ...]
    labels: Mapping[str, int]


_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)(.*?)\n\{(.*?)\n\}", re.DOTALL)
_STATEMENT = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z]\w*(?:\.[\w:]+)*)\s*(.*)", re.DOTALL)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s]+")
_TYPE = re.compile(r"([bsuf])(8|16|32|64)$")


def kernels(text: str) -> dict[str, Kernel]:
    """The entries of a module, by name."""
    return {m[1]: _kernel(m[2], m[4]) for m in _ENTRY.finditer(text)}


def _kernel(parameters: str, body: str) -> Kernel:
    lines: list[Line] = []
    labels: dict[str, int] = {}
    for part in re.split(r";|(?<=:)\s*\n", re.sub(r"//[^\n]*", "", body)):
        text = part.strip().lstrip("{} \n\t")
        while (label := re.match(r"([$\w]+):\s*", text)) is not None:
            labels[label[1]] = len(lines)
            text = text[label.end() :].lstrip("{} \n\t")
        found = None if text.startswith(".") else _STATEMENT.match(text)
        if found is not None:
            guard = (found[2], int(not found[1])) if found[2] else None
            words = tuple(found[3].replace("::", ".").split("."))
            lines.append(Line(guard, words, tuple(_OPERAND.findall(found[4])), _kind(words)))
    return Kernel(tuple(re.findall(r"(\w+)\s*(?:\[\d+\]\s*)?(?:,|$)", parameters.strip())), tuple(lines), labels)


_OTHERS = frozenset({"bra", "ret", "exit", "bar", "barrier", "mov", "cvta", "call", "shfl", "membar", "fence", "brx"})
_ACCESSES = frozenset({"ld", "st", "atom", "red", "cp"})


def _kind(words: Sequence[str]) -> str:
    """Which count of `Instructions` an instruction belongs to."""
    if words[0] in _ACCESSES:
        where = "others" if "param" in words or "wait_group" in words or "commit_group" in words else "memory"
        return "shared" if "shared" in words and words[0] != "cp" else where
    if words[0] in _OTHERS or words[-1] == "pred":
        return "others"
    return "f64" if "f64" in words else "f32" if {"f32", "f16", "f16x2"} & {*words} else "integers"


def followed(kernel: Kernel, parameters: Sequence[Value], special: Mapping[str, int]) -> Instructions:
    """What a thread runs.

    Args:
        parameters: values of the kernel's, in order.
        special: values of registers such as ``%tid.x``.
    """
    thread = _Thread(kernel, dict(zip(kernel.parameters, parameters, strict=True)), dict(special))
    is_whole = thread.run()
    c = thread.counts
    counts = c["f32"], c["f64"], c["integers"], c["memory"], c["shared"], c["others"]
    return Instructions(*counts, thread.guesses, is_whole)


class _Thread:
    """Runs a kernel's integers.

    Attributes:
        values: of registers; those that are not there are not known.
    """

    def __init__(self, kernel: Kernel, parameters: Mapping[str, Value], values: dict[str, Value]) -> None:
        self.kernel, self.parameters, self.values = kernel, parameters, values
        self.counts: Counter[str] = Counter()
        self.guesses = 0

    def run(self) -> bool:
        """Until its end, or `MAX_STEPS`: then False."""
        at, lines = 0, self.kernel.lines
        for _ in range(MAX_STEPS):
            if at >= len(lines):
                return True
            x = lines[at]
            at += 1
            self.counts[x.kind] += 1
            if x.words[0] in ("bra", "ret", "exit", "brx"):
                if self.goes(x):
                    if x.words[0] != "bra":
                        return True
                    at = self.kernel.labels[x.operands[0]]
            elif x.guard is None or self.values.get(x.guard[0]) in (None, x.guard[1]):
                self.compute(x)
        return False

    def goes(self, x: Line) -> bool:
        """Does it leave what is in order?"""
        if x.guard is None:
            return True
        known = self.values.get(x.guard[0])
        self.guesses += known is None
        return known == x.guard[1]

    def compute(self, x: Line) -> None:
        """What a register becomes."""
        if not x.operands or x.words[0] in ("st", "red", "bar", "call"):
            return
        target = x.operands[0]
        if target.startswith("{"):
            for name in re.findall(r"%\w+", target):
                self.values[name] = None
            return
        known = _OPERATIONS.get(x.words[0])
        found = None
        if x.words[:2] == ("ld", "param"):
            found = self.parameters.get(x.operands[1].strip("[]"))
        elif known is not None and (_TYPE.match(x.words[-1]) or x.words[-1] == "pred"):
            found = known(x.words, [self.operand(o) for o in x.operands[1:]])
        self.values[target] = None if found is None else found & _mask(x.words)

    def operand(self, text: str) -> Value:
        if text.startswith("%"):
            return self.values.get(text)
        try:
            return int(text, 0) & (2**64 - 1)
        except ValueError:
            return None  # a float, or an address


def _mask(words: Sequence[str]) -> int:
    """The bits of a result."""
    if words[0] == "setp" or words[-1] == "pred":
        return 1
    m = _TYPE.match(words[1] if words[0] == "cvt" and _TYPE.match(words[1]) else words[-1])
    bits = 64 if m is None else int(m[2])
    return (1 << (2 * bits if "wide" in words else bits)) - 1


def _read(value: int, word: str) -> int:
    """Bits as a number of a type."""
    m = _TYPE.match(word)
    if m is None:
        return value
    bits = int(m[2])
    value &= (1 << bits) - 1
    return value - (1 << bits) if m[1] == "s" and value >> (bits - 1) else value


def _quotient(a: int, b: int) -> int | None:
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _rest(a: int, b: int) -> int | None:
    q = _quotient(a, b)
    return None if q is None else a - q * b


def _of_numbers(compute: Callable[..., int | None]) -> Callable[[Sequence[str], list[Value]], Value]:
    """An operation whose operands have the type that it ends with, and are all known."""

    def found(words: Sequence[str], values: list[Value]) -> Value:
        if any(v is None for v in values) or words[-1][0] == "f":
            return None
        return compute(*(_read(v, words[-1]) for v in values if v is not None))

    return found


def _product(words: Sequence[str], values: list[Value]) -> Value:
    high = int(_TYPE.sub(r"\2", words[-1])) if "hi" in words else 0
    return _of_numbers(lambda a, b, *c: (a * b >> high) + sum(c))(words, values)


def _shift(words: Sequence[str], values: list[Value]) -> Value:
    value, by = values
    if value is None or by is None:
        return None
    by = min(by & 0xFFFFFFFF, 64)
    return _read(value, words[-1]) << by if words[0] == "shl" else _read(value, words[-1]) >> by


def _selected(words: Sequence[str], values: list[Value]) -> Value:
    yes, no, which = values
    return (yes if yes == no else None) if which is None else yes if which else no


def _logic(words: Sequence[str], values: list[Value]) -> Value:
    """Also where one operand decides."""
    decides = {"and": 0, "or": 1 if words[-1] == "pred" else None}.get(words[0])
    if decides is not None and decides in values:
        return decides
    return _of_numbers({"and": operator.and_, "or": operator.or_, "xor": operator.xor}[words[0]])(words, values)


_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip


def _compared(words: Sequence[str], values: list[Value]) -> Value:
    if len(words) != 3 or len(values) != 2 or words[1] not in _COMPARED:
        return None
    return _of_numbers(lambda a, b: int(_COMPARED[words[1]](a, b)))(words, values)


def _converted(words: Sequence[str], values: list[Value]) -> Value:
    if any(word[0] == "f" for word in words[1:] if _TYPE.match(word)):
        return None
    return _of_numbers(lambda a: a)(words, values)


_OPERATIONS: Mapping[str, Callable[[Sequence[str], list[Value]], Value]] = {
    "add": _of_numbers(operator.add), "sub": _of_numbers(operator.sub), "mul": _product, "mad": _product,
    "div": _of_numbers(_quotient), "rem": _of_numbers(_rest), "min": _of_numbers(min), "max": _of_numbers(max),
    "and": _logic, "or": _logic, "xor": _logic, "not": _of_numbers(operator.invert), "neg": _of_numbers(operator.neg),
    "abs": _of_numbers(abs), "shl": _shift, "shr": _shift, "selp": _selected, "setp": _compared, "cvt": _converted,
    "mov": _of_numbers(lambda a: a), "cvta": _of_numbers(lambda a: a),
}  # fmt: skip
