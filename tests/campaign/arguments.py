"""Arguments as JSON data: arrays by dtype, shape, layout and seed, run-time scalars as text.

`numpy_check.place` lays the arrays out between guard pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.campaign import objects
from tests.numpy_check import image, layouts, sample

Spec = dict[str, Any]

WHOLE = "C"
MAKERS = {"image": image, "sample": sample}


def array(dtype: str, shape: tuple[int, ...], layout: str, seed: int, numbers: str) -> Spec:
    """An array; `numbers`: "image", or "sample", which has extremes, infinities and NaN."""
    return {"dtype": dtype, "shape": list(shape), "layout": layout, "seed": seed, "numbers": numbers}


def scalar(text: str) -> Spec:
    """A scalar, as it is written."""
    return {"value": text}


def made(spec: Spec) -> Any:
    """The argument itself."""
    if "value" in spec:
        return eval(spec["value"], {"np": np, "objects": objects})  # of our own making
    a = MAKERS[spec["numbers"]](tuple(spec["shape"]), spec["dtype"], spec["seed"])
    return a if spec["layout"] == WHOLE or not a.size else layouts(a)[spec["layout"]]


def described(spec: Spec) -> str:
    """The argument in a line."""
    if "value" in spec:
        return str(spec["value"])
    return f"{spec['dtype']}{spec['shape']}, layout {spec['layout']}, {spec['numbers']}({tuple(spec['shape'])}, {spec['dtype']!r}, {spec['seed']})"


def resized(spec: Spec, sizes: dict[int, int]) -> Spec:
    """The same with other sizes."""
    return spec if "value" in spec else {**spec, "shape": [sizes.get(n, n) for n in spec["shape"]]}
