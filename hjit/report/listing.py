"""Listings of Graphs, schedules and loops."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any


class Listing:
    """Printable objects, one for each segment of a pipeline; a notebook shows them as HTML."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.parts))

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, k: int) -> Any:
        return self.parts[k]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)

    def _repr_html_(self) -> str:
        return "".join(map(_html, self.parts))


def _html(part: Any) -> str:
    from hjit.report.pictures import graph_svg
    from hjit.sched.language.tree import Root, schedule_html
    from hjit.trace.ir.graph import Graph

    text = f"<pre style='line-height:1.3'>{html.escape(str(part))}</pre>"
    if isinstance(part, Graph):
        return f"{graph_svg(part)}<details><summary>as text</summary>{text}</details>"
    return (
        f"{schedule_html(part)}<details><summary>as text</summary>{text}</details>" if isinstance(part, Root) else text
    )
