"""Tables of learners beside each other, made from committed results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpbench.records.result import Interval, Result

Said = Callable[[Interval], str]
ONE_ROUND = {"rounds": 1, "moment": 0.0}


def least_squares(results: Sequence[Result], said: Said) -> str:
    """Return accuracy against epsilon, a line for each dataset and learner, from the results of `least-squares`."""

    def line(result: Result) -> tuple[str, str]:
        learner = result.spec.learner
        one_round = ONE_ROUND.items() <= learner.options.items()
        return result.spec.dataset.name, f"`{learner.name}`" + (", one round" if one_round else "")

    return _against_epsilon(results, said, ("data", "learner"), line)


def without_photographs(results: Sequence[Result], said: Said) -> str:
    """Return the same, a line for each extractor and learner, from the results of `without-photographs`."""
    columns = ("features", "learner")
    return _against_epsilon(results, said, columns, lambda one: (f"`{_extractors(one)}`", f"`{one.spec.learner.name}`"))


def fine_tuning(results: Sequence[Result], said: Said) -> str:
    """Return the same, a line for each dataset and what is trained, from the results of `fine-tuning`."""

    def line(result: Result) -> tuple[str, str]:
        learner = result.spec.learner
        if learner.name != "dp-finetune":
            return result.spec.dataset.name, f"`{learner.name}` on pooled features"
        return result.spec.dataset.name, f"`dp-finetune`, `{learner.options['parameters']}`"

    return _against_epsilon(results, said, ("data", "what is trained"), line)


def _extractors(result: Result) -> str:
    """Return the names of what is side by side, without options."""
    return "+".join(part.partition(":")[0] for part in str(result.spec.extractor).split("+"))


def _against_epsilon(
    results: Sequence[Result], said: Said, columns: tuple[str, str], line: Callable[[Result], tuple[str, str]]
) -> str:
    found: dict[tuple[str, str], dict[float, str]] = {}
    for result in results:
        found.setdefault(line(result), {})[result.spec.epsilon] = said(result.metrics["accuracy"])
    epsilons = sorted({result.spec.epsilon for result in results})
    lines = [f"| {' | '.join(columns)} | {' | '.join(f'ε {epsilon:g}' for epsilon in epsilons)} |"]
    lines.append("|---|---|" + "---|" * len(epsilons))
    for (first, second), by in sorted(found.items()):
        lines.append(f"| {first} | {second} | {' | '.join(by.get(epsilon, '') for epsilon in epsilons)} |")
    return "\n".join(lines)
