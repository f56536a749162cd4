"""The metrics that every seed is scored by; shares of 1, higher is better.

A new one is a name in `Metric`, a title and a field here, and its value in `harness.scoring.score`: results, tables,
figures, flags and pages follow. Its field is `Share | None = None`, as results from before it lack it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Metric = Literal["accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1", "auroc"]
METRICS: tuple[Metric, ...] = get_args(Metric)
TITLES: Mapping[Metric, str] = {
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "worst_class_accuracy": "Worst class",
    "macro_f1": "Macro F1",
    "auroc": "AUROC",
}
Share = Annotated[float, Field(ge=0, le=1)]


class Scores(BaseModel):
    """What one seed scored; None where a metric does not apply, as AUROC of more than two classes."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    accuracy: Share
    balanced_accuracy: Share
    worst_class_accuracy: Share
    macro_f1: Share
    auroc: Share | None
