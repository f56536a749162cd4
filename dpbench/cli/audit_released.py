"""`dpbench audit --released`: attack released models, and write a page for the person who decides on a release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from dpbench.cli.audit_targets import AuditTarget, examine_targets, find_audit_targets, read_audits
from dpbench.cli.output import print_record_if_unwritable, print_records
from dpbench.errors import SpecError
from dpbench.records.place import RunOptions
from dpbench.records.spec import Spec
from dpbench.support.files import MODEL_ENDINGS, write_atomically

if TYPE_CHECKING:
    from dpbench.harness.session import Session
    from dpbench.models import Model
    from dpbench.records.audit import Audit
    from dpbench.records.released import ReleasedModelAttack


@dataclass(frozen=True)
class RunTarget:
    """A run to attack, given by its spec or its result."""

    target: AuditTarget

    @property
    def name(self) -> str:
        """The name of the target for messages."""
        return self.target.name

    def attack(self, session: Session, shadows: int) -> ReleasedModelAttack:
        """Prepare the run, fit its shadow models and test membership."""
        from dpbench.audit.released import attack_released_models

        what = self.target.read()
        if isinstance(what, Spec):
            return attack_released_models(session.prepare(what), shadows)
        return attack_released_models(session.rerun(what), shadows, spec=what.spec, content=what.evidence_digest)

    def write(self, attack: ReleasedModelAttack, out: Path) -> list[Path]:
        """Write the record of the attack and return its path, in a list."""
        return [attack.write_to(self.target.filed) if self.target.filed else attack.write(out)]


@dataclass(frozen=True)
class ModelTarget:
    """A model file to attack, with the mismatches of its receipt if one was given."""

    file: Path
    model: Model
    mismatches: tuple[str, ...] | None  # that a check of its receipt found; None if none was given

    @property
    def name(self) -> str:
        """The name of the target for messages."""
        return str(self.file)

    @classmethod
    def read(cls, file: Path, receipt: Path | None, device: str) -> ModelTarget:
        """Read a model; if a receipt is given, compare the model's card with it.

        Raises:
            DataError: a file cannot be read, or card and receipt state different guarantees.
        """
        from dpbench.models import Model

        model = Model.load(file, device=device)
        return cls(file, model, None if receipt is None else _list_receipt_mismatches(model, receipt))

    def attack(self, session: Session, shadows: int) -> ReleasedModelAttack:
        """Prepare the run that produced the model, fit its shadow models and test membership."""
        from dpbench.audit.released import attack_released_models
        from dpbench.models.model_run import prepare_model_run

        prepared = prepare_model_run(self.model, session)
        return attack_released_models(prepared, shadows, model=self.model.digest, spec=self.model.card.spec)

    def write(self, attack: ReleasedModelAttack, out: Path) -> list[Path]:
        """Write the record of the attack, and the page about the model as HTML and Markdown; return their paths."""
        from dpbench.analysis.describe import render_markdown
        from dpbench.models.release_page import describe_release, render_release_html

        page = describe_release(self.model, attack, find_audit_of_attacked_run(attack, out), self.mismatches)
        written = [attack.write(out)]
        folder = written[0].parent
        for ending, text in ((".html", render_release_html(page)), (".md", render_markdown(page))):
            place = folder / f"{self.file.stem}{ending}"
            write_atomically(place, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
            written.append(place)
        return written


def attack_targets(
    targets: Sequence[str], root: Path, shadows: int | None, receipt: Path | None, options: RunOptions, *, as_json: bool
) -> None:
    """Attack each target and write the records.

    Raises:
        typer.Exit: an attack contradicts a guarantee, or no attack ran. The exit code is 1.
        DpbenchError: there is a single target, and it cannot be attacked; or a receipt is given without a single model.
    """
    from dpbench.harness.session import open_session
    from dpbench.records.released import SHADOWS

    if receipt is not None and not (len(targets) == 1 and targets[0].endswith((*MODEL_ENDINGS.values(),))):
        raise SpecError("Expected --receipt beside one model, which it belongs to.")
    wanted = [found for target in targets for found in _list_attack_targets(target, root, receipt, options)]
    session = open_session(options.device)
    done: list[ReleasedModelAttack] = []
    session.plugins.report_broken_plugins()
    attack = lambda target: target.attack(session, SHADOWS if shadows is None else shadows)
    for target, found in examine_targets(wanted, attack, "attacked"):
        with print_record_if_unwritable(found):
            written = target.write(found, options.out)
        done.append(found)
        if not as_json:
            _print_attack(target.name, found, written, Console())
    if as_json:
        print_records(done, as_list=len(wanted) > 1)
    if not done or not all(attack.passed for attack in done):
        raise typer.Exit(1)


def _list_attack_targets(
    name: str, root: Path, receipt: Path | None, options: RunOptions
) -> Iterator[RunTarget | ModelTarget]:
    from dpbench.records.released import FOLDER

    if name.endswith((*MODEL_ENDINGS.values(),)):
        yield ModelTarget.read(Path(name), receipt, options.device)
    else:
        yield from map(RunTarget, find_audit_targets(name, root, FOLDER))


def _list_receipt_mismatches(model: Model, file: Path) -> tuple[str, ...]:
    """Compare a model's card with its receipt, and return the mismatches that a check of the receipt finds.

    Raises:
        DataError: card and receipt state different guarantees.
    """
    from dpbench.receipts import Receipt, check
    from dpbench.receipts.model_check import check_card_against_receipt

    receipt = Receipt.read(file)
    check_card_against_receipt(model.card, model.digest, receipt)
    return tuple(f"{mismatch.name}: {mismatch.said}" for mismatch in check(receipt, file.parent).mismatches)


def find_audit_of_attacked_run(attack: ReleasedModelAttack, out: Path) -> Audit | None:
    """Return an audit in `out` of the attacked run, made with the same components; None if there is none.

    A failed audit is preferred, then the audit with the most seeds.
    """
    audits = (audit for audit in read_audits(out, attack.digest) if audit.components == attack.components)
    return max(audits, key=lambda audit: (not audit.passed, len(audit.seeds)), default=None)


def _print_attack(name: str, attack: ReleasedModelAttack, written: Sequence[Path], console: Console) -> None:
    from dpbench.analysis.released import describe_bound_comparison, describe_shadow_models, describe_true_positive_rate
    from dpbench.records.released import ATTACK_WORDS, TARGET_WORDS

    say = partial(console.print, soft_wrap=True, highlight=False, markup=False)
    say(f"{name}: ε {attack.privacy.epsilon:.4g}, δ {attack.privacy.delta:g}; {describe_shadow_models(attack)}.")
    rates = (f"at {100 * rate.rate:g}% false positives" for rate in attack.tests[0].rates)
    table = Table("members found", *rates, box=None)
    for test in attack.tests:
        head = f"{TARGET_WORDS[test.targets]}, {ATTACK_WORDS[test.attack]}"
        table.add_row(head, *(describe_true_positive_rate(test, rate) for rate in test.rates))
    console.print(table)
    say(f"{describe_bound_comparison(attack)}.")
    say(f"{attack.seconds:.1f} s. Wrote {', '.join(map(str, written))}")
