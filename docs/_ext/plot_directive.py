"""The directive ``plot``: a picture of `plots.PLOTS`, drawn when the documents are built, and what it was made of."""

from __future__ import annotations

from typing import Any

import plots
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Plot(SphinxDirective):
    """``{plot} NAME``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        if name not in plots.PLOTS:
            raise self.error(f"there is no plot {name!r}: {', '.join(plots.PLOTS)}")
        plot = plots.PLOTS[name]()
        for file in ("plots", "svg", "plot_directive"):
            self.env.note_dependency(f"_ext/{file}.py")
        self.env.note_dependency(f"../benchmarks/results/{plot.file}.json")
        text = f"{plot.about}. {plot.source}"
        figure = nodes.container(classes=["plot"])
        figure += nodes.raw("", plot.picture, format="html")
        figure += nodes.paragraph(text, text, classes=["plot-caption"])
        return [figure]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("plot", Plot)
    return {"parallel_read_safe": True, "version": "1"}
