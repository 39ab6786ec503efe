"""Running a script in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
TIMEOUT = 120


def run_script(folder: Path, text: str, *, code: int = 0, args: tuple[str, ...] = (), **environment: str) -> str:
    """What a script prints; it must end with exit status `code`."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return run_file(path, code=code, args=args, **environment)


def run_file(path: Path, *, code: int = 0, args: tuple[str, ...] = (), **environment: str) -> str:
    """What a Python file prints; it must end with exit status `code`."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, str(path), *args], env=variables, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == code, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
