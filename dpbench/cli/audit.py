"""`dpbench audit`: re-run one fit of a run and check the guarantee of the run against it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.console import Console
from rich.table import Table

from dpbench.cli.audit_released import attack_targets
from dpbench.cli.audit_targets import AuditTarget, examine_targets, find_audit_targets, read_audits, read_sealed_audits
from dpbench.cli.given import UserSettings
from dpbench.cli.output import Json, print_record_if_unwritable, print_records
from dpbench.cli.takes import add_setting_flags
from dpbench.errors import SpecError
from dpbench.records.place import RunOptions
from dpbench.records.released import FEWEST_SHADOWS, SHADOWS
from dpbench.records.spec import Spec

if TYPE_CHECKING:
    from dpbench.harness.session import Session
    from dpbench.records.audit import Audit, EpsilonBound, Part


@add_setting_flags(RunOptions, only=("device", "out"))
def audit(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="What to audit: a spec (TOML), a result (JSON), or BOARD or BOARD/ENTRY of --root; with --released, "
            "also a model (ONNX).",
        ),
    ],
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed to fit. \\[default: the first of the result or spec]")
    ] = None,
    canaries: Annotated[
        int | None,
        typer.Option(
            min=1000,
            max=1_000_000,
            help="Number of planted examples. \\[default: 100,000 to a million, depending on cost]",
        ),
    ] = None,
    root: Annotated[Path, typer.Option(help="Folder of the leaderboard.")] = Path("leaderboard"),
    released: Annotated[
        bool,
        typer.Option(
            "--released",
            help="Attack released models instead: test membership in models fitted on random halves of the private "
            "data. For a model, also write a page for whoever decides whether it may leave.",
        ),
    ] = False,
    shadows: Annotated[
        int | None,
        typer.Option(
            min=FEWEST_SHADOWS, max=4096, help=f"Number of models that --released fits. \\[default: {SHADOWS}]"
        ),
    ] = None,
    receipt: Annotated[
        Path | None, typer.Option(help="Receipt of the model; --released checks that both state the same guarantee.")
    ] = None,
    *,
    given: UserSettings,
    as_json: Json = False,
) -> None:
    """Re-run one fit and attack it: exact sensitivity, noise to about 0.1%, planted examples end to end.

    Audits are written to OUT/audit/, and audits of board entries to ROOT/audits/; with --released, to
    OUT/not-private/released/ and ROOT/released/. Evidence multiplies over seeds: an audit counts earlier audits
    of the same run with other seeds. Exits with 1 if an audit fails or none ran.
    """
    if released:
        _refuse_set_flags(
            {"--seed": seed, "--canaries": canaries}, "--released, which fits other seeds without canaries"
        )
        attack_targets(targets, root, shadows, receipt, given.place, as_json=as_json)
        return
    _refuse_set_flags({"--shadows": shadows, "--receipt": receipt}, "an audit without --released")
    wanted = [found for target in targets for found in find_audit_targets(target, root, "audits")]
    from dpbench.harness.session import open_session

    session, failed = open_session(given.place.device), False
    done: list[Audit] = []
    session.plugins.report_broken_plugins()
    run_audit = lambda target: _run_audit(target, seed, canaries, session, given.place.out)
    for target, found in examine_targets(wanted, run_audit, "audited"):
        with print_record_if_unwritable(found):
            written = found.write_to(target.filed) if target.filed else found.write(given.place.out)
        failed |= not found.passed
        done.append(found)
        if not as_json:
            _print_audit(target.name, found, written, Console())
    if as_json:
        print_records(done, as_list=len(wanted) > 1)
    if len({audit.digest for audit in done}) > 1:
        failed |= _print_joint_evidence(done, sys.stderr if as_json else sys.stdout)
    if failed or not done:
        raise typer.Exit(1)


def _refuse_set_flags(flags: Mapping[str, object], other_arguments: str) -> None:
    if said := [flag for flag, value in flags.items() if value is not None]:
        raise SpecError(f"Expected no {' and no '.join(said)} beside {other_arguments}.")


def _print_joint_evidence(audits: Sequence[Audit], stream: TextIO) -> bool:
    """Combine the evidence of audits (one per seed and noise) and print it; return whether it reaches `ALARM`."""
    from dpbench.audit.evidence import ALARM, compute_evidence, describe_evidence
    from dpbench.audit.figures import compute_stakes

    runs = {(audit.seed, audit.noise and audit.noise.squares): audit for audit in audits}  # those of other noise
    evidence = compute_evidence(compute_stakes(runs.values()))
    print(f"Evidence of {len(runs)} runs together: {describe_evidence(evidence)}.", file=stream)
    return evidence >= ALARM


def _run_audit(target: AuditTarget, seed: int | None, canaries: int | None, session: Session, out: Path) -> Audit:
    what = target.read()
    seeds = (what if isinstance(what, Spec) else what.spec).seeds
    if target.filed and seed is not None and seed not in seeds:
        raise SpecError(f"Expected --seed {seed} to be a seed of {target.name}: {', '.join(map(str, seeds))}.")
    from dpbench.audit.audit_fit import audit as audited

    before = read_sealed_audits([target.filed]) if target.filed else read_audits(out, what.digest)
    return audited(what, session, seed=seed, canaries=canaries, before=[*before])


def _print_audit(name: str, record: Audit, written: Path, console: Console) -> None:
    from dpbench.audit.evidence import describe_evidence
    from dpbench.audit.figures import get_evidence_of_audit
    from dpbench.records.audit import PARTS

    verdicts = {True: "passed", False: "FAILED", None: "does not apply"}
    console.print(
        f"{name}: seed {record.seed}, ε {record.epsilon:.4g}, δ {record.delta:g}, σ {record.sigma:.4g}"
        + (", the predictions of the result" if record.repeats else ""),
        soft_wrap=True, highlight=False,
    )  # fmt: skip
    table = Table("part", "verdict", "figures", box=None)
    for part in PARTS:
        table.add_row(part, verdicts[record.part_passed(part)], describe_audit_parts(record)[part])
    console.print(table)
    for line in record.figures.failed:
        console.print(f"FAILED {line}", soft_wrap=True, markup=False, highlight=False)
    for line in record.left_out:
        console.print(f"Not audited: {line}.", soft_wrap=True, markup=False, highlight=False)
    seeds = f" of seeds {', '.join(map(str, record.seeds))}" if record.earlier else ""
    console.print(
        f"Evidence against the guarantee{seeds}: {describe_evidence(get_evidence_of_audit(record))}.",
        soft_wrap=True, highlight=False,
    )  # fmt: skip
    console.print(f"{record.seconds['audit']:.1f} s. Wrote {written}", soft_wrap=True, highlight=False, markup=False)


def describe_audit_parts(record: Audit) -> dict[Part, str]:
    """Describe the results of an audit in words, one text per part; the text is empty for a part without results."""
    from dpbench.records.audit import PARTS

    figures, moved, noise, attack = record.figures, record.sensitivity, record.noise, record.attack
    words: dict[Part, str] = dict.fromkeys(PARTS, "")
    if moved:
        apart = f"differing from their own contribution by up to {moved.shift:.2g}"
        beside = f", {apart}" if moved.shift else ", exactly their own contribution"
        words["sensitivity"] = f"{moved.rows:,} rows moved sums by up to {moved.largest:.6f} clips{beside}"
    if noise:
        numbers = noise.numbers + noise.padding
        words["noise"] = f"{figures.low:.4f} to {figures.high:.4f} of σ (95%, {numbers:,} numbers)" if numbers else ""
        laws = sum(check.name.startswith("law of ") for check in noise.checks)
        words["noise"] += "; " * bool(numbers and laws) + f"{laws} laws of choices" * bool(laws)
    if attack:
        bounds = {"Steinke": figures.steinke, "Mahloujifar": figures.mahloujifar, "Gaussian pair": figures.gauss}
        shown = ", ".join(f"{name} {_format_bound(value)}" for name, value in bounds.items())
        words["attack"] = f"ε at least: {shown}; {attack.canaries:,} canaries"
    return words


def _format_bound(bound: EpsilonBound | None) -> str:
    if bound is None:
        return "not estimated"
    return f"{bound.epsilon:.3g}" + (f" (of at most {bound.most:.3g})" if bound.most < float("inf") else "")
