"""The steps of a function on a GPU, for people: its CUDA C, PTX and machine code, and the resources of each kernel."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hjit.errors import CompileError, DeviceError
from hjit.kernels.cuda import ptx
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.compilers.machine_code import Compiled, Resources
from hjit.kernels.cuda.launches import Launch, Parameter
from hjit.kernels.cuda.prelude import program
from hjit.kernels.cuda.ptx import Instructions
from hjit.kernels.cuda.roofline import Estimate, NestLaunch, estimate, gpu
from hjit.kernels.cuda.runtime.bound import Bound
from hjit.kernels.cuda.runtime.device import found
from hjit.kernels.cuda.runtime.lowered import Lowered, lowered

FOLLOWED = "f32, f64, int, ld/st: instructions of PTX that a thread in the middle runs, loops and branches followed"
CAPABILITY = 80  # what is compiled for where there is no device
DISASSEMBLERS = {"nvdisasm": ("--print-code",), "cuobjdump": ("-sass",)}  # programs and what makes them print it all


def capability() -> int:
    """The compute capability of the current device, 90 for 9.0; of none `CAPABILITY`."""
    return int(getattr(found(), "capability", CAPABILITY))


def of(bound: Bound) -> Lowered:
    """What bound kernels are lowered to."""
    return lowered(bound.scheduled, bound.options, "hjit", bound.bits)


def cuda(bound: Bound) -> str:
    """The program of bound kernels, as NVRTC gets it."""
    return program(of(bound).module.text, "cuda")


def compiled(bound: Bound, target: int | None) -> Compiled:
    """Bound kernels, compiled for a compute capability; None: that of the device.

    Raises:
        DeviceError: there is no NVRTC.
    """
    text, target = of(bound).module.text, capability() if target is None else target
    if nvrtc.is_available():
        return nvrtc.compiled(text, target)
    from hjit.kernels.cuda.runtime import on_cupy  # where there is CuPy

    return on_cupy.compiled(text, target)


def disassemblers() -> Iterator[str]:
    """Programs that print machine code: on the path, or in NVIDIA's packages."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(x) for x in (spec.submodule_search_locations or ())] if spec else []
    for name in DISASSEMBLERS:
        on_path = shutil.which(name)
        if on_path:
            yield on_path
        for folder in folders:
            yield from (str(p) for p in sorted(folder.glob(f"*/bin/{name}*")) if os.access(p, os.X_OK))


def sass(bound: Bound, target: int | None) -> str:
    """The machine code of bound kernels, as the disassembler prints it.

    Raises:
        DeviceError: there is no disassembler, or no NVRTC.
        CompileError: it failed.
    """
    program = next(disassemblers(), None)
    if program is None:
        raise DeviceError(
            "machine code is shown by nvdisasm, which is not found: the package nvidia-cuda-nvdisasm has it"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cubin")
        path.write_bytes(compiled(bound, target).cubin)
        words = [program, *DISASSEMBLERS[Path(program).stem], str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{program} failed: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Row:
    """One launch of a kernel.

    Attributes:
        blocks: of the grid.
        threads: of a block.
        resources: what the compiler reports; None where there is no compiler.
        estimate: what it takes at least on a GPU of the capability.
    """

    kernel: str
    blocks: int
    threads: int
    resources: Resources | None
    estimate: Estimate


class Table:
    """Kernels in the order in which they run; printable.

    Attributes:
        between: what runs between them, in words: how many of the kernels are before it, and what it is.
    """

    HEAD = (
        *("kernel", "grid", "block", "registers", "spilled", "stack", "shared", "occupancy"),
        *("f32", "f64", "int", "ld/st", "shared ld/st", "MB", "us", "limit"),
    )

    def __init__(self, rows: Sequence[Row], target: int, between: Sequence[tuple[int, str]] = ()) -> None:
        self.rows, self.capability, self.between = tuple(rows), target, tuple(between)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        lines = [self.HEAD, *(self._cells(x) for x in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = ["  ".join([c[0].ljust(widths[0]), *map(str.rjust, c[1:], widths[1:])]).rstrip() for c in lines]
        for before, text in reversed(self.between):
            texts.insert(1 + before, text)
        about = f"for compute capability {self.capability / 10}; spilled, stack, shared: bytes"
        least = (
            f"MB that it must move, us that it takes at least, and what limits it: of the {gpu(self.capability).name}"
        )
        return "\n".join([*texts, about, FOLLOWED, least])

    __repr__ = __str__

    def _cells(self, x: Row) -> tuple[str, ...]:
        r = x.resources
        needs = ("-",) * 4 if r is None else map(str, (r.registers, r.spill_stores, r.stack, r.shared))
        e = x.estimate
        held = "-" if e.occupancy is None else f"{e.occupancy:.0%}"
        least = f"{e.bytes / 1e6:.3g}", f"{e.seconds * 1e6:.3g}", e.limit
        return x.kernel, str(x.blocks), str(x.threads), *needs, held, *_counts(e.instructions), *least


def _counts(x: Instructions | None) -> tuple[str, ...]:
    """Cells, with a + where a thread was not followed to its end."""
    if x is None:
        return ("-",) * 5
    return tuple(f"{n}{'' if x.is_whole else '+'}" for n in (x.f32, x.f64, x.integers, x.memory, x.shared))


def rows(bound: Bound, target: int | None) -> Iterator[Row]:
    """The launches of bound kernels."""
    lowered = of(bound)
    try:
        made = compiled(bound, target)
    except DeviceError:
        made = Compiled("", "", b"", "", {})
    on, kernels = gpu(capability() if target is None else target), ptx.kernels(made.ptx)
    for number, x, count in launched(bound, lowered.module.launches):
        needs, kernel = made.resources.get(x.kernel), kernels.get(x.kernel)
        runs = None if kernel is None else middle_thread(bound, kernel, x, count)
        launch = NestLaunch(number, x.threads, needs, runs, x.blocks(count))
        least = estimate(lowered.graph, lowered.program, launch, bound.sizes, on)
        yield Row(x.kernel, launch.blocks, x.threads, needs, least)


ADDRESS = 1 << 20  # of arrays, which are aligned as those of a device are


def middle_thread(bound: Bound, kernel: ptx.Kernel, x: Launch, count: int) -> Instructions:
    """What the thread in the middle of the block in the middle runs: few kernels have borders there.

    Args:
        count: iterations of the kernel's parallel loops.
    """
    values: dict[str, Callable[[Parameter], int | None]] = {
        "array": lambda p: ADDRESS,
        "status": lambda p: ADDRESS,
        "offset": lambda p: 0,
        "first": lambda p: 0,
        "count": lambda p: count,
        "size": lambda p: bound.sizes.get(p.name),
        "stride": lambda p: bound.strides[p.name][p.axis],
        "scalar": lambda p: None,
    }
    blocks = x.blocks(count)
    special = {"%tid.x": x.threads // 2, "%ntid.x": x.threads, "%ctaid.x": blocks // 2, "%nctaid.x": blocks}
    return ptx.followed(kernel, [values[p.kind](p) for p in x.parameters], special)


def launched(bound: Bound, launches: Sequence[Launch]) -> Iterator[tuple[int, Launch, int]]:
    """Those that run at the given sizes: their numbers, and the iterations of their parallel loops."""
    for number, x in enumerate(launches):
        count = 1 if x.count is None else bound.number(x.count)
        if count > 0 and bound.number(x.points) > 0:
            yield number, x, count
