"""Check audits: each must match the current version of its result, and its figures must follow from its statistics.

The statistics are the word of whoever ran the audit; anybody can repeat an audit (`dpbench audit BOARD/ENTRY`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from dpbench.audit.attack import MOST_CANARIES, choose_guess_count
from dpbench.audit.figures import compute_figures
from dpbench.board.folder import ResultFile, find_json_object, validate_record
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.errors import LeaderboardComplaint, MalformedFile
from dpbench.records.audit import Audit, CanaryAttackResult, DerivedFigures
from dpbench.records.checksums import compute_seal
from dpbench.records.result import ComponentOrigin, Result
from dpbench.records.stated_plan import restore_plan
from dpbench.records.tolerance import is_close


def audit_path(stored: ResultFile, root: Path) -> Path:
    """Return the path of a result's audit."""
    return root / "audits" / stored.path.parent.name / stored.path.name


def find_audit(stored: ResultFile, root: Path) -> Audit | None:
    """Return the audit of a result; None if there is none or it has no seal.

    Raises:
        MalformedFile: the audit cannot be read.
    """
    content = find_json_object(audit_path(stored, root))
    audit = None if content is None else validate_record(Audit, content)
    return audit if audit and audit.seal else None


def find_audit_complaints(stored: ResultFile, result: Result, root: Path) -> list[LeaderboardComplaint]:
    """Return complaints about the audit of a result: it is unreadable, of another result, or failed."""
    name = audit_path(stored, root).relative_to(root).as_posix()
    try:
        content = find_json_object(audit_path(stored, root))
        found = None if content is None else validate_record(Audit, content)
    except MalformedFile as error:
        return [LeaderboardComplaint(name, error.field, error.said)]
    if content is None or found is None:
        return []
    if found.seal and found.seal != compute_seal(content):  # nothing else in it is then worth a word
        return [LeaderboardComplaint(name, "seal", "changed after it was written: audit the result again")]
    return [LeaderboardComplaint(name, *complaint) for complaint in check_audit(found, result)]


def check_audit(audit: Audit, result: Result) -> FieldComplaints:
    """Yield a complaint for each statement of an audit that contradicts the result or the audit's own statistics."""
    privacy = result.privacy
    if audit.digest != result.digest or audit.content != result.evidence_digest:
        yield "content", "the audit is of another result, or of this one before it changed: audit it again"
        return
    stated = {"delta": privacy.delta, "sigma": privacy.sigma, "plan": privacy.plan, "mechanism": privacy.mechanism}
    stated["spec"] = result.spec
    if not (audit.repeats and _list_origins(audit.components) == _list_origins(result.components)):
        stated["components"] = result.components  # another version, unless its fit gave the result's predictions
    if privacy.repeats is None:
        stated["epsilon"] = privacy.epsilon
    for field, expected in stated.items():
        if getattr(audit, field) != expected:
            yield field, f"expected what the result states, {str(expected)[:200]}"
    if audit.seed not in result.spec.seeds:
        yield "seed", f"expected one of the result's, {', '.join(map(str, result.spec.seeds))}, got {audit.seed}"
    if len({*audit.seeds}) < len(audit.seeds):
        yield "earlier.seeds", f"expected different seeds, got {', '.join(map(str, audit.seeds))}"
    if wrong := [*_check_sample_rates(audit, result)]:  # what the law of sizes is computed from
        yield from wrong
        return
    yield from check_audit_statistics(audit)
    stands = result.status not in {"disputed", "withdrawn"}
    if audit.repeats is False and stands:
        yield "repeats", "expected a fit that gave the result's predictions, got one that did not"
    if not audit.passed and stands:
        yield "figures.failed", f"{audit.figures.failed[0]}: dispute the result, or fix what made it"


def _list_origins(components: Mapping[str, ComponentOrigin]) -> list[tuple[str, str, str]]:
    return sorted((role, origin.distribution, origin.plugin) for role, origin in components.items())


