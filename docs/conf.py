"""How the documentation is built: Markdown pages, and the API from its docstrings."""

from __future__ import annotations

import localma

project = "localma"
author = "the localma developers"
version = release = localma.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
]
myst_heading_anchors = 3
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "localma"
html_static_path: list[str] = []
autosummary_generate = True
# scikit-learn writes these methods itself, with references into its own documentation.
_REQUESTS = [f"set_{method}_request" for method in ("fit", "predict", "predict_proba", "score")]
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "exclude-members": ", ".join(_REQUESTS),
}
autodoc_typehints = "none"  # the docstrings have types and shapes
numpydoc_show_class_members = False
nitpicky = False
# Pages link to files of the repository that are not part of the site.
suppress_warnings = ["myst.xref_missing"]
