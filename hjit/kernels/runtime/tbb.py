"""numba's layer over TBB, by itself: the one extension module of numba that a process needs which finds its kernels."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from typing import Any


def tbb_parallel_for() -> int:
    """The address of numba's ``parallel_for`` of TBB, whose library must be loaded; 0 if numba was built without it.

    `launch_threads` of that module is for numba's own use: its fork handler prints to stdout wherever another thread
    has used TBB.
    """
    name = "numba.np.ufunc.tbbpool"
    module = sys.modules.get(name)
    try:
        return int((module or _extension(name)).parallel_for)
    except (ImportError, AttributeError):
        return 0


def _extension(name: str) -> Any:
    """An extension module of numba, by itself: numba takes longer to import than kernels to load.

    Raises:
        ImportError: there is none.
    """
    package, *folders, _ = name.split(".")
    found = importlib.util.find_spec(package)
    root = found.submodule_search_locations[0] if found is not None and found.submodule_search_locations else ""
    loaders = (ExtensionFileLoader, EXTENSION_SUFFIXES)
    spec = FileFinder(os.path.join(root, *folders), loaders).find_spec(name) if root else None
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
