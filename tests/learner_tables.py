"""Tables of learners beside each other, made from committed results."""

from __future__ import annotations

from collections.abc import Callable

from dpbench.records.result import Interval, Result

ONE_ROUND = {"rounds": 1, "moment": 0.0}


def least_squares(results: list[Result], said: Callable[[Interval], str]) -> str:
    """Return accuracy against epsilon, a line for each dataset and learner, from the results of `least-squares`."""
    found: dict[tuple[str, str], dict[float, str]] = {}
    for result in results:
        learner = result.spec.learner
        name = f"`{learner.name}`" + (", one round" if ONE_ROUND.items() <= learner.options.items() else "")
        found.setdefault((result.spec.dataset.name, name), {})[result.spec.epsilon] = said(result.metrics["accuracy"])
    epsilons = sorted({result.spec.epsilon for result in results})
    lines = [f"| data | learner | {' | '.join(f'ε {epsilon:g}' for epsilon in epsilons)} |"]
    lines.append("|---|---|" + "---|" * len(epsilons))
    for (dataset, name), by in sorted(found.items()):
        lines.append(f"| {dataset} | {name} | {' | '.join(by.get(epsilon, '') for epsilon in epsilons)} |")
    return "\n".join(lines)
