"""Re-runs of a leaderboard's results: `dpbench leaderboard verify --rerun` and `dpbench leaderboard challenge`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dpbench.cli.given import UserSettings
from dpbench.cli.takes import add_setting_flags
from dpbench.errors import DpbenchError, NotReproducible, SpecError
from dpbench.privacy import MECHANISM
from dpbench.records.place import RunOptions
from dpbench.records.protocol import Component

if TYPE_CHECKING:
    from dpbench.board.verify.challenge_record import FiledResult
    from dpbench.board.verify.checks import CheckedFile
    from dpbench.board.verify.cost import PlannedFits
    from dpbench.harness.session import Session
    from dpbench.records.board import Board
    from dpbench.registry import Registry

RootOption = Annotated[Path, typer.Option(help="Folder of the leaderboard: boards/, results/ ...")]
ByOption = Annotated[str | None, typer.Option(help="Your name, for the record. \\[default: your git user name]")]
Outcome = Literal["ok", "FAILED", "not run"]


@dataclass(frozen=True)
class ReportLine:
    """One line of a report: the outcome of a result, followed by the details."""

    outcome: Outcome
    said: str

    def __str__(self) -> str:
        return f"{self.outcome} {self.said}"


@dataclass(frozen=True)
class RerunRequest:
    """A request to re-run seeds: the session, the seed (None for all seeds), and the name of the person who asks."""

    session: Session
    seed: int | None
    by: str | None


@add_setting_flags(RunOptions, only=("device",))
def challenge(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BOARD|FILE]...", help="Boards, or result files. \\[default: all boards]"),
    ] = None,
    by: ByOption = None,
    root: RootOption = Path("leaderboard"),
    *,
    given: UserSettings,
) -> None:
    """Run results with challenge seeds, which nobody chose: they follow from the result and the commit that filed it.

    A board is ranked by challenge seeds once most of its reproduced entries have them. Results with a
    current record are skipped.
    """
    from dpbench.board.folder import list_results, locate_result
    from dpbench.board.verify.challenge_record import find_challenge
    from dpbench.board.verify.cost import PlannedFits
    from dpbench.board.verify.expectations import ReviewContext
    from dpbench.board.verify.review import review_files
    from dpbench.records.challenge import CHALLENGE_COUNT
    from dpbench.registry import load

    plugins = load()
    plugins.report_broken_plugins()
    known = ReviewContext.read(root, plugins)
    every, _ = list_results(root, dict(known.boards))
    wanted = [file for file in every if file.board is not None and (not targets or file.board in targets)]
    wanted += [locate_result(Path(name), root) for name in targets or () if name not in known.boards]
    checked = review_files(wanted, known).results
    open_files = [
        file for file in checked if not (file.ok and file.result and find_challenge(file.stored, file.result, root))
    ]
    results = [file.result for file in open_files if file.ok and file.result]
    planned = [PlannedFits(result, own=0, challenge=CHALLENGE_COUNT, search=False) for result in results]
    request = prepare_rerun(planned, None, by, plugins, given.place.device)
    unfinished = 0
    for file in open_files:
        line = make_check_report_line(file)
        if file.ok and file.result is not None:
            line = _run_challenge_seeds(_make_filed_result(file, known.boards), request, root)
        unfinished += line.outcome != "ok"
        print(line, flush=True)
    print(
        f"{format_count(len(checked), 'result')}, {len(checked) - len(open_files)} had a record, {unfinished} not run"
    )
    if unfinished:
        raise typer.Exit(1)


def plan_rerun(files: Sequence[CheckedFile], seed: int | None) -> list[PlannedFits]:
    """Return the fits of a re-run of the results that passed their checks.

    With `seed`, there is one fit for each result. Otherwise all seeds are fitted and, if the result is on a board, its
    challenge seeds too.
    """
    from dpbench.board.verify.cost import PlannedFits
    from dpbench.records.challenge import CHALLENGE_COUNT

    return [
        PlannedFits(file.result, 1, 0, search=False) if seed is not None else
        PlannedFits(file.result, len(file.result.seeds), CHALLENGE_COUNT * (file.stored.board is not None), search=True)
        for file in files
        if file.ok and file.result
    ]  # fmt: skip


def prepare_rerun(
    planned: Sequence[PlannedFits],
    seed: int | None,
    by: str | None,
    plugins: Registry,
    device: str,
    dataset: str | None = None,
) -> RerunRequest:
    """Print the cost of the planned fits and return the request.

    `dataset` is the dataset of the results, with the paths of its files on this machine.
    """
    from dpbench.board.verify.cost import describe_cost
    from dpbench.records.provenance import find_git_user_name

    if planned:
        print(describe_cost(planned), flush=True)
    from dpbench.harness.session import open_session

    session = open_session(device, plugins=plugins)
    if dataset is not None:
        session = replace(session, dataset=Component.parse(dataset))
    return RerunRequest(session, seed, by or find_git_user_name())


def rerun_and_report(file: CheckedFile, request: RerunRequest, root: Path, boards: Mapping[str, Board]) -> ReportLine:
    """Re-run a result's seeds and, on a board, its challenge seeds; write the records and report the outcome."""
    from dpbench.board.verify import rerun_record

    assert file.result is not None
    name = file.stored.file
    try:
        seeds = None if request.seed is None else (request.seed,)
        record = rerun_record.rerun_seeds(file.result, seeds, request.session, request.by)
    except NotReproducible as error:
        return ReportLine("not run", f"{name}: {error}")
    except DpbenchError as error:
        return ReportLine("FAILED", f"{name}: seeds: {error}")
    if file.stored.filed:
        rerun_record.write_new_rerun(record, file.stored, file.result, root)
    said = rerun_record.summarize_rerun(record, file.result)
    if not record.agrees:
        return ReportLine("FAILED", f"{name}: seeds: {said}")
    if file.stored.board is None or request.seed is not None:
        return ReportLine("ok", f"{name}; {said}")
    fresh = _run_challenge_seeds(_make_filed_result(file, boards), request, root)
    after = fresh.said.removeprefix(name).lstrip(":; ")
    return ReportLine(
        "FAILED" if fresh.outcome == "FAILED" else "ok",
        f"{name}; {said}; {'' if fresh.outcome == 'ok' else 'no challenge seeds: '}{after}",
    )


