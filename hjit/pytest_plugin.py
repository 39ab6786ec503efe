"""A pytest plug-in: ``pytest --hjit NAMES`` runs a package's own tests with functions of modules compiled.

The public functions of the modules are pipelines from before the tests are collected until the end; a summary says how
they ran. Without the option, the plug-in does nothing. hjit gives no warnings, as a test may count those that it meets:
the summary has what they say.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hjit.modules import Accelerated
    from hjit.report.kinds import Row

MOST = 20  # functions that the summary lists


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("hjit", "functions of modules compiled by hjit")
    group.addoption(
        "--hjit",
        metavar="NAMES",
        help="compile the public functions of these modules, with commas: skimage.filters,mypackage.imaging",
    )
    group.addoption(
        "--hjit-json", metavar="FILE", type=Path, help="write how each of these functions ran here, as JSON"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Put pipelines in the place of functions, before a test module imports them."""
    names = config.getoption("--hjit")
    if names:
        config.pluginmanager.register(Compiled(config, names), "hjit-compiled")


class Compiled:
    """What the plug-in does where the option is given."""

    def __init__(self, config: pytest.Config, names: str) -> None:
        from hjit.errors import HjitError
        from hjit.modules import accelerate

        self._config = config
        self._elsewhere: list[Row] = []  # rows of other processes: workers of pytest-xdist
        try:
            with warnings.catch_warnings():  # filters that a package sets do not outlast its import by a test module
                self._accelerated: Accelerated = accelerate(*(n.strip() for n in names.split(",") if n.strip()))
        except (ImportError, HjitError) as error:
            raise pytest.UsageError(f"--hjit {names}: {error}") from None
        for p in self._accelerated.pipelines.values():
            p.quiet()

    def rows(self) -> list[Row]:
        """How each function ran, in all processes."""
        from hjit.report.kinds import merged

        return merged([*self._accelerated.rows(), *self._elsewhere])

    def pytest_sessionfinish(self) -> None:
        """A worker of pytest-xdist hands its rows on; another process writes the file."""
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        rows = [asdict(row) for row in self.rows()]
        file: Path | None = self._config.getoption("--hjit-json")
        if output is not None:
            output["hjit"] = rows
        elif file is not None:
            file.write_text(json.dumps({"functions": rows}, indent=2) + "\n", encoding="utf-8")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """The rows of a worker; one that died has none."""
        from hjit.report.kinds import Row

        self._elsewhere += [Row(**row) for row in getattr(node, "workeroutput", {}).get("hjit", [])]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """How many functions ran compiled, and which did not."""
        from hjit.report.kinds import BREAKS, NOT_CALLED, PLAIN, WHOLE, counted

        rows = self.rows()
        n = counted(rows)
        say = terminalreporter.write_line
        terminalreporter.section("hjit")
        say(
            f"{len(rows) - n[NOT_CALLED]} of {len(rows)} functions called: {n[WHOLE]} compiled whole, "
            f"{n[BREAKS]} with breaks, {n[PLAIN]} plain"
        )
        wrong = [row for row in rows if row.verified is False]
        other = [row for row in rows if row.kind in (BREAKS, PLAIN) and row.verified is not False]
        for row in wrong:
            say(f"{row.name}: a comparison with NumPy failed, so NumPy ran: {row.why}")
        for row in other[:MOST]:
            say(f"{row.name}: {row.kind}: {row.why}")
        if len(other) > MOST:
            say(f"and {len(other) - MOST} more; --hjit-json FILE has all")

    def pytest_unconfigure(self) -> None:
        """Put the functions back."""
        self._accelerated.undo()
