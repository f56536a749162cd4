"""Tables that compare learners, made from committed results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpbench.board.index import Standing
from dpbench.docs.tables.grid_tables import epsilon_table, format_score, render_markdown_table
from dpbench.records.result import Result

ONE_ROUND_OPTIONS = {"rounds": 1, "moment": 0.0}


def render_least_squares(results: Sequence[Result]) -> str:
    """Return a table of accuracy by epsilon, a line per dataset and learner, for the sweep `least-squares`."""

    def line(result: Result) -> tuple[str, str]:
        learner = result.spec.learner
        one_round = ONE_ROUND_OPTIONS.items() <= learner.options.items()
        return result.spec.dataset.name, f"`{learner.name}`" + (", one round" if one_round else "")

    return _render_accuracy_by_epsilon(results, ("data", "learner"), line)


def render_without_photographs(results: Sequence[Result]) -> str:
    """Return a table of accuracy by epsilon, a line per extractor and learner, for the sweep `without-photographs`."""
    columns = ("features", "learner")
    return _render_accuracy_by_epsilon(
        results, columns, lambda result: (f"`{_list_extractor_names(result)}`", f"`{result.spec.learner.name}`")
    )


def render_steps_table(narrow: Sequence[Result], wide: Sequence[Result]) -> str:
    """Return a table of accuracy by learning rate and steps, for `pillar-figure-4-steps` and `-dimensions`."""
    found: dict[tuple[float, int], dict[tuple[int, str], str]] = {}
    for networks, results in enumerate((narrow, wide)):
        for result in results:
            options = result.spec.learner.options
            at = (options["learning_rate"] or math.inf, options["steps"] or 0)
            found.setdefault(at, {})[networks, result.spec.learner.name] = format_score(result.metrics["accuracy"])
    columns = [(networks, learner) for networks in (0, 1) for learner in ("dp-sgd", "pillar")]
    heads = ["learning rate", "steps", "`dp-sgd`, 1,280", "`pillar`, 1,280", "`dp-sgd`, 2,560", "`pillar`, 2,560"]
    rows = []
    for (rate, steps), by in sorted(found.items()):
        setting = [f"{rate:g}", f"{steps:,}"] if steps else ["dpbench's defaults", ""]
        rows.append([*setting, *(by.get(column, "") for column in columns)])
    return render_markdown_table(heads, rows)


def render_fine_tuning(results: Sequence[Result]) -> str:
    """Return a table of accuracy by epsilon, a line per dataset and trained part, for the sweep `fine-tuning`."""
    return _render_accuracy_by_epsilon(
        results,
        ("data", "private images", "what is trained", "cached after"),
        lambda result: (
            result.spec.dataset.name,
            f"{result.task.private:,}",
            _describe_trained_part(result),
            _name_cached_layer(result),
        ),
    )


def render_fine_tuning_boards(standings: Sequence[Standing]) -> str:
    """Return a table of the accuracy of `dp-finetune` by board and trained part.

    If a board ranks by another metric, that metric follows in brackets.
    """
    parts = ("head", "bias", "lora")
    rows = []
    for standing in standings:
        found = {}
        for entry in standing.entries:
            if entry.learner == "dp-finetune":
                found[entry.settings["parameters"]] = format_score(entry.metrics["accuracy"])
                if standing.board.metric != "accuracy":
                    found[entry.settings["parameters"]] += f" ({format_score(entry.metrics[standing.board.metric])})"
        if found:
            cells = [found.get(part, "") for part in parts]
            rows.append([f"`{standing.board.name}`", f"{standing.private:,}", *cells])
    return render_markdown_table(["board", "private images", *(f"`{part}`" for part in parts)], rows)


def render_third_phase(results: Sequence[Result]) -> str:
    """Return a table of accuracy by epsilon, a line per trained part, for the sweep `dp-randp-phase-3`."""
    return _render_accuracy_by_epsilon(results, ("what is trained",), lambda result: (_describe_trained_part(result),))


def _describe_trained_part(result: Result) -> str:
    learner = result.spec.learner
    which = learner.options.get("parameters")
    return f"{PART_NAMES[which]} (`{which}`)" if which else f"head on pooled features (`{learner.name}`)"


def _name_cached_layer(result: Result) -> str:
    layer = result.spec.extractor.options.get("layer")
    return f"`{layer}`" if layer else "the last layer"


PART_NAMES = {
    "head": "head",
    "bias": "head, then biases",
    "lora": "head, then adapters",
    "last": "head, then the last layer",
    "all": "head, then everything",
}


def _list_extractor_names(result: Result) -> str:
    """Return the names of the joined extractors, without options."""
    return "+".join(part.partition(":")[0] for part in str(result.spec.extractor).split("+"))


def _render_accuracy_by_epsilon(
    results: Sequence[Result], columns: tuple[str, ...], line: Callable[[Result], tuple[str, ...]]
) -> str:
    return epsilon_table(sorted(results, key=_line_sort_key), "accuracy", columns, line)


def _line_sort_key(result: Result) -> tuple[str, int, str, str, bool]:
    """Return the sort key of a line: dataset, trained part of the network, features, learner, and number of rounds."""
    learner = result.spec.learner
    which = learner.options.get("parameters")
    part = 1 + list(PART_NAMES).index(which) if which else 0
    one_round = ONE_ROUND_OPTIONS.items() <= learner.options.items()
    return result.spec.dataset.name, part, _list_extractor_names(result), learner.name, one_round
