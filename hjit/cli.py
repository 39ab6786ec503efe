"""The command line, ``hjit``; ``python -m hjit`` is the same."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import hjit.cache as cache
import hjit.demo as demo
from hjit.errors import CacheError, ModelError, OptionError
from hjit.options import from_environment, resolve
from hjit.version import __version__

PACKAGES = (
    "numpy",
    "numba",
    "llvmlite",
    "tbb",
    "scipy",
    "jax",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvrtc-cu12",
)
JSON_HELP = "write what the command says here as JSON; - or no FILE: to standard output, and nothing else there"
SMALLEST, LARGEST = 32, 20_000  # pixels of a side of the demo's images

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # it has no public name


def _size(text: str) -> tuple[int, int]:
    """``3000x4000`` as a height and a width."""
    found = re.fullmatch(r"(\d+)[xX](\d+)", text)
    size = (int(found[1]), int(found[2])) if found else (0, 0)
    if min(size) < SMALLEST or max(size) > LARGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r}: HEIGHTxWIDTH is needed, such as 3000x4000, each from {SMALLEST} to {LARGEST}"
        )
    return size


def _count(text: str) -> int:
    """A whole number from 1."""
    number = int(text) if re.fullmatch(r"[+-]?\d+", text) else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 is needed")
    return number


def _minutes(text: str) -> float:
    """A length of time."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: a number of minutes is needed")
    return number


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    top = argparse.ArgumentParser(prog="hjit", description="A JIT decorator for NumPy image code.")
    top.add_argument("--version", action="version", version=f"hjit {__version__}")
    commands = top.add_subparsers(dest="command", metavar="command", required=True)
    for add in (_add_demo, _add_run, _add_profile, _add_train, _add_calibrate, _add_cache, _add_info):
        for command in add(commands):
            # no default: that of an action would hide what stands before it, as in `hjit cache --json x list`
            command.add_argument(
                "--json", nargs="?", const="-", metavar="FILE", default=argparse.SUPPRESS, help=JSON_HELP
            )
    top.set_defaults(json=None)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = given.run
    given.stdout = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr) if given.json == "-" else contextlib.nullcontext():
            return run(given)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _failed(text: object) -> int:
    print(f"hjit: {text}", file=sys.stderr)
    return 1


def _done(given: argparse.Namespace, data: Any, status: int = 0) -> int:
    """The exit status; with ``--json`` the data are written, else what was printed is all."""
    if given.json is None:
        return status
    text = json.dumps(data, indent=2, default=_plain) + "\n"
    try:
        if given.json == "-":
            given.stdout.write(text)
            given.stdout.flush()
        else:
            Path(given.json).write_text(text, encoding="utf-8")
    except BrokenPipeError:
        raise
    except OSError as error:
        return _failed(error)
    return status


