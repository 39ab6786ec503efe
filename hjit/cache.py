"""The disk cache: object code, plans and facts of the machine, each under a key that says everything that it depends on.

One immutable file an entry: a line of JSON (the header), then the payload. A file is written beside its place and
renamed over it. Whatever is wrong with a file, a folder or a disk, reading answers None and writing does nothing:
a cache costs time, never an answer.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

log = logging.getLogger("hjit")

FORMAT = "hjit-1"
MAX_BYTES = 512 << 20
SUFFIXES = (".code", ".plan", ".facts")
TRIM_EVERY = 64  # stores between two looks at the size of the folder
_stores = 0


def digest(*parts: str) -> str:
    """The name of an entry: a hash of everything that it depends on."""
    h = hashlib.sha256()
    for p in parts:
        data = p.encode()
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


@functools.lru_cache(maxsize=1)
def versions() -> str:
    """The versions that code depends on."""
    from llvmlite import __version__ as llvmlite
    from numba import __version__ as numba
    from numpy import __version__ as numpy

    from hjit import __version__ as hjit

    return f"hjit={hjit} numpy={numpy} numba={numba} llvmlite={llvmlite} source={_source_hash()}"


def _source_hash() -> str:
    """A hash of hjit's own files by size and time: a development checkout never loads code of an older one."""
    h = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        with contextlib.suppress(OSError):
            s = path.stat()
            h.update(f"{path.name} {s.st_size} {s.st_mtime_ns}".encode())
    return h.hexdigest()[:16]


def _own(info: os.stat_result) -> bool:
    """Does a file or folder belong to this user?"""
    return not hasattr(os, "getuid") or info.st_uid == os.getuid()


def folder(cache_dir: str | os.PathLike[str]) -> Path | None:
    """The folder of the cache, made if need be and private to the user; None where there can be none."""
    try:
        if cache_dir:
            path = Path(cache_dir).expanduser()
        else:
            from platformdirs import user_cache_path

            path = user_cache_path("hjit", appauthor=False)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.stat()
        if not _own(info):
            log.warning("the cache folder belongs to another user and is not used")
            return None
        if stat.S_IMODE(info.st_mode) & 0o022:
            path.chmod(0o700)
        return path
    except (OSError, RuntimeError, ValueError) as error:
        log.debug("no cache folder: %s", error)
        return None


def load(name: str, cache_dir: str | os.PathLike[str], mode: str, kind: str = "code") -> bytes | None:
    """The payload of an entry, or None; `kind`: "code", "plan" or "facts"."""
    if mode == "off":
        return None
    where = folder(cache_dir)
    if where is None:
        return None
    path = where / f"{name}.{kind}"
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode) or not _own(info):
            raise ValueError("not a file of this user")
        line, _, payload = path.read_bytes().partition(b"\n")
        header: Any = json.loads(line)
        if header["format"] != FORMAT or header["name"] != name or header["sha256"] != hashlib.sha256(payload).hexdigest():
            raise ValueError("header and payload do not agree")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.debug("cache entry %s is not usable: %s", name, error)
        return None
    if mode == "rw":
        with contextlib.suppress(OSError):
            os.utime(path)
    return payload


def store(name: str, payload: bytes, about: dict[str, Any], cache_dir: str | os.PathLike[str], mode: str, kind: str = "code") -> None:
    """Write an entry; failure is silent."""
    global _stores
    if mode != "rw":
        return
    where = folder(cache_dir)
    if where is None:
        return
    header = {"format": FORMAT, "name": name, "sha256": hashlib.sha256(payload).hexdigest(), **about}
    data = json.dumps(header).encode() + b"\n" + payload
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=where, suffix=".new")
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.replace(temporary, where / f"{name}.{kind}")
    except OSError as error:
        log.debug("cache entry %s is not written: %s", name, error)
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return
    _stores += 1
    if _stores % TRIM_EVERY == 1:
        trim(where)


def trim(where: Path, limit: int = MAX_BYTES) -> None:
    """Remove the entries that were used longest ago until the folder is below its limit, and forgotten new files."""
    try:
        entries = []
        for path in where.iterdir():
            with contextlib.suppress(OSError):
                s = path.stat()
                if path.suffix == ".new" and time.time() - s.st_mtime > 3600:
                    path.unlink()
                elif path.suffix in SUFFIXES:
                    entries.append((s.st_mtime, s.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries, key=lambda e: e[0]):
            if total <= limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size
    except OSError as error:
        log.debug("cache folder not trimmed: %s", error)


def clear(cache_dir: str | os.PathLike[str] = "") -> int:
    """Remove all entries; how many there were."""
    where = folder(cache_dir)
    count = 0
    for path in [] if where is None else [x for x in where.iterdir() if x.suffix in SUFFIXES]:
        with contextlib.suppress(OSError):
            path.unlink()
            count += 1
    return count
