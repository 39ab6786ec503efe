"""The command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import cache, cli
from hjit.process import machine
from hjit.tuning import candidates, kept_plans, plans
from tests.sched.test_space import pyramid


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    monkeypatch.setenv("HJIT_WEIGHTS", "mine.npz")
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert "weights           mine.npz  (HJIT_WEIGHTS)\n" in out
    assert f"numpy             {np.__version__}" in out
    assert "'off'  (HJIT_VERIFY)" in out
    assert "fast_math          False\n" in out


def test_info_with_a_wrong_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_NUM_THREADS", "many")
    assert cli.main(["info"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("hjit: HJIT_NUM_THREADS='many'")
    assert err.count("\n") == 1


def test_cache(capsys: pytest.CaptureFixture[str], cache_folder: Path) -> None:
    hjit.pipeline(lambda a: a * 3 - 1, verify="off")(np.ones((6, 5), np.float32))
    assert len(list(cache_folder.glob("*.code"))) == 1
    assert cli.main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{cache_folder}\n"
    assert cli.main(["cache"]) == 0
    assert "entries  1\n" in capsys.readouterr().out
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith("1 entries removed")
    assert list(cache_folder.glob("*.code")) == []


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with a plan."""
    folder = tmp_path_factory.mktemp("searched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HJIT_CACHE_DIR", str(folder))
        patch.setenv("HJIT_CACHE", "rw")
        patch.setattr(plans, "_plans", {})
        patch.setattr(candidates, "measured", lambda kernels, *_: (0, [1e-3 * (k + 1) for k in range(len(kernels))]))
        hjit.pipeline(pyramid, tune="top_five", verify="off")(np.ones((70, 96), np.float32))
    return folder


