"""The location in a function at which an exception was raised."""

from __future__ import annotations

import ast
import traceback
import types
from dataclasses import dataclass

RETURNED = "returned value"  # in place of a name: the statement at the end cannot be traced


@dataclass(frozen=True, slots=True)
class SourceRange:
    """A range in a source: lines from 1, columns from 0; without columns: the whole line."""

    line: int
    end_line: int
    column: int | None = None
    end_column: int | None = None

    def is_in(self, s: ast.AST) -> bool:
        """Is it inside a node?"""
        first, last = s.lineno, s.end_lineno or s.lineno  # type: ignore[attr-defined]
        if self.column is None or self.end_column is None:
            return bool(first <= self.line <= last)
        begin, end = (first, s.col_offset), (last, s.end_col_offset)  # type: ignore[attr-defined]
        return bool(begin <= (self.line, self.column) and (self.end_line, self.end_column) <= end)


def location_of(error: BaseException, code: types.CodeType) -> SourceRange | None:
    """The location in a function at which an exception was raised; None if the function was not running."""
    tb = error.__traceback__
    while tb is not None:
        own = tb.tb_frame.f_code
        if _is_of(own, code):
            line, end_line, column, end_column = list(own.co_positions())[tb.tb_lasti // 2]
            if line is not None:
                return SourceRange(line, end_line or line, column, end_column)
            return SourceRange(tb.tb_lineno, tb.tb_lineno)
        tb = tb.tb_next
    return None


def is_deeper(error: BaseException, code: types.CodeType) -> bool:
    """Was it raised in a traced function that this one calls?"""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if type(frame.f_globals) is not dict]
    own = [k for k, frame in enumerate(frames) if _is_of(frame.f_code, code)]
    return bool(own) and own[0] + 1 < len(frames)


def _is_of(own: types.CodeType, code: types.CodeType) -> bool:
    """Are these the code of one function? Traced code may be a rewritten copy."""
    return (own.co_filename, own.co_firstlineno, own.co_name) == (code.co_filename, code.co_firstlineno, code.co_name)
