"""A process that measures one application on a GPU: ``python -m benchmarks.gpu.worker REQUEST FILE``.

FILE gets the answer, as JSON; FILE.at the name of the candidate at hand, so that the parent knows which one ended the
process; FILE.why the exception that did, if one did.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu.candidates import Absent, Candidate, Setting, host, text
from benchmarks.gpu.clock import COPY_BYTES, Clock, call_us, copy_rate, must_move
from benchmarks.pairs import quartiles, ratio, seconds
from benchmarks.rows import agrees
from hjit.errors import HjitError

REFERENCES = ("halide manual", "halide anderson2021", "cupy", "jax", "torch", "copy", "hjit default")
WARM_CALLS, WARM_SECONDS = 20, 0.1  # before candidates are timed
LITTLE = 1 << 20  # bytes of a copy on the stand-in

Rows = dict[str, dict[str, Any]]


def measure(
    s: Setting,
    budget: float,
    skip: Mapping[str, str] | None = None,
    at: Callable[[str], object] = lambda name: None,
    late: Sequence[str] = (),
) -> dict[str, Any]:
    """The entry of an application in a layout.

    Args:
        budget: seconds for each candidate.
        skip: why candidates are left out.
        at: is told the candidate at hand, and "timing".
        late: candidates that are measured another time.
    """
    rate = copy_rate(s.cupy, LITTLE if s.stand_in else COPY_BYTES)
    rows, ready = _made(s, skip or {}, at, late)
    at("timing")
    times = Clock(s.cupy).interleaved(ready, budget)
    by_name = {c.name: t for c, t in zip(ready, times, strict=True)}
    for name, mine in by_name.items():
        low, high = quartiles(mine)
        rows[name] |= {"median_ms": 1e3 * statistics.median(mine), "rounds": len(mine)}
        rows[name]["iqr_ms"] = [None if x is None else 1e3 * x for x in (low, high)]
        rows[name]["ratios"] = {r: asdict(ratio(by_name[r], mine)) for r in REFERENCES if r in by_name and r != name}
        if name != "copy":  # of the rate of a copy, for what must move
            rows[name]["part_of_copy"] = s.p.bytes / statistics.median(mine) / rate
    found = {"bytes": s.p.bytes, "copy_gbs": rate / 1e9, "rows": rows}
    for name, f in s.pipelines.items():
        kernels, moved = must_move(f, s.args)
        rows[name] |= {"kernels": kernels, "kernel_bytes": moved}
        if name in by_name:
            rows[name]["kernels_part_of_copy"] = moved / statistics.median(by_name[name]) / rate
    default = next((name for name in s.pipelines if "default" in name), None)
    if default is not None:
        found |= {key: rows[default][key] for key in ("kernels", "kernel_bytes")}
        found |= _with_transfers(s.pipelines[default], s.p.arguments)
    return found


def _made(
    s: Setting, skip: Mapping[str, str], at: Callable[[str], object], late: Sequence[str]
) -> tuple[Rows, list[Candidate]]:
    """Rows of candidates, compared with NumPy's result, and those candidates that run.

    An address out of bounds spoils the device for all that follow in this process: then CuPy's exception ends it.
    """
    rows: Rows = {}
    ready: list[Candidate] = []
    settled = s.cupy.cuda.runtime.deviceSynchronize
    for name, make in s.makers():
        if name in late:
            continue
        if name in skip:
            rows[name] = {"error": skip[name]}
            continue
        at(name)
        try:
            start = time.perf_counter()
            c = make()
            result = host(s.cupy, c.run())
            row = {"first_call_s": round(time.perf_counter() - start, 3), "how": c.how}
            if name != "copy":
                row["agrees"] = agrees(result, s.p.expected, s.p.tolerance)
            _warm(c, settled)
            rows[name] = row
            ready.append(c)
        except Absent:
            continue
        except Exception as error:
            rows[name] = {"error": text(error)}
        settled()
    return rows, ready


def _warm(c: Candidate, settled: Callable[[], object]) -> None:
    """Some calls more: of hjit's, the first ones try whether a CUDA graph is faster."""
    start = time.perf_counter()
    for _ in range(WARM_CALLS):
        c.run()
        settled()
        if time.perf_counter() - start > WARM_SECONDS:
            break


def _with_transfers(f: Any, arguments: Sequence[Any]) -> dict[str, Any]:
    """Milliseconds of a call with NumPy arrays, by the clock; or why there are none."""
    try:
        f(*arguments)
        return {"numpy_arrays_ms": 1e3 * statistics.median(seconds(lambda: f(*arguments)) for _ in range(7))}
    except (HjitError, MemoryError, RuntimeError) as error:  # CUDA's are RuntimeErrors
        return {"numpy_arrays_error": text(error)}


@contextlib.contextmanager
def package(stand_in: bool) -> Iterator[Any]:
    """CuPy; or the small one of the tests, on which times mean nothing.

    Raises:
        DeviceError: there is no CuPy, or no device.
    """
    from hjit.kernels.cuda.runtime import on_cupy

    if stand_in:
        from tests.gpu import words

        words.install()
        from tests.kernels.cuda import fake_cupy

        with fake_cupy.installed() as cupy:
            yield cupy
        return
    on_cupy.current_device()
    yield on_cupy.package()


def machine(cupy: Any, stand_in: bool) -> dict[str, Any]:
    """The GPU, its driver and compiler, the versions and the commit."""
    from benchmarks import suite
    from hjit.kernels.cuda.runtime import on_cupy

    device, runtime = on_cupy.current_device(), cupy.cuda.runtime
    name = runtime.getDeviceProperties(device.number)["name"]
    gpu = {
        "name": name.decode() if isinstance(name, bytes) else name,
        "capability": device.capability,
        "driver": on_cupy.cuda_version(runtime.driverGetVersion()),
        "runtime": on_cupy.cuda_version(runtime.runtimeGetVersion()),
        "nvrtc": on_cupy.compiler_version(),
        "cupy": getattr(cupy, "__version__", "-"),
        "stand_in": stand_in,
    }
    return {**suite.about(), "gpu": gpu}


def about(stand_in: bool) -> dict[str, Any]:
    """As `machine`, with the rate of the GPU's copies, and what a call costs the host."""
    from importlib.metadata import PackageNotFoundError, version

    with package(stand_in) as cupy:
        found = machine(cupy, stand_in)
        for word in ("cupy", "cupy-cuda12x", "cupy-cuda13x", "jax", "torch", "triton"):
            with contextlib.suppress(PackageNotFoundError):
                found["versions"][word] = version(word)
        rate = copy_rate(cupy, LITTLE if stand_in else COPY_BYTES)
        calls, groups = (10, 3) if stand_in else (500, 21)
        return {**found, "copy_gbs": rate / 1e9, "call_us": call_us(cupy, calls, groups)}


def main() -> None:
    """Answer the request of the command line."""
    request, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    try:
        answer = _answer(request, file.with_name(f"{file.name}.at").write_text)
    except Exception as error:  # what destructors print of a device that is spoilt comes after its traceback
        file.with_name(f"{file.name}.why").write_text(text(error))
        raise
    file.write_text(json.dumps(answer))


def _answer(request: Mapping[str, Any], at: Callable[[str], object]) -> dict[str, Any]:
    if request.get("about"):
        return about(request["stand_in"])
    folder, stand_in = request["halide"], request["stand_in"]
    with package(stand_in) as cupy:
        which = request["app"], request["layout"], request["small"]
        s = Setting(cupy, *which, None if folder is None else Path(folder), stand_in)
        return measure(s, request["budget"], request["skip"], at, request["late"])


if __name__ == "__main__":
    main()
