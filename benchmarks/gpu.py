"""The applications on a GPU beside their peers: ``python -m benchmarks gpu [--json FILE] [--minutes 9] [--only A,B]``.

On CuPy arrays: hjit, by its default schedule and by that of `apps/schedules/cuda/` where there is one; the same NumPy
source run by CuPy; jax.jit and torch.compile where `peers/` has a version; Halide's libraries where they were built
(`benchmarks.peers.halide_cuda`). All run once a round, A B A B; a time is that between two events on the stream around
some calls, divided by how many (JAX has streams of its own: it is timed by the clock, from idle to idle). Each
application has a process of its own, and its entry of the file is written when that ends; entries of the same GPU that
are there are kept.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from benchmarks import apps
from benchmarks.pairs import quartiles, ratio
from benchmarks.rows import agrees, problem, seconds

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LAYOUTS = ("planar", "channels_last")
REFERENCES = ("halide manual", "halide anderson2021", "cupy", "jax", "torch", "copy", "hjit default")
MIN_ROUNDS, MAX_ROUNDS = 7, 60
ROUND_SECONDS = 4e-3  # of calls between two events
MAX_CALLS = 50  # between two events
CANDIDATE_SECONDS = 0.5
APP_SECONDS = 150  # after which its process is ended
COPY_BYTES = 512 << 20  # of the copy that the device's rate is measured by: larger than its caches

Run = Callable[[], Any]


@dataclass(frozen=True)
class Candidate:
    """Something to time.

    Attributes:
        run: one call; its result is an array of the device.
        wait: until all calls are done, where they are not on CuPy's stream.
        how: how it runs, where there are several ways.
    """

    name: str
    run: Run
    wait: Run | None = None
    how: str = ""


# -- candidates


class Setting:
    """An application with its arguments on the device, and NumPy's result."""

    def __init__(self, cupy: Any, app: str, layout: str, small: bool, halide: Path | None) -> None:
        found = problem(app, layout, small)
        if found is None:
            raise LookupError(f"{app} has no layout {layout}")
        self.cupy, self.app, self.layout, self.p, self.halide = cupy, app, layout, found, halide
        self.args = [cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in found.arguments]

    def hjit(self, fast: bool, by_hand: bool = False) -> Candidate:
        import hjit

        f: Any = hjit.pipeline(self.p.function, target="cuda", fast_math=fast, verify="off", cache="off", blas="auto")
        name = "hjit " + ("by hand" if by_hand else "default") + (" fast" if fast else "")
        if by_hand:
            f.use(hjit.Schedule.load(_by_hand(self.app, self.layout)))
        f(*self.args)
        if f.stats.fallbacks:
            raise RuntimeError("it ran as plain NumPy")
        self.pipeline = f
        return Candidate(name, lambda: f(*self.args))

    def by_cupy(self) -> Candidate:
        """The NumPy source on CuPy arrays; where that fails, with CuPy as its `np`."""
        function = self.p.function
        try:
            return self._checked(Candidate("cupy", lambda: function(*self.args), how="as it is"))
        except Exception as error:
            first = error
        try:
            replaced = with_cupy(self.cupy, function)
            return self._checked(Candidate("cupy", lambda: replaced(*self.args), how="cp. in place of np."))
        except Exception as error:
            raise RuntimeError(f"as it is: {_text(first)}; with cp. in place of np.: {_text(error)}") from None

    def _checked(self, c: Candidate) -> Candidate:
        result = c.run()
        if not isinstance(result, self.cupy.ndarray):
            raise TypeError(f"a result of {type(result).__name__}")
        return c

    def jax(self) -> Candidate:
        self._has("jax")
        import jax  # type: ignore[import-not-found]

        module = importlib.import_module(f"benchmarks.peers.jax.{self.app}")
        function = getattr(module, {"blur_large": "blur"}.get(self.app, self.app))
        numbers = [k for k, x in enumerate(self.args) if not isinstance(x, self.cupy.ndarray)]
        given = [jax.device_put(x) if isinstance(x, np.ndarray) else x for x in self.p.arguments]
        compiled = jax.jit(function, static_argnums=tuple(numbers))
        last: list[Any] = []

        def run() -> Any:
            last[:] = [compiled(*given)]
            return last[0]

        return Candidate("jax", run, lambda: last[0].block_until_ready(), how="by the clock")

    def torch(self) -> Candidate:
        self._has("torch")
        import torch  # type: ignore[import-not-found]

        module = importlib.import_module(f"benchmarks.peers.torch.{self.app}")
        compiled = torch.compile(getattr(module, self.app), dynamic=False)
        given = [torch.as_tensor(x, device="cuda") if isinstance(x, np.ndarray) else x for x in self.p.arguments]
        stream = torch.cuda.ExternalStream(self.cupy.cuda.get_current_stream().ptr or 0)

        def run() -> Any:
            with torch.cuda.stream(stream), torch.no_grad():
                return compiled(*given)

        return Candidate("torch", run)

    def _has(self, peer: str) -> None:
        if self.layout != "planar" or not (HERE / "peers" / peer / f"{self.app}.py").exists():
            raise LookupError(f"there is no version for {peer}")

    def by_halide(self, schedule: str) -> Candidate:
        from benchmarks.peers import halide_cuda

        built = halide_cuda.libraries(self.halide) if self.halide is not None else []
        library = next((x for x in built if (x.app, x.schedule) == (self.app, schedule)), None)
        if library is None or self.layout != "planar":
            raise LookupError("no library was built")
        if library.error:
            raise RuntimeError(library.error)
        arrays = [x for x in self.p.arguments if isinstance(x, np.ndarray)]
        out = self.cupy.empty(self.p.expected.shape, self.p.expected.dtype)
        assert self.halide is not None
        once = halide_cuda.loaded(self.cupy, self.halide, library, arrays, out)

        def run() -> Any:
            once()
            return out

        return Candidate(f"halide {schedule}", run)

    def copy(self) -> Candidate:
        """Half of the bytes of arguments and result, read and written."""
        source, to = (self.cupy.zeros((max(self.p.bytes // 2, 1),), np.uint8) for _ in range(2))
        return Candidate("copy", lambda: self.cupy.copyto(to, source))

    def makers(self) -> Iterator[tuple[str, Callable[[], Candidate]]]:
        """Names, and how to make them."""
        yield "copy", self.copy
        yield "hjit default", lambda: self.hjit(False)
        yield "hjit default fast", lambda: self.hjit(True)
        if _by_hand(self.app, self.layout).exists():
            yield "hjit by hand", lambda: self.hjit(False, True)
            yield "hjit by hand fast", lambda: self.hjit(True, True)
        yield "cupy", self.by_cupy
        yield "jax", self.jax
        yield "torch", self.torch
        yield "halide manual", lambda: self.by_halide("manual")
        yield "halide anderson2021", lambda: self.by_halide("anderson2021")


def _by_hand(app: str, layout: str) -> Path:
    return HERE / "apps" / "schedules" / "cuda" / f"{app if layout == 'planar' else f'{app}_{layout}'}.json"


def with_cupy(cupy: Any, function: Any) -> Any:
    """A function with CuPy for what it calls `np`, and cupyx's for scipy's `ndimage`; so are those that it calls."""
    scope: dict[str, Any] = {}
    for name, value in function.__globals__.items():
        if value is np:
            value = cupy
        elif getattr(value, "__name__", "") == "scipy.ndimage":
            value = importlib.import_module("cupyx.scipy.ndimage")
        elif getattr(value, "__name__", "") == "sliding_window_view":
            value = cupy.lib.stride_tricks.sliding_window_view
        elif isinstance(value, FunctionType) and value.__module__.startswith("benchmarks.apps."):
            value = FunctionType(value.__code__, scope, value.__name__, value.__defaults__, value.__closure__)
        scope[name] = value
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)


def host(cupy: Any, x: Any) -> Any:
    """A result as NumPy's."""
    if isinstance(x, cupy.ndarray):
        return x.get()
    return x.cpu().numpy() if hasattr(x, "cpu") else np.asarray(x)


# -- timing


class Clock:
    """Times of calls on the current stream of CuPy."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.stream = cupy, cupy.cuda.get_current_stream()

    def seconds(self, c: Candidate, calls: int) -> float:
        """Of a call, the mean of so many."""
        if c.wait is not None:
            c.wait()
            start = time.perf_counter()
            for _ in range(calls):
                c.run()
            c.wait()
            return (time.perf_counter() - start) / calls
        first = self.stream.record()
        for _ in range(calls):
            c.run()
        last = self.stream.record()
        last.synchronize()
        return 1e-3 * float(self.cupy.cuda.get_elapsed_time(first, last)) / calls

    def interleaved(self, candidates: Sequence[Candidate], budget: float) -> list[list[float]]:
        """Seconds of a call of each, a number for each round, as `pairs.interleaved` has it."""
        calls, times = [], list[list[float]]()
        for c in candidates:
            c.run()
            each = max(self.seconds(c, 2), 1e-7)
            calls.append(min(max(int(ROUND_SECONDS / each), 1), MAX_CALLS))
            times.append([])
        spent = [0.0] * len(candidates)
        going = list(range(len(candidates)))
        while going:
            for k in going:
                start = time.perf_counter()
                self.seconds(candidates[k], 1)  # others' data is in the caches
                times[k].append(self.seconds(candidates[k], calls[k]))
                spent[k] += time.perf_counter() - start
            going = [
                k for k in going if len(times[k]) < MIN_ROUNDS or (spent[k] < budget and len(times[k]) < MAX_ROUNDS)
            ]
        return times


def copy_rate(cupy: Any) -> float:
    """Bytes a second that a copy on the device reads and writes."""
    source, to = (cupy.zeros((COPY_BYTES,), np.uint8) for _ in range(2))
    clock, c = Clock(cupy), Candidate("copy", lambda: cupy.copyto(to, source))
    clock.seconds(c, 3)
    return 2 * COPY_BYTES / statistics.median(clock.seconds(c, 3) for _ in range(5))


def call_us(cupy: Any, calls: int = 500, groups: int = 21) -> dict[str, float]:
    """Microseconds of the host for warm calls: of one kernel, of several, by a CUDA graph where that is faster, and of
    CuPy's own addition."""
    import hjit
    from benchmarks.overhead import simple

    def normalised(a: Any) -> Any:
        b = a - a.max()
        return b / b.min()

    a, b = (cupy.zeros((4, 4), np.float32) for _ in range(2))
    f, g = (hjit.pipeline(x, verify="off", cache="off") for x in (simple, normalised))
    runs: dict[str, Run] = {"hjit": lambda: f(a, b), "hjit, several kernels": lambda: g(a), "cupy": lambda: a + b}
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(groups):
        for name, run in runs.items():
            run()
            cupy.cuda.get_current_stream().synchronize()

            def several(run: Run = run) -> None:
                for _ in range(calls):
                    run()

            found[name].append(1e6 * seconds(several) / calls)
    cupy.cuda.get_current_stream().synchronize()
    return {name: round(statistics.median(x), 2) for name, x in found.items()}


def must_move(f: Any, args: Sequence[Any]) -> tuple[int, int]:
    """Kernels of a call, and the bytes that they must move between memory and the chip, each its own once."""
    from hjit.kernels.cuda import roofline
    from hjit.kernels.cuda.runtime import inspection

    kernels = size = 0
    for bound in f._device_kernels(tuple(args), {}):
        low = inspection.of(bound)
        for nest in low.program.nests:
            body = nest if nest.like is None else low.program.nests[nest.like.nest]
            size += roofline.must_move(low.graph, body, low.program.layouts, bound.sizes)
            kernels += 1
    return kernels, size


# -- one application


def measure(cupy: Any, app: str, layout: str, small: bool, halide: Path | None, budget: float) -> dict[str, Any]:
    """The entry of an application in a layout."""
    s = Setting(cupy, app, layout, small, halide)
    rate, clock = copy_rate(cupy), Clock(cupy)
    rows: dict[str, dict[str, Any]] = {}
    ready: list[Candidate] = []
    for name, make in s.makers():
        try:
            start = time.perf_counter()
            c = make()
            result = host(cupy, c.run())
            row = rows[name] = {"first_call_s": round(time.perf_counter() - start, 3), "how": c.how}
            if name != "copy":
                row["agrees"] = agrees(result, s.p.expected, s.p.tolerance)
            ready.append(c)
        except LookupError:
            continue  # there is none
        except Exception as error:
            rows[name] = {"error": _text(error)}
    times = clock.interleaved(ready, budget)
    by_name = {c.name: t for c, t in zip(ready, times, strict=True)}
    for name, mine in by_name.items():
        low, high = quartiles(mine)
        rows[name] |= {"median_ms": 1e3 * statistics.median(mine), "rounds": len(mine)}
        rows[name]["iqr_ms"] = [None if x is None else 1e3 * x for x in (low, high)]
        rows[name]["ratios"] = {r: asdict(ratio(by_name[r], mine)) for r in REFERENCES if r in by_name and r != name}
        if name != "copy":  # of the rate of a copy, for what must move
            rows[name]["part_of_copy"] = s.p.bytes / statistics.median(mine) / rate
    found = {"bytes": s.p.bytes, "copy_gbs": rate / 1e9, "rows": rows}
    with contextlib.suppress(Exception):
        kernels, moved = must_move(s.pipeline, s.args)
        found |= {"kernels": kernels, "kernel_bytes": moved}
        for name, mine in by_name.items():
            if name.startswith("hjit"):
                rows[name]["kernels_part_of_copy"] = moved / statistics.median(mine) / rate
    with contextlib.suppress(Exception):  # of NumPy arrays: with transfers, by the clock
        f = s.pipeline
        f(*s.p.arguments)
        found["numpy_arrays_ms"] = 1e3 * statistics.median(seconds(lambda: f(*s.p.arguments)) for _ in range(7))
    return found


@contextlib.contextmanager
def package(stand_in: bool) -> Iterator[Any]:
    """CuPy; or the small one of the tests, on which times mean nothing.

    Raises:
        DeviceError: there is no CuPy, or no device.
    """
    from hjit.kernels.cuda.runtime import on_cupy

    if stand_in:
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
        return {**found, "copy_gbs": copy_rate(cupy) / 1e9, "call_us": call_us(cupy)}


def process(request: dict[str, Any], limit: float) -> dict[str, Any]:
    """What a process of its own answers to a request: `about`, or an application."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HJIT_")}
    environment |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
    environment |= {k: os.environ[k] for k in ("HJIT_CACHE_DIR",) if k in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory(prefix="hjit-bench-") as folder:
        file = Path(folder, "answer.json")
        words = [sys.executable, "-m", "benchmarks.gpu", json.dumps(request), str(file)]
        try:
            done = subprocess.run(
                words, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return {"error": f"not done in {limit:.0f} s"}
        if done.returncode == 0:
            answer: dict[str, Any] = json.loads(file.read_text())
            return answer
        last = " ".join(done.stderr.strip().splitlines()[-3:])
        return {"error": f"the process ended with status {done.returncode}: {last}"[:1500]}


# -- all of them


def run(
    names: Sequence[str] = apps.NAMES,
    earlier: dict[str, Any] | None = None,
    *,
    minutes: float = 9.0,
    small: bool = False,
    stand_in: bool = False,
    halide: Path | None = None,
    budget: float = CANDIDATE_SECONDS,
    keep: Callable[[dict[str, Any]], None] = lambda numbers: None,
) -> dict[str, Any]:
    """All numbers, under the names of the JSON file.

    Args:
        earlier: what an earlier run has written: its entries of the same GPU and sizes are kept, not measured again.
        minutes: when to stop.
        halide: the folder of Halide's libraries.
        keep: called with what there is after each application.

    Raises:
        RuntimeError: there is no GPU.
    """
    end = time.monotonic() + 60 * minutes
    known = process({"about": True, "stand_in": stand_in}, APP_SECONDS)
    if "error" in known:
        raise RuntimeError(known["error"])
    here = {"gpu": known["gpu"]["name"], "small": small}
    old = (earlier or {}).get("apps", {})
    entries: dict[str, Any] = {k: x for k, x in old.items() if "rows" in x and here.items() <= x.items()}
    numbers = {**known, "apps": entries}
    for app in names:
        for layout in LAYOUTS:
            label = app if layout == "planar" else f"{app} {layout}"
            module = apps.load(app) if layout != "planar" else None
            if label in entries or (module is not None and not hasattr(module, layout)):
                continue
            left = end - time.monotonic()
            if left <= 5:
                return numbers
            request = {"app": app, "layout": layout, "small": small, "stand_in": stand_in, "budget": budget}
            request["halide"] = None if halide is None else str(halide)
            found = process(request, min(left, APP_SECONDS))
            entries[label] = {**found, "commit": known["commit"], **here}
            print(_line(label, entries[label]), flush=True)
            keep(numbers)
    return numbers


def _line(label: str, entry: dict[str, Any]) -> str:
    if "error" in entry:
        return f"{label}: {entry['error']}"
    rows = entry["rows"]
    times = [f"{name} {r['median_ms']:.3g}" for name, r in rows.items() if "median_ms" in r]
    return f"{label}, ms: {', '.join(times)}"


COLUMNS = ("copy", "cupy", "jax", "torch", "halide manual", "halide anderson2021", "hjit by hand", "hjit default")


def show(numbers: dict[str, Any]) -> None:
    """Print the numbers as a table, and what went wrong."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from benchmarks.table import geomean

    gpu, entries = numbers["gpu"], {k: x for k, x in numbers["apps"].items() if "rows" in x}
    title = f"ms on {gpu['name']}; copies {numbers['copy_gbs']:.0f} GB/s"
    t = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0))
    for name in ("", *COLUMNS, "hjit default fast", "of the copy rate", "with transfers"):
        t.add_column(name, justify="right" if name else "left")
    for label, entry in entries.items():
        rows = entry["rows"]
        cells = [_ms(rows.get(name)) for name in (*COLUMNS, "hjit default fast")]
        part = rows.get("hjit default", {}).get("part_of_copy")
        moved = entry.get("numpy_arrays_ms")
        t.add_row(label, *cells, "-" if part is None else f"{part:.2f}", "-" if moved is None else f"{moved:.3g}")
    console = Console() if Console().is_terminal else Console(width=170)
    console.print(t)
    for reference in REFERENCES[:5]:
        for name in ("hjit default", "hjit default fast"):
            found = [
                x["rows"][name]["ratios"][reference]["median"]
                for x in entries.values()
                if reference in x["rows"].get(name, {}).get("ratios", {})
            ]
            if found:
                console.print(f"{reference} / {name}: {geomean(found):.2f} (of {len(found)})", highlight=False)
    calls = ", ".join(f"{name} {us} us" for name, us in numbers["call_us"].items())
    console.print(f"a warm call of one kernel, on the host: {calls}", highlight=False)
    for label, entry in numbers["apps"].items():
        for name, row in entry.get("rows", {}).items():
            what = row.get("error") or ("disagrees with NumPy" if row.get("agrees") is False else None)
            if what:
                console.print(f"{label}, {name}: {what}", highlight=False, markup=False)
        if "error" in entry:
            console.print(f"{label}: {entry['error']}", highlight=False, markup=False)


def _ms(row: dict[str, Any] | None) -> str:
    if row is None or "median_ms" not in row:
        return "-" if row is None or "error" not in row else "failed"
    return f"{row['median_ms']:.3g}" + ("" if row.get("agrees", True) else " [red]disagrees[/]")


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]


def main() -> None:
    """Answer the request of the command line."""
    request, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    if request.pop("about", False):
        answer = about(request["stand_in"])
    else:
        with package(request.pop("stand_in")) as cupy:
            folder = request.pop("halide")
            answer = measure(cupy, **request, halide=None if folder is None else Path(folder))
    file.write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
