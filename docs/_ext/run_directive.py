"""The directive ``run``: Python code that is run when the documents are built, and what it prints."""

from __future__ import annotations

from typing import Any, ClassVar

import examples
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from hjit.errors import DeviceError

log = logging.getLogger(__name__)


class Run(SphinxDirective):
    """Run the content, after that of the blocks before it on the page; show it, and what it prints.

    Options: ``language`` of the output; ``no-code`` and ``no-output`` leave something out.
    """

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "language": directives.unchanged,
        "no-code": directives.flag,
        "no-output": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content) + "\n"
        pages = self.env.temp_data.setdefault("hjit examples", {})
        namespace = pages.setdefault(self.env.docname, examples.new_namespace())
        try:
            printed = examples.run(code, namespace)
        except DeviceError as error:  # examples for a GPU, on a machine without anything that runs them
            printed = f"(Not run where this page was built: {error}.)"
            log.info("%s: %s", self.env.docname, printed)
        except Exception as error:
            log.warning("%s: %s", type(error).__name__, error, location=(self.env.docname, self.lineno))
            return []
        found: list[nodes.Node] = []
        if "no-code" not in self.options:
            found.append(nodes.literal_block(code, code, language="python"))
        if printed and "no-output" not in self.options:
            text = printed.rstrip("\n")
            language = self.options.get("language", "text")
            found.append(nodes.literal_block(text, text, language=language, classes=["output"]))
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("run", Run)
    return {"parallel_read_safe": True, "version": "1"}
