"""`dpbench leaderboard`: check and file results, and build and publish the index and the site."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli import interrupt, publish
from dpbench.cli.given import CommandSettings, UserSettings
from dpbench.cli.output import Json, stop_on_interrupt
from dpbench.cli.rerun import ByOption, RootOption, challenge, format_count
from dpbench.cli.takes import add_setting_flags
from dpbench.cli.verify import (
    LEADERBOARD,
    RerunFlags,
    RerunOption,
    SeedOption,
    load_plugins,
    print_deprecation,
    print_verification_reports,
    verify_leaderboard,
)
from dpbench.errors import SpecError
from dpbench.records.place import RunOptions
from dpbench.records.search import Search
from dpbench.records.spec import AXES, Spec

app = typer.Typer(help="The leaderboard: check, add, verify, build, export, serve and publish.", no_args_is_help=True)
app.command("serve")(publish.serve)
app.command("publish")(publish.publish)

DIFF_IS_DEPRECATED = (
    "dpbench: dpbench leaderboard diff is deprecated and will be removed in version 0.4. Use git diff --no-index OLD "
    "NEW, or git diff COMMIT -- leaderboard/leaderboard.json."
)


@app.callback()
def handle_interrupts(context: typer.Context) -> None:
    """Let Ctrl-C stop the pool of processes that checks results."""
    context.with_resource(interrupt.raise_on_interrupt())  # or the handler before it would end the process at once
    context.with_resource(stop_on_interrupt())


@app.command()
@add_setting_flags(RunOptions, only=("device",))
def verify(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Result files. \\[default: all of the leaderboard]")
    ] = None,
    rerun: RerunOption = False,
    seed: SeedOption = None,
    by: ByOption = None,
    root: RootOption = LEADERBOARD,
    *,
    given: UserSettings,
) -> None:
    """Check results: recompute epsilon and scores, and check digests and boards. Prints a line per result."""
    verify_leaderboard(files or [], root, RerunFlags(rerun, seed, by), given.place.device)


@app.command()
def build(
    context: typer.Context,
    site: Annotated[Path | None, typer.Option(help="Folder for the site. \\[default: ROOT/site]")] = None,
    no_site: Annotated[bool, typer.Option("--no-site", help="Write only leaderboard.json and its schema.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if leaderboard.json is out of date.")
    ] = False,
    docs: publish.DocsOption = True,
    root: RootOption = LEADERBOARD,
) -> None:
    """Check all results, then write leaderboard.json, schema.json and the site.

    DPBENCH_ADDRESS is the address of the site, and DPBENCH_REPOSITORY that of the code. Without them, links stay within
    the site.
    """
    from dpbench.board import build as building

    if site is not None and (no_site or check):
        raise SpecError("--site says where the site goes, but --check and --no-site write none. Use only one of them.")
    if not any((root / part).is_dir() for part in ("boards", "results")):
        raise SpecError(
            f"Expected boards or results in {root}, found none. Name a leaderboard's folder with --root, or file a "
            "result: dpbench leaderboard add FILE."
        )
    plugins, whole = load_plugins(), not (check or no_site)
    if whole:
        from dpbench.site.own_text import LeaderboardText
        from dpbench.site.reuse import BuildTarget, lock_build

        LeaderboardText.read(root)  # a mistake in it is said before minutes of work
        context.with_resource(lock_build(root))
        target = BuildTarget(root, site or root / "site", plugins, publish.load_extras(context), docs)
        inputs = target.digest_inputs()
        if kept := target.find_recorded_message(inputs):
            print(f"{root / building.INDEX} and {target.out} are up to date: {kept}")
            return
    index = building.build_index(root, plugins)
    entries = sum(len(standing.entries) for standing in index.standings)
    said = f"{entries} results on {len(index.standings)} boards"
    if check:
        if not building.is_index_current(index, root):
            raise SpecError(
                f"Expected {root / building.INDEX} to match its results, but it does not. "
                "Run dpbench leaderboard build, and commit what it writes."
            )
        print(f"{root / building.INDEX} is up to date: {said}")
        return
    print(f"Wrote {building.write_index(index, root)}: {said}")
    if whole:
        from dpbench.site import build_site

        made = publish.make_docs_builder(context, wanted=docs)
        build_site(index, root, target.out, plugins, made, target.extras)
        target.record_build(inputs, said)
        print(f"Wrote {target.out}")


@app.command("new")
def create_board(
    folder: Annotated[Path, typer.Argument(help="The leaderboard's folder; it is created if it is missing.")],
    source: Annotated[Path, typer.Option("--from", help="A result, or the TOML spec of a run, with the protocol.")],
    name: Annotated[str | None, typer.Option(help="Name of the board. \\[default: data and ε]")] = None,
    title: Annotated[str, typer.Option(help="Title of the board. \\[default: data, features and ε]")] = "",
) -> None:
    """Start a leaderboard of your own: write a board with the protocol of a result or a spec."""
    from dpbench.board.new_board import read_source_result, write_board

    result = read_source_result(source)
    spec = result.spec if result else _read_run_spec(source)
    board = write_board(folder, spec, result.task.digests if result else None, name, title)
    print(f"Wrote {board}. Edit its title and {folder / 'site.toml'}, never its protocol. Next:\n")
    learner = spec.learner.name
    if result:
        print(f"  dpbench leaderboard add {source} --root {folder}")
        learner = "pillar" if learner == "thrift" else "thrift"
    print(f"  dpbench run --board {folder / board.stem} --learner {learner}")
    print(f"  dpbench leaderboard add dpbench-results/FILE.json --root {folder}")
    print(f"  dpbench leaderboard build --root {folder}")
    print(f"  dpbench leaderboard serve --root {folder}")


def _read_run_spec(file: Path) -> Spec:
    """Read the spec of a run from a TOML file; return it with its unit and all options of its components written out.

    Raises:
        SpecError: a key or value does not fit, or the file has no delta.
    """
    from dpbench.registry.components import resolve

    plugins = load_plugins()
    given = UserSettings("leaderboard new", CommandSettings((Spec, Search, RunOptions), AXES, {}, {}), {}, file)
    if "delta" not in given.keys:
        raise SpecError(f"Expected delta in {file}, because a board states it. Add delta = 1e-5, or use a result.")
    return resolve(given.spec(plugins), plugins).spec


@app.command()
def add(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results that dpbench run wrote.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace an earlier result with the same spec.")] = False,
    root: RootOption = LEADERBOARD,
) -> None:
    """Check results and file them as submitted, under every board whose protocol they match."""
    from dpbench.board.add import add_results as file_under
    from dpbench.board.add import list_submission_remarks
    from dpbench.records.result import Result

    started = not root.is_dir()
    for filing in file_under(files, root, load_plugins(), replace=replace):
        said = (
            "already filed as"
            if not filing.new
            else "replaced another result, filed as"
            if filing.replaces
            else "filed as"
        )
        print(f"{filing.source}: {said} {root / filing.file}")
        for record in filing.removed:
            print(f"removed {record}, which belongs to the replaced result. Audit and re-run this one")
    if started:
        print(
            f"dpbench: {root} did not exist, so this started a leaderboard of your own there. To submit a result, run "
            "the command in a clone of dpbench.",
            file=sys.stderr,
        )
    for said in (said for file in files for said in list_submission_remarks(Result.read(file))):
        print(f"dpbench: {said.rstrip('.')}.", file=sys.stderr)


@app.command("check", hidden=True)
def check_submission(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results that dpbench run wrote.")],
    root: RootOption = LEADERBOARD,
) -> None:
    """Check whether results can be submitted. Deprecated: use dpbench verify --submission."""
    print_deprecation("leaderboard check", "verify --submission")
    print_verification_reports(files, root, submission=True)


app.command("challenge")(challenge)


@app.command()
@add_setting_flags(RunOptions, only=("device",))
def exchange(
    boards: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BOARD]...", help="Boards. \\[default: all with public labels and results]"),
    ] = None,
    root: RootOption = LEADERBOARD,
    *,
    given: UserSettings,
) -> None:
    """Train on 10, 20, ... all public labels to get the board's learning curve, which converts accuracy into labels."""
    from dpbench.board.curve import write_learning_curves
    from dpbench.harness.session import open_session

    for file in write_learning_curves(boards or [], root, open_session(given.place.device, plugins=load_plugins())):
        print(f"Wrote {file}")
    print("Run dpbench leaderboard build to convert each entry into a number of labels.")


