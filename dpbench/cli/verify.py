"""`dpbench verify`: print what a file states, what was recomputed from it, and what cannot be recomputed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpbench.cli.given import UserSettings
from dpbench.cli.output import Json
from dpbench.cli.rerun import (
    ByOption,
    RootOption,
    format_count,
    make_check_report_line,
    plan_rerun,
    prepare_rerun,
    rerun_and_report,
)
from dpbench.cli.takes import add_setting_flags
from dpbench.errors import DataError, DpbenchError, SpecError
from dpbench.records.place import RunOptions
from dpbench.support.untrusted import make_printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpbench.board.verify.expectations import ReviewContext
    from dpbench.board.verify.review import LeaderboardReview
    from dpbench.cli.rerun import RerunRequest
    from dpbench.registry import Registry
    from dpbench.verification.documents import Document
    from dpbench.verification.report import FileReport

LEADERBOARD = Path("leaderboard")  # see `board.folder`
LEADERBOARD_PARTS = ("boards", "results")  # folders by which a leaderboard is recognised
RerunOption = Annotated[
    bool,
    typer.Option(
        "--rerun",
        help="Also run again what can be run: all seeds of results, and the challenge seeds of filed ones; models are "
        "fitted again. Prints an estimate of the cost first. What cannot be run here is not ok.",
    ),
]
SeedOption = Annotated[
    int | None, typer.Option(help="Re-run only this seed: a quick check that does not count as a reproduction.")
]

DatasetOption = Annotated[
    str | None,
    typer.Option(
        help="The dataset of the results with the path of its files here, like imagefolder:FOLDER,units=folder. Only "
        "paths may differ, and the data must have the same digests."
    ),
]


@dataclass(frozen=True)
class RerunFlags:
    """The flags of a re-run. Raises SpecError if --seed, --by or --dataset is given without --rerun."""

    rerun: bool
    seed: int | None
    by: str | None
    dataset: str | None = None

    def __post_init__(self) -> None:
        given = [f"--{name}" for name in ("seed", "by", "dataset") if getattr(self, name) is not None]
        if given and not self.rerun:
            raise SpecError(f"{given[0]} applies only to re-runs: add --rerun.")


@add_setting_flags(RunOptions, only=("device",))
def verify(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Results, models, receipts, records of audits, attacks and re-runs, or folders of them; or a "
            "leaderboard. Name files together that belong together.",
        ),
    ],
    rerun: RerunOption = False,
    seed: SeedOption = None,
    by: ByOption = None,
    dataset: DatasetOption = None,
    submission: Annotated[
        bool, typer.Option("--submission", help="Also check that a board takes each result, and say which.")
    ] = False,
    root: RootOption = LEADERBOARD,
    as_json: Json = False,
    *,
    given: UserSettings,
) -> None:
    """Verify files that somebody gave you: print what they state, what was recomputed and what cannot be."""
    flags, device = RerunFlags(rerun, seed, by, dataset), given.place.device
    if rerun and as_json:
        raise SpecError("Expected one of --rerun and --json, got both.")
    folders = [file for file in files if any((file / part).is_dir() for part in LEADERBOARD_PARTS)]
    if not folders:
        print_verification_reports(files, root, flags, device, submission=submission, as_json=as_json)
        return
    if len(files) > 1 or submission or as_json or dataset is not None:
        raise SpecError(
            f"Expected a leaderboard alone, without --submission, --dataset and --json, got {folders[0]} beside them."
        )
    verify_leaderboard([], folders[0], flags, device)


def print_verification_reports(
    files: Sequence[Path],
    root: Path,
    flags: RerunFlags = RerunFlags(rerun=False, seed=None, by=None),
    device: str = "auto",
    *,
    submission: bool = False,
    as_json: bool = False,
) -> None:
    """Verify files one by one and print a report of each; re-run them if `flags` ask for it.

    Raises:
        typer.Exit: a file is contradicted; or, with `flags.rerun`, a re-run fails or nothing is re-run (exit code 1).
        DataError: a file cannot be read.
        SpecError: `flags` name a dataset, and a file is a model.
    """
    from dpbench.verification.documents import expand_folders, is_model_file
    from dpbench.verification.files import verify_files

    plugins = load_plugins()
    refused: dict[str, DpbenchError] = {}
    reports: dict[str, FileReport] = {}
    outcomes: list[bool | None] = []
    wanted = [*expand_folders(files)]
    if flags.dataset is not None and (models := [file for file in wanted if is_model_file(file)]):
        raise SpecError(f"Expected results beside --dataset, got {models[0]}: name the result of the model.")
    for file, found in zip(wanted, verify_files(wanted, root, plugins, submission=submission), strict=True):
        if isinstance(found, DpbenchError):
            refused[str(file)] = found
            continue
        document, report = found
        reports[str(file)] = report
        if not as_json:
            print("\n".join(map(make_printable, report.lines())), flush=True)  # a stranger's folder names its files
            print(f"  {_format_mismatch_count(report)}")
        if flags.rerun and report.passed:
            outcomes.append(_rerun_document(document, report, root, flags, plugins, device))
    if as_json:
        unread = {name: {"passed": False, "error": str(error)} for name, error in refused.items()}
        print(json.dumps({**{name: report.as_json() for name, report in reports.items()}, **unread}, indent=2))
    if refused:
        raise DataError("\n".join(map(str, refused.values())))
    if flags.rerun and (False in outcomes or True not in outcomes):
        raise typer.Exit(1)
    if not all(report.passed for report in reports.values()):
        raise typer.Exit(1)


def _format_mismatch_count(report: FileReport) -> str:
    many = len(report.complaints)
    return f"{many} mismatch{'es' if many > 1 else ''}." if many else "No mismatch found."


def _rerun_document(
    document: Document, report: FileReport, root: Path, flags: RerunFlags, plugins: Registry, device: str
) -> bool | None:
    """Re-run a result or a model, print the outcome and return whether it agrees; None for a receipt.

    Return False for a record of an audit, attack or re-run, which another command repeats.
    """
    if report.checked is not None:
        from dpbench.board.folder import read_boards

        planned = plan_rerun([report.checked], flags.seed)
        request = prepare_rerun(planned, flags.seed, flags.by, plugins, device, flags.dataset)
        line = rerun_and_report(report.checked, request, root, read_boards(root))
        print(line)
        return line.outcome == "ok"
    if document.kind == "receipt":
        print(f"not run {report.file}: {report.kind} has no run. Name its result or its model.")
        return None
    if document.kind != "model":
        from dpbench.verification.records import REPEAT_COMMANDS

        print(f"not run {report.file}: {report.kind} is made again with {REPEAT_COMMANDS[document.kind]}.")
        return False
    from dpbench.harness.session import open_session
    from dpbench.verification.models import rerun_model

    for said in rerun_model(document.file, open_session(device, plugins=plugins)):
        print(f"  rerun        {said}", flush=True)
    return True


def verify_leaderboard(files: Sequence[Path], root: Path, flags: RerunFlags, device: str) -> None:
    """Check results of a leaderboard (all if `files` is empty), and print a line for each.

    Raises:
        typer.Exit: a result or another file fails, or a re-run cannot be made. The exit code is 1.
    """
    from dpbench.board.verify.expectations import ReviewContext

    plugins = load_plugins()
    known = ReviewContext.read(root, plugins)
    found = _review_board_files(files, root, known)
    request: RerunRequest | None = None
    if flags.rerun:
        request = prepare_rerun(plan_rerun(found.results, flags.seed), flags.seed, flags.by, plugins, device)
    counts = Counter[str]()
    for result in found.results:
        again = request if result.ok else None
        line = rerun_and_report(result, again, root, known.boards) if again else make_check_report_line(result)
        counts[line.outcome] += 1
        print(line)
    for stray in found.strays:
        print(f"FAILED {stray.file}: {stray}")
    left = f", {counts['not run']} not run" if counts["not run"] else ""
    others = f"; {format_count(len(found.strays), 'other file')} failed" if found.strays else ""
    print(f"{format_count(len(found.results), 'result')}, {counts['FAILED']} failed{left}{others}")
    if not found.results:
        print(f"There are no results in {root}. Add one with dpbench leaderboard add FILE.")
    if counts["FAILED"] or counts["not run"] or found.strays:
        raise typer.Exit(1)


def load_plugins() -> Registry:
    """Load the plugins and report broken ones."""
    from dpbench.registry import load

    plugins = load()
    plugins.report_broken_plugins()
    return plugins


def _review_board_files(files: Sequence[Path], root: Path, expectations: ReviewContext) -> LeaderboardReview:
    from dpbench.board.build import verify_leaderboard as review_leaderboard
    from dpbench.board.folder import locate_result
    from dpbench.board.verify.review import review_files

    if not files:
        return review_leaderboard(root, expectations)
    return review_files([locate_result(file, root) for file in files], expectations)


def print_deprecation(old: str, new: str) -> None:
    """Print to standard error that a command is deprecated, and which command replaces it."""
    print(
        f"dpbench: dpbench {old} is deprecated and will be removed in version 0.4. Use dpbench {new}.", file=sys.stderr
    )