def _check_sample_rates(audit: Audit, result: Result) -> FieldComplaints:
    """Yield a complaint for each sample whose stated rate, units or number of members does not fit the run."""
    rates = {use.name: use.sample_rate for use in restore_plan(audit.plan)}
    units, canaries = result.task.private, audit.attack.canaries if audit.attack else MOST_CANARIES
    for sample in audit.noise.samples if audit.noise else ():
        if (sample.rate, sample.members, sample.units) == (None, None, None):
            continue
        if sample.rate != rates.get(sample.release) or sample.units != units:
            yield (
                "noise.samples",
                f"expected the rate of the plan and {units:,} units in samples of {sample.release[:80]!r}",
            )
        elif sample.members is None or not units <= sample.members <= units + canaries:
            yield "noise.samples", f"expected the units, and canaries, to be in samples of {sample.release[:80]!r}"


def check_audit_statistics(audit: Audit) -> FieldComplaints:
    """Yield a complaint if an audit's statistics are incomplete or impossible, or contradict its figures."""
    attack, chosen = audit.attack, not any(use.gaussian for use in restore_plan(audit.plan))
    if audit.sensitivity is None or audit.noise is None or (attack is None) != chosen:
        yield "attack", "expected all three parts of dpbench's own audit (no attack if the plan has choices only)"
        return
    if not (audit.sensitivity.questions and audit.sensitivity.rows):
        yield "sensitivity", "expected rows that were tried, got none"
    wrong = [*_check_attack_statistics(attack, audit)] if attack else []
    wrong += [*_check_guess_counts(audit.own, "own")] if audit.own else []
    yield from wrong
    if wrong:
        return
    found = compute_figures(
        audit.epsilon, audit.delta, audit.sensitivity, audit.noise, attack, audit.own, audit.figures, audit.earlier
    )
    if not _audit_figures_agree(found, audit.figures):
        yield "figures", "they do not follow from the recorded statistics: audit it again"


def _check_attack_statistics(attack: CanaryAttackResult, audit: Audit) -> FieldComplaints:
    sampled = any(use.sample_rate < 1 for use in restore_plan(audit.plan))
    if (attack.mu is None) != sampled:
        yield "attack.mu", "expected none where samples are drawn, and one elsewhere"
    yield from _check_guess_counts(attack, "attack")


def _check_guess_counts(attack: CanaryAttackResult, name: str) -> FieldComplaints:
    if attack.canaries > MOST_CANARIES:  # figures take memory for each guess
        yield f"{name}.canaries", f"expected at most {MOST_CANARIES:,}"
    elif attack.guesses != choose_guess_count(attack.canaries) or attack.correct > attack.guesses:
        yield (
            f"{name}.guesses",
            f"expected {choose_guess_count(attack.canaries)}, fixed in advance, {attack.correct} right",
        )
    elif abs(attack.members - attack.canaries / 2) > 3 * math.sqrt(attack.canaries):
        yield f"{name}.members", "expected each canary to be in the data with chance 1/2"


def _audit_figures_agree(computed: DerivedFigures, stated: DerivedFigures) -> bool:
    """Return whether the computed figures equal the stated figures, up to rounding.

    Figures without `evidence` are from before e-values, when audits failed more easily: they may state a failure that
    is not computed here, but may not hide one that is.
    """
    names = [[line.partition(" (e ")[0] for line in figures.failed] for figures in (computed, stated)]
    same = names[0] == names[1] if stated.evidence is not None else bool(names[1]) or not names[0]
    pairs = [(getattr(computed, name), getattr(stated, name)) for name in ("low", "high", "answers_p")]
    if stated.evidence is not None:
        pairs.append((computed.evidence or 0.0, stated.evidence))
    for name in ("steinke", "mahloujifar", "gauss"):
        here, there = getattr(computed, name), getattr(stated, name)
        if (here is None) != (there is None):
            return False
        if here is not None:
            pairs += [(here.epsilon, there.epsilon), (here.most, there.most)]
    return same and all(pair == other or is_close(pair, other) for pair, other in pairs)
