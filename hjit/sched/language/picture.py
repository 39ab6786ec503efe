"""Schedule trees as HTML, for notebooks."""

from __future__ import annotations

import html

from hjit.sched.language.kinds import LOOP_KINDS
from hjit.sched.language.tree import Compute, Loop, Node, Store, compute_name, loop_name, store_name

STYLE = (
    "border:1px solid #94a3b8;border-radius:4px;color:#0f172a;padding:3px 8px;margin:3px 0;font:12px sans-serif;"
    "background:"
)


def schedule_html(node: Node) -> str:
    """A schedule tree as nested boxes, coloured by the kind of loop."""
    children = "" if isinstance(node, Compute) else "".join(map(schedule_html, node.children))
    match node:
        case Compute():
            return f"<div style='margin:3px 0'><b>{html.escape(compute_name(node))}</b></div>"
        case Loop():
            title, colour = loop_name(node), LOOP_KINDS[node.kind].colour
        case Store():
            title, colour = store_name(node), "#ffffff"
        case _:
            title, colour = "root", "#ffffff"
    return f"<div style='{STYLE}{colour}'>{html.escape(title)}<div style='padding-left:10px'>{children}</div></div>"
