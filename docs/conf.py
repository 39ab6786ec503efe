"""Sphinx: how the documents are built. ``make docs`` calls it."""

import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

# The examples run as users run them, with a cache of their own, and those for a GPU on PoCL.
for name in [n for n in os.environ if n.startswith("HJIT_")]:
    del os.environ[name]
os.environ["HJIT_CACHE_DIR"] = tempfile.mkdtemp(prefix="hjit-docs-")
os.environ["HJIT_CUDA_DEVICE"] = "opencl"

import hjit  # noqa: E402

project = "hjit"
author = "The hjit authors"
copyright = "The hjit authors"
version = release = hjit.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "run_directive", "plot_directive"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 3
suppress_warnings = [
    "myst.header",  # a part of the README that is included begins with the level that it has there
]

default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
napoleon_use_rtype = False
highlight_language = "none"  # of blocks that do not say theirs

html_theme = "alabaster"
html_static_path = ["_static"]
html_css_files = ["hjit.css"]
html_theme_options = {
    "description": "NumPy image code, compiled",
    "fixed_sidebar": True,
    "page_width": "1100px",
    "sidebar_width": "240px",
}
html_show_sourcelink = False
html_show_sphinx = False
