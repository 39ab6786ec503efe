"""What `import hjit` brings with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HEAVY = ("jax", "cupy", "numba", "llvmlite", "scipy", "scipy.ndimage", "rich", "matplotlib", "dask")


def loaded_by(statement: str) -> list[str]:
    """The heavy packages that a new process has after a statement."""
    code = f"import json, sys\n{statement}\nprint(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_import_is_light() -> None:
    assert loaded_by("import hjit") == []


def test_decorating_is_light() -> None:
    assert loaded_by("import hjit\nhjit.pipeline(lambda a: a + 1)") == []


def test_command_line_is_light() -> None:
    assert loaded_by("import hjit.cli\nhjit.cli.parser().parse_args(['demo', '--size', '64x64'])") == []


def test_a_call_needs_neither_jax_nor_scipy_nor_dask() -> None:
    call = "import hjit, numpy\nassert hjit.pipeline(lambda a: a + 1, cache='off')(numpy.zeros((8, 8))).sum() == 64"
    assert not {"jax", "cupy", "dask", "scipy.ndimage", "matplotlib"} & set(loaded_by(call))


def test_a_kernel_that_is_known_needs_no_numba(tmp_path: Path) -> None:
    call = f"import hjit, numpy\nhjit.pipeline(lambda a: a * 2 + 1, cache_dir={str(tmp_path)!r})(numpy.zeros((70, 80)))"
    assert "numba" in loaded_by(call)
    assert not {"numba", "jax", "scipy"} & set(loaded_by(call))


def test_version_is_the_package_s() -> None:
    from importlib.metadata import PackageNotFoundError, version

    import hjit

    try:
        assert version("hjit") == hjit.__version__
    except PackageNotFoundError:
        assert hjit.__version__.count(".") == 2  # run from a checkout that is not installed
