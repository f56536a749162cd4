"""Check that the source code of a result is on record, so that anybody can find it again and run it.

A result without recorded source code can be consistent and its numbers can be recomputed, but no leaderboard takes it.
"""

from __future__ import annotations

import re
from typing import Any

from dpbench.board.verify.expectations import FieldComplaints
from dpbench.records.provenance import HARNESS, list_plugin_sources
from dpbench.records.result import Result

# Of a repository, without a password: https has no use for a name either.
_ADDRESS = r"(https://(?![^/]*@)|(ssh|git)://(?![^/@]*:[^/]*@)|git@)[^\s]{3,300}"


def check_source_code(result: Result) -> FieldComplaints:
    """Yield a complaint for each missing record of a result's code: a commit, a clean tree, a repository."""
    commit, dirty = (result.provenance.get(key) for key in ("commit", "dirty"))
    learner = result.components.get("learner")
    if commit is None and learner is not None and learner.distribution == HARNESS:
        yield "provenance.commit", f"expected the commit of {HARNESS} that a learner of its own was run from"
    if dirty is not False and commit is not None:
        yield "provenance.dirty", f"expected a tree without changes (false), got {dirty!r}"
    for name, value in (list_plugin_sources(result.provenance) or {}).items():
        yield from _check_source_record(f"provenance.sources.{str(name)[:80]}", value)


def _check_source_record(prefix: str, source: dict[str, Any]) -> FieldComplaints:
    repository, commit, dirty = (source.get(key) for key in ("repository", "commit", "dirty"))
    if not re.fullmatch(_ADDRESS, str(repository)):
        yield f"{prefix}.repository", f"expected the address of a repository, got {str(repository)[:80]!r}"
    if not re.fullmatch(r"[0-9a-f]{40}", str(commit)):
        yield f"{prefix}.commit", f"expected 40 hexadecimal digits, got {str(commit)[:80]!r}"
    if dirty is not False:
        yield f"{prefix}.dirty", f"expected a tree without changes (false), got {dirty!r}"
