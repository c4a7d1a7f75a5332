"""Configuration of the documentation's site: ``sphinx-build -W docs build/site``."""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "agg")
# The pages show what a reader without a GPU sees, on whatever machine builds them.
os.environ["GODWIT_DEVICES"] = "cpu"

import godwit

project = "Godwit"
copyright = "the authors of Godwit"
release = godwit.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery/*.py", "gallery/README.txt"]
nitpicky = False
default_role = "code"
linkcheck_timeout = 20

# --- Pages in Markdown. Headings are targets of links, as in other viewers: page.md#a-heading.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# --- Reference from docstrings.
autosummary_generate = False
toc_object_entries_show_parents = "hide"
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88

# --- Gallery: every page is run.
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
}

# --- Appearance.
html_theme = "pydata_sphinx_theme"
html_title = "Godwit"
html_static_path = ["static"]
html_css_files = ["godwit.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "secondary_sidebar_items": {"**": ["page-toc"], "coming-from": []},
}
html_sidebars = {"ten-minutes": [], "coming-from": [], "performance": []}


def read_results(app: Any, page: str, content: list[str]) -> None:
    """Show benchmarks/RESULTS.md, which lies outside of this folder, as the page ``results``."""
    if page == "results":
        content[0] = (Path(__file__).parent.parent / "benchmarks" / "RESULTS.md").read_text("utf-8")
    content[0] = (
        content[0].replace("](../docs/", "](").replace("](../benchmarks/RESULTS.md", "](results.md")
    )


def setup(app: Any) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", read_results)
