"""Kernels of one thread an element that compute an operation, run as `launching` says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.kernels.cuda.ctext import Operand, c_type, storage_type
from tests.kernels.cuda import launching

DType = np.dtype[Any]
THREADS = 64


@dataclass(frozen=True)
class Case:
    """A function of elements of `inputs`, by its text."""

    inputs: tuple[DType, ...]
    output: DType
    text: Callable[[Sequence[Operand]], str]


def element(case: Case, k: int) -> str:
    """The statements of case `k` for the element `i`."""
    rows, args = [], []
    for j, t in enumerate(case.inputs):
        load = f"a{k}_{j}[i]" + (" != 0" if t.kind == "b" else "")
        rows.append(f"const {c_type(t)} x{k}_{j} = {load};")
        args.append(Operand(f"x{k}_{j}", t))
    return f"if (i < n{k}) {{ {' '.join(rows)} out{k}[i] = {case.text(args)}; }}"


def kernel_text(cases: Sequence[Case]) -> str:
    """One kernel for all cases, each with arrays of its own."""
    parameters = []
    for k, case in enumerate(cases):
        parameters.append(f"i32 n{k}")
        parameters += [f"HJ_GLOBAL const {storage_type(t)} *a{k}_{j}" for j, t in enumerate(case.inputs)]
        parameters.append(f"HJ_GLOBAL {storage_type(case.output)} *out{k}")
    body = "\n    ".join(element(case, k) for k, case in enumerate(cases))
    return (
        f"HJ_KERNEL(run, {THREADS}, 1, 1)({', '.join(parameters)}) {{\n"
        f"    const i32 i = HJ_BLOCK_X * {THREADS} + HJ_THREAD_X;\n    {body}\n}}"
    )


def run(cases: Sequence[Case], arguments: Sequence[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    """The results of all cases on their arguments."""
    args: list[Any] = []
    results = []
    for case, inputs in zip(cases, arguments, strict=True):
        out = np.zeros(inputs[0].size, case.output)
        assert tuple(a.dtype for a in inputs) == case.inputs
        args += [np.int32(out.size), *map(np.ascontiguousarray, inputs), out]
        results.append(out)
    blocks = -(-max(r.size for r in results) // THREADS)
    launching.compiled(kernel_text(cases)).launch("run", (blocks, 1, 1), (THREADS, 1, 1), args)
    return results
