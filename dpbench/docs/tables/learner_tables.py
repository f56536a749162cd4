"""Tables that compare learners, made from committed results."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.docs.tables.grid_tables import epsilon_table, format_score, render_markdown_table
from dpbench.records.result import Result

TAIL_ORDER = ("thrift", "self-tail", "public-only", "public-only:tail=true", "public-prior", "public-tail")


def render_without_photographs(results: Sequence[Result]) -> str:
    """Return a table of accuracy by epsilon, a line per extractor and learner, for the sweep `without-photographs`."""
    ordered = sorted(results, key=lambda result: (_list_extractor_names(result), result.spec.learner.name))
    return epsilon_table(
        ordered,
        "accuracy",
        ("features", "learner"),
        lambda result: (f"`{_list_extractor_names(result)}`", f"`{result.spec.learner.name}`"),
    )


def render_tails(results: Sequence[Result]) -> str:
    """Return a table of the metric of each run of the sweep `tails`, a line per dataset and learner."""
    epsilons = sorted({_spent_epsilon(result) for result in results})
    found: dict[tuple[str, ...], dict[float, str]] = {}
    order = sorted(results, key=lambda result: (result.spec.dataset.name, TAIL_ORDER.index(_name_tail(result))))
    for result in order:
        labels = "yes" if result.task.public_labels_seen else "no"
        line = result.spec.dataset.name, f"`{_name_tail(result)}`", labels
        found.setdefault(line, {})[_spent_epsilon(result)] = format_score(result.metrics[result.spec.metric])
    heads = ["data", "learner", "public labels", *(f"ε {epsilon:g}" for epsilon in epsilons)]
    return render_markdown_table(
        heads, [[*line, *(cells.get(e, "") for e in epsilons)] for line, cells in found.items()]
    )


def _name_tail(result: Result) -> str:
    return result.spec.learner.name + ":tail=true" * bool(result.spec.learner.options.get("tail"))


def _spent_epsilon(result: Result) -> float:
    return result.spec.epsilon if result.privacy.plan else 0.0


def _list_extractor_names(result: Result) -> str:
    """Return the names of the joined extractors, without options."""
    return "+".join(part.partition(":")[0] for part in str(result.spec.extractor).split("+"))
