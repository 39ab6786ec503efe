"""A cache with damaged, exchanged and hostile entries costs time, never an answer, an exception or the process.

A program runs with an empty cache, the files in it are changed, what is in memory is forgotten, and it runs again, and
once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.campaign import programs, source
from tests.campaign.fresh import forget
from tests.campaign.kinds import OK, Case, Result
from tests.campaign.mutated_schedules import mutated

FIRST = 10**7  # of the seeds of its functions: others than those of `programs`
LIMIT = 120.0
MOST_CHANGES = 4

Change = Callable[[Path, list[Path], random.Random], None]


def case(seed: int) -> Case:
    """A function, and how many changes are made to its cache."""
    found = programs.case(FIRST + seed)
    return {**found, "seed": seed, "changes": random.Random(seed).randint(1, MOST_CHANGES)}


def run(case: Case) -> Result:
    """Fill the cache, change it, use it twice."""
    r = random.Random(case["seed"])
    with tempfile.TemporaryDirectory(prefix="hjit-campaign-") as name:
        folder = Path(name) / "cache"
        applied: list[str] = []
        for k in range(3):
            forget()
            result = programs.run(case, cache="rw", cache_dir=str(folder))
            if result.status == "failed":
                made = f" after {', '.join(applied)}" if applied else ""
                return Result("failed", result.sort, f"run {k}{made}: {result.text}")
            if result.status != "ok":
                return result
            if k == 0:
                applied = [change(folder, r) for _ in range(case["changes"])]
    return OK


def change(folder: Path, r: random.Random) -> str:
    """Change one of the entries, or the folder; answers what was done."""
    files = [
        f for f in sorted(folder.glob("*.*")) if f.is_file() and not f.is_symlink()
    ]  # this process shall not wait for a pipe
    if not files:
        return "nothing"
    file, how = r.choice(files), r.choice(CHANGES)
    with contextlib.suppress(OSError, ValueError):  # of what an earlier change has made of it
        how(file, files, r)
    return f"{how.__name__} of {file.suffix}"


# -- changes


def bits(file: Path, files: list[Path], r: random.Random) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(r.randint(1, 8)):
        data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    file.write_bytes(bytes(data))


def cut(file: Path, files: list[Path], r: random.Random) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: r.randrange(len(data))])


def longer(file: Path, files: list[Path], r: random.Random) -> None:
    file.write_bytes(file.read_bytes() + r.randbytes(r.randint(1, 100)))


def noise(file: Path, files: list[Path], r: random.Random) -> None:
    file.write_bytes(r.randbytes(r.choice((0, 1, 100, 10_000))))


def exchanged(file: Path, files: list[Path], r: random.Random) -> None:
    file.write_bytes(r.choice(files).read_bytes())


def renamed(file: Path, files: list[Path], r: random.Random) -> None:
    file.replace(
        file.with_suffix(
            r.choice((".code", ".plan", ".bound", ".verdict", ".refusal", ".outcomes", ".split", ".facts", ".new"))
        )
    )


def header(file: Path, files: list[Path], r: random.Random) -> None:
    head, _, payload = file.read_bytes().partition(b"\n")
    data = json.loads(head)
    data[r.choice(list(data))] = r.choice((None, 0, "", [], {}, 2**70, "x" * 10_000))
    file.write_bytes(json.dumps(data).encode() + b"\n" + payload)


def signed(file: Path, files: list[Path], r: random.Random) -> None:
    """A plan, say, with a valid hash, from somebody who knows the format. (Code and parameters would run: the user's.)"""
    if file.suffix in (".code", ".bound"):
        return bits(file, files, r)
    head, _, payload = file.read_bytes().partition(b"\n")
    data = json.loads(payload)
    if isinstance(data, dict):
        rows = mutated([[k, v] for k, v in data.items()], r, r.randint(1, 3))
        data = {row[0]: row[1] for row in rows if isinstance(row, list) and len(row) == 2 and isinstance(row[0], str)}
    else:
        data = mutated(data, r, r.randint(1, 3)) if isinstance(data, list) else r.choice((None, -1, 2**70, "", [data]))
    payload = json.dumps(data).encode()
    known = {**json.loads(head), "sha256": hashlib.sha256(payload).hexdigest()}
    file.write_bytes(json.dumps(known).encode() + b"\n" + payload)


def removed(file: Path, files: list[Path], r: random.Random) -> None:
    file.unlink()


def directory(file: Path, files: list[Path], r: random.Random) -> None:
    file.unlink()
    file.mkdir()


def pipe(file: Path, files: list[Path], r: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


def link(file: Path, files: list[Path], r: random.Random) -> None:
    file.unlink()
    file.symlink_to(r.choice((file, Path("/dev/zero"), Path("nowhere"), file.parent)))


def forbidden(file: Path, files: list[Path], r: random.Random) -> None:
    file.chmod(r.choice((0, 0o200, 0o400)))


def folder_away(file: Path, files: list[Path], r: random.Random) -> None:
    file.parent.rename(file.parent.with_name("away"))


CHANGES: tuple[Change, ...] = (
    bits,
    bits,
    bits,
    cut,
    cut,
    longer,
    noise,
    exchanged,
    renamed,
    header,
    header,
    signed,
    signed,
    signed,
    removed,
    directory,
    pipe,
    link,
    forbidden,
    folder_away,
)


def smaller(case: Case) -> Iterator[Case]:
    """Smaller functions; the changes go with the seed."""
    yield from programs.smaller(case)


def described(case: Case) -> str:
    """The function; what is changed goes by the seed."""
    return f"# {case['changes']} changes of its cache by random.Random({case['seed']})\n{source.described(case)}"
