"""All tests of a session share one disk cache of their own; the user's is never touched. Of the environment's options only the target counts."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.runtime import backend, kernel
from tests import object_code


def pytest_configure() -> None:
    """Python looks for garbage after every 700 objects, a quarter of the time of all tests."""
    gc.set_threshold(20_000)


def pytest_collection_finish() -> None:
    """The collected tests stay until the end: nobody looks for garbage among these half a million objects again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nor when it ends: pytest collects five times then, for warnings of finalizers that raise."""
    gc.freeze()
    if not hasattr(session.config, "workerinput"):
        object_code.forget()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith("HJIT_") and n != "HJIT_TARGET"]:
            patch.delenv(name)
        patch.setenv("HJIT_CACHE_DIR", str(tmp_path_factory.mktemp("hjit-cache")))
        patch.setenv("HJIT_CHECK", "1")  # Graphs and loops, after every pass
        patch.setenv("HJIT_TUNE", "0")  # what runs is the same in every run, and soon; searches have tests of their own
        patch.setenv("HJIT_BUDGET", "10")  # these checks take their time
        patch.setenv("HJIT_NUMPY_IF_FASTER", "0")  # nor does the clock decide
        patch.setenv(
            "HJIT_ON_UNSUPPORTED", "raise"
        )  # what is traced, and what is not, is seen; breaks have their tests
        patch.setattr("hjit.tuning.decide.LITTLE_WORK", 0)  # tests search for small images, where they search
        patch.setattr(backend, "compile_module", object_code.kept(backend.compile_module))
        patch.setattr(nvrtc, "_compiled", object_code.kept_cubins(nvrtc._compiled))
        yield


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM and NVRTC themselves compile."""
    for module, name in ((backend, "compile_module"), (nvrtc, "_compiled")):
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, no kernel is in memory."""
    monkeypatch.setattr(kernel, "_kernels", {})
    monkeypatch.setattr(kernel, "_others", weakref.WeakValueDictionary())


@pytest.fixture
def as_users_run_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder and cache, and no options of the tests; what a notebook sets is forgotten."""
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    for name in ("HJIT_TUNE", "HJIT_ON_UNSUPPORTED", "HJIT_NUMPY_IF_FASTER", "HJIT_CHECK"):
        del os.environ[name]
    os.environ["HJIT_CACHE_DIR"] = str(tmp_path)
    os.environ["MPLBACKEND"] = "Agg"
    yield
    os.environ.clear()
    os.environ.update(before)
