"""Verify a result: everything that `dpbench leaderboard verify` checks, and whether a board accepts it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from dpbench.analysis.describe import describe_result
from dpbench.analysis.formats import format_metric_score
from dpbench.analysis.word import list_unchecked_claims
from dpbench.board.add import SubmissionChecker, explain_taken_path, find_taken_paths, list_submission_remarks
from dpbench.board.folder import locate_result
from dpbench.board.verify.checks import CheckedFile, fill_new_options, find_protocol_differences
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.review import review_files
from dpbench.board.verify.source_code import check_source_code
from dpbench.privacy import MECHANISM
from dpbench.records.result import Result
from dpbench.registry.components import make_component_shortener
from dpbench.verification.documents import KIND_WORDS
from dpbench.verification.report import FileReport, describe_accountants

STATED_FACTS = ("guarantee", "δ", "neighbours")


class ResultVerifier:
    """Verifies results one by one; with `submission`, a board must also accept each result."""

    def __init__(self, root: Path, context: ReviewContext, *, submission: bool) -> None:
        self.root, self.known, self.submission = root, context, submission

    @cached_property
    def _submissions(self) -> SubmissionChecker:
        return SubmissionChecker(self.root, self.known)

    def verify(self, file: Path) -> FileReport:
        """Check a result alone and, if it is filed on a board or submitted to one, against that board."""
        (checked,) = review_files([locate_result(file, self.root)], self.known).results
        boards: list[str] = []
        if self.submission and checked.ok:
            submitted, boards = self._submissions.match_boards(file)
            checked = CheckedFile(checked.stored, submitted.complaints, checked.result)
        result, kind = checked.result, KIND_WORDS["result"]
        if result is None:
            return FileReport(str(file), kind, (), (), checked.complaints, (), checked=checked)
        recomputed = tuple(self._list_recomputed_claims(checked, result, boards)) if checked.ok else ()
        remarks = tuple(list_submission_remarks(result)) if boards else ()
        word = f"what its author alone says about {'; '.join(list_unchecked_claims(result))}"
        unchecked = (f"{word}. --rerun runs it again", *remarks, *self._list_code_remarks(checked, result))
        stated = tuple(self._describe_result(result))
        return FileReport(str(file), kind, stated, recomputed, checked.complaints, unchecked, checked=checked)

    def _list_code_remarks(self, checked: CheckedFile, result: Result) -> Iterator[str]:
        if not self.submission and not checked.stored.filed:
            for field, said in check_source_code(result):
                yield f"the code that made it ({field}: {said}); no leaderboard takes it"

    def _describe_result(self, result: Result) -> Iterator[str]:
        plugins = self.known.plugins
        found = describe_result(result, namer=make_component_shortener(plugins)) if plugins else describe_result(result)
        facts = dict(found.pairs)
        yield found.title
        seeds = f"{len(result.seeds)} seed{'s' * (len(result.seeds) > 1)}"
        yield f"accuracy {format_metric_score('accuracy', result.metrics['accuracy'], unit=True)}, {seeds}"
        yield ", ".join(f"{name} {facts[name]}" for name in STATED_FACTS if name in facts)

    def _list_recomputed_claims(self, checked: CheckedFile, result: Result, boards: list[str]) -> Iterator[str]:
        yield "its digest; every score from the counts of its seeds"
        if result.privacy.plan:
            yield describe_accountants(result.privacy)
        if not result.privacy.uses_current_mechanism:
            yield f"nothing of its noise, which code from before {MECHANISM} drew"
        if self.submission:
            held = (f"; {explain_taken_path(path)}" for path in find_taken_paths(result, boards, self.root))
            yield f"that it can be submitted to board {', '.join(boards)}{''.join(held)}"
        elif checked.stored.board is not None:
            yield f"that it has the protocol of board {checked.stored.board}, on which it is filed"
        else:
            spec = fill_new_options(result.spec, self.known)
            same = [
                name for name, board in self.known.boards.items() if not find_protocol_differences(board, spec, result)
            ]
            yield "its protocol: that of " + (f"board {', '.join(same)}" if same else "no board here")
