"""A process that runs cases, one after the other: ``python -m tests.campaign.worker``.

Requests come as lines of JSON, ``{"kind": ..., "seed": ...}`` or ``{"kind": ..., "case": ...}``. Of each the worker
says ``{"case": ...}`` before it runs it, and ``{"result": ..., "is last": ...}`` after it: who reads knows which case
ended it. One in which LLVM does not end a compilation is the last of its process.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
import traceback
from dataclasses import asdict
from typing import Any

from hjit.kernels.runtime import machine_code
from tests.campaign import plants
from tests.campaign.kinds import Result, kind

PR_SET_PDEATHSIG = 1
MEMORY = 10 << 30  # bytes of addresses: what asks for more dies, not the machine


def answer(request: dict[str, Any], say: Any) -> None:
    """Run a case."""
    module = kind(request["kind"])
    try:
        case = request["case"] if "case" in request else module.case(request["seed"])
        say({"case": case, "limit": module.LIMIT})
        result = module.run(case)
    except Exception as error:  # of the campaign itself, or of hjit where it must not raise
        result = Result(
            "failed",
            f"raises {type(error).__name__}",
            f"{traceback.format_exception_only(error)[-1]}{traceback.format_exc(limit=-4)}",
        )
    say({"result": asdict(result), "is last": machine_code.is_busy()})


def main() -> None:
    """Answer until there are no more requests. What libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # no worker outlives the campaign
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    plants.plant()

    def say(record: dict[str, Any]) -> None:
        out.write(json.dumps(record) + "\n")
        out.flush()

    for line in sys.stdin:
        answer(json.loads(line), say)


if __name__ == "__main__":
    main()
