"""The disk cache: object code, plans, results of traces and of comparisons, facts of the machine.

Each is an entry under a key of everything that it depends on.

An entry is one immutable file: a line of JSON (the header), then the payload. It is written under a temporary name and
renamed. Whatever is wrong with a file, a folder or a disk, reading gives None and writing does nothing: a bad cache
costs time, never a wrong answer. There are no locks: two processes that make the same entry both write it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy import __version__ as numpy

from hjit.errors import raise_if_signalled
from hjit.version import __version__ as hjit

log = logging.getLogger("hjit")

FORMAT = "hjit-1"
MAX_BYTES = 512 << 20  # of the folder, and so of an entry
SUFFIXES = (".code", ".plan", ".facts", ".bound", ".verdict", ".refusal", ".outcomes", ".split", ".samples")
TRIM_EVERY = 64  # stores between two trims of the folder: listing it takes as long as some stores
ABANDONED_SECONDS = 3600.0  # age of a temporary file whose writer must have died
OTHERS_WRITE = 0o022  # permissions of a folder that is not private
# A link is not followed, and opening a pipe does not wait for its writer
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_stores = 0
_refused: set[str] = set()  # folders that were warned of


def digest(*parts: str) -> str:
    """The name of an entry: a hash of everything that it depends on."""
    h = hashlib.sha256()
    for p in parts:
        data = p.encode(errors="surrogatepass")  # a file may have any bytes for a name
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


@functools.lru_cache(maxsize=1)
def versions() -> str:
    """The versions that code depends on."""
    from llvmlite import __version__ as llvmlite

    return f"hjit={hjit} numpy={numpy} numba={_of_numba()} llvmlite={llvmlite} source={_source_hash()}"


def _of_numba() -> str:
    """A hash of what numba says of its version: it is not imported, as it takes longer than a warm start."""
    found = importlib.util.find_spec("numba")
    with contextlib.suppress(OSError):
        if found is not None and found.origin is not None:
            return hashlib.sha256(Path(found.origin).with_name("_version.py").read_bytes()).hexdigest()[:16]
    return "unknown"


def _source_hash() -> str:
    """A hash of hjit's own files by size and time: a changed checkout never loads code that it made before."""
    found: list[str] = []
    root = os.path.dirname(__file__)
    folders = [root]
    while folders:
        where = folders.pop()
        with contextlib.suppress(OSError), os.scandir(where) as entries:
            for e in entries:
                if e.name.endswith(".py"):
                    s = e.stat()
                    found.append(f"{where[len(root) :]}/{e.name} {s.st_size} {s.st_mtime_ns}")
                elif e.is_dir(follow_symlinks=False) and e.name != "__pycache__":
                    folders.append(e.path)
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()[:16]


def _own(info: os.stat_result) -> bool:
    """Does a file or folder belong to this user?"""
    return not hasattr(os, "getuid") or info.st_uid == os.getuid()


def _private(info: os.stat_result) -> bool:
    """Is it a folder of this user, in which no other user can create files?"""
    return stat.S_ISDIR(info.st_mode) and _own(info) and not stat.S_IMODE(info.st_mode) & OTHERS_WRITE


def _user_folder() -> Path:
    """Where caches of this user are; without platformdirs, where it says that they are on Linux."""
    try:
        from platformdirs import user_cache_path
    except ImportError:  # hjit runs from a checkout, beside no more than what it computes with
        named = Path(os.environ.get("XDG_CACHE_HOME", "").strip())
        return (named if named.is_absolute() else Path.home() / ".cache") / "hjit"
    return user_cache_path("hjit", appauthor=False)


def folder(cache_dir: str | os.PathLike[str], make: bool = True) -> Path | None:
    """The folder of the cache; None where there can be none.

    An existing folder stays as it is. If others can write to it, or it belongs to somebody else, entries go into a
    private folder inside it.

    Args:
        make: create a folder that is missing; otherwise the result is None.
    """
    try:
        if cache_dir:
            path = Path(cache_dir).expanduser()
        else:
            path = _user_folder()
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path if _private(path.stat()) else _inside(path, make)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError, ValueError) as error:
        raise_if_signalled(error)
        log.debug("no cache folder: %s", error)
        return None


def _inside(shared: Path, make: bool) -> Path | None:
    """This user's own folder in one that is shared with others; None, with one warning, if none is safe."""
    path = shared / (f"hjit-{os.getuid()}" if hasattr(os, "getuid") else "hjit")
    try:
        if make:
            path.mkdir(mode=0o700, exist_ok=True)
        info = path.lstat()  # a link may point to a folder of this user with other contents
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        _refuse(shared, f"{path.name} cannot be made in it: {error.strerror}")
        return None
    if _private(info):
        return path
    _refuse(shared, f"{path.name} in it is no private folder of this user")
    return None


