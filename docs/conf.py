"""Configuration of Sphinx: Markdown pages, the API from docstrings, and the gallery."""

from __future__ import annotations

from pathlib import Path

import localma

project = "localma"
author = "the localma developers"
version = release = localma.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
    "numpydoc",
]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery/**/*.py", "gallery/**/*.ipynb"]
html_theme = "furo"
html_title = "localma"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
autosummary_generate = True
# scikit-learn generates these methods; their docstrings refer to its own documentation.
_REQUESTS = [f"set_{method}_request" for method in ("fit", "predict", "predict_proba", "score")]
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "exclude-members": ", ".join(_REQUESTS),
}
autodoc_typehints = "none"  # docstrings contain types and shapes
numpydoc_show_class_members = False
nitpicky = False
# Pages link to files of the repository that are not on the site.
suppress_warnings = ["myst.xref_missing"]

# The build runs the scripts in examples/. An error in a script stops the build.
sphinx_gallery_conf = {
    "examples_dirs": str(Path(__file__).parent.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "subsection_order": [
        f"../examples/{name}" for name in ("tables", "dependent_rows", "images_and_texts", "scale")
    ],
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("localma",),
}
