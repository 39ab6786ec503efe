"""The wheel and the source distribution, as users install them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README_EXAMPLE = ROOT / "README.md"

pytestmark = pytest.mark.slow


def run(*words: str | Path, cwd: Path = ROOT) -> str:
    """A command outside of the checkout's environment; what it prints."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HJIT_ON_UNSUPPORTED")}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both; the wheel is made of the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def the(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def test_the_wheel_has_the_package_alone(built: Path) -> None:
    names = zipfile.ZipFile(the(built, "*.whl")).namelist()
    for name in ("hjit/__init__.py", "hjit/py.typed", "hjit/model/weights.npz"):
        assert name in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"hjit"}


def test_the_source_distribution_can_be_tested(built: Path) -> None:
    with tarfile.open(the(built, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in (
        "hjit/__init__.py",
        "tests/conftest.py",
        "docs/index.md",
        "notebooks/gpu.ipynb",
        "README.md",
        "LICENSE",
    ):
        assert name in names


def test_the_wheel_runs_the_readme_s_first_example(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", the(built, "*.whl"), cwd=tmp_path)
    example = README_EXAMPLE.read_text().partition("```python\n")[2].partition("```")[0]
    script = tmp_path / "example.py"
    script.write_text(
        example.replace("result =", "photo = np.random.default_rng(0).random((300, 400), np.float32)\n\nresult =")
        + "assert np.array_equal(result, sharpen.py_func(photo)) and not sharpen.stats.fallbacks\n"
        + "assert 'site-packages' in hjit.__file__\n"
    )
    run(python, script, cwd=tmp_path)
    packages = run(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path).lower()
    assert "numba" in packages and "jax" not in packages and "scipy" not in packages
    assert run(python, "-m", "hjit", "--version", cwd=tmp_path).startswith("hjit ")
