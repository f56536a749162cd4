"""A page for deciding whether a model may be released: its guarantee, its tests, and what ε does not cover."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from dpbench.analysis.describe import (
    SELECTION_SENTENCES,
    FactSection,
    ResultDescription,
    ResultFact,
    describe_components,
    describe_guarantee,
    format_settings,
)
from dpbench.analysis.formats import format_percent_rounded_up
from dpbench.analysis.palette import INK, LINE
from dpbench.analysis.released import describe_attack
from dpbench.analysis.risk import max_true_positive_rates
from dpbench.models.card import Card
from dpbench.models.model import Model
from dpbench.records.audit import PARTS, Audit
from dpbench.records.released import ReleasedModelAttack

NOT_RUN = "not run; dpbench audit RESULT tests the sums and the noise of the run that this model comes from"
STATES_THE_SAME = "states the plan and the guarantee of the model"
NO_RECEIPT = "none was given; dpbench receipt from RESULT writes it, and --receipt compares it with the model"
STYLE = (
    f"body{{font:16px/1.5 sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:{INK}}}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;"
    f"border-bottom:1px solid {LINE}}}th{{width:13rem;font-weight:600}}"
)


def describe_release(
    model: Model, attack: ReleasedModelAttack, audit: Audit | None, mismatches: Sequence[str] | None
) -> ResultDescription:
    """Return all facts that a decision about releasing a model needs.

    Args:
        model: the model.
        attack: the attack on models that were fitted like this model.
        audit: the audit of the run that the model comes from, if there is one.
        mismatches: the mismatches between the model and its receipt; None if no receipt was given.
    """
    card = model.card
    sections = (
        FactSection("the decision", tuple(_list_decision_facts(model, attack, audit, mismatches or ()))),
        FactSection("the guarantee", tuple(_guarantee_facts(card, mismatches))),
        FactSection("what was audited and attacked", (*_audit_facts(audit), *describe_attack(attack))),
        FactSection("what epsilon does not cover", tuple(_uncovered_facts(card))),
        FactSection("the model", tuple(_model_facts(model))),
    )
    return ResultDescription(f"May this model leave? {card.spec.learner.name} on {card.spec.dataset}", sections)


def render_release_html(description: ResultDescription) -> str:
    """Return a description as a complete HTML page without links to other files."""
    title = html.escape(description.title)
    parts = [f"<h1>{title}</h1>"]
    for section in description.sections:
        rows = "".join(
            f"<tr><th>{html.escape(fact.name)}</th><td>{'<br>'.join(map(html.escape, fact.texts))}</td></tr>"
            for fact in section.facts
        )
        parts.append(f"<h2>{html.escape(section.title.capitalize())}</h2>\n<table>{rows}</table>")
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _list_decision_facts(
    model: Model, attack: ReleasedModelAttack, audit: Audit | None, mismatches: Sequence[str]
) -> Iterator[ResultFact]:
    card = model.card
    objections = [*_list_objections(card, attack, audit), *(f"the receipt is wrong: {said}" for said in mismatches)]
    yield ResultFact(
        "reasons against a release", tuple(objections) or ("none found by dpbench; read what ε does not cover",)
    )
    if card.is_private:
        yield ResultFact("guarantee", (card.privacy_statement,))
    if risk := max_true_positive_rates(card.privacy):
        whose = card.spec.unit or "image"
        rates = [f"{100 * rate:g}%" for rate in risk]
        most = map(format_percent_rounded_up, risk.values())
        found = " and ".join(f"{share} of members at {rate}" for share, rate in zip(most, rates, strict=True))
        yield ResultFact(
            "in words",
            (
                f"somebody who holds this model, knows every other private {whose} and guesses whether one given "
                f"{whose} was used, finds at most {found} false alarms; without the model, as many false alarms find "
                f"{' and '.join(rates)}",
            ),
        )


def _list_objections(card: Card, attack: ReleasedModelAttack, audit: Audit | None) -> Iterator[str]:
    if not card.is_private:
        yield card.privacy_statement
    if not attack.passed:
        yield "the attack finds more members than the guarantee allows: the guarantee is wrong"
    if audit is not None and not audit.passed:
        yield f"the audit failed: {'; '.join(audit.figures.failed)}"


def _guarantee_facts(card: Card, mismatches: Sequence[str] | None) -> Iterator[ResultFact]:
    if card.privacy.sigma:
        yield from (
            fact
            for fact in describe_guarantee(card.spec, card.privacy, card.not_covered, card.private_size)
            if fact.name != "not covered"
        )
    for use in card.privacy.plan:
        steps = f"{use.steps:,} steps" if use.steps > 1 else "one step"
        yield ResultFact(f"planned: {use.name}", (f"{steps}, {use.as_planned.describe(use.sigma)}",))
    found = "; ".join(mismatches or ()) or "no mismatch found"
    yield ResultFact("receipt", (NO_RECEIPT if mismatches is None else f"{STATES_THE_SAME}; {found}",))


def _audit_facts(audit: Audit | None) -> Iterator[ResultFact]:
    if audit is None:
        yield ResultFact("audit of the mechanism", (NOT_RUN,))
        return
    verdicts = {True: "passed", False: "failed", None: "does not apply"}
    parts = (f"{part} {verdicts[audit.part_passed(part)]}" for part in PARTS)
    earlier = ", ".join(map(str, audit.seeds[:-1]))
    said = f", with the evidence of earlier audits, of seeds {earlier}" * bool(earlier)
    yield ResultFact("audit of the mechanism", (f"seed {audit.seed}{said}: {', '.join(parts)}",))


def _uncovered_facts(card: Card) -> Iterator[ResultFact]:
    """Yield each use of private data that ε does not cover, with this model's own figures."""
    yield ResultFact("tuning", (SELECTION_SENTENCES[card.selection],))
    yield ResultFact("classes", (f"{len(card.classes)}, public by declaration: {', '.join(card.classes)}",))
    if card.private_size is not None:
        yield ResultFact(
            "sizes", (f"{card.private_size:,} private {card.spec.unit or 'image'}s, public by declaration",)
        )
    seen = ", ".join(dict.fromkeys(part.trained_on or "not stated" for part in card.extractors))
    yield ResultFact("what the weights have seen", (seen,))
    yield ResultFact("units", (_describe_units(card),))
    yield ResultFact(
        "other models", ("ε adds up over all fits on the same private data that are released, seeds included",)
    )
    yield ResultFact("this page", ("the counts of the attack were computed on the private data without noise",))
    yield ResultFact(
        "test score", (f"{card.test.accuracy:.2%} of {card.test.examples:,} test images, stated without noise",)
    )
    yield ResultFact("further limits", card.not_covered)


def _describe_units(card: Card) -> str:
    if card.units is None:
        return "not known whose the images are; a person with several images has less protection than ε says"
    if card.spec.unit:
        return f"ε is stated for a whole {card.spec.unit}, of which there are {card.units.count:,}"
    return card.units.remark or f"{card.units.count:,} {card.units.word}s with one image each"


def _model_facts(model: Model) -> Iterator[ResultFact]:
    card = model.card
    yield ResultFact("file", (f"SHA-256 {model.digest}",))
    yield ResultFact("learner", (f"{card.spec.learner.name}, seed {card.seed}", format_settings(card.settings)))
    yield ResultFact("data", (str(card.spec.dataset), f"licence: {card.licence}"))
    yield ResultFact("features", (str(card.extractor),))
    yield from describe_components(card.components)
    yield ResultFact("result", (card.spec.digest,))
    yield ResultFact("made with", (", ".join(f"{name} {value}" for name, value in card.provenance.items()),))
