"""Modules that moved in version 0.3; a plugin that imports an old module gets an error with the new name."""

from __future__ import annotations

import re
from collections.abc import Mapping

MOVED_MODULES: Mapping[str, str] = {
    "dpbench.claims": "dpbench_lab.claims",
    "dpbench.cli.advise": "dpbench_lab.advise.command",
    "dpbench.cli.claims": "dpbench_lab.claims.command",
    "dpbench.cli.explain": "dpbench_lab.explain.command",
    "dpbench.cli.flags": "dpbench.cli.takes",
    "dpbench.cli.inspect": "dpbench_lab.inspect.command",
    "dpbench.cli.museum": "dpbench_lab.museum.command",
    "dpbench.cli.plot": "dpbench_lab.figures.command",
    "dpbench.cli.reproduce": "dpbench_lab.reproduce.command",
    "dpbench.cli.request": "dpbench.cli.given",
    "dpbench.cli.spec_file": "dpbench.cli.given",
    "dpbench.harness.shared": "dpbench.harness.memo",
    "dpbench.museum": "dpbench_lab.museum",
    "dpbench.privacy.mechanisms.private_selection": "dpbench.privacy.core.accounting.private_search",
    "dpbench.privacy.mechanisms.residual": "dpbench.privacy.core.forms.residual",
    "dpbench.records.museum": "dpbench_lab.museum.record",
    "dpbench.site.claims_page": "dpbench_lab.claims.page",
    "dpbench.site.evidence_pages": "dpbench.site.audits_page and dpbench_lab.museum.page",
    "dpbench.site.figure_page": "dpbench_lab.reproduce.page",
    "dpbench.studies": "dpbench_lab and dpbench.analysis",  # what draws is in the latter
}
"""Name of a module in version 0.2 -> its name in version 0.3."""


def explain_moved_module(error: BaseException) -> str | None:
    """Explain where a module that could not be imported has moved; None if the error is not about a moved module."""
    missing = _find_missing_module(error)
    for old, new in MOVED_MODULES.items():
        if missing == old or missing.startswith(f"{old}."):
            return (
                f"it imports {old}, which moved to {new} in version 0.3. Import the names of dpbench.__all__ instead, "
                "which stay where they are, or the new module."
            )
    return None


def _find_missing_module(error: BaseException) -> str:
    """Return the module that an import did not find, also in `from package import module`; empty for other errors.

    >>> _find_missing_module(ModuleNotFoundError("No module named 'dpbench.museum'", name="dpbench.museum"))
    'dpbench.museum'
    >>> _find_missing_module(ImportError("cannot import name 'museum' from 'dpbench' (...)", name="dpbench"))
    'dpbench.museum'
    """
    if not isinstance(error, ImportError) or error.name is None:
        return ""
    part = re.match(r"cannot import name '(\w+)'", str(error))
    return f"{error.name}.{part[1]}" if part else error.name
