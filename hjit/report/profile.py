"""The listing of `hjit.profiler` for a person, and for a file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from hjit.report.columns import aligned
from hjit.report.equality import text as how_equal

COLUMNS = ("function", "where", "share", "calls", "runs", "speed", "results")


def show(rows: Sequence[Any], seconds: float, out: TextIO) -> None:
    """Print the rows of `hjit.profiler`: a table on a terminal, plain text elsewhere."""
    if not rows:
        out.write(f"No function that takes or returns arrays takes a share of the script's {seconds:.3g} s.\n")
        return
    cells = [_cells(row) for row in rows]
    if out.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(title=f"{seconds:.3g} s in the script")
        for name in COLUMNS:
            table.add_column(name, justify="right" if name in ("share", "calls", "speed") else "left")
        for row, of_row in zip(rows, cells, strict=True):
            table.add_row(*of_row, style="green" if row.pays else None)
        Console(file=out).print(table)
    else:
        out.write(f"{seconds:.3g} s in the script\n")
        out.writelines(f"{line}\n" for line in aligned([COLUMNS, *cells]))
    for row in rows:
        if row.why:
            out.write(f"{row.name}: {row.why}\n")


def as_json(rows: Iterable[Any], seconds: float) -> dict[str, Any]:
    """For a file; what JSON cannot say is null."""
    return {
        "seconds": seconds,
        "functions": [
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(row).items()}
            for row in rows
        ],
    }


def _cells(row: Any) -> tuple[str, ...]:
    lines = f" (line{'s' if len(row.breaks) > 1 else ''} {', '.join(map(str, row.breaks))})" if row.breaks else ""
    return (
        row.name,
        f"{os.path.relpath(row.file) if row.own else row.file}:{row.line}",
        f"{row.share:.0%}",
        str(row.calls),
        f"{row.kind}{lines}",
        "" if row.speed is None else f"{row.speed:.2g}x" if row.speed < 10 else f"{row.speed:.0f}x",
        "" if row.apart is None else how_equal(row.apart),
    )