@app.command()
def fingerprint(root: RootOption = LEADERBOARD) -> None:
    """Record fingerprints of the installed code for all settings in the results, to compare versions.

    Each learner is fitted on small synthetic data. Fingerprints that are there already are kept.
    """
    from dpbench.board.fingerprinting import refresh_fingerprints

    for done in refresh_fingerprints(root / "results", root / "fingerprints", load_plugins()):
        print(
            f"{done.kind} {done.name}: {format_count(len(done.prints), 'fingerprint')}, "
            f"{format_count(len(done.codes), 'code')}"
        )


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(help="The earlier leaderboard.json.")],
    after: Annotated[Path, typer.Argument(help="The later leaderboard.json.")],
    as_json: Json = False,
) -> None:
    """Show which entries, means and ranks changed between two files. Deprecated: use git diff."""
    from dpbench.board.diff import list_changes as changes
    from dpbench.board.index import Index

    found = changes(Index.read(before), Index.read(after))
    print(DIFF_IS_DEPRECATED, file=sys.stderr)
    if as_json:
        print(json.dumps([change.model_dump(mode="json") for change in found], indent=2))
        return
    for change in found:
        print(change)
    print(f"{len(found)} changes")


@app.command()
def export(
    csv: Annotated[Path | None, typer.Option(help="CSV file to write; - for standard output.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Parquet file to write, with typed columns.")] = None,
    every_eval_ever: Annotated[
        Path | None, typer.Option(metavar="<folder>", help="Folder for a log of Every Eval Ever per entry.")
    ] = None,
    eval_results: Annotated[
        Path | None,
        typer.Option(metavar="<folder>", help="Folder for an .eval_results file of the Hugging Face hub per entry."),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(metavar="OWNER/NAME", help="Dataset repository of the leaderboard, for --eval-results."),
    ] = None,
    root: RootOption = LEADERBOARD,
) -> None:
    """Export leaderboard.json as a table with one row per entry, or in formats of other collections of results."""
    from operator import methodcaller

    from dpbench.board import evaluation_logs
    from dpbench.board import export as tables
    from dpbench.board.build import INDEX
    from dpbench.board.index import Index
    from dpbench.site.upload import REPOSITORY
    from dpbench.support.files import write_atomically

    if not any((csv, parquet, every_eval_ever, eval_results)):
        raise SpecError("Expected a format to export to: --csv, --parquet, --every-eval-ever or --eval-results.")
    if (eval_results is None) is not (repository is None):
        raise SpecError("--eval-results and --repository need each other: each file names the hub's repository.")
    if repository is not None and not re.fullmatch(REPOSITORY, repository):
        raise SpecError(f"Expected --repository to be OWNER/NAME, got {repository[:200]!r}.")
    index, files = Index.read(root / INDEX), dict[Path, bytes]()
    if csv is not None and str(csv) == "-":
        sys.stdout.write(tables.render_leaderboard_csv(index))
    elif csv is not None:
        files[csv] = tables.render_leaderboard_csv(index).encode()
    if parquet is not None:
        files[parquet] = tables.render_leaderboard_parquet(index)
    if every_eval_ever is not None:
        files |= {every_eval_ever / path: content for path, content in evaluation_logs.render_evaluation_logs(index)}
    if eval_results is not None and repository is not None:
        found = evaluation_logs.render_hub_results(index, repository)
        files |= {eval_results / path: content for path, content in found}
    for path, content in files.items():
        write_atomically(path, methodcaller("write", content))
    if files:
        print(f"Wrote {next(iter(files))}" if len(files) == 1 else f"Wrote {format_count(len(files), 'file')}")