def _refuse(shared: Path, why: str) -> None:
    """Warn once that a folder is not used."""
    if str(shared) not in _refused:
        _refused.add(str(shared))
        log.warning("hjit keeps no cache in %s: others can write to it, or it is another user's, and %s", shared, why)


def _read(path: Path, touch: bool) -> bytes:
    """The bytes of an entry. The open file is checked: its name may lead elsewhere a moment later.

    Args:
        touch: mark it as used now.

    Raises:
        OSError, ValueError: it is a link, no regular file, another user's, or too large.
    """
    handle = os.open(path, _READ)
    with os.fdopen(handle, "rb") as f:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or not _own(info) or info.st_size > MAX_BYTES:
            raise ValueError("not a file of this user, or too large")
        if touch:
            with contextlib.suppress(OSError):
                os.utime(handle if os.utime in os.supports_fd else path)
        return f.read(info.st_size)


def load(name: str, cache_dir: str | os.PathLike[str], mode: str, kind: str = "code") -> bytes | None:
    """The payload of an entry, or None; `kind`: one of `SUFFIXES`, without its dot."""
    if mode == "off":
        return None
    where = folder(cache_dir, make=False)
    found = None if where is None else _entry(where / f"{name}.{kind}", mode == "rw")
    return None if found is None else found[1]


def entries(kind: str, cache_dir: str | os.PathLike[str] = "") -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """All entries of a kind that are whole: name, header and payload, the latest written first."""
    where = folder(cache_dir, make=False)
    if where is None:
        return
    found: list[tuple[int, Path]] = []
    for path in where.glob(f"*.{kind}"):
        with contextlib.suppress(OSError):
            found.append((path.lstat().st_mtime_ns, path))
    for _, path in sorted(found, reverse=True):
        entry = _entry(path, False)
        if entry is not None:
            yield path.stem, *entry


def _entry(path: Path, touch: bool) -> tuple[dict[str, Any], bytes] | None:
    """The header and the payload of an entry; None where it is not whole."""
    name = path.stem
    try:
        line, _, payload = _read(path, touch).partition(b"\n")
        header: Any = json.loads(line)
        if (
            header["format"] != FORMAT
            or header["name"] != name
            or header["sha256"] != hashlib.sha256(payload).hexdigest()
        ):
            raise ValueError("header and payload do not agree")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise_if_signalled(error)
        log.debug("cache entry %s is not usable: %s", name, error)
        return None
    return header, payload


def store(
    name: str, payload: bytes, about: dict[str, Any], cache_dir: str | os.PathLike[str], mode: str, kind: str = "code"
) -> None:
    """Write an entry; failure is silent."""
    global _stores
    if mode != "rw":
        return
    where = folder(cache_dir)
    if where is None:
        return
    header = {"format": FORMAT, "name": name, "sha256": hashlib.sha256(payload).hexdigest(), **about}
    data = json.dumps(header).encode() + b"\n" + payload
    temporary = where / f"{os.urandom(8).hex()}.new"
    try:
        with open(temporary, "xb", opener=_private_file) as f:
            f.write(data)
        os.replace(temporary, where / f"{name}.{kind}")
    except OSError as error:
        log.debug("cache entry %s is not written: %s", name, error)
        raise_if_signalled(error)
        return
    finally:
        try:  # before anything else is called, which a signal may interrupt
            os.unlink(temporary)
        except OSError:  # it has another name by now
            pass
    _stores += 1
    if _stores % TRIM_EVERY == 1:
        trim(where)


def _private_file(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def trim(where: Path, limit: int = MAX_BYTES) -> None:
    """Remove abandoned temporary files, and least recently used entries until the folder is below its limit."""
    try:
        entries = []
        for path in where.iterdir():
            with contextlib.suppress(OSError):
                s = path.lstat()
                if path.suffix == ".new" and time.time() - s.st_mtime > ABANDONED_SECONDS:
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
        raise_if_signalled(error)
        log.debug("cache folder not trimmed: %s", error)


def clear(cache_dir: str | os.PathLike[str] = "") -> int:
    """Remove all entries and temporary files; returns how many entries there were."""
    where = folder(cache_dir, make=False)
    count = 0
    for path in [] if where is None else [x for x in where.iterdir() if x.suffix in (*SUFFIXES, ".new")]:
        with contextlib.suppress(OSError):
            path.unlink()
            count += path.suffix in SUFFIXES
    return count
