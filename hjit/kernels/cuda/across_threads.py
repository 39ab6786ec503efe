"""Cooperative operations of a block's threads: reductions and scans of registers, by shuffles and shared memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from hjit.kernels.cuda.ctext import Operand, c_type, storage_type, suffix
from hjit.kernels.cuda.operations.ufuncs import apply
from hjit.kernels.cuda.writer import Writer
from hjit.kernels.lower.loopir import CombineThreads, ScanThreads
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.uniform import is_barrier
from hjit.sched.language.limits import WARP
from hjit.trace.ir.expressions import Expr

MAX_SHARED_BYTES = 48 << 10  # of a block without an opt-in, on every GPU


def truth(dtype: np.dtype[Any]) -> str:
    """What makes a bool of the byte that it is in memory."""
    return " != 0" if dtype.kind == "b" else ""


class AcrossThreads(Writer):
    """The part of the text of a kernel in which threads exchange registers.

    Attributes:
        threads: of a block.
        registers: -> the variable.
        loops: around what is written, in which all threads of a block run the same iterations.
        combining: shared memory in which registers of threads are combined, by number and dtype.
        combined: the part of it that the text has used so far.
        scanning: shared memory for the totals of warps, by dtype.
        shared_bytes: of a block, so far.
    """

    nest: Nest
    threads: int
    registers: dict[str, str]
    known: dict[Expr, Operand]

    def __init__(self) -> None:
        super().__init__()
        self.loops = 0
        self.combining: dict[tuple[int, np.dtype[Any]], str] = {}
        self.combined: set[str] = set()
        self.scanning: dict[np.dtype[Any], str] = {}
        self.uses_shuffles = False
        self.shared_bytes = 0

    @abstractmethod
    def share(self, exprs: Sequence[Expr]) -> None: ...

    @abstractmethod
    def kept(self, e: Expr) -> Operand: ...

    @abstractmethod
    def refuse(self, stage: str, who: str, most: int) -> None: ...

    def combine_threads(self, s: CombineThreads) -> None:
        """Halves with halves: what other warps have by the first one, from shared memory; then within it."""
        own = [self.registers[r.name] for r in s.source]
        if is_barrier(s, self.threads):
            self.combine_warps(s, own)
        self.uses_shuffles = True
        heads = [] if s.lanes else ["HJ_FIRST_WARP "]
        heads.append(f"for (i32 n = {(s.lanes or WARP) // 2}; n > 0; n /= 2) ")
        with ExitStack() as blocks:
            for head in heads:
                blocks.enter_context(self.braces(head))
            types = [storage_type(r.dtype) for r in s.source]
            others = [f"hj_shuffle_down_{t}({name}, n)" for t, name in zip(types, own, strict=True)]
            self.assign(own, self.combination(s, own, others))

    def combine_warps(self, s: CombineThreads, own: Sequence[str]) -> None:
        """Each thread of the first warp takes what those have that are whole warps further on."""
        shared = [self.of_threads(k, r.dtype) for k, r in enumerate(s.source)]
        if self.loops or self.combined.intersection(shared):
            self.line("HJ_BARRIER();")  # the first warp may still read what was combined before
        self.combined.update(shared)
        self.assign([f"{name}[HJ_THREAD_X]" for name in shared], own)
        self.line("HJ_BARRIER();")
        halves = [1 << k for k in reversed(range((self.threads // WARP - 1).bit_length()))]

        def of_warps(first: int, halves: Sequence[int]) -> Sequence[str]:
            """Of warp `first` and those that it is combined with in these steps."""
            if not halves:
                return own if first == 0 else [f"{name}[HJ_THREAD_X + {first * WARP}]" for name in shared]
            *before, half = halves
            known = before[-1] if before else self.threads // WARP
            here = of_warps(first, before)
            return self.combination(s, here, of_warps(first + half, before)) if first + half < known else here

        with self.braces(f"if (HJ_THREAD_X < {WARP}) "):
            self.assign(own, of_warps(0, halves))

    def scan_threads(self, s: ScanThreads) -> None:
        """Within warps by shuffles; the total of each warp through shared memory; that by shuffles in all warps."""
        own = [self.registers[r.name] for r in s.source]
        t, dtype, warps = storage_type(s.total.dtype), s.total.dtype, self.threads // WARP
        self.uses_shuffles = True
        self.steps(s.op, dtype, own)
        shared = self.of_warps(t, dtype)
        self.line("HJ_BARRIER();")  # the step before this one may still be read
        with self.braces(f"if ((HJ_THREAD_X & {WARP - 1}) == {WARP - 1}) "):
            self.assign([f"{shared}[{k * warps} + HJ_THREAD_X / {WARP}]" for k in range(len(own))], own)
        self.line("HJ_BARRIER();")
        all_ = self.fresh("warps")
        self.line(f"{c_type(dtype)} {all_} = {shared}[HJ_THREAD_X & {WARP - 1}]{truth(dtype)};")
        self.steps(s.op, dtype, [all_])
        for k, name in enumerate(own):
            before = self.fresh("before")
            at = f"{k * warps - 1} + HJ_THREAD_X / {WARP}"
            self.line(f"const {c_type(dtype)} {before} = hj_shuffle_from_{t}({all_}, {at}){truth(dtype)};")
            test = "" if k else f"if (HJ_THREAD_X >= {WARP}) "
            self.line(f"{test}{name} = {self.joined(s.op, dtype, before, name)};")
        last = f"hj_shuffle_from_{t}({all_}, {len(own) * warps - 1})"
        self.assign([self.registers[s.total.name]], [f"{last}{truth(dtype)}"])

    def steps(self, op: str, dtype: np.dtype[Any], names: Sequence[str]) -> None:
        """An inclusive prefix scan of each register over the threads of a warp (Hillis and Steele)."""
        t = storage_type(dtype)
        with self.braces(f"for (i32 n = 1; n < {WARP}; n *= 2) "):
            for name in names:
                before = self.fresh("before")
                self.line(f"const {c_type(dtype)} {before} = hj_shuffle_up_{t}({name}, n){truth(dtype)};")
                self.line(f"if ((HJ_THREAD_X & {WARP - 1}) >= n) {name} = {self.joined(op, dtype, before, name)};")

    def joined(self, op: str, dtype: np.dtype[Any], first: str, second: str) -> str:
        return apply(op, (Operand(first, dtype), Operand(second, dtype)), dtype)

    def of_warps(self, t: str, dtype: np.dtype[Any]) -> str:
        """Shared memory for a register of each of 32 warps; one scan after the other uses it."""
        name = self.scanning.get(dtype)
        if name is None:
            name = self.scanning[dtype] = self.fresh(f"warps_{suffix(dtype)}")
            self.head(f"HJ_SHARED {t} {name}[{WARP}];")
            self.shared_bytes += dtype.itemsize * WARP
        return name

    def combination(self, s: CombineThreads, first: Sequence[str], second: Sequence[str]) -> list[str]:
        """The values of two threads as one."""
        outside = {r.name: self.registers[r.name] for r in s.source}
        for registers, texts in ((s.source, first), (s.other, second)):
            for r, text in zip(registers, texts, strict=True):
                self.registers[r.name] = self.fresh(r.name)
                self.line(f"const {c_type(r.dtype)} {self.registers[r.name]} = {text}{truth(r.dtype)};")
        self.known = {}
        self.share(s.combined)
        values = [self.kept(e).text for e in s.combined]
        self.registers |= outside
        return values

    def assign(self, places: Sequence[str], texts: Sequence[str]) -> None:
        for place, text in zip(places, texts, strict=True):
            self.line(f"{place} = {text};")

    def of_threads(self, number: int, dtype: np.dtype[Any]) -> str:
        """Shared memory for a register of each thread; one combination after the other uses it.

        Raises:
            ScheduleError: there is no more of it.
        """
        name = self.combining.get((number, dtype))
        if name is None:
            name = self.combining[number, dtype] = self.fresh(f"all_{suffix(dtype)}_{number}")
            self.head(f"HJ_SHARED {storage_type(dtype)} {name}[{self.threads}];")
            self.shared_bytes += dtype.itemsize * self.threads
            if self.shared_bytes > MAX_SHARED_BYTES:
                self.refuse(self.nest.stage, "block", MAX_SHARED_BYTES)
        return name
