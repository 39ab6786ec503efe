"""The parent's side of a worker: what it answers, how it died, and that it took too long."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.campaign.kinds import Case, Result

ROOT = Path(__file__).parents[2]
START = 60.0  # seconds until a new worker must have understood its first request; drawing a case is among them
TAIL = 3000  # characters of what a process that died had said


class Worker:
    """A process that runs cases; a new one is started where the last one has ended."""

    def __init__(self, **environment: str) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        self.process: subprocess.Popen[bytes] | None = None
        self.cases = 0  # that this process has run
        self.case: Case | None = None  # the last one
        self._buffer = b""

    def ask(self, request: dict[str, Any]) -> Result:
        """Run a case; whatever becomes of the process is a result."""
        process = self._started()
        assert process.stdin is not None
        self.case, self.cases = request.get("case"), self.cases + 1
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        limit = START
        while True:
            record = self._record(limit)
            if record is None:
                return self._ended(limit)
            if "result" in record:
                if record["is last"]:
                    self.close()
                return Result(**record["result"])
            self.case, limit = record["case"], record["limit"]

    def close(self) -> None:
        """End the process and all that it started."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        self.process, self.cases, self._buffer = None, 0, b""

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            self._errors = tempfile.TemporaryFile()
            command = [sys.executable, "-m", "tests.campaign.worker"]
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=self.environment,
                cwd=ROOT,
                start_new_session=True,
            )
        return self.process

    def _record(self, limit: float) -> dict[str, Any] | None:
        """The next line, or None: the process has ended, or takes too long."""
        assert self.process is not None and self.process.stdout is not None
        file, until = self.process.stdout.fileno(), time.monotonic() + limit
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([file], [], [], max(until - time.monotonic(), 0))
            data = os.read(file, 1 << 16) if ready else b""
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _ended(self, limit: float) -> Result:
        """How a process ended that did not answer."""
        assert self.process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)  # its output is closed before it has ended
        status = self.process.poll()
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGUSR1)  # where it is
            time.sleep(1.0)
        tail = self._error_tail()
        self.close()
        if status is None:
            return Result("failed", "hangs", f"no answer after {limit:.0f} s\n{tail}")
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return Result("failed", f"dies {name}", f"the process ended: {name}\n{tail}")

    def _error_tail(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(self._errors.tell() - TAIL, 0))
        return self._errors.read().decode(errors="replace").partition("\nExtension modules:")[0].strip()
