"""The command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hjit
from hjit import cli


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HJIT_CACHE", "rw")
    return tmp_path / "cache"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"hjit {hjit.__version__}\n"


def test_a_command_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([])
    assert stop.value.code == 2
    assert "command" in capsys.readouterr().err


def test_info(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_VERIFY", "off")
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert f"numpy             {np.__version__}" in out
    assert "'off'  (HJIT_VERIFY)" in out
    assert "fast_math       False\n" in out


def test_info_with_a_wrong_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_NUM_THREADS", "many")
    assert cli.main(["info"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("hjit: HJIT_NUM_THREADS='many'")
    assert err.count("\n") == 1


def test_cache(capsys: pytest.CaptureFixture[str], own_cache: Path) -> None:
    hjit.pipeline(lambda a: a * 3 - 1, verify="off")(np.ones((6, 5), np.float32))
    assert len(list(own_cache.glob("*.code"))) == 1
    assert cli.main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{own_cache}\n"
    assert cli.main(["cache"]) == 0
    assert "entries  1\n" in capsys.readouterr().out
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("1 entries removed")
    assert list(own_cache.glob("*.code")) == []


def test_no_cache_folder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert cli.main(["cache"]) == 1
    assert "no usable cache folder" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["12", "0x50", "64x", "-64x64", "64x1000000", "axb"])
def test_wrong_sizes(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", f"--size={size}"])
    assert stop.value.code == 2
    assert "HEIGHTxWIDTH" in capsys.readouterr().err


def test_demo_without_a_photo_s_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    missing = tmp_path / "none.jpg"
    assert cli.main(["demo", str(missing)]) == 1
    assert capsys.readouterr().err == f"hjit: no such photo: {missing}\n"


def test_demo_with_a_file_that_is_no_photo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    for name, data in (("text.png", b"not a picture"), ("cut.jpg", b"\xff\xd8\xff\xe0"), ("empty.png", b"")):
        (tmp_path / name).write_bytes(data)
        assert cli.main(["demo", str(tmp_path / name)]) == 1
        err = capsys.readouterr().err
        assert err.startswith("hjit: cannot read ")
        assert err.count("\n") == 1
    assert cli.main(["demo", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_demo_writes_where_it_can(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["demo", "--out", str(tmp_path / "no" / "demo.png"), "--size", "64x64"]) == 1
    assert "cannot write" in capsys.readouterr().err
