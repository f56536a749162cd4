"""Public origin: clip private gradients around the public gradient, or mix both gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dpbench import (
    Budget,
    Curator,
    Learner,
    Predict,
    PublicData,
    Release,
    RowFn,
    Task,
    aimed,
    hookimpl,
    require_setting,
    residuals,
    setting,
)
from dpbench_plugins.learners.coordinates import CLIP, Coordinates, choose_settings
from dpbench_plugins.learners.gradient_rows import make_gradient_rows
from dpbench_plugins.learners.public_labels import require_public_labels

if TYPE_CHECKING:
    import torch
    from torch import Tensor

AT_ONCE = 1024  # private rows whose gradients are in memory at once


@dataclass(frozen=True)
class PublicOrigin(Learner):
    """DOPE-SGD and PDA-DPMD on a linear head: two ways to use the gradient of labelled public examples.

    Rows have the coordinates of `thrift` without its graph; `k`, `steps` and `learning_rate` are those that `thrift`
    chooses for the budget. At each step, the learner computes the mean gradient of the public examples at the current
    head. It then asks for a noisy sum over all private examples. `rule` says how the step combines this sum with the
    public gradient:

    - `origin` is DOPE-SGD (Nasr et al., ICML 2023). Each private gradient is clipped around the public one: an example
      contributes its gradient minus the public gradient, clipped to `clip`. The public gradient is then added to the
      mean of the noisy sum. Where private and public gradients agree, less is clipped.
    - `mixing` is PDA-DPMD (Amid et al., ICML 2022, arXiv:2112.00193), in the form that its authors use in their
      experiments: the step is a times the private gradient, clipped as usual, plus 1 - a times the public one. In step
      t of T, a is cos(pi t / 2T), so public data prevail in the end.

    Sensitivity: the public gradient is computed from public data and earlier noisy answers. It is the same for every
    private example, whichever examples are present. Clipping bounds the difference that an example contributes, so
    adding or removing it moves the sum by at most `clip`, as in DP-SGD; what is added afterwards is post-processing.
    The sum is divided by n, which the protocol declares public, and not by the number of rows.

    With start=public, training starts at softmax regression on the public labels, as both papers do after pre-training.
    `public-prior` is the same idea in closed form. If the protocol compares balanced accuracy, logits are adjusted as
    in `thrift`.

    Differences from the papers: full batches on a linear head instead of sampled batches on a network. DOPE-SGD also
    makes synthetic images from the public ones with a generative model and averages models of several steps; these
    parts are left out.

    No constant was tuned for this learner; the clip and the settings computed from the budget are those of `thrift`.
    """

    name = "public-origin"
    public = "labelled"
    rule_origin = "those of `thrift`"
    logits = True
    search_space = {
        "rule": ("origin", "mixing"),
        "start": ("zero", "public"),
        "clip": (0.2, 0.5, 1.0),
    }

    rule: Literal["origin", "mixing"] = setting("origin", says="how steps use the public gradient")
    start: Literal["zero", "public"] = setting("public", says="head to start from: zero, or fitted to public labels")
    k: int | None = setting(None, ge=1, says="public components kept")
    steps: int | None = setting(None, ge=1, says="full-batch gradient steps")
    learning_rate: float | None = setting(None, gt=0, lt=math.inf, says="step size of the descent")
    clip: float = setting(CLIP, gt=0, lt=math.inf, says="L2 bound on a contribution, in units of the norm of a row")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the k, steps and learning rate that `thrift` chooses."""
        return {name: value for name, value in choose_settings(task, budget, self.steps).items() if name != "graph"}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one full-batch sum per step; everything else reads public data or is post-processing."""
        return [Release("gradient", steps=require_setting(self.steps))]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train a head on private sums and public gradients."""
        import torch

        from dpbench_plugins.learners.tail_training import fit_softmax_regression

        task, k, steps = curator.task, require_setting(self.k), require_setting(self.steps)
        y = require_public_labels(public, self.name)
        features = Coordinates(self.name, k, 0.0).features(public.x, generator)
        private, known = curator.map(features), features(public.x)
        head = torch.zeros(task.classes, k + 1, device=task.device)
        if self.start == "public":
            weight, bias = fit_softmax_regression(known, torch.nn.functional.one_hot(y, task.classes).float())
            head = torch.cat([weight, bias.unsqueeze(1)], 1)
        rows = torch.nn.functional.pad(known, (0, 1), value=1.0)
        for step in range(steps):
            gradient = residuals(known @ head[:, :-1].T + head[:, -1], y).T @ rows / len(rows)
            share = 1.0 if self.rule == "origin" else math.cos(math.pi * step / (2 * steps))
            contribution = make_contribution_rows(head, gradient if self.rule == "origin" else None)
            clip = self.clip * (k + 1) ** 0.5
            total = private.noisy_sum(contribution, release="gradient", clip=clip, chunk_size=AT_ONCE)
            rest = 1.0 if self.rule == "origin" else 1 - share
            head = head - require_setting(self.learning_rate) * (share * total / task.size + rest * gradient)
        return aimed(lambda x: torch.addmm(head[:, -1], features(x), head[:, :-1].T), task, public)


def make_contribution_rows(head: Tensor, origin: Tensor | None) -> RowFn:
    """Return a row function: the gradient with respect to a head (classes, k + 1), minus `origin` if it is given."""
    gradients = make_gradient_rows(head)
    return gradients if origin is None else lambda chunk: gradients(chunk).dense() - origin


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learner of this module."""
    return [PublicOrigin]
