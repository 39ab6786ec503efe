"""The numbers of a GPU as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.gpu.worker import REFERENCES
from benchmarks.table import geomean

COLUMNS = ("copy", "cupy", "jax", "torch", "halide manual", "halide anderson2021", "hjit manual", "hjit default")
FAST = "hjit default fast"


def show(numbers: dict[str, Any]) -> None:
    """Print the numbers as a table, and what went wrong."""
    entries = {k: x for k, x in numbers["apps"].items() if "rows" in x}
    print(f"ms on {numbers['gpu']['name']}; copies {numbers['copy_gbs']:.0f} GB/s")
    print(aligned([("", *COLUMNS, FAST, "of the copy rate", "with transfers"), *map(_cells, entries.items())]))
    for reference in REFERENCES[:5]:
        for name in ("hjit default", FAST):
            ratios = [x["rows"].get(name, {}).get("ratios", {}) for x in entries.values()]
            found = [r[reference]["median"] for r in ratios if reference in r]
            if found:
                print(f"{reference} / {name}: {geomean(found):.2f} (of {len(found)})")
    calls = ", ".join(f"{name} {us} us" for name, us in numbers["call_us"].items())
    print(f"a warm call of one kernel, on the host: {calls}")
    for label, entry in numbers["apps"].items():
        for text in problems(label, entry):
            print(text)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Cells in columns: the first at its left, the others at their right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join([r[0].ljust(widths[0]), *map(str.rjust, r[1:], widths[1:])]).rstrip() for r in rows)


def problems(label: str, entry: dict[str, Any]) -> Iterator[str]:
    """What went wrong in an application."""
    for name, row in entry.get("rows", {}).items():
        what = row.get("error") or ("disagrees with NumPy" if row.get("agrees") is False else None)
        if what:
            yield f"{label}, {name}: {what}"
    if "numpy_arrays_error" in entry:
        yield f"{label}, NumPy arrays: {entry['numpy_arrays_error']}"
    if "error" in entry:
        yield f"{label}: {entry['error']}"


def _cells(item: tuple[str, dict[str, Any]]) -> tuple[str, ...]:
    label, entry = item
    rows = entry["rows"]
    cells = [_ms(rows.get(name)) for name in (*COLUMNS, FAST)]
    part, moved = rows.get("hjit default", {}).get("part_of_copy"), entry.get("numpy_arrays_ms")
    return label, *cells, "-" if part is None else f"{part:.2f}", "-" if moved is None else f"{moved:.3g}"


def _ms(row: dict[str, Any] | None) -> str:
    if row is None or "median_ms" not in row:
        return "-" if row is None or "error" not in row else "failed"
    return f"{row['median_ms']:.3g}" + ("" if row.get("agrees", True) else " (disagrees)")
