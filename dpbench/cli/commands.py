"""Every command of the harness, in the order of `dpbench --help`. This module imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping

from dpbench.cli import (
    audit,
    budget,
    cache,
    check,
    components,
    data,
    docs,
    features,
    leaderboard,
    plugin,
    predict,
    pretrain,
    receipt,
    report,
    results,
    run,
    sweep,
    tune,
    verify,
)
from dpbench.cli.program import Panel

PANELS: Mapping[str, Panel] = {
    "Run": {
        "run": (run.run, "Train a learner, test it and write a result."),
        "sweep": (sweep.sweep, "Run a grid of learners, data and values of ε; resumes."),
        "tune": (tune.tune, "Choose a learner's settings with public labels."),
        "budget": (budget.budget, "Find σ for an ε, or ε for a σ."),
    },
    "Look": {
        "results": (results.app, "Show results in tables, or explain one in words."),
        "compare": (results.compare, "Test whether two results differ."),
        "report": (report.report, "Write an HTML page about results."),
        "docs": (docs.docs, "Open the documentation, offline."),
    },
    "Your data": {
        "data": (data.app, "List, fetch, import and describe datasets."),
        "features": (features.app, "Pack features into a file that others use."),
        "cache": (cache.app, "List and clear features kept between runs."),
        "predict": (predict.predict, "Classify images with a saved model."),
    },
    "Trust and publish": {
        "verify": (verify.verify, "Verify a result, model, receipt or leaderboard."),
        "check": (check.check_component, "Test a component against every law."),
        "audit": (audit.audit, "Run one fit again and attack it."),
        "receipt": (receipt.app, "Write receipts: what a model's ε is computed from."),
        "leaderboard": (leaderboard.app, "Check, add, verify and build the leaderboard."),
    },
    "Plugins": {
        "list": (components.list_components, "List learners, datasets, extractors and boards; explain one."),
        "plugin": (plugin.app, "Create a plugin of your own."),
        "pretrain": (pretrain.pretrain, "Train an extractor on images drawn at random."),
    },
}
"""The panels of `dpbench --help` by title: commands and groups of commands, each with its line of help."""
