"""What a bundle's machine code depends on, and whether this machine meets it."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from hjit.kernels.llvm.driver.arrays import data_offset
from hjit.kernels.runtime import features
from hjit.version import __version__


def facts(target: str) -> dict[str, Any]:
    """Of this machine, for code that is compiled for a target (see `hjit.options`)."""
    needed = llvm.get_host_cpu_features() if target == "cpu" else {}
    return {
        "hjit": __version__,
        "numpy": np.__version__,
        "triple": llvm.get_process_triple(),
        "python": str(sysconfig.get_config_var("SOABI")),
        "array": data_offset(),
        "target": target,
        "features": sorted(features.target_features(target)),
        "cpu": sorted(name for name, has in needed.items() if has),
    }


def reason_against(made: Mapping[str, Any]) -> str:
    """Why code that was made where this holds cannot run here; empty where it can."""
    for name, now, what in (
        ("hjit", __version__, "hjit"),
        ("numpy", np.__version__, "NumPy"),
        ("triple", llvm.get_process_triple(), "a system"),
    ):
        if made[name] != now:
            return f"it was made by {what} {made[name]}, and this is {now}. What to do: make it anew here"
    if made["array"] != data_offset():
        return f"it was made for Python {made['python']}, whose arrays are laid out in another way"
    here = llvm.get_host_cpu_features()
    missing = sorted({*made["features"]} - features.host_features())
    missing += sorted(name for name in made["cpu"] if not here.get(name))
    if missing:
        return (
            f"it was made for a processor with {', '.join(missing)}, which this one lacks. What to do: make it "
            'here, or from pipelines with target="x86-64-v3", or less'
        )
    return ""
