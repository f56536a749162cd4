"""What a user should hear before a run starts."""

from __future__ import annotations

from dpbench.api import Budget, Features, Images, Task
from dpbench.support import progress

JUST_BELOW = 0.9  # of 1/n: a delta of 1/n allows publishing one private example, whole
SIDE = 32  # pixels up to which private learners do well on raw pixels


def suggest_network(images: Images | Features) -> None:
    """Say that large images need a network's features; call it where nobody has named an extractor."""
    if isinstance(images, Features):
        return
    try:
        width, height = images[0].size
    except Exception:  # whatever a decoder raises: extraction names the image, and says what to do
        return
    if max(width, height) > SIDE:
        progress.line(
            f"These images are {width} x {height} pixels, and without --extractor learners use raw pixels. "
            "Private learners do far better on the features of a network: add --extractor efficientnet-lite0, or "
            "another one from dpbench list extractors."
        )


def warn_of_delta(budget: Budget, task: Task) -> None:
    """Say that a delta is just below 1/n, which every run refuses."""
    if budget.delta * task.size > JUST_BELOW:
        progress.line(
            f"delta={budget.delta:g} is just below 1/n={1 / task.size:.3g} with n={task.size:,} private examples: a "
            "mechanism that publishes one of them, drawn at random, nearly meets it. Choose a delta well below 1/n."
        )
