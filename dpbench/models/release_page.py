"""A page for deciding whether a model may be released: its guarantee, its tests, and what ε does not cover."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from dpbench.analysis.describe import (
    SELECTION_SENTENCES,
    Description,
    Fact,
    Section,
    describe_components,
    describe_guarantee,
    format_settings,
)
from dpbench.analysis.formats import format_percent_rounded_up
from dpbench.analysis.palette import INK, LINE
from dpbench.analysis.released import describe_attack
from dpbench.analysis.risk import membership_risk
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
) -> Description:
    """Return all facts that a decision about releasing a model needs.

    Args:
        model: the model.
        attack: the attack on models that were fitted like this model.
        audit: the audit of the run that the model comes from, if there is one.
        mismatches: the mismatches between the model and its receipt; None if no receipt was given.
    """
    card = model.card
    sections = (
        Section("the decision", tuple(_decision_facts(model, attack, audit, mismatches or ()))),
        Section("the guarantee", tuple(_guarantee_facts(card, mismatches))),
        Section("what was audited and attacked", (*_audit_facts(audit), *describe_attack(attack))),
        Section("what epsilon does not cover", tuple(_uncovered_facts(card))),
        Section("the model", tuple(_model_facts(model))),
    )
    return Description(f"May this model leave? {card.spec.learner.name} on {card.spec.dataset}", sections)


def render_release_html(description: Description) -> str:
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


def _decision_facts(
    model: Model, attack: ReleasedModelAttack, audit: Audit | None, mismatches: Sequence[str]
) -> Iterator[Fact]:
    card = model.card
    objections = [*_list_objections(card, attack, audit), *(f"the receipt is wrong: {said}" for said in mismatches)]
    yield Fact("reasons against a release", tuple(objections) or ("none found by dpbench; read what ε does not cover",))
    if card.is_private:
        yield Fact("guarantee", (card.privacy_statement,))
    if risk := membership_risk(card.privacy):
        whose = card.spec.unit or "image"
        rates = [f"{100 * rate:g}%" for rate in risk]
        most = map(format_percent_rounded_up, risk.values())
        found = " and ".join(f"{share} of members at {rate}" for share, rate in zip(most, rates, strict=True))
        yield Fact(
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


def _guarantee_facts(card: Card, mismatches: Sequence[str] | None) -> Iterator[Fact]:
    if card.privacy.sigma:
        yield from (
            fact
            for fact in describe_guarantee(card.spec, card.privacy, card.not_covered, card.private_size)
            if fact.name != "not covered"
        )
    for use in card.privacy.plan:
        steps = f"{use.steps:,} steps" if use.steps > 1 else "one step"
        yield Fact(f"planned: {use.name}", (f"{steps}, {use.as_planned.describe(use.sigma)}",))
    found = "; ".join(mismatches or ()) or "no mismatch found"
    yield Fact("receipt", (NO_RECEIPT if mismatches is None else f"{STATES_THE_SAME}; {found}",))


def _audit_facts(audit: Audit | None) -> Iterator[Fact]:
    if audit is None:
        yield Fact("audit of the mechanism", (NOT_RUN,))
        return
    verdicts = {True: "passed", False: "failed", None: "does not apply"}
    parts = (f"{part} {verdicts[audit.part_passed(part)]}" for part in PARTS)
    earlier = ", ".join(map(str, audit.seeds[:-1]))
    said = f", with the evidence of earlier audits, of seeds {earlier}" * bool(earlier)
    yield Fact("audit of the mechanism", (f"seed {audit.seed}{said}: {', '.join(parts)}",))


def _uncovered_facts(card: Card) -> Iterator[Fact]:
    """Yield each use of private data that ε does not cover, with this model's own figures."""
    yield Fact("tuning", (SELECTION_SENTENCES[card.selection],))
    yield Fact("classes", (f"{len(card.classes)}, public by declaration: {', '.join(card.classes)}",))
    if card.private_size is not None:
        yield Fact("sizes", (f"{card.private_size:,} private {card.spec.unit or 'image'}s, public by declaration",))
    seen = ", ".join(dict.fromkeys(part.trained_on or "not stated" for part in card.extractors))
    yield Fact("what the weights have seen", (seen,))
    yield Fact("units", (_describe_units(card),))
    yield Fact("other models", ("ε adds up over all fits on the same private data that are released, seeds included",))
    yield Fact("this page", ("the counts of the attack were computed on the private data without noise",))
    yield Fact("test score", (f"{card.test.accuracy:.2%} of {card.test.examples:,} test images, stated without noise",))
    yield Fact("further limits", card.not_covered)


def _describe_units(card: Card) -> str:
    if card.units is None:
        return "not known whose the images are; a person with several images has less protection than ε says"
    if card.spec.unit:
        return f"ε is stated for a whole {card.spec.unit}, of which there are {card.units.count:,}"
    return card.units.remark or f"{card.units.count:,} {card.units.word}s with one image each"


def _model_facts(model: Model) -> Iterator[Fact]:
    card = model.card
    yield Fact("file", (f"SHA-256 {model.digest}",))
    yield Fact("learner", (f"{card.spec.learner.name}, seed {card.seed}", format_settings(card.settings)))
    yield Fact("data", (str(card.spec.dataset), f"licence: {card.licence}"))
    yield Fact("features", (str(card.extractor),))
    yield from describe_components(card.components)
    yield Fact("result", (card.spec.digest,))
    yield Fact("made with", (", ".join(f"{name} {value}" for name, value in card.provenance.items()),))
