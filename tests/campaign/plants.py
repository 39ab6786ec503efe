"""Faults planted into a worker, to see that a campaign finds them: the variable HJIT_CAMPAIGN_PLANT names one."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from tests.campaign import programs
from tests.campaign.kinds import Case, Result

VARIABLE = "HJIT_CAMPAIGN_PLANT"


def wrong_emitter() -> None:
    """Integers are added where they should be subtracted."""
    from hjit.kernels.llvm.vecmath.integers import EMITTERS

    EMITTERS["subtract"] = EMITTERS["add"]


def dies() -> None:
    """Programs that pad end the process."""
    _where("np.pad", lambda: os.kill(os.getpid(), signal.SIGSEGV))


def hangs() -> None:
    """Programs that pad do not end."""
    programs.LIMIT = 2.0
    _where("np.pad", lambda: time.sleep(3600))


def _where(text: str, effect: Any) -> None:
    real = programs.run

    def run(case: Case, *more: Any, **named: Any) -> Result:
        if any(text in block for block in case["blocks"]):
            effect()
        return real(case, *more, **named)

    programs.run = run  # type: ignore[assignment]


PLANTS = {"emitter": wrong_emitter, "dies": dies, "hangs": hangs}


def plant() -> None:
    """Plant what the environment says."""
    if name := os.environ.get(VARIABLE):
        PLANTS[name]()
