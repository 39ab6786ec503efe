"""Builds the libraries: ``python -m benchmarks.peers.halide_cuda --build FOLDER``; each in a process of its own."""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import apps
from benchmarks.peers.halide_cuda import INDEX, SCHEDULES, Library, libraries

TARGET = "x86-64-linux-avx2-cuda-cuda_capability_80-no_asserts-no_bounds_query-no_runtime"
RUNTIME = "x86-64-linux-avx2-cuda-cuda_capability_80"
MOST_BYTES = 40 << 20  # of all libraries
MOST_MEMORY = 12 << 30  # of one build
MULTIPROCESSORS = 132  # that Anderson2021 schedules for: those of an H100

CONTEXT = """
#include <stdbool.h>
typedef int (*acquire_t)(void *, void **, bool);
typedef int (*release_t)(void *);
typedef int (*stream_t)(void *, void *, void **);
extern acquire_t halide_set_cuda_acquire_context(acquire_t);
extern release_t halide_set_cuda_release_context(release_t);
extern stream_t halide_set_cuda_get_stream(stream_t);
extern int halide_reuse_device_allocations(void *, bool);
static void *context, *stream;
static int acquire(void *user, void **found, bool create) { *found = context; return 0; }
static int release(void *user) { return 0; }
static int get_stream(void *user, void *of, void **found) { *found = stream; return 0; }
void hjit_use(void *its_context, void *its_stream) {
    context = its_context;
    stream = its_stream;
    halide_set_cuda_acquire_context(acquire);
    halide_set_cuda_release_context(release);
    halide_set_cuda_get_stream(get_stream);
    halide_reuse_device_allocations(0, true);
}
"""  # kernels run in the caller's context and on its stream


def build(app: str, schedule: str, folder: Path) -> Library:
    """Schedule, compile and link one library."""
    import halide as hl

    from benchmarks.peers.halide import load
    from benchmarks.peers.halide_cuda.schedules import MANUAL, recorded

    begin = time.perf_counter()
    m = apps.load(app)
    arguments = m.inputs(np.random.default_rng(0), m.SHAPE)
    with recorded() as funcs:
        program = load(app).define(arguments, False)
    target, pipeline = hl.Target(TARGET), hl.Pipeline(program.output)
    for param, array in zip(program.params, program.arrays, strict=True):
        for k, n in enumerate(reversed(array.shape)):
            param.dim(k).set_estimate(0, n)
    for k, n in enumerate(reversed(program.shape)):
        program.output.set_estimate(program.output.args()[k], 0, n)
    if schedule == "manual":
        MANUAL[app](funcs, program.output, program)
    else:
        hl.load_plugin(str(Path(hl.__file__).parent / "lib64/libautoschedule_anderson2021.so"))
        more = getattr(load(app), "AUTOSCHEDULER", {})
        wanted = {"parallelism": str(MULTIPROCESSORS), **more}
        pipeline.apply_autoscheduler(target, hl.AutoschedulerParams("Anderson2021", wanted))
    given = pipeline.infer_arguments()
    numbers = {p.name(): k for k, p in enumerate(program.params)}
    file = f"halide_cuda_{app}_{schedule}.so"
    with tempfile.TemporaryDirectory() as scratch:
        code, runtime, source = (str(Path(scratch, x)) for x in ("code.o", "runtime.o", "context.c"))
        pipeline.compile_to({hl.OutputFileType.object: code}, given, f"hjit_{app}", target)
        hl.compile_standalone_runtime(runtime, hl.Target(RUNTIME))
        Path(source).write_text(CONTEXT)
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise RuntimeError("linking shared libraries needs a C compiler, and there is none: cc, gcc or clang")
        words = [compiler, "-shared", "-fPIC", "-O2", "-s", source, code, runtime, "-o", str(folder / file)]
        done = subprocess.run([*words, "-lpthread", "-ldl", "-lm"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{compiler} could not link {file}: {done.stderr.strip()[-800:]}")
    found = [*(_argument(x, numbers) for x in given), {"name": "result", "array": None}]
    size = (folder / file).stat().st_size
    return Library(app, schedule, file, found, round(time.perf_counter() - begin, 2), size)


def _argument(x: Any, numbers: dict[str, int]) -> dict[str, Any]:
    import halide as hl

    if x.name in numbers:
        return {"name": x.name, "array": numbers[x.name]}
    kind = "float" if x.type.is_float() else "uint" if x.type.is_uint() else "int"
    value = hl.evaluate(x.argument_estimates.scalar_estimate)
    return {"name": x.name, "type": kind, "bits": x.type.bits(), "value": value}


def in_a_process(app: str, schedule: str, folder: Path, limit: float) -> Library:
    """As `build`; what ends the process, or takes too long, is an error of the library."""
    empty = Library(app, schedule)
    command = [sys.executable, "-m", "benchmarks.peers.halide_cuda", "--build", str(folder), "--one", app, schedule]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return replace(empty, error=f"not built in {limit:.0f} s")
    last = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode or not last[0].startswith("{"):
        why = " ".join(done.stderr.strip().splitlines()[-3:])
        return replace(empty, error=f"the process ended with status {done.returncode}: {why}"[:800])
    return Library(**json.loads(last[0]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Build what is asked for, beside what is in the folder; the exit code is 1 where one failed."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.peers.halide_cuda", description=__doc__)
    p.add_argument("--build", metavar="FOLDER", type=Path, required=True)
    p.add_argument("--apps", default=",".join(apps.NAMES), help="A,B: of the benchmarks")
    p.add_argument("--schedules", default=",".join(SCHEDULES))
    p.add_argument("--limit", metavar="SECONDS", type=float, default=900.0, help="of one library")
    p.add_argument("--one", nargs=2, metavar=("APP", "SCHEDULE"), help=argparse.SUPPRESS)
    given = p.parse_args(arguments)
    try:
        import halide  # noqa: F401
    except ImportError as error:
        print(f"building needs the package halide, which the extra `bench` has: {error}", file=sys.stderr)
        return 2
    given.build.mkdir(parents=True, exist_ok=True)
    if given.one:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        print(json.dumps(asdict(build(*given.one, given.build))))
        return 0
    found = {(x.app, x.schedule): x for x in libraries(given.build)}
    for schedule in given.schedules.split(","):
        for app in given.apps.split(","):
            made = found[app, schedule] = in_a_process(app, schedule, given.build, given.limit)
            size = f"{made.bytes / 1e6:.1f} MB, {made.seconds:.0f} s"
            print(f"{app} {schedule}: {made.error or size}", flush=True)
            _write(given.build, list(found.values()))
    total = sum(x.bytes for x in found.values())
    print(f"{total / 1e6:.1f} MB" + (f", more than the {MOST_BYTES >> 20} MiB allowed" if total > MOST_BYTES else ""))
    return int(total > MOST_BYTES or any(x.error for x in found.values()))


def _write(folder: Path, found: Sequence[Library]) -> None:
    from importlib.metadata import version

    numbers = {"halide": version("halide"), "target": TARGET, "libraries": [asdict(x) for x in found]}
    (folder / INDEX).write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
