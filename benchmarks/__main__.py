"""``python -m benchmarks [NAME] [--json FILE]``, by default of the applications; see ``--help``."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def names(text: str) -> list[str]:
    """Words with commas between them."""
    return [n for n in (part.strip() for part in text.split(",")) if n]


def threads(text: str) -> list[int]:
    """Numbers of threads with commas between them."""
    found = [int(n) if n.isdigit() else 0 for n in names(text)]
    if min(found, default=0) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of threads")
    return found


def sizes(text: str) -> list[float]:
    """Megapixels with commas between them."""
    found = [float(n) for n in names(text)]
    if min(found, default=0) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size")
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from benchmarks.apps import NAMES
    from benchmarks.rows import HALIDE_SCHEDULES, HJIT_SCHEDULES, PEERS

    p = argparse.ArgumentParser(prog="python -m benchmarks", description="hjit's benchmarks.")
    what = (
        "ablate: rules of schedules off, one at a time; "
        "apps (the default): applications compared with their peers; gpu: the same on a GPU; "
        "coverage: functions of many packages; "
        "dask: arrays of Dask, larger than memory; "
        "idioms: short image code compared with NumPy; loops: loops over pixels, beside numba; "
        "model: what the cost model alone chooses for the applications; "
        "npbench: its kernels compared with NumPy; "
        "overhead: what a call costs; products: matrix products; "
        "ranges: features of the applications beside those of generated programs; "
        "reach: which known schedules searches can find; "
        "search: what searching the applications' schedules costs, and the same as apps; "
        "skimage: scikit-image's own tests, plain and compiled"
    )
    kinds = (
        "ablate", "apps", "coverage", "dask", "gpu", "idioms", "loops", "model", "npbench", "overhead", "products",
        "ranges", "reach", "search", "skimage",
    )  # fmt: skip
    p.add_argument("name", nargs="?", default="apps", choices=kinds, help=what)
    p.add_argument("--json", metavar="FILE", type=Path, help="write the numbers here, too")
    p.add_argument("--apps", metavar="A,B", type=names, default=list(NAMES), help=f"of {', '.join(NAMES)}")
    p.add_argument("--peers", metavar="P,Q", type=names, default=list(PEERS), help=f"of {', '.join(PEERS)}")
    p.add_argument(
        "--halide", metavar="S,T", type=names, default=list(HALIDE_SCHEDULES), help=f"of {', '.join(HALIDE_SCHEDULES)}"
    )
    p.add_argument("--hjit", metavar="S,T", type=names, default=None, help=f"of {', '.join(HJIT_SCHEDULES)}")
    p.add_argument("--threads", metavar="N[,M]", type=threads, default=[], help="all cores if not given")
    p.add_argument("--small", action="store_true", help="the sizes of the tests")
    p.add_argument(
        "--tables", action="store_true", help="with search: the tables of Anderson 2021 and Gao 2022 instead"
    )
    p.add_argument(
        "--limit", metavar="SECONDS", type=float, help="of a search in those tables, a function, one file's tests"
    )
    p.add_argument("--budget", metavar="SECONDS", type=float, default=1.0, help="for each candidate")
    p.add_argument("--only", metavar="A,B", type=names, dest="apps", help="the same as --apps")
    p.add_argument(
        "--minutes",
        type=float,
        help="with gpu (9 if not given), coverage: stop then; a run with the same FILE goes on (coverage: --missing)",
    )
    p.add_argument("--missing", action="store_true", help="with coverage: functions without times")
    p.add_argument("--older-than", metavar="COMMIT", default="", help="with coverage: functions measured at others")
    p.add_argument("--halide-cuda", metavar="FOLDER", type=Path, help="with gpu: of benchmarks.peers.halide_cuda")
    p.add_argument("--size", metavar="A,B", type=sizes, help="with coverage: megapixels, 0.1,1,6 if not given")
    p.add_argument("--sets", metavar="A,B", type=names, help="with ablate: of apps, idioms, third")
    p.add_argument("--rules", metavar="A,B", type=names, default=[], help="with ablate: words of their names")
    p.add_argument("--kinds", action="store_true", help="with coverage, npbench: time nothing")
    p.add_argument(
        "--functions", metavar="A,B", type=names, default=[], help="with coverage, ablate, loops: words of names"
    )
    p.add_argument("--table", metavar="FILE", type=Path, help="with coverage, skimage: the page for docs/")
    p.add_argument("--modules", metavar="A,B", type=names, help="with skimage: filters,exposure; all if not given")
    p.add_argument("--files", metavar="A,B", type=names, default=[], help="with skimage: words of names of test files")
    p.add_argument(
        "--source",
        metavar="PATH",
        type=Path,
        help="with skimage: its sources; pip downloads them if needed; with npbench: a checkout",
    )
    p.add_argument("--kernels", metavar="A,B", type=names, default=[], help="with npbench: all if not given")
    p.add_argument("--sizes", metavar="A,B", type=names, help="with npbench: of S, M, L, paper; S if not given")
    p.add_argument("--weights", metavar="FILE", type=Path, help="with model: of `hjit train`; hjit's if not given")
    p.add_argument("--calibrated", action="store_true", help="with model: hjit's weights as corrected for this machine")
    p.add_argument("--gigabytes", type=float, default=1.0, help="with dask: of the mosaic")
    p.add_argument("--folder", metavar="PATH", type=Path, help="with dask: for its files, twice as large at most")
    p.add_argument("--chunk", metavar="PIXELS", type=int, help="with dask: the side of its chunks")
    p.add_argument("--parts", metavar="A,B", type=names, help="with dask: of graph, cluster, peers; all if not given")
    p.add_argument("--stand-in", action="store_true", help="with gpu: tries this command without one: no real times")
    return p


def measured(given: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run a benchmark, print its table, and return its numbers; `keep` is called with partial ones meanwhile."""
    from benchmarks.apps import NAMES
    from benchmarks.rows import HJIT_SCHEDULES, SEARCHED

    if given.name == "overhead":
        from benchmarks import overhead

        numbers = overhead.run()
        overhead.show(numbers)
        return numbers
    if given.name == "gpu":
        return on_gpu(given, keep)
    if given.name == "loops":
        from benchmarks import pixel_loops

        numbers = pixel_loops.run(given.functions, (given.threads or [None])[0], small=given.small, budget=given.budget)
        pixel_loops.show(numbers)
        return numbers
    if given.name == "ranges":
        from benchmarks import ranges

        numbers = ranges.run(given.apps, small=given.small, show=print)
        print(ranges.table(numbers))
        return numbers
    if given.name == "reach":
        from benchmarks import reach

        numbers = reach.run(given.apps, small=given.small, keep=keep)
        print(reach.table(numbers))
        return numbers
    from benchmarks import papers, search, suite, table

    if given.name == "model":
        return of_model(given, keep)
    if given.name == "ablate":
        return of_rules(given, keep)
    if given.name == "dask":
        from benchmarks import chunked

        numbers = chunked.run(
            given.gigabytes,
            given.folder,
            given.chunk,
            budget=given.budget,
            parts=given.parts or chunked.PARTS,
            earlier=earlier(given),
            keep=keep,
        )
        chunked.show(numbers)
        return numbers
    if given.name in OF_CODE:
        return OF_CODE[given.name](given, keep)
    if given.name in ("idioms", "products"):
        from benchmarks import idioms, products

        module: Any = idioms if given.name == "idioms" else products
        many = [module.run(threads=n, small=given.small, budget=given.budget) for n in given.threads or (None,)]
        for of_threads in many:
            module.show(of_threads)
        return {**suite.about(), "rows": [row for of_threads in many for row in of_threads]}
    if given.name == "search" and given.tables:
        suite.check_names("application", given.apps, NAMES)
        limit = given.limit or papers.LIMIT
        head = {**suite.about(), "limit": limit}
        rows = papers.run(
            given.apps, given.threads, small=given.small, limit=limit, keep=lambda rows: keep({**head, **rows})
        )
        papers.show(rows)
        return {**head, **rows}
    schedules = given.hjit or (HJIT_SCHEDULES if given.name == "search" else HJIT_SCHEDULES[:2])
    searches = (
        search.run(given.apps, [x for x in schedules if x in SEARCHED], given.threads, small=given.small)
        if given.name == "search"
        else None
    )
    found: dict[str, Any] = {}
    if searches is not None:
        found["search"] = searches
        search.show(searches)
        keep({**suite.about(), **found})
    numbers = suite.run(
        given.apps,
        given.peers,
        given.threads,
        small=given.small,
        budget=given.budget,
        halide=given.halide,
        hjit=schedules,
        keep=lambda numbers: keep({**numbers, **found}),
    )
    table.show(numbers)
    return {**numbers, **found}


