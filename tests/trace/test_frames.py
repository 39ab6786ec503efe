"""What `hjit.trace.tracing.frames` says of bytecode, beside the standard library's `dis`."""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
from collections.abc import Iterator
from types import CodeType

import numpy as np
import pytest

from hjit.trace.tracing.frames import compared, instructions, mapped

NAMED = ("LOAD_ATTR", "LOAD_METHOD", "STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for c in code.co_consts:
        if isinstance(c, CodeType):
            yield from _codes(c)


@pytest.mark.parametrize("module", [ast, dis, inspect, textwrap, np.ma.core, np.lib._function_base_impl])
def test_instructions_are_those_of_dis(module) -> None:  # type: ignore[no-untyped-def]
    source = inspect.getsource(module)
    for code in _codes(compile(source, module.__name__, "exec")):
        expected = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")]
        found = instructions(code)
        assert [(s.offset, s.opname) for s in found] == [(s.offset, s.opname) for s in expected]
        assert [s.arg for s, e in zip(found, expected, strict=True) if e.arg is not None] == [
            e.arg for e in expected if e.arg is not None
        ]
        assert [s.name for s in found if s.opname in NAMED] == [e.argval for e in expected if e.opname in NAMED]


def test_instructions_behind_prefixes() -> None:
    """Names beyond the 256th need an EXTENDED_ARG."""
    lines = [f"    x{k} = x.a{k}" for k in range(300)]
    code = compile("def f(x):\n" + "\n".join(lines), "f", "exec").co_consts[0]
    names = [s.name for s in instructions(code) if s.opname in NAMED]
    assert names == [name for k in range(300) for name in (f"a{k}", f"x{k}")]


USES = {
    "x is type": True,
    "type is x": True,
    "x == type": True,
    "x in (type, int)": True,
    "x in [type, type(y)]": True,
    "isinstance(x, type)": True,
    "isinstance(f(x, type(y)), (int, type))": True,
    "isinstance(x, type | int)": True,
    "issubclass(x, type)": True,
    "f(type)": False,
    "isinstance(x, f(type))": False,
    "isinstance(t := type, x)": False,
    "isinstance(x, type.mro)": False,
    "x.isinstance(y, type)": False,
    "{type: 1}[x]": False,
    "[g for g in x if type] == y": False,
    "type": False,
    "lambda: isinstance(x, y) and type": False,
    "map(type, x)": False,
}


def _loads(code: CodeType) -> set[int]:
    found = [s for s in dis.get_instructions(code) if s.opname == "LOAD_GLOBAL" and s.argval == "type"]
    return {s.offset for s in found if not s.arg or not s.arg & 1}  # those that are not called


@pytest.mark.parametrize("source", USES)
def test_what_is_only_compared(source: str) -> None:
    code = compile(f"def f(): return {source}", "f", "exec").co_consts[0]
    codes = [c for c in _codes(code) if _loads(c)]
    assert codes
    assert all(_loads(c) <= compared(c) if USES[source] else not _loads(c) & compared(c) for c in codes)


def test_what_code_without_positions_compares_is_not_known() -> None:
    code = compile("def f(): return x is type", "f", "exec").co_consts[0]
    assert not compared(code.replace(co_linetable=b""))


@pytest.mark.parametrize("source", ["map(type, x)", "f(map(type, map(type, y)))", "list(map(type, x, y))"])
def test_what_map_calls(source: str) -> None:
    code = compile(f"def f(): return {source}", "f", "exec").co_consts[0]
    assert _loads(code) and _loads(code) <= mapped(code)


@pytest.mark.parametrize("source", ["map(f, type)", "f(map, type)", "map(type.mro, x) is type"])
def test_what_map_does_not_call(source: str) -> None:
    code = compile(f"def f(): return {source}", "f", "exec").co_consts[0]
    assert not (_loads(code) & mapped(code)) or ".mro" in source
