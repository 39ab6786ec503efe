"""What the bytecode of a function says about its loops over ``range(...)``: can all iterations be traced as one?

The body may do arithmetic, call functions, read and write items, and take branches that stay inside it. Which of its
variables go on to the next iteration, or to what follows the loop, is found by following the jumps.
"""

from __future__ import annotations

import bisect
import dis
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from hjit.trace.tracing.frames import instructions

# Instructions of a body, of CPython 3.11 to 3.13; with any other one the loop is traced iteration by iteration.
_ALLOWED = frozenset(
    """NOP CACHE EXTENDED_ARG PUSH_NULL POP_TOP COPY SWAP LOAD_CONST LOAD_GLOBAL LOAD_DEREF LOAD_ATTR LOAD_METHOD
    LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST
    PRECALL CALL CALL_KW KW_NAMES BINARY_OP BINARY_SUBSCR STORE_SUBSCR BINARY_SLICE STORE_SLICE
    BUILD_TUPLE BUILD_LIST BUILD_SLICE LIST_EXTEND UNPACK_SEQUENCE UNARY_NEGATIVE UNARY_POSITIVE UNARY_NOT UNARY_INVERT
    COMPARE_OP IS_OP CONTAINS_OP TO_BOOL GET_ITER FOR_ITER END_FOR JUMP_FORWARD JUMP_BACKWARD
    JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
    POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE
    POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
    LOAD_ASSERTION_ERROR RAISE_VARARGS""".split()
)
# What the functions that `exits`, `choices` and `branches` make call: a loop is left; a ``while``; a number is chosen;
# and, or; a condition; what is done where it holds, and where not.
LEAVES, WHILE, APPEND, SORT = "__hjit_leaves__", "__hjit_while__", "__hjit_append__", "__hjit_sort__"
INDEXED, STACKED = "__hjit_indexed__", "__hjit_stacked__"
FILLED, CONTAINS, PLUS = "__hjit_filled__", "__hjit_contains__", "__hjit_plus__"
CHOOSES, CHOOSE, BOTH, EITHER = "__hjit_chooses__", "__hjit_choose__", "__hjit_both__", "__hjit_either__"
BEGIN, TRUTH, JOINED = "__hjit_begin__", "__hjit_truth__", "__hjit_joined__"
ONCE, OTHERWISE, UNSET = "__hjit_once__", "__hjit_otherwise__", "__hjit_unset__"
OWN = frozenset((LEAVES, WHILE, APPEND, SORT, INDEXED, STACKED, CHOOSES, CHOOSE, BOTH, EITHER))
OWN |= {FILLED, CONTAINS, PLUS, BEGIN, TRUTH, JOINED, ONCE, OTHERWISE, UNSET}
ITERABLES = frozenset(("range", "enumerate", "zip"))  # what makes the elements that a loop is traced over as one
_JUMPS = frozenset("JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT".split())
_ENDS = frozenset("RETURN_VALUE RETURN_CONST RAISE_VARARGS RERAISE".split())
_LASTING = ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_NAME", "DELETE_", "YIELD_")  # what a helper may not do
_LOCAL = re.compile("(LOAD|STORE|DELETE)_FAST")


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop ``for y in range(...)``, ``for y in reversed(range(...))``, or over elements.

    Attributes:
        offset: of its head, the FOR_ITER.
        is_reversed: does it run over ``reversed(range(...))``?
        kept: local variables that the body sets and that are read in the next iteration or after the loop.
        read: local variables that an iteration reads as it finds them.
        names: global variables that the body reads.
        left: the variable that says whether it has been left, see `exits`; "" of a loop that cannot be.
        has_exits: can it, or a loop inside, be left?
        variable: the one that it sets; "" of several.
        end: the offset of what follows it.
    """

    offset: int
    is_reversed: bool
    kept: frozenset[str]
    read: frozenset[str]
    names: frozenset[str]
    left: str = ""
    has_exits: bool = False
    variable: str = ""
    end: int = 0


@lru_cache(maxsize=1024)
def loops(code: CodeType) -> dict[int, Loop]:
    """For each offset at which the frame of `code` may stand while a loop begins, that loop: while it calls ``range``,
    or asks for the iterator of something else."""
    steps, flow = _flow(code)
    found: dict[int, Loop] = {}
    for k, head in enumerate(steps):
        if head.opname != "FOR_ITER" or steps[k - 1].opname != "GET_ITER":
            continue
        after = k - 1  # what follows the call of range
        is_reversed = _calls(steps, after, "reversed")
        if is_reversed:
            after = _call_start(steps, after)
        loop = _loop(flow, head, steps[k - 1].offset, is_reversed)
        if loop is None:
            continue
        found[steps[k - 1].offset] = loop
        if steps[after - 1].opname == "CALL":
            for offset in range(steps[_call_start(steps, after)].offset, steps[after].offset, 2):
                found[offset] = loop
    return found


def _call_start(steps: list[dis.Instruction], after: int) -> int:
    """The number of the first instruction of the CALL before instruction `after`: 3.11 has a PRECALL."""
    return after - 2 if steps[after - 2].opname == "PRECALL" else after - 1


def _calls(steps: list[dis.Instruction], after: int, name: str) -> bool:
    """Is what is called before instruction `after`, on the result of a range alone, the builtin `name`?"""
    if steps[after - 1].opname != "CALL" or steps[after - 1].arg != 1:
        return False
    inner = _call_start(steps, after)
    if steps[inner - 1].opname != "CALL":
        return False
    at = next((k for k in reversed(range(inner)) if steps[k].argval == "range"), 0)
    return at > 0 and steps[at - 1].opname == "LOAD_GLOBAL" and steps[at - 1].argval == name


def _loop(flow: _Flow, head: dis.Instruction, entry: int, is_reversed: bool) -> Loop | None:
    start = flow.following[head.offset]
    region = flow.reached([start], {head.offset})
    left, has_exits = "", any(flow.steps[o].argval == LEAVES for o in region)
    if flow.is_left(head, region):
        region &= flow.leading(head.offset, entry)
        own = _left(flow, region)
        left = next(iter(own)) if len(own) == 1 else ""
        if not left:
            return None
    body = [flow.steps[offset] for offset in sorted(region)]
    if any(s.opname not in _ALLOWED for s in body) or flow.is_resumed(region | {head.offset}):
        return None
    first = [name for kind, name in _locals(flow.steps[start]) if kind == "STORE"]
    variable = first[0] if len(first) == 1 else ""
    stored = {name for s in body for kind, name in _locals(s) if kind != "LOAD"}
    loaded = {name for s in body for kind, name in _locals(s) if kind == "LOAD"}
    cells = {str(s.argval) for s in body if s.opname == "LOAD_DEREF"}
    read = {name for name in loaded if flow.is_read(name, [start], {head.offset})}
    after = [head.argval, *flow.handlers]
    kept = {name for name in stored if name in read or name == left or flow.is_read(name, after, set())}
    names = {str(s.argval) for s in body if s.opname == "LOAD_GLOBAL"} - OWN
    return Loop(
        head.offset,
        is_reversed,
        frozenset(kept),
        frozenset(read | cells),
        frozenset(names),
        left,
        has_exits,
        variable,
        head.argval,
    )


def _left(flow: _Flow, region: set[int]) -> set[str]:
    """The variables that a loop sets where it is left: those of loops inside are set before these begin, too."""
    told, begun = set[str](), set[str]()
    for offset in sorted(region):
        s = flow.steps[offset]
        after = flow.steps.get(flow.following.get(offset, -1))
        if s.opname == "LOAD_GLOBAL" and s.argval == LEAVES and after is not None:
            told.add(str(after.argval))
        elif s.opname == "LOAD_CONST" and s.argval is False and after is not None:
            begun |= {name for kind, name in _locals(after) if kind == "STORE"}
    return told - begun


def _locals(step: dis.Instruction) -> Iterator[tuple[str, str]]:
    """What an instruction does to local variables, in order; 3.13 has some that do two things."""
    kinds = _LOCAL.findall(step.opname)
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return zip(kinds, map(str, names), strict=False)


class _Flow:
    """The jumps of a function."""

    def __init__(self, code: CodeType, steps: list[dis.Instruction]) -> None:
        self.steps = {s.offset: s for s in steps}
        self._offsets = sorted(self.steps)
        self.following = {a.offset: b.offset for a, b in itertools.pairwise(steps)}
        self.protected = [(e.start, e.end, self._at(e.target)) for e in dis.Bytecode(code).exception_entries]  # type: ignore[attr-defined]
        self.handlers = [s.offset for s in steps if s.opname == "PUSH_EXC_INFO"]
        self._after: dict[int, list[int]] = {}
        for s in steps:
            targets = (
                []
                if s.opname in _JUMPS or s.opname in _ENDS
                else [self.following[s.offset]]
                if s.offset in self.following
                else []
            )
            if s.opcode in dis.hasjrel or s.opcode in dis.hasjabs:
                targets.append(self._at(s.argval))
            self._after[s.offset] = targets

    def _at(self, target: int) -> int:
        """The instruction at the target of a jump, which may be the EXTENDED_ARG before it."""
        return self._offsets[bisect.bisect_left(self._offsets, target)]

    def at_jump(self, s: dis.Instruction) -> tuple[int, ...]:
        """Where an instruction may go to."""
        return tuple(self._after[s.offset])

    def reached(self, starts: Iterable[int], stops: set[int]) -> set[int]:
        """The instructions that can follow, up to those of `stops`."""
        seen: set[int] = set()
        work = [o for o in starts if o not in stops]
        while work:
            o = work.pop()
            if o not in seen:
                seen.add(o)
                work += [t for t in self._after[o] if t not in stops]
        return seen

    def is_left(self, head: dis.Instruction, region: set[int]) -> bool:
        """Can a loop, of whose body a region is all that can follow, break or return?"""
        return any(
            not head.offset < offset < head.argval or self.steps[offset].opname in ("RETURN_VALUE", "RETURN_CONST")
            for offset in region
        )

    def leading(self, to: int, stop: int) -> set[int]:
        """The instructions from which `to` can follow without `stop`."""
        before: dict[int, list[int]] = {}
        for o, after in self._after.items():
            for t in after:
                before.setdefault(t, []).append(o)
        seen: set[int] = set()
        work = [to]
        while work:
            o = work.pop()
            if o not in seen and o != stop:
                seen.add(o)
                work += before.get(o, ())
        return seen - {to}

    def is_resumed(self, region: set[int]) -> bool:
        """Can the loop go on after an exception in its body has been handled?"""
        targets = {target for start, end, target in self.protected if any(start <= o < end for o in region)}
        return not region.isdisjoint(self.reached(targets, set()))

    def is_read(self, name: str, starts: Iterable[int], stops: set[int]) -> bool:
        """Can the value that a local variable has at one of `starts` be read?"""
        seen: set[int] = set()
        work = list(map(self._at, starts))
        while work:
            o = work.pop()
            if o in seen or o in stops:
                continue
            seen.add(o)
            touched = next((kind for kind, n in _locals(self.steps[o]) if n == name), None)
            if touched == "LOAD":
                return True
            if touched is None:
                work += self._after[o]
        return False


@lru_cache(maxsize=1024)
def has_exits(code: CodeType) -> bool:
    """Has a function a ``while``, or a loop over a range or a variable that it can leave?"""
    if not any(_is_backwards(s.opname) for s in instructions(code)):
        return False
    steps, flow = _flow(code)
    heads = {s.offset for s in steps if s.opname == "FOR_ITER"}
    for s in steps:
        if _is_backwards(s.opname) and not heads.intersection(flow.at_jump(s)):
            return True
    for k, head in enumerate(steps):
        if head.opname == "FOR_ITER" and _is_iterable(steps, k, code):
            region = flow.reached([flow.following[head.offset]], {head.offset})
            if flow.is_left(head, region):
                return True
    return False


def _is_iterable(steps: list[dis.Instruction], head: int, code: CodeType) -> bool:
    """May a loop be over what `exits` takes: a variable, or a call of one of `ITERABLES`?"""
    before = steps[head - 2].opname
    if steps[head - 1].opname != "GET_ITER":
        return False
    return before.startswith("LOAD_FAST") or (before == "CALL" and not ITERABLES.isdisjoint(code.co_names))


def _is_backwards(opname: str) -> bool:
    return "JUMP" in opname and "BACKWARD" in opname


@lru_cache(maxsize=1024)
def goes_over_variables(code: CodeType) -> bool:
    """May a function have loops over variables, or over one of two things?"""
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")]
    loops_ = (k for k, s in enumerate(steps) if s.opname == "GET_ITER")
    is_ranged = not {"range", "reversed"}.isdisjoint(code.co_names)
    return is_ranged and any(steps[k].is_jump_target or steps[k - 1].opname.startswith("LOAD_FAST") for k in loops_)


@lru_cache(maxsize=1024)
def indexes_lists(code: CodeType) -> bool:
    """May a function have loops that index a list or a dict, by more than constants, or ask what is in one?"""
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")]
    if not any(_is_backwards(s.opname) for s in steps):
        return False
    items = (k for k, s in enumerate(steps) if s.opname in ("BINARY_SUBSCR", "STORE_SUBSCR"))
    if any(s.opname == "CONTAINS_OP" for s in steps):
        return True
    return any(steps[k - 1].opname not in ("BUILD_TUPLE", "LOAD_CONST", "BUILD_SLICE") for k in items)


@lru_cache(maxsize=64)
def _flow(code: CodeType) -> tuple[list[dis.Instruction], _Flow]:
    """The instructions of a function, and its jumps."""
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")]
    return steps, _Flow(code, steps)


@lru_cache(maxsize=1024)
def has_no_side_effects(code: CodeType) -> bool:
    """Does a call of this function change nothing but the arrays and containers that it is given?"""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return not any(s.opname.startswith(_LASTING) for s in dis.get_instructions(code)) and all(
        map(has_no_side_effects, inner)
    )
