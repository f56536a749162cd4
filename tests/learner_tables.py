"""Tables of learners beside each other, made from committed results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpbench.records.result import Interval, Result

ONE_ROUND = {"rounds": 1, "moment": 0.0}
Said = Callable[[Interval], str]


def least_squares(results: Sequence[Result], said: Said) -> str:
    """Return accuracy against epsilon, a line for each dataset and learner, from the results of `least-squares`."""

    def name(result: Result) -> str:
        learner = result.spec.learner
        return f"`{learner.name}`" + (", one round" if ONE_ROUND.items() <= learner.options.items() else "")

    return _against_epsilon(results, said, name)


def _against_epsilon(results: Sequence[Result], said: Said, name: Callable[[Result], str]) -> str:
    found: dict[tuple[str, str], dict[float, str]] = {}
    for result in results:
        line = found.setdefault((result.spec.dataset.name, name(result)), {})
        line[result.spec.epsilon] = said(result.metrics["accuracy"])
    epsilons = sorted({result.spec.epsilon for result in results})
    heads = [f"ε {'∞' if math.isinf(epsilon) else format(epsilon, 'g')}" for epsilon in epsilons]
    lines = [f"| data | learner | {' | '.join(heads)} |", "|---|---|" + "---|" * len(epsilons)]
    for (dataset, learner), by in sorted(found.items()):
        lines.append(f"| {dataset} | {learner} | {' | '.join(by.get(epsilon, '') for epsilon in epsilons)} |")
    return "\n".join(lines)
