"""A plain CUDA Python environment, made of a richer one: what this checkout imports is refused where that has no such
package.

Written as `sitecustomize.py` into a folder of `PYTHONPATH`, it is run at the start of every process. Packages import
what they need: pyopencl, of the stand-in for CuPy, needs platformdirs.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = str(Path(os.environ.get("HJIT_CHECKOUT", Path(__file__).parents[2])).resolve())
HAS = {"numpy", "scipy", "numba", "llvmlite", "cupy", "cupyx", "cupy_backends", "jax", "jaxlib", "torch", "triton"}
HAS |= {"nvidia", "pyopencl"}  # NVIDIA's packages, which CuPy, JAX and PyTorch bring; PoCL's, of the stand-in
OWN = {"hjit", "tests", "benchmarks"}
PYTEST = "pytest"  # `tests.gpu.words` makes a module of this name


def refused(name: str, by: str) -> bool:
    """Is there no such package for a file of this checkout?"""
    top = name.partition(".")[0]
    is_own = by.startswith(ROOT + os.sep) and "site-packages" not in Path(by).parts  # its `.venv` is not
    if top in HAS | OWN or top in sys.stdlib_module_names or not is_own:
        return False
    return top != PYTEST or hasattr(sys.modules.get(PYTEST), "__path__") or PYTEST not in sys.modules


def install() -> None:
    """Refuse from now on."""
    at_import: Any = builtins.__import__

    def import_(name: str, scope: Any = None, *args: Any, **kwargs: Any) -> Any:
        level = args[2] if len(args) > 2 else kwargs.get("level", 0)
        if not level and refused(name, (scope or {}).get("__file__") or ""):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
        return at_import(name, scope, *args, **kwargs)

    vars(builtins)["__import__"] = import_

    def checked(function: Callable[..., Any], instead: Callable[[str], Any]) -> Callable[..., Any]:
        def found(name: str, *args: Any, **kwargs: Any) -> Any:
            if not name.startswith(".") and refused(name, sys._getframe(1).f_globals.get("__file__") or ""):
                return instead(name)
            return function(name, *args, **kwargs)

        return found

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    importlib.import_module = checked(importlib.import_module, missing)
    importlib.util.find_spec = checked(importlib.util.find_spec, lambda name: None)


if __name__ == "sitecustomize":
    install()
