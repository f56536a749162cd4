"""Verify a model file: its card's ε, its graph, and its agreement with results and receipts; or fit it again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpbench.board.verify.derive import check_guarantee_bounds, compare_epsilon, derive_epsilon, make_epsilon_inputs
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.board.verify.plan_check import StatedFit, check_stated_plan
from dpbench.errors import DataError, DpbenchError, LeaderboardComplaint
from dpbench.harness.fit import fit_and_score_seed
from dpbench.harness.session import Session
from dpbench.models import Card, Model
from dpbench.models.model_run import ACCURACY_TOLERANCE, prepare_model_run
from dpbench.receipts.model_check import check_card_against_receipt
from dpbench.receipts.receipt import Receipt
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.verification.documents import KIND_WORDS
from dpbench.verification.report import FileReport, describe_accountants

STATED_LINES = ("privacy", "learner", "data", "test split")
UNCHECKED = (
    "the data, the settings' origin and the test accuracy: --rerun fits the model again, if its data are here; dpbench "
    "audit --released MODEL attacks fits of its kind"
)


def verify_model(file: Path, results: Sequence[Result], receipts: Sequence[Receipt], plugins: Registry) -> FileReport:
    """Check a model's digest and graph, its card's plan and ε, and that its results and receipts agree with the card.

    Only those of `results` and `receipts` that are about this model are compared.

    Raises:
        DataError: the file is not a model, or was damaged or changed.
    """
    model = Model.load(file)
    card, named = model.card, dict(model.lines())
    recomputed = ["the digest of the file, and that its graph takes and gives what its card states"]
    wrong = [*_check_card_guarantee(card)]
    if card.privacy.plan and not wrong:
        recomputed.append(describe_accountants(card.privacy))
    fit = find_stated_fit(card, plugins)
    planned = check_stated_plan(fit, plugins) if fit and not wrong else None
    if planned is not None:
        wrong += planned
        recomputed.append(f"its plan, which learner {card.spec.learner.name!r} was asked for again")
    about = [result for result in results if result.digest == card.spec.digest]
    for result in about:
        wrong += _compare_with_result(card, result)
        recomputed.append(f"that its guarantee and predictions are those of seed {card.seed} of {result.file_name}")
    for receipt in receipts:
        if (hashed := receipt.files.get("model")) is not None and hashed.sha256 == model.digest:
            wrong += _compare_with_receipt(model, receipt)
            recomputed.append("that it states what its receipt states")
    unchecked = [UNCHECKED]
    if planned is None:
        unchecked.insert(0, "whether its learner plans these releases: its card or this machine lacks what that needs")
    if not about:
        unchecked.insert(0, "its result, which was not given: name it too")
    complaints = tuple(LeaderboardComplaint(str(file), *parts) for parts in wrong)
    stated = tuple(f"{name}: {named[name]}" for name in STATED_LINES)
    return FileReport(str(file), KIND_WORDS["model"], stated, tuple(recomputed), complaints, tuple(unchecked))


def _check_card_guarantee(card: Card) -> FieldComplaints:
    spec = card.spec
    asked = {
        "delta": spec.delta, "accountant": spec.accountant, "adjacency": spec.adjacency,
        "rng": "secure" if spec.secure_rng else "research",
    }  # fmt: skip
    for field, expected in asked.items():
        if (stated := getattr(card.privacy, field)) != expected:
            yield f"privacy.{field}", f"expected {expected}, as its spec asks, got {stated}"
    impossible = [*check_guarantee_bounds(card.privacy, spec.epsilon)]
    yield from impossible
    if not impossible:
        try:
            yield from compare_epsilon(card.privacy, derive_epsilon(make_epsilon_inputs(card)))
        except DpbenchError as error:
            yield "privacy.plan", str(error)


def find_stated_fit(card: Card, plugins: Registry) -> StatedFit | None:
    """Return the fit that a card states; None if its learner's plan cannot be computed again.

    The learner must be installed, in the same version. The result is also None for a private search (which plans for
    all settings at once), a fit without privacy, and cards of version 0.2 (which lack the number of public images).
    """
    item, brought = plugins.components["learner"].get(card.spec.learner.name), card.components.get("learner")
    if item is None or brought is None or (item.distribution, item.version) != (brought.distribution, brought.version):
        return None
    if math.isinf(card.spec.epsilon) or card.privacy.repeats or card.private_size is None or card.public_size is None:
        return None
    options = {**card.spec.learner.options, **card.settings}
    return StatedFit(
        card.spec, options, {}, card.privacy, card.example_shape, len(card.classes), card.private_size, card.public_size
    )


def _compare_with_result(card: Card, result: Result) -> FieldComplaints:
    seed = next((seed for seed in result.seeds if seed.seed == card.seed), None)
    if seed is None:
        yield "seed", f"expected a seed of {result.file_name}, got {card.seed}"
        return
    pairs = {
        "privacy": (card.privacy, result.privacy), "test.accuracy": (card.test.accuracy, seed.accuracy),
        "test.predictions": (card.test.predictions, seed.predictions),
        "components": (card.components, result.components),
    }  # fmt: skip
    for field, (stated, expected) in pairs.items():
        if stated != expected:
            yield field, f"expected what {result.file_name} states, {str(expected)[:80]}, got {str(stated)[:80]}"


def _compare_with_receipt(model: Model, receipt: Receipt) -> FieldComplaints:
    try:
        check_card_against_receipt(model.card, model.digest, receipt)
    except DataError as error:
        yield "receipt", str(error)


def rerun_model(file: Path, session: Session) -> Iterator[str]:
    """Evaluate a model on its test split, fit it again unless its noise is secure, and yield the outcome in sentences.

    Raises:
        NotReproducible: its data or code are not on this machine.
        DataError: the fit gives another accuracy than the card states.
    """
    model = Model.load(file, plugins=session.plugins)
    prepared, stated = prepare_model_run(model, session), model.card.test
    yield f"labels {stated.examples:,} test images here with the accuracy that its card states, {stated.accuracy:.2%}"
    if model.card.privacy.rng == "secure" and model.card.privacy.plan:
        yield "not fitted again: its noise is secure, and another fit would spend ε again"
        return
    found = fit_and_score_seed(prepared, model.card.seed)
    if abs(found.accuracy - stated.accuracy) > ACCURACY_TOLERANCE:
        said = f"{found.accuracy:.2%} is its accuracy now, and its card states {stated.accuracy:.2%}"
        raise DataError(f"Fitted again, {file} is another model: {said}.")
    same = "the same" if found.predictions == stated.predictions else "other"
    yield f"fitted again: {same} predictions, accuracy {found.accuracy:.2%}"
