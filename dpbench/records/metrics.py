"""The metrics that every seed is scored by; shares of 1, higher is better."""

from __future__ import annotations

from typing import Literal, get_args

Metric = Literal["accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1", "auroc"]
METRICS: tuple[Metric, ...] = get_args(Metric)
