"""Tables that compare learners, made from committed results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpbench.board.index import Standing
from dpbench.docs.tables.grid_tables import epsilon_table, format_score, render_markdown_table
from dpbench.records.result import Result

TAIL_ORDER = (
    "thrift", "self-tail", "dp-finetune", "dp-finetune:start=answers", "public-only", "public-only:tail=true",
    "public-prior", "public-tail",
)  # fmt: skip


def render_without_photographs(results: Sequence[Result]) -> str:
    """Return a table of accuracy by epsilon, a line per extractor and learner, for the sweep `without-photographs`."""
    columns = ("features", "learner")
    return _render_accuracy_by_epsilon(
        results, columns, lambda result: (f"`{_list_extractor_names(result)}`", f"`{result.spec.learner.name}`")
    )


def render_fine_tuning(results: Sequence[Result]) -> str:
    """Return a table of accuracy by epsilon, a line per dataset and trained part, for the sweep `fine-tuning`."""
    return _render_accuracy_by_epsilon(
        results,
        ("data", "private images", "what is trained"),
        lambda result: (result.spec.dataset.name, f"{result.task.private:,}", _describe_trained_part(result)),
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


def render_tails(results: Sequence[Result]) -> str:
    """Return a table of the metric of each run of the sweeps of tails, a line per dataset, size and learner."""
    epsilons = sorted({_spent_epsilon(result) for result in results})
    found: dict[tuple[str, ...], dict[float, str]] = {}
    for result in sorted(results, key=_tail_sort_key):
        labels, private = "yes" if result.task.public_labels_seen else "no", f"{result.task.private:,}"
        line = result.spec.dataset.name, private, f"`{_name_tail(result)}`", labels
        found.setdefault(line, {})[_spent_epsilon(result)] = format_score(result.metrics[result.spec.metric])
    heads = ["data", "private", "learner", "public labels", *(f"ε {epsilon:g}" for epsilon in epsilons)]
    return render_markdown_table(
        heads, [[*line, *(cells.get(e, "") for e in epsilons)] for line, cells in found.items()]
    )


def _tail_sort_key(result: Result) -> tuple[str, int, int]:
    return result.spec.dataset.name, result.task.private, TAIL_ORDER.index(_name_tail(result))


def _name_tail(result: Result) -> str:
    learner = result.spec.learner
    answers = ":start=answers" * (learner.options.get("start") == "answers")
    return learner.name + ":tail=true" * bool(learner.options.get("tail")) + answers


def _spent_epsilon(result: Result) -> float:
    return result.spec.epsilon if result.privacy.plan else 0.0


def _describe_trained_part(result: Result) -> str:
    learner = result.spec.learner
    which = learner.options.get("parameters")
    return f"{PART_NAMES[which]} (`{which}`)" if which else f"head on pooled features (`{learner.name}`)"


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


def _line_sort_key(result: Result) -> tuple[str, int, str, str]:
    """Return the sort key of a line: dataset, trained part of the network, features and learner."""
    learner = result.spec.learner
    which = learner.options.get("parameters")
    part = 1 + list(PART_NAMES).index(which) if which else 0
    return result.spec.dataset.name, part, _list_extractor_names(result), learner.name
