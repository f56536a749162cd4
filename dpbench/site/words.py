"""Sentences that pages show about the trust in an entry and about its model."""

from __future__ import annotations

from collections.abc import Mapping

from dpbench.board.index import Entry, Trust

TRUST_SENTENCES: Mapping[Trust, str] = {
    "submitted": "it passed all checks; the project has neither re-run nor audited it yet",
    "re-run": "the project re-ran some seeds, or all seeds with other code, and got the same outcome",
    "reproduced": "the project re-ran all seeds with the same code and settings and got the same predictions",
    "audited": "the project watched and attacked one more fit, and found nothing that contradicts the stated guarantee",
}


def explain_trust(entry: Entry) -> str:
    """Explain how an entry was confirmed, without a full stop at the end."""
    done: list[Trust] = ["reproduced"] if entry.reproduced else ["re-run"] if entry.again else []
    found = [*done, "audited"] if entry.audit else done or [entry.trust]
    return "; ".join(TRUST_SENTENCES[trust] for trust in found)


def explain_model_release(entry: Entry) -> str:
    """Explain whether a saved model of an entry may be published, and how to make one."""
    if not entry.reads_private:
        return "You may publish a model from this run, which read no private image: add --models to the command below."
    if entry.rng == "secure":
        return "If you ran this with --models, you may publish the model; nobody else can make it again."
    return (
        "None to download: the noise comes from published seeds, so anyone could subtract it from the model. For a "
        "model that you may publish, add --secure-rng --models to the command below."
    )
