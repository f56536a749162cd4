"""What a page says in words about rules, trust and metrics: one sentence each."""

from __future__ import annotations

from collections.abc import Mapping

from dpbench.board.index import Trust
from dpbench.records.search import SelectionRule

TRUST: Mapping[Trust, str] = {
    "submitted": "checked, and not yet run again by the project",
    "re-run": "a seed of it was run again by the project, and gave the same",
    "audited": "one more fit of it was listened to and attacked by the project, and nothing contradicts what is stated",
}
CHOSEN: Mapping[SelectionRule, str] = {
    "default": "defaults",
    "by-hand": "set by hand",
    "transfer": "tuned elsewhere",
    "public-validation": "tuned",
    "private-accounted": "tuned within ε",
    "private-unaccounted": "tuned outside ε",
    "oracle": "tuned on the test",
}
SELECTION: Mapping[SelectionRule, str] = {
    "default": "The learner's defaults; nothing was tried.",
    "by-hand": "Somebody set options, and nobody knows on what grounds.",
    "transfer": "Taken from an earlier tuning on another dataset.",
    "public-validation": "Tuned on the public split alone; its labels were read for choosing.",
    "private-accounted": "Tuned on private data, and ε is that of the whole search.",
    "private-unaccounted": "Tuned on private data, outside ε; never ranked.",
    "oracle": "Tuned on the test split; never ranked.",
}
RNG: Mapping[str, str] = {
    "research": "from published seeds, so that anybody can repeat the number; no model of such a run may be released",
    "secure": "from the operating system, so that no seed can take it off a released model",
}