def _plain(x: Any) -> Any:
    """A value that JSON has not, as one that it has."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return asdict(x)
    return sorted(x) if isinstance(x, (set, frozenset)) else list(x) if isinstance(x, tuple) else str(x)


def _add_demo(commands: Commands) -> list[argparse.ArgumentParser]:
    demo = commands.add_parser(
        "demo", help="run four image functions with and without hjit, print a table, write a picture"
    )
    demo.add_argument("photo", nargs="?", help="a JPEG or PNG; default: the coffee cup of scikit-image")
    demo.add_argument("--out", default="demo.png", metavar="FILE", help="the picture to write (default: %(default)s)")
    demo.add_argument(
        "--size", type=_size, default=(3000, 4000), metavar="HxW", help="size of the timed images (default: 3000x4000)"
    )
    demo.set_defaults(run=_demo)
    return [demo]


def _demo(given: argparse.Namespace) -> int:
    try:
        rows = demo.run(given.photo, given.out, given.size)
    except (demo.PhotoError, OptionError) as error:
        return _failed(error)
    except MemoryError:
        return _failed("not enough memory for images of this size; try --size 1500x2000")
    return _done(given, [asdict(r) | {"ratio": r.ratio} for r in rows])


def _add_script(command: argparse.ArgumentParser) -> None:
    command.add_argument("script", help="a file")
    rest = command.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    rest.required = False  # argparse says that they are missing where there is no script


def _add_run(commands: Commands) -> list[argparse.ArgumentParser]:
    run = commands.add_parser(
        "run", help="run a Python script with functions of modules compiled, and say how they ran"
    )
    run.add_argument(
        "--accelerate",
        default="",
        metavar="NAMES",
        help="modules, with commas: skimage.filters,mypackage.imaging (default: the script's own public functions)",
    )
    run.add_argument("--quiet", action="store_true", help="say nothing of how they ran")
    _add_script(run)
    run.set_defaults(run=_run)
    return [run]


def _run(given: argparse.Namespace) -> int:
    from hjit.modules import Accelerated, accelerate, run_script

    if not os.path.isfile(given.script):
        return _failed(f"{given.script} is not a file")
    names = [name for name in given.accelerate.split(",") if name]
    try:
        accelerated = accelerate(*names) if names else Accelerated({})
    except (ModuleNotFoundError, OptionError) as error:
        return _failed(error)
    sys.argv = [given.script, *given.args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(given.script)))
    try:
        run_script(given.script, None if names else accelerated)
    except FileNotFoundError as error:
        return _failed(error)
    finally:
        if not given.quiet:
            print(accelerated, file=sys.stderr)
        written = _done(given, [asdict(row) for row in accelerated.rows() if row.calls])
    return written


def _add_profile(commands: Commands) -> list[argparse.ArgumentParser]:
    profile = commands.add_parser(
        "profile", help="run a Python script, find the functions of arrays where its time goes, and try hjit on them"
    )
    profile.add_argument(
        "--accelerate", default="", metavar="NAMES", help="modules to look at besides the user's own files, with commas"
    )
    profile.add_argument(
        "--patch", metavar="FILE", help="write a diff that decorates what pays, in the user's own files"
    )
    profile.add_argument(
        "--top", type=_count, default=10, metavar="N", help="how many functions to try (default: %(default)s)"
    )
    _add_script(profile)
    profile.set_defaults(run=_profile)
    return [profile]


def _profile(given: argparse.Namespace) -> int:
    import hjit.profiler as profiler
    from hjit.report import profile
    from hjit.report.patch import patch

    if not os.path.isfile(given.script):
        return _failed(f"{given.script} is not a file")
    notes = profiler.Profiler([name for name in given.accelerate.split(",") if name])
    status = profiler.run_script(given.script, given.args, notes)
    rows = profiler.rows(notes, given.top, lambda name: print(f"hjit: trying {name}", file=sys.stderr))
    profile.show(rows, notes.seconds, sys.stdout)
    try:
        if given.patch:
            diffs = [patch(Path(file), lines) for file, lines in profiler.patched(rows, notes).items()]
            with open(given.patch, "w", encoding="utf-8", newline="") as f:
                f.writelines(diffs)
            print(f"{given.patch}: {sum(map(bool, diffs))} files changed; apply it by: patch -p1 < {given.patch}")
    except OSError as error:
        return _failed(error)
    return _done(given, profile.as_json(rows, notes.seconds), status)


def _add_train(commands: Commands) -> list[argparse.ArgumentParser]:
    train = commands.add_parser(
        "train", help="fit the cost model: random programs are measured, in rounds; one that was ended goes on"
    )
    train.add_argument("folder", type=Path, help="of samples and weights")
    train.add_argument("--rounds", type=_count, default=4, metavar="N", help="(default: %(default)s)")
    train.add_argument("--minutes", type=_minutes, metavar="N", help="end after these, in the middle of a round, too")
    train.add_argument("--programs", type=_count, default=250, metavar="N", help="of a round (default: %(default)s)")
    train.add_argument("--schedules", type=_count, default=20, metavar="N", help="of a program (default: %(default)s)")
    train.add_argument("--seed", type=int, default=0, help="of the first program (default: %(default)s)")
    train.add_argument(
        "--stages", type=_count, default=25, metavar="N", help="of a program at most (default: %(default)s)"
    )
    train.add_argument("--target", default="cpu", help="x86-64-v3, say, for machines without AVX-512")
    train.add_argument(
        "--jobs", type=_count, default=2, metavar="N", help="processes that compile at once (default: %(default)s)"
    )
    train.add_argument("--start", type=Path, metavar="FILE", help="weights to go on from (default: random ones)")
    train.add_argument("--also", type=Path, nargs="+", default=[], metavar="FILE", help="samples to fit to besides")
    train.add_argument("--own", action="store_true", help="fit to what this user's tuning has timed, too")
    train.add_argument("--pack", type=Path, metavar="FILE", help="write all samples of the folder to one file")
    train.add_argument(
        "--renew", action="store_true", help="first work out the features in the files of --also anew, and write them"
    )
    train.set_defaults(run=_train)
    return [train]


def _train(given: argparse.Namespace) -> int:
    from hjit.model import samples
    from hjit.training import programs
    from hjit.training.renewed import renewed
    from hjit.training.rounds import Settings, Training

    try:
        for file in given.also if given.renew else ():
            data, lost = renewed(samples.read(file))
            samples.write(file, data)
            print(f"{file}: {len(data.programs)} programs; left out: {dict(lost) or 'none'}")
        others = [p for file in given.also for p in samples.read(file).programs]
        if given.own:
            kept = cache.entries("samples", resolve({}).cache_dir)
            others += [p for name, _, data in kept for p in samples.from_bytes(data, name).programs]
        settings = Settings(given.programs, given.schedules, given.seed, given.target, given.stages)
        training = Training(given.folder, settings, given.start)
        training.run(given.rounds, given.minutes, given.jobs, lambda line: print(line, flush=True), others)
        if given.pack is not None:
            samples.write(given.pack, programs.collected(training.folders))
    except (ModelError, ModuleNotFoundError, OptionError, OSError) as error:
        return _failed(error)
    print(training)
    weights = None if training.weights is None else str(training.weights)
    return _done(given, {"settings": asdict(training.settings), "rounds": training.rounds, "weights": weights})


def _add_calibrate(commands: Commands) -> list[argparse.ArgumentParser]:
    calibrate = commands.add_parser(
        "calibrate", help="measure this machine for some minutes, and correct the cost model by it where that helps"
    )
    calibrate.add_argument("--minutes", type=_minutes, default=3.0, metavar="N", help="(default: %(default)s)")
    calibrate.add_argument("--remove", action="store_true", help="forget the corrections of this machine instead")
    calibrate.set_defaults(run=_calibrate)
    return [calibrate]


def _calibrate(given: argparse.Namespace) -> int:
    from hjit.model.calibration import to_json
    from hjit.training.calibrate import run, spoken
    from hjit.tuning import calibrated

    try:
        if given.remove:
            removed = calibrated.remove()
            print("the corrections of this machine are removed" if removed else "this machine has no corrections")
            return _done(given, {"removed": removed})
        outcome = run(given.minutes)
    except (ModelError, OptionError, OSError) as error:
        return _failed(error)
    print(spoken(outcome))
    about = {} if outcome.calibration is None else to_json(outcome.calibration)
    return _done(given, {"kept": outcome.kept, "why": outcome.why, "measured": outcome.programs, **about})


def _add_cache(commands: Commands) -> list[argparse.ArgumentParser]:
    cache = commands.add_parser(
        "cache", help="look at the disk cache, empty it, or carry its plans (schedules that were found) elsewhere"
    )
    cache.set_defaults(run=_cache, action="info")
    actions = cache.add_subparsers(dest="action", metavar="action")
    actions.add_parser("info", help="folder, entries and size (the default)")
    actions.add_parser("path", help="the folder")
    actions.add_parser("clear", help="remove all entries")
    actions.add_parser("list", help="a line for each plan")
    show = actions.add_parser("show", help="plans as text: stages, tree, and what was compared")
    show.add_argument("names", nargs="+", metavar="PLAN", help="the first characters of its name, see list")
    export = actions.add_parser("export", help="write a bundle of plans, for machines with the same processor")
    export.add_argument("file", type=Path)
    export.add_argument("names", nargs="*", metavar="PLAN", help="(default: all of this processor)")
    bundle = actions.add_parser("import", help="take the plans of a bundle; it is refused on another processor")
    bundle.add_argument("file", type=Path)
    return [cache, *actions.choices.values()]


def _cache(given: argparse.Namespace) -> int:
    try:
        cache_dir = resolve({}).cache_dir
    except OptionError as error:
        return _failed(error)
    where = cache.folder(cache_dir)
    if where is None:
        return _failed("there is no usable cache folder; set HJIT_CACHE_DIR")
    if given.action in ("list", "show", "export", "import"):
        try:
            return _plans(given, cache_dir)
        except (CacheError, OSError) as error:
            return _failed(error)
    about: dict[str, Any] = {"folder": str(where)}
    if given.action == "path":
        print(where)
    elif given.action == "clear":
        about["removed"] = cache.clear(cache_dir)
        print(f"{about['removed']} entries removed from {where}")
    else:
        sizes = [path.lstat().st_size for path in where.iterdir() if path.suffix in cache.SUFFIXES]
        about |= {"entries": len(sizes), "bytes": sum(sizes), "most_bytes": cache.MAX_BYTES}
        print(f"folder   {where}\nentries  {len(sizes)}")
        print(f"size     {sum(sizes) / 2**20:.2f} MiB of {cache.MAX_BYTES >> 20} MiB")
    return _done(given, about)


def _plans(given: argparse.Namespace, cache_dir: str | os.PathLike[str]) -> int:
    """What there is to do with plans.

    Raises:
        CacheError, OSError: it cannot be done.
    """
    from hjit.tuning import kept_plans

    if given.action == "list":
        found = [*kept_plans.kept_plans(cache_dir)]
        print("\n".join([kept_plans.HEAD, *(x.line() for x in found)] if found else ["no plans"]))
        return _done(given, [x.about() for x in found])
    if given.action == "show":
        found = kept_plans.some_plans(given.names, cache_dir)
        print("\n\n".join(map(str, found)))
        return _done(given, [x.about() | {"stages": x.stages, **x.data} for x in found])
    if given.action == "export":
        count = kept_plans.export_plans(given.file, given.names, cache_dir)
        print(f"{count} plans written to {given.file}")
        return _done(given, {"file": str(given.file), "written": count})
    new, known = kept_plans.import_plans(given.file, cache_dir)
    print(f"{new} plans taken from {given.file}" + (f"; {known} were here, and as good" if known else ""))
    return _done(given, {"file": str(given.file), "new": new, "known": known})


def _add_info(commands: Commands) -> list[argparse.ArgumentParser]:
    info = commands.add_parser("info", help="versions, machine, threads and the options in force")
    info.set_defaults(run=_info)
    return [info]


def _info(given: argparse.Namespace) -> int:
    try:
        options = resolve({})
    except OptionError as error:
        return _failed(error)
    from hjit.kernels.cuda.runtime import inventory
    from hjit.kernels.runtime import features, launch
    from hjit.sched.language.target import native_width

    found = features.host_features()
    lines = [
        ("hjit", __version__),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
    ]
    lines += [(name, installed_version(name)) for name in PACKAGES]
    lines += [
        ("cores", str(launch.cores())),
        ("threads", launch.parallel_for()[1]),
        ("vectors", f"{8 * native_width(found)} bits ({', '.join(sorted(found)) or 'no known features'})"),
    ]
    if "HJIT_WEIGHTS" in os.environ:
        lines.append(("weights", f"{os.environ['HJIT_WEIGHTS']}  (HJIT_WEIGHTS)"))
    lines.append(("calibrated", _calibrated()))
    lines += inventory.lines()
    print("\n".join(f"{name:<17} {text}" for name, text in lines))
    print("\noptions")
    from_outside = from_environment()
    for field in fields(options):
        origin = f"  (HJIT_{field.name.upper()})" if field.name in from_outside else ""
        print(f"  {field.name:<18} {getattr(options, field.name)!r}{origin}")
    return _done(given, {**dict(lines), "options": asdict(options), "from_environment": sorted(from_outside)})


def _calibrated() -> str:
    """Is the cost model corrected for this machine?"""
    from hjit.tuning.calibrated import kept
    from hjit.tuning.weights import file_digest

    try:
        found = kept(file_digest())
    except OptionError as error:
        return f"no ({error})"
    if found is None:
        return "no (hjit calibrate)"
    return f"yes, by {found.programs} programs: error {found.before:.3f} before, {found.after:.3f} corrected"


def installed_version(name: str) -> str:
    """The version of a package, or a dash."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


if __name__ == "__main__":
    sys.exit(main())
