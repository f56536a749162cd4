"""Sphinx's configuration. `dpbench.docs.site` copies it to the folder that holds the written and generated pages."""

import json
import os
from importlib.metadata import version as version_of
from importlib.resources import files

project = "dpbench"
author = "The dpbench developers"
release = version = version_of("dpbench-vision")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "dpbench.docs.extension"]
templates_path = ["theme", str(files("dpbench.site") / "templates")]
exclude_patterns = ["_*", "theme"]

html_theme = "furo"


def _make_colour_variables(paper: str, tint: str, line: str, ink: str, quiet: str, link: str) -> dict[str, str]:
    named = {
        "background-primary": paper, "background-secondary": tint, "background-border": line, "foreground-primary": ink,
        "foreground-secondary": quiet, "foreground-muted": quiet, "brand-primary": link, "brand-content": link,
        "brand-visited": link,
    }  # fmt: skip
    return {f"color-{name}": colour for name, colour in named.items()}


html_theme_options = {  # the colours of the leaderboard: `dpbench/site/static/site.css`
    "light_css_variables": _make_colour_variables("#ffffff", "#f3f5f7", "#dcdfe3", "#1a1c1f", "#545a63", "#00568a"),
    "dark_css_variables": _make_colour_variables("#15171a", "#1d2024", "#33373d", "#e6e7e9", "#a0a6ae", "#7cc0ec"),
}
html_title = "dpbench documentation"
html_static_path = ["theme/docs.css"]
html_css_files = ["docs.css"]
html_copy_source = html_show_sourcelink = html_show_copyright = False
_header = json.loads(os.environ.get("DPBENCH_DOCS_HEADER") or '{"root": "", "sections": []}')
html_context = {"leaderboard": _header["root"], "sections": _header["sections"]}
html_use_index = False
html_domain_indices = False

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress, and what the cache says

default_role = "py:obj"  # docstrings write `name`: a link where the reference has it, code where it has not
suppress_warnings = ["ref.python"]  # a name of several classes has no link
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80  # a long signature has one argument a line
smartquotes = False  # -- begins a flag
toc_object_entries = False
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
