"""Input and output while a function is traced, seen by Python's audit events (PEP 578).

Calls of `open` and its like in the traced code itself are refused where they stand (`impure`). This sees what library
code does on its behalf: `pathlib`, `json`, extension modules. A trace would do it once, and not at every call.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from hjit.trace.capture.side_effects.impure import READS_OR_WRITES
from hjit.trace.tracing.frames import is_own
from hjit.trace.tracing.recording.recorder import current, tracing

_EVENTS = frozenset(
    "open mmap.__new__ subprocess.Popen builtins.input builtins.breakpoint glob.glob time.sleep webbrowser.open".split()
)
_FAMILIES = (
    "os.",
    "shutil.",
    "socket.",
    "tempfile.",
    "urllib.",
    "http.",
    "ftplib.",
    "smtplib.",
    "sqlite3.",
    "fcntl.",
    "signal.",
    "syslog.",
)
_READS_SOURCE = ("<frozen importlib", "linecache.py")  # imports, and lines of source code, are the same at every call


class _Watched(dict[str, bool]):
    """Whether an event is input or output. Tracing itself causes thousands of others, of which each is looked up."""

    def __missing__(self, event: str) -> bool:
        found = self[event] = event in _EVENTS or event.startswith(_FAMILIES)
        return found


_is_watched = _Watched().__getitem__


def _on_event(event: str, args: tuple[Any, ...]) -> None:
    if _is_watched(event) and tracing() and _is_traced_code(sys._getframe(1)):
        what = f"{event}({args[0]!r})" if args and isinstance(args[0], str) else event
        raise current().error(what, READS_OR_WRITES, "do it outside the function")


def _is_traced_code(frame: FrameType | None) -> bool:
    """Does the traced function do this, and not hjit itself, or an extern function that is called at every call?"""
    while frame is not None:
        code = frame.f_code
        if hasattr(frame.f_globals, "under"):
            return True
        if is_own(code) and code.co_name != "concrete":
            return False
        if code.co_filename.startswith(_READS_SOURCE) or code.co_filename.endswith(_READS_SOURCE):
            return False
        frame = frame.f_back
    return False


_installed = False


def install_audit_hook() -> None:
    """Add the audit hook, permanently: Python cannot remove one. Outside of traces it costs some 50 ns per event."""
    global _installed
    if not _installed:
        _installed = True
        sys.addaudithook(_on_event)
