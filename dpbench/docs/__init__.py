"""The documentation: Markdown pages and notebooks, and the code that builds an offline site from them.

Sphinx builds it, with Furo's theme and MyST for Markdown and notebooks: all three are released often, under BSD and MIT
licences, and what they write loads nothing from elsewhere; its search also works on pages that are opened from disk.
(MkDocs' Material theme has been in maintenance since November 2025, and its search needs a server.) Reference pages are
made from docstrings, commands and components when the site is built.
"""

from dpbench.docs.site import build, build_cached
from dpbench.errors import DocsMissing, DocsNotBuilt

__all__ = ["DocsMissing", "DocsNotBuilt", "build", "build_cached"]
