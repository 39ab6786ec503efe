"""Addresses of array elements, and how elements are represented in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.kernels.llvm.builder.code import BOOL, I8, I64, Val, type_name
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.trace.ir.poly import Poly

Location = tuple[str, Poly]  # an array, and the index of an element in its memory


def memory_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in memory: a bool is a byte."""
    return I8 if dtype == BOOL else dtype


def address(e: NestEmitter, source: str, flat: Poly) -> Val:
    """The address of element `flat`; the constant part is added last, so that neighbours share the rest.

    Constants are relative to the first one that the nest uses, so that nests whose constants are all shifted share a
    function.
    """
    code = e.code
    cell = memory_dtype(e.dtypes[source])
    t = type_name(cell)
    first = e.first.setdefault(source, flat.const)
    rest = flat - flat.const
    key = source, rest
    base = e.known.integers.get(key)
    if base is None:
        base = e.base(source, first * cell.itemsize)
        for part in e.by_depth(rest):
            offset = e.integer(part)
            base = code.emit(
                f"getelementptr {t}, ptr {base.text}, i64 {offset.text}", I64, 1, base, offset, pointer=True
            )
        if not e.is_changing(rest):
            e.known.remember(key, base, everywhere=False)
    if flat.const != first:
        base = code.emit(f"getelementptr {t}, ptr {base.text}, i64 {flat.const - first}", I64, 1, base, pointer=True)
    return base


def offset_address(e: NestEmitter, at: Val, dtype: np.dtype[Any], elements: int) -> Val:
    """The address of an element further on."""
    if elements == 0:
        return at
    return e.code.emit(f"getelementptr {type_name(dtype)}, ptr {at.text}, i64 {elements}", I64, 1, at, pointer=True)


def read(e: NestEmitter, source: str, at: Val, dtype: np.dtype[Any], lanes: int = 1, aligned: int = 0) -> Val:
    """What is at an address; `aligned`: to so many bytes, if not to its elements."""
    aligned = 1 if source in e.inputs else aligned or dtype.itemsize  # an argument may be unaligned
    rhs = f"load {type_name(dtype, lanes)}, ptr {at.text}, align {aligned}"
    if e.is_mutable(source):
        return e.code.here(rhs, dtype, lanes)
    return e.code.emit(rhs, dtype, lanes, at, e.guard)
