"""Tables of learners beside each other, made from committed results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpbench.board.index import Standing
from dpbench.docs.tables.grid_tables import Said, against_epsilon
from dpbench.records.result import Result

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
    return _against_epsilon(
        results, said, columns, lambda result: (f"`{_extractors(result)}`", f"`{result.spec.learner.name}`")
    )


def by_steps(narrow: Sequence[Result], wide: Sequence[Result], said: Said) -> str:
    """Return accuracy against learning rate and steps, of `pillar-figure-4-steps` and `pillar-figure-4-dimensions`."""
    found: dict[tuple[float, int], dict[tuple[int, str], str]] = {}
    for networks, results in enumerate((narrow, wide)):
        for result in results:
            options = result.spec.learner.options
            at = (options["learning_rate"] or math.inf, options["steps"] or 0)
            found.setdefault(at, {})[networks, result.spec.learner.name] = said(result.metrics["accuracy"])
    columns = [(networks, learner) for networks in (0, 1) for learner in ("dp-sgd", "pillar")]
    lines = [
        "| learning rate | steps | `dp-sgd`, 1,280 | `pillar`, 1,280 | `dp-sgd`, 2,560 | `pillar`, 2,560 |",
        "|---|---|---|---|---|---|",
    ]
    for (rate, steps), by in sorted(found.items()):
        setting = f"{rate:g} | {steps:,}" if steps else "dpbench's defaults | "
        lines.append(f"| {setting} | {' | '.join(by.get(column, '') for column in columns)} |")
    return "\n".join(lines)


def fine_tuning(results: Sequence[Result], said: Said) -> str:
    """Return the same, a line for each dataset and what is trained, from the results of `fine-tuning`."""
    return _against_epsilon(
        results,
        said,
        ("data", "private images", "what is trained", "cached after"),
        lambda result: (result.spec.dataset.name, f"{result.task.private:,}", _trained(result), _cached_after(result)),
    )


def fine_tuning_boards(standings: Sequence[Standing], said: Said) -> str:
    """Return accuracy by board and by what was trained.

    Where a board ranks by another metric, that stands in brackets.
    """
    parts = ("head", "bias", "lora")
    lines = [f"| board | private images | {' | '.join(f'`{part}`' for part in parts)} |", "|---|---|---|---|---|"]
    for standing in standings:
        found = {}
        for entry in standing.entries:
            if entry.learner == "dp-finetune":
                found[entry.settings["parameters"]] = said(entry.metrics["accuracy"])
                if standing.board.metric != "accuracy":
                    found[entry.settings["parameters"]] += f" ({said(entry.metrics[standing.board.metric])})"
        if found:
            cells = " | ".join(found.get(part, "") for part in parts)
            lines.append(f"| `{standing.board.name}` | {standing.private:,} | {cells} |")
    return "\n".join(lines)


def third_phase(results: Sequence[Result], said: Said) -> str:
    """Return the same, a line for what is trained, from the results of `dp-randp-phase-3`."""
    return _against_epsilon(results, said, ("what is trained",), lambda result: (_trained(result),))


def _trained(result: Result) -> str:
    learner = result.spec.learner
    which = learner.options.get("parameters")
    return f"{PARTS[which]} (`{which}`)" if which else f"head on pooled features (`{learner.name}`)"


def _cached_after(result: Result) -> str:
    layer = result.spec.extractor.options.get("layer")
    return f"`{layer}`" if layer else "the last layer"


PARTS = {
    "head": "head",
    "bias": "head, then biases",
    "lora": "head, then adapters",
    "last": "head, then the last layer",
    "all": "head, then everything",
}


def _extractors(result: Result) -> str:
    """Return the names of what is side by side, without options."""
    return "+".join(part.partition(":")[0] for part in str(result.spec.extractor).split("+"))


def _against_epsilon(
    results: Sequence[Result], said: Said, columns: tuple[str, ...], line: Callable[[Result], tuple[str, ...]]
) -> str:
    return against_epsilon(sorted(results, key=_place), "accuracy", said, columns, line)


def _place(result: Result) -> tuple[str, int, str, str, bool]:
    """Return what lines are ordered by: data, how much of a network is trained, features, learner, its rounds."""
    learner = result.spec.learner
    which = learner.options.get("parameters")
    part = 1 + list(PARTS).index(which) if which else 0
    one_round = ONE_ROUND.items() <= learner.options.items()
    return result.spec.dataset.name, part, _extractors(result), learner.name, one_round
