"""Check the attacks on released models of a leaderboard: each must match its result, and rates must match counts.

The counts are the word of whoever ran the attack; anybody can repeat it (`dpbench audit --released BOARD/ENTRY`).
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from dpbench.audit.released_scores import make_roc_point
from dpbench.board.folder import ResultFile, find_json_object, validate_record
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.errors import LeaderboardComplaint, MalformedFile, PrivacyError
from dpbench.privacy.core.accounting.membership import FALSE_POSITIVE_RATES, true_positive_rate
from dpbench.records.checksums import compute_seal
from dpbench.records.released import (
    ATTACK_WORDS,
    FEWEST_SHADOWS,
    FOLDER,
    TARGET_WORDS,
    MembershipTest,
    ReleasedModelAttack,
    RocPoint,
)
from dpbench.records.result import Result
from dpbench.records.tolerance import is_close


def released_path(stored: ResultFile, root: Path) -> Path:
    """Return the path of the attack on a result's models."""
    return root / FOLDER / stored.path.parent.name / stored.path.name


def find_released_complaints(stored: ResultFile, result: Result, root: Path) -> list[LeaderboardComplaint]:
    """Return complaints about the attack on a result's models: it is unreadable, of another result, or miscounted."""
    path = released_path(stored, root)
    name = path.relative_to(root).as_posix()
    try:
        content = find_json_object(path)
        found = None if content is None else validate_record(ReleasedModelAttack, content)
    except MalformedFile as error:
        return [LeaderboardComplaint(name, error.field, error.said)]
    if content is None or found is None:
        return []
    if found.seal != compute_seal(content):
        return [LeaderboardComplaint(name, "seal", "changed after it was written: attack the result again")]
    return [LeaderboardComplaint(name, *complaint) for complaint in check_released_attack(found, result)]


def check_released_attack(attack: ReleasedModelAttack, result: Result) -> FieldComplaints:
    """Yield a complaint if an attack is on another result, was miscounted, or contradicts the guarantee."""
    if attack.spec != result.spec or attack.content != result.evidence_digest:
        yield "content", "the attack is on another result, or on this one before it changed: attack it again"
        return
    if attack.privacy != result.privacy:
        yield "privacy", "expected what the result states"
        return
    yield from check_attack_counts(attack)
    if not attack.passed and result.status not in {"disputed", "withdrawn"}:
        yield "tests", "more members are found than epsilon and delta allow: the result must be disputed"


def check_attack_counts(attack: ReleasedModelAttack) -> FieldComplaints:
    """Yield a complaint if an attack's rates do not follow from its own counts, plan and sigma."""
    if attack.shadows < FEWEST_SHADOWS:
        yield "shadows", f"expected at least {FEWEST_SHADOWS}, got {attack.shadows}"
        return
    if sorted((test.attack, test.targets) for test in attack.tests) != sorted(product(ATTACK_WORDS, TARGET_WORDS)):
        yield "tests", "expected one of each attack on private records, and one on planted outliers"
        return
    plan, sigma = attack.privacy.releases, attack.privacy.sigma
    try:
        bounds = {rate: true_positive_rate(plan, sigma, rate) for rate in FALSE_POSITIVE_RATES}
    except PrivacyError as error:  # of a forged result, which has complaints of its own
        yield "privacy", f"no bound follows from its plan: {error}"
        return
    for number, test in enumerate(attack.tests):
        if test.members + test.others != test.records * attack.shadows:
            yield f"tests.{number}", "expected a pair of each record and each shadow"
        elif {found.rate for found in test.rates} != bounds.keys() or not _rates_follow_from_counts(test, bounds):
            yield f"tests.{number}.rates", "they do not follow from the counts and from plan and sigma"


def _rates_follow_from_counts(test: MembershipTest, bounds: dict[float, float]) -> bool:
    """Return whether a test's rates follow from its counts, up to rounding."""
    return all(
        found.positives <= test.members
        and found.false <= found.rate * test.others
        and _rates_agree(
            found, make_roc_point(
                found.rate, found.positives, test.members, found.false, test.others, bounds[found.rate]
            )
        )
        for found in test.rates
    )  # fmt: skip


def _rates_agree(stated: RocPoint, computed: RocPoint) -> bool:
    pairs = [(getattr(stated, name), getattr(computed, name)) for name in ("low", "high", "bound")]
    return stated.exceeded == computed.exceeded and all(is_close(*pair) for pair in pairs)
