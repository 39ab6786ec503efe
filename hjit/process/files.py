"""Atomic writing of files: a reader sees a whole file or none."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write in place of `path`, which it becomes at the end of the block; a process that has loaded the old
    one keeps it. Where the block raises, all is as before."""
    new = path.with_name(f".{secrets.token_hex(8)}.new{path.suffix}")
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