def earlier(given: argparse.Namespace) -> dict[str, Any]:
    """What the file has of an earlier run."""
    found: dict[str, Any] = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    return found


def of_skimage(given: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The counts of tests of scikit-image, beside those of other files that the JSON file has; and the table."""
    from benchmarks import skimage_tests

    numbers = skimage_tests.run(
        given.modules or skimage_tests.MODULES,
        words=given.files,
        source=given.source,
        limit=given.limit or skimage_tests.LIMIT,
        earlier=earlier(given).get("files", ()),
        keep=keep,
    )
    if given.table:
        given.table.write_text(skimage_tests.markdown(numbers), encoding="utf-8")
    return numbers


def of_coverage(given: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The rows of functions, beside those of others that the file has; and the table, of all of them."""
    from benchmarks import coverage

    numbers = coverage.run(
        given.size or coverage.SIZES,
        given.functions,
        seconds=0.0 if given.kinds else given.budget,
        limit=given.limit or coverage.LIMIT,
        earlier=earlier(given),
        missing=given.missing,
        older_than=given.older_than,
        minutes=math.inf if given.minutes is None else given.minutes,
        keep=keep,
    )
    table = given.table or (coverage.TABLE if given.json == coverage.RESULTS else None)
    if table:
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(coverage.markdown(numbers), encoding="utf-8")
    coverage.show(numbers)
    return numbers


def of_npbench(given: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The rows of npbench's kernels, beside those of others that the file has."""
    from benchmarks import npbench

    numbers = npbench.run(
        given.source,
        given.sizes or npbench.SIZES,
        given.kernels,
        seconds=0.0 if given.kinds else given.budget,
        limit=given.limit or npbench.LIMIT,
        earlier=earlier(given).get("rows", ()),
        keep=keep,
    )
    npbench.show(numbers)
    return numbers


OF_CODE = {"coverage": of_coverage, "npbench": of_npbench, "skimage": of_skimage}  # that others have written


def of_model(given: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """How good the cost model's own choices are."""
    from benchmarks import model, suite
    from benchmarks.apps import NAMES

    suite.check_names("application", given.apps, NAMES)
    limit = given.limit or model.LIMIT
    numbers = model.run(
        given.apps, given.weights, small=given.small, calibrated=given.calibrated, limit=limit, keep=keep
    )
    model.show(numbers)
    return numbers


def of_rules(given: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The rows of programs under rules, beside those of programs that the JSON file has."""
    from benchmarks import ablate, suite
    from hjit.kernels.runtime.launch import cores

    def numbers(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {**suite.about(), "summary": ablate.summary(rows), "rows": rows}

    rows = ablate.run(
        given.sets or ablate.SETS,
        given.functions,
        given.rules,
        threads=(given.threads or [cores()])[0],
        small=given.small,
        budget=min(given.budget, 0.5),
        limit=given.limit or ablate.LIMIT,
        earlier=earlier(given).get("rows", ()),
        keep=lambda rows: keep(numbers(rows)),
    )
    ablate.show(rows)
    return numbers(rows)


def on_gpu(given: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The numbers of the applications on a GPU, beside those that the file has."""
    from benchmarks.apps import NAMES
    from benchmarks.gpu import suite, table
    from benchmarks.suite import check_names

    check_names("application", given.apps, NAMES)
    try:
        numbers = suite.run(
            given.apps,
            earlier(given),
            minutes=suite.MINUTES if given.minutes is None else given.minutes,
            small=given.small,
            stand_in=given.stand_in,
            halide=given.halide_cuda,
            budget=min(given.budget, suite.CANDIDATE_SECONDS),
            keep=keep,
        )
    except RuntimeError as error:
        raise ValueError(str(error)) from None  # said as a wrong option is
    table.show(numbers)
    return numbers


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a benchmark and write its numbers."""
    p = parser()
    given = p.parse_args(arguments)
    if given.name == "coverage" and not given.json:
        from benchmarks import coverage

        given.json = coverage.RESULTS

    def keep(numbers: dict[str, Any]) -> None:
        if given.json:
            given.json.parent.mkdir(parents=True, exist_ok=True)
            partial = given.json.with_name(given.json.name + ".partial")  # a run that is killed leaves the file whole
            partial.write_text(json.dumps(numbers, indent=2) + "\n")
            partial.replace(given.json)

    try:
        keep(measured(given, keep))
    except ValueError as error:
        p.error(str(error))


if __name__ == "__main__":
    main()
