"""Tables that compare learners, made from committed results."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.docs.tables.grid_tables import format_score, render_epsilon_table, render_markdown_table
from dpbench.records.result import Result

TAIL_ORDER = (
    "thrift", "self-tail", "dp-finetune", "dp-finetune:start=answers", "public-only", "public-only:tail=true",
    "public-prior", "public-tail",
)  # fmt: skip


def render_without_photographs_table(results: Sequence[Result]) -> str:
    """Return the table of the sweep `without-photographs`: accuracy by epsilon, a row per extractor and learner."""
    ordered = sorted(results, key=lambda result: (_list_extractor_names(result), result.spec.learner.name))
    return render_epsilon_table(
        ordered,
        "accuracy",
        ("features", "learner"),
        lambda result: (f"`{_list_extractor_names(result)}`", f"`{result.spec.learner.name}`"),
    )


def render_trained_tails_table(results: Sequence[Result]) -> str:
    """Return the table of the sweeps of trained tails: scores by epsilon, a row per dataset, size and learner.

    The names of learners that read public labels begin with `public-`.
    """
    epsilons = sorted({_read_spent_epsilon(result) for result in results})
    found: dict[tuple[str, ...], dict[float, str]] = {}
    for result in sorted(results, key=_tail_sort_key):
        line = f"{result.spec.dataset.name}, {result.task.private:,}", f"`{_format_tail_name(result)}`"
        found.setdefault(line, {})[_read_spent_epsilon(result)] = format_score(result.metrics[result.spec.metric])
    heads = ["data, private", "learner", *(f"ε {epsilon:g}" for epsilon in epsilons)]
    return render_markdown_table(
        heads, [[*line, *(cells.get(e, "") for e in epsilons)] for line, cells in found.items()]
    )


def _tail_sort_key(result: Result) -> tuple[str, int, int]:
    return result.spec.dataset.name, result.task.private, TAIL_ORDER.index(_format_tail_name(result))


def _format_tail_name(result: Result) -> str:
    learner = result.spec.learner
    answers = ":start=answers" * (learner.options.get("start") == "answers")
    return learner.name + ":tail=true" * bool(learner.options.get("tail")) + answers


def _read_spent_epsilon(result: Result) -> float:
    return result.spec.epsilon if result.privacy.plan else 0.0


def _list_extractor_names(result: Result) -> str:
    """Return the names of the joined extractors, without options."""
    return "+".join(part.partition(":")[0] for part in str(result.spec.extractor).split("+"))
