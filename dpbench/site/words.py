"""What pages say about trust, settings, noise and guards: one sentence each."""

from __future__ import annotations

from collections.abc import Mapping

from dpbench_lab.museum.record import Guard

from dpbench.board.index import Entry, Trust
from dpbench.records.search import SelectionRule

TRUST: Mapping[Trust, str] = {
    "submitted": "it passed all checks; the project has neither re-run nor audited it yet",
    "re-run": "the project re-ran some seeds, or all seeds with other code, and got the same outcome",
    "reproduced": "the project re-ran all seeds with the same code and settings and got the same predictions",
    "audited": "the project watched and attacked one more fit, and found nothing that contradicts the stated guarantee",
}
CHOSEN: Mapping[SelectionRule, str] = {
    "default": "defaults",
    "by-hand": "set by hand",
    "transfer": "tuned elsewhere",
    "public-validation": "tuned",
    "private-accounted": "tuned within ε",
    "private-unaccounted": "tuned outside ε",
    "oracle": "tuned on the test split",
}
SELECTION: Mapping[SelectionRule, str] = {
    "default": "The learner's default settings; nothing was tried.",
    "by-hand": "Settings given by the user; how they were chosen is not recorded.",
    "transfer": "Settings tuned earlier on another dataset.",
    "public-validation": "Tuned on the public split only, with its labels.",
    "private-accounted": "Tuned on private data; ε covers the whole search.",
    "private-unaccounted": "Tuned on private data; ε does not cover the search, so the result is never ranked.",
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
        words.append("re-run by other code" if again.code == "other" else f"{many} re-run")
    return " and ".join(words + ["audited"] * (entry.audit is not None)) or entry.trust


def describe_trust(entry: Entry) -> str:
    """Return what was done to an entry in sentences, without the last full stop."""
    done: list[Trust] = ["reproduced"] if entry.reproduced else ["re-run"] if entry.again else []
    found = [*done, "audited"] if entry.audit else done or [entry.trust]
    return "; ".join(TRUST[one] for one in found)


RNG: Mapping[str, str] = {
    "research": "from published seeds, so anyone can repeat this number; do not release a model from this run",
    "secure": "from the operating system, so nobody can subtract it from a released model",
}


def describe_model(entry: Entry) -> str:
    """Return whether a saved model of an entry may be published, and how to make one."""
    if not entry.reads_private:
        return "You may publish a model from this run, which read no private image: add --models to the command below."
    if entry.rng == "secure":
        return "If you ran this with --models, you may publish the model; nobody else can make it again."
    return (
        "None to download: the noise comes from published seeds, so anyone could subtract it from the model. For a "
        "model that you may publish, add --secure-rng --models to the command below."
    )


GUARDED: Mapping[Guard, tuple[str, str]] = {
    "cannot be written": (
        "The interface has no way to write it",
        "The curator offers no call for these bugs: the code fails with an error before it reads a private row.",
    ),
    "changes nothing": (
        "The harness makes it harmless",
        "The code runs, but the harness clips and sums by itself, so the guarantee holds anyway.",
    ),
    "while running": (
        "Stopped while the learner runs",
        "The harness checks row functions at random moments and stops a run that breaks the rules.",
    ),
    "dpbench check": (
        "Caught by dpbench check",
        "These bugs show only when a learner runs several times; the command does that.",
    ),
    "audit: sensitivity": (
        "Caught by the audit: sensitivity",
        "The audit measures how far one row moves a sum and compares it with the clip.",
    ),
    "audit: noise": (
        "Caught by the audit: noise",
        "The audit measures the size and the independence of the noise.",
    ),
    "audit: attack": (
        "Caught by the audit: attack",
        "The audit plants examples and counts how often an attacker detects them.",
    ),
    "second accountant": (
        "Caught by the second accountant",
        "A second, independent accountant computes ε from the same plan and disagrees.",
    ),
    "board": (
        "Refused by the board",
        "The run works, but its result breaks a rule of the leaderboard.",
    ),
}
"""What each guard of the museum is called as a heading, and how it works."""


def label_guard(guard: Guard) -> str:
    """Return a guard as a noun within a sentence."""
    return GUARD_NOUNS[guard]


GUARD_NOUNS: Mapping[Guard, str] = {
    "cannot be written": "the interface, which has no such call", "changes nothing": "the harness, which ignores it",
    "while running": "the checks while a learner runs", "dpbench check": "`dpbench check`",
    "audit: sensitivity": "the audit of sensitivity", "audit: noise": "the audit of noise",
    "audit: attack": "the attack of the audit", "second accountant": "the second accountant",
    "board": "the checks of the board",
}  # fmt: skip
