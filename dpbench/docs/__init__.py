"""The documentation: Markdown pages and notebooks, and the code that builds an offline site from them.

Sphinx builds the site, with Furo's theme, and with MyST for Markdown and notebooks. All three are released often, under
BSD and MIT licences. The pages that they write load nothing from other servers, and their search also works on pages
that are opened from disk. (MkDocs' Material theme has been in maintenance since November 2025, and its search needs a
server.) Reference pages are generated from docstrings, commands and components when the site is built.
"""

from dpbench.docs.site import build_cached_documentation, build_documentation
from dpbench.errors import DocsMissing, DocsNotBuilt

__all__ = ["DocsMissing", "DocsNotBuilt", "build_cached_documentation", "build_documentation"]
