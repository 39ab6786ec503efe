"""A process that runs cases for ``python -m tests.gpu``: names on its input, a JSON object a line on its output.

Where a case spoils the device for all that follow (an address out of bounds does), the process is ended by who reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from typing import Any

from tests.gpu import words

WORDS = 2000  # characters of a reason


def main() -> None:
    """Run what is asked for until the input ends; ``--stand-in``: on the small CuPy of the tests, by PoCL."""
    words.install()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what cases print is no answer
    with contextlib.ExitStack() as stack:
        if "--stand-in" in sys.argv:
            from tests.kernels.cuda import fake_cupy

            stack.enter_context(fake_cupy.installed())
        from tests.gpu.parts import PARTS
        from tests.kernels.cuda import launching

        launching.use_gpu()
        made: dict[str, dict[str, Any]] = {}
        for line in sys.stdin:
            part, name = json.loads(line)
            start = time.perf_counter()
            try:
                if part not in made:
                    made[part] = PARTS[part]()
                made[part][name]()
                _settled()
                found = {"result": "passed"}
            except BaseException as error:
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise
                kind = "skipped" if type(error).__name__ == "Skipped" else "failed"
                why = "".join(traceback.format_exception_only(error)).strip()[:WORDS] + _fault()
                at = traceback.extract_tb(error.__traceback__)[-1]
                found = {"result": kind, "why": why, "at": f"{os.path.basename(at.filename)}:{at.lineno}"}
            answers.write(json.dumps({**found, "seconds": round(time.perf_counter() - start, 3)}) + "\n")
            answers.flush()


def _settled() -> None:
    """Wait for the device, so that a fault is of the case that made it."""
    import cupy  # type: ignore[import-not-found]

    cupy.cuda.get_current_stream().synchronize()


def _fault() -> str:
    """What the device says after a case that failed: whoever reads it starts another process then."""
    try:
        _settled()
    except Exception as error:
        return f"\nthen {type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main()
