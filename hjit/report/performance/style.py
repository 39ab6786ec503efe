"""The style of reports: tables with captions, tabs without JavaScript, light and dark."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Sequence

LIGHT = "--hj-ink:#0f172a;--hj-paper:#ffffff;--hj-soft:#475569;--hj-line:#cbd5e1;--hj-lit:#1d4ed8;--hj-back:#f1f5f9"
DARK = "--hj-ink:#e2e8f0;--hj-paper:#0f172a;--hj-soft:#a8b5c7;--hj-line:#475569;--hj-lit:#93c5fd;--hj-back:#1e293b"
MAX_TABS = 10

CSS = f"""
.hjit-report{{{LIGHT};color:var(--hj-ink);background:var(--hj-paper);font:14px/1.45 system-ui,sans-serif;padding:12px}}
@media (prefers-color-scheme:dark){{.hjit-report{{{DARK}}}}}
[data-jp-theme-light="true"] .hjit-report{{{LIGHT}}}
[data-jp-theme-light="false"] .hjit-report{{{DARK}}}
.hjit-report h2{{font-size:1.25em;margin:0 0 8px}}
.hjit-report h3{{font-size:1.05em;margin:16px 0 6px}}
.hjit-report>input{{position:absolute;opacity:0;width:1px;height:1px}}
.hjit-report>label{{display:inline-block;padding:6px 12px;cursor:pointer;border-bottom:3px solid transparent}}
.hjit-report>input:checked+label{{border-color:var(--hj-lit);font-weight:600}}
.hjit-report>input:focus-visible+label{{outline:2px solid var(--hj-lit)}}
.hjit-report>.panels{{border-top:1px solid var(--hj-line);padding-top:10px}}
.hjit-report>.panels>section{{display:none}}
.hjit-report table{{border-collapse:collapse;margin:6px 0 12px;color:var(--hj-ink)}}
.hjit-report caption{{text-align:left;color:var(--hj-soft);padding-bottom:4px}}
.hjit-report th,.hjit-report td{{border:1px solid var(--hj-line);padding:3px 8px;text-align:right;background:none}}
.hjit-report th{{background:var(--hj-back)}}
.hjit-report th:first-child,.hjit-report td:first-child,.hjit-report .words th,.hjit-report .words td{{text-align:left}}
.hjit-report pre{{background:var(--hj-back);color:var(--hj-ink);padding:8px;overflow:auto;line-height:1.35}}
.hjit-report .picture{{overflow-x:auto}}
.hjit-report .beside{{display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start}}
.hjit-report .none{{color:var(--hj-soft)}}
.hjit-report .source td{{font-family:ui-monospace,monospace;white-space:pre;border:none;padding:1px 8px}}
.hjit-report .source td:nth-child(3){{text-align:left}}
""" + "".join(
    f".hjit-report>input:nth-of-type({k}):checked~.panels>section:nth-of-type({k}){{display:block}}\n"
    for k in range(1, MAX_TABS + 1)
)
PRINTED = "@media print{.hjit-report>.panels>section{display:block!important}}\n"

_numbers = itertools.count(1)  # of reports in one notebook: their tabs are apart


def tabs(title: str, sections: Sequence[tuple[str, str]]) -> str:
    """A page of tabs; without styles all of them are shown, one below the other."""
    number = next(_numbers)
    heads = "".join(
        f'<input type="radio" name="hjit-{number}" id="hjit-{number}-{k}"{" checked" if not k else ""}>'
        f'<label for="hjit-{number}-{k}">{text(name)}</label>'
        for k, (name, _) in enumerate(sections)
    )
    panels = "".join(
        f'<section aria-label="{text(name)}"><h2>{text(name)}</h2>{body}</section>' for name, body in sections
    )
    return (
        f'<div class="hjit-report"><style>{CSS}{PRINTED}</style><h2>{text(title)}</h2>{heads}'
        f'<div class="panels">{panels}</div></div>'
    )


def document(title: str, body: str) -> str:
    """A whole page, which needs no other file."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"></head>'
        f'<body style="margin:0">{body}</body></html>\n'
    )


def text(x: object) -> str:
    """Escaped."""
    return html.escape(str(x), quote=True)


def pre(x: object) -> str:
    """As it is printed."""
    return f"<pre>{text(x)}</pre>"


def none(why: str) -> str:
    """In place of what there is not."""
    return f'<p class="none">{text(why)}.</p>'.replace("..</p>", ".</p>")


def folded(summary: str, body: str) -> str:
    """What is shown on a click."""
    return f"<details><summary>{text(summary)}</summary>{body}</details>"


def picture(svg: str) -> str:
    """A picture that may be wider than the page."""
    return f'<div class="picture" tabindex="0">{svg}</div>'


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    """A table; the first cell of a row names it. `kind`: "words" where no cell is a number."""
    top = "".join(f'<th scope="col">{text(x)}</th>' for x in head)
    body = "".join("<tr>" + "".join(f"<td>{text(x)}</td>" for x in row) + "</tr>" for row in rows)
    about = f' class="{kind}"' if kind else ""
    return f"<table{about}><caption>{text(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
