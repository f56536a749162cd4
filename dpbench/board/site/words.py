"""What a page says in words about rules, trust and metrics: one sentence each."""

from __future__ import annotations

from collections.abc import Mapping

from dpbench.board.index import Trust
from dpbench.records.metrics import Metric
from dpbench.records.search import SelectionRule

TITLES: Mapping[Metric, str] = {
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced",
    "worst_class_accuracy": "Worst class",
    "macro_f1": "Macro F1",
    "auroc": "AUROC",
}
BADGES: Mapping[Trust, str] = {
    "enforced": "enforced",
    "derived": "re-derived",
    "reproduced": "re-run",
    "audited": "audited",
    "secure-rng": "secure RNG",
}
TRUST: Mapping[Trust, str] = {
    "enforced": "Made by dpbench: its curator holds the private data, samples, clips, adds noise and keeps the ledger.",
    "derived": "ε follows from the stored plan and σ by two independent accountants, and all else that verify checks.",
    "reproduced": "A seed was run again and gave the same predictions, or the same scores within a stated tolerance.",
    "audited": "One more fit was attacked: its sensitivity, its noise and planted examples contradict nothing here.",
    "secure-rng": "Noise came from the operating system, so that no seed can take it off a released model.",
}
RESEARCH = (
    "Noise came from published seeds, so that anybody can repeat the number; no model of such a run may be released."
)
SELECTION: Mapping[SelectionRule, str] = {
    "default": "The learner's defaults; nothing was tried.",
    "by-hand": "Somebody set options, and nobody knows on what grounds.",
    "transfer": "Taken from an earlier tuning on another dataset.",
    "public-validation": "Tuned on the public split alone; its labels were read for choosing.",
    "private-accounted": "Tuned on private data, and ε is that of the whole search.",
    "private-unaccounted": "Tuned on private data, outside ε; never ranked.",
    "oracle": "Tuned on the test split; never ranked.",
}
STATUS: Mapping[str, str] = {
    "submitted": "sent in; nobody of the project has run it",
    "verified": "checked by the project",
    "disputed": "somebody doubts it; see its notes",
    "withdrawn": "taken back by who sent it in",
}
