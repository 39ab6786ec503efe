"""What is timed of an application on a GPU: hjit, and what it is compared with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.rows import problem

HERE = Path(__file__).resolve().parents[1]

Run = Callable[[], Any]


class Absent(LookupError):
    """There is no such candidate."""


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


class Setting:
    """An application with its arguments on the device, and NumPy's result.

    Attributes:
        pipelines: hjit's that were made, by the names of their candidates.
    """

    def __init__(
        self, cupy: Any, app: str, layout: str, small: bool, halide: Path | None, stand_in: bool = False
    ) -> None:
        found = problem(app, layout, small)
        if found is None:
            raise Absent(f"{app} has no layout {layout}")
        self.cupy, self.app, self.layout, self.p = cupy, app, layout, found
        self.halide, self.stand_in = halide, stand_in
        self.args = [cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in found.arguments]
        self.pipelines: dict[str, Any] = {}

    def makers(self) -> Iterator[tuple[str, Callable[[], Candidate]]]:
        """Names, and how to make them."""
        yield "copy", self.copy
        yield "hjit default", lambda: self.hjit(False)
        yield "hjit default fast", lambda: self.hjit(True)
        if schedule_file(self.app, self.layout).exists():
            yield "hjit manual", lambda: self.hjit(False, True)
            yield "hjit manual fast", lambda: self.hjit(True, True)
        yield "cupy", self.by_cupy
        yield "halide manual", lambda: self.by_halide("manual")
        yield "halide anderson2021", lambda: self.by_halide("anderson2021")
        yield "jax", self.jax
        yield "torch", self.torch

    def hjit(self, fast: bool, by_hand: bool = False) -> Candidate:
        import hjit

        blas: Any = False if by_hand else "auto"  # a schedule is of hjit's own kernels
        f: Any = hjit.pipeline(self.p.function, target="cuda", fast_math=fast, verify="off", cache="off", blas=blas)
        name = "hjit " + ("manual" if by_hand else "default") + (" fast" if fast else "")
        if by_hand:
            f.use(hjit.Schedule.load(schedule_file(self.app, self.layout)))
        f(*self.args)
        if f.stats.fallbacks:
            raise RuntimeError("it ran as plain NumPy")
        self.pipelines[name] = f
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
            raise RuntimeError(f"as it is: {text(first)}; with cp. in place of np.: {text(error)}") from None

    def _checked(self, c: Candidate) -> Candidate:
        result = c.run()
        if not isinstance(result, self.cupy.ndarray):
            raise TypeError(f"a result of {type(result).__name__}")
        return c

    def jax(self) -> Candidate:
        """jax.jit of `peers/jax/`; beside the stand-in it runs on the CPU."""
        function = self._of_peer("jax")
        import jax

        backend = jax.default_backend()
        if backend != "gpu" and not self.stand_in:
            raise RuntimeError(f"JAX has no GPU here, but {backend}")
        numbers = [k for k, x in enumerate(self.p.arguments) if not isinstance(x, np.ndarray)]
        given = [jax.device_put(x) if isinstance(x, np.ndarray) else x for x in self.p.arguments]
        compiled = jax.jit(function, static_argnums=tuple(numbers))
        last: list[Any] = []

        def run() -> Any:
            last[:] = [compiled(*given)]
            return last[0]

        run()
        return Candidate("jax", run, lambda: last[0].block_until_ready(), how=f"by the clock, on {backend}")

    def torch(self) -> Candidate:
        """torch.compile of `peers/torch/`; beside the stand-in it is not compiled, and runs on the CPU."""
        function = self._of_peer("torch")
        import torch

        if self.stand_in:
            on_cpu = [torch.as_tensor(x) if isinstance(x, np.ndarray) else x for x in self.p.arguments]
            return Candidate("torch", lambda: function(*on_cpu), lambda: None, how="by the clock, not compiled, on cpu")
        torch.backends.cudnn.allow_tf32 = False  # of products it is off
        compiled = torch.compile(function, dynamic=False)
        given = [torch.as_tensor(x, device="cuda") if isinstance(x, np.ndarray) else x for x in self.p.arguments]
        stream = torch.cuda.ExternalStream(self.cupy.cuda.get_current_stream().ptr or 0)

        def run() -> Any:
            with torch.cuda.stream(stream), torch.no_grad():
                return compiled(*given)

        return Candidate("torch", run)

    def _of_peer(self, package: str) -> Callable[..., Any]:
        if self.layout != "planar" or not peers.has(package, self.app):
            raise Absent(f"there is no version for {package}")
        return peers.function(package, self.app)

    def by_halide(self, schedule: str) -> Candidate:
        from benchmarks.peers import halide_cuda

        built = halide_cuda.libraries(self.halide) if self.halide is not None else []
        library = next((x for x in built if (x.app, x.schedule) == (self.app, schedule)), None)
        if library is None or self.layout != "planar":
            raise Absent("no library was built")
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


def schedule_file(app: str, layout: str) -> Path:
    """The file of an application's schedule by hand, where there is one."""
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


def text(error: Exception) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]
