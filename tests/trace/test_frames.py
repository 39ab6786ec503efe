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

from hjit.trace.tracing.frames import instructions

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
