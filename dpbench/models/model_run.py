"""Prepare the run that a model comes from, as its card states it, to fit the shadow models of an attack."""

from __future__ import annotations

import dataclasses

from dpbench.errors import DataError, DataMissing, NotReproducible, PrivacyError
from dpbench.harness.prepare import PreparedRun
from dpbench.harness.scoring import predict_all
from dpbench.harness.session import Session
from dpbench.models.card import Card
from dpbench.models.model import Model
from dpbench.models.process import ModelProcess
from dpbench.records.spec import Spec

ACCURACY_TOLERANCE = 0.005  # of the stated test accuracy: features of other processors differ in their last bits


def prepare_model_run(model: Model, session: Session) -> PreparedRun:
    """Prepare the run of a model with the settings, plan and sigma of its card, on the private data on this machine.

    Raises:
        NotReproducible: the data are not on this machine, or are not those that the model was fitted and tested on.
        PrivacyError: the learner makes another plan here than the card states.
        DpbenchError: the run cannot be prepared.
    """
    card = model.card
    try:
        prepared = session.prepare(_make_fitted_spec(card), sharing="any")
    except DataMissing as error:
        raise NotReproducible(f"The shadows of a model need its private data. {error}") from error
    now, then = ([use.model_dump(exclude={"sigma"}) for use in it.plan] for it in (prepared.privacy, card.privacy))
    if now != then:
        raise PrivacyError(f"Learner {card.spec.learner.name!r} makes a different plan here than the model's card.")
    prepared = dataclasses.replace(prepared, privacy=card.privacy)
    _check_data_fit_card(prepared, model)
    return prepared


def _make_fitted_spec(card: Card) -> Spec:
    """Return the spec of the model's fit: the card's seed and settings, without a search."""
    learner = card.spec.learner
    options = {**learner.options, **card.settings}
    changed = {"learner": learner.model_copy(update={"options": options}), "search": None, "seeds": (card.seed,)}
    return card.spec.model_copy(update=changed)


def _check_data_fit_card(prepared: PreparedRun, model: Model) -> None:
    """Check that the number of private records and the model's test accuracy are those that its card states."""
    task, test, card = prepared.roles.task, prepared.test, model.card
    if card.private_size not in (None, task.size):
        raise NotReproducible(
            f"The model was fitted on {card.private_size:,} private records, but here are {task.size:,}."
        )
    with ModelProcess(model.content) as process:
        try:
            scores = predict_all(process, test.x, task)
        except DataError as error:
            raise DataError(f"The model cannot predict: {error}.") from error
    accuracy = float((scores.argmax(1) == test.scorer.y).mean())
    if abs(accuracy - card.test.accuracy) > ACCURACY_TOLERANCE or len(test.scorer) != card.test.examples:
        raise NotReproducible(
            f"The data here are not those of the model: it labels {accuracy:.2%} of {len(test.scorer):,} test images "
            f"correctly, and its card states {card.test.accuracy:.2%} of {card.test.examples:,}."
        )
