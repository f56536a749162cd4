"""What a page says in words about rules, trust and metrics: one sentence each."""

from __future__ import annotations

from collections.abc import Mapping

from dpbench.board.index import Entry, Trust
from dpbench.records.search import SelectionRule

TRUST: Mapping[Trust, str] = {
    "submitted": "checked, and not yet run again by the project",
    "re-run": "the project ran some seeds again, or all with other code, and they came out the same",
    "reproduced": "the project ran all seeds again with the same code and settings, and they came out the same",
    "audited": "the project listened to one more fit and attacked it, and nothing contradicts what is stated",
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


def name_trust(entry: Entry) -> str:
    """Return what was done to an entry beyond the checks of all, in a few words; an audit does not hide a re-run."""
    again = entry.again
    words = []
    if entry.reproduced:
        words.append("reproduced")
    elif again is not None:
        many = f"{max(1, len(again.seeds))} of {again.of or entry.seeds} seeds"
        words.append("run again by other code" if again.code == "other" else f"{many} run again")
    return " and ".join(words + ["audited"] * (entry.audit is not None)) or entry.trust


def describe_trust(entry: Entry) -> str:
    """Return what was done to an entry in sentences, without the last full stop."""
    done: list[Trust] = ["reproduced"] if entry.reproduced else ["re-run"] if entry.again else []
    found = [*done, "audited"] if entry.audit else done or [entry.trust]
    return "; ".join(TRUST[one] for one in found)


RNG: Mapping[str, str] = {
    "research": "from published seeds, so that anybody can repeat the number; no model of such a run may be released",
    "secure": "from the operating system, so that no seed can take it off a released model",
}
