"""Programs of the cost model's generator, `hjit.model.generator`, against NumPy: what searches and random schedules are tested on.

`tests.fuzz` writes other programs: all dtypes and layouts, images of one pixel and of none, writes through views, errors.
"""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import hjit
from hjit.model import generator
from hjit.training.cases import alike, leaves
from tests.numpy_check import place, watched_scratch

PIXELS = (1000, 5000, 40_000)  # of images
LONG = 120.0  # seconds of the processor for a compilation: random schedules of long programs take more than ten


def failure(seed: int, pixels: int, schedule: Any = None, **options: Any) -> str | None:
    """What is wrong with the program of a seed, whose floats need not have NumPy's last bits; None where nothing is."""
    program = generator.random_program(seed, pixels)
    pipe = hjit.pipeline(program.function, **{"verify": "off", "cache": "off", "budget": LONG, **options}).use(schedule)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for at_end in (True, False):
                arguments = place(program.inputs(seed), at_end)
                with watched_scratch():
                    found = leaves(pipe(*arguments))
                expected = leaves(program.function(*arguments))
                wrong = [k for k, (a, b) in enumerate(zip(found, expected, strict=True)) if not alike(a, b)]
                assert not wrong, f"result {wrong[0]} is not NumPy's"
                assert pipe.stats.fallbacks == 0, "the plain function ran"
    except Exception as error:
        return "".join(traceback.format_exception_only(error)).strip()
    return None
