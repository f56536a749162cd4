"""Every command of the harness by its name, in the order of `dpbench --help`. Imports stay light."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typer import Typer

from dpbench.cli import (
    audit,
    budget,
    cache,
    check,
    components,
    data,
    docs,
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
)

COMMANDS: Mapping[str, Callable[..., None]] = {
    "run": run.run, "tune": tune.tune, "sweep": sweep.sweep, "report": report.report, "compare": results.compare,
    "predict": predict.predict, "list": components.list_components, "check": check.check_component,
    "budget": budget.budget, "audit": audit.audit, "pretrain": pretrain.pretrain, "docs": docs.docs,
}  # fmt: skip
GROUPS: Mapping[str, Typer] = {
    "results": results.app, "data": data.app, "cache": cache.app, "plugin": plugin.app, "leaderboard": leaderboard.app,
    "receipt": receipt.app,
}  # fmt: skip
