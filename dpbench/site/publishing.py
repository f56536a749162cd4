"""Publish a leaderboard: verify all results, rebuild all files from boards and results, then upload the files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from dpbench.board import build
from dpbench.board.exchange import CURVES_FOLDER as CURVES
from dpbench.board.export import render_leaderboard_parquet
from dpbench.board.index import Index
from dpbench.board.verify.challenge_record import FOLDER as CHALLENGES
from dpbench.errors import ChecksFailed, DataError
from dpbench.records.board import list_board_files
from dpbench.records.packed import read_record, record_exists
from dpbench.records.released import FOLDER as RELEASED
from dpbench.registry import Registry
from dpbench.site import build_site, github_pages, upload
from dpbench.site.extras import NO_EXTRAS, SiteExtras
from dpbench.site.layout import result_path
from dpbench.site.readme import ENTRIES_FILE, make_dataset_card

HUB_PREFIX = "hf:"


def publish(
    target: str,
    root: Path,
    plugins: Registry,
    docs: Callable[[Path], None] | None = None,
    *,
    extras: SiteExtras = NO_EXTRAS,
    dry_run: bool = False,
) -> list[str]:
    """Upload the data of the leaderboard `root` to `hf:OWNER/NAME`, or put its site into a folder (until 0.4).

    Return one line for each file that is added, changed or deleted. With `dry_run`, nothing is changed. The index is
    always rebuilt from results that pass every check; no earlier build is trusted.

    Raises:
        DataError: a result fails a check, or `leaderboard.json` does not match the results.
        SpecError: the target, or an environment variable that the hub needs, is not valid.
        OutputError: the target cannot be written, or holds files that dpbench did not publish.
    """
    hub = target.startswith(HUB_PREFIX)
    if hub:
        upload.make_client(target.removeprefix(HUB_PREFIX))  # what is missing is said before all is verified
    else:
        github_pages.read_published_digests(Path(target))  # and so is a place that does not fit
    index = _build_verified_index(root, plugins)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        if hub:
            for path, content in _collect_repository_files(index, root).items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_bytes(content)
            return upload.upload_folder(target.removeprefix(HUB_PREFIX), made, dry_run=dry_run)
        build_site(index, root, made, plugins, docs, extras)
        return github_pages.publish_to_folder(made, Path(target), dry_run=dry_run)


def _build_verified_index(root: Path, plugins: Registry) -> Index:
    """Build the index from the results and check that `leaderboard.json` holds the same index."""
    try:
        index = build.build_index(root, plugins)
    except ChecksFailed as error:
        first, count = error.complaints[0], len(error.complaints)
        raise DataError(
            f"Expected every result in {root} to pass its checks, got {count} complaint(s), the first of {first.file}: "
            f"{first}. Nothing is published; `dpbench leaderboard verify` lists them all."
        ) from None
    if not build.is_index_current(index, root):
        raise DataError(f"{root / build.INDEX} does not match the results. Run `dpbench leaderboard build`.")
    return index


def _collect_repository_files(index: Index, root: Path) -> dict[str, bytes]:
    """Return the files of the hub's repository: the index, its sources, the table of entries, schema and card."""
    entries = [entry for standing in index.standings for entry in standing.entries]
    reruns = [f"reruns/{entry.file.removeprefix('results/')}" for entry in entries if entry.again]
    audits = [f"audits/{entry.file.removeprefix('results/')}" for entry in entries if entry.audit]
    challenges = [f"{CHALLENGES}/{entry.file.removeprefix('results/')}" for entry in entries if entry.challenge]
    attacks = [f"{RELEASED}/{entry.file.removeprefix('results/')}" for entry in entries]
    attacks = [path for path in attacks if record_exists(root / path)]
    boards = [f"boards/{standing.board.name}.toml" for standing in index.standings]
    curves = [f"{CURVES}/{standing.board.name}.json" for standing in index.standings]
    curves = [path for path in curves if (root / path).exists()]
    files = {
        path: read_record(root / path)
        for path in (build.INDEX, build.SCHEMA, *reruns, *challenges, *audits, *attacks, *curves)
    }
    files |= {path: _find_board_file(root / path).read_bytes() for path in boards}
    return {
        **files,
        **{entry.file: read_record(result_path(root, entry)) for entry in entries},
        ENTRIES_FILE: render_leaderboard_parquet(index),
        "README.md": make_dataset_card(index),
    }


def _find_board_file(file: Path) -> Path:
    return file if file.exists() else list_board_files()[file.stem]