@pytest.fixture
def plan(searched: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan in the test's own folder."""
    monkeypatch.setattr(plans, "_plans", {})
    shutil.copytree(searched, cache_folder)
    (found,) = cache_folder.glob("*.plan")
    return found


def test_plans_are_listed_and_shown(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "list"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    short = plan.stem.removeprefix("plan_")[:12]
    assert head.startswith("plan ") and line.startswith(short) and " pyramid " in line and " top_five " in line
    assert "1 ms, default" in line
    for name in (short, short[:5], plan.stem):
        assert cli.main(["cache", "show", name]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"plan      {plan.stem}\n") and "found by  top_five" in out
        assert "test_space.py:" in out and "in pyramid" in out and "  root" in out and "the default schedule" in out
        assert str(Path(__file__).parent) not in out, "no folder of whoever made it"
    assert cli.main(["cache", "show", "nothing"]) == 1
    assert "no such plan" in capsys.readouterr().err


def test_no_plans(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["cache", "list"]) == 0
    assert capsys.readouterr().out == "no plans\n"
    assert cli.main(["cache", "export", str(tmp_path / "bundle.json")]) == 1
    assert "there is no plan" in capsys.readouterr().err


def test_a_bundle_is_taken_by_a_machine_of_the_kind(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, other = tmp_path / "bundle.json", tmp_path / "other"
    assert cli.main(["cache", "export", str(bundle)]) == 0
    assert capsys.readouterr().out == f"1 plans written to {bundle}\n"
    image = np.ones((70, 96), np.float32)
    here = str(hjit.pipeline(pyramid, tune="stored").tree(image))
    monkeypatch.setattr(plans, "_plans", {})  # as in a new process, there
    monkeypatch.setenv("HJIT_CACHE_DIR", str(other))
    monkeypatch.setattr(cache, "versions", lambda: "the same, installed at another time")
    assert str(hjit.pipeline(pyramid, tune="stored").tree(image)) != here
    assert cli.main(["cache", "import", str(bundle)]) == 0
    assert capsys.readouterr().out == f"1 plans taken from {bundle}\n"
    assert str(hjit.pipeline(pyramid, tune="stored").tree(image)) == here
    assert cli.main(["cache", "import", str(bundle)]) == 0
    assert "0 plans taken" in (out := capsys.readouterr().out) and "1 were here" in out


def test_a_bundle_of_another_machine_is_refused(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.json"
    assert cli.main(["cache", "export", str(bundle)]) == 0
    for patch, words in (
        ((machine, "kind", lambda: "another processor"), "this is 'another processor'"),
        ((kept_plans, "__version__", "9.9"), "this is hjit 9.9"),
    ):
        with monkeypatch.context() as m:
            m.setattr(*patch)
            assert cli.main(["cache", "import", str(bundle)]) == 1
        assert words in capsys.readouterr().err
    assert len(list(plan.parent.glob("*.plan"))) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: None,
        lambda data: [],
        lambda data: {**data, "format": "zip"},
        lambda data: {**data, "plans": 3},
        lambda data: {**data, "plans": [3]},
        lambda data: {**data, "plans": [{**data["plans"][0], "plan": "{}"}]},
        lambda data: {**data, "plans": [{**data["plans"][0], "stages": [1]}]},
        lambda data: {**data, "plans": [{**data["plans"][0], "key": {"graph": "x"}}]},
    ],
)
def test_a_damaged_bundle_is_refused(
    damage: Any, plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle.json"
    assert cli.main(["cache", "export", str(bundle)]) == 0
    bundle.write_text(json.dumps(damage(json.loads(bundle.read_text()))))
    capsys.readouterr()
    plan.unlink()
    assert cli.main(["cache", "import", str(bundle)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert list(plan.parent.glob("*.plan")) == []
    bundle.write_bytes(b"\xff\x00")
    assert cli.main(["cache", "import", str(bundle)]) == 1
    assert cli.main(["cache", "import", str(tmp_path / "none.json")]) == 1


def test_a_damaged_plan_is_not_listed(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.store("plan_x", b'{"tree": 3}', {"tune": "greedy"}, plan.parent, "rw", "plan")
    plan.write_bytes(plan.read_bytes()[:-5])
    assert cli.main(["cache", "list"]) == 0
    assert capsys.readouterr().out == "no plans\n"


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


@pytest.mark.parametrize(
    "args",
    [
        ("train", "folder", "--minutes", "-1"),
        ("train", "folder", "--rounds", "-1"),
        ("train", "folder", "--minutes", "soon"),
        ("train", "folder", "--jobs", "0"),
        ("train", "folder", "--programs", "-5"),
        ("calibrate", "--minutes", "-0.5"),
        ("calibrate", "--minutes", "nan"),
        ("profile", "--top", "0", "script.py"),
    ],
)
def test_wrong_numbers(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(args)
    assert caught.value.code == 2 and "is needed" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "profile"])
def test_a_script_is_needed(command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        cli.main([command])
    assert capsys.readouterr().err.endswith("the following arguments are required: script\n")
    assert cli.main([command, str(tmp_path)]) == 1
    assert capsys.readouterr() == ("", f"hjit: {tmp_path} is not a file\n")


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


def as_json(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    """What a command writes to standard output, which is JSON and nothing else."""
    assert cli.main([*command, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def test_info_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HJIT_VERIFY", "off")
    found = as_json(capsys, "info")
    assert found["numpy"] == np.__version__
    assert found["options"]["verify"] == "off" and "verify" in found["from_environment"]
    assert cli.main(["info", "--json", str(tmp_path / "info.json")]) == 0
    assert json.loads((tmp_path / "info.json").read_text()) == found
    assert "options" in capsys.readouterr().out
    assert cli.main(["info", "--json", str(tmp_path / "no" / "info.json")]) == 1
    assert capsys.readouterr().err.startswith("hjit: ")


@pytest.mark.parametrize("command", [["info", "--json"], ["cache", "--json"], ["cache", "path", "--json"]])
def test_json_without_a_file_goes_to_standard_output(
    command: list[str], capsys: pytest.CaptureFixture[str], cache_folder: Path
) -> None:
    assert cli.main(["cache", "clear"]) == 0  # which makes the folder
    capsys.readouterr()
    assert cli.main(command) == 0
    assert json.loads(capsys.readouterr().out) == as_json(capsys, *command[:-1])


def test_the_cache_as_json(capsys: pytest.CaptureFixture[str], cache_folder: Path) -> None:
    hjit.pipeline(lambda a: np.sqrt(a) + a, verify="off")(np.ones((6, 5), np.float32))
    found = as_json(capsys, "cache", "info")
    assert found["entries"] > 0 and found["bytes"] > 0 and found["folder"] == str(cache_folder)
    assert as_json(capsys, "cache") == found
    assert cli.main(["cache", "--json", "-", "info"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert as_json(capsys, "cache", "path") == {"folder": str(cache_folder)}
    assert as_json(capsys, "cache", "list") == []
    assert as_json(capsys, "cache", "clear")["removed"] == found["entries"]


def test_plans_as_json(plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (found,) = as_json(capsys, "cache", "list")
    assert found["is_current"] and found["tune"] and len(found["plan"]) == 40
    (shown,) = as_json(capsys, "cache", "show", found["plan"][:8])
    assert shown["stages"] and shown["tree"] is not None and shown.items() >= found.items()
    bundle = str(tmp_path / "plans.json")
    assert as_json(capsys, "cache", "export", bundle) == {"file": bundle, "written": 1}
    cli.main(["cache", "clear"])
    capsys.readouterr()
    assert as_json(capsys, "cache", "import", bundle) == {"file": bundle, "new": 1, "known": 0}


def test_scripts_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "used_by_it.py").write_text("def half(a):\n    return a / 2\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, sys, used_by_it\nused_by_it.half(np.ones((20, 30)))\nprint('x')\nsys.exit(3)\n"
    )
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.syspath_prepend(str(tmp_path))
        cli.main(["run", "--json", "-", "--accelerate", "used_by_it", str(script)])
    assert stop.value.code == 3
    out, err = capsys.readouterr()
    (row,) = json.loads(out)
    assert row["name"] == "used_by_it.half" and row["calls"] == 1
    assert "x\n" in err
