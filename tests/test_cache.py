"""The disk cache: a second process compiles nothing, and nothing that is wrong with a file or a folder shows."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import cache
from hjit.kernels.runtime import kernel
from tests.scripts import ROOT, TIMEOUT, run_file, run_script

pytestmark = pytest.mark.filterwarnings("error::hjit.HjitWarning")

IMAGE = np.arange(2000.0).reshape(40, 50)
SCRIPT = """
    import sys
    import numpy as np
    import hjit

    def gain(img):
        return img * 3

    @hjit.pipeline(verify="off")
    def f(img):
        return np.sqrt(gain(img) + 1)

    img = np.arange(2000.0).reshape(40, 50)
    assert (f(img) == f.py_func(img)).all()
    assert (f(img[:30]) == f.py_func(img[:30])).all()
    print(f.stats.compilations, f.stats.cache_hits)
"""


pytestmark = pytest.mark.usefixtures("no_kernels")


def use(folder: Any, mode: str = "rw") -> tuple[int, int]:
    """A pipeline with a cache in `folder`: kernels compiled, and loaded from it."""
    kernel._kernels.clear()
    kernel._others.clear()
    p = hjit.pipeline(lambda img: img * 5 + 7, cache_dir=folder, cache=mode, verify="off")
    for _ in range(2):
        np.testing.assert_array_equal(p(IMAGE), IMAGE * 5 + 7)
    return p.stats.compilations, p.stats.cache_hits


def entry(folder: Path) -> Path:
    """The one entry of a folder."""
    (path,) = folder.glob("*.code")
    return path


# -- hits


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    assert run_script(tmp_path, SCRIPT, HJIT_CACHE_DIR=folder).split() == ["1", "0"]
    assert run_script(tmp_path, SCRIPT, HJIT_CACHE_DIR=folder).split() == ["0", "1"]


def test_what_is_part_of_the_key(tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    assert run_script(tmp_path, SCRIPT, HJIT_CACHE_DIR=folder).split() == ["1", "0"]
    comment = SCRIPT.replace("return img * 3", "# three times\n        return img * 3").replace("gain", "amplify")
    assert run_script(tmp_path, comment, HJIT_CACHE_DIR=folder).split() == ["0", "1"]
    assert run_script(tmp_path, SCRIPT.replace("img * 3", "img * 4"), HJIT_CACHE_DIR=folder).split() == ["1", "0"]
    assert run_script(tmp_path, SCRIPT.replace("sqrt", "abs"), HJIT_CACHE_DIR=folder).split() == ["1", "0"]
    assert run_script(tmp_path, SCRIPT, HJIT_CACHE_DIR=folder, HJIT_FAST_MATH="1").split() == ["1", "0"]
    assert run_script(tmp_path, SCRIPT, HJIT_CACHE_DIR=folder).split() == ["0", "1"]


def test_the_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path / "a" / "b"))
    p = hjit.pipeline(lambda img: img * 5 + 8)
    p(IMAGE)
    assert len(list((tmp_path / "a" / "b").glob("*.code"))) == 1


def test_a_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder("~/here") == tmp_path / "here"


def test_without_platformdirs_caches_are_where_it_says_on_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unix = pytest.importorskip("platformdirs.unix")
    monkeypatch.setenv("HOME", str(tmp_path))
    places = {}
    for variable in (None, "", str(tmp_path / "caches"), "~/caches"):
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        if variable is not None:
            monkeypatch.setenv("XDG_CACHE_HOME", variable)
        places[variable] = unix.Unix("hjit", appauthor=False).user_cache_path
        with monkeypatch.context() as m:
            m.setitem(sys.modules, "platformdirs", None)
            assert cache.folder("") == places[variable]
    assert places[None] == places[""] == tmp_path / ".cache" / "hjit"


# -- modes


def test_modes(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert use(folder, "off") == (1, 0)
    assert not folder.exists()
    assert use(folder, "ro") == (1, 0)
    assert list(folder.glob("*")) == []
    assert use(folder) == (1, 0)
    before = entry(folder).stat().st_mtime_ns
    assert use(folder, "ro") == (0, 1)
    assert entry(folder).stat().st_mtime_ns == before
    assert use(folder, "off") == (1, 0)
    assert use(folder) == (0, 1)


# -- bad entries


def other_payload(data: bytes) -> bytes:
    head, _, payload = data.partition(b"\n")
    return head + b"\n" + payload[:-1] + bytes([payload[-1] ^ 1])


def other_header(**changes: Any) -> Any:
    def change(data: bytes) -> bytes:
        head, _, payload = data.partition(b"\n")
        return json.dumps({**json.loads(head), **changes}).encode() + b"\n" + payload

    return change


def signed_garbage(data: bytes) -> bytes:
    import hashlib

    payload = b"[]\nnot object code at all"
    return other_header(sha256=hashlib.sha256(payload).hexdigest())(data).partition(b"\n")[0] + b"\n" + payload


BAD = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "header only": lambda data: data.partition(b"\n")[0],
    "garbage": lambda data: bytes(range(256)) * 20,
    "zeros": lambda data: bytes(len(data)),
    "longer": lambda data: data + b"x",
    "a flipped bit": other_payload,
    "another name": other_header(name="hjit_0"),
    "another format": other_header(format="hjit-0"),
    "no hash": other_header(sha256=None),
    "a list": lambda data: b"[1, 2]\nx",
    "a number": lambda data: b"3\nx",
    "nested": lambda data: b"[" * 100_000 + b"\nx",
    "not UTF-8": lambda data: b"\xff\xfe{}\nx",
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_entries(kind: str, tmp_path: Path) -> None:
    use(tmp_path)
    path = entry(tmp_path)
    good = path.read_bytes()
    path.write_bytes(BAD[kind](good))  # type: ignore[no-untyped-call]
    assert use(tmp_path) == (1, 0)
    assert path.read_bytes() == good
    assert use(tmp_path) == (0, 1)


def test_an_entry_that_is_no_file(tmp_path: Path) -> None:
    use(tmp_path)
    path = entry(tmp_path)
    path.unlink()
    path.mkdir()
    assert use(tmp_path) == (1, 0)
    path.rmdir()
    os.mkfifo(path)
    assert use(tmp_path) == (1, 0)
    assert use(tmp_path) == (0, 1)
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    assert use(tmp_path) == (1, 0)


def test_an_entry_of_another_kernel(tmp_path: Path) -> None:
    use(tmp_path / "a")
    p = hjit.pipeline(lambda img: img * 5 - 7, cache_dir=tmp_path / "b", verify="off")
    p(IMAGE)
    entry(tmp_path / "a").write_bytes(entry(tmp_path / "b").read_bytes())
    assert use(tmp_path / "a") == (1, 0)


# -- bad folders


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for folder in (file, file / "inside"):
        assert use(folder) == (1, 0)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("folder", ["/proc/no/such", "/dev/null", "x" * 5000, "a\0b"])
def test_impossible_folders(folder: str) -> None:
    assert use(folder) == (1, 0)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path / "full")

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("hjit.cache._private_file", refuse)
    assert use(tmp_path / "empty") == (1, 0)
    monkeypatch.setattr("os.utime", refuse)
    assert use(tmp_path / "full") == (0, 1)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        assert use(tmp_path) == (1, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_permissions(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0)
    try:
        np.testing.assert_array_equal(hjit.pipeline(lambda img: img * 5 + 9, cache_dir=locked)(IMAGE), IMAGE * 5 + 9)
    finally:
        locked.chmod(0o700)


def test_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert use(tmp_path) == (1, 0)


def test_a_folder_is_removed_while_in_use(tmp_path: Path) -> None:
    use(tmp_path / "cache")
    entry(tmp_path / "cache").unlink()
    (tmp_path / "cache").rmdir()
    assert use(tmp_path / "cache") == (1, 0)
    assert use(tmp_path / "cache") == (0, 1)


def test_permissions(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        use(tmp_path / "new")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(tmp_path / "new").stat().st_mode) == 0o600


def private(shared: Path) -> Path:
    """This user's folder in one that others can write to."""
    return shared / f"hjit-{os.getuid()}"


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o2750])
def test_a_folder_that_others_cannot_write_to_is_used_as_it_is(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.chmod(mode)
    assert use(folder) == (1, 0)
    assert use(folder) == (0, 1)
    entry(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == mode


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o775])
def test_a_shared_folder_stays_as_it_is(mode: int, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    assert use(shared, "ro") == use(shared, "off") == (1, 0)
    assert list(shared.iterdir()) == []
    assert use(shared) == (1, 0)
    assert use(shared) == use(shared, "ro") == (0, 1)
    assert list(shared.iterdir()) == [private(shared)]
    assert stat.S_IMODE(shared.stat().st_mode) == mode
    assert stat.S_IMODE(private(shared).stat().st_mode) == 0o700
    assert cache.clear(shared) == 1


def other_users_folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


@pytest.mark.parametrize("kind", ["link", "file", "open to all"])
def test_a_private_folder_that_is_not_private_is_not_used(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    shared.mkdir()
    shared.chmod(0o777)
    mine.mkdir(mode=0o700)
    make = {
        "link": lambda path: path.symlink_to(mine),
        "file": lambda path: path.write_text("x"),
        "open to all": other_users_folder,
    }
    make[kind](private(shared))
    mode = stat.S_IMODE(private(shared).lstat().st_mode)
    assert use(shared) == use(shared) == (1, 0)
    assert list(mine.iterdir()) == []
    assert stat.S_IMODE(private(shared).lstat().st_mode) == mode
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1
    assert str(shared) in caplog.text


def test_reading_makes_no_folder(tmp_path: Path) -> None:
    assert cache.load("entry", tmp_path / "none", "rw") is None
    assert cache.clear(tmp_path / "none") == 0
    assert use(tmp_path / "none", "ro") == (1, 0)
    assert list(tmp_path.iterdir()) == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    use(tmp_path / "a")
    use(tmp_path / "b")
    path, other = entry(tmp_path / "a"), entry(tmp_path / "b")
    path.unlink()
    path.symlink_to(other)
    os.utime(other, (1, 1))
    assert use(tmp_path / "a", "ro") == (1, 0)
    assert use(tmp_path / "a") == (1, 0)
    assert not path.is_symlink()
    assert other.stat().st_mtime == 1
    assert use(tmp_path / "a") == (0, 1)


def test_a_link_counts_and_goes_by_itself(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("x" * 5000)
    folder = tmp_path / "cache"
    cache.store("entry", bytes(1000), {}, folder, "rw")
    (folder / "link.code").symlink_to(kept)
    (folder / "nowhere.code").symlink_to(tmp_path / "nowhere")
    cache.trim(folder, 4000)
    assert cache.load("entry", folder, "rw") == bytes(1000)
    cache.trim(folder, 0)
    assert list(folder.iterdir()) == []
    assert kept.stat().st_size == 5000


@pytest.mark.parametrize("what", ["owner", "size"])
def test_the_open_file_is_what_is_checked(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path)
    look = os.fstat
    position, value = {"owner": (4, os.getuid() + 1), "size": (6, cache.MAX_BYTES + 1)}[what]

    def changed(handle: int) -> os.stat_result:
        found = list(look(handle))
        found[position] = value
        return os.stat_result(found)

    monkeypatch.setattr("os.fstat", changed)
    assert cache.load(entry(tmp_path).stem, tmp_path, "ro") is None
    monkeypatch.undo()
    assert cache.load(entry(tmp_path).stem, tmp_path, "ro") is not None


def test_what_is_left_of_writing_is_cleared(tmp_path: Path) -> None:
    cache.store("entry", bytes(1000), {}, tmp_path, "rw")
    (tmp_path / "left.new").write_text("x")
    (tmp_path / "kept.txt").write_text("x")
    assert cache.clear(tmp_path) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]


# -- size


def test_the_oldest_are_trimmed(tmp_path: Path) -> None:
    for k in range(10):
        cache.store(f"entry{k}", bytes(1000), {}, tmp_path, "rw")
        os.utime(tmp_path / f"entry{k}.code", (k, k))
    (tmp_path / "kept.txt").write_text("x" * 5000)
    (tmp_path / "old.new").write_text("x")
    os.utime(tmp_path / "old.new", (0, 0))
    (tmp_path / "recent.new").write_text("x")
    assert cache.load("entry0", tmp_path, "rw") == bytes(1000)
    cache.trim(tmp_path, 4000)
    assert {p.name for p in tmp_path.iterdir()} == {
        "entry0.code",
        "entry8.code",
        "entry9.code",
        "kept.txt",
        "recent.new",
    }
    cache.trim(tmp_path / "missing", 0)
    assert cache.clear(tmp_path) == 3
    assert cache.load("entry0", tmp_path, "rw") is None


# -- two processes


def test_two_processes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("""
import sys
import numpy as np
import hjit

img = np.arange(2000.0).reshape(40, 50)
for k in range(6):
    f = hjit.pipeline(lambda img: np.sqrt(img) * (1 + k), verify="off", cache_dir=sys.argv[1])
    assert (f(img) == f.py_func(img)).all()
""")
    folder = tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(path), str(folder)]
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in running:
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, errors
    assert {p.suffix for p in folder.iterdir()} == {".code"}
    for p in folder.iterdir():
        assert cache.load(p.stem, folder, "rw") is not None
    run_file(path, args=(str(folder),))


def test_a_source_file_may_have_any_bytes_for_a_name(tmp_path: Path) -> None:
    def f(img: Any) -> Any:
        return img + 1

    f.__code__ = f.__code__.replace(co_filename=os.fsdecode(b"/caf\xe9.py"))
    p = hjit.pipeline(f, cache_dir=tmp_path)
    assert np.array_equal(p(np.ones(9)), np.full(9, 2.0)) and p.stats.fallbacks == 0
