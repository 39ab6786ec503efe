"""A page in a headless Chromium, by the DevTools protocol over pipes, which also builds without ``--dump-dom`` have."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "chrome")
SECONDS = 60.0  # after which the browser is ended
POLL_SECONDS = 0.05
# Chromium reads messages from descriptor 3, and writes them to descriptor 4
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def found() -> str | None:
    """The path of a Chromium."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def evaluated(page: Path, expression: str, profile: Path) -> Any:
    """What JavaScript has for an expression in a page, as soon as that is something.

    Args:
        profile: a folder for the browser's files.
    """
    browser = found()
    assert browser is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    options = ("--headless", "--no-sandbox", "--no-zygote", "--disable-gpu", "--remote-debugging-pipe")
    command = (sys.executable, "-c", _START, str(theirs_in), str(theirs_out), browser, *options)
    process = subprocess.Popen(
        [*command, f"--user-data-dir={profile}"], pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    late = threading.Timer(SECONDS, process.kill)
    late.start()
    try:
        with open(ours_out, "wb", 0) as to, open(ours_in, "rb") as answers:
            pipe = _Pipe(to, answers)
            target = pipe.ask("Target.createTarget", url=page.as_uri())["targetId"]
            session = pipe.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            while True:
                value = pipe.ask("Runtime.evaluate", session, expression=expression)["result"].get("value")
                if value:
                    return value
                time.sleep(POLL_SECONDS)
    finally:
        late.cancel()
        process.kill()
        process.wait()


class _Pipe:
    """Messages end with a zero byte; answers have their question's number, and events lie between them."""

    def __init__(self, to: Any, answers: Any) -> None:
        self.to, self.answers, self.count = to, answers, 0

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        self.to.write(json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self.count:
                assert "result" in answer, answer
                return dict(answer["result"])

    def _next(self) -> bytes:
        found = b""
        while (byte := self.answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            found += byte
        return found
