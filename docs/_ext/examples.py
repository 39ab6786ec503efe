"""The examples of the documents: fenced blocks of Python, run in the order of a page, in one namespace for each page.

A block ```` ```python ```` is shown as it is. A block ```` ```{run} ```` is also run when the documents are built, and
what it prints is shown below it. The tests run both (`tests/test_docs.py`). What no machine of the tests can run is
fenced as ```` ```{code-block} python ````.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
from collections.abc import Iterator
from typing import Any

FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>\{run\}|python)[^\n]*\n(?P<body>.*?)^(?P=fence)[ ]*$", re.M | re.S)
OPTION = re.compile(r":[a-z-]+:")


def blocks(page: str) -> Iterator[tuple[int, str]]:
    """The examples of a page in Markdown: the number of the first line of each, and the code."""
    for found in FENCE.finditer(page):
        line = page[: found.start("body")].count("\n") + 1
        lines = found["body"].split("\n")
        if found["info"] == "{run}":
            while lines and OPTION.match(lines[0]):
                lines.pop(0)
                line += 1
        yield line, "\n".join(lines).strip("\n") + "\n"


def run(code: str, namespace: dict[str, Any]) -> str:
    """Run an example; returns what it prints. Its source is ``example_1.py`` for the first of a page, and so on."""
    number = namespace["__examples__"] = namespace["__examples__"] + 1
    name = f"example_{number}.py"
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name  # for tracebacks and `inspect`
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), namespace)
    return printed.getvalue()


def new_namespace() -> dict[str, Any]:
    """That of a page, before its first example."""
    return {"__name__": "example", "__examples__": 0}