def _make_filed_result(file: CheckedFile, boards: Mapping[str, Board]) -> FiledResult:
    from dpbench.board.verify.challenge_record import FiledResult

    if file.stored.board is None or file.result is None:
        raise SpecError(f"Expected a result that is filed under a board, got {file.stored.file}.")
    return FiledResult(file.stored, file.result, boards[file.stored.board].metric)


def _run_challenge_seeds(filed: FiledResult, request: RerunRequest, root: Path) -> ReportLine:
    """Run the challenge seeds of a filed result, keep the record, and report the scores."""
    from dpbench.board.verify import challenge_record

    name = filed.stored.file
    try:
        record = challenge_record.run_challenge(filed, root, request.session, request.by)
    except NotReproducible as error:
        return ReportLine("not run", f"{name}: {error}")
    except DpbenchError as error:
        return ReportLine("FAILED", f"{name}: challenge seeds: {error}")
    record.write_to(challenge_record.challenge_path(filed.stored, root))
    return ReportLine("ok", f"{name}; {challenge_record.summarize_challenge(record, filed)}")


def make_check_report_line(file: CheckedFile) -> ReportLine:
    """Return the report line of a checked result, with at most five complaints."""
    if file.ok:
        unfiled = "" if file.stored.filed else " (no board: there is no protocol to compare it with)"
        repeatable = file.result is None or file.result.privacy.uses_current_mechanism
        before = "" if repeatable else f" (made by code from before {MECHANISM})"
        return ReportLine("ok", f"{file.stored.file}{unfiled}{before}")
    most = 5
    more = f"; and {len(file.complaints) - most} more" if len(file.complaints) > most else ""
    return ReportLine("FAILED", f"{file.stored.file}: {'; '.join(map(str, file.complaints[:most]))}{more}")


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> format_count(1, "result"), format_count(2, "result")
    ('1 result', '2 results')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
