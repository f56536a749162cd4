"""Find the targets of `dpbench audit` (specs, results and board entries) and their earlier audits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from dpbench.cli.output import exit_with_message_on_interrupt
from dpbench.errors import DpbenchError, SpecError
from dpbench.records.packed import list_records, read_record
from dpbench.records.spec import Spec, add_default_extractor, make_spec
from dpbench.support.files import MODEL_ENDINGS
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.untrusted import read_toml

if TYPE_CHECKING:
    from dpbench.records.audit import Audit
    from dpbench.records.result import Result

Target = TypeVar("Target", bound="NamedTarget")
Found = TypeVar("Found")


class NamedTarget(Protocol):
    """The target of an audit or an attack."""

    @property
    def name(self) -> str:
        """The name of the target for messages."""


@dataclass(frozen=True)
class AuditTarget:
    """A spec or result to audit or attack; for a board entry, also the path of the new record in the leaderboard."""

    name: str
    file: Path  # of the spec or result
    filed: Path | None = None  # in a leaderboard

    def read(self) -> Spec | Result:
        """Read the spec or result."""
        from dpbench.records.result import Result

        if self.file.suffix == ".toml":
            keys = read_toml(self.file, "spec")
            return make_spec(add_default_extractor(keys, self.name), self.name)
        return Result.read(self.file)


def find_audit_targets(name: str, root: Path, folder: str) -> Iterator[AuditTarget]:
    """Yield the target that `name` names: a spec, a result or a board's entry; all entries if it names a board.

    The records of entries go to ROOT/`folder`/BOARD.

    Raises:
        SpecError: `name` names none of these, or it names a model.
    """
    file = Path(name)
    if file.suffix in {".toml", ".json"}:
        yield AuditTarget(name, file)
        return
    if name.endswith((*MODEL_ENDINGS.values(),)):
        raise SpecError(f"A model is attacked as it is released: use dpbench audit --released {name}.")
    if file.exists() or name.startswith(("/", ".")):
        raise SpecError(f"Expected a spec (.toml), a result (.json) or a board, got {name!r}.")
    board, _, entry = name.partition("/")
    boards = sorted(file.name for file in (root / "results").glob("*") if file.is_dir())
    if board not in boards:
        said = format_unknown_name_message("board with results", board, boards)
        raise SpecError(f"{said} You can also name a spec (.toml) or a result (.json), or use --root if not {root}.")
    entries = list_records(root / "results" / board)
    chosen = [path for path in entries if entry in {"", path.stem}]
    if not chosen:
        raise SpecError(
            format_unknown_name_message(f"entry of board {board}", entry, [entry.stem for entry in entries])
        )
    for path in chosen:
        yield AuditTarget(f"{board}/{path.stem}", path, root / folder / board / path.name)


def examine_targets(
    targets: Sequence[Target], examine: Callable[[Target], Found], verb: str
) -> Iterator[tuple[Target, Found]]:
    """Call `examine` on each target; yield the target and what `examine` returned.

    A target that fails is skipped; standard error reports it as `not {examined}`, with the reason.

    Raises:
        DpbenchError: there is a single target, and it fails.
    """
    for target in targets:
        try:
            with exit_with_message_on_interrupt("Finished records are kept."):
                found = examine(target)
        except DpbenchError as error:
            if len(targets) == 1:
                said = str(error)
                raise error if str(Path(target.name)) in said else type(error)(f"{target.name}: {said}") from error
            print(f"dpbench: {target.name}: not {verb}: {error}", file=sys.stderr)
            continue
        yield target, found


def read_audits(out: Path, digest: str) -> Iterator[Audit]:
    """Yield the audits of a run, with any seed, from an output folder."""
    yield from read_sealed_audits(sorted((out / "audit").glob(f"{digest[:16]}*.json")))


def read_sealed_audits(files: Iterable[Path]) -> Iterator[Audit]:
    """Yield the audits in these files; skip each file that is missing, unreadable or changed."""
    from dpbench.records.audit import Audit
    from dpbench.records.checksums import compute_seal

    for file in files:
        with suppress(OSError, DpbenchError, ValueError):
            audit = Audit.read(file)
            if audit.seal == compute_seal(json.loads(read_record(file))):
                yield audit
